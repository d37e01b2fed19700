/* Trials against oracles in f64: worlds of 1, 2, 4 and 2x2 ranks, and gradients whose mean over ranks is exact in f32,
 * so that the oracle and the library see the same numbers and differ by the roundings of the update alone.
 */
#ifndef TESTS_OPTIM_EXACT_TRIAL_H
#define TESTS_OPTIM_EXACT_TRIAL_H

#include <math.h>

#include "ranks.h"

static const world_t exact_worlds[] = {
    {.n_ranks = 1, .quiet = true, .no_thread = true},
    {.n_ranks = 4, .nodes = {0, 0, 1, 1}, .quiet = true, .no_thread = true},
    {.n_ranks = 2, .nodes = {0, 1}, .quiet = true, .no_thread = true},
    {.n_ranks = 4, .nodes = {0, 1, 2, 3}, .quiet = true, .no_thread = true},
};
enum { EXACT_WORLDS = TEST_SANITIZED ? 2 : sizeof(exact_worlds) / sizeof(exact_worlds[0]) }; /* that are gone through */

typedef struct exact_trial {
    world_t world;
    model_t model;
    lnt_group_t groups[2];
    uint64_t seed, n;
    uint32_t first[MAX_TENSORS + 1]; /* element of every tensor */
    uint32_t tensor_of[4096];
    double start_squares[4096]; /* of parameters */
    char options[256];
} exact_trial_t;

/* A fixed direction, noise of all and noise of the rank, in units of a tensor: at most 11 bits, so every sum of a few
 * is exact. Units of tensors differ by up to 2^8. */
static inline double exact_grad(const exact_trial_t *trial, uint32_t rank, uint32_t step, uint64_t i)
{
    double fixed = 0.6 * normal_at(trial->seed + 1, i), common = 0.7 * normal_at(trial->seed + 100 + step, i);
    double own = 0.7 * normal_at(test_mix_pair(trial->seed + 7, step * 64u + rank), i);
    int exponent = -8 - (int)(test_mix_pair(trial->seed, trial->tensor_of[i]) % 9);

    return ldexp(rint(256 * (fixed + common + own)), exponent);
}

static inline double exact_mean(const exact_trial_t *trial, uint32_t step, uint64_t i)
{
    double sum = 0;

    for (uint32_t r = 0; r < trial->world.n_ranks; r++)
        sum += exact_grad(trial, r, step, i);
    return sum / trial->world.n_ranks;
}

static inline void exact_step(rank_t *rank, const exact_trial_t *trial, uint32_t step, float *grad)
{
    for (uint64_t i = 0; i < rank->n_elems; i++)
        grad[i] = (float)exact_grad(trial, rank->rank, step, i);
    ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
    expect_equal_ranks(rank);
}

static inline void exact_groups(exact_trial_t *trial)
{
    for (int g = 0; g < 2; g++) {
        lnt_group_defaults(&trial->groups[g]);
        trial->groups[g].lr = 0.002 + 0.008 * test_random_unit();
        trial->groups[g].beta1 = 0.85 + 0.1 * test_random_unit();
        trial->groups[g].beta2 = 0.99 + 0.009 * test_random_unit();
        trial->groups[g].eps = 1e-6;
        trial->groups[g].weight_decay = g == 0 ? 0.05 * test_random_unit() : 0;
    }
}

/* Matrices, vectors, a single row and an empty tensor; with random bucket and segment bytes. No tensor of one element:
 * an unlimited ratio divides by its update, which may come near 0. */
static inline exact_trial_t exact_draw(const world_t *world, const char *algorithm, const char *options)
{
    static const uint64_t rows[] = {12, 1, 0, 20, 0, 0, 7}, lengths[] = {12 * 16, 5, 300, 20 * 9, 0, 70, 7 * 31};
    exact_trial_t trial = {.world = *world, .seed = test_random()};

    exact_groups(&trial);
    trial.model = (model_t){.n_tensors = 7,
                            .algorithm = algorithm,
                            .n_groups = 2,
                            .bucket_bytes = 512 + 4 * test_random_below(1000),
                            .segment_bytes = 4 + 4 * test_random_below(300),
                            .start_seed = test_random()};
    for (uint32_t t = 0; t < trial.model.n_tensors; t++) {
        trial.model.lengths[t] = lengths[t];
        trial.model.rows[t] = rows[t];
        trial.model.group_of[t] = (uint32_t)test_random_below(2);
        for (uint64_t i = 0; i < lengths[t]; i++)
            trial.tensor_of[trial.n++] = t;
        trial.first[t + 1] = (uint32_t)trial.n;
    }
    (void)snprintf(trial.options, sizeof(trial.options), "%s", options);
    return trial;
}

/* Pointers into the trial itself: after it has come to rest. */
static inline void exact_settle(exact_trial_t *trial)
{
    for (uint64_t i = 0; i < trial->n; i++)
        trial->start_squares[i] = pow(normal_at(trial->model.start_seed, i), 2);
    trial->model.options = trial->options;
    trial->model.groups = trial->groups;
}

static inline const lnt_group_t *exact_group(const exact_trial_t *trial, uint32_t tensor)
{
    return &trial->groups[trial->model.group_of[tensor]];
}

static inline double exact_norm(const double *values, uint64_t n)
{
    double sum = 0;

    for (uint64_t i = 0; i < n; i++)
        sum += values[i] * values[i];
    return sqrt(sum);
}

/* Element by element, relative to the element, the root mean square of its tensor or, where squares is given, the root
 * of its square there, whichever is largest: a sum may be near 0 while its terms are not. 60 steps of about
 * ten roundings of 2^-24 each are 4e-5. */
static inline void exact_compare(const exact_trial_t *trial, const char *what, const float *seen,
                                 const double *expected, const double *squares)
{
    for (uint32_t t = 0; t < trial->model.n_tensors; t++) {
        const uint64_t n = trial->model.lengths[t];
        const double *want = expected + trial->first[t];
        double rms = n != 0 ? exact_norm(want, n) / sqrt((double)n) : 0;
        for (uint64_t i = 0; i < n; i++) {
            double off = fabs((double)seen[trial->first[t] + i] - want[i]);
            double size = squares != NULL ? sqrt(squares[trial->first[t] + i]) : 0;
            ck_assert_msg(off <= 5e-5 * fmax(size, fmax(rms, fabs(want[i]))),
                          "%s of tensor %u, element %llu: %g, not %g", what, t, (unsigned long long)i,
                          (double)seen[trial->first[t] + i], want[i]);
        }
    }
}

static inline void exact_compare_view(const rank_t *rank, const exact_trial_t *trial, const char *name,
                                      const double *expected, const double *squares)
{
    float *seen = calloc(rank->n_elems + 1, sizeof(*seen));

    rank_view(rank, name, sizeof(float), seen);
    exact_compare(trial, name, seen, expected, squares);
    free(seen);
}

/* Numbers of the state, relative to themselves. */
static inline void exact_compare_values(const rank_t *rank, const char *name, const double *expected, uint64_t n)
{
    uint64_t count = 0;
    const double *seen = lnt_optim_values(rank->optim, name, &count);

    ck_assert_ptr_nonnull(seen);
    ck_assert_uint_eq(count, n);
    for (uint64_t i = 0; i < n; i++) {
        ck_assert_msg(fabs(seen[i] - expected[i]) <= 2e-5 * fabs(expected[i]), "%s %llu: %g, not %g", name,
                      (unsigned long long)i, seen[i], expected[i]);
    }
}

#endif
