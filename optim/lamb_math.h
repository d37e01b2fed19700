/* LAMB for one element and for the numbers of one tensor. f32 for elements, one rounding per operation in the order
 * written here; f64 for norms, ratios and factors.
 */
#ifndef LNT_LAMB_MATH_H
#define LNT_LAMB_MATH_H

#include <stdbool.h>

#include "adam_math.h"

/* Constants of one tensor in one step. */
typedef struct lnt_lamb_consts {
    lnt_adam_consts_t adam; /* w and l2 are not used */
    float decay;
    float step; /* (float)(lr * coefficient) */
} lnt_lamb_consts_t;

/* What is scaled to the norm of the parameters. */
LNT_HD float lnt_lamb_direction(const lnt_lamb_consts_t *k, float m, float v, float x)
{
    return (m * k->adam.i1) / lnt_adam_denominator(&k->adam, v) + k->decay * x;
}

/* The direction as it will be with gradient g; nothing is changed. */
LNT_HD float lnt_lamb_ahead(const lnt_lamb_consts_t *k, float g, float m, float v, float x)
{
    return lnt_lamb_direction(k, lnt_adam_momentum(&k->adam, m, g), k->adam.b2 * v + k->adam.o2 * (g * g), x);
}

LNT_HD void lnt_lamb_update(const lnt_lamb_consts_t *k, float g, float *m, float *v, float *x)
{
    *m = lnt_adam_momentum(&k->adam, *m, g);
    *v = k->adam.b2 * *v + k->adam.o2 * (g * g);
    *x = *x - k->step * lnt_lamb_direction(k, *m, *v, *x);
}

/* ---- numbers of a tensor ---- */

typedef struct lnt_lamb_limits {
    double least, most; /* of the ratio; most 0: no limit */
    double longest;     /* norm of the parameters that counts; 0: no limit */
} lnt_lamb_limits_t;

static inline double lnt_lamb_between(double value, double least, double most)
{
    return value < least ? least : value > most ? most : value;
}

/* |x| / |u| within its limits; false (and 1) where a norm is 0 or not finite, so that there is no ratio. */
static inline bool lnt_lamb_ratio(const lnt_lamb_limits_t *limits, double x_norm, double u_norm, double *ratio_p)
{
    const double none = 1e30; /* times any sensible learning rate still an f32 */

    *ratio_p = 1;
    if (limits->longest != 0 && x_norm > limits->longest) x_norm = limits->longest;
    if (!(x_norm > 0 && u_norm > 0) || isinf(x_norm) || isinf(u_norm)) return false;
    *ratio_p = lnt_lamb_between(x_norm / u_norm, limits->least, limits->most != 0 ? limits->most : none);
    return true;
}

/* ---- 1-bit LAMB after the freeze ---- */

/* The variance that goes on: from the gradient that the momentum gives away. */
LNT_HD float lnt_lamb_fresh(const lnt_adam_consts_t *k, float m, float m_before, float fresh)
{
    float g = (m - k->b1 * m_before) / k->o1;

    return k->b2 * fresh + k->o2 * (g * g);
}

typedef struct lnt_lamb_factor_limits {
    double least, most, threshold;
} lnt_lamb_factor_limits_t;

/* ratio: the largest of frozen over fresh denominators. p, u: norms of the direction without and with decay; equal
 * where there is no decay. */
static inline double lnt_lamb_factor(const lnt_lamb_factor_limits_t *limits, double ratio, double p, double u,
                                     double last)
{
    double share = p < u ? p / u : 1;
    double factor = lnt_lamb_between(ratio * share + (1 - share), limits->least, limits->most);

    return lnt_lamb_between(factor, (1 - limits->threshold) * last, (1 + limits->threshold) * last);
}

#endif
