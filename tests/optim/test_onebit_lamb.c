/* 1-bit LAMB against an oracle in f64 in all phases, and the identities of the algorithm: a fresh variance without
 * coding is the true one, constant gradients leave the factor at 1, factors keep their limits, momenta are sent with
 * equal root mean squares, the warm-up is LAMB, and the freeze is no jump.
 */
#include "onebit_lamb_oracle.h"

enum { FREEZE = 12, STEPS = FREEZE + 55 };
static const double TIE = 1e-5; /* f32 is within 4e-6 scales of f64 */

static const ol_variant_t variants[] = {
    {"", 0.01, 10, 0.9, 0.5, 4, 0.1, false, false, false, false, 0},
    {"compression=off,", 0.01, 10, 0.9, 0.5, 4, 0.1, false, true, false, false, 0},
    {"", 0.01, 10, 0.9, 0.5, 4, 0.1, false, false, true, false, 0},
    {"bias_correction=off,", 0.01, 10, 0.9, 0.5, 4, 0.1, true, false, false, false, 0},
    {"max_coeff=0.6,min_coeff=0.3,coeff_beta=0.5,", 0.3, 0.6, 0.5, 0.5, 4, 0.1, false, false, false, false, 0},
    {"factor_max=1.5,factor_min=0.9,factor_threshold=0.3,", 0.01, 10, 0.9, 0.9, 1.5, 0.3, false, false, false, false,
     0},
    {"lane_updates=8,", 0.01, 10, 0.9, 0.5, 4, 0.1, false, false, false, true, 0.02},
    {"lane_updates=8,bias_correction=off,", 0.01, 10, 0.9, 0.5, 4, 0.1, true, false, false, true, 0.02},
    {"lane_updates=8,compression=off,", 0.01, 10, 0.9, 0.5, 4, 0.1, false, true, false, true, 0},
    {"factor_threshold=1,factor_max=100,factor_min=0.01,", 0.01, 10, 0.9, 0.01, 100, 1, false, false, false, false,
     0.8},
};
enum { VARIANTS = sizeof(variants) / sizeof(variants[0]) };

static void draw(onebit_lamb_t *o, const world_t *world, const char *algorithm)
{
    static const uint64_t lengths[] = {64, 1, 20, 130};

    o->trial = exact_draw(world, algorithm, "");
    o->freeze = FREEZE;
    o->block = 64;
    o->late_from = FREEZE + 5;
    o->lane_updates = 8;
    o->trial.n = 0;
    o->trial.model.n_tensors = 4;
    o->trial.groups[1].non_freeze = o->variant->lane_group;
    if (o->variant->decay != 0) {
        o->trial.groups[0].weight_decay = o->variant->decay;
        memset(o->trial.model.group_of, 0, sizeof(o->trial.model.group_of));
    }
    for (uint32_t t = 0; t < 4; t++) {
        o->trial.model.lengths[t] = lengths[t];
        o->trial.model.rows[t] = 0;
        for (uint64_t i = 0; i < lengths[t]; i++)
            o->trial.tensor_of[o->trial.n++] = t;
        o->trial.first[t + 1] = (uint32_t)o->trial.n;
    }
    (void)snprintf(o->trial.options, sizeof(o->trial.options), "%sfreeze_step=%d,block=64,max_dead_share=0.2",
                   o->variant->options, FREEZE);
    exact_settle(&o->trial);
}

/* Draws until no sign is near a tie in the whole run. */
static onebit_lamb_t *draw_clear(const world_t *world, const ol_variant_t *variant)
{
    onebit_lamb_t *o = calloc(1, sizeof(*o));

    o->variant = variant;
    do {
        draw(o, world, "onebit_lamb");
        ol_start(o);
        while (o->step < STEPS)
            ol_step(o);
    } while (o->margin < TIE);
    ol_start(o);
    return o;
}

static void expect_oracle(const rank_t *rank, const onebit_lamb_t *o)
{
    const uint32_t n = o->trial.model.n_tensors;

    exact_compare(&o->trial, "parameters", rank->x, o->x, o->trial.start_squares);
    exact_compare_view(rank, &o->trial, "exp_avg", o->m, o->v);
    exact_compare_view(rank, &o->trial, "exp_avg_sq", o->v, NULL);
    exact_compare_values(rank, "lamb_coeff", o->coeff, n);
    exact_compare_values(rank, "lamb_coeff_freeze", o->average, n);
    exact_compare_values(rank, "lamb_coeff_power", o->power, n);
    if (!o->frozen) return;
    exact_compare_view(rank, &o->trial, "exp_avg_sq_fresh", o->fresh, NULL);
    exact_compare_view(rank, &o->trial, "denominator", o->den, NULL);
    exact_compare_values(rank, "scaling_coeff", o->scaling, n);
    exact_compare_values(rank, "last_factor", o->factor, n);
}

