/* 0/1 Adam against its formulas (zero_one_oracle.h), byte by byte and in f64, over fresh random worlds, models and
 * gradients: variance, sign, local and sync steps, dead coordinates, tensors that are held back, idle groups, gaps and
 * failed syncs.
 */
#include "zero_one_oracle.h"

enum { STEPS = TEST_SANITIZED ? 60 : 90, LATE = 22, TRIALS = TEST_SANITIZED ? 1 : 2, WORLDS = TEST_SANITIZED ? 2 : 5 };

typedef struct trial {
    zo_settings_t settings;
    zo_t oracle;
    bool gaps, failures; /* non-finite gradients on one rank; sums that overflow */
    uint64_t n_gaps, n_failed, n_idle, n_held, n_gap_syncs, n_told, n_joined, n_left;
} trial_t;

/* How a tensor's gradients look: scales differ, some rows are never touched, some late, one is noise near zero. */
static float grad_at(const zo_settings_t *s, uint32_t rank, uint64_t step, uint32_t t, uint64_t i)
{
    const uint64_t seed = test_mix_pair(s->seed, (step * 64 + rank) << 8 | t);
    const double scale = pow(10.0, t == s->tiny ? -14.0 : (double)(t % 3) - 2.0) * s->loss_scale;
    const uint64_t n = s->model.lengths[t];

    if (t % 4 == 2 && i >= n - n / 2 && step < 6) return 0; /* held back at first */
    if (t % 4 == 3 && i >= n - n / 16) return 0;            /* dead for ever */
    if (t == 2 && i >= 30 && i < 34) return 0;              /* beside those that come alive */
    if (t % 4 > 1 && i >= 10 && i < 30 && step < LATE) return 0;
    if (t % 4 == 1 && i % 50 == 7) return (float)(normal_at(seed, i) * 1e-13 * s->loss_scale);
    return (float)((normal_at(seed, i) + 0.3 * normal_at(s->seed, i)) * scale);
}

static void fill(trial_t *trial, uint32_t rank, uint64_t step, float *grad)
{
    const zo_settings_t *s = &trial->settings;
    uint64_t at = 0;

    for (uint32_t t = 0; t < s->model.n_tensors; at += s->model.lengths[t++])
        for (uint64_t i = 0; i < s->model.lengths[t]; i++)
            grad[at + i] = grad_at(s, rank, step, t, i);
}

/* The same on all ranks: whether this step has something wrong, and where. */
static bool is_gap(const trial_t *trial, uint32_t rank, uint64_t step)
{
    return trial->gaps && step > 16 && test_mix_pair(trial->settings.seed + 5, step) % 5 == 0 &&
           test_mix_pair(trial->settings.seed + 6, step) % trial->settings.world.n_ranks == rank;
}

static bool overflows(const trial_t *trial, uint32_t rank, uint64_t step)
{
    return trial->failures && step > 16 && rank == 0 && test_mix_pair(trial->settings.seed + 7, step) % 5 == 0;
}

/* A learning-rate schedule with pauses: both groups for a while, then one of them. */
static void set_rates(trial_t *trial, rank_t *rank, uint64_t step, lnt_group_t *groups)
{
    for (uint32_t g = 0; g < ZO_GROUPS; g++) {
        groups[g] = trial->settings.groups[g];
        groups[g].lr *= 1.0 + 0.5 * sin((double)step);
        if (step >= 40 && step < 46 && g == 0) groups[g].lr = 0;
        if (step >= 43 && step < 55 && g == 1) groups[g].lr = 0;
        ranks_ok(lnt_optim_set_group(rank->optim, g, &groups[g]));
    }
}

/* The first tensor that travels as signs: draw_model makes one. */
static uint32_t first_long(const zo_t *o)
{
    uint32_t t = 0;

    while (!zo_long(o, t))
        t++;
    return t;
}

static void spoil(const trial_t *trial, uint32_t rank, uint64_t step, float *grad)
{
    const zo_t *o = &trial->oracle;
    const uint32_t t = first_long(o);

    if (is_gap(trial, rank, step)) grad[o->at[t] + o->s.model.lengths[t] / 3] = step % 2 == 0 ? INFINITY : NAN;
    if (!overflows(trial, rank, step)) return;
    for (uint64_t i = o->at[t]; i < o->at[t + 1]; i++)
        grad[i] = 3e38f;
}

static void count_what_happened(trial_t *trial, bool fine)
{
    const zo_t *o = &trial->oracle;

    trial->n_failed += !fine;
    for (uint32_t r = 0; r < o->n_ranks; r++) {
        trial->n_gaps += fine && o->gap[r];
        trial->n_gap_syncs += fine && o->gap[r] && o->kind == ZO_SYNC;
    }
    for (uint32_t t = 0; t < o->s.model.n_tensors; t++)
        trial->n_held += o->held[t] && o->kind == ZO_SIGN;
    trial->n_idle += o->kind == ZO_SYNC && !zo_any_busy(o);
}

