/* Dynamic loss scaling: the scale follows the rules of the options, the same on all ranks, whichever rank overflows; it
 * stops at its minimum with a diagnosis; it is saved; and small f16 gradients learn with it.
 */
#include <math.h>

#include "ranks.h"

enum { LENGTH = 200, STEPS = 120 };

typedef enum event { CLEAN, OVERFLOW, VETO } event_t;

typedef struct rules {
    uint32_t power, window, hysteresis;
    bool consecutive;
    double minimum;
} rules_t;

/* An independent account of the rules: counts iterations and remembers the last overflow, as DeepSpeed's users know
 * them. */
typedef struct account {
    double scale;
    uint32_t left;
    int64_t iteration, last_overflow;
} account_t;

static account_t new_account(const rules_t *rules)
{
    return (account_t){pow(2.0, rules->power), rules->hysteresis, 0, -1};
}

/* True: the run has diverged. */
static bool book(account_t *account, const rules_t *rules, bool overflow)
{
    bool diverged = false;

    if (overflow) {
        if (account->left != 1) {
            account->left--;
        } else if (account->scale == rules->minimum) {
            diverged = true;
        } else {
            account->scale = fmax(account->scale / 2, rules->minimum);
        }
        account->last_overflow = account->iteration;
    } else {
        bool grown = (account->iteration - account->last_overflow) % rules->window == 0;
        if (rules->consecutive || grown) account->left = rules->hysteresis;
        if (grown) account->scale *= 2;
    }
    account->iteration++;
    return diverged;
}

typedef struct trial {
    model_t model;
    rules_t rules;
    uint64_t seed;
    char options[256];
    uint32_t save_at;
    double scales[STEPS];
} trial_t;

static event_t event_at(const trial_t *trial, uint32_t step)
{
    double draw = unit_at(trial->seed, step / 3 * 3 + (step % 3 == 0)); /* overflows like company */

    return draw < 0.35 ? OVERFLOW : draw < 0.4 ? VETO : CLEAN;
}

static void fill(const trial_t *trial, const rank_t *rank, uint32_t step, float *grad)
{
    const uint32_t victim = (uint32_t)(test_mix_pair(trial->seed, step) % rank->world->n_ranks);

    for (uint64_t i = 0; i < LENGTH; i++) {
        grad[i] = (float)(normal_at(test_mix_pair(trial->seed, step * 64u + rank->rank), i) *
                          lnt_optim_loss_scale(rank->optim));
    }
    if (event_at(trial, step) == OVERFLOW && rank->rank == victim) grad[step % LENGTH] = INFINITY;
}

static lnt_status_t one_step(rank_t *rank, const trial_t *trial, uint32_t step)
{
    float grad[LENGTH];

    fill(trial, rank, step, grad);
    ranks_ok(lnt_optim_begin(rank->optim));
    if (event_at(trial, step) == VETO && rank->rank == 0) ranks_ok(lnt_optim_veto(rank->optim));
    ranks_ok(lnt_optim_tensor_ready(rank->optim, 0, grad, NULL));
    return lnt_optim_end(rank->optim);
}

static void walk_body(rank_t *rank)
{
    trial_t *trial = rank->arg;
    account_t account = new_account(&trial->rules);

    rank_open(rank, &trial->model);
    for (uint32_t step = 0; step < STEPS; step++) {
        uint64_t hash = lnt_optim_hash(rank->optim);
        event_t event = event_at(trial, step);
        bool diverged = event != VETO && book(&account, &trial->rules, event == OVERFLOW);
        lnt_status_t expected = diverged            ? LNT_ERR_DIVERGED
                                : event == OVERFLOW ? LNT_SKIPPED_NONFINITE
                                : event == VETO     ? LNT_SKIPPED_VETO
                                                    : LNT_OK;
        ck_assert_int_eq(one_step(rank, trial, step), expected);
        ck_assert_double_eq(lnt_optim_loss_scale(rank->optim), account.scale);
        if (event != CLEAN) ck_assert_uint_eq(lnt_optim_hash(rank->optim), hash); /* the scale is no part of it */
        expect_equal_ranks(rank);
    }
    rank_close(rank);
}

