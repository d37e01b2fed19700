/* The arithmetic of sign1: one bit per element and one scale per block.
 *
 * scale = (float)sqrt(sum of squares / live count) or (float)(sum of magnitudes / live count); no live element gives
 * +0. bit = (a >= 0), so -0 codes as 1. A block of scale +0 decodes to exactly +0 everywhere.
 */
#ifndef LNT_SIGN1_MATH_H
#define LNT_SIGN1_MATH_H

#include <math.h>

#include "float_bits.h"

LNT_HD float lnt_sign1_scale_l2(double sum_of_squares, uint64_t n_live)
{
    return n_live ? (float)sqrt(sum_of_squares / (double)n_live) : 0.0f;
}

LNT_HD float lnt_sign1_scale_l1(double sum_of_magnitudes, uint64_t n_live)
{
    return n_live ? (float)(sum_of_magnitudes / (double)n_live) : 0.0f;
}

LNT_HD uint8_t lnt_sign1_bit(float a)
{
    return a >= 0.0f;
}

/* The value of bit 0. Not -scale: a zero block decodes to +0, never to -0. */
LNT_HD float lnt_sign1_negative(float scale)
{
    return scale > 0.0f ? -scale : 0.0f;
}

/* Eight bytes of 0 or 1 to one byte, first in the least significant bit. The multiplier moves byte k to bit 56 + k;
 * no two of the 64 partial products meet, so nothing carries. */
LNT_HD uint8_t lnt_sign1_pack8(const uint8_t *bits)
{
    uint64_t word;
    memcpy(&word, bits, sizeof(word));
    return (uint8_t)((word * 0x0102040810204080u) >> 56);
}

#endif
