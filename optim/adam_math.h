/* The update rule of Adam and its relatives for one element. Every operation is one f32 rounding in the order written
 * here (docs/numerics.md): no contraction, no reciprocals. Host and device.
 */
#ifndef LNT_ADAM_MATH_H
#define LNT_ADAM_MATH_H

#include <math.h>

#include "../kernels/lnt_hd.h"

/* Constants of one group in one step. Powers of beta are running f64 products; each is rounded once. */
typedef struct lnt_adam_consts {
    float b1, o1; /* beta1, (float)(1 - beta1) */
    float b2, o2;
    float i1, i2; /* (float)(1 / (1 - beta^t)) */
    float lr, eps;
    float w;  /* (float)(lr * decay) for decoupled decay, else 0 */
    float l2; /* (float)decay for L2 decay, else 0 */
} lnt_adam_consts_t;

LNT_HD float lnt_adam_momentum(const lnt_adam_consts_t *k, float m, float g)
{
    return k->b1 * m + k->o1 * g;
}

LNT_HD float lnt_adam_denominator(const lnt_adam_consts_t *k, float v)
{
    return sqrtf(v * k->i2) + k->eps;
}

LNT_HD float lnt_adam_move(const lnt_adam_consts_t *k, float x, float m, float denominator)
{
    return (x - k->lr * ((m * k->i1) / denominator)) - k->w * x;
}

LNT_HD void lnt_adam_update(const lnt_adam_consts_t *k, float g, float *m, float *v, float *x)
{
    if (k->l2 != 0) g = g + k->l2 * *x;
    *m = lnt_adam_momentum(k, *m, g);
    *v = k->b2 * *v + k->o2 * (g * g);
    *x = lnt_adam_move(k, *x, *m, lnt_adam_denominator(k, *v));
}

/* AMSGrad: *most is the largest v so far. */
LNT_HD void lnt_adam_update_amsgrad(const lnt_adam_consts_t *k, float g, float *m, float *v, float *most, float *x)
{
    if (k->l2 != 0) g = g + k->l2 * *x;
    *m = lnt_adam_momentum(k, *m, g);
    *v = k->b2 * *v + k->o2 * (g * g);
    if (*v > *most) *most = *v;
    *x = lnt_adam_move(k, *x, *m, lnt_adam_denominator(k, *most));
}

#endif
