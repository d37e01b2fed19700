/* The TCP store: joining, all-gather, and everything that can be wrong with who joins. Ranks are threads. */
#include <arpa/inet.h>
#include <linnet/context.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "../src/core/store_internal.h"
#include "../testing.h"

enum { RANKS_MAX = 6 };

typedef struct rank_run {
    lnt_store_params_t params;
    uint32_t rounds;
    lnt_status_t status;
    char cause[LNT_ERROR_TEXT_MAX];
    pthread_t thread;
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
    return (uint8_t)(*test_random_state() + rank * 31 + round * 7 + i); /* the state rests while ranks run */
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
        runs[rank] = (rank_run_t){.params = {.rank = rank,
                                             .n_ranks = n,
                                             .address = "127.0.0.1",
                                             .port = port,
                                             .secret = secret,
                                             .timeout_ms = 20000},
                                  .rounds = 5};
    }
}

static void start(rank_run_t *runs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        ck_assert_int_eq(pthread_create(&runs[i].thread, NULL, run_rank, &runs[i]), 0);
    }
}

static void finish(rank_run_t *runs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        pthread_join(runs[i].thread, NULL);
    }
}

static void run_all(rank_run_t *runs, uint32_t n)
{
    start(runs, n);
    finish(runs, n);
}

static void all_fine(const rank_run_t *runs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        ck_assert_msg(runs[i].status == LNT_OK, "rank %u of %u: %d %s", i, n, (int)runs[i].status, runs[i].cause);
    }
}

/* A plain connection to rank 0, as soon as it listens. */
static int knock(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};

    for (int i = 0; i < 2000; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0) {
            return fd;
        }
        close(fd);
        usleep(5000);
    }
    ck_abort_msg("rank 0 does not listen");
    return -1;
}

static const char *const secrets[] = {NULL, "open sesame"};

