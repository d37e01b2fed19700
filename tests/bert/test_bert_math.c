/* The vector forms against the C library, every row of kernels, in the ranges the model uses; products against plain
 * loops at sizes with tails. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "counter_rng.h"
#include "gemm.h"
#include "kernels.h"

enum { N = 20000 };

static const bert_kernels_t *const rows[] = {
    &bert_kernels_base,
#ifdef BERT_HAVE_AVX2
    &bert_kernels_avx2,
#endif
};

static bool runs_here(const bert_kernels_t *row)
{
    return (row == &bert_kernels_base) || (row == bert_kernels_get());
}

START_TEST(gelu_is_accurate)
{
    static real_t x[N], y[N], slope[N];
    const bert_kernels_t *row = rows[_i];
    double worst = 0;

    if (!runs_here(row)) {
        printf("%s: not on this CPU\n", row->name);
        return;
    }
    for (int i = 0; i < N; i++) {
        x[i] = (real_t)(-14.0 + 28.0 * i / N);
    }
    row->gelu(N, x, y, slope);
    for (int i = 0; i < N; i++) {
        double v = (double)x[i], cdf = 0.5 * erfc(-v / sqrt(2.0)), density = exp(-v * v / 2) / sqrt(2 * acos(-1.0));

        worst = fmax(worst, fabs((double)y[i] - v * cdf) / (1 + fabs(v)));
        worst = fmax(worst, fabs((double)slope[i] - (cdf + v * density)));
    }
    printf("%s: gelu, worst error %.2g\n", row->name, worst);
    /* fast_math.h: 2e-7 for Phi, 1e-6 of the exponential, which is at most 0.25 in v * density; roundings: less. */
    ck_assert(worst < 1e-6);
}
END_TEST

/* One row of logits over several magnitudes, against log-sum-exp in double. */
START_TEST(cross_entropy_is_accurate)
{
    enum { WIDTH = 1001 };
    const bert_kernels_t *row = rows[_i];
    uint64_t seed = (uint64_t)time(NULL);
    real_t logits[WIDTH], loss;
    int label = (int)rng_below(seed, 0, WIDTH), hit;
    double top = -1e30, sum = 0, want;

    if (!runs_here(row)) {
        return;
    }
    printf("%s: seed %llu\n", row->name, (unsigned long long)seed);
    for (int i = 0; i < WIDTH; i++) {
        logits[i] = (real_t)(8 * rng_normal(seed, (uint64_t)i + 1));
        top = fmax(top, (double)logits[i]);
    }
    for (int i = 0; i < WIDTH; i++) {
        sum += exp((double)logits[i] - top);
    }
    want = top + log(sum) - (double)logits[label];
    int right = (double)logits[label] >= top;
    row->cross_entropy(1, WIDTH, &label, logits, &loss, &hit);
    /* The logarithm turns the relative error of the sum into an absolute one: 1e-6 of each exponential, and WIDTH
     * roundings of 2^-24 whose signs are random: sqrt(WIDTH) * 2^-24 = 2e-6, three times that at the worst. The sum of
     * probabilities is off by as much. */
    ck_assert(fabs((double)loss - want) < 1e-5 * (1 + want));
    ck_assert_int_eq(hit, right);
    sum = 0;
    for (int i = 0; i < WIDTH; i++) {
        sum += (double)logits[i];
    }
    ck_assert(fabs(sum) < 1e-5); /* probabilities minus one hot */
}
END_TEST

START_TEST(products_are_right)
{
    ck_assert(gemm_self_check(1, 1, 1));
    ck_assert(gemm_self_check(37, 29, 53));
    ck_assert(gemm_self_check(128, 200, 64));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bert_math");
    TCase *tcase = tcase_create("bert_math");
    SRunner *runner = srunner_create(suite);
    int failed, n_rows = (int)(sizeof(rows) / sizeof(rows[0]));

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, gelu_is_accurate, 0, n_rows);
    tcase_add_loop_test(tcase, cross_entropy_is_accurate, 0, n_rows);
    tcase_add_test(tcase, products_are_right);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? 0 : 1;
}
