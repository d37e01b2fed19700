/* When 1-bit Adam freezes and what happens there: the criterion on the variance against f64 formulas, masks, and the
 * switch itself: no jump of the effective step, no step or gradient lost, eps outside the root, one decay in all
 * phases.
 */
#include <math.h>

#include "ranks.h"

enum { LONG = 300, SHORT = 30, N = LONG + SHORT, WINDOW = 20 };

static const world_t worlds[] = {
    {.n_ranks = 1, .quiet = true},
    {.n_ranks = 2, .nodes = {0, 1}, .quiet = true},
    {.n_ranks = 4, .nodes = {0, 0, 1, 1}, .quiet = true},
};
enum { N_WORLDS = sizeof(worlds) / sizeof(worlds[0]) };

typedef struct drill {
    model_t model;
    lnt_group_t group;
    uint64_t seed;
    double threshold;
    uint32_t lr_warmup, limit; /* of the criterion: earliest and latest */
    uint32_t window;           /* option; 0: WINDOW, which is 1 / (1 - beta2) */
    uint32_t frozen_at;        /* result */
    char options[200];
} drill_t;

static drill_t make_drill(void)
{
    drill_t drill = {.model = {.n_tensors = 2,
                               .lengths = {LONG, SHORT},
                               .algorithm = "onebit_adam",
                               .n_groups = 1,
                               .bucket_bytes = 4 * 64 * (1 + test_random_below(6)),
                               .start_seed = test_random()},
                     .seed = test_random()};

    lnt_group_defaults(&drill.group);
    drill.group.lr = 0.01;
    drill.group.beta2 = 0.95;
    return drill;
}

static void open_drill(rank_t *rank, drill_t *drill)
{
    if (rank->rank == 0) { /* the drill belongs to all */
        drill->model.groups = &drill->group;
        drill->model.options = drill->options;
    }
    ranks_barrier();
    rank_open(rank, &drill->model);
}

/* Scales that fall and then stay: v settles. */
static float grad_at(const drill_t *drill, uint32_t rank, uint32_t step, uint64_t i)
{
    double scale = 1 + 3 * exp(-(double)step / 15);

    return (float)(scale * normal_at(test_mix_pair(drill->seed, step * 64u + rank), i));
}

static float mean_at(const drill_t *drill, const rank_t *rank, uint32_t step, uint64_t i)
{
    double sum = 0;

    for (uint32_t r = 0; r < rank->world->n_ranks; r++)
        sum += (double)grad_at(drill, r, step, i);
    return (float)(sum / rank->world->n_ranks);
}

/* What f32 may add to that mean: a rounding for each addition and for the factor, of partial sums that may cancel. */
static double mean_rounding(const drill_t *drill, const rank_t *rank, uint32_t step, uint64_t i)
{
    double size = 0;

    for (uint32_t r = 0; r < rank->world->n_ranks; r++)
        size += fabs((double)grad_at(drill, r, step, i));
    return (rank->world->n_ranks + 1) * ldexp(size, -24) / rank->world->n_ranks;
}

static lnt_status_t one_step(rank_t *rank, const drill_t *drill, uint32_t step)
{
    float grad[N];

    for (uint64_t i = 0; i < N; i++)
        grad[i] = grad_at(drill, rank->rank, step, i);
    return lnt_optim_step(rank->optim, rank_grads(rank, grad));
}

/* ---- the criterion ---- */

enum { CRITERION_STEPS = 160, LATER = 10, ALL_STEPS = CRITERION_STEPS + LATER };

