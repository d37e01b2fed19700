/* The token bucket: bursts, shares, the long-run limit (as an inequality over measured time, so load cannot break it),
 * and what it tells a sleeper. */
#include <pthread.h>
#include <time.h>

#include "../../src/base/clock.h"
#include "../../src/transport/transport.h"
#include "../testing.h"

enum { BURST = 65536 };

static _Alignas(64) unsigned char shared[LNT_PACER_BYTES];

static lnt_pacer_t *make_pacer(double gbps)
{
    lnt_pacer_t *pacer = NULL;

    ck_assert_int_eq(lnt_pacer_create(gbps, BURST, shared, &pacer), LNT_OK);
    return pacer;
}

static void nap_ns(uint64_t ns)
{
    nanosleep(&(struct timespec){.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)}, NULL);
}

START_TEST(rejects_nonsense)
{
    lnt_pacer_t *pacer = NULL;

    ck_assert_int_eq(lnt_pacer_create(0, BURST, shared, &pacer), LNT_ERR_INVALID_ARG);
    ck_assert_int_eq(lnt_pacer_create(-1, BURST, shared, &pacer), LNT_ERR_INVALID_ARG);
    ck_assert_int_eq(lnt_pacer_create(1, 0, shared, &pacer), LNT_ERR_INVALID_ARG);
    ck_assert_int_eq(lnt_pacer_create(1, BURST, NULL, &pacer), LNT_ERR_INVALID_ARG);
    ck_assert_ptr_null(pacer);
}
END_TEST

START_TEST(one_burst_then_nothing)
{
    lnt_pacer_t *pacer = make_pacer(1e-6); /* 125 bytes a second: no tokens come back during the test */

    ck_assert_uint_eq(lnt_pacer_wait_ns(pacer), UINT64_MAX); /* nobody was refused */
    ck_assert_uint_eq(lnt_pacer_take(pacer, 1000), 1000);
    ck_assert_uint_eq(lnt_pacer_wait_ns(pacer), UINT64_MAX);
    ck_assert_uint_ge(lnt_pacer_take(pacer, 10 * BURST), BURST - 1001);
    ck_assert_uint_eq(lnt_pacer_take(pacer, BURST), 0);
    ck_assert_uint_gt(lnt_pacer_wait_ns(pacer), 1000000);
    ck_assert_uint_ne(lnt_pacer_wait_ns(pacer), UINT64_MAX);
    lnt_pacer_destroy(pacer);
}
END_TEST

START_TEST(zero_is_always_granted)
{
    lnt_pacer_t *pacer = make_pacer(1e-6);

    (void)lnt_pacer_take(pacer, 2 * BURST);
    ck_assert_uint_eq(lnt_pacer_take(pacer, 0), 0);
    lnt_pacer_destroy(pacer);
}
END_TEST

START_TEST(waiting_as_told_gets_a_useful_piece)
{
    lnt_pacer_t *pacer = make_pacer(0.1);

    for (int i = 0; i < 20; i++) {
        uint64_t wait;

        while (lnt_pacer_take(pacer, BURST) != 0) {
        }
        wait = lnt_pacer_wait_ns(pacer);
        if (wait > 0) {
            ck_assert_uint_le(wait, 2000000); /* a quarter of a burst takes 1.3 ms */
            nap_ns(wait);
        }
        ck_assert_uint_ge(lnt_pacer_take(pacer, BURST), BURST / 4);
    }
    lnt_pacer_destroy(pacer);
}
END_TEST

START_TEST(a_wish_is_remembered_until_it_can_be_met)
{
    lnt_pacer_t *pacer = make_pacer(0.1);

    while (lnt_pacer_take(pacer, BURST) != 0) {
    }
    nap_ns(3000000);
    ck_assert_uint_eq(lnt_pacer_wait_ns(pacer), 0);          /* told once: ask again */
    ck_assert_uint_eq(lnt_pacer_wait_ns(pacer), UINT64_MAX); /* nobody has been refused since */
    lnt_pacer_destroy(pacer);
}
END_TEST

typedef struct taker {
    lnt_pacer_t *pacer;
    uint64_t until, taken;
} taker_t;

static void *take_greedily(void *arg)
{
    taker_t *taker = arg;

    while (lnt_now_ns() < taker->until) {
        uint64_t got = lnt_pacer_take(taker->pacer, 1 + taker->taken % 5000);

        taker->taken += got;
        if (got == 0) {
            nap_ns(100000);
        }
    }
    return NULL;
}

START_TEST(several_ranks_stay_below_the_rate_together)
{
    const double gbps = 0.4; /* 0.05 bytes a nanosecond */
    taker_t takers[3];
    pthread_t threads[3];
    uint64_t begin = lnt_now_ns(), taken = 0, end;

    for (int i = 0; i < 3; i++) {
        takers[i] = (taker_t){.pacer = make_pacer(gbps), .until = begin + 150000000};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, take_greedily, &takers[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        taken += takers[i].taken;
    }
    end = lnt_now_ns();
    ck_assert_double_le((double)taken, (double)(end - begin) * gbps / 8 + BURST + 1);
    ck_assert_uint_ge(taken, BURST); /* and it is not stuck */
    for (int i = 0; i < 3; i++) {
        lnt_pacer_destroy(takers[i].pacer);
    }
}
END_TEST

static void clear_shared(void)
{
    for (size_t i = 0; i < sizeof(shared); i++) {
        shared[i] = 0;
    }
}

static Suite *pacer_suite(void)
{
    Suite *suite = suite_create("pacer");
    TCase *tcase = tcase_create("pacer");

    tcase_add_checked_fixture(tcase, clear_shared, NULL);
    tcase_add_test(tcase, rejects_nonsense);
    tcase_add_test(tcase, one_burst_then_nothing);
    tcase_add_test(tcase, zero_is_always_granted);
    tcase_add_test(tcase, waiting_as_told_gets_a_useful_piece);
    tcase_add_test(tcase, a_wish_is_remembered_until_it_can_be_met);
    tcase_add_test(tcase, several_ranks_stay_below_the_rate_together);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return test_main(pacer_suite());
}