static void body(rank_t *rank)
{
    onebit_lamb_t *o = rank->arg;
    float *grad;

    rank_open(rank, &o->trial.model);
    grad = calloc(rank->n_elems, sizeof(*grad));
    for (uint32_t step = 0; step < STEPS; step++) {
        ol_grad(o, rank->rank, step, grad);
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
        ranks_barrier();
        if (rank->rank == 0) ol_step(o);
        expect_equal_ranks(rank);
        expect_oracle(rank, o);
        ranks_barrier();
    }
    ck_assert_int_eq(rank_info(rank).phase, o->variant->twin ? LNT_PHASE_FROZEN : LNT_PHASE_COMPRESSED);
    free(grad);
    rank_close(rank);
}

START_TEST(onebit_lamb_follows_the_formulas)
{
    onebit_lamb_t *o = draw_clear(&exact_worlds[_i % EXACT_WORLDS], &variants[_i / EXACT_WORLDS]);

    ranks_run(&o->trial.world, body, o);
    free(o);
}
END_TEST

/* ---- identities ---- */

/* With the momentum exchanged exactly, the gradient that it gives away is the mean gradient. */
static void fresh_body(rank_t *rank)
{
    onebit_lamb_t *o = rank->arg;
    float *grad = calloc(o->trial.n, sizeof(*grad));
    double *truth = calloc(o->trial.n, sizeof(*truth));

    rank_open(rank, &o->trial.model);
    for (uint32_t step = 0; step < STEPS; step++) {
        ol_grad(o, rank->rank, step, grad);
        for (uint64_t i = 0; i < o->trial.n; i++) {
            double b2 = exact_group(&o->trial, o->trial.tensor_of[i])->beta2, g = exact_mean(&o->trial, step, i);
            truth[i] = ol_silent(o, step, i) ? -1 : b2 * truth[i] + (1 - b2) * g * g;
        }
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
    }
    for (uint32_t t = 0; t < 4; t++) {
        const float *fresh = lnt_optim_view(rank->optim, "exp_avg_sq_fresh", t);
        for (uint64_t i = o->trial.first[t]; i < o->trial.first[t + 1] && o->trial.model.lengths[t] >= 64; i++)
            ck_assert_double_le(fabs((double)fresh[i - o->trial.first[t]] - truth[i]), 1e-4 * fabs(truth[i]));
    }
    free(grad);
    free(truth);
    rank_close(rank);
}

START_TEST(without_coding_the_fresh_variance_is_the_true_one)
{
    onebit_lamb_t *o = calloc(1, sizeof(*o));

    o->variant = &variants[1];
    draw(o, &exact_worlds[_i], "onebit_lamb");
    ranks_run(&o->trial.world, fresh_body, o);
    free(o);
}
END_TEST

static void constant_body(rank_t *rank)
{
    onebit_lamb_t *o = rank->arg;
    float *grad = calloc(o->trial.n, sizeof(*grad));

    rank_open(rank, &o->trial.model);
    ol_grad(o, 0, 0, grad);
    for (uint64_t i = 0; i < o->trial.n; i++)
        grad[i] += grad[i] >= 0 ? 0x1p-8f : -0x1p-8f; /* away from eps */
    for (uint32_t step = 0; step < STEPS; step++)
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
    for (uint32_t t = 0; t < 4; t++) {
        const double *average = lnt_optim_values(rank->optim, "lamb_coeff_freeze", NULL);
        const double *power = lnt_optim_values(rank->optim, "lamb_coeff_power", NULL);
        if (o->trial.model.lengths[t] < 64) continue;
        ck_assert_double_le(fabs(lnt_optim_values(rank->optim, "last_factor", NULL)[t] - 1), 2e-4);
        ck_assert_double_le(
            fabs(lnt_optim_values(rank->optim, "lamb_coeff", NULL)[t] / (average[t] / (1 - power[t])) - 1), 2e-4);
    }
    free(grad);
    rank_close(rank);
}

START_TEST(constant_gradients_leave_the_factor_at_one)
{
    onebit_lamb_t *o = calloc(1, sizeof(*o));

    o->variant = &variants[1];
    draw(o, &exact_worlds[_i], "onebit_lamb");
    o->trial.groups[0].weight_decay = 0;
    ranks_run(&o->trial.world, constant_body, o);
    free(o);
}
END_TEST

