/* The arithmetic of int8: symmetric codes -127..127 and one scale per block.
 *
 * scale = max / 127 in f32, code = a / scale rounded half to even, clamped by comparison. The division is by the
 * scale, never a product with 127 / max, which overflows for tiny blocks. A scale whose product with the top code is
 * not finite cannot be decoded: the block is poisoned.
 */
#ifndef LNT_INT8_MATH_H
#define LNT_INT8_MATH_H

#include "float_bits.h"

#define LNT_INT8_TOP 127.0f

LNT_HD float lnt_int8_scale(uint32_t amax_bits)
{
    return lnt_f32_from_bits(amax_bits) / LNT_INT8_TOP;
}

LNT_HD bool lnt_int8_scale_decodes(float scale)
{
    return lnt_f32_is_finite(scale * LNT_INT8_TOP);
}

/* rintf for |x| <= 2^22 as two additions, which every vector unit has: the sum has no fraction bits left, so the
 * hardware rounds half to even. */
LNT_HD float lnt_int8_round(float x)
{
    const float shifter = 12582912.0f; /* 1.5 * 2^23 */
    return (x + shifter) - shifter;
}

/* To [-127, 127], by comparing magnitudes as integers: NaN gets a defined code, and no branch is needed. */
LNT_HD float lnt_int8_clamp(float x)
{
    const int32_t top = 0x42fe0000; /* bits of 127.0f */
    int32_t magnitude = (int32_t)lnt_f32_abs_bits(x);
    magnitude = magnitude < top ? magnitude : top;
    return lnt_f32_from_bits((uint32_t)magnitude | (lnt_f32_bits(x) & 0x80000000u));
}

/* Clamping first gives the same code as clamping last (the limits are integers) and bounds what is rounded. */
LNT_HD int32_t lnt_int8_code(float a, float scale)
{
    return (int32_t)lnt_int8_round(lnt_int8_clamp(a / scale));
}

LNT_HD float lnt_int8_value(int32_t code, float scale)
{
    return (float)code * scale;
}

#endif
