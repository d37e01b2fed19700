/* The local phase of 0/1 Adam for one element (docs/optimizers.md). Every operation is one f32 rounding in the order
 * written here: no contraction, no reciprocals. Host and device.
 *
 * x is the anchor, u what the steps since the last sync have taken off it, d the frozen sqrt(v_hat) + eps.
 */
#ifndef LNT_ZERO_ONE_MATH_H
#define LNT_ZERO_ONE_MATH_H

#include "adam_math.h"

/* Constants of one group in one step. Sums and products over the window are f64, each rounded once. */
typedef struct lnt_zero_one_window {
    float step;    /* learning rate of this step, bias correction of m in it */
    float sum;     /* of all learning rates since the last sync, this one included */
    float product; /* of (1 - learning rate * decay), the same */
    float root;    /* of the number of steps, this one included */
} lnt_zero_one_window_t;

LNT_HD void lnt_zero_one_local(const lnt_adam_consts_t *k, float step, float g, float d, float *m, float *u)
{
    *m = lnt_adam_momentum(k, *m, g);
    *u = *u + (step * *m) / d;
}

/* The model copy: always from the anchor, never accumulated. */
LNT_HD float lnt_zero_one_copy(const lnt_zero_one_window_t *w, float x, float u)
{
    return (x - u) * w->product;
}

/* What travels in a sync: u as a momentum, so that the unit of the errors holds no learning rate. */
LNT_HD float lnt_zero_one_coded(const lnt_zero_one_window_t *w, float u, float d)
{
    return (u * d) / w->sum;
}

/* The anchor after a sync that decoded m. */
LNT_HD float lnt_zero_one_anchor(const lnt_zero_one_window_t *w, float x, float m, float d)
{
    return (x - (w->sum * m) / d) * w->product;
}

/* A late comer over a whole window: Adam with the sum of learning rates. s is the sum of the window's gradients divided
 * by root, so that v has the unit of single gradients, whatever the length of windows. */
LNT_HD void lnt_zero_one_late(const lnt_adam_consts_t *k, const lnt_zero_one_window_t *w, float s, float *m, float *v,
                              float *x)
{
    *m = lnt_adam_momentum(k, *m, s / w->root);
    *v = k->b2 * *v + k->o2 * (s * s);
    *x = (*x - (w->sum * (*m * k->i1)) / lnt_adam_denominator(k, *v)) * w->product;
}

#endif