/* Limits of factors at every step, equal root mean squares of what is sent at the first. */
static void limits_body(rank_t *rank)
{
    onebit_lamb_t *o = rank->arg;
    float *grad = calloc(o->trial.n, sizeof(*grad));
    double last[4] = {1, 1, 1, 1}, rms[4];

    rank_open(rank, &o->trial.model);
    for (uint32_t step = 0; step < STEPS; step++) {
        ol_grad(o, rank->rank, step, grad);
        for (uint64_t i = 0; i < o->trial.n && step > FREEZE + 20; i++)
            grad[i] *= 16; /* the fresh variance runs away from the frozen one */
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
        if (step + 1 < FREEZE) continue;
        for (uint32_t t = 0; t < 4; t++) {
            double f = lnt_optim_values(rank->optim, "last_factor", NULL)[t];
            ck_assert(f >= 0.5 && f <= 4);
            ck_assert(f >= 0.9 * last[t] && f <= 1.1 * last[t]);
            last[t] = f;
            rms[t] = 0;
            for (uint64_t i = 0; i < o->trial.model.lengths[t]; i++)
                rms[t] += pow((double)((const float *)lnt_optim_view(rank->optim, "exp_avg", t))[i], 2);
            rms[t] = sqrt(rms[t] / (double)o->trial.model.lengths[t]) *
                     lnt_optim_values(rank->optim, "scaling_coeff", NULL)[t];
        }
        if (step + 1 == FREEZE) ck_assert_double_le(fabs(rms[0] / rms[3] - 1), 1e-12);
    }
    ck_assert_double_lt(last[0], 0.6);
    free(grad);
    rank_close(rank);
}

START_TEST(factors_keep_their_limits_and_momenta_are_sent_alike)
{
    onebit_lamb_t *o = calloc(1, sizeof(*o));

    o->variant = &variants[0];
    draw(o, &exact_worlds[_i], "onebit_lamb");
    ranks_run(&o->trial.world, limits_body, o);
    free(o);
}
END_TEST

/* ---- the warm-up is LAMB, the freeze no jump ---- */

typedef struct record {
    exact_trial_t trial;
    uint32_t steps;
    float x[STEPS + 1][OL_ROOM];
} record_t;

static void record_body(rank_t *rank)
{
    record_t *record = rank->arg;
    float *grad = calloc(record->trial.n, sizeof(*grad));

    rank_open(rank, &record->trial.model);
    for (uint32_t step = 0; step <= record->steps; step++) {
        if (rank->rank == 0) memcpy(record->x[step], rank->x, record->trial.n * sizeof(float));
        if (step < record->steps) exact_step(rank, &record->trial, step, grad);
    }
    free(grad);
    rank_close(rank);
}

START_TEST(the_warmup_is_lamb_with_the_same_limits)
{
    static record_t here, there;

    here.trial = exact_draw(&exact_worlds[_i], "onebit_lamb", "max_coeff=0.4,min_coeff=0.02,block=64,freeze_step=12");
    here.steps = FREEZE;
    there = here;
    there.trial.model.algorithm = "lamb";
    (void)snprintf(there.trial.options, sizeof(there.trial.options), "max_coeff=0.4,min_coeff=0.02,block=64");
    exact_settle(&here.trial);
    exact_settle(&there.trial);
    ranks_run(&here.trial.world, record_body, &here);
    ranks_run(&there.trial.world, record_body, &there);
    for (uint32_t step = 0; step <= FREEZE; step++)
        ck_assert_mem_eq(here.x[step], there.x[step], here.trial.n * sizeof(float));
}
END_TEST

static double moved(const record_t *record, uint32_t t, uint32_t step)
{
    double sum = 0;

    for (uint32_t i = record->trial.first[t]; i < record->trial.first[t + 1]; i++)
        sum += pow((double)record->x[step + 1][i] - (double)record->x[step][i], 2);
    return sqrt(sum);
}

/* Early freezes would show a ratio that starts at 0 and moments that are not corrected alike. The step after the freeze
 * is as large as the one before up to what a new gradient changes: a fifth. Signs give all elements of a block one
 * magnitude, which changes the norm of the step too. */
START_TEST(the_freeze_is_no_jump)
{
    static const char *const options[] = {"freeze_step=6,block=64,compression=off", "freeze_step=6,block=64"};
    static const double limits[] = {1.2, 2.0};
    static record_t record;

    record.trial = exact_draw(&exact_worlds[1 + _i / 2], "onebit_lamb", options[_i % 2]);
    record.steps = 9;
    exact_settle(&record.trial);
    ranks_run(&record.trial.world, record_body, &record);
    for (uint32_t t = 0; t < record.trial.model.n_tensors; t++) {
        double change = record.trial.model.lengths[t] >= 64 ? moved(&record, t, 6) / moved(&record, t, 5) : 1;
        ck_assert_msg(change < limits[_i % 2] && change > 1 / limits[_i % 2], "tensor %u: step times %g", t, change);
    }
}
END_TEST