static trial_t draw_trial(void)
{
    static const double minima[] = {1, 0.5, 3, 64};
    trial_t trial = {.seed = test_random(),
                     .rules = {.power = (uint32_t)(6 + test_random_below(6)),
                               .window = (uint32_t)(1 + test_random_below(6)),
                               .hysteresis = (uint32_t)(1 + test_random_below(4)),
                               .consecutive = test_random_below(2) != 0,
                               .minimum = minima[test_random_below(4)]}};

    (void)snprintf(trial.options, sizeof(trial.options),
                   "loss_scale=0,initial_scale_power=%u,loss_scale_window=%u,hysteresis=%u,consecutive_hysteresis=%s,"
                   "min_loss_scale=%g",
                   trial.rules.power, trial.rules.window, trial.rules.hysteresis,
                   trial.rules.consecutive ? "on" : "off", trial.rules.minimum);
    trial.model = (model_t){.n_tensors = 1, .lengths = {LENGTH}, .algorithm = "adamw", .max_skips = 100000};
    return trial;
}

START_TEST(the_scale_follows_the_rules)
{
    static const world_t worlds[] = {{.n_ranks = 1, .quiet = true},
                                     {.n_ranks = 2, .nodes = {0, 1}, .quiet = true},
                                     {.n_ranks = 4, .nodes = {0, 1, 0, 1}, .quiet = true}};

    for (int k = 0; k < 12; k++) {
        trial_t trial = draw_trial();
        trial.model.options = trial.options;
        ranks_run(&worlds[k % 3], walk_body, &trial);
    }
}
END_TEST

/* ---- the minimum ---- */

static void minimum_body(rank_t *rank)
{
    trial_t *trial = rank->arg;
    static const float zeros[LENGTH];
    float bad[LENGTH] = {0};
    const void *grads[2] = {zeros, rank->rank == 1 ? bad : zeros};

    bad[7] = NAN;
    rank_open(rank, &trial->model);
    ranks_ok(lnt_optim_step(rank->optim, grads) == LNT_SKIPPED_NONFINITE ? LNT_OK : LNT_ERR_INTERNAL);
    for (double scale = 0x1p24; scale > 1; scale /= 2) { /* more skips in a row than max_skips */
        ck_assert_double_eq(lnt_optim_loss_scale(rank->optim), scale);
        ck_assert_int_eq(lnt_optim_step(rank->optim, grads), LNT_SKIPPED_NONFINITE);
    }
    for (int k = 0; k < 3; k++) {
        ck_assert_int_eq(lnt_optim_step(rank->optim, grads), LNT_ERR_DIVERGED);
        ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, "min_loss_scale=1"));
        ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, rank->rank == 1 ? "t1" : "no tensor"));
        if (rank->rank == 1) ck_assert_int_eq(lnt_last_error()->tensor, 1);
        ck_assert_double_eq(lnt_optim_loss_scale(rank->optim), 1);
    }
    ck_assert_uint_eq(rank_info(rank).skipped, 28);
    ck_assert_uint_eq(rank_info(rank).step, 0);
    bad[7] = 0;
    ranks_ok(lnt_optim_step(rank->optim, grads)); /* it may go on */
    rank_close(rank);
}

START_TEST(at_the_minimum_it_stops_with_a_diagnosis)
{
    trial_t trial = {.model = {.n_tensors = 2,
                               .lengths = {LENGTH, LENGTH},
                               .algorithm = "adamw",
                               .options = "loss_scale=0,initial_scale_power=24,hysteresis=2",
                               .max_skips = 5}};

    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, minimum_body, &trial);
}
END_TEST

