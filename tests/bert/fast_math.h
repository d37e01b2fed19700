/* exp and the normal distribution in forms that compilers turn into vector code. Relative error of the exponential
 * below 1e-6, absolute error of Phi below 2e-7. With BERT_DOUBLE: the C library's, for the gradient check. */
#ifndef BERT_FAST_MATH_H
#define BERT_FAST_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "real.h"

#ifdef BERT_DOUBLE

static inline real_t exp_negative(real_t x)
{
    return exp(x);
}

static inline real_t normal_cdf(real_t x, real_t gauss)
{
    (void)gauss;
    return 0.5 * erfc(-x * 0.70710678118654752);
}

#else

/* exp(x) for x <= 0: 2^n * e^r with |r| <= ln(2)/2, e^r by its Taylor series. */
static inline real_t exp_negative(real_t x)
{
    x = (x < -87.0f) ? -87.0f : x;
    int32_t n = (int32_t)(x * 1.44269504f - 0.5f);
    float r = x - (float)n * 0.693147181f;
    float p = 1.0f + r * (1.0f + r * (0.5f + r * (1.66666667e-1f +
                                                  r * (4.16666667e-2f + r * (8.33333333e-3f + r * 1.38888889e-3f)))));
    uint32_t bits = (uint32_t)(n + 127) << 23;
    float power;

    memcpy(&power, &bits, sizeof(power));
    return p * power;
}

/* Phi(x), given gauss = exp(-x^2/2): Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26. */
static inline real_t normal_cdf(real_t x, real_t gauss)
{
    float size = ((x < 0) ? -x : x) * 0.70710678f;
    float t = 1.0f / (1.0f + 0.3275911f * size);
    float tail = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
    float half = 0.5f * tail * gauss;

    return (x < 0) ? half : 1.0f - half;
}

#endif
#endif
