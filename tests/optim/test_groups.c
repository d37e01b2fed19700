/* Groups: hyper-parameters that change at every step, against plain loops in f64; the number of messages depends on
 * bytes and not on groups; parameters that stand still, gradients that are missing on some ranks or all, accumulation
 * over micro-steps; tensors that come too late.
 */
#include <math.h>

#include "ranks.h"
#include "small_options.h"

enum { STEPS = 60, FREEZE = 20, LENGTH = 150, N_GROUPS = 4 };

/* ---- other values at every step ---- */

typedef struct schedule {
    model_t model;
    uint64_t seed;
    bool freezes;
    double c1[N_GROUPS], c2[N_GROUPS]; /* the oracle: products of betas, moments, frozen denominators */
    double x[N_GROUPS * LENGTH], m[N_GROUPS * LENGTH], v[N_GROUPS * LENGTH], den[N_GROUPS * LENGTH];
} schedule_t;

/* Every group has its own schedule of everything. */
static lnt_group_t group_at(const schedule_t *schedule, uint32_t group, uint32_t step)
{
    lnt_group_t values;
    const uint64_t draw = test_mix_pair(schedule->seed, step * 8u + group);

    lnt_group_defaults(&values);
    values.lr = 1e-3 * (1 + group) * (1 + 0.5 * sin(step));
    values.beta1 = 0.8 + 0.15 * unit_at(draw, 0);
    values.beta2 = 0.98 + 0.019 * unit_at(draw, 1);
    values.eps = 1e-6 * (1 + unit_at(draw, 2));
    values.weight_decay = group % 2 == 0 ? 0 : 0.1 * unit_at(draw, 3);
    return values;
}

/* Away from zero, so that f32 and f64 agree on directions; the same on both ranks, so the mean is exact. */
static float grad_at(const schedule_t *schedule, uint32_t step, uint64_t i)
{
    double g = normal_at(test_mix_pair(schedule->seed, step), i);

    return (float)(g + (normal_at(schedule->seed, i) > 0 ? 2 : -2));
}

static void oracle_step(schedule_t *s, uint32_t step)
{
    for (uint32_t group = 0; group < N_GROUPS; group++) {
        const lnt_group_t h = group_at(s, group, step);
        const bool frozen = s->freezes && step >= FREEZE;
        s->c1[group] *= h.beta1;
        s->c2[group] *= h.beta2;
        for (uint64_t i = group * LENGTH; i < (group + 1) * LENGTH; i++) {
            const double g = (double)grad_at(s, step, i);
            s->m[i] = h.beta1 * s->m[i] + (1 - h.beta1) * g;
            if (!frozen) {
                s->v[i] = h.beta2 * s->v[i] + (1 - h.beta2) * g * g;
                s->den[i] = sqrt(s->v[i] / (1 - s->c2[group])) + h.eps;
            }
            s->x[i] -= h.lr * (s->m[i] / (1 - s->c1[group]) / s->den[i] + h.weight_decay * s->x[i]);
        }
    }
}

/* A few roundings of 2^-24 per step in terms of size 1, and of |x| < 4: far below 1e-5 after 60 steps. */
static void schedule_body(rank_t *rank)
{
    schedule_t *s = rank->arg;
    float grad[N_GROUPS * LENGTH];

    rank_open(rank, &s->model);
    for (uint32_t step = 0; step < STEPS; step++) {
        for (uint32_t group = 0; group < N_GROUPS; group++) {
            const lnt_group_t values = group_at(s, group, step);
            ranks_ok(lnt_optim_set_group(rank->optim, group, &values));
        }
        for (uint64_t i = 0; i < N_GROUPS * LENGTH; i++)
            grad[i] = grad_at(s, step, i);
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
        if (rank->rank == 0) oracle_step(s, step);
        expect_equal_ranks(rank);
        for (uint64_t i = 0; i < N_GROUPS * LENGTH; i++)
            ck_assert_double_le(fabs((double)rank->x[i] - s->x[i]), 1e-5);
        ranks_barrier();
    }
    rank_close(rank);
}