/* ---- saving ---- */

static void resume_body(rank_t *rank)
{
    trial_t *trial = rank->arg;
    uint64_t bytes, n;
    uint8_t *blob;
    double counters[2];

    rank_open(rank, &trial->model);
    for (uint32_t step = 0; step < trial->save_at; step++)
        (void)one_step(rank, trial, step);
    memcpy(counters, lnt_optim_values(rank->optim, "loss_scaler", &n), sizeof(counters));
    ck_assert_uint_eq(n, 2);
    ranks_ok(lnt_optim_state_size(rank->optim, &bytes));
    blob = malloc(bytes);
    ranks_ok(lnt_optim_state_export(rank->optim, blob, bytes));
    for (uint32_t step = trial->save_at; step < STEPS; step++) {
        (void)one_step(rank, trial, step);
        if (rank->rank == 0) trial->scales[step] = lnt_optim_loss_scale(rank->optim);
    }
    ranks_barrier();
    rank_close(rank);
    rank_open(rank, &trial->model);
    ranks_ok(lnt_optim_state_import(rank->optim, blob, bytes));
    ck_assert_mem_eq(lnt_optim_values(rank->optim, "loss_scaler", NULL), counters, sizeof(counters));
    for (uint32_t step = trial->save_at; step < STEPS; step++) {
        (void)one_step(rank, trial, step);
        ck_assert_double_eq(lnt_optim_loss_scale(rank->optim), trial->scales[step]);
    }
    free(blob);
    rank_close(rank);
}

START_TEST(the_scaler_is_part_of_saved_state)
{
    for (int k = 0; k < 6; k++) {
        trial_t trial = draw_trial();
        trial.model.options = trial.options;
        trial.save_at = (uint32_t)(1 + test_random_below(40));
        ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, resume_body, &trial);
    }
}
END_TEST

/* ---- what it is for ---- */

/* Gradients of 2^-28: in f16 they are zeros. Times the scale they are not. */
static void small_body(rank_t *rank)
{
    trial_t *trial = rank->arg;
    uint16_t grad[LENGTH];

    rank_open(rank, &trial->model);
    for (uint32_t step = 0; step < 5; step++) {
        for (uint64_t i = 0; i < LENGTH; i++)
            grad[i] = half_of(LNT_F16, (float)(0x1p-28 * lnt_optim_loss_scale(rank->optim)));
        ranks_ok(lnt_optim_step(rank->optim, (const void *const[]){grad}));
    }
    for (uint64_t i = 0; i < LENGTH; i++) {
        double start = (double)float_of_half(LNT_F16, half_of(LNT_F16, (float)normal_at(0, i)));
        double moved = start - (double)lnt_plan_master(rank->plan, 0)[i];
        /* lr * g / (|g| + eps) per step, g = 2^-28 (3.7e-9), eps = 1e-8 */
        ck_assert_double_le(fabs(moved - (trial->save_at != 0 ? 5 * 1e-3 * 0x1p-28 / (0x1p-28 + 1e-8) : 0)), 1e-6);
    }
    rank_close(rank);
}

START_TEST(small_f16_gradients_learn_with_it)
{
    trial_t trial = {.model = {.n_tensors = 1, .lengths = {LENGTH}, .algorithm = "adamw", .dtype = LNT_F16}};

    for (trial.save_at = 0; trial.save_at <= 1; trial.save_at++) {
        trial.model.options = trial.save_at ? "loss_scale=0" : "";
        ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}}, small_body, &trial);
    }
}
END_TEST

/* ---- calls ---- */

