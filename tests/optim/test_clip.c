/* Clipping by the global norm: no jump at the freeze, one agreed norm and factor on all ranks, and what must not
 * matter. The bytes of it are test_optim_oracle's and test_optim_model's; clipping by bucket is test_clip_buckets.c.
 */
#include <time.h>

#include "clip_trial.h"
#include "small_options.h"

/* ---- the freeze ---- */

/* Norm of the mean gradient: sqrt(N (1 + noise^2 / n)) = 62 for 4 ranks and N = 1934; of a local one sqrt(N (1 +
 * noise^2)) = 98. A norm of N independent numbers spreads by 1 / sqrt(2 N) = 1.6 %, a mean of 24 steps by less, so 3 %
 * holds by far; r = 1 instead of the measured ratio would be a jump of 37 % (2 ranks: 23 %). With one rank r is 1 but
 * for roundings. */
START_TEST(the_factor_does_not_jump_at_the_freeze)
{
    trial_t trial = make_trial("freeze_step=24,block=128,clip=10,warmup_codec=int8,warmup_block=64");
    double before, after;

    ranks_run(&worlds[_i], body, &trial);
    before = mean(trial.factors, 0, FREEZE);
    after = mean(trial.factors, FREEZE, STEPS);
    ck_assert_double_eq(trial.recorded, FREEZE); /* the ratio stands from then on */
    ck_assert_double_lt(before, 0.3);
    ck_assert_double_le(fabs(after / before - 1), 0.03);
    ck_assert_double_le(fabs(mean(trial.norms, FREEZE, STEPS) / mean(trial.norms, 0, FREEZE) - 1), 0.03);
    for (uint32_t step = 1; step < STEPS; step++) /* no single step is apart either: 6 standard deviations */
        ck_assert_double_le(fabs(trial.factors[step] / before - 1), 0.1);
}
END_TEST

/* The same for every algorithm with a freeze. */
START_TEST(no_algorithm_jumps_at_the_freeze)
{
    for (size_t n = 0; lnt_optim_list()[n] != NULL; n++) {
        trial_t trial = make_trial("freeze_step=24,block=128,clip=10");
        double before;
        trial.model.algorithm = lnt_optim_list()[n];
        if (!has_option(lnt_optim_list()[n], "freeze_step") || !has_option(lnt_optim_list()[n], "clip")) continue;
        ranks_run(&(world_t){.n_ranks = 4, .nodes = {0, 1, 0, 1}}, body, &trial);
        before = mean(trial.factors, 0, FREEZE);
        ck_assert_double_lt(before, 0.3);
        ck_assert_double_le(fabs(mean(trial.factors, FREEZE, STEPS) / before - 1), 0.03);
    }
}
END_TEST

/* Another loss scale and micro-steps: the norms are those of gradients, so neither phase sees anything of it. */
START_TEST(scales_of_the_loss_are_no_norms)
{
    trial_t trial = make_trial("freeze_step=24,block=128,clip=10"), scaled = trial;

    scaled.scale = 1024;
    ranks_run(&worlds[_i], body, &trial);
    ranks_run(&worlds[_i], body, &scaled);
    for (uint32_t step = 0; step < STEPS; step++) {
        ck_assert_double_le(fabs(scaled.norms[step] / trial.norms[step] - 1),
                            1e-12); /* powers of two: exact but for sums */
        ck_assert_double_le(fabs(scaled.factors[step] / trial.factors[step] - 1), 1e-6);
    }
}
END_TEST

/* r is the mean over the last 100 warm-up steps: 40 with ratios of 1 have been forgotten after 140, of 120 steps with
 * ratios near 0.6 (two ranks: sqrt((1 + 2) / (1 + 4)) = 0.77) 20 are left. */
START_TEST(the_ratio_is_of_the_last_hundred_steps)
{
    static const uint32_t freeze[2] = {140, 120};

    for (int k = 0; k < 2; k++) {
        char options[64] = "";
        trial_t trial = make_trial(options);
        (void)snprintf(options, sizeof(options), "freeze_step=%u,block=128,clip=10", freeze[k]);
        trial.n_steps = freeze[k];
        trial.quiet_steps = 40;
        ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}}, body, &trial);
        ck_assert_double_eq(trial.recorded, freeze[k]);
        ck_assert_double_le(fabs(trial.r - (k == 0 ? sqrt(0.6) : 0.2 + 0.8 * sqrt(0.6))), 0.01);
    }
}
END_TEST

