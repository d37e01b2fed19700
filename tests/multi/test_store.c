/* The TCP store: joining, all-gather, and everything that can be wrong with who joins. Ranks are threads. */
#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../src/base/error.h"
#include "../src/core/store.h"

enum { RANKS_MAX = 6 };

typedef struct rank_run {
    lnt_store_params_t params;
    uint32_t           rounds;
    lnt_status_t       status;
    char               cause[LNT_ERROR_TEXT_MAX];
    pthread_t          thread;
} rank_run_t;

/* A port nobody listens on at this moment. */
static uint16_t free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    close(fd);
    return ntohs(address.sin_port);
}

static uint8_t pattern(uint32_t rank, uint32_t round, size_t i)
{
    return (uint8_t)(rank * 31 + round * 7 + i);
}

/* Every rank contributes bytes that depend on (rank, round, position). */
static lnt_status_t gather_round(lnt_store_t *store, uint32_t rank, uint32_t n_ranks, uint32_t round)
{
    size_t bytes = (size_t)round * 977;
    uint8_t *input = malloc(bytes + 1), *output = malloc(bytes * n_ranks + 1);
    lnt_status_t status;

    for (size_t i = 0; i < bytes; i++) {
        input[i] = pattern(rank, round, i);
    }
    status = lnt_store_allgather(store, input, output, bytes);
    for (size_t i = 0; status == LNT_OK && i < bytes * n_ranks; i++) {
        if (output[i] != pattern((uint32_t)(i / bytes), round, i % bytes)) {
            status = LNT_ERR_CORRUPT;
        }
    }
    free(input);
    free(output);
    return status;
}

static void *run_rank(void *arg)
{
    rank_run_t *run = arg;
    lnt_store_t *store = NULL;

    run->status = lnt_store_open(&run->params, &store);
    for (uint32_t round = 0; run->status == LNT_OK && round < run->rounds; round++) {
        run->status = gather_round(store, run->params.rank, run->params.n_ranks, round);
    }
    lnt_store_close(store);
    strcpy(run->cause, lnt_last_error()->cause);
    return NULL;
}

static void fill(rank_run_t *runs, uint32_t n, uint16_t port, const char *secret)
{
    for (uint32_t rank = 0; rank < n; rank++) {
        runs[rank] = (rank_run_t){.params = {.rank = rank, .n_ranks = n, .address = "127.0.0.1", .port = port,
                                             .secret = secret, .timeout_ms = 20000}, .rounds = 5};
    }
}

static void run_all(rank_run_t *runs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        ck_assert_int_eq(pthread_create(&runs[i].thread, NULL, run_rank, &runs[i]), 0);
    }
    for (uint32_t i = 0; i < n; i++) {
        pthread_join(runs[i].thread, NULL);
    }
}

static const char *const secrets[] = {NULL, "open sesame"};

START_TEST(all_gather)
{
    for (uint32_t n = 1; n <= RANKS_MAX; n++) {
        rank_run_t runs[RANKS_MAX];

        fill(runs, n, free_port(), secrets[_i]);
        run_all(runs, n);
        for (uint32_t rank = 0; rank < n; rank++) {
            ck_assert_msg(runs[rank].status == LNT_OK, "rank %u of %u: %d %s", rank, n, (int)runs[rank].status, runs[rank].cause);
        }
    }
}
END_TEST

START_TEST(wrong_secret_is_refused_on_both_sides)
{
    rank_run_t runs[3];

    fill(runs, 3, free_port(), "right");
    runs[0].params.timeout_ms = 1500;
    runs[2].params.secret = _i == 0 ? "wrong" : NULL;
    run_all(runs, 3);
    ck_assert_int_eq(runs[2].status, LNT_ERR_AUTH);
    ck_assert_int_eq(runs[0].status, LNT_ERR_AUTH);
    ck_assert_ptr_nonnull(strstr(runs[0].cause, " 2"));
    ck_assert_int_lt(runs[1].status, 0);
    ck_assert_ptr_null(strstr(runs[0].cause, "right"));
    ck_assert_ptr_null(strstr(runs[2].cause, "wrong"));
}
END_TEST

