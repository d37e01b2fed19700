/* Device functions of a single thread: bit counting, bit casts, roundings, cached loads. Exact ones only: what the GPU
 * approximates (__expf, __fdividef, rsqrtf ...) cannot be had here bit for bit and is left out, so that it does not
 * compile.
 */
#ifndef LNT_EMU_INTRINSICS_H
#define LNT_EMU_INTRINSICS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "lnt_emu_vector.h"

template <typename To, typename From> static inline To lnt_emu_cast_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "a cast of bits keeps the size");
    To to;
    memcpy(&to, &from, sizeof(to));
    return to;
}

#define LNT_EMU_CAST(_name, _to, _from)                                                                                \
    static inline _to _name(_from from)                                                                                \
    {                                                                                                                  \
        return lnt_emu_cast_bits<_to>(from);                                                                           \
    }
LNT_EMU_CAST(__float_as_uint, unsigned, float)
LNT_EMU_CAST(__float_as_int, int, float)
LNT_EMU_CAST(__uint_as_float, float, unsigned)
LNT_EMU_CAST(__int_as_float, float, int)
LNT_EMU_CAST(__double_as_longlong, long long, double)
LNT_EMU_CAST(__longlong_as_double, double, long long)
#undef LNT_EMU_CAST

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

static inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}

static inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}

static inline int __clzll(long long x)
{
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}

static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

static inline int __ffsll(long long x)
{
    return __builtin_ffsll(x);
}

static inline unsigned __brev(unsigned x)
{
    x = ((x >> 1) & 0x55555555u) | ((x & 0x55555555u) << 1);
    x = ((x >> 2) & 0x33333333u) | ((x & 0x33333333u) << 2);
    x = ((x >> 4) & 0x0f0f0f0fu) | ((x & 0x0f0f0f0fu) << 4);
    return __builtin_bswap32(x);
}

/* Byte k of the result is byte selector[k] of the eight bytes y:x; bit 3 of a selector copies that byte's sign. */
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector)
{
    uint64_t bytes = ((uint64_t)y << 32) | x;
    unsigned result = 0;

    for (int k = 0; k < 4; k++) {
        unsigned choice = (selector >> (4 * k)) & 0xfu;
        unsigned byte = (unsigned)(bytes >> (8 * (choice & 7u))) & 0xffu;
        if (choice & 8u) byte = (byte & 0x80u) ? 0xffu : 0;
        result |= byte << (8 * k);
    }
    return result;
}

static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)(((((uint64_t)high << 32) | low) << (shift & 31u)) >> 32);
}

static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)((((uint64_t)high << 32) | low) >> (shift & 31u));
}

static inline unsigned __umulhi(unsigned x, unsigned y)
{
    return (unsigned)(((uint64_t)x * y) >> 32);
}

static inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y)
{
    return (unsigned long long)(((unsigned __int128)x * y) >> 64);
}

/* Arithmetic that no compiler may contract: these files are compiled with -ffp-contract=off. */
#define LNT_EMU_ARITHMETIC(_name, _type, _expression)                                                                  \
    static inline _type _name(_type x, _type y)                                                                        \
    {                                                                                                                  \
        return _expression;                                                                                            \
    }
LNT_EMU_ARITHMETIC(__fadd_rn, float, x + y)
LNT_EMU_ARITHMETIC(__fsub_rn, float, x - y)
LNT_EMU_ARITHMETIC(__fmul_rn, float, x *y)
LNT_EMU_ARITHMETIC(__fdiv_rn, float, x / y)
LNT_EMU_ARITHMETIC(__dadd_rn, double, x + y)
LNT_EMU_ARITHMETIC(__dsub_rn, double, x - y)
LNT_EMU_ARITHMETIC(__dmul_rn, double, x *y)
LNT_EMU_ARITHMETIC(__ddiv_rn, double, x / y)
#undef LNT_EMU_ARITHMETIC

static inline float __fmaf_rn(float x, float y, float z)
{
    return fmaf(x, y, z);
}

static inline double __fma_rn(double x, double y, double z)
{
    return fma(x, y, z);
}

static inline float __fsqrt_rn(float x)
{
    return sqrtf(x);
}

static inline double __dsqrt_rn(double x)
{
    return sqrt(x);
}

static inline float __double2float_rn(double x)
{
    return (float)x;
}

static inline float __int2float_rn(int x)
{
    return (float)x;
}

static inline float __uint2float_rn(unsigned x)
{
    return (float)x;
}

/* Conversions saturate and turn NaN into 0, where a C cast would be undefined. */
static inline int __float2int_rz(float x)
{
    if (x != x) return 0;
    return x >= 2147483648.0f ? INT32_MAX : x <= -2147483648.0f ? INT32_MIN : (int)x;
}

static inline int __float2int_rn(float x)
{
    return __float2int_rz(rintf(x));
}

static inline float __saturatef(float x)
{
    return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
}

/* Loads and stores with a hint about caches, which changes nothing here. The device faults where they are misaligned.
 */
void lnt_emu_misaligned(const char *file, int line, const void *p, size_t alignment) __attribute__((noreturn));

template <typename T> static inline void lnt_emu_check_aligned(const T *p, const char *file, int line)
{
    if (reinterpret_cast<uintptr_t>(p) % alignof(T) != 0) lnt_emu_misaligned(file, line, p, alignof(T));
}

#define LNT_EMU_LOAD(_name)                                                                                            \
    template <typename T>                                                                                              \
    static inline T _name(const T *p, const char *file = __builtin_FILE(), int line = __builtin_LINE())                \
    {                                                                                                                  \
        lnt_emu_check_aligned(p, file, line);                                                                          \
        return *p;                                                                                                     \
    }
LNT_EMU_LOAD(__ldg)
LNT_EMU_LOAD(__ldcs)
LNT_EMU_LOAD(__ldcg)
LNT_EMU_LOAD(__ldca)
LNT_EMU_LOAD(__ldcv)
#undef LNT_EMU_LOAD

#define LNT_EMU_STORE(_name)                                                                                           \
    template <typename T>                                                                                              \
    static inline void _name(T *p, T value, const char *file = __builtin_FILE(), int line = __builtin_LINE())          \
    {                                                                                                                  \
        lnt_emu_check_aligned(p, file, line);                                                                          \
        *p = value;                                                                                                    \
    }
LNT_EMU_STORE(__stcs)
LNT_EMU_STORE(__stcg)
LNT_EMU_STORE(__stwb)
LNT_EMU_STORE(__stwt)
#undef LNT_EMU_STORE

/* min and max of integers, which device code has without any header. Not of floats: their NaN rules are no one's. */
#define LNT_EMU_MIN_MAX(_type)                                                                                         \
    static inline _type min(_type x, _type y)                                                                          \
    {                                                                                                                  \
        return x < y ? x : y;                                                                                          \
    }                                                                                                                  \
    static inline _type max(_type x, _type y)                                                                          \
    {                                                                                                                  \
        return x > y ? x : y;                                                                                          \
    }
LNT_EMU_MIN_MAX(int)
LNT_EMU_MIN_MAX(unsigned)
LNT_EMU_MIN_MAX(long)
LNT_EMU_MIN_MAX(unsigned long)
LNT_EMU_MIN_MAX(long long)
LNT_EMU_MIN_MAX(unsigned long long)
#undef LNT_EMU_MIN_MAX

void __trap() __attribute__((noreturn));
void __nanosleep(unsigned ns);

#endif
