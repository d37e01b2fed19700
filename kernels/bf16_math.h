/* The arithmetic of bf16: the upper half of an f32, rounded half to even or by chance. Values above the largest bf16
 * (by half a step or more, where rounded to even) round to Inf, which nobody may send.
 */
#ifndef LNT_BF16_MATH_H
#define LNT_BF16_MATH_H

#include "float_bits.h"

/* The magnitude, as f32 bits, of the first number that rounds to Inf. */
#define LNT_BF16_INFINITE_BITS 0x7f7f8000u
#define LNT_BF16_INF 0x7f80u

/* The carry of the rounding may run into the exponent, as it should. A NaN stays one, made quiet: its fraction could be
 * in the lower half alone. */
LNT_HD uint16_t lnt_bf16_code(float a)
{
    uint32_t bits = lnt_f32_bits(a);
    uint32_t nan = (bits & 0x7fffffffu) > 0x7f800000u ? 0xffffffffu : 0;
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (uint16_t)((rounded & ~nan) | (((bits >> 16) | 0x40u) & nan));
}

LNT_HD float lnt_bf16_value(uint16_t code)
{
    return lnt_f32_from_bits((uint32_t)code << 16);
}

/* Rounded by chance: up with the probability that makes the expected value `a`. The low 16 bits of `random` are used; a
 * value that is a bf16 stays what it is, Inf included. */
LNT_HD uint16_t lnt_bf16_code_by_chance(float a, uint32_t random)
{
    uint32_t bits = lnt_f32_bits(a);
    uint32_t nan = (bits & 0x7fffffffu) > 0x7f800000u ? 0xffffffffu : 0;
    uint32_t rounded = (bits + (random & 0xffffu & ~nan)) >> 16;
    return (uint16_t)(rounded | (0x40u & nan));
}

/* Top bit set if and only if a finite value rounds to Inf (or is not finite); OR over many vectorises. */
LNT_HD uint32_t lnt_bf16_overflow_bit(float a)
{
    return lnt_f32_nonfinite_bit(lnt_bf16_value(lnt_bf16_code(a)));
}

#endif
