/* What must not matter (bucket and segment bytes, progress thread, order of ready calls), what counts as what (missing
 * gradients, accumulation, 16-bit types), and the freeze: dead coordinates, refusals, one node.
 */
#include <math.h>

#include "ranks.h"

enum { STEPS = 8 };

typedef struct trial {
    model_t model;
    uint64_t seed;
    uint32_t skip_tensor; /* this one gets NULL (1) or explicit zeros (2) */
    int skip_how;
    uint32_t micro; /* micro-batches: by accumulate (how 1) or summed by the caller (how 2) */
    int micro_how;
    bool reversed;                 /* ready calls in reverse order */
    uint64_t dead_begin, dead_end; /* no gradient there */
    uint64_t hash;                 /* result */
    float *x;                      /* result, if not NULL */
    lnt_dtype_t twin_of;           /* the 16-bit type whose values the f32 twin has */
    float late;                    /* gradient scale of the dead range after the freeze */
} trial_t;

static float grad_at(const trial_t *trial, uint32_t rank, uint32_t step, uint32_t micro, uint64_t i)
{
    float g = (float)normal_at(test_mix_pair(trial->seed + micro, step * 64u + rank), i);

    if (i >= trial->dead_begin && i < trial->dead_end) return g * (step >= 4 ? trial->late : 0);
    return float_as(trial->model.dtype, g);
}

static void one_step(rank_t *rank, const trial_t *trial, uint32_t step, float *sum, float *part)
{
    const void *grads[MAX_TENSORS];
    uint64_t at = 0;

    memset(sum, 0, rank->n_elems * sizeof(*sum));
    for (uint32_t k = 0; k <= trial->micro; k++) {
        for (uint64_t i = 0; i < rank->n_elems; i++) {
            part[i] = grad_at(trial, rank->rank, step, k, i);
            sum[i] = k == 0 ? part[i] : sum[i] + part[i];
        }
        if (trial->micro_how != 1 || k == trial->micro) continue;
        for (uint32_t t = 0; t < rank->model->n_tensors; t++)
            ranks_ok(lnt_plan_accumulate(rank->plan, t, rank_grads(rank, part)[t]));
    }
    if (trial->micro_how == 1) memcpy(sum, part, rank->n_elems * sizeof(*sum));
    for (uint32_t t = 0; t < rank->model->n_tensors; at += rank->model->lengths[t++]) {
        uint16_t *codes = (uint16_t *)(void *)(part + at); /* 16-bit gradients, where asked for */
        grads[t] = sum + at;
        if (trial->skip_how != 0 && t == trial->skip_tensor) {
            if (trial->skip_how == 2) memset(sum + at, 0, rank->model->lengths[t] * sizeof(*sum));
            if (trial->skip_how == 1) grads[t] = NULL;
        }
        if (rank->model->dtype == LNT_F32) continue;
        for (uint64_t i = 0; i < rank->model->lengths[t]; i++)
            codes[i] = half_of(rank->model->dtype, sum[at + i]);
        grads[t] = codes;
    }
    ranks_ok(lnt_optim_begin(rank->optim));
    for (uint32_t k = 0; k < rank->model->n_tensors; k++) {
        uint32_t t = trial->reversed ? rank->model->n_tensors - 1 - k : k;
        if (trial->skip_how == 1 && t == trial->skip_tensor && step % 2 == 0) continue; /* not even called */
        ranks_ok(lnt_optim_tensor_ready(rank->optim, t, grads[t], NULL));
    }
    ranks_ok(lnt_optim_end(rank->optim));
    expect_equal_ranks(rank);
}

