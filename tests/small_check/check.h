/* The part of libcheck's interface that the tests of kernels use, for machines that have a compiler and no libcheck
 * (tests/device/run). Checks run one after another in one process; the first failure ends a check, a crash ends the
 * program. One source file per program, no threads.
 */
#ifndef SMALL_CHECK_H
#define SMALL_CHECK_H

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CK_NORMAL, SMALL_CHECK_MAX = 64 };

typedef struct TTest {
    const char *name;
    void (*run)(int i);
} TTest;

typedef struct small_check_loop {
    const TTest *test;
    int first, end;
} small_check_loop_t;

typedef struct TCase {
    small_check_loop_t loops[SMALL_CHECK_MAX];
    size_t n_loops;
    void (*before_all)(void), (*after_all)(void), (*before_each)(void), (*after_each)(void);
} TCase;

typedef struct Suite {
    const char *name;
    TCase cases[SMALL_CHECK_MAX];
    size_t n_cases;
    TCase *chosen[SMALL_CHECK_MAX];
    size_t n_chosen;
} Suite;

typedef struct SRunner {
    Suite *suite;
    int n_checks, n_failed;
} SRunner;

static Suite small_check_suite;
static SRunner small_check_runner;
static jmp_buf small_check_end;

#define START_TEST(_name)                                                                                              \
    static void _name##_run(int _i);                                                                                   \
    static const TTest _name##_test = {#_name, _name##_run};                                                           \
    static const TTest *const _name = &_name##_test;                                                                   \
    static void _name##_run(int _i __attribute__((unused)))
#define END_TEST

static inline void small_check_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4), noreturn));
static inline void small_check_fail(const char *file, int line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("%s:%d: ", file, line);
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
    longjmp(small_check_end, 1);
}

#define ck_abort_msg(...) small_check_fail(__FILE__, __LINE__, __VA_ARGS__)
#define ck_assert_msg(_holds, ...)                                                                                     \
    do {                                                                                                               \
        if (!(_holds)) ck_abort_msg(__VA_ARGS__);                                                                      \
    } while (0)
#define ck_assert(_holds) ck_assert_msg(_holds, "does not hold: %s", #_holds)
#define SMALL_CHECK_NUMBERS(_type, _format, _a, _operator, _b)                                                         \
    do {                                                                                                               \
        _type left_ = (_a), right_ = (_b);                                                                             \
        ck_assert_msg(left_ _operator right_, "%s " #_operator " %s: %" _format ", %" _format, #_a, #_b, left_,        \
                      right_);                                                                                         \
    } while (0)
#define ck_assert_int_eq(_a, _b) SMALL_CHECK_NUMBERS(intmax_t, PRIdMAX, _a, ==, _b)
#define ck_assert_int_ne(_a, _b) SMALL_CHECK_NUMBERS(intmax_t, PRIdMAX, _a, !=, _b)
#define ck_assert_int_lt(_a, _b) SMALL_CHECK_NUMBERS(intmax_t, PRIdMAX, _a, <, _b)
#define ck_assert_int_gt(_a, _b) SMALL_CHECK_NUMBERS(intmax_t, PRIdMAX, _a, >, _b)
#define ck_assert_uint_eq(_a, _b) SMALL_CHECK_NUMBERS(uintmax_t, PRIuMAX, _a, ==, _b)
#define ck_assert_uint_ne(_a, _b) SMALL_CHECK_NUMBERS(uintmax_t, PRIuMAX, _a, !=, _b)
#define ck_assert_uint_le(_a, _b) SMALL_CHECK_NUMBERS(uintmax_t, PRIuMAX, _a, <=, _b)
#define ck_assert_uint_lt(_a, _b) SMALL_CHECK_NUMBERS(uintmax_t, PRIuMAX, _a, <, _b)
#define ck_assert_uint_ge(_a, _b) SMALL_CHECK_NUMBERS(uintmax_t, PRIuMAX, _a, >=, _b)
#define ck_assert_uint_gt(_a, _b) SMALL_CHECK_NUMBERS(uintmax_t, PRIuMAX, _a, >, _b)
#define ck_assert_double_le(_a, _b) SMALL_CHECK_NUMBERS(double, "g", _a, <=, _b)
#define ck_assert_double_eq(_a, _b) SMALL_CHECK_NUMBERS(double, "g", _a, ==, _b)
#define ck_assert_double_ge(_a, _b) SMALL_CHECK_NUMBERS(double, "g", _a, >=, _b)
#define ck_assert_float_eq(_a, _b) SMALL_CHECK_NUMBERS(double, "g", _a, ==, _b)
#define ck_assert_double_gt(_a, _b) SMALL_CHECK_NUMBERS(double, "g", _a, >, _b)
#define ck_assert_ptr_null(_pointer) ck_assert((_pointer) == NULL)
#define ck_assert_ptr_nonnull(_pointer) ck_assert((_pointer) != NULL)
#define ck_assert_ptr_eq(_a, _b) ck_assert((const void *)(_a) == (const void *)(_b))
#define ck_assert_ptr_ne(_a, _b) ck_assert((const void *)(_a) != (const void *)(_b))
#define ck_assert_mem_eq(_a, _b, _bytes) ck_assert(memcmp(_a, _b, _bytes) == 0)
#define ck_assert_str_eq(_a, _b) ck_assert(strcmp(_a, _b) == 0)