/* One node: the momentum is exact after the freeze. */
START_TEST(values_may_change_at_every_step)
{
    static const char *const algorithms[] = {"adamw", "onebit_adam"};
    schedule_t *s = calloc(1, sizeof(*s));
    lnt_group_t groups[N_GROUPS];

    *s = (schedule_t){.seed = test_random(), .freezes = _i == 1};
    for (uint32_t g = 0; g < N_GROUPS; g++) {
        groups[g] = group_at(s, g, 0);
        s->c1[g] = s->c2[g] = 1;
    }
    s->model = (model_t){.n_tensors = N_GROUPS,
                         .lengths = {LENGTH, LENGTH, LENGTH, LENGTH},
                         .group_of = {0, 1, 2, 3},
                         .algorithm = algorithms[_i],
                         .options = _i == 1 ? "freeze_step=20,block=64" : "",
                         .groups = groups,
                         .n_groups = N_GROUPS,
                         .bucket_bytes = 900,
                         .start_seed = test_random()};
    for (uint64_t i = 0; i < N_GROUPS * LENGTH; i++)
        s->x[i] = (double)(float)normal_at(s->model.start_seed, i);
    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 0}}, schedule_body, s);
    free(s);
}
END_TEST

/* ---- messages ---- */

typedef struct traffic {
    model_t model;
    lnt_comm_stats_t stats[2]; /* of rank 0, one step before and one after the freeze */
    uint64_t n_buckets;
    float x[16 * 80];
} traffic_t;

static void traffic_body(rank_t *rank)
{
    traffic_t *traffic = rank->arg;
    lnt_plan_info_t info = {.struct_size = sizeof(info)};
    float grad[16 * 80];

    rank_open(rank, &traffic->model);
    ranks_ok(lnt_plan_get_info(rank->plan, &info));
    for (uint32_t step = 0; step < 3; step++) {
        lnt_comm_stats_t stats = {.struct_size = sizeof(stats)};
        for (uint64_t i = 0; i < rank->n_elems; i++)
            grad[i] = (float)normal_at(step, i);
        ranks_ok(lnt_comm_get_stats(rank->comm, &stats, true));
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
        ranks_ok(lnt_comm_get_stats(rank->comm, &stats, true));
        if (rank->rank == 0 && step != 1) traffic->stats[step / 2] = stats;
    }
    if (rank->rank == 0) traffic->n_buckets = info.n_buckets;
    if (rank->rank == 0) memcpy(traffic->x, rank->x, sizeof(traffic->x));
    rank_close(rank);
}

static traffic_t measure(const char *algorithm, const char *options, uint32_t n_groups, uint64_t bucket_bytes)
{
    lnt_group_t groups[16];
    traffic_t traffic = {.model = {.n_tensors = 16,
                                   .algorithm = algorithm,
                                   .options = options,
                                   .groups = groups,
                                   .n_groups = n_groups,
                                   .bucket_bytes = bucket_bytes}};

    for (uint32_t t = 0; t < 16; t++) {
        lnt_group_defaults(&groups[t]);
        traffic.model.lengths[t] = 80;
        traffic.model.group_of[t] = t % n_groups;
    }
    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}}, traffic_body, &traffic);
    return traffic;
}

/* 16 tensors of 320 bytes: in one bucket, whatever groups they are in; by bytes in several. */
START_TEST(messages_depend_on_bytes_and_not_on_groups)
{
    for (size_t n = 0; lnt_optim_list()[n] != NULL; n++) {
        char options[256];
        traffic_t one, many, small;
        small_options(lnt_optim_list()[n], options, sizeof(options));
        one = measure(lnt_optim_list()[n], options, 1, 1 << 20);
        many = measure(lnt_optim_list()[n], options, 16, 1 << 20);
        small = measure(lnt_optim_list()[n], options, 16, 1280);
        ck_assert_uint_eq(one.n_buckets, 1);
        ck_assert_uint_eq(many.n_buckets, 1);
        ck_assert_uint_ge(small.n_buckets, 4);
        for (int phase = 0; phase < 2; phase++) {
            ck_assert_uint_gt(one.stats[phase].frames_sent, 0);
            ck_assert_uint_eq(many.stats[phase].frames_sent, one.stats[phase].frames_sent);
            ck_assert_uint_eq(many.stats[phase].wire_bytes_inter, one.stats[phase].wire_bytes_inter);
            ck_assert_uint_gt(small.stats[phase].frames_sent, one.stats[phase].frames_sent);
        }
        ck_assert_mem_eq(many.x, one.x, sizeof(one.x)); /* the groups have the same values */
    }
}
END_TEST

/* ---- parameters that stand still, gradients that are missing ---- */

typedef struct still {
    model_t model;
    uint64_t seed;
    bool missing[3][2]; /* by tensor and rank */
    bool explicit_zeros;
    float x[3 * LENGTH];
} still_t;