static void body(rank_t *rank)
{
    trial_t *trial = rank->arg;
    float *sum, *part;

    rank_open(rank, &trial->model);
    sum = calloc(rank->n_elems + 1, sizeof(*sum));
    part = calloc(rank->n_elems + 1, sizeof(*part));
    for (uint32_t step = 0; step < STEPS; step++)
        one_step(rank, trial, step, sum, part);
    if (rank->rank == 0) {
        trial->hash = lnt_optim_hash(rank->optim);
        if (trial->x != NULL) {
            for (uint32_t t = 0, at = 0; t < trial->model.n_tensors; at += (uint32_t)trial->model.lengths[t++]) {
                memcpy(trial->x + at, lnt_plan_master(rank->plan, t), trial->model.lengths[t] * sizeof(float));
            }
        }
    }
    if (trial->model.dtype != LNT_F32) {
        uint64_t at = 0;
        for (uint32_t t = 0; t < trial->model.n_tensors; t++) {
            for (uint64_t i = 0; i < trial->model.lengths[t]; i++, at++) {
                ck_assert_uint_eq(rank->x16[at], half_of(trial->model.dtype, lnt_plan_master(rank->plan, t)[i]));
            }
        }
    }
    free(sum);
    free(part);
    rank_close(rank);
}

static const char onebit_options[] = "freeze_step=4,block=128,warmup_codec=int8,warmup_block=64";

static trial_t make_trial(void)
{
    return (trial_t){.model = {.n_tensors = 6,
                               .lengths = {130, 3, 0, 700, 64, 1},
                               .algorithm = "onebit_adam",
                               .options = onebit_options,
                               .bucket_bytes = 1 << 20,
                               .segment_bytes = 1 << 20,
                               .start_seed = 5},
                     .seed = test_random()};
}

static uint64_t run(const world_t *world, trial_t *trial)
{
    ranks_run(world, body, trial);
    return trial->hash;
}

/* Quiet: dead coordinates are warned about. */
static const world_t worlds[] = {{.n_ranks = 1, .quiet = true},
                                 {.n_ranks = 2, .nodes = {0, 1}, .quiet = true},
                                 {.n_ranks = 4, .nodes = {0, 1, 0, 1}, .quiet = true},
                                 {.n_ranks = 5, .nodes = {0, 0, 0, 1, 1}, .quiet = true},
                                 {.n_ranks = 8, .nodes = {0, 1, 2, 3, 4, 5, 6, 7}, .quiet = true}};

START_TEST(results_do_not_depend_on_sizes_order_or_threads)
{
    trial_t trial = make_trial();
    world_t world = worlds[_i];
    uint64_t expected = run(&world, &trial);

    for (int k = 0; k < 4; k++) {
        trial.model.bucket_bytes = 4 + 4 * test_random_below(1200);
        trial.model.segment_bytes = 4 + 4 * test_random_below(600);
        trial.reversed = k % 2 != 0;
        world.no_thread = k == 3;
        ck_assert_uint_eq(run(&world, &trial), expected);
    }
}
END_TEST

START_TEST(missing_gradients_are_zeros)
{
    trial_t trial = make_trial();
    uint64_t zeros;

    trial.model.options = "freeze_step=4,block=128,max_dead_share=1";
    trial.skip_tensor = (uint32_t)test_random_below(6);
    trial.skip_how = 2;
    zeros = run(&worlds[_i], &trial);
    trial.skip_how = 1;
    ck_assert_uint_eq(run(&worlds[_i], &trial), zeros);
}
END_TEST

START_TEST(accumulated_gradients_are_sums)
{
    trial_t trial = make_trial();
    uint64_t summed;

    trial.micro = 2;
    trial.micro_how = 2;
    summed = run(&worlds[_i], &trial);
    trial.micro_how = 1;
    trial.model.accumulate = true;
    ck_assert_uint_eq(run(&worlds[_i], &trial), summed);
}
END_TEST

/* The f32 twin starts from the same rounded values and gets the same rounded gradients: masters are then equal. */
static void half_twin(rank_t *rank)
{
    trial_t *trial = rank->arg;
    float *sum;

    ranks_ok(rank_plan(rank, &trial->model));
    for (uint64_t i = 0; i < rank->n_elems; i++)
        rank->x[i] = float_as(trial->twin_of, rank->x[i]);
    ranks_ok(rank_optim(rank));
    ranks_ok(lnt_plan_commit(rank->plan));
    sum = calloc(rank->n_elems, sizeof(*sum));
    for (uint32_t step = 0; step < STEPS; step++) {
        for (uint64_t i = 0; i < rank->n_elems; i++)
            sum[i] = float_as(trial->twin_of, grad_at(trial, rank->rank, step, 0, i));
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, sum)));
    }
    if (rank->rank == 0) memcpy(trial->x, rank->x, rank->n_elems * sizeof(*sum));
    free(sum);
    rank_close(rank);
}

