/* The arithmetic that int8 and int4 share: symmetric codes -top..top and one scale per block.
 *
 * scale = max / top in f32, code = a / scale rounded half to even, clamped by comparison. The division is by the
 * scale, never a product with top / max, which overflows for tiny blocks. A scale whose product with the top code is
 * not finite cannot be decoded: the block is poisoned. `top` is a constant wherever this is called.
 */
#ifndef LNT_INTQ_MATH_H
#define LNT_INTQ_MATH_H

#include "float_bits.h"

LNT_HD float lnt_intq_scale(uint32_t amax_bits, float top)
{
    return lnt_f32_from_bits(amax_bits) / top;
}

LNT_HD bool lnt_intq_scale_decodes(float scale, float top)
{
    return lnt_f32_is_finite(scale * top);
}

/* rintf for |x| <= 2^22 as two additions, which every vector unit has: the sum has no fraction bits left, so the
 * hardware rounds half to even. */
LNT_HD float lnt_intq_round(float x)
{
    const float shifter = 12582912.0f; /* 1.5 * 2^23 */
    return (x + shifter) - shifter;
}

/* To [-top, top], by comparing magnitudes as integers: NaN gets a defined code, and no branch is needed. */
LNT_HD float lnt_intq_clamp(float x, float top)
{
    int32_t limit = (int32_t)lnt_f32_bits(top), magnitude = (int32_t)lnt_f32_abs_bits(x);
    magnitude = magnitude < limit ? magnitude : limit;
    return lnt_f32_from_bits((uint32_t)magnitude | (lnt_f32_bits(x) & 0x80000000u));
}

/* Clamping first gives the same code as clamping last (the limits are integers) and bounds what is rounded. */
LNT_HD int32_t lnt_intq_code(float a, float scale, float top)
{
    return (int32_t)lnt_intq_round(lnt_intq_clamp(a / scale, top));
}

LNT_HD float lnt_intq_value(int32_t code, float scale)
{
    return (float)code * scale;
}

#endif