static inline Suite *suite_create(const char *name)
{
    small_check_suite.name = name;
    return &small_check_suite;
}

static inline TCase *tcase_create(const char *name)
{
    (void)name;
    return &small_check_suite.cases[small_check_suite.n_cases++];
}

static inline void suite_add_tcase(Suite *suite, TCase *tcase)
{
    suite->chosen[suite->n_chosen++] = tcase;
}

static inline void tcase_set_timeout(TCase *tcase, double seconds)
{
    (void)tcase;
    (void)seconds; /* whoever starts the program has a limit */
}

static inline void tcase_add_loop_test(TCase *tcase, const TTest *test, int first, int end)
{
    tcase->loops[tcase->n_loops++] = (small_check_loop_t){test, first, end};
}

static inline void tcase_add_test(TCase *tcase, const TTest *test)
{
    tcase_add_loop_test(tcase, test, 0, 1);
}

static inline void tcase_add_unchecked_fixture(TCase *tcase, void (*before)(void), void (*after)(void))
{
    tcase->before_all = before;
    tcase->after_all = after;
}

static inline void tcase_add_checked_fixture(TCase *tcase, void (*before)(void), void (*after)(void))
{
    tcase->before_each = before;
    tcase->after_each = after;
}

static inline SRunner *srunner_create(Suite *suite)
{
    small_check_runner.suite = suite;
    return &small_check_runner;
}

static inline void small_check_run(SRunner *runner, const TCase *tcase, const TTest *test, int i)
{
    runner->n_checks++;
    if (setjmp(small_check_end)) {
        runner->n_failed++;
        printf("failed: %s, round %d\n", test->name, i);
        return;
    }
    if (tcase->before_each) tcase->before_each();
    test->run(i);
    if (tcase->after_each) tcase->after_each();
}

static inline void small_check_run_case(SRunner *runner, const TCase *tcase)
{
    if (tcase->before_all) tcase->before_all();
    for (size_t k = 0; k < tcase->n_loops; k++)
        for (int i = tcase->loops[k].first; i < tcase->loops[k].end; i++)
            small_check_run(runner, tcase, tcase->loops[k].test, i);
    if (tcase->after_all) tcase->after_all();
}

static inline void srunner_run_all(SRunner *runner, int mode)
{
    (void)mode;
    for (size_t k = 0; k < runner->suite->n_chosen; k++)
        small_check_run_case(runner, runner->suite->chosen[k]);
    printf("%s: Checks: %d, Failures: %d, Errors: 0\n", runner->suite->name, runner->n_checks, runner->n_failed);
}

static inline int srunner_ntests_failed(const SRunner *runner)
{
    return runner->n_failed;
}

static inline void srunner_free(SRunner *runner)
{
    (void)runner;
}

#endif