/* Below the limit nothing is multiplied, in either phase. */
START_TEST(short_gradients_are_left_alone)
{
    static const char *const options[] = {"freeze_step=24,block=128", "freeze_step=24,block=128,clip=1e6",
                                          "freeze_step=24,block=128,clip=1e6,clip_mode=bucket"};
    trial_t trial = make_trial(NULL);
    float x[3][1934];

    for (int k = 0; k < 3; k++) {
        trial.model.options = options[k];
        trial.x = x[k];
        ranks_run(&worlds[_i], body, &trial);
        for (uint32_t step = 0; step < STEPS; step++)
            ck_assert_double_eq(trial.factors[step], 1);
        ck_assert_int_eq(trial.norms[0] > 10, k > 0);
        ck_assert_int_eq(trial.norms[STEPS - 1] > 10, k == 1); /* by bucket it is not known after the freeze */
        ck_assert_mem_eq(x[k], x[0], sizeof(x[0]));
    }
}
END_TEST

/* One rank's gradient is ten times longer: all ranks multiply by one factor all the same, and say so. */
START_TEST(a_loud_rank_is_clipped_like_the_others)
{
    trial_t trial = make_trial("freeze_step=24,block=128,clip=10");

    trial.loud = 10;
    ranks_run(&worlds[_i], body, &trial);
    ck_assert_double_lt(mean(trial.factors, 0, FREEZE), 0.2);
    ck_assert_double_le(fabs(mean(trial.factors, FREEZE, STEPS) / mean(trial.factors, 0, FREEZE) - 1), 0.03);
}
END_TEST

START_TEST(global_clipping_depends_on_no_bucket_order_or_thread)
{
    static const char *const options[] = {"freeze_step=6,block=128,clip=10,warmup_codec=int8,warmup_block=64",
                                          "freeze_step=6,block=128,clip=10,compression=off", "clip=10,codec=int4"};
    world_t world = worlds[_i];

    for (int k = 0; k < 3; k++) {
        trial_t trial = make_trial(options[k]);
        uint64_t expected;
        trial.n_steps = 12;
        trial.model.algorithm = k < 2 ? "onebit_adam" : "adamw";
        ranks_run(&world, body, &trial);
        expected = trial.hash;
        ck_assert_double_lt(trial.factors[11], 0.5);
        trial.model.bucket_bytes = 4 + 4 * test_random_below(2500);
        trial.model.segment_bytes = 4 + 4 * test_random_below(1000);
        trial.reversed = true;
        world.no_thread = k == 1;
        ranks_run(&world, body, &trial);
        ck_assert_uint_eq(trial.hash, expected);
    }
}
END_TEST

/* A peer that leaves instead of telling its norm: nobody commits, in either phase, and everything can be saved and torn
 * down. */
static void aborted_body(rank_t *rank)
{
    trial_t *trial = rank->arg;
    uint64_t hash, bytes;
    const void *const *grads;

    rank_open(rank, &trial->model);
    train(rank, trial);
    hash = lnt_optim_hash(rank->optim);
    grads = rank_grads(rank, rank->x);
    ranks_ok(lnt_optim_begin(rank->optim));
    for (uint32_t t = 0; t < rank->model->n_tensors; t++)
        ranks_ok(lnt_optim_tensor_ready(rank->optim, t, grads[t], NULL));
    ranks_barrier();
    if (rank->rank == 1) lnt_comm_abort(rank->comm, "the test");
    while (rank->rank == 1 && lnt_comm_async_error(rank->comm, NULL) == LNT_OK) /* it does not give its norm */
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    ck_assert_int_eq(lnt_optim_end(rank->optim), LNT_ERR_ABORTED);
    ck_assert_uint_eq(lnt_optim_hash(rank->optim), hash);
    ck_assert_uint_eq(rank_info(rank).step, trial->n_steps);
    ranks_ok(lnt_optim_state_size(rank->optim, &bytes));
    ck_assert_int_eq(lnt_optim_begin(rank->optim), LNT_ERR_ABORTED);
    rank_close(rank);
}

