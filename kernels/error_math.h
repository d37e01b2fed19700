/* Errors kept as int8 (error_store.h), for one block and one element. A step is 1/127 of the largest magnitude of a
 * block, whose code is 127 or -127; codes are rounded to nearest, half to even. (Rounding by chance, and powers of two
 * as scales, were tried: on the quadratic of the tests both end higher.)
 */
#ifndef LNT_KERNELS_ERROR_MATH_H
#define LNT_KERNELS_ERROR_MATH_H

#include <stdbool.h>
#include <stdint.h>

#include "float_bits.h"
#include "lnt_inline.h"

enum { LNT_ERROR_LARGEST_CODE = 127, LNT_ERROR_SCALE_BITS_DROPPED = 7 };

/* Of the largest magnitude of a block, as bits: can it be kept? Zeros are codes of 0 under a scale of 0, and so is a
 * block with anything that is not finite. */
LNT_INLINE bool lnt_error_is_kept(uint32_t amax_bits)
{
    return amax_bits != 0 && amax_bits < LNT_F32_INF_BITS;
}

/* 17 significant bits: a code has 7, so their product is exact, and the scale comes out of it again. Not below the
 * smallest normal number. */
LNT_INLINE float lnt_error_scale(uint32_t amax_bits)
{
    uint32_t bits = lnt_f32_bits(lnt_f32_from_bits(amax_bits) / LNT_ERROR_LARGEST_CODE);

    bits = bits >> LNT_ERROR_SCALE_BITS_DROPPED << LNT_ERROR_SCALE_BITS_DROPPED;
    return lnt_f32_from_bits(bits > 0x00800000u ? bits : 0x00800000u);
}

#endif