/* Rank 0 moves the oracle on; the others wait. */
static bool move_oracle(trial_t *trial, uint64_t step, const lnt_group_t *groups)
{
    zo_t *o = &trial->oracle;
    bool fine;

    memcpy(o->s.groups, groups, sizeof(o->s.groups));
    for (uint32_t r = 0; r < o->n_ranks; r++) {
        fill(trial, r, step, o->grad[r]);
        if (o->frozen) spoil(trial, r, step, o->grad[r]);
        o->gap[r] = o->frozen && is_gap(trial, r, step);
    }
    fine = zo_step(o);
    count_what_happened(trial, fine);
    return fine;
}

/* f32 and f64 differ by roundings: of x, and in every step some of m, D and their quotient, in units of lr. */
static void expect_near_f64(const zo_t *o, uint64_t step)
{
    for (uint64_t i = 0; i < o->n; i++) {
        double lr = 1.5 * fmax(o->s.groups[0].lr, 0.02);
        double allowed = (double)(step + 1) * (3e-5 * lr + 0x1p-23 * (fabs(o->x64[i]) + 1));
        ck_assert_msg(fabs((double)o->x[i] - o->x64[i]) <= allowed, "step %llu: x[%llu] is %g, in f64 %g",
                      (unsigned long long)step, (unsigned long long)i, (double)o->x[i], o->x64[i]);
    }
}

static void body(rank_t *rank)
{
    trial_t *trial = rank->arg;
    zo_t *o = &trial->oracle;
    float *grad;
    static bool fine;

    rank_open(rank, &trial->settings.model);
    ranks_ok(lnt_optim_set_scaling(rank->optim, trial->settings.loss_scale, trial->settings.micro_steps));
    grad = zo_room(rank->n_elems, sizeof(float));
    for (uint64_t step = 0; step < STEPS; step++) {
        lnt_group_t groups[ZO_GROUPS];
        lnt_status_t status;
        set_rates(trial, rank, step, groups);
        fill(trial, rank->rank, step, grad);
        if (o->frozen) spoil(trial, rank->rank, step, grad);
        ranks_barrier();
        status = lnt_optim_step(rank->optim, rank_grads(rank, grad));
        if (rank->rank == 0) fine = move_oracle(trial, step, groups);
        ranks_barrier();
        ck_assert_int_eq(status, !fine ? LNT_SKIPPED_NONFINITE : o->gap[rank->rank] ? LNT_SKIPPED_LOCAL : LNT_OK);
        zo_expect(rank, o);
        expect_equal_ranks(rank);
        if (rank->rank == 0 && !trial->failures) expect_near_f64(o, step);
        ck_assert_uint_eq(rank_info(rank).step, o->t);
        ranks_barrier();
    }
    free(grad);
    rank_close(rank);
}

static void draw_group(lnt_group_t *group)
{
    lnt_group_defaults(group);
    group->lr = 0.001 + 0.01 * test_random_unit();
    group->beta1 = 0.8 + 0.15 * test_random_unit();
    group->beta2 = 0.95 + 0.049 * test_random_unit();
    group->weight_decay = test_random_below(2) == 0 ? 0.0 : 0.1 * test_random_unit();
}

static void draw_model(trial_t *trial, char *text, size_t size)
{
    static const uint64_t lengths[] = {0, 1, 63, 64, 65, 128, 129, 300, 500};
    static const struct {
        const char *name;
        int codec;
        uint32_t block;
    } codecs[] = {
        {"f32", ORACLE_F32, 64}, {"bf16", ORACLE_BF16, 64}, {"int8", ORACLE_INT8, 256}, {"int4", ORACLE_INT4, 128}};
    const size_t codec = test_random_below(4);
    zo_settings_t *s = &trial->settings;

    s->warm_codec = codecs[codec].codec;
    s->warm_block = codecs[codec].block;
    s->model = (model_t){.n_tensors = (uint32_t)(3 + test_random_below(6)),
                         .algorithm = "zero_one_adam",
                         .options = text,
                         .n_groups = ZO_GROUPS,
                         .bucket_bytes = 1024 + 4 * test_random_below(2000),
                         .segment_bytes = 256 + 4 * test_random_below(1000),
                         .start_seed = test_random()};
    for (uint32_t t = 0; t < s->model.n_tensors; t++) {
        s->model.lengths[t] = t == 2 ? 300 : lengths[test_random_below(sizeof(lengths) / sizeof(lengths[0]))];
        s->model.group_of[t] = t == 2 ? 0 : (uint32_t)test_random_below(2); /* 2 is held back, so not in the lane */
    }
    (void)snprintf(text, size,
                   "var_freeze_step=%d,var_update_scaler=%d,local_step_scaler=%d,local_step_clipper=%d,warmup_codec=%s,"
                   "warmup_block=%u,block=%d,compression=%s,max_dead_share=0.3,lane_updates=%d,late_idle=%s",
                   (int)s->freeze, (int)s->var_scaler, (int)s->local_scaler, (int)s->local_clipper, codecs[codec].name,
                   s->warm_block, ZO_BLOCK, s->compression ? "on" : "off", (int)s->lane_updates,
                   s->stay ? "stay" : "leave");
}

