/* compat=deepspeed: the quirks of the published implementation that define a trajectory are there, one by one, with
 * figures from formulas; state in every phase. Units and pads are in test_compat_units.c; whole trajectories are
 * replayed in tests/golden.
 */
#include <math.h>

#include "../../optim/optim_impl.h"
#include "compat_steps.h"

enum { RANKS = 2 };

static const world_t one = {.n_ranks = 1}, two = {.n_ranks = RANKS, .nodes = {0, 1}, .quiet = true};

static double half_gradient(uint32_t rank, uint64_t step, uint64_t i)
{
    return i % 2 == 0 ? equal_gradient(rank, step, i) : 0;
}

static float *view_of(const rank_t *rank, const char *name)
{
    float *flat = calloc(rank->n_elems, sizeof(*flat));

    rank_view(rank, name, sizeof(*flat), flat);
    return flat;
}

static float *copy_of(const float *values, uint64_t n)
{
    float *copy = calloc(n, sizeof(*copy));

    memcpy(copy, values, n * sizeof(*copy));
    return copy;
}

/* ---- what docs/howto_migrate_from_deepspeed.md tells to write ---- */

static void check_howto(rank_t *rank)
{
    model_t model = {.n_tensors = 1, .lengths = {100}, .dtype = LNT_F16, .algorithm = "onebit_adam"};
    lnt_optim_option_t option;
    size_t i = 0;

    model.options = "freeze_step=22999,clip=1,loss_scale=0,warmup_codec=int8";
    rank_open(rank, &model);
    ck_assert(lnt_optim_loss_scale(rank->optim) == 65536);
    rank_close(rank);
    while (lnt_optim_option_get("onebit_adam/deepspeed", i, &option) == LNT_OK && strcmp(option.name, "unit") != 0)
        i++;
    ck_assert_str_eq(option.name, "unit");
    model.options = "compat=deepspeed,unit=none";
    ranks_ok(rank_plan(rank, &model));
    ck_assert_int_eq(rank_optim(rank), LNT_ERR_INVALID_ARG);
    model.options = "unit=tensor"; /* an option of the compat row alone */
    ck_assert_int_eq(rank_optim(rank), LNT_ERR_INVALID_ARG);
    ranks_ok(lnt_plan_destroy(rank->plan));
    free(rank->x);
    free(rank->x16);
}

START_TEST(the_howto_can_be_followed)
{
    static const world_t quiet = {.n_ranks = 1, .quiet = true};

    ranks_run(&quiet, check_howto, NULL);
}
END_TEST

/* ---- the choice of the row ---- */

/* The option `unit` tells the rows apart: the default one has none. */
static void check_choice(rank_t *rank)
{
    static const struct {
        const char *options;
        bool compat;
    } cases[] = {{"compat=deepspeed", true},
                 {" compat = deepspeed ", true},
                 {"\tcompat\t=\tdeepspeed\t", true},
                 {"freeze_step=9 , COMPAT= DeepSpeed", true},
                 {"compat=off,compat=deepspeed", true},
                 {"compat=deepspeed,compat=off", false},
                 {"compat = deepspeed , compat = off", false},
                 {"compat=off", false},
                 {"", false}};
    char options[128];
    model_t model = {.n_tensors = 1, .lengths = {100}, .algorithm = "onebit_adam"};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ranks_ok(rank_plan(rank, &model));
        model.options = cases[i].options;
        ranks_ok(rank_optim(rank));
        ck_assert_str_eq(rank->optim->row->name, cases[i].compat ? "onebit_adam/deepspeed" : "onebit_adam");
        rank_close(rank);
        (void)snprintf(options, sizeof(options), "%s%sunit=group", cases[i].options, i + 1 != 9 ? "," : "");
        model.options = options;
        ranks_ok(rank_plan(rank, &model));
        ck_assert_int_eq(rank_optim(rank), cases[i].compat ? LNT_OK : LNT_ERR_INVALID_ARG);
        rank_close(rank);
    }
    model.options = "compat=nothing";
    ranks_ok(rank_plan(rank, &model));
    ck_assert_int_eq(rank_optim(rank), LNT_ERR_CONFIG);
    rank_close(rank);
}

