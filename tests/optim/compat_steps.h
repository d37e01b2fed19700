/* Steps of a rank with gradients from a formula: what the tests of compat=deepspeed share.
 *
 * equal_gradient is the same on all ranks and positive, so that signs carry it without loss; plain_gradient is noise
 * around a mean that all ranks share.
 */
#ifndef TESTS_OPTIM_COMPAT_STEPS_H
#define TESTS_OPTIM_COMPAT_STEPS_H

#include "ranks.h"

/* What a rank's gradient of element i in a step is. */
typedef double (*gradient_t)(uint32_t rank, uint64_t step, uint64_t i);

static inline double plain_gradient(uint32_t rank, uint64_t step, uint64_t i)
{
    return normal_at(17, i) + 0.5 * normal_at(100 + rank + 10 * step, i);
}

static inline double equal_gradient(uint32_t rank, uint64_t step, uint64_t i)
{
    (void)rank;
    (void)step;
    return 0.5 + 0.01 * (double)(i % 7);
}

static inline void take_steps(rank_t *rank, gradient_t gradient, uint64_t from, uint64_t to)
{
    float *flat = calloc(rank->n_elems, sizeof(*flat));

    for (uint64_t step = from; step < to; step++) {
        for (uint64_t i = 0; i < rank->n_elems; i++)
            flat[i] = (float)gradient(rank->rank, step, i);
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, flat)));
    }
    free(flat);
}

#endif
