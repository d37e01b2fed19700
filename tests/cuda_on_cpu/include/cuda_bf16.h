/* Stands in for the toolkit's header of this name: bf16 as storage, and its conversions. No arithmetic: our kernels
 * compute in f32.
 */
#ifndef LNT_EMU_CUDA_BF16_H
#define LNT_EMU_CUDA_BF16_H

#include "lnt_emu_intrinsics.h"

struct __nv_bfloat16 {
    unsigned short bits;
};

struct __attribute__((aligned(4))) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits)
{
    return {bits};
}

static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 b)
{
    return b.bits;
}

/* The upper half, rounded half to even. The toolkit has one NaN. */
static inline __nv_bfloat16 __float2bfloat16_rn(float value)
{
    unsigned bits = __float_as_uint(value);

    if ((bits & 0x7fffffffu) > 0x7f800000u) return {0x7fff};
    return {(unsigned short)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

static inline __nv_bfloat16 __float2bfloat16(float value)
{
    return __float2bfloat16_rn(value);
}

static inline float __bfloat162float(__nv_bfloat16 b)
{
    return __uint_as_float((unsigned)b.bits << 16);
}

static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}

static inline float2 __bfloat1622float2(__nv_bfloat162 pair)
{
    return make_float2(__bfloat162float(pair.x), __bfloat162float(pair.y));
}

#endif
