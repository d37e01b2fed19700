/* Update rules over arrays: one table per implementation of kernels/impl.h, all giving the same bytes. The arithmetic
 * of one element is in <name>_math.h; what a table leaves NULL comes from the plain C one.
 *
 * Arrays of n elements, any alignment; outputs do not overlap other arguments unless said.
 */
#ifndef LNT_OPTIM_UPDATE_H
#define LNT_OPTIM_UPDATE_H

#include <stdint.h>

#include "adam_math.h"

typedef struct lnt_update_ops {
    /* Adam: g is multiplied by *clip first, unless clip is NULL. */
    void (*adam)(const lnt_adam_consts_t *k, const float *g, const float *clip, uint64_t n, float *m, float *v,
                 float *x);
    /* value <- beta1 m + (1 - beta1) value */
    void (*momentum)(const lnt_adam_consts_t *k, const float *m, uint64_t n, float *value);
    /* The step under a frozen variance: m <- value, x moves by it. Elements with dead[i] = 1 stay as they are. */
    void (*frozen)(const lnt_adam_consts_t *k, const float *value, const float *denominator, const uint8_t *dead,
                   uint64_t n, float *m, float *x);
} lnt_update_ops_t;

/* The rules of the selected implementation (lnt_kernels_selected): complete, valid for ever. */
const lnt_update_ops_t *lnt_updates(void);

#endif