START_TEST(all_gather)
{
    for (uint32_t n = 1; n <= RANKS_MAX; n++) {
        rank_run_t runs[RANKS_MAX];

        fill(runs, n, free_port(), secrets[_i]);
        run_all(runs, n);
        for (uint32_t rank = 0; rank < n; rank++) {
            ck_assert_msg(runs[rank].status == LNT_OK, "rank %u of %u: %d %s", rank, n, (int)runs[rank].status,
                          runs[rank].cause);
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
    for (int rank = 0; rank < 3; rank++) {
        ck_assert_int_eq(runs[rank].status, LNT_ERR_TIMED_OUT);
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
    ck_assert_int_eq(runs[2].status, _i == 0 ? runs[1].status : LNT_ERR_MISMATCH);
}
END_TEST

static bool have_ipv6(void)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool can = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0;

    if (fd >= 0) {
        close(fd);
    }
    return can;
}

START_TEST(all_gather_over_ipv6)
{
    rank_run_t runs[3];

    fill(runs, 3, free_port(), NULL);
    for (uint32_t rank = 0; rank < 3; rank++) {
        runs[rank].params.address = "::1";
    }
    run_all(runs, 3);
    all_fine(runs, 3);
}
END_TEST

/* More silent connections than rank 0 has patience for, were it to serve one after the other. */
START_TEST(silent_strangers_delay_nobody)
{
    rank_run_t runs[3];
    int silent[12];
    uint16_t port = free_port();

    fill(runs, 3, port, secrets[_i]);
    start(runs, 1);
    for (int i = 0; i < 12; i++) {
        silent[i] = knock(port);
    }
    start(runs + 1, 2);
    finish(runs, 3);
    all_fine(runs, 3);
    for (int i = 0; i < 12; i++) {
        close(silent[i]);
    }
}
END_TEST

/* A crowd larger than rank 0 keeps: the first are shown out. */
START_TEST(crowds_of_strangers_do_no_harm)
{
    enum { CROWD = LNT_STORE_GUESTS + 20 };
    rank_run_t runs[2];
    int silent[CROWD];
    uint16_t port = free_port();

    fill(runs, 2, port, NULL);
    start(runs, 1);
    for (int i = 0; i < CROWD; i++) {
        silent[i] = knock(port);
    }
    start(runs + 1, 1);
    finish(runs, 2);
    all_fine(runs, 2);
    for (int i = 0; i < CROWD; i++) {
        close(silent[i]);
    }
}
END_TEST

/* Rank 2 is another build of the library: it and all others hear it by name. */
START_TEST(other_library_version_is_named_on_all_sides)
{
    rank_run_t runs[2];
    lnt_store_hello_t hello = {.rank = 2, .n_ranks = 3, .library_version = (uint32_t)LINNET_VERSION + 1};
    lnt_store_link_t link = {.fd = -1};
    lnt_store_failure_t failure = {0};
    uint64_t deadline = lnt_store_deadline(20000);
    uint32_t other, type = 0;
    size_t bytes;

    fill(runs, 2, free_port(), NULL);
    runs[0].params.n_ranks = runs[1].params.n_ranks = 3;
    start(runs, 2);
    link.fd = knock(runs[0].params.port);
    ck_assert_int_eq(lnt_store_link_handshake(&link, NULL, &hello, &other, deadline), LNT_OK);
    ck_assert_int_eq(lnt_store_link_receive(&link, &type, &failure, sizeof(failure), &bytes, deadline), LNT_OK);
    finish(runs, 2);
    lnt_store_link_close(&link);
    ck_assert_uint_eq(type, LNT_STORE_ERROR);
    ck_assert_int_eq(failure.status, LNT_ERR_VERSION);
    ck_assert_ptr_nonnull(strstr(failure.text, "rank 2"));
    ck_assert_int_eq(runs[0].status, LNT_ERR_VERSION);
    ck_assert_ptr_nonnull(strstr(runs[0].cause, "rank 2"));
    ck_assert_int_lt(runs[1].status, 0); /* it may have come too late to be told why */
}
END_TEST

START_TEST(other_protocol_is_named_by_rank_0)
{
    rank_run_t run;
    const uint32_t hello[2] = {LNT_STORE_MAGIC, 77};
    uint32_t reply[3];
    int fd;

    fill(&run, 1, free_port(), NULL);
    run.params.n_ranks = 2;
    run.params.timeout_ms = 1500;
    start(&run, 1);
    fd = knock(run.params.port);
    ck_assert_int_eq(send(fd, hello, sizeof(hello), MSG_NOSIGNAL), sizeof(hello));
    ck_assert_int_eq(recv(fd, reply, sizeof(reply), MSG_WAITALL), sizeof(reply));
    close(fd);
    finish(&run, 1);
    ck_assert_uint_eq(reply[0], LNT_STORE_MAGIC);
    ck_assert_uint_eq(reply[1], LNT_STORE_PROTOCOL);
    ck_assert_int_eq((int32_t)reply[2], LNT_ERR_VERSION);
    ck_assert_int_eq(run.status, LNT_ERR_VERSION);
    ck_assert_ptr_nonnull(strstr(run.cause, "protocol 77"));
}
END_TEST

/* Plays rank 0 to rank 1: answers with what is given, and goes away. */
static void answer_and_leave(rank_run_t *run, const void *answer, size_t bytes)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd;
    char proof[LNT_AUTH_BYTES];
    lnt_store_hello_t hello;

    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &length), 0);
    ck_assert_int_eq(listen(listener, 4), 0);
    fill(run, 1, ntohs(address.sin_port), NULL);
    run->params.rank = 1;
    run->params.n_ranks = 2;
    start(run, 1);
    fd = accept(listener, NULL, NULL);
    ck_assert_int_eq(recv(fd, &hello, sizeof(hello), MSG_WAITALL), sizeof(hello));
    ck_assert_int_eq(send(fd, answer, bytes, MSG_NOSIGNAL), bytes);
    if (bytes == sizeof(lnt_store_reply_t)) {
        ck_assert_int_eq(recv(fd, proof, sizeof(proof), MSG_WAITALL), sizeof(proof));
    }
    close(fd);
    close(listener);
    finish(run, 1);
}

START_TEST(other_protocol_is_named_by_the_others)
{
    rank_run_t run;
    const uint32_t reply[2] = {LNT_STORE_MAGIC, 78};

    answer_and_leave(&run, reply, sizeof(reply));
    ck_assert_int_eq(run.status, LNT_ERR_VERSION);
    ck_assert_ptr_nonnull(strstr(run.cause, "protocol 78"));
}
END_TEST

START_TEST(rank_0_that_dies_is_not_another_secret)
{
    rank_run_t run;
    const lnt_store_reply_t reply = {.magic = LNT_STORE_MAGIC, .protocol = LNT_STORE_PROTOCOL};

    answer_and_leave(&run, &reply, _i == 0 ? 0 : sizeof(reply));
    ck_assert_int_eq(run.status, LNT_ERR_PEER_LOST);
    ck_assert_ptr_nonnull(strstr(run.cause, "rank 0 went away"));
    ck_assert_ptr_null(strstr(run.cause, "secret"));
}
END_TEST

