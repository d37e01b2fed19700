/* What every test program shares: the seed, random numbers, and the run of a suite.
 *
 * A program's main is `return test_main(my_suite());`. Fresh random input on every run: the seed is printed, and
 * LNT_TEST_SEED=number repeats a run. Each check forks (CK_FORK=no under sanitizers); the seed is chosen before.
 * What a program leaves out it says with test_say_skipped: tests/count_results.py counts such lines.
 */
#ifndef LNT_TESTS_TESTING_H
#define LNT_TESTS_TESTING_H

#include <check.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { TEST_SKIPPED = 77 };

#if defined(__has_feature)
#define TEST_HAS_FEATURE(_feature) __has_feature(_feature)
#else
#define TEST_HAS_FEATURE(_feature) 0
#endif
/* Sanitizers watch memory and threads: fewer repetitions will do. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || TEST_HAS_FEATURE(thread_sanitizer) ||             \
    TEST_HAS_FEATURE(address_sanitizer)
enum { TEST_SANITIZED = 1 };
#else
enum { TEST_SANITIZED = 0 };
#endif

/* The state of the random numbers; test_main seeds it. */
static inline uint64_t *test_random_state(void)
{
    static uint64_t state;

    return &state;
}

/* The output function of splitmix64. */
static inline uint64_t test_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* splitmix64: every 64-bit seed is a good one. */
static inline uint64_t test_random_from(uint64_t *state)
{
    return test_mix(*state += UINT64_C(0x9e3779b97f4a7c15));
}

static inline uint64_t test_random(void)
{
    return test_random_from(test_random_state());
}

/* A random number of a place: the same on every rank, whatever the order of the threads. */
static inline uint64_t test_mix_pair(uint64_t a, uint64_t b)
{
    return test_mix(a * UINT64_C(0x9e3779b97f4a7c15) + b + UINT64_C(0x632be59bd9b4e019));
}

static inline uint64_t test_random_below(uint64_t limit)
{
    return (limit > 0) ? test_random() % limit : 0;
}

/* Uniform in [0, 1). */
static inline double test_random_unit(void)
{
    return (double)(test_random() >> 11) * 0x1p-53;
}

static inline void test_seed_from_environment(void)
{
    const char *text = getenv("LNT_TEST_SEED");
    struct timespec now;

    if (text != NULL) {
        *test_random_state() = strtoull(text, NULL, 10);
    } else {
        clock_gettime(CLOCK_REALTIME, &now);
        *test_random_state() = (uint64_t)now.tv_nsec ^ ((uint64_t)now.tv_sec << 20) ^ ((uint64_t)getpid() << 40);
    }
    printf("seed: LNT_TEST_SEED=%" PRIu64 "\n", *test_random_state());
    (void)fflush(stdout);
}

/* A check, or a part of one, that cannot run here; the program itself goes on and passes. */
static inline void test_say_skipped(const char *what, const char *why)
{
    printf("skipped: %s: %s\n", what, why);
    (void)fflush(stdout);
}

static inline int test_main(Suite *suite)
{
    SRunner *runner;
    int failed;

    test_seed_from_environment();
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}

#endif