START_TEST(the_options_as_they_are_parsed_choose_the_row)
{
    static const world_t quiet = {.n_ranks = 1, .quiet = true};

    ranks_run(&quiet, check_choice, NULL);
}
END_TEST

/* ---- the dry run, and no bias correction ---- */

static void check_first_steps(rank_t *rank)
{
    const double g = equal_gradient(0, 0, 0), m = 0.1 * g, v = 0.001 * g * g;
    float *x;

    rank_open(rank, rank->arg);
    x = copy_of(rank->x, rank->n_elems);
    take_steps(rank, equal_gradient, 0, 1);
    ck_assert_mem_eq(x, rank->x, rank->n_elems * sizeof(*x));
    ck_assert(((const float *)lnt_optim_view(rank->optim, "exp_avg", 0))[0] == 0);
    ck_assert_uint_eq(rank_info(rank).step, 1);
    take_steps(rank, equal_gradient, 1, 2);
    ck_assert_double_eq_tol(((const float *)lnt_optim_view(rank->optim, "exp_avg", 0))[0], m, 1e-7);
    if (strcmp(rank->model->algorithm, "onebit_lamb") != 0) {
        ck_assert_double_eq_tol(rank->x[0] - x[0], -1e-3 * m / (sqrt(v) + 1e-8), 1e-6);
    }
    free(x);
    rank_close(rank);
}

START_TEST(the_first_step_counts_and_nothing_else)
{
    static const char *const algorithms[] = {"onebit_adam", "onebit_lamb", "zero_one_adam"};

    for (size_t i = 0; i < 3; i++) {
        const model_t model = {
            .n_tensors = 2, .lengths = {65, 7}, .algorithm = algorithms[i], .options = "compat=deepspeed"};
        ranks_run(&two, check_first_steps, (void *)(uintptr_t)&model);
    }
}
END_TEST

/* ---- coordinates without variance: scale / eps, unless masked ---- */

static void check_runaway(rank_t *rank)
{
    static const model_t model = {
        .n_tensors = 1, .lengths = {64}, .algorithm = "onebit_adam", .options = "compat=deepspeed,freeze_step=3"};
    const bool masked = rank->arg != NULL;
    uint8_t mask[64];
    float *x;

    for (int i = 0; i < 64; i++)
        mask[i] = i % 2 == 0;
    rank_open(rank, &model);
    if (masked) ranks_ok(lnt_optim_set_mask(rank->optim, 0, mask));
    take_steps(rank, half_gradient, 0, 3);
    x = copy_of(rank->x, 64);
    take_steps(rank, half_gradient, 3, 4);
    for (int i = 1; i < 64; i += 2) {
        const float m = ((const float *)lnt_optim_view(rank->optim, "exp_avg", 0))[i];
        ck_assert(masked ? m == 0 && rank->x[i] == x[i] : fabs((double)rank->x[i] - (double)x[i]) > 100);
        if (!masked) ck_assert_double_eq_tol((double)rank->x[i] - x[i], -1e-3 * m / 1e-8, 1e-4 * fabs(m) * 1e5);
    }
    free(x);
    rank_close(rank);
}

START_TEST(elements_without_variance_move_by_the_scale_over_eps)
{
    static int yes;

    ranks_run(&two, check_runaway, NULL);
    ranks_run(&two, check_runaway, &yes);
}
END_TEST

/* ---- masks ---- */

