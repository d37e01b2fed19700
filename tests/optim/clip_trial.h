/* Runs with clipping, of gradients that grow and fall in known ways: what tests of clipping share. */
#ifndef TESTS_OPTIM_CLIP_TRIAL_H
#define TESTS_OPTIM_CLIP_TRIAL_H

#include <math.h>

#include "ranks.h"

enum { FREEZE = 24, STEPS = 48, MAX_STEPS = 140 };

typedef struct trial {
    model_t model;
    uint64_t seed;
    double noise; /* of a rank's gradient beside the common part of length 1 per element */
    double loud;  /* rank 0's gradient is so many times longer */
    double factors[MAX_STEPS], norms[MAX_STEPS];
    double seen_norm[MAX_RANKS], seen_factor[MAX_RANKS];
    uint64_t hash;
    uint32_t n_steps;
    uint32_t quiet_steps; /* at first the ranks agree: no noise */
    double scale;         /* of gradients: 0: 1; from the freeze on it is another */
    bool reversed;        /* order of ready calls; or by threads */
    double r, recorded;   /* at the end */
    float *x;             /* result of rank 0 */
} trial_t;

static inline float grad_at(const trial_t *trial, uint32_t rank, uint32_t step, uint64_t i)
{
    double common = normal_at(trial->seed, i), own = normal_at(test_mix_pair(trial->seed, step * 64u + rank), i);

    return (float)((common + (step >= trial->quiet_steps ? trial->noise : 0) * own) * (rank == 0 ? trial->loud : 1));
}

/* Gradients come multiplied by scale * 2 and as sums over 2 micro-batches. */
static inline void set_scale(rank_t *rank, double scale, float *grad)
{
    ranks_ok(lnt_optim_set_scaling(rank->optim, scale, 2));
    for (uint64_t i = 0; i < rank->n_elems; i++)
        grad[i] = grad[i] * (float)(2 * scale);
}

static inline void train(rank_t *rank, trial_t *trial)
{
    float *grad = calloc(rank->n_elems + 1, sizeof(*grad));

    for (uint32_t step = 0; step < trial->n_steps; step++) {
        lnt_optim_info_t info;
        for (uint64_t i = 0; i < rank->n_elems; i++)
            grad[i] = grad_at(trial, rank->rank, step, i);
        if (trial->scale != 0) set_scale(rank, step < FREEZE ? trial->scale : 64, grad);
        ranks_ok(lnt_optim_begin(rank->optim));
        for (uint32_t k = 0; k < rank->model->n_tensors; k++) {
            uint32_t t = trial->reversed ? rank->model->n_tensors - 1 - k : k;
            ranks_ok(lnt_optim_tensor_ready(rank->optim, t, rank_grads(rank, grad)[t], NULL));
        }
        ranks_ok(lnt_optim_end(rank->optim));
        info = rank_info(rank);
        trial->seen_norm[rank->rank] = info.grad_norm;
        trial->seen_factor[rank->rank] = info.clip_factor;
        expect_equal_ranks(rank); /* has barriers */
        for (uint32_t r = 0; r < rank->world->n_ranks; r++) {
            ck_assert(trial->seen_norm[r] == info.grad_norm);
            ck_assert(trial->seen_factor[r] == info.clip_factor);
        }
        if (rank->rank == 0) trial->norms[step] = info.grad_norm;
        if (rank->rank == 0) trial->factors[step] = info.clip_factor;
        ranks_barrier();
    }
    free(grad);
}

static inline void body(rank_t *rank)
{
    trial_t *trial = rank->arg;

    rank_open(rank, &trial->model);
    train(rank, trial);
    if (rank->rank == 0) trial->hash = lnt_optim_hash(rank->optim);
    if (rank->rank == 0 && trial->model.algorithm[0] == 'o') {
        trial->recorded = lnt_optim_values(rank->optim, "clip_state", NULL)[0];
        trial->r = lnt_optim_values(rank->optim, "clip_state", NULL)[1];
    }
    if (rank->rank == 0 && trial->x != NULL) memcpy(trial->x, rank->x, rank->n_elems * sizeof(float));
    rank_close(rank);
}

static inline trial_t make_trial(const char *options)
{
    return (trial_t){.model = {.n_tensors = 5,
                               .lengths = {700, 33, 300, 1, 900},
                               .algorithm = "onebit_adam",
                               .options = options,
                               .bucket_bytes = 2048,
                               .segment_bytes = 1 << 20,
                               .start_seed = test_random()},
                     .seed = test_random(),
                     .noise = 2,
                     .loud = 1,
                     .n_steps = STEPS};
}

static const world_t worlds[] = {{.n_ranks = 1},
                                 {.n_ranks = 2, .nodes = {0, 1}},
                                 {.n_ranks = 4, .nodes = {0, 1, 2, 3}},
                                 {.n_ranks = 4, .nodes = {0, 1, 0, 1}},
                                 {.n_ranks = 5, .nodes = {0, 0, 1, 2, 2}}};
enum { N_WORLDS = sizeof(worlds) / sizeof(worlds[0]) };

static inline double mean(const double *values, uint32_t from, uint32_t to)
{
    double sum = 0;

    for (uint32_t i = from; i < to; i++)
        sum += values[i];
    return sum / (to - from);
}

#endif
