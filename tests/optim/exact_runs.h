/* Runs of exact trials: beside an oracle, and in other units of the gradients. */
#ifndef TESTS_OPTIM_EXACT_RUNS_H
#define TESTS_OPTIM_EXACT_RUNS_H

#include "exact_trial.h"

/* ---- beside an oracle ---- */

typedef struct exact_run {
    exact_trial_t *trial;
    uint32_t steps;
    void *oracle;
    void (*follow)(void *oracle, uint32_t step);             /* the step in f64; by one rank, before the others go on */
    void (*compare)(const rank_t *rank, const void *oracle); /* what every rank holds after the step */
} exact_run_t;

static inline void exact_run_body(rank_t *rank)
{
    const exact_run_t *run = rank->arg;
    float *grad = calloc(run->trial->n, sizeof(*grad));

    rank_open(rank, &run->trial->model);
    for (uint32_t step = 0; step < run->steps; step++) {
        if (rank->rank == 0) run->follow(run->oracle, step);
        exact_step(rank, run->trial, step, grad);
        run->compare(rank, run->oracle);
        ranks_barrier();
    }
    free(grad);
    rank_close(rank);
}

/* x: the oracle's parameters, which begin where the ranks' do. */
static inline void exact_run(exact_run_t *run, double *x)
{
    exact_settle(run->trial);
    for (uint64_t i = 0; i < run->trial->n; i++)
        x[i] = (double)(float)normal_at(run->trial->model.start_seed, i);
    ranks_run(&run->trial->world, exact_run_body, run);
}

/* ---- how far a tensor moved ---- */

typedef struct exact_move {
    double moved, norm; /* of the step; of the parameters before it */
} exact_move_t;

static inline exact_move_t exact_move(const exact_trial_t *trial, uint32_t tensor, const float *before, const float *x)
{
    exact_move_t move = {0, 0};

    for (uint32_t i = trial->first[tensor]; i < trial->first[tensor + 1]; i++) {
        move.moved += pow((double)x[i] - (double)before[i], 2);
        move.norm += pow((double)before[i], 2);
    }
    return (exact_move_t){sqrt(move.moved), sqrt(move.norm)};
}

typedef void (*exact_move_check_t)(const exact_trial_t *trial, uint32_t tensor, exact_move_t move);

/* By lr times the norm at most: what ratios without a limit from below lead to. */
static inline void exact_at_most_lr(const exact_trial_t *trial, uint32_t tensor, exact_move_t move)
{
    ck_assert_double_le(move.moved, (exact_group(trial, tensor)->lr + 1e-6) * move.norm);
}

/* ---- other units ---- */

enum { UNIT_STEPS = 10 };

typedef struct unit_run {
    exact_trial_t trial;
    int (*units)(uint32_t tensor, uint32_t step); /* gradients times 2 to that power; NULL: as they are */
    exact_move_check_t check;                     /* of every step and tensor */
    float x[4096];                                /* parameters after the last step */
} unit_run_t;

static inline void unit_body(rank_t *rank)
{
    unit_run_t *run = rank->arg;
    const exact_trial_t *trial = &run->trial;
    float *grad = calloc(trial->n, sizeof(*grad)), *before = calloc(trial->n, sizeof(*before));

    rank_open(rank, &trial->model);
    for (uint32_t step = 0; step < UNIT_STEPS; step++) {
        memcpy(before, rank->x, trial->n * sizeof(*before));
        for (uint64_t i = 0; i < trial->n; i++) {
            int units = run->units != NULL ? run->units(trial->tensor_of[i], step) : 0;
            grad[i] = (float)ldexp(exact_grad(trial, rank->rank, step, i), units);
        }
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
        expect_equal_ranks(rank);
        for (uint32_t t = 0; t < trial->model.n_tensors; t++)
            run->check(trial, t, exact_move(trial, t, before, rank->x));
    }
    if (rank->rank == 0) memcpy(run->x, rank->x, trial->n * sizeof(*before));
    free(grad);
    free(before);
    rank_close(rank);
}

/* Parameters are the same to the bit, without eps to speak of: powers of two leave even the roundings as they are. */
static inline void units_do_not_matter(const world_t *world, const char *algorithm,
                                       int (*units)(uint32_t tensor, uint32_t step))
{
    static unit_run_t here, there;

    here = (unit_run_t){.trial = exact_draw(world, algorithm, ""), .check = exact_at_most_lr};
    here.trial.groups[0].eps = here.trial.groups[1].eps = 1e-30;
    there = here;
    there.units = units;
    exact_settle(&here.trial);
    exact_settle(&there.trial);
    ranks_run(&here.trial.world, unit_body, &here);
    ranks_run(&there.trial.world, unit_body, &there);
    ck_assert_mem_eq(here.x, there.x, here.trial.n * sizeof(float));
}

#endif
