/* Clipping: no jump at the freeze, one agreed norm and factor on all ranks, buckets limited before the exchange by a
 * norm of their own, and what must not matter or must be refused. The bytes of global clipping are test_optim_oracle's
 * and test_optim_model's.
 */
#include <math.h>
#include <time.h>

#include "ranks.h"
#include "small_options.h"

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

static float grad_at(const trial_t *trial, uint32_t rank, uint32_t step, uint64_t i)
{
    double common = normal_at(trial->seed, i), own = normal_at(test_mix_pair(trial->seed, step * 64u + rank), i);

    return (float)((common + (step >= trial->quiet_steps ? trial->noise : 0) * own) * (rank == 0 ? trial->loud : 1));
}

/* Gradients come multiplied by scale * 2 and as sums over 2 micro-batches. */
static void set_scale(rank_t *rank, double scale, float *grad)
{
    ranks_ok(lnt_optim_set_scaling(rank->optim, scale, 2));
    for (uint64_t i = 0; i < rank->n_elems; i++)
        grad[i] = grad[i] * (float)(2 * scale);
}

static void train(rank_t *rank, trial_t *trial)
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

static void body(rank_t *rank)
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

static trial_t make_trial(const char *options)
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

static double mean(const double *values, uint32_t from, uint32_t to)
{
    double sum = 0;

    for (uint32_t i = from; i < to; i++)
        sum += values[i];
    return sum / (to - from);
}

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

/* ---- buckets ---- */

/* Squares of one bucket of a rank: elements [begin, end), in f64. */
static double square(const trial_t *trial, uint32_t rank, uint32_t step, uint64_t begin, uint64_t end)
{
    double sum = 0;

    for (uint64_t i = begin; i < end; i++)
        sum += (double)grad_at(trial, rank, step, i) * (double)grad_at(trial, rank, step, i);
    return sum;
}

/* beta1 = beta2 = 0 and eps far above: x moves by lr * g / (|g| + eps), from which the mean g can be read. One tensor
 * per bucket. */
static void check_buckets(const trial_t *trial, const world_t *world, double clip, const float *start)
{
    const double eps = 1e3;
    uint64_t at = 0;

    for (uint32_t t = 0; t < trial->model.n_tensors; at += trial->model.lengths[t++]) {
        double factor[MAX_RANKS];
        for (uint32_t r = 0; r < world->n_ranks; r++) {
            double norm = sqrt(square(trial, r, 0, at, at + trial->model.lengths[t])),
                   limit = clip / sqrt(trial->model.n_tensors);
            factor[r] = norm > limit ? limit / norm : 1;
        }
        for (uint64_t i = at; i < at + trial->model.lengths[t]; i++) {
            double g = 0, move;
            for (uint32_t r = 0; r < world->n_ranks; r++)
                g += factor[r] * (double)grad_at(trial, r, 0, i) / world->n_ranks;
            move = g / (fabs(g) + eps);
            ck_assert_double_le(fabs((double)start[i] - (double)trial->x[i] - move), 1e-6);
        }
    }
}

static void run_buckets(const world_t *world, double clip, double loud, double scale)
{
    char options[96] = "";
    lnt_group_t group;
    float start[1024];
    trial_t trial = make_trial(options);

    lnt_group_defaults(&group);
    group.lr = 1;
    group.beta1 = group.beta2 = 0;
    group.eps = 1e3;
    (void)snprintf(options, sizeof(options), "clip=%g,clip_mode=bucket,block=64", clip);
    trial.model = (model_t){.n_tensors = 4,
                            .lengths = {256, 256, 256, 256},
                            .algorithm = "adamw",
                            .options = options,
                            .groups = &group,
                            .n_groups = 1,
                            .bucket_bytes = 1024,
                            .start_seed = 11};
    trial.loud = loud;
    trial.scale = scale;
    trial.n_steps = 1;
    trial.x = calloc(1024, sizeof(float));
    for (uint64_t i = 0; i < 1024; i++)
        start[i] = (float)normal_at(11, i);
    ranks_run(world, body, &trial);
    ck_assert_double_eq(trial.factors[0], 1);
    ck_assert_double_le(trial.norms[0], clip * (1 + 1e-6)); /* of the mean of what was clipped */
    ck_assert_double_gt(trial.norms[0], 0);
    check_buckets(&trial, world, clip, start);
    free(trial.x);
}

/* The mean reported is at most clip for any input, also where one rank is loud: no bucket of its passes the limit. */
START_TEST(every_bucket_of_every_rank_is_limited_by_its_own_norm)
{
    run_buckets(&worlds[_i], 20, 1, 0);
    run_buckets(&worlds[_i], 60, 1 + 30 * test_random_unit(), 1024);
    run_buckets(&worlds[_i], 1e-3, 1, 4);
}
END_TEST

/* Where all buckets have one norm the limit of the whole is the limit of each: one rank clips exactly as globally. */
static void equal_norms_body(rank_t *rank)
{
    const trial_t *trial = rank->arg;
    float grad[1024];

    rank_open(rank, &trial->model);
    for (int i = 0; i < 1024; i++)
        grad[i] = (float)normal_at(trial->seed, (uint64_t)i % 256);
    for (uint32_t step = 0; step < 3; step++)
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
    memcpy(trial->x, rank->x, sizeof(grad));
    rank_close(rank);
}

START_TEST(buckets_of_equal_norm_are_clipped_as_one)
{
    trial_t trial = make_trial(NULL);
    float x[2][1024];

    trial.model.n_tensors = 4;
    for (int mode = 0; mode < 2; mode++) {
        for (int t = 0; t < 4; t++)
            trial.model.lengths[t] = 256;
        trial.model.algorithm = "adamw";
        trial.model.options = mode ? "clip=4,clip_mode=bucket,block=64" : "clip=4,block=64";
        trial.model.bucket_bytes = 1024;
        trial.x = x[mode];
        ranks_run(&(world_t){.n_ranks = 1}, equal_norms_body, &trial);
    }
    for (int i = 0; i < 1024; i++)
        ck_assert_double_le(fabs((double)x[0][i] - (double)x[1][i]), 1e-6);
}
END_TEST

static void refuse_body(rank_t *rank)
{
    const trial_t *trial = rank->arg;
    uint64_t bytes, hash;
    void *blob;
    model_t other = trial->model;

    rank_open(rank, &trial->model);
    ranks_ok(lnt_optim_state_size(rank->optim, &bytes));
    blob = malloc(bytes);
    ranks_ok(lnt_optim_state_export(rank->optim, blob, bytes));
    rank_close(rank);
    rank_open(rank, &other);
    ranks_ok(lnt_optim_state_import(rank->optim, blob, bytes));
    rank_close(rank);
    other.bucket_bytes *= 2;
    rank_open(rank, &other);
    hash = lnt_optim_hash(rank->optim);
    ck_assert_int_eq(lnt_optim_state_import(rank->optim, blob, bytes), LNT_ERR_STATE_MISMATCH);
    ck_assert_uint_eq(lnt_optim_hash(rank->optim), hash);
    rank_close(rank);
    free(blob);
}

START_TEST(with_buckets_their_size_is_part_of_the_numerics)
{
    trial_t trial = make_trial("clip=10,clip_mode=bucket,freeze_step=5");

    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, refuse_body, &trial);
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
    tcase_add_loop_test(tcase, every_bucket_of_every_rank_is_limited_by_its_own_norm, 0, N_WORLDS);
    tcase_add_test(tcase, buckets_of_equal_norm_are_clipped_as_one);
    tcase_add_test(tcase, with_buckets_their_size_is_part_of_the_numerics);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
