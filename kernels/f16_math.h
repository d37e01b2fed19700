/* The arithmetic of IEEE binary16: 5 exponent bits, 10 fraction bits, subnormals, rounded half to even or by chance.
 * Integer operations and exact f32 ones only, so that every machine and every vector width gives the same bytes. Values
 * of 65520 and more round to Inf, which nobody may send: lnt_f16_overflow_bit tells. By chance, anything above 65504
 * can. A NaN stays one, made quiet, in both directions.
 */
#ifndef LNT_F16_MATH_H
#define LNT_F16_MATH_H

#include "float_bits.h"

/* Magnitudes, as f32 bits: the smallest normal f16, the first that rounds to Inf, 65536, which is Inf however rounded,
 * and the number whose last fraction bit is that of a subnormal f16 (0.5 = 2^23 * 2^-24). */
#define LNT_F16_NORMAL_BITS 0x38800000u
#define LNT_F16_INFINITE_BITS 0x477ff000u
#define LNT_F16_BEYOND_BITS 0x47800000u
#define LNT_F16_SHIFTER 0.5f
#define LNT_F16_INF 0x7c00u

/* Subnormal results: adding 0.5 leaves no bits below 2^-24, and the hardware rounds half to even. */
LNT_HD uint16_t lnt_f16_code(float a)
{
    uint32_t magnitude = lnt_f32_abs_bits(a), sign = (lnt_f32_bits(a) >> 16) & 0x8000u, code;
    if (magnitude > LNT_F32_INF_BITS)
        code = 0x7e00u | (magnitude >> 13 & 0x3ffu);
    else if (magnitude >= LNT_F16_INFINITE_BITS)
        code = LNT_F16_INF;
    else if (magnitude < LNT_F16_NORMAL_BITS)
        code = lnt_f32_bits(lnt_f32_from_bits(magnitude) + LNT_F16_SHIFTER) - 0x3f000000u;
    else
        code = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
    return (uint16_t)(code | sign);
}

/* Rounded by chance: up with the probability that makes the expected value `a`; a value that is an f16 stays what it
 * is. Uses the low bits of `random`: 13, or in the range of subnormals as many as the significand is shifted. That is
 * 31 at most: below 2^-32, 1/256 of the smallest f16, the result is 0. */
LNT_HD uint16_t lnt_f16_code_by_chance(float a, uint32_t random)
{
    uint32_t magnitude = lnt_f32_abs_bits(a), sign = (lnt_f32_bits(a) >> 16) & 0x8000u, code;
    uint32_t shift = 126u - (magnitude >> 23); /* to the unit of subnormals, 2^-24 */
    if (magnitude > LNT_F32_INF_BITS)
        code = 0x7e00u | (magnitude >> 13 & 0x3ffu);
    else if (magnitude >= LNT_F16_BEYOND_BITS)
        code = LNT_F16_INF;
    else if (magnitude >= LNT_F16_NORMAL_BITS)
        code = (magnitude + (random & 0x1fffu) - 0x38000000u) >> 13;
    else if (shift > 31)
        code = 0;
    else
        code = (((magnitude & 0x7fffffu) | 0x800000u) + (random & ((1u << shift) - 1))) >> shift;
    return (uint16_t)(code | sign);
}

/* Numbers of the format are normal f32: the exponent's bias moves from 15 to 127, or the fraction counts units of
 * 2^-24. No step has a subnormal operand, which a machine might be set to read as zero. */
LNT_HD float lnt_f16_value(uint16_t code)
{
    uint32_t sign = (uint32_t)(code & 0x8000u) << 16, magnitude = (uint32_t)(code & 0x7fffu) << 13;
    if (magnitude > 0x0f800000u) return lnt_f32_from_bits(sign | 0x7fc00000u | magnitude);
    if (magnitude == 0x0f800000u) return lnt_f32_from_bits(sign | LNT_F32_INF_BITS);
    if (magnitude >= 0x00800000u) return lnt_f32_from_bits(sign | (magnitude + 0x38000000u));
    return lnt_f32_from_bits(sign | lnt_f32_bits((float)(code & 0x3ffu) * 0x1p-24f));
}

/* Top bit set if and only if a rounds to Inf (or is not finite); OR over many vectorises. */
LNT_HD uint32_t lnt_f16_overflow_bit(float a)
{
    return lnt_f32_abs_bits(a) + (0x80000000u - LNT_F16_INFINITE_BITS);
}

#endif