/* The commit that the freeze follows, from the formula. Far from the threshold, or it says nothing: *margin_p. */
static uint32_t expected_freeze(const drill_t *drill, const rank_t *rank, double *margin_p)
{
    const uint32_t window = drill->window != 0 && drill->window < WINDOW ? drill->window : WINDOW;
    double v[N] = {0}, sums[ALL_STEPS + 1] = {0}, power = 1;
    uint32_t running = 0;

    *margin_p = 1;
    for (uint32_t t = 1; t <= ALL_STEPS; t++) {
        power *= drill->group.beta2;
        for (uint64_t i = 0; i < N; i++) {
            double g = mean_at(drill, rank, t - 1, i);
            v[i] = drill->group.beta2 * v[i] + (1 - drill->group.beta2) * g * g;
            sums[t] += v[i] / (1 - power);
        }
        if (t > window) {
            double change = fabs(sums[t] / sums[t - window] - 1);
            if (fabs(change - drill->threshold) < *margin_p) *margin_p = fabs(change - drill->threshold);
            running = change <= drill->threshold ? running + 1 : 0;
        }
        if (t >= drill->lr_warmup && (running >= 2 || t >= drill->limit)) return t;
    }
    return 0;
}

static void criterion_body(rank_t *rank)
{
    drill_t *drill = rank->arg;
    double margin;
    uint32_t expected = expected_freeze(drill, rank, &margin), resume_at = expected / 2;
    uint64_t bytes;
    uint8_t *blob;

    open_drill(rank, drill);
    for (uint32_t step = 0; step < expected; step++) {
        ck_assert_int_eq(rank_info(rank).phase, LNT_PHASE_WARMUP);
        if (step == resume_at) { /* what was seen so far is part of the state */
            ranks_ok(lnt_optim_state_size(rank->optim, &bytes));
            blob = malloc(bytes);
            ranks_ok(lnt_optim_state_export(rank->optim, blob, bytes));
            rank_close(rank);
            open_drill(rank, drill);
            ranks_ok(lnt_optim_state_import(rank->optim, blob, bytes));
            free(blob);
        }
        ranks_ok(one_step(rank, drill, step));
        expect_equal_ranks(rank);
    }
    if (margin > 1e-5) ck_assert_int_eq(rank_info(rank).phase, LNT_PHASE_COMPRESSED);
    if (rank->rank == 0) drill->frozen_at = expected;
    rank_close(rank);
}

static uint32_t run_criterion(drill_t *drill, const world_t *world)
{
    (void)snprintf(
        drill->options, sizeof(drill->options),
        "freeze_criterion=variance,freeze_threshold=%.17g,lr_warmup_steps=%u,freeze_step=%u,freeze_window=%u,"
        "block=64",
        drill->threshold, drill->lr_warmup, drill->limit, drill->window);
    ranks_run(world, criterion_body, drill);
    return drill->frozen_at;
}

START_TEST(the_variance_settles)
{
    drill_t drill = make_drill();
    uint32_t settled;

    drill.limit = CRITERION_STEPS;
    drill.threshold = 0.04 + 0.08 * test_random_unit();
    settled = run_criterion(&drill, &worlds[_i]);
    ck_assert_uint_gt(settled, WINDOW + 1);
    drill.window = 1 + (uint32_t)test_random_below(2 * WINDOW); /* no longer than 1 / (1 - beta2) */
    (void)run_criterion(&drill, &worlds[_i]);
    drill.window = 0;
    drill.lr_warmup = settled + LATER;
    ck_assert_uint_ge(run_criterion(&drill, &worlds[_i]), settled + LATER);
    drill.lr_warmup = 0;
    drill.limit = WINDOW;
    ck_assert_uint_eq(run_criterion(&drill, &worlds[_i]), WINDOW); /* freeze_step is the latest */
    drill.lr_warmup = WINDOW + 1;
    ck_assert_uint_eq(run_criterion(&drill, &worlds[_i]), WINDOW + 1); /* but waits for the learning rate */
}
END_TEST

static char warnings[4096];

static void keep_line(void *arg, lnt_log_level_t level, const char *line)
{
    (void)arg;
    (void)level;
    (void)snprintf(warnings + strlen(warnings), sizeof(warnings) - strlen(warnings), "%s\n", line);
}