/* Gradients that are divided by it must stay f32 numbers. */
static void limits_body(rank_t *rank)
{
    static const double refused[] = {1e-320, 0x1p-101, 0x1p101, 1e300};
    trial_t *trial = rank->arg;
    lnt_optim_params_t params = {.struct_size = sizeof(params), .algorithm = "adam", .options = "loss_scale=1e-320"};
    lnt_optim_t *none = NULL;

    ranks_ok(rank_plan(rank, &trial->model));
    ck_assert_int_eq(lnt_optim_create(rank->plan, &params, &none), LNT_ERR_INVALID_ARG);
    ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, "loss_scale"));
    ranks_ok(rank_optim(rank));
    ranks_ok(lnt_plan_commit(rank->plan));
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(lnt_optim_set_scaling(rank->optim, refused[i], 1), LNT_ERR_INVALID_ARG);
        ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, "loss_scale"));
        ck_assert_double_eq(lnt_optim_loss_scale(rank->optim), 1);
    }
    ranks_ok(lnt_optim_set_scaling(rank->optim, 0x1p100, 1));
    ranks_ok(lnt_optim_set_scaling(rank->optim, 0x1p-100, 1));
    rank_close(rank);
}

START_TEST(impossible_scales_are_refused)
{
    trial_t trial = {.model = {.n_tensors = 1, .lengths = {LENGTH}, .algorithm = "adamw"}};

    ranks_run(&(world_t){.n_ranks = 1, .quiet = true}, limits_body, &trial);
}
END_TEST

static void calls_body(rank_t *rank)
{
    trial_t *trial = rank->arg;
    lnt_optim_params_t params = {.struct_size = sizeof(params), .algorithm = "adam"};
    lnt_optim_t *none = NULL;

    trial->model.options = "loss_scale=0";
    ranks_ok(rank_plan(rank, &trial->model));
    params.options = "loss_scale=0,initial_scale_power=2,min_loss_scale=8";
    ck_assert_int_eq(lnt_optim_create(rank->plan, &params, &none), LNT_ERR_INVALID_ARG);
    ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, "min_loss_scale"));
    ranks_ok(rank_optim(rank));
    ranks_ok(lnt_plan_commit(rank->plan));
    ck_assert_double_eq(lnt_optim_loss_scale(rank->optim), 65536);
    ck_assert_int_eq(lnt_optim_set_scaling(rank->optim, 1, 2), LNT_ERR_INVALID_USAGE);
    ck_assert_ptr_nonnull(strstr(lnt_last_error()->cure, "lnt_optim_loss_scale"));
    ranks_ok(lnt_optim_set_scaling(rank->optim, 65536, 2));
    ranks_ok(lnt_optim_set_scaling(rank->optim, 0, 3));
    ck_assert_double_eq(lnt_optim_loss_scale(rank->optim), 65536);
    rank_close(rank);
    trial->model.options = "loss_scale=128";
    rank_open(rank, &trial->model);
    ck_assert_double_eq(lnt_optim_loss_scale(rank->optim), 128);
    ranks_ok(lnt_optim_set_scaling(rank->optim, 256, 1));
    ranks_ok(lnt_optim_set_scaling(rank->optim, 0, 1));
    ck_assert_double_eq(lnt_optim_loss_scale(rank->optim), 256);
    ck_assert_double_eq(lnt_optim_loss_scale(NULL), 1);
    rank_close(rank);
}

START_TEST(fixed_and_dynamic_scales_are_not_mixed_up)
{
    trial_t trial = {.model = {.n_tensors = 1, .lengths = {LENGTH}, .algorithm = "adamw"}};

    ranks_run(&(world_t){.n_ranks = 1, .quiet = true}, calls_body, &trial);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loss_scale");
    TCase *tcase = tcase_create("scale");

    tcase_add_test(tcase, the_scale_follows_the_rules);
    tcase_add_test(tcase, at_the_minimum_it_stops_with_a_diagnosis);
    tcase_add_test(tcase, the_scaler_is_part_of_saved_state);
    tcase_add_test(tcase, small_f16_gradients_learn_with_it);
    tcase_add_test(tcase, impossible_scales_are_refused);
    tcase_add_test(tcase, fixed_and_dynamic_scales_are_not_mixed_up);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