/* A tensor whose momentum is exactly zero divides by zero in the published implementation. */
static void silent_body(rank_t *rank)
{
    onebit_lamb_t *o = rank->arg;
    float *grad = calloc(o->trial.n, sizeof(*grad)), *start = calloc(o->trial.n, sizeof(*start));

    rank_open(rank, &o->trial.model);
    memcpy(start, rank->x, o->trial.n * sizeof(float));
    for (uint32_t step = 0; step < FREEZE + 10; step++) {
        ol_grad(o, rank->rank, step, grad);
        memset(grad, 0, 64 * sizeof(*grad)); /* tensor 0 */
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
        expect_equal_ranks(rank);
    }
    ck_assert_double_eq(lnt_optim_values(rank->optim, "scaling_coeff", NULL)[0], 1);
    ck_assert_mem_eq(start, rank->x, 64 * sizeof(float));
    for (uint64_t i = 0; i < o->trial.n; i++)
        ck_assert(isfinite(rank->x[i]));
    free(grad);
    free(start);
    rank_close(rank);
}

START_TEST(a_tensor_without_momentum_has_coefficient_one)
{
    onebit_lamb_t *o = calloc(1, sizeof(*o));

    o->variant = &variants[0];
    draw(o, &exact_worlds[_i], "onebit_lamb");
    o->trial.groups[0].weight_decay = 0;
    (void)snprintf(o->trial.options, sizeof(o->trial.options), "freeze_step=%d,block=64,max_dead_share=1", FREEZE);
    ranks_run(&o->trial.world, silent_body, o);
    free(o);
}
END_TEST

/* What the user masks in a tensor of the lane stands still, in neither norm. */
static void masked_body(rank_t *rank)
{
    onebit_lamb_t *o = rank->arg;
    float *grad = calloc(o->trial.n, sizeof(*grad)), before[20];
    const uint8_t mask[20] = {[3] = 1, [4] = 1, [5] = 1, [6] = 1, [19] = 1};
    const uint32_t at = o->trial.first[2];

    rank_open(rank, &o->trial.model);
    ranks_ok(lnt_optim_set_mask(rank->optim, 2, mask));
    for (uint32_t step = 0; step < FREEZE + 8; step++) {
        double moved = 0, norm = 0;
        memcpy(before, rank->x + at, sizeof(before));
        exact_step(rank, &o->trial, step, grad);
        if (step < FREEZE) continue;
        for (int i = 0; i < 20; i++) {
            if (mask[i] == 0) ck_assert_mem_eq(&before[i], &rank->x[at + i], sizeof(float));
            moved += pow((double)rank->x[at + i] - (double)before[i], 2);
            norm += mask[i] != 0 ? pow((double)before[i], 2) : 0;
        }
        ck_assert_double_le(fabs(sqrt(moved) / sqrt(norm) / exact_group(&o->trial, 2)->lr - 1), 1e-3);
    }
    free(grad);
    rank_close(rank);
}

START_TEST(masked_coordinates_of_the_lane_count_for_nothing)
{
    static const ol_variant_t unlimited = {.options = "max_coeff=0,min_coeff=0,"};
    onebit_lamb_t *o = calloc(1, sizeof(*o));

    o->variant = &unlimited;
    draw(o, &exact_worlds[_i], "onebit_lamb");
    ranks_run(&o->trial.world, masked_body, o);
    free(o);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("onebit_lamb");
    TCase *tcase = tcase_create("onebit_lamb");

    tcase_add_loop_test(tcase, onebit_lamb_follows_the_formulas, 0, VARIANTS * EXACT_WORLDS);
    tcase_add_loop_test(tcase, without_coding_the_fresh_variance_is_the_true_one, 0, EXACT_WORLDS);
    tcase_add_loop_test(tcase, constant_gradients_leave_the_factor_at_one, 0, EXACT_WORLDS);
    tcase_add_loop_test(tcase, factors_keep_their_limits_and_momenta_are_sent_alike, 0, EXACT_WORLDS);
    tcase_add_loop_test(tcase, the_warmup_is_lamb_with_the_same_limits, 0, EXACT_WORLDS);
    tcase_add_loop_test(tcase, the_freeze_is_no_jump, 0, 6);
    tcase_add_loop_test(tcase, a_tensor_without_momentum_has_coefficient_one, 0, EXACT_WORLDS);
    tcase_add_loop_test(tcase, masked_coordinates_of_the_lane_count_for_nothing, 0, EXACT_WORLDS);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