static void still_body(rank_t *rank)
{
    static const float zeros[LENGTH];
    still_t *still = rank->arg;
    float grad[3 * LENGTH];

    rank_open(rank, &still->model);
    for (uint32_t step = 0; step < 10; step++) {
        for (uint64_t i = 0; i < rank->n_elems; i++)
            grad[i] = (float)normal_at(test_mix_pair(still->seed, step * 2 + rank->rank), i);
        ranks_ok(lnt_optim_begin(rank->optim));
        for (uint32_t t = 0; t < 3; t++) {
            const float *g = grad + t * LENGTH;
            if (still->missing[t][rank->rank]) g = still->explicit_zeros ? zeros : NULL;
            if (g != NULL || step % 2 == 0) ranks_ok(lnt_optim_tensor_ready(rank->optim, t, g, NULL));
        }
        ck_assert_int_ge(lnt_optim_end(rank->optim), 0);
        expect_equal_ranks(rank);
    }
    if (rank->rank == 0) memcpy(still->x, rank->x, sizeof(still->x));
    rank_close(rank);
}

static void run_still(still_t *still, const char *algorithm, const lnt_group_t groups[2])
{
    char options[256];

    small_options(algorithm, options, sizeof(options));
    still->model = (model_t){.n_tensors = 3,
                             .lengths = {LENGTH, LENGTH, LENGTH},
                             .group_of = {0, 0, 1},
                             .algorithm = algorithm,
                             .options = options,
                             .groups = groups,
                             .n_groups = 2,
                             .bucket_bytes = 700,
                             .start_seed = 9};
    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, still_body, still);
}

/* Elements of the last tensor are where they began; of the others nearly all have moved: one may have come back. */
static void check_moves(const char *algorithm, const float *x)
{
    uint64_t moved[3] = {0};

    for (uint64_t i = 0; i < 3 * LENGTH; i++)
        moved[i / LENGTH] += x[i] != (float)normal_at(9, i);
    ck_assert_msg(moved[2] == 0, "%s moves %d elements that stand still", algorithm, (int)moved[2]);
    ck_assert_msg(moved[0] > LENGTH - 10 && moved[1] > LENGTH - 10, "%s moves %d and %d of %d elements", algorithm,
                  (int)moved[0], (int)moved[1], LENGTH);
}

/* Frozen by a learning rate of 0: not one bit moves in any phase, decay or not, and the others move as ever. */
START_TEST(a_learning_rate_of_zero_freezes_parameters)
{
    for (size_t n = 0; lnt_optim_list()[n] != NULL; n++) {
        lnt_group_t groups[2];
        still_t still = {.seed = test_random()};
        for (int g = 0; g < 2; g++)
            lnt_group_defaults(&groups[g]);
        groups[1].lr = 0;
        groups[1].weight_decay = 0.1;
        run_still(&still, lnt_optim_list()[n], groups);
        check_moves(lnt_optim_list()[n], still.x);
    }
}
END_TEST

/* Rank 0 has gradients of tensors 0 and 1, rank 1 of 0 alone, nobody of 2: as if they were zeros, and without decay the
 * last one stands still. */
START_TEST(missing_gradients_are_zeros_on_any_rank)
{
    for (size_t n = 0; lnt_optim_list()[n] != NULL; n++) {
        lnt_group_t groups[2];
        still_t still = {.seed = test_random(), .missing = {{false, false}, {false, true}, {true, true}}},
                zeros = still;
        for (int g = 0; g < 2; g++)
            lnt_group_defaults(&groups[g]);
        zeros.explicit_zeros = true;
        run_still(&still, lnt_optim_list()[n], groups);
        run_still(&zeros, lnt_optim_list()[n], groups);
        ck_assert_mem_eq(still.x, zeros.x, sizeof(still.x));
        check_moves(lnt_optim_list()[n], still.x);
    }
}
END_TEST

/* ---- accumulation ---- */

enum { MICRO = 4 };

typedef struct micro {
    model_t model;
    uint64_t seed;
    bool accumulated; /* by the library, or summed by the caller */
    uint64_t hash, errors[2];
} micro_t;

/* Tensor 1 has a gradient in the second micro-step only, tensor 2 in all but the last. */
static bool touched(uint32_t tensor, uint32_t micro)
{
    return tensor == 0 || (tensor == 1 && micro == 1) || (tensor == 2 && micro != MICRO - 1);
}

static void micro_step(rank_t *rank, const micro_t *job, uint32_t step)
{
    float part[LENGTH], sums[3][LENGTH];
    const void *grads[3] = {NULL, NULL, NULL};

    for (uint32_t t = 0; t < 3; t++) {
        bool first = true;
        for (uint32_t k = 0; k < MICRO; k++) {
            const uint64_t errors = rank_error_hash(rank);
            if (!touched(t, k)) continue;
            for (uint64_t i = 0; i < LENGTH; i++) {
                part[i] = (float)normal_at(test_mix_pair(job->seed, step * 8 + k * 2 + rank->rank), t * LENGTH + i);
                sums[t][i] = first ? part[i] : sums[t][i] + part[i];
            }
            first = false;
            if (job->accumulated) ranks_ok(lnt_optim_accumulate(rank->optim, t, part));
            ck_assert_uint_eq(rank_error_hash(rank), errors); /* residuals wait for the step */
        }
        if (!job->accumulated) grads[t] = sums[t];
    }
    ck_assert_int_ge(lnt_optim_step(rank->optim, grads), 0);
}