static void run_trial(const world_t *world, bool compression, bool gaps, bool failures, trial_t *sum)
{
    trial_t trial = {.gaps = gaps, .failures = failures};
    zo_settings_t *s = &trial.settings;
    char text[400];

    s->world = *world;
    s->world.quiet = true;
    s->freeze = 12 + test_random_below(5);
    s->var_scaler = 2 + test_random_below(4);
    s->local_scaler = 8 + test_random_below(20);
    s->local_clipper = 2 + test_random_below(6);
    s->compression = compression;
    s->max_dead = 0.3;
    s->lane_updates = 2 + test_random_below(5);
    s->stay = test_random_below(3) == 0;
    s->loss_scale = test_random_below(2) == 0 ? 1 : 512;
    s->micro_steps = (uint32_t)(1 + test_random_below(3));
    s->seed = test_random();
    draw_group(&s->groups[0]);
    draw_group(&s->groups[1]);
    s->groups[1].non_freeze = !gaps && !failures && test_random_below(3) == 0;
    draw_model(&trial, text, sizeof(text));
    s->model.groups = s->groups;
    s->model.max_skips = 1000;
    s->tiny = UINT32_MAX;
    zo_open(&trial.oracle, s);
    if (failures) s->tiny = first_long(&trial.oracle); /* u = lr m / D overflows where D is eps */
    trial.oracle.s.model.groups = trial.oracle.s.groups;
    ranks_run(&s->world, body, &trial);
    sum->n_gaps += trial.n_gaps;
    sum->n_gap_syncs += trial.n_gap_syncs;
    sum->n_failed += trial.n_failed;
    sum->n_held += trial.n_held;
    sum->n_idle += trial.n_idle;
    sum->n_told += trial.oracle.n_told;
    sum->n_joined += trial.oracle.n_joined;
    sum->n_left += trial.oracle.n_left;
    zo_close(&trial.oracle);
}

static const world_t worlds[] = {{.n_ranks = 2, .nodes = {0, 1}},
                                 {.n_ranks = 4, .nodes = {0, 0, 1, 1}},
                                 {.n_ranks = 1},
                                 {.n_ranks = 4, .nodes = {0, 1, 2, 3}},
                                 {.n_ranks = 5, .nodes = {0, 0, 1, 2, 1}}};

START_TEST(signs_follow_the_formulas)
{
    trial_t sum = {.gaps = false};

    for (int k = 0; k < TRIALS; k++)
        run_trial(&worlds[_i], true, false, false, &sum);
    ck_assert_uint_gt(sum.n_held, 0);
    ck_assert(TEST_SANITIZED || sum.n_joined > 0);
}
END_TEST

START_TEST(the_uncompressed_twin_follows_the_formulas)
{
    trial_t sum = {.gaps = false};

    run_trial(&worlds[_i], false, false, false, &sum);
}
END_TEST

START_TEST(a_rank_without_a_finite_gradient_takes_no_local_step)
{
    trial_t sum = {.gaps = false};

    run_trial(&worlds[_i], true, true, false, &sum);
    ck_assert_uint_gt(sum.n_gaps, 0);
}
END_TEST

START_TEST(a_failed_sync_starts_the_window_again)
{
    trial_t sum = {.gaps = false};

    run_trial(&worlds[_i], true, false, true, &sum);
    ck_assert_uint_gt(sum.n_failed, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("zero_one_oracle");
    TCase *tcase = tcase_create("oracle");

    tcase_add_loop_test(tcase, signs_follow_the_formulas, 0, WORLDS);
    tcase_add_loop_test(tcase, the_uncompressed_twin_follows_the_formulas, 0, WORLDS);
    tcase_add_loop_test(tcase, a_rank_without_a_finite_gradient_takes_no_local_step, 0, WORLDS);
    tcase_add_loop_test(tcase, a_failed_sync_starts_the_window_again, 0, WORLDS);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