START_TEST(a_freeze_before_the_end_of_the_learning_rate_warm_up_is_warned_about)
{
    static const char *const options[] = {"freeze_step=10,lr_warmup_steps=10", "freeze_step=9,lr_warmup_steps=10",
                                          "freeze_criterion=variance,freeze_step=10,lr_warmup_steps=10",
                                          "freeze_criterion=variance,freeze_step=9,lr_warmup_steps=10"};

    for (int k = 0; k < 4; k++) {
        lnt_bootstrap_t bootstrap;
        lnt_context_params_t context = {.struct_size = sizeof(context), .log = keep_line};
        lnt_comm_params_t comm = {.struct_size = sizeof(comm), .bootstrap = &bootstrap};
        const model_t model = {.n_tensors = 1, .lengths = {100}, .algorithm = "onebit_adam"};
        model_t used = model;
        rank_t rank = {.rank = 0};

        used.options = options[k];
        warnings[0] = '\0';
        ranks_ok(lnt_bootstrap_threads(1, 1000, &bootstrap));
        ranks_ok(lnt_context_create(&context, &rank.context));
        ranks_ok(lnt_comm_create(rank.context, &comm, &rank.comm));
        ranks_ok(rank_plan(&rank, &used));
        ranks_ok(rank_optim(&rank));
        ck_assert_int_eq(strstr(warnings, "lr_warmup_steps") != NULL, k % 2);
        rank_close(&rank);
        ranks_ok(lnt_comm_destroy(rank.comm));
        ranks_ok(lnt_context_destroy(rank.context));
        lnt_bootstrap_destroy(&bootstrap);
    }
}
END_TEST

/* ---- masks ---- */

enum { FREEZE = 5, MASK_BEGIN = 70, MASK_END = 90, MASK_SHORT = LONG + 10, MASK_STEPS = 20 };

static bool is_masked(uint64_t i)
{
    return (i >= MASK_BEGIN && i < MASK_END) || (i >= MASK_SHORT && i < MASK_SHORT + 5);
}

static void set_masks(rank_t *rank, bool masked)
{
    uint8_t mask[N];

    for (uint64_t i = 0; i < N; i++)
        mask[i] = !is_masked(i);
    ranks_ok(lnt_optim_set_mask(rank->optim, 0, masked ? mask : NULL));
    ranks_ok(lnt_optim_set_mask(rank->optim, 1, masked ? mask + LONG : NULL));
}

/* Step by step: after several, an element may by chance lie where it was. */
static void walk(rank_t *rank, const drill_t *drill, uint32_t from, uint32_t to, bool *moved)
{
    float before[N];

    for (uint32_t step = from; step < to; step++) {
        memcpy(before, rank->x, sizeof(before));
        ranks_ok(one_step(rank, drill, step));
        for (uint64_t i = 0; i < N; i++)
            moved[i] |= rank->x[i] != before[i];
    }
}

/* What never moved is masked, and nothing else. */
static void expect_masked(const rank_t *rank, const bool *moved, bool masked)
{
    uint8_t dead[N], kept[N];

    rank_view(rank, "dead", 1, dead);
    rank_view(rank, "masked", 1, kept);
    for (uint64_t i = 0; i < N; i++) {
        ck_assert_int_eq(!moved[i], masked && is_masked(i));
        ck_assert_int_eq(kept[i], masked && is_masked(i));
        ck_assert(!kept[i] || dead[i]);
    }
    ck_assert_uint_eq(rank_info(rank).late_touched, masked ? 0 : 1);
    if (masked) ck_assert_uint_eq(rank_info(rank).lane_elems, SHORT - 5);
}

