/* The 16-bit types once more, from their definition, in f64 and without shared arithmetic: the nearer of two
 * neighbours, at the middle the even one. A NaN keeps its upper bits and becomes quiet.
 */
#ifndef HALF_ORACLE_H
#define HALF_ORACLE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t oracle_bf16(float v)
{
    uint32_t bits, up;
    float low, high;
    memcpy(&bits, &v, 4);
    if (isnan(v)) return (uint16_t)(bits >> 16 | 0x40u);
    bits &= 0xffff0000u;
    up = bits + 0x10000u;
    memcpy(&low, &bits, 4);
    memcpy(&high, &up, 4);
    double far = isfinite(high) ? fabs((double)high) : 0x1p128; /* Inf stands where the next number would be */
    double below = fabs((double)v) - fabs((double)low), above = far - fabs((double)v);
    bool take_up = above < below || (!(below < above) && (bits >> 16) % 2);
    return (uint16_t)((take_up ? up : bits) >> 16);
}

static inline float oracle_bf16_value(uint16_t code)
{
    uint32_t bits = (uint32_t)code << 16;
    float v;
    memcpy(&v, &bits, 4);
    return v;
}

/* |v| counted in steps of its binade, which are those of 2^-14 below it. 1024 steps more are the next exponent. */
static inline uint16_t oracle_f16(float v)
{
    uint32_t bits;
    int above = 0;
    memcpy(&bits, &v, 4);
    unsigned sign = bits >> 16 & 0x8000u;
    if (isnan(v)) return (uint16_t)(sign | 0x7e00u | (bits >> 13 & 0x3ffu));
    if (isinf(v)) return (uint16_t)(sign | 0x7c00u);
    if (v == 0.0f) return (uint16_t)sign;
    (void)frexp(fabs((double)v), &above);
    int step = (above - 1 < -14 ? -14 : above - 1) - 10;
    unsigned steps = (unsigned)nearbyint(ldexp(fabs((double)v), -step));
    if (ldexp((double)steps, step) >= 0x1p16) return (uint16_t)(sign | 0x7c00u);
    return (uint16_t)(sign | ((unsigned)(step + 24) * 1024 + steps));
}

static inline float oracle_f16_value(uint16_t code)
{
    int exponent = code >> 10 & 31, fraction = code & 1023;
    float magnitude, sign = code >> 15 ? -1.0f : 1.0f;
    if (exponent == 31 && fraction) {
        uint32_t bits = (uint32_t)(code & 0x8000u) << 16 | 0x7fc00000u | (uint32_t)fraction << 13;
        memcpy(&magnitude, &bits, 4);
        return magnitude;
    }
    magnitude =
        exponent == 31 ? INFINITY : (float)(exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24));
    return sign * magnitude;
}

#endif