/* A mask on both ranks is saved, dropped on one rank, and loaded again: all is well. Then one rank alone has none. */
static void check_masks(rank_t *rank)
{
    uint8_t mask[65];
    uint64_t bytes;
    void *blob;

    rank_open(rank, rank->arg);
    memset(mask, 1, sizeof(mask));
    mask[3] = 0;
    ranks_ok(lnt_optim_set_mask(rank->optim, 0, mask));
    take_steps(rank, plain_gradient, 0, 2);
    ranks_ok(lnt_optim_state_size(rank->optim, &bytes));
    blob = calloc(1, bytes);
    ranks_ok(lnt_optim_state_export(rank->optim, blob, bytes));
    if (rank->rank == 0) ranks_ok(lnt_optim_set_mask(rank->optim, 0, NULL));
    ranks_ok(lnt_optim_state_import(rank->optim, blob, bytes));
    take_steps(rank, plain_gradient, 2, 3);
    if (rank->rank == 0) ranks_ok(lnt_optim_set_mask(rank->optim, 0, NULL));
    ck_assert_int_eq(lnt_optim_step(rank->optim, rank_grads(rank, rank->x)), LNT_ERR_MISMATCH);
    free(blob);
    rank_close(rank);
}

START_TEST(masks_that_differ_between_ranks_are_a_mismatch)
{
    static const char *const algorithms[] = {"onebit_adam", "onebit_lamb", "zero_one_adam"};

    for (size_t i = 0; i < 3; i++) {
        model_t model = {.n_tensors = 2, .lengths = {65, 7}, .algorithm = algorithms[i], .options = "compat=deepspeed"};
        ranks_run(&two, check_masks, &model);
    }
}
END_TEST

/* ---- 0/1 Adam: one rank, the leak of decay, parameters that drift ---- */

static void check_one_rank(rank_t *rank)
{
    static const model_t model = {.n_tensors = 1,
                                  .lengths = {40},
                                  .algorithm = "zero_one_adam",
                                  .options = "compat=deepspeed,var_freeze_step=20,var_update_scaler=1"};
    float *m;

    rank_open(rank, &model);
    take_steps(rank, plain_gradient, 0, 2); /* the interval is 2 from here on: the third is no variance step */
    m = view_of(rank, "exp_avg");
    take_steps(rank, plain_gradient, 2, 3);
    ck_assert_mem_eq(m, lnt_optim_view(rank->optim, "exp_avg", 0), 40 * sizeof(*m));
    free(m);
    rank_close(rank);
}

START_TEST(one_rank_skips_the_momentum_too)
{
    ranks_run(&one, check_one_rank, NULL);
}
END_TEST

static void check_leak(rank_t *rank)
{
    static const lnt_group_t group = {
        .struct_size = sizeof(group), .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.05};
    static const model_t model = {.n_tensors = 1,
                                  .lengths = {40},
                                  .algorithm = "zero_one_adam",
                                  .options = "compat=deepspeed,var_freeze_step=4",
                                  .groups = &group,
                                  .n_groups = 1,
                                  .start_seed = 5};
    float *m, *v, *x;

    rank_open(rank, &model);
    take_steps(rank, plain_gradient, 0, 5);
    m = view_of(rank, "exp_avg");
    v = view_of(rank, "exp_avg_sq");
    x = copy_of(rank->x, rank->n_elems);
    take_steps(rank, plain_gradient, 5, 6); /* a window of one step, and its sync */
    for (uint64_t i = 0; i < rank->n_elems; i++) {
        const double own = 0.9 * m[i] + 0.1 * (float)plain_gradient(0, 5, i), leak = 0.05 * x[i] * (sqrt(v[i]) + 1e-8);
        const double got = ((const float *)lnt_optim_view(rank->optim, "exp_avg", 0))[i];
        ck_assert_double_eq_tol(got, own + leak, 1e-6 + 1e-5 * fabs(own));
    }
    free(m);
    free(v);
    free(x);
    rank_close(rank);
}

START_TEST(decay_leaks_into_the_momentum)
{
    ranks_run(&one, check_leak, NULL);
}
END_TEST

static double drift_of(const float *a, const float *b, uint64_t n)
{
    double most = 0;

    for (uint64_t i = 0; i < n; i++)
        most = fabs((double)a[i] - (double)b[i]) > most ? fabs((double)a[i] - (double)b[i]) : most;
    return most;
}

static const float *shared_x[RANKS];

