/* The update rules of update.h for device memory, and momentum + sign1 encode in one pass. Batches, streams and what is
 * promised: as kernels/cuda_kernels.h.
 */
#ifndef LNT_OPTIM_UPDATE_CUDA_H
#define LNT_OPTIM_UPDATE_CUDA_H

#include "../kernels/cuda_kernels.h"
#include "adam_math.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Arrays of n elements in device memory. A rule reads the fields that it names. */
typedef struct lnt_cuda_update_run {
    uint64_t n;
    const lnt_adam_consts_t *k; /* of the run's group in this step; a captured graph sees what is there when it runs */
    const float *g;             /* adam: the gradient */
    const float *clip;          /* adam: one number that g is multiplied by; NULL: it is not */
    const float *denominator;   /* frozen */
    const uint8_t *dead;        /* frozen: 1 = the element stays as it is; NULL: none */
    float *value, *m, *v, *x;
} lnt_cuda_update_run_t;

typedef struct lnt_cuda_update_batch {
    const lnt_cuda_update_run_t *runs; /* device memory; NULL: `one` */
    lnt_cuda_cut_t cut;                /* a block: elements a warp takes at a time; a multiple of 64 */
    lnt_cuda_update_run_t one;
} lnt_cuda_update_batch_t;

static inline lnt_cuda_update_batch_t lnt_cuda_update_batch_one(const lnt_cuda_update_run_t *run, uint32_t block)
{
    lnt_cuda_update_batch_t batch;
    batch.runs = NULL;
    batch.cut = lnt_cuda_cut_one(run->n, block);
    batch.one = *run;
    return batch;
}

/* k, g, clip, m, v, x -> m, v, x */
LNT_API lnt_status_t lnt_cuda_update_adam(const lnt_cuda_update_batch_t *batch, void *stream);
/* k, m, value -> value */
LNT_API lnt_status_t lnt_cuda_update_momentum(const lnt_cuda_update_batch_t *batch, void *stream);
/* k, value, denominator, dead, x -> m, x */
LNT_API lnt_status_t lnt_cuda_update_frozen(const lnt_cuda_update_batch_t *batch, void *stream);

/* What an owner of the compressed phase does: encode of sign1 with momentum(k, m, value) in the place of value, which
 * is not written anywhere. Of a run it reads, beside what encode reads, `momentum` and `consts`. */
LNT_API lnt_status_t lnt_cuda_encode_momentum(const lnt_codec_cfg_t *cfg, const lnt_cuda_batch_t *batch, void *stream);

#ifdef __cplusplus
}
#endif
#endif