START_TEST(half_gradients_and_model_copies)
{
    trial_t trial = make_trial();
    uint64_t n = model_elems(&trial.model);
    float *masters = calloc(n, sizeof(float)), *expected = calloc(n, sizeof(float));

    trial.twin_of = trial.model.dtype = _i % 2 ? LNT_F16 : LNT_BF16;
    trial.model.options = "freeze_step=4,block=128";
    trial.x = masters;
    (void)run(&worlds[_i / 2], &trial);
    trial.model.dtype = LNT_F32;
    trial.x = expected;
    ranks_run(&worlds[_i / 2], half_twin, &trial);
    ck_assert_mem_eq(masters, expected, n * sizeof(float));
    free(masters);
    free(expected);
}
END_TEST

/* ---- the freeze ---- */

/* With decay 0 coordinates without gradients keep their bits for ever, in blocks that live and in blocks that do not.
 */
START_TEST(dead_coordinates_stand_still)
{
    trial_t trial = make_trial();
    float *x = calloc(model_elems(&trial.model), sizeof(float));

    trial.dead_begin = 150;
    trial.dead_end = 220;
    trial.x = x;
    (void)run(&worlds[_i], &trial);
    expect_only_still(x, model_elems(&trial.model), trial.model.start_seed, trial.dead_begin, trial.dead_end);
    free(x);
}
END_TEST

/* Squared norm of the errors at the end (no freeze), or what the freeze dropped: a sum over ranks. */
static double squares[MAX_RANKS];

static void residual_body(rank_t *rank)
{
    trial_t *trial = rank->arg;
    lnt_error_extent_t extent;
    double sum = 0;
    float *grad;

    rank_open(rank, &trial->model);
    grad = calloc(rank->n_elems, sizeof(*grad));
    for (uint32_t step = 0; step < 4; step++) {
        for (uint64_t i = 0; i < rank->n_elems; i++)
            grad[i] = grad_at(trial, rank->rank, step, 0, i);
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
    }
    for (size_t i = 0; lnt_plan_error_extent(rank->plan, i, &extent) == LNT_OK; i++) {
        for (uint64_t k = 0; k < extent.count; k++)
            sum += (double)extent.data[k] * (double)extent.data[k];
    }
    if (rank_info(rank).phase == LNT_PHASE_COMPRESSED) {
        ck_assert_double_eq(sum, 0.0);
        sum = rank_info(rank).dropped_norm * rank_info(rank).dropped_norm;
    }
    squares[rank->rank] = sum;
    free(grad);
    rank_close(rank);
}

START_TEST(the_freeze_drops_the_residual_and_says_how_much)
{
    trial_t trial = make_trial();
    double kept[MAX_RANKS];

    trial.model.options = "freeze_step=5,block=128,warmup_codec=int8,warmup_block=64";
    ranks_run(&worlds[_i], residual_body, &trial);
    memcpy(kept, squares, sizeof(kept));
    trial.model.options = onebit_options;
    ranks_run(&worlds[_i], residual_body, &trial);
    /* The same squares, at most two errors per element, summed in f64 in two orders: 2^-53 for each addition of either,
     * and three more for the root and the square taken of it here. */
    for (uint32_t r = 0; r < worlds[_i].n_ranks; r++) {
        ck_assert_double_le(fabs(squares[r] - kept[r]),
                            (2 * 2.0 * (double)model_elems(&trial.model) + 4) * 0x1p-53 * kept[r]);
    }
    if (worlds[_i].n_ranks > 1) ck_assert_double_gt(kept[0], 0);
}
END_TEST

/* One node: no codec, so signs and the uncompressed twin are the same run. */
START_TEST(one_node_sends_no_signs)
{
    const world_t world = {.n_ranks = (uint32_t)(1 + test_random_below(4)), .quiet = true};
    trial_t trial = make_trial();
    uint64_t expected;

    trial.dead_begin = 150;
    trial.dead_end = 200;
    trial.model.options = "freeze_step=4,block=128";
    expected = run(&world, &trial);
    trial.model.options = "freeze_step=4,block=128,compression=off";
    ck_assert_uint_eq(run(&world, &trial), expected);
}
END_TEST