/* `early`: masked before the freeze, else after it. Then saved, loaded, and unmasked again. */
static void mask_body(rank_t *rank)
{
    drill_t *drill = rank->arg;
    const bool early = drill->limit != 0;
    bool moved[N] = {false};
    uint64_t bytes, hash;
    uint8_t *blob;

    open_drill(rank, drill);
    if (early) set_masks(rank, true);
    for (uint32_t step = 0; step < FREEZE; step++)
        ranks_ok(one_step(rank, drill, step));
    if (!early) set_masks(rank, true);
    ck_assert_double_eq(rank_info(rank).dead_share, 0);
    walk(rank, drill, FREEZE, MASK_STEPS, moved);
    expect_masked(rank, moved, true);
    ranks_ok(lnt_optim_state_size(rank->optim, &bytes));
    blob = malloc(bytes);
    ranks_ok(lnt_optim_state_export(rank->optim, blob, bytes));
    hash = lnt_optim_hash(rank->optim);
    set_masks(rank, false);
    ck_assert_uint_ne(lnt_optim_hash(rank->optim), hash);
    ranks_ok(lnt_optim_state_import(rank->optim, blob, bytes));
    ck_assert_uint_eq(lnt_optim_hash(rank->optim), hash);
    walk(rank, drill, MASK_STEPS, MASK_STEPS + 1, moved);
    expect_masked(rank, moved, true);
    set_masks(rank, false); /* a late comer from here on */
    memset(moved, 0, sizeof(moved));
    walk(rank, drill, MASK_STEPS + 1, MASK_STEPS + 4, moved);
    expect_masked(rank, moved, false);
    expect_equal_ranks(rank);
    free(blob);
    rank_close(rank);
}

START_TEST(masked_coordinates_stand_still)
{
    drill_t drill = make_drill();

    drill.limit = (uint32_t)_i % 2;
    drill.group.weight_decay = 0.1;
    (void)snprintf(drill.options, sizeof(drill.options), "freeze_step=5,block=64%s",
                   _i / 2 % 2 != 0 ? ",compression=off" : "");
    ranks_run(&worlds[_i / 4], mask_body, &drill);
}
END_TEST

static void differ_body(rank_t *rank)
{
    drill_t *drill = rank->arg;
    uint8_t mask[LONG];

    open_drill(rank, drill);
    memset(mask, 1, sizeof(mask));
    mask[10 + rank->rank] = 0;
    for (uint32_t step = 0; step < drill->limit; step++)
        ranks_ok(one_step(rank, drill, step));
    ranks_ok(lnt_optim_set_mask(rank->optim, 0, mask));
    ck_assert_int_eq(one_step(rank, drill, drill->limit), LNT_ERR_MISMATCH);
    ranks_barrier();
    ranks_ok(lnt_optim_destroy(rank->optim));
    ranks_ok(lnt_plan_destroy(rank->plan));
    free(rank->x);
    free(rank->x16);
}

START_TEST(masks_that_differ_between_ranks_are_a_mismatch)
{
    drill_t drill = make_drill();

    (void)snprintf(drill.options, sizeof(drill.options), "freeze_step=5,block=64");
    drill.limit = _i == 0 ? 0 : FREEZE + 1;
    ranks_run(&worlds[1], differ_body, &drill);
}
END_TEST

/* ---- the switch ---- */

enum { SWITCH = 12, AFTER = 8 };

typedef struct element {
    double x, m, v;
    double rounding, drift; /* largest one of a mean so far; what such ones moved x by */
} element_t;

/* f64 run of the formulas: Adam, then with the denominator of the freeze. `bias1` false: without the correction of m
 * after the freeze, as a run that jumps would be. */
static void oracle_step(const drill_t *drill, uint32_t t, double g, double *denominator, element_t *e)
{
    const lnt_group_t *k = &drill->group;

    e->m = k->beta1 * e->m + (1 - k->beta1) * g;
    if (t <= SWITCH || *denominator == 0) {
        e->v = k->beta2 * e->v + (1 - k->beta2) * g * g;
        *denominator = sqrt(e->v / (1 - pow(k->beta2, t))) + k->eps;
    }
    e->x -= k->lr * e->m / (1 - pow(k->beta1, t)) / *denominator + k->lr * k->weight_decay * e->x;
    e->drift += 2 * k->lr * e->rounding / *denominator; /* through m and through the denominator */
}

/* The twin against the formulas from the first gradient to some steps after the switch: what is lost or done twice, an
 * eps elsewhere, a decay that stops, a bias correction that jumps, all show. */
