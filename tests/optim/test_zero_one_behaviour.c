/* What 0/1 Adam promises beside its formulas: identities with its relatives, rows without gradients stand still, no
 * jump at the switch, learning rates of zero and falling ones, a refused end of the first phase, masks.
 */
#include <math.h>

#include "ranks.h"

enum { N_TENSORS = 3, N = 320 + 40 + 200 };

typedef struct run {
    model_t model;
    uint64_t seed, steps;
    bool drop_rate, no_noise; /* the learning rate falls to a hundredth half-way; gradients are the same on all ranks */
    uint64_t dead_from;       /* elements from here on have no gradient, of the first tensor only noise near zero */
    float *x, *m;             /* [steps][N] of rank 0: copies and exp_avg */
    uint64_t bytes;           /* sent by rank 0 in the second half */
    bool copies_differed, copies_differed_at_sync;
} run_t;

static float grad_at(const run_t *run, uint32_t rank, uint64_t step, uint64_t i)
{
    double common = normal_at(test_mix_pair(run->seed, step), i);
    double own = run->no_noise ? 0 : normal_at(test_mix_pair(run->seed, step * 64 + rank + 1), i);

    if (i >= run->dead_from && i < 320) return (float)(own * 1e-13);
    if (run->dead_from < N && i >= N - 20) return 0;
    return (float)(0.5 * normal_at(run->seed, i) + common + own);
}

static float shared_copies[MAX_RANKS][N];

/* Whether ranks hold the same copies; at a sync they must. */
static void compare_copies(run_t *run, const rank_t *rank)
{
    const double *sum = lnt_optim_values(rank->optim, "sum_lr", NULL);

    memcpy(shared_copies[rank->rank], rank->x, sizeof(shared_copies[0]));
    ranks_barrier();
    for (uint32_t r = 1; r < rank->world->n_ranks && rank->rank == 0; r++) {
        if (memcmp(shared_copies[r], shared_copies[0], sizeof(shared_copies[0])) == 0) continue;
        run->copies_differed = true;
        run->copies_differed_at_sync |= sum == NULL || sum[0] == 0;
    }
    ranks_barrier();
}

static void set_rate(const run_t *run, rank_t *rank, uint64_t step)
{
    lnt_group_t group;

    ranks_ok(lnt_optim_get_group(rank->optim, 0, &group));
    if (!run->drop_rate || step != run->steps / 2) return;
    group.lr /= 100;
    ranks_ok(lnt_optim_set_group(rank->optim, 0, &group));
}

static uint64_t bytes_sent(const rank_t *rank)
{
    lnt_comm_stats_t stats = {.struct_size = sizeof(stats)};

    ranks_ok(lnt_comm_get_stats(rank->comm, &stats, false));
    return stats.wire_bytes_intra + stats.wire_bytes_inter;
}

static void body(rank_t *rank)
{
    run_t *run = rank->arg;
    float grad[N], m[N];
    uint64_t before = 0;

    rank_open(rank, &run->model);
    for (uint64_t step = 0; step < run->steps; step++) {
        lnt_status_t status;
        set_rate(run, rank, step);
        for (uint64_t i = 0; i < N; i++)
            grad[i] = grad_at(run, rank->rank, step, i);
        if (step == run->steps / 2) before = bytes_sent(rank);
        status = lnt_optim_step(rank->optim, rank_grads(rank, grad));
        ck_assert(status == LNT_OK || status == LNT_FREEZE_REFUSED);
        expect_equal_ranks(rank);
        compare_copies(run, rank);
        if (rank->rank != 0) continue;
        rank_view(rank, "exp_avg", sizeof(float), m);
        memcpy(run->x + step * N, rank->x, sizeof(m));
        memcpy(run->m + step * N, m, sizeof(m));
    }
    if (rank->rank == 0) run->bytes = bytes_sent(rank) - before;
    rank_close(rank);
}

static run_t new_run(const char *algorithm, const char *options, const lnt_group_t *group, uint64_t steps)
{
    static const model_t model = {.n_tensors = N_TENSORS, .lengths = {320, 40, 200}, .bucket_bytes = 1 << 20};
    run_t run = {.model = model, .seed = test_random(), .steps = steps, .dead_from = UINT64_MAX};

    run.model.algorithm = algorithm;
    run.model.options = options;
    run.model.groups = group;
    run.model.n_groups = 1;
    run.model.start_seed = test_random();
    run.x = calloc(steps * N, sizeof(float));
    run.m = calloc(steps * N, sizeof(float));
    return run;
}

