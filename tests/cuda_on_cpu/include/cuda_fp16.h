/* Stands in for the toolkit's header of this name: f16 as storage, and its conversions. No arithmetic: our kernels
 * compute in f32.
 */
#ifndef LNT_EMU_CUDA_FP16_H
#define LNT_EMU_CUDA_FP16_H

#include "lnt_emu_intrinsics.h"

struct __half {
    unsigned short bits;
};

struct __attribute__((aligned(4))) __half2 {
    __half x, y;
};

static inline __half __ushort_as_half(unsigned short bits)
{
    return {bits};
}

static inline unsigned short __half_as_ushort(__half h)
{
    return h.bits;
}

/* A magnitude below 2^-14 is a multiple of 2^-24: adding 2^-1 leaves just those bits, rounded half to even by the
 * addition. Above it the lower 13 bits of the fraction are rounded away; the carry may run into the exponent. */
static inline __half __float2half_rn(float value)
{
    unsigned bits = __float_as_uint(value), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
    unsigned code;

    if (magnitude > 0x7f800000u) return {0x7fff};
    if (magnitude >= 0x47800000u)
        code = 0x7c00u;
    else if (magnitude < 0x38800000u)
        code = __float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000u;
    else
        code = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    return {(unsigned short)(sign | code)};
}

static inline __half __float2half(float value)
{
    return __float2half_rn(value);
}

/* There is one NaN, as on the device. */
static inline float __half2float(__half h)
{
    unsigned sign = (h.bits & 0x8000u) << 16, magnitude = h.bits & 0x7fffu;

    if (magnitude < 0x400u) return __uint_as_float(sign | __float_as_uint((float)magnitude * 0x1p-24f));
    if (magnitude > 0x7c00u) return __uint_as_float(0x7fffffffu);
    if (magnitude == 0x7c00u) return __uint_as_float(sign | 0x7f800000u);
    return __uint_as_float(sign | ((magnitude << 13) + 0x38000000u));
}

static inline __half2 __floats2half2_rn(float x, float y)
{
    return {__float2half_rn(x), __float2half_rn(y)};
}

static inline float2 __half22float2(__half2 pair)
{
    return make_float2(__half2float(pair.x), __half2float(pair.y));
}

#endif