START_TEST(a_peer_that_leaves_before_the_gather_undoes_the_step)
{
    for (uint32_t steps = 0; steps <= 4; steps += 4) { /* before and after the freeze */
        trial_t trial = make_trial("freeze_step=2,block=128,clip=10");
        trial.n_steps = steps;
        ranks_run(&(world_t){.n_ranks = 3, .nodes = {0, 1, 1}, .quiet = true}, aborted_body, &trial);
    }
}
END_TEST

/* ---- threads ---- */

typedef struct call {
    rank_t *rank;
    uint32_t tensor;
    pthread_t thread;
} call_t;

static void *call_ready(void *arg)
{
    call_t *call = arg;

    ranks_ok(lnt_optim_tensor_ready(call->rank->optim, call->tensor, call->rank->grads[call->tensor], NULL));
    return NULL;
}

/* Every tensor made ready by a thread of its own: norms of several buckets are taken at once. */
static void threads_body(rank_t *rank)
{
    trial_t *trial = rank->arg;
    uint16_t *codes;

    rank_open(rank, &trial->model);
    codes = calloc(rank->n_elems, sizeof(*codes));
    for (uint32_t step = 0; step < 8; step++) {
        call_t calls[MAX_TENSORS];
        uint64_t at = 0;
        for (uint64_t i = 0; i < rank->n_elems; i++)
            codes[i] = half_of(LNT_BF16, grad_at(trial, rank->rank, step, i));
        ranks_ok(lnt_optim_begin(rank->optim));
        for (uint32_t t = 0; t < rank->model->n_tensors; at += rank->model->lengths[t++]) {
            rank->grads[t] = codes + at;
            calls[t] = (call_t){.rank = rank, .tensor = t};
            if (trial->reversed) {
                ck_assert_int_eq(pthread_create(&calls[t].thread, NULL, call_ready, &calls[t]), 0);
            } else {
                (void)call_ready(&calls[t]);
            }
        }
        for (uint32_t t = 0; t < rank->model->n_tensors && trial->reversed; t++)
            (void)pthread_join(calls[t].thread, NULL);
        ranks_ok(lnt_optim_end(rank->optim));
        expect_equal_ranks(rank);
    }
    if (rank->rank == 0) trial->hash = lnt_optim_hash(rank->optim);
    free(codes);
    rank_close(rank);
}

START_TEST(tensors_may_be_made_ready_by_many_threads)
{
    static const char *const options[] = {"freeze_step=4,block=64,clip=5",
                                          "freeze_step=4,block=64,clip=5,clip_mode=bucket"};
    trial_t trial = make_trial(options[_i]);
    uint64_t expected;

    trial.model.dtype = LNT_BF16;
    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}}, threads_body, &trial);
    expected = trial.hash;
    trial.reversed = true; /* with threads */
    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}}, threads_body, &trial);
    ck_assert_uint_eq(trial.hash, expected);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("clip");
    TCase *tcase = tcase_create("clip");

    tcase_add_loop_test(tcase, the_factor_does_not_jump_at_the_freeze, 0, N_WORLDS);
    tcase_add_test(tcase, no_algorithm_jumps_at_the_freeze);
    tcase_add_loop_test(tcase, scales_of_the_loss_are_no_norms, 0, N_WORLDS);
    tcase_add_test(tcase, the_ratio_is_of_the_last_hundred_steps);
    tcase_add_loop_test(tcase, short_gradients_are_left_alone, 0, N_WORLDS);
    tcase_add_loop_test(tcase, a_loud_rank_is_clipped_like_the_others, 0, N_WORLDS);
    tcase_add_loop_test(tcase, global_clipping_depends_on_no_bucket_order_or_thread, 0, N_WORLDS);
    tcase_add_test(tcase, a_peer_that_leaves_before_the_gather_undoes_the_step);
    tcase_add_loop_test(tcase, tensors_may_be_made_ready_by_many_threads, 0, 2);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