static void refused_body(rank_t *rank)
{
    trial_t *trial = rank->arg;
    float *grad;

    rank_open(rank, &trial->model);
    grad = calloc(rank->n_elems, sizeof(*grad));
    for (uint32_t step = 0; step < STEPS; step++) {
        for (uint64_t i = 0; i < rank->n_elems; i++)
            grad[i] = grad_at(trial, rank->rank, step, 0, i);
        ck_assert_int_eq(lnt_optim_step(rank->optim, rank_grads(rank, grad)),
                         step + 1 < 4 || step >= 4 ? LNT_OK : LNT_FREEZE_REFUSED);
        ck_assert_uint_eq(rank_info(rank).step, step + 1);
        ck_assert_int_eq(rank_info(rank).phase, step < 4 ? LNT_PHASE_WARMUP : LNT_PHASE_COMPRESSED);
        if (step == 3) {
            ck_assert_int_eq(lnt_last_error()->status, LNT_ERR_DEAD_SHARE);
            ck_assert_double_gt(rank_info(rank).dead_share, 0.1);
            ck_assert_ptr_null(lnt_optim_view(rank->optim, "dead", 0));
        }
    }
    ck_assert_double_eq(rank_info(rank).dead_share, 0.0);
    free(grad);
    rank_close(rank);
}

START_TEST(a_freeze_with_too_many_dead_is_refused_until_they_live)
{
    const world_t world = {.n_ranks = 2, .nodes = {0, 1}, .quiet = true};
    trial_t trial = make_trial();

    trial.dead_begin = 140;
    trial.dead_end = 140 + 91; /* 898 elements in all */
    trial.late = 1.0f;
    trial.model.options = "freeze_step=4,block=128";
    ranks_run(&world, refused_body, &trial);
}
END_TEST

static void nonfinite_body(rank_t *rank)
{
    trial_t *trial = rank->arg;
    float *grad;

    rank_open(rank, &trial->model);
    grad = calloc(rank->n_elems, sizeof(*grad));
    for (uint64_t i = 0; i < rank->n_elems; i++)
        grad[i] = grad_at(trial, rank->rank, 0, 0, i);
    for (uint32_t step = 0; step < 3; step++)
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
    ((float *)(uintptr_t)lnt_optim_view(rank->optim, "exp_avg_sq", 3))[7] = INFINITY; /* cannot come about by itself */
    ck_assert_int_eq(lnt_optim_step(rank->optim, rank_grads(rank, grad)), LNT_FREEZE_REFUSED);
    ck_assert_int_eq(lnt_last_error()->status, LNT_ERR_NONFINITE);
    ck_assert_int_eq(rank_info(rank).phase, LNT_PHASE_WARMUP);
    ck_assert_int_eq(lnt_last_error()->tensor, 3);
    free(grad);
    rank_close(rank);
}

START_TEST(a_freeze_of_a_broken_variance_is_refused)
{
    const world_t world = {.n_ranks = 2, .nodes = {0, 1}, .quiet = true};
    trial_t trial = make_trial();

    ranks_run(&world, nonfinite_body, &trial);
}
END_TEST

/* ---- options and groups ---- */

static void expect_options_refused(rank_t *rank)
{
    static const struct {
        const char *algorithm, *options, *text;
    } bad[] = {{"adamm", "", "adam"},
               {"onebit_adam", "freez_step=3", "freeze_step"},
               {"onebit_adam", "freeze_step=0", "freeze_step"},
               {"onebit_adam", "block=100", "64"},
               {"onebit_adam", "scale_rule=l3", "l2"},
               {"onebit_adam", "warmup_codec=sign1", "sign1"},
               {"adamw", "codec=sign1", "converge"},
               {"adamw", "freeze_step=3", "freeze_step"}};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        lnt_optim_params_t params = {
            .struct_size = sizeof(params), .algorithm = bad[i].algorithm, .options = bad[i].options};
        lnt_optim_t *optim = NULL;
        ck_assert_int_lt(lnt_optim_create(rank->plan, &params, &optim), 0);
        ck_assert_ptr_null(optim);
        ck_assert_msg(strstr(lnt_last_error()->cause, bad[i].text) != NULL ||
                          strstr(lnt_last_error()->cure, bad[i].text) != NULL,
                      "%s: %s", bad[i].options, lnt_last_error()->cause);
    }
}