START_TEST(missing_rank_is_named)
{
    rank_run_t runs[4];

    fill(runs, 4, free_port(), NULL);
    runs[0].params.timeout_ms = 700;
    run_all(runs, 3); /* rank 3 never starts */
    ck_assert_int_eq(runs[0].status, LNT_ERR_TIMED_OUT);
    for (int rank = 0; rank < 3; rank++) {
        ck_assert_int_lt(runs[rank].status, 0);
        ck_assert_ptr_nonnull(strstr(runs[rank].cause, ": 3"));
    }
}
END_TEST

START_TEST(rank_that_does_not_fit_is_named_on_both_sides)
{
    rank_run_t runs[3];

    fill(runs, 3, free_port(), NULL);
    if (_i == 0) {
        runs[2].params.rank = 1; /* started twice */
    } else {
        runs[2].params.n_ranks = 4;
    }
    run_all(runs, 3);
    ck_assert_int_eq(runs[0].status, LNT_ERR_MISMATCH);
    ck_assert_ptr_nonnull(strstr(runs[0].cause, _i == 0 ? "twice" : "WORLD_SIZE 4"));
    ck_assert_int_lt(runs[1].status, 0);
    ck_assert_int_lt(runs[2].status, 0);
}
END_TEST

/* Connects, writes garbage or nothing, and goes away, while the real ranks join. */
static void *stranger(void *arg)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons(*(uint16_t *)arg)};

    for (int i = 0; i < 8; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        char garbage[200];

        for (size_t k = 0; k < sizeof(garbage); k++) {
            garbage[k] = (char)(i * 57 + (int)k * 131);
        }
        if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 && i % 2 == 0) {
            send(fd, garbage, sizeof(garbage), MSG_NOSIGNAL);
        }
        close(fd);
        usleep(3000);
    }
    return NULL;
}

START_TEST(strangers_do_no_harm)
{
    rank_run_t runs[3];
    uint16_t port = free_port();
    pthread_t thread;

    fill(runs, 3, port, secrets[_i]);
    ck_assert_int_eq(pthread_create(&thread, NULL, stranger, &port), 0);
    run_all(runs, 3);
    pthread_join(thread, NULL);
    for (int rank = 0; rank < 3; rank++) {
        ck_assert_msg(runs[rank].status == LNT_OK, "rank %d: %s", rank, runs[rank].cause);
    }
}
END_TEST

START_TEST(no_secret_means_loopback_only)
{
    rank_run_t run;

    fill(&run, 1, free_port(), NULL);
    run.params.n_ranks = 2;
    run.params.address = "192.0.2.1"; /* a documentation address: refused before any contact */
    run_rank(&run);
    ck_assert_int_eq(run.status, LNT_ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(run.cause, "loopback"));
}
END_TEST

static bool have_module(void)
{
    const lnt_auth_ops_t *ops;

    return lnt_auth_load(&ops) == LNT_OK;
}

int main(void)
{
    int with_secret = have_module();
    Suite *suite = suite_create("store");
    TCase *tcase = tcase_create("store");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, all_gather, 0, 1 + with_secret);
    tcase_add_loop_test(tcase, strangers_do_no_harm, 0, 1 + with_secret);
    tcase_add_test(tcase, missing_rank_is_named);
    tcase_add_loop_test(tcase, rank_that_does_not_fit_is_named_on_both_sides, 0, 2);
    tcase_add_test(tcase, no_secret_means_loopback_only);
    if (with_secret) {
        tcase_add_loop_test(tcase, wrong_secret_is_refused_on_both_sides, 0, 2);
    } else {
        printf("authentication tests skipped: the module is not there (libsodium)\n");
    }
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
