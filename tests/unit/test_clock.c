/* Monotonic time and the wait on a word: it ends by a wake, by a changed word and by its timeout. */
#include <pthread.h>

#include "../../src/base/clock.h"
#include "testing.h"

START_TEST(time_does_not_run_backwards)
{
    uint64_t before = lnt_now_ns();

    for (int i = 0; i < 10000; i++) {
        uint64_t now = lnt_now_ns();

        ck_assert(now >= before);
        before = now;
    }
}
END_TEST

START_TEST(wait_ends_at_once_when_the_word_differs)
{
    _Atomic uint32_t word = 5;

    lnt_wait_word(&word, 4, UINT64_MAX); /* would sleep for an hour */
}
END_TEST

START_TEST(wait_ends_by_its_timeout)
{
    _Atomic uint32_t word = 5;

    lnt_wait_word(&word, 5, 0);
    lnt_wait_word(&word, 5, 2000000);
    ck_assert_uint_eq(atomic_load(&word), 5);
}
END_TEST

typedef struct ping {
    _Atomic uint32_t turn;
} ping_t;

enum { PINGS = 2000 };

/* Answers every odd turn with the next even one. */
static void *answer(void *arg)
{
    ping_t *ping = arg;

    for (uint32_t i = 0; i < PINGS; i++) {
        while (atomic_load(&ping->turn) != 2 * i + 1) {
            lnt_wait_word(&ping->turn, 2 * i, UINT64_C(60000000000));
        }
        atomic_store(&ping->turn, 2 * i + 2);
        lnt_wake_word(&ping->turn);
    }
    return NULL;
}

/* A lost wake-up would sleep for a minute each and end in the timeout of the test. */
START_TEST(wakes_are_not_lost)
{
    ping_t ping = {0};
    pthread_t thread;

    ck_assert_int_eq(pthread_create(&thread, NULL, answer, &ping), 0);
    for (uint32_t i = 0; i < PINGS; i++) {
        atomic_store(&ping.turn, 2 * i + 1);
        lnt_wake_word(&ping.turn);
        while (atomic_load(&ping.turn) != 2 * i + 2) {
            lnt_wait_word(&ping.turn, 2 * i + 1, UINT64_C(60000000000));
        }
    }
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("clock");
    TCase *tcase = tcase_create("clock");

    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, time_does_not_run_backwards);
    tcase_add_test(tcase, wait_ends_at_once_when_the_word_differs);
    tcase_add_test(tcase, wait_ends_by_its_timeout);
    tcase_add_test(tcase, wakes_are_not_lost);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
