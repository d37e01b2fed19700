/* The formula table of linnet-perf against numbers worked out by hand from docs/perf.md. */
#include "testing.h"

#include "../../perf/perf_formulas.h"

/* Sizes are 2^k and times 2^-k, so every result is exact. */
START_TEST(bandwidths)
{
    const struct {
        perf_op_t op;
        uint32_t n;
        double factor;
    } rows[] = {{PERF_ALLREDUCE, 2, 1},        {PERF_ALLREDUCE, 4, 1.5},       {PERF_ALLREDUCE, 8, 1.75},
                {PERF_REDUCE_SCATTER, 2, 0.5}, {PERF_REDUCE_SCATTER, 4, 0.75}, {PERF_ALLGATHER, 4, 0.75},
                {PERF_ALLGATHER, 8, 0.875},    {PERF_BROADCAST, 2, 1},         {PERF_BROADCAST, 8, 1},
                {PERF_ALLREDUCE, 1, 0}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        ck_assert_double_eq(perf_bus_factor(rows[i].op, rows[i].n), rows[i].factor);
        ck_assert_double_eq(perf_busbw(rows[i].op, rows[i].n, 1e9, 0.5), 2 * rows[i].factor);
    }
    ck_assert_double_eq(perf_algbw(1e9, 1), 1); /* GB, not GiB */
    ck_assert_double_eq(perf_algbw(4e9, 0.5), 8);
    ck_assert_double_eq(perf_algbw(1, 0), 0);
}
END_TEST

START_TEST(ratios)
{
    ck_assert_double_eq(perf_ring_bytes(PERF_ALLREDUCE, 4, 1 << 22), 6 << 20);
    ck_assert_double_eq(perf_ring_bytes(PERF_ALLREDUCE, 1, 1 << 22), 0);
    ck_assert_double_eq(perf_ratio(PERF_ALLREDUCE, 2, 1 << 22, 1 << 17), 32);
    ck_assert_double_eq(perf_ratio(PERF_ALLGATHER, 2, 1 << 22, 1 << 17), 16);
    ck_assert_double_eq(perf_ratio(PERF_ALLREDUCE, 1, 1 << 22, 0), 0);
}
END_TEST

START_TEST(counts)
{
    ck_assert_uint_eq(perf_count(PERF_ALLREDUCE, 4, 1003, 4), 250);
    ck_assert_uint_eq(perf_count(PERF_ALLGATHER, 4, 1003, 4), 62);
    ck_assert_uint_eq(perf_count(PERF_REDUCE_SCATTER, 3, 100, 2), 16);
    ck_assert_uint_eq(perf_total_count(PERF_ALLGATHER, 4, 62), 248);
    ck_assert_uint_eq(perf_total_count(PERF_BROADCAST, 4, 62), 62);
    for (int op = 0; op < PERF_OPS; op++) {
        uint32_t n = 1 + (uint32_t)test_random_below(16);
        uint64_t bytes = test_random_below(1 << 20), count = perf_count((perf_op_t)op, n, bytes, 4);
        ck_assert_uint_le(perf_total_count((perf_op_t)op, n, count) * 4, bytes);
        ck_assert_uint_gt(perf_total_count((perf_op_t)op, n, count + 1) * 4, bytes);
    }
}
END_TEST

static Suite *formulas_suite(void)
{
    Suite *suite = suite_create("perf_formulas");
    TCase *tests = tcase_create("formulas");

    tcase_add_test(tests, bandwidths);
    tcase_add_test(tests, ratios);
    tcase_add_test(tests, counts);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    return test_main(formulas_suite());
}