static void micro_body(rank_t *rank)
{
    micro_t *job = rank->arg;

    rank_open(rank, &job->model);
    ranks_ok(lnt_optim_set_scaling(rank->optim, 0, MICRO));
    for (uint32_t step = 0; step < 10; step++) {
        const uint64_t errors = rank_error_hash(rank);
        micro_step(rank, job, step);
        expect_equal_ranks(rank);
        if (step == 0) ck_assert(errors != rank_error_hash(rank) || !has_option(job->model.algorithm, "codec"));
    }
    if (rank->rank == 0) job->hash = lnt_optim_hash(rank->optim);
    job->errors[rank->rank] = rank_error_hash(rank);
    rank_close(rank);
}

/* One exchange of the sum per step, whatever the micro-step that touched a tensor; error feedback advances once. */
START_TEST(a_tensor_touched_in_any_micro_step_counts_once)
{
    for (size_t n = 0; lnt_optim_list()[n] != NULL; n++) {
        char options[256];
        micro_t jobs[2];
        small_options(lnt_optim_list()[n], options, sizeof(options));
        if (has_option(lnt_optim_list()[n], "codec"))
            (void)snprintf(options + strlen(options), sizeof(options) - strlen(options), ",codec=int8");
        if (has_option(lnt_optim_list()[n], "warmup_codec"))
            (void)snprintf(options + strlen(options), sizeof(options) - strlen(options), ",warmup_codec=int8");
        for (int k = 0; k < 2; k++) {
            jobs[k] = (micro_t){.model = {.n_tensors = 3,
                                          .lengths = {LENGTH, LENGTH, LENGTH},
                                          .algorithm = lnt_optim_list()[n],
                                          .options = options,
                                          .bucket_bytes = 700,
                                          .accumulate = true,
                                          .start_seed = 9},
                                .seed = 77,
                                .accumulated = k == 1};
            ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, micro_body, &jobs[k]);
        }
        ck_assert_msg(jobs[0].hash == jobs[1].hash, "%s", lnt_optim_list()[n]);
        ck_assert_mem_eq(jobs[0].errors, jobs[1].errors, sizeof(jobs[0].errors));
    }
}
END_TEST

/* ---- too late ---- */

static void late_body(rank_t *rank)
{
    const model_t model = {.n_tensors = 1, .lengths = {64}, .algorithm = "adamw"};
    static _Thread_local float more[64];
    const lnt_tensor_params_t tensor = {.struct_size = sizeof(tensor), .name = "late", .count = 64, .param = more};
    const lnt_tensor_params_t stranger = {
        .struct_size = sizeof(stranger), .name = "stranger", .count = 64, .param = more, .group = 3};
    uint32_t number = 0;

    ranks_ok(rank_plan(rank, &model));
    ranks_ok(lnt_plan_add_tensor(rank->plan, &stranger, &number));
    ck_assert_int_eq(rank_optim(rank), LNT_ERR_INVALID_ARG); /* its group does not exist */
    ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, "stranger"));
    ranks_ok(lnt_plan_destroy(rank->plan));
    free(rank->x);
    free(rank->x16);
    rank_open(rank, &model);
    ck_assert_int_eq(lnt_plan_add_tensor(rank->plan, &tensor, &number), LNT_ERR_INVALID_USAGE);
    ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, "committed"));
    ck_assert_ptr_nonnull(strstr(lnt_last_error()->cure, "linnet/plan.h"));
    ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, rank->x))); /* nothing has changed */
    rank_close(rank);
}

START_TEST(tensors_that_come_too_late_are_refused_by_name)
{
    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, late_body, NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("groups");
    TCase *tcase = tcase_create("groups");

    tcase_add_loop_test(tcase, values_may_change_at_every_step, 0, 2);
    tcase_add_test(tcase, messages_depend_on_bytes_and_not_on_groups);
    tcase_add_test(tcase, a_learning_rate_of_zero_freezes_parameters);
    tcase_add_test(tcase, missing_gradients_are_zeros_on_any_rank);
    tcase_add_test(tcase, a_tensor_touched_in_any_micro_step_counts_once);
    tcase_add_test(tcase, tensors_that_come_too_late_are_refused_by_name);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