static void go(run_t *run, uint32_t n_ranks)
{
    world_t world = {.n_ranks = n_ranks, .quiet = true};

    for (uint32_t r = 0; r < n_ranks; r++)
        world.nodes[r] = r;
    ranks_run(&world, body, run);
}

static void end_run(run_t *run)
{
    free(run->x);
    free(run->m);
}

static const lnt_group_t plain = {.struct_size = sizeof(plain), .lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
static const lnt_group_t decaying = {
    .struct_size = sizeof(plain), .lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.1};

#define WINDOWS "var_freeze_step=20,var_update_scaler=4,local_step_scaler=10,local_step_clipper=4,block=64"

/* Without coding and with windows of one step it is Adam under a frozen variance. */
START_TEST(windows_of_one_step_are_frozen_adam)
{
    run_t zero_one =
        new_run("zero_one_adam",
                "var_freeze_step=20,var_update_scaler=1000,local_step_clipper=1,block=64,compression=off", &plain, 70);
    run_t frozen = new_run("onebit_adam", "freeze_step=20,block=64,compression=off", &plain, 70);

    frozen.seed = zero_one.seed;
    frozen.model.start_seed = zero_one.model.start_seed;
    frozen.model.lengths[1] = zero_one.model.lengths[1] = 100; /* tensors in the lane differ: no short ones */
    frozen.model.lengths[2] = zero_one.model.lengths[2] = 140;
    go(&zero_one, 3);
    go(&frozen, 3);
    for (uint64_t i = 0; i < 70 * N; i++) {
        ck_assert_float_eq_tol(zero_one.x[i], frozen.x[i], 2e-6f * (1 + fabsf(frozen.x[i])));
        ck_assert_float_eq_tol(zero_one.m[i], frozen.m[i], 2e-6f);
    }
    end_run(&zero_one);
    end_run(&frozen);
}
END_TEST

START_TEST(replicas_agree_at_every_sync)
{
    run_t run = new_run("zero_one_adam", WINDOWS, &decaying, 70);

    go(&run, 4);
    ck_assert(run.copies_differed && !run.copies_differed_at_sync);
    end_run(&run);
}
END_TEST

/* The gradients do not look at the parameters here, so the momentum may not depend on the decay. */
START_TEST(decay_does_not_leak_into_the_momentum)
{
    run_t with = new_run("zero_one_adam", WINDOWS, &decaying, 70),
          without = new_run("zero_one_adam", WINDOWS, &plain, 70);

    without.seed = with.seed;
    without.model.start_seed = with.model.start_seed;
    go(&with, 2);
    go(&without, 2);
    ck_assert_mem_eq(with.m, without.m, 70 * N * sizeof(float));
    ck_assert(memcmp(with.x, without.x, 70 * N * sizeof(float)) != 0);
    end_run(&with);
    end_run(&without);
}
END_TEST

START_TEST(one_rank_updates_its_momentum)
{
    run_t run = new_run("zero_one_adam", WINDOWS, &plain, 50);

    go(&run, 1);
    for (uint64_t step = 1; step < 31; step++) /* in windows of several steps exp_avg is that of the last sync */
        ck_assert(memcmp(run.m + step * N, run.m + (step - 1) * N, N * sizeof(float)) != 0);
    end_run(&run);
}
END_TEST

START_TEST(rows_without_gradients_stand_still)
{
    run_t run = new_run("zero_one_adam", WINDOWS, &plain, 150);
    float start, largest = 0;

    run.dead_from = 300;
    go(&run, 4);
    for (uint64_t i = N - 20; i < N; i++) {
        start = (float)normal_at(run.model.start_seed, i);
        for (uint64_t step = 0; step < 150; step++)
            ck_assert(run.x[step * N + i] == start);
    }
    for (uint64_t i = 300; i < 320; i++) /* rounding noise, damped by eps */
        largest = fmaxf(largest, fabsf(run.x[149 * N + i] - (float)normal_at(run.model.start_seed, i)));
    ck_assert_float_lt(largest, 1e-3f);
    end_run(&run);
}
END_TEST

/* Mean |x - x before| over elements. */
static double movement(const run_t *run, uint64_t step)
{
    double sum = 0;

    for (uint64_t i = 0; i < N; i++)
        sum += fabs((double)run->x[step * N + i] - (double)run->x[(step - 1) * N + i]);
    return sum / N;
}

/* An early switch, where corrections of bias are large: steps stay as long as they were. */
START_TEST(steps_do_not_jump_at_the_switch)
{
    run_t run =
        new_run("zero_one_adam", "var_freeze_step=6,var_update_scaler=2,local_step_clipper=1,block=64", &plain, 12);

    run.no_noise = true;
    run.seed = 99; /* how much gradients change from step to step is a matter of the draw */
    go(&run, 2);
    for (uint64_t step = 5; step < 10; step++) {
        double ratio = movement(&run, step + 1) / movement(&run, step);
        ck_assert_double_gt(ratio, 0.7);
        ck_assert_double_lt(ratio, 1.4);
    }
    end_run(&run);
}
END_TEST

static double rms(const float *values)
{
    double sum = 0;

    for (uint64_t i = 0; i < N; i++)
        sum += (double)values[i] * (double)values[i];
    return sqrt(sum / N);
}

/* The errors' unit holds no learning rate: a fall does not make old errors large momenta. */
START_TEST(a_falling_rate_leaves_the_momentum_alone)
{
    run_t run = new_run("zero_one_adam", WINDOWS, &plain, 200);

    run.drop_rate = true;
    go(&run, 4);
    for (uint64_t step = 100; step < 200; step++)
        ck_assert_double_lt(rms(run.m + step * N), 2 * rms(run.m + 95 * N));
    end_run(&run);
}
END_TEST

START_TEST(a_rate_of_zero_moves_and_sends_nothing)
{
    lnt_group_t still = plain;
    run_t run = new_run("zero_one_adam", WINDOWS, &still, 80);

    still.lr = 0;
    go(&run, 2);
    ck_assert_uint_eq(run.bytes, 0);
    for (uint64_t step = 0; step < 80; step++) {
        for (uint64_t i = 0; i < N; i++)
            ck_assert(run.x[step * N + i] == (float)normal_at(run.model.start_seed, i));
        if (step >= 20) ck_assert_mem_eq(run.m + step * N, run.m + 19 * N, N * sizeof(float));
    }
    end_run(&run);
}
END_TEST

/* ---- one step at a time ---- */

static void refuse_body(rank_t *rank)
{
    const model_t model = {.n_tensors = 2,
                           .lengths = {300, 100},
                           .algorithm = "zero_one_adam",
                           .options = "var_freeze_step=4,block=64,var_update_scaler=2"};
    float grad[400];

    rank_open(rank, &model);
    for (uint64_t step = 0; step < 10; step++) {
        for (uint64_t i = 0; i < 400; i++)
            grad[i] = i < 100 && step < 6 ? 0 : (float)normal_at(step * 8 + rank->rank, i);
        ck_assert_int_eq(lnt_optim_step(rank->optim, rank_grads(rank, grad)),
                         step + 1 < 4 || step >= 6 ? LNT_OK : LNT_FREEZE_REFUSED);
        if (step == 4) ck_assert_int_eq(lnt_last_error()->status, LNT_ERR_DEAD_SHARE);
        ck_assert_int_eq(rank_info(rank).phase, step < 6 ? LNT_PHASE_WARMUP : LNT_PHASE_LOCAL);
    }
    rank_close(rank);
}

/* The tensor is held back, so that its late rows get their variance in the step that touches them. */
START_TEST(the_first_phase_goes_on_while_too_much_is_dead)
{
    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, refuse_body, NULL);
}
END_TEST