static void expect_values_refused(rank_t *rank, const lnt_group_t *group)
{
    static const struct {
        double lr, eps, weight_decay;
    } bad[] = {{NAN, 1e-8, 0}, {1e39, 1e-8, 0}, {-1e39, 1e-8, 0}, {0.1, 0, 0},     {0.1, -1e-8, 0},  {0.1, 1e-60, 0},
               {0.1, 1e39, 0}, {0.1, NAN, 0},   {0, 1e-8, NAN},   {0, 1e-8, 1e39}, {1e30, 1e-8, 1e9}};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) { /* of the last only the product does not fit */
        lnt_group_t values = *group;
        values.lr = bad[i].lr;
        values.eps = bad[i].eps;
        values.weight_decay = bad[i].weight_decay;
        ck_assert_int_eq(lnt_optim_set_group(rank->optim, 0, &values), LNT_ERR_INVALID_ARG);
    }
}

static void options_body(rank_t *rank)
{
    trial_t *trial = rank->arg;
    lnt_group_t group;

    ranks_ok(rank_plan(rank, &trial->model));
    expect_options_refused(rank);
    ranks_ok(rank_optim(rank)); /* the failures left nothing behind */
    ck_assert_int_eq(lnt_plan_destroy(rank->plan), LNT_ERR_INVALID_USAGE);
    ranks_ok(lnt_plan_commit(rank->plan));
    ranks_ok(lnt_optim_get_group(rank->optim, 0, &group));
    expect_values_refused(rank, &group);
    group.lr = 0.5;
    group.non_freeze = true;
    ck_assert_int_eq(lnt_optim_set_group(rank->optim, 0, &group), LNT_ERR_INVALID_ARG);
    group.non_freeze = false;
    ranks_ok(lnt_optim_set_group(rank->optim, 0, &group));
    ck_assert_int_eq(lnt_optim_set_group(rank->optim, 1, &group), LNT_ERR_INVALID_ARG);
    ranks_ok(lnt_optim_begin(rank->optim));
    ck_assert_int_eq(lnt_optim_set_group(rank->optim, 0, &group), LNT_ERR_INVALID_USAGE);
    ck_assert_int_eq(lnt_optim_destroy(rank->optim), LNT_ERR_INVALID_USAGE);
    ranks_ok(lnt_optim_end(rank->optim));
    rank_close(rank);
}

START_TEST(bad_options_and_groups_are_named)
{
    const world_t world = {.n_ranks = 2, .nodes = {0, 1}, .quiet = true};
    trial_t trial = make_trial();

    ranks_run(&world, options_body, &trial);
}
END_TEST

int main(void)
{
    enum { N_WORLDS = sizeof(worlds) / sizeof(worlds[0]) };
    Suite *suite = suite_create("optim_behaviour");
    TCase *tcase = tcase_create("behaviour");

    tcase_add_loop_test(tcase, results_do_not_depend_on_sizes_order_or_threads, 0, N_WORLDS);
    tcase_add_loop_test(tcase, missing_gradients_are_zeros, 0, N_WORLDS);
    tcase_add_loop_test(tcase, accumulated_gradients_are_sums, 0, N_WORLDS);
    tcase_add_loop_test(tcase, half_gradients_and_model_copies, 0, 2 * N_WORLDS);
    tcase_add_loop_test(tcase, dead_coordinates_stand_still, 0, N_WORLDS);
    tcase_add_loop_test(tcase, the_freeze_drops_the_residual_and_says_how_much, 0, N_WORLDS);
    tcase_add_test(tcase, one_node_sends_no_signs);
    tcase_add_test(tcase, a_freeze_with_too_many_dead_is_refused_until_they_live);
    tcase_add_test(tcase, a_freeze_of_a_broken_variance_is_refused);
    tcase_add_test(tcase, bad_options_and_groups_are_named);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
