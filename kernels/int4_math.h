/* The arithmetic of int4: codes -7..7 (intq_math.h) in two's complement, two to a byte, the first in the low half. A
 * half byte of -8, which no encoder writes, decodes like the others.
 */
#ifndef LNT_INT4_MATH_H
#define LNT_INT4_MATH_H

#include "intq_math.h"

#define LNT_INT4_TOP 7.0f

LNT_HD float lnt_int4_scale(uint32_t amax_bits)
{
    return lnt_intq_scale(amax_bits, LNT_INT4_TOP);
}

LNT_HD bool lnt_int4_scale_decodes(float scale)
{
    return lnt_intq_scale_decodes(scale, LNT_INT4_TOP);
}

LNT_HD int32_t lnt_int4_code(float a, float scale)
{
    return lnt_intq_code(a, scale, LNT_INT4_TOP);
}

LNT_HD float lnt_int4_value(int32_t code, float scale)
{
    return lnt_intq_value(code, scale);
}

LNT_HD uint8_t lnt_int4_pack(int32_t first, int32_t second)
{
    return (uint8_t)(((uint32_t)first & 15u) | ((uint32_t)second & 15u) << 4);
}

/* The code in the low half; shift the byte right by 4 for the other one. */
LNT_HD int32_t lnt_int4_unpack(uint32_t byte)
{
    return (int32_t)((byte & 15u) ^ 8u) - 8;
}

#endif
