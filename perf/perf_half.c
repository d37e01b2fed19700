/* The 16-bit element types: sign, exponent, fraction. Codes count steps from zero on, one fraction after the other. */
#include "perf_half.h"

#include <math.h>

static const half_t halves[LNT_DTYPE_COUNT] = {[LNT_BF16] = {8, -125}, [LNT_F16] = {11, -13}};

const half_t *half_of(lnt_dtype_t dtype)
{
    return (halves[dtype].bits != 0) ? &halves[dtype] : NULL;
}

static int exponent_of(const half_t *half, double x)
{
    int exponent;

    (void)frexp(x, &exponent);
    return (x == 0 || exponent < half->lowest) ? half->lowest : exponent;
}

double half_unit(const half_t *half, double x)
{
    return (half != NULL) ? ldexp(1, exponent_of(half, x) - half->bits) : 0;
}

double half_round(const half_t *half, double x)
{
    return (half != NULL) ? rint(x / half_unit(half, x)) * half_unit(half, x) : x;
}

/* Steps per exponent are 2^(bits - 1): those of the lowest one are counted from zero, those of the others from their
 * first number on, which has as many behind it again. */
uint16_t half_code(const half_t *half, double x)
{
    const int raised = exponent_of(half, x) - half->lowest;
    const double code = fabs(x) / half_unit(half, x) + ldexp(raised, half->bits - 1);

    return (uint16_t)((uint16_t)code | (signbit(x) ? 0x8000u : 0u));
}

double half_value(const half_t *half, uint16_t code)
{
    const int fraction = code & ((1 << (half->bits - 1)) - 1), exponent = (code & 0x7fff) >> (half->bits - 1);
    const int top = (1 << (16 - half->bits)) - 1;
    const double one = ldexp(1, half->bits - 1), unit = ldexp(1, half->lowest - half->bits);
    double magnitude = (exponent == 0) ? fraction * unit : ldexp((one + fraction) * unit, exponent - 1);

    if (exponent == top) magnitude = (fraction != 0) ? NAN : INFINITY;
    return (code & 0x8000) ? -magnitude : magnitude;
}