START_TEST(second_rank_0_is_named_on_both_sides)
{
    rank_run_t runs[2];
    uint16_t port = free_port();

    fill(runs, 2, port, secrets[_i]);
    runs[1].params.rank = 0;
    start(runs, 1);
    close(knock(port)); /* the first one listens */
    start(runs + 1, 1);
    finish(runs, 2);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(runs[i].status, LNT_ERR_MISMATCH);
        ck_assert_ptr_nonnull(strstr(runs[i].cause, "second process says it is rank 0"));
    }
}
END_TEST

/* Without a free descriptor rank 0 says so, instead of turning round until its time is up. */
START_TEST(no_descriptor_is_an_error_at_once)
{
    enum { LIMIT = 64 };
    rank_run_t run;
    struct rlimit before, limit;
    uint16_t port = free_port();
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), taken[LIMIT], n_taken = 0;

    fill(&run, 1, port, NULL);
    run.params.n_ranks = 2;
    start(&run, 1);
    close(knock(port));
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    limit = before;
    limit.rlim_cur = LIMIT;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    while (n_taken < LIMIT && (taken[n_taken] = dup(fd)) >= 0) {
        n_taken++;
    }
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    finish(&run, 1);
    while (n_taken > 0) {
        close(taken[--n_taken]); /* these alone: others belong to the test program */
    }
    close(fd);
    (void)setrlimit(RLIMIT_NOFILE, &before);
    ck_assert_int_eq(run.status, LNT_ERR_SYSTEM);
    ck_assert_ptr_nonnull(strstr(run.cause, "cannot accept"));
}
END_TEST

/* Every address a name resolves to counts, not the first alone. */
START_TEST(loopback_means_all_addresses)
{
    struct sockaddr_in inside = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in outside = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xc0000201)};
    struct sockaddr_in6 inside6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct addrinfo third = {.ai_addr = (struct sockaddr *)&inside};
    struct addrinfo second = {.ai_addr = (struct sockaddr *)&inside6, .ai_next = &third};
    struct addrinfo first = {.ai_addr = (struct sockaddr *)&inside, .ai_next = &second};

    ck_assert(lnt_store_all_loopback(&first));
    third.ai_addr = (struct sockaddr *)&outside;
    ck_assert(!lnt_store_all_loopback(&first));
}
END_TEST

/* Connects, writes garbage or nothing, and goes away, while the real ranks join. */
static void *stranger(void *arg)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(*(uint16_t *)arg)};

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

static Suite *store_suite(void)
{
    int with_secret = have_module();
    Suite *suite = suite_create("store");
    TCase *tcase = tcase_create("store");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, all_gather, 0, 1 + with_secret);
    tcase_add_loop_test(tcase, strangers_do_no_harm, 0, 1 + with_secret);
    tcase_add_loop_test(tcase, silent_strangers_delay_nobody, 0, 1 + with_secret);
    tcase_add_test(tcase, crowds_of_strangers_do_no_harm);
    tcase_add_test(tcase, missing_rank_is_named);
    tcase_add_loop_test(tcase, rank_that_does_not_fit_is_named_on_both_sides, 0, 2);
    tcase_add_test(tcase, other_library_version_is_named_on_all_sides);
    tcase_add_test(tcase, other_protocol_is_named_by_rank_0);
    tcase_add_test(tcase, other_protocol_is_named_by_the_others);
    tcase_add_loop_test(tcase, rank_0_that_dies_is_not_another_secret, 0, 2);
    tcase_add_loop_test(tcase, second_rank_0_is_named_on_both_sides, 0, 1 + with_secret);
    tcase_add_test(tcase, no_descriptor_is_an_error_at_once);
    tcase_add_test(tcase, no_secret_means_loopback_only);
    tcase_add_test(tcase, loopback_means_all_addresses);
    if (with_secret) {
        tcase_add_loop_test(tcase, wrong_secret_is_refused_on_both_sides, 0, 2);
    } else {
        test_say_skipped("authentication of the store", "the module is not there (libsodium)");
    }
    if (have_ipv6()) {
        tcase_add_test(tcase, all_gather_over_ipv6);
    } else {
        test_say_skipped("the store over IPv6", "this machine has no ::1");
    }
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return test_main(store_suite());
}