static void check_drift(rank_t *rank)
{
    static const model_t model = {.n_tensors = 1,
                                  .lengths = {500},
                                  .algorithm = "zero_one_adam",
                                  .options = "compat=deepspeed,var_freeze_step=8,local_step_scaler=4",
                                  .start_seed = 5};

    rank_open(rank, &model);
    shared_x[rank->rank] = rank->x;
    take_steps(rank, plain_gradient, 0, 9);
    ranks_barrier();
    ck_assert(drift_of(shared_x[0], shared_x[1], 500) == 0);
    ranks_barrier();
    take_steps(rank, plain_gradient, 9, 48); /* 48 is a multiple of the interval, 16: a sync */
    ranks_barrier();
    ck_assert(drift_of(shared_x[0], shared_x[1], 500) > 0);
    ck_assert(drift_of(shared_x[0], shared_x[1], 500) < 1e-5);
    expect_equal_ranks(rank); /* all the rest */
    rank_close(rank);
}

START_TEST(parameters_restored_by_subtraction_drift)
{
    ranks_run(&two, check_drift, NULL);
}
END_TEST

/* ---- state ---- */

typedef struct resume {
    model_t model;
    uint64_t at, end;
} resume_t;

static void check_resume(rank_t *rank)
{
    const resume_t *resume = rank->arg;
    rank_t other = *rank;
    uint64_t bytes;
    void *blob;

    rank_open(rank, &resume->model);
    take_steps(rank, plain_gradient, 0, resume->at);
    ranks_ok(lnt_optim_state_size(rank->optim, &bytes));
    blob = calloc(1, bytes);
    ranks_ok(lnt_optim_state_export(rank->optim, blob, bytes));
    rank_open(&other, &resume->model);
    ck_assert_int_eq(lnt_optim_state_import_world(other.optim, NULL, NULL, 0), LNT_ERR_UNSUPPORTED);
    ranks_ok(lnt_optim_state_import(other.optim, blob, bytes));
    take_steps(rank, plain_gradient, resume->at, resume->end);
    take_steps(&other, plain_gradient, resume->at, resume->end);
    ck_assert_mem_eq(rank->x, other.x, rank->n_elems * sizeof(*rank->x));
    ck_assert_uint_eq(lnt_optim_hash(rank->optim), lnt_optim_hash(other.optim));
    ck_assert_uint_eq(rank_error_hash(rank), rank_error_hash(&other));
    free(blob);
    rank_close(&other);
    rank_close(rank);
}

START_TEST(a_resumed_run_is_the_same_in_every_phase)
{
    static const char *const options[][2] = {
        {"onebit_adam", "compat=deepspeed,freeze_step=4"},
        {"onebit_adam", "compat=deepspeed,freeze_step=4,unit=group"},
        {"onebit_lamb", "compat=deepspeed,freeze_step=4"},
        {"zero_one_adam", "compat=deepspeed,var_freeze_step=4,local_step_scaler=2,local_step_clipper=4"}};

    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        for (uint64_t at = 1; at < 12; at += 2) {
            resume_t resume = {{.n_tensors = 3,
                                .lengths = {130, 1, 77},
                                .algorithm = options[i][0],
                                .options = options[i][1],
                                .start_seed = 3},
                               at,
                               18};
            ranks_run(&two, check_resume, &resume);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("compat");
    TCase *tcase = tcase_create("compat");

    tcase_add_test(tcase, the_howto_can_be_followed);
    tcase_add_test(tcase, the_options_as_they_are_parsed_choose_the_row);
    tcase_add_test(tcase, the_first_step_counts_and_nothing_else);
    tcase_add_test(tcase, elements_without_variance_move_by_the_scale_over_eps);
    tcase_add_test(tcase, masks_that_differ_between_ranks_are_a_mismatch);
    tcase_add_test(tcase, one_rank_skips_the_momentum_too);
    tcase_add_test(tcase, decay_leaks_into_the_momentum);
    tcase_add_test(tcase, parameters_restored_by_subtraction_drift);
    tcase_add_test(tcase, a_resumed_run_is_the_same_in_every_phase);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
