/* The schedule of 0/1 Adam: counts of variance, sign, local and sync steps against published figures and against closed
 * forms that walk over segments instead of steps.
 */
#include "../../optim/zero_one_schedule.h"
#include "testing.h"

typedef struct counts {
    uint64_t kind[4];
} counts_t;

static counts_t walk(const lnt_zero_one_plan_t *plan, uint64_t steps)
{
    lnt_zero_one_counters_t counters = lnt_zero_one_start();
    counts_t counts = {{0}};
    bool frozen = lnt_zero_one_freeze_due(plan, 0);

    for (uint64_t t = 1; t <= steps; t++) {
        counts.kind[lnt_zero_one_kind(&counters, frozen, t)]++;
        counters = lnt_zero_one_next(plan, counters, frozen, t);
        frozen = lnt_zero_one_freeze_due(plan, t);
    }
    return counts;
}

/* Multiples of the interval behind the last variance step, var_update_scaler of them, then twice the interval. */
static uint64_t variance_steps(uint64_t kappa, uint64_t last_step)
{
    uint64_t interval = 1, at = 0, n = 0;

    for (;; interval *= 2) {
        uint64_t first = (at / interval + 1) * interval, last = first + (kappa - 1) * interval;
        if (first > last_step) return n;
        if (last > last_step) return n + (last_step - first) / interval + 1;
        n += kappa;
        at = last;
    }
}

/* Multiples of the interval in each stretch of steps that has one interval. */
static uint64_t sync_steps(const lnt_zero_one_plan_t *plan, uint64_t steps)
{
    uint64_t interval = 1, begin = plan->first_steps, end = plan->var_freeze_step + 1, n = 0;

    while (begin < steps) {
        end += plan->local_step_scaler;
        if (end > steps) end = steps;
        n += end / interval - begin / interval;
        begin = end;
        interval = 2 * interval < plan->local_step_clipper ? 2 * interval : plan->local_step_clipper;
    }
    return n;
}

static void expect_counts(const lnt_zero_one_plan_t *plan, uint64_t steps, uint64_t full, uint64_t one_bit,
                          uint64_t skipped)
{
    counts_t counts = walk(plan, steps);

    ck_assert_uint_eq(counts.kind[LNT_ZERO_ONE_VARIANCE], full);
    ck_assert_uint_eq(counts.kind[LNT_ZERO_ONE_SIGN] + counts.kind[LNT_ZERO_ONE_SYNC], one_bit);
    ck_assert_uint_eq(counts.kind[LNT_ZERO_ONE_LOCAL], skipped);
}

/* BERT of the paper: 153 full and 70468 one-bit rounds, 47379 steps without one, 25.9 times fewer bytes than in 16 bit;
 * whichever of the two forms of the first phase. */
START_TEST(published_run)
{
    for (uint64_t more = 0; more <= 1; more++) {
        const lnt_zero_one_plan_t plan = {12500, 12500 + more, 16, 32678, 16};
        expect_counts(&plan, 118000, 153, 70468, 47379);
        ck_assert_double_eq_tol(16.0 * 118000 / (16.0 * 153 + 70468), 25.9, 0.05);
    }
}
END_TEST

START_TEST(small_runs)
{
    const lnt_zero_one_plan_t bert = {175, 175, 32, 280, 2}, fast = {105, 105, 13, 196, 4};
    const lnt_zero_one_plan_t never = {100, 100, 16, 32678, 16}, at_once = {0, 0, 16, 5, 4};

    expect_counts(&bert, 700, 83, 495, 122);
    ck_assert_uint_eq(walk(&fast, 700).kind[LNT_ZERO_ONE_VARIANCE], variance_steps(13, 105));
    expect_counts(&never, 50, 32, 18, 0);  /* 1 ... 16, then 18, 20 ... 48, then 52 */
    expect_counts(&at_once, 20, 0, 11, 9); /* 1 ... 6, 8, 10, 12, 16, 20 */
}
END_TEST

START_TEST(any_run_equals_the_closed_form)
{
    for (int i = 0; i < 2000; i++) {
        uint64_t freeze = test_random_below(500), steps = 1 + test_random_below(3000);
        const lnt_zero_one_plan_t plan = {freeze, freeze + test_random_below(2), 1 + test_random_below(40),
                                          1 + test_random_below(400), 1 + test_random_below(20)};
        uint64_t first = steps < plan.first_steps ? steps : plan.first_steps;
        uint64_t full = variance_steps(plan.var_update_scaler, first), syncs = sync_steps(&plan, steps);
        expect_counts(&plan, steps, full, first - full + syncs, steps - first - syncs);
    }
}
END_TEST

/* Between two doublings the windows have equal lengths, and no window is longer than the clipper says. */
START_TEST(windows_grow_up_to_the_clipper)
{
    const lnt_zero_one_plan_t plan = {20, 20, 4, 50, 6};
    lnt_zero_one_counters_t counters = lnt_zero_one_start();
    uint64_t last = 20;

    for (uint64_t t = 1; t <= 600; t++) {
        lnt_zero_one_kind_t kind = lnt_zero_one_kind(&counters, t > 20, t);
        if (t > 20) ck_assert_uint_le(t - last, 6);
        ck_assert_int_eq(t > 20, kind == LNT_ZERO_ONE_SYNC || kind == LNT_ZERO_ONE_LOCAL);
        if (kind == LNT_ZERO_ONE_SYNC) last = t;
        counters = lnt_zero_one_next(&plan, counters, t > 20, t);
        if (t == 71) ck_assert_uint_eq(counters.local_interval, 2);
        if (t == 121) ck_assert_uint_eq(counters.local_interval, 4);
    }
    ck_assert_uint_eq(counters.local_interval, 6);
}
END_TEST

static Suite *schedule_suite(void)
{
    Suite *suite = suite_create("zero_one_schedule");
    TCase *tests = tcase_create("counts");

    tcase_add_test(tests, published_run);
    tcase_add_test(tests, small_runs);
    tcase_add_test(tests, any_run_equals_the_closed_form);
    tcase_add_test(tests, windows_grow_up_to_the_clipper);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    return test_main(schedule_suite());
}