static void mask_body(rank_t *rank)
{
    const model_t model = {
        .n_tensors = 2, .lengths = {300, 20}, .algorithm = "zero_one_adam", .options = WINDOWS, .start_seed = 4};
    uint8_t mask[300];
    float grad[320], *x;

    rank_open(rank, &model);
    x = rank->x;
    memset(mask, 1, sizeof(mask));
    mask[5] = mask[17] = 0;
    for (uint64_t step = 0; step < 60; step++) {
        const float before[2] = {x[5], x[317]};
        for (uint64_t i = 0; i < 320; i++)
            grad[i] = (float)normal_at(step * 8 + rank->rank, i);
        if (step == 10) ranks_ok(lnt_optim_set_mask(rank->optim, 0, mask));
        if (step == 42) ranks_ok(lnt_optim_set_mask(rank->optim, 1, mask));
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
        ck_assert(step < 20 || x[5] == before[0]);
        ck_assert(step < 43 || x[317] == before[1]); /* inside a window it goes back to its anchor */
    }
    rank_close(rank);
}

START_TEST(masked_coordinates_stand_still)
{
    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, mask_body, NULL);
}
END_TEST

/* Masks do nothing before the end of the first phase, in steps of signs either, and hold no tensor back. */
static void early_mask_body(rank_t *rank)
{
    static float x[MAX_RANKS][2][320];
    const model_t model = {
        .n_tensors = 2, .lengths = {300, 20}, .algorithm = "zero_one_adam", .options = WINDOWS, .start_seed = 4};
    uint8_t mask[300];
    float grad[320];

    for (uint64_t i = 0; i < 300; i++)
        mask[i] = i % 3 != 0;
    for (int masked = 0; masked < 2; masked++) {
        rank_open(rank, &model);
        for (uint64_t step = 0; step < 20; step++) {
            for (uint64_t i = 0; i < 320; i++)
                grad[i] = i % 50 == 1 ? 0 : (float)normal_at(step * 8 + rank->rank, i);
            if (masked != 0 && (step == 0 || step == 7)) ranks_ok(lnt_optim_set_mask(rank->optim, 0, mask));
            ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
        }
        ck_assert_int_eq(rank_info(rank).phase, LNT_PHASE_LOCAL);
        memcpy(x[rank->rank][masked], rank->x, sizeof(x[0][0]));
        rank_close(rank);
    }
    ck_assert_mem_eq(x[rank->rank][0], x[rank->rank][1], sizeof(x[0][0]));
}

