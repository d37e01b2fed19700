/* Update rules over arrays: one table per implementation of kernels/impl.h, all giving the same bytes. The arithmetic
 * of one element is in <name>_math.h; what a table leaves NULL comes from the rows before it, and in the end from the
 * reference, which has all.
 *
 * Pointers need the alignment of their element only, n is any number, exactly n elements are touched. Arrays do not
 * overlap, unless said. Everything is one pass.
 */
#ifndef LNT_OPTIM_UPDATE_H
#define LNT_OPTIM_UPDATE_H

#include <stdint.h>

#include "../kernels/impl.h"
#include "adam_math.h"

typedef struct lnt_update_ops {
    /* Adam: g is multiplied by *clip first, unless clip is NULL. */
    void (*adam)(const lnt_adam_consts_t *k, const float *g, const float *clip, uint64_t n, float *m, float *v,
                 float *x);
    /* value <- beta1 m + (1 - beta1) value */
    void (*momentum)(const lnt_adam_consts_t *k, const float *m, uint64_t n, float *value);
    /* The step under a frozen variance: m <- value, x moves by it. Elements with dead[i] = 1 (others have 0) stay as
     * they are; dead NULL: none. stream: m may be stored around the caches (LNT_STREAM_ELEMS). */
    void (*frozen)(const lnt_adam_consts_t *k, const float *value, const float *denominator, const uint8_t *dead,
                   bool stream, uint64_t n, float *m, float *x);
} lnt_update_ops_t;

extern const lnt_update_ops_t lnt_update_ops_ref, lnt_update_ops_avx2, lnt_update_ops_avx512;

/* The rules of the selected implementation (lnt_kernels_selected): complete, valid for ever. */
const lnt_update_ops_t *lnt_updates(void);

const lnt_update_ops_t *lnt_update_ops_named(const char *impl);    /* what the row itself brings; NULL: nothing */
lnt_update_ops_t lnt_update_ops_of(const lnt_kernel_impl_t *impl); /* of every usable row up to `impl` */

#endif