static void switch_body(rank_t *rank)
{
    drill_t *drill = rank->arg;
    element_t elements[LONG] = {{0}};
    double denominators[LONG] = {0};

    open_drill(rank, drill);
    for (uint64_t i = 0; i < LONG; i++)
        elements[i].x = rank->x[i];
    for (uint32_t t = 1; t <= SWITCH + AFTER; t++) {
        ranks_ok(one_step(rank, drill, t - 1));
        for (uint64_t i = 0; i < LONG; i++) {
            elements[i].rounding = fmax(elements[i].rounding, mean_rounding(drill, rank, t - 1, i));
            oracle_step(drill, t, mean_at(drill, rank, t - 1, i), &denominators[i], &elements[i]);
            /* roundings of the mean; of x, which may have come from lr away, and of what it moved by */
            ck_assert_msg(fabs(rank->x[i] - elements[i].x) <=
                              elements[i].drift + 5e-7 * (1 + t) * (fabs(elements[i].x) + drill->group.lr),
                          "commit %u, element %llu: %.9g is not %.9g", t, (unsigned long long)i, rank->x[i],
                          elements[i].x);
        }
        ck_assert_int_eq(rank_info(rank).phase, t < SWITCH ? LNT_PHASE_WARMUP : LNT_PHASE_FROZEN);
    }
    rank_close(rank);
}

START_TEST(nothing_is_lost_at_the_switch)
{
    drill_t drill = make_drill();

    drill.group.weight_decay = 0.05;
    drill.group.eps = 1e-2; /* large enough to see where it stands */
    (void)snprintf(drill.options, sizeof(drill.options), "freeze_step=%d,block=64,compression=off", SWITCH);
    ranks_run(&worlds[_i], switch_body, &drill);
}
END_TEST

/* Gradients that stay the same: Adam moves by lr in every step, and so must the compressed phase from its first step
 * on, whatever the powers of beta are at the switch. */
static void step_size_body(rank_t *rank)
{
    drill_t *drill = rank->arg;
    float before[N], grad[N];
    double sizes[SWITCH + AFTER];

    open_drill(rank, drill);
    for (uint64_t i = 0; i < N; i++)
        grad[i] = test_mix_pair(drill->seed, i) % 2 != 0 ? 0.5f : -0.5f;
    for (uint32_t step = 0; step < SWITCH + AFTER; step++) {
        memcpy(before, rank->x, sizeof(before));
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
        sizes[step] = 0;
        for (uint64_t i = 0; i < LONG; i++)
            sizes[step] += fabs((double)rank->x[i] - before[i]) / LONG;
    }
    for (uint32_t step = 1; step < SWITCH + AFTER; step++)
        ck_assert_double_lt(fabs(sizes[step] / sizes[step - 1] - 1), 1e-3);
    rank_close(rank);
}

START_TEST(the_effective_step_does_not_jump)
{
    drill_t drill = make_drill();

    (void)snprintf(drill.options, sizeof(drill.options), "freeze_step=%d,block=64%s", SWITCH,
                   _i % 2 != 0 ? ",compression=off" : "");
    ranks_run(&worlds[_i / 2], step_size_body, &drill);
}
END_TEST

static Suite *freeze_suite(void)
{
    Suite *suite = suite_create("optim_freeze");
    TCase *tcase = tcase_create("freeze");

    tcase_add_loop_test(tcase, the_variance_settles, 0, N_WORLDS);
    tcase_add_test(tcase, a_freeze_before_the_end_of_the_learning_rate_warm_up_is_warned_about);
    tcase_add_loop_test(tcase, masked_coordinates_stand_still, 0, 4 * N_WORLDS);
    tcase_add_loop_test(tcase, masks_that_differ_between_ranks_are_a_mismatch, 0, 2); /* in the warm-up, after it */
    tcase_add_loop_test(tcase, nothing_is_lost_at_the_switch, 0, N_WORLDS);
    tcase_add_loop_test(tcase, the_effective_step_does_not_jump, 0, 2 * N_WORLDS);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return test_main(freeze_suite());
}