START_TEST(masks_do_nothing_in_the_first_phase)
{
    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, early_mask_body, NULL);
}
END_TEST

/* Micro-batches of every step, local ones included: the sum given at once, or one part of it accumulated before. */
static void accumulate_body(rank_t *rank)
{
    static float x[MAX_RANKS][2][N];
    model_t model = {.n_tensors = 2,
                     .lengths = {520, 40},
                     .algorithm = "zero_one_adam",
                     .options = WINDOWS,
                     .accumulate = true,
                     .start_seed = 4};
    float first[N], second[N], sum[N];

    for (int accumulated = 0; accumulated < 2; accumulated++) {
        rank_open(rank, &model);
        ranks_ok(lnt_optim_set_scaling(rank->optim, 1, 2));
        for (uint64_t step = 0; step < 50; step++) {
            for (uint64_t i = 0; i < N; i++) {
                first[i] = (float)normal_at(step * 8 + rank->rank, i);
                second[i] = (float)normal_at(step * 8 + rank->rank + 4, i);
                sum[i] = second[i] + first[i];
            }
            for (uint32_t t = 0; t < 2 && accumulated != 0; t++)
                ranks_ok(lnt_optim_accumulate(rank->optim, t, first + 520 * t));
            ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, accumulated != 0 ? second : sum)));
        }
        memcpy(x[rank->rank][accumulated], rank->x, sizeof(x[0][0]));
        rank_close(rank);
    }
    ck_assert_mem_eq(x[rank->rank][0], x[rank->rank][1], sizeof(x[0][0]));
}

START_TEST(micro_batches_add_up_in_local_steps)
{
    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, accumulate_body, NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("zero_one_behaviour");
    TCase *tcase = tcase_create("behaviour");

    tcase_add_test(tcase, windows_of_one_step_are_frozen_adam);
    tcase_add_test(tcase, replicas_agree_at_every_sync);
    tcase_add_test(tcase, decay_does_not_leak_into_the_momentum);
    tcase_add_test(tcase, one_rank_updates_its_momentum);
    tcase_add_test(tcase, rows_without_gradients_stand_still);
    tcase_add_test(tcase, steps_do_not_jump_at_the_switch);
    tcase_add_test(tcase, a_falling_rate_leaves_the_momentum_alone);
    tcase_add_test(tcase, a_rate_of_zero_moves_and_sends_nothing);
    tcase_add_test(tcase, the_first_phase_goes_on_while_too_much_is_dead);
    tcase_add_test(tcase, masked_coordinates_stand_still);
    tcase_add_test(tcase, masks_do_nothing_in_the_first_phase);
    tcase_add_test(tcase, micro_batches_add_up_in_local_steps);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
