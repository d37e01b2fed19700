/* The arithmetic of int8: codes -127..127, one byte each (intq_math.h). */
#ifndef LNT_INT8_MATH_H
#define LNT_INT8_MATH_H

#include "intq_math.h"

#define LNT_INT8_TOP 127.0f

LNT_HD float lnt_int8_scale(uint32_t amax_bits)
{
    return lnt_intq_scale(amax_bits, LNT_INT8_TOP);
}

LNT_HD bool lnt_int8_scale_decodes(float scale)
{
    return lnt_intq_scale_decodes(scale, LNT_INT8_TOP);
}

LNT_HD int32_t lnt_int8_code(float a, float scale)
{
    return lnt_intq_code(a, scale, LNT_INT8_TOP);
}

LNT_HD float lnt_int8_value(int32_t code, float scale)
{
    return lnt_intq_value(code, scale);
}

#endif
