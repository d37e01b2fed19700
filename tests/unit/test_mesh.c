/* The control mesh among ranks that are processes (fork) and threads, over local sockets and TCP: connecting with
 * strangers around, set-up rounds, votes, failures and who gets the blame, abort, goodbye, descriptors. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "../../src/base/error.h"
#include "../../src/base/memory.h"
#include "../fork_ranks.h"
#include "../mesh_rig.h"
#include "../testing.h"
#include "../thread_ranks.h"

enum { WAIT_MS = 5000, DEADLINE_MS = 20000, LINGER_MS = 300 };

/* ---- set-up rounds ---- */

/* Every rank sends every peer its rank in a random-sized message, and locally the read end of a pipe it wrote to. */
typedef struct round_state {
    rank_self_t *self;
    bool tcp;
    uint32_t seen;
    int pipe_fd;
    int refuse; /* this rank's out fails */
} round_state_t;

static size_t message_bytes(uint32_t from, uint32_t to)
{
    return (from * 977 + to * 331) % (LNT_MESH_SETUP_BYTES + 1);
}

static lnt_status_t round_out(void *arg, uint32_t peer, void *buffer, size_t *bytes_p, int *fds, size_t *n_fds_p)
{
    round_state_t *state = arg;

    if (state->refuse) {
        return lnt_error(LNT_ERR_NO_MEMORY, NULL, "nothing to offer");
    }
    *bytes_p = message_bytes(state->self->rank, peer);
    memset(buffer, (int)state->self->rank + 1, *bytes_p);
    fds[0] = state->pipe_fd;
    *n_fds_p = (state->pipe_fd >= 0) ? 1 : 0;
    return LNT_OK;
}

static lnt_status_t round_in(void *arg, uint32_t peer, const void *buffer, size_t bytes, const int *fds, size_t n_fds)
{
    round_state_t *state = arg;
    const unsigned char *got = buffer;
    bool good = bytes == message_bytes(peer, state->self->rank);
    unsigned char token = 0;

    for (size_t i = 0; i < bytes; i++) {
        good &= got[i] == peer + 1;
    }
    for (size_t i = 0; i < n_fds; i++) {
        good &= ((fcntl(fds[i], F_GETFD) & FD_CLOEXEC) != 0) && (pread(fds[i], &token, 1, 0) == 1) && (token == peer);
        close(fds[i]);
    }
    good &= n_fds == ((state->tcp || (state->pipe_fd < 0)) ? 0 : 1);
    state->seen++;
    return good ? LNT_OK : lnt_error(LNT_ERR_INTERNAL, NULL, "rank %u sent the wrong things", peer);
}

/* A file whose first byte is the rank. */
static int rank_file(uint32_t rank)
{
    int fd = memfd_create("rank", MFD_CLOEXEC);
    unsigned char byte = (unsigned char)rank;

    return (pwrite(fd, &byte, 1, 0) == 1) ? fd : -1;
}

static int run_rounds(rank_self_t *self, bool tcp)
{
    mesh_rig_t rig;
    round_state_t state = {.self = self, .tcp = tcp, .pipe_fd = rank_file(self->rank)};
    lnt_mesh_setup_t setup = {.arg = &state, .out = round_out, .in = round_in};

    RANK_PASS(mesh_rig_connect(&rig, self, tcp, WAIT_MS));
    for (uint32_t round = 1; round <= 3; round++) {
        RANK_OK(lnt_mesh_exchange(rig.mesh, &setup, WAIT_MS));
        RANK_CHECK(state.seen == round * (self->n_ranks - 1));
        RANK_OK(lnt_mesh_vote(rig.mesh, LNT_OK, WAIT_MS));
    }
    close(state.pipe_fd);
    lnt_mesh_close(rig.mesh, LINGER_MS);
    return 0;
}

static int body_rounds_local(rank_self_t *self)
{
    return run_rounds(self, false);
}

static int body_rounds_tcp(rank_self_t *self)
{
    return run_rounds(self, true);
}

START_TEST(rounds_as_processes)
{
    for (uint32_t n = 1; n <= 6; n += (n < 3) ? 1 : 3) {
        ck_assert_uint_eq(fork_ranks(n, body_rounds_local, NULL, DEADLINE_MS, NULL), 0);
        ck_assert_uint_eq(fork_ranks(n, body_rounds_tcp, NULL, DEADLINE_MS, NULL), 0);
    }
}
END_TEST

START_TEST(rounds_as_threads)
{
    int before = count_fds();

    ck_assert_uint_eq(thread_ranks(4, body_rounds_local, NULL, DEADLINE_MS), 0);
    ck_assert_uint_eq(thread_ranks(4, body_rounds_tcp, NULL, DEADLINE_MS), 0);
    ck_assert_int_eq(count_fds(), before);
}
END_TEST

/* Rank 1 cannot prepare, and rank 2 votes no for another reason: nobody hangs, everybody knows. */
static int body_refusal(rank_self_t *self)
{
    mesh_rig_t rig;
    round_state_t state = {.self = self, .pipe_fd = -1, .refuse = (self->rank == 1)};
    lnt_mesh_setup_t setup = {.arg = &state, .out = round_out, .in = round_in};
    lnt_status_t status;

    RANK_PASS(mesh_rig_connect(&rig, self, false, WAIT_MS));
    status = lnt_mesh_exchange(rig.mesh, &setup, WAIT_MS);
    RANK_CHECK(status == ((self->rank == 1) ? LNT_ERR_NO_MEMORY : LNT_ERR_TRANSPORT));
    RANK_CHECK(strstr(lnt_last_error()->cause, "nothing to offer") != NULL);
    RANK_OK(lnt_mesh_vote(rig.mesh, LNT_OK, WAIT_MS));
    status = (self->rank == 2) ? lnt_error(LNT_ERR_CONFIG, "try blue", "no colour") : LNT_OK;
    RANK_CHECK(lnt_mesh_vote(rig.mesh, status, WAIT_MS) == LNT_ERR_CONFIG);
    RANK_CHECK(strstr(lnt_last_error()->cause, "no colour") != NULL);
    RANK_CHECK(strcmp(lnt_last_error()->cure, "try blue") == 0);
    RANK_CHECK((self->rank == 2) || (lnt_last_error()->peer == 2));
    lnt_mesh_close(rig.mesh, LINGER_MS);
    return 0;
}

START_TEST(refusals_and_votes)
{
    ck_assert_uint_eq(fork_ranks(3, body_refusal, NULL, DEADLINE_MS, NULL), 0);
    ck_assert_uint_eq(thread_ranks(3, body_refusal, NULL, DEADLINE_MS), 0);
}
END_TEST

/* ---- connecting ---- */

static int dial_address(const lnt_peer_id_t *peer, bool tcp)
{
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    size_t length = strlen(peer->unix_name);
    int fd = socket(tcp ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    memcpy(local.sun_path + 1, peer->unix_name, length);
    if (connect(fd, tcp ? (const void *)peer->address : (const void *)&local,
                tcp ? peer->address_bytes : (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static unsigned char garbage[3000];

static void make_garbage(void)
{
    for (size_t i = 0; i < sizeof(garbage); i++) {
        garbage[i] = (unsigned char)test_random();
    }
}

/* Some strangers say nothing, some send garbage, some almost a hello, some hang up. Descriptors go to `fds`. */
static void annoy(const lnt_peer_id_t *peer, int *fds, int n)
{
    static const unsigned char almost[] = {'L', 'N', 'L', 'H', 3, 0, 0, 0, 4, 0, 0, 0,
                                           0,   0,   0,   0,   1, 2, 3, 4, 5, 6, 7, 8};

    for (int i = 0; i < n; i++) {
        fds[i] = dial_address(peer, i % 2 == 1);
        if (fds[i] < 0) {
            continue;
        }
        if (i % 5 == 1) {
            (void)!send(fds[i], garbage, sizeof(garbage), MSG_NOSIGNAL | MSG_DONTWAIT);
        } else if (i % 5 == 2) {
            (void)!send(fds[i], almost, sizeof(almost), MSG_NOSIGNAL); /* the token is wrong */
        } else if (i % 5 == 3) {
            (void)!send(fds[i], almost, 9, MSG_NOSIGNAL);
        } else if (i % 5 == 4) {
            close(fds[i]);
            fds[i] = -1;
        }
    }
}

static int body_strangers(rank_self_t *self)
{
    enum { STRANGERS = 60 }; /* more than there are places for guests */
    mesh_rig_t rig;
    int fds[RANKS_MAX][STRANGERS];

    RANK_PASS(mesh_rig_open(&rig, self, *(const bool *)self->arg));
    for (uint32_t i = 0; i < self->n_ranks; i++) {
        annoy(&rig.peers[i], fds[i], STRANGERS);
    }
    RANK_PASS(rank_barrier(self));
    RANK_OK(lnt_mesh_connect(rig.mesh, rig.peers, WAIT_MS));
    RANK_OK(lnt_mesh_vote(rig.mesh, LNT_OK, WAIT_MS));
    lnt_mesh_close(rig.mesh, LINGER_MS);
    for (uint32_t i = 0; i < self->n_ranks; i++) {
        for (int k = 0; k < STRANGERS; k++) {
            if (fds[i][k] >= 0) {
                close(fds[i][k]);
            }
        }
    }
    return 0;
}

START_TEST(strangers_do_no_harm)
{
    bool tcp = false;
    int before = count_fds();

    make_garbage();
    ck_assert_uint_eq(fork_ranks(4, body_strangers, &tcp, DEADLINE_MS, NULL), 0);
    tcp = true;
    ck_assert_uint_eq(fork_ranks(4, body_strangers, &tcp, DEADLINE_MS, NULL), 0);
    ck_assert_uint_eq(thread_ranks(3, body_strangers, &tcp, DEADLINE_MS), 0);
    ck_assert_int_eq(count_fds(), before);
}
END_TEST

/* Rank `arg` opens and then does not connect for a long time. */
static int body_absent(rank_self_t *self)
{
    uint32_t absent = *(const uint32_t *)self->arg;
    mesh_rig_t rig;
    char name[32];

    RANK_PASS(mesh_rig_open(&rig, self, false));
    if (self->rank != absent) {
        RANK_CHECK(lnt_mesh_connect(rig.mesh, rig.peers, 300) == LNT_ERR_TIMED_OUT);
        RANK_CHECK(lnt_last_error()->peer == absent);
        (void)snprintf(name, sizeof(name), "rank %u did not come", absent);
        RANK_CHECK(strstr(lnt_last_error()->cause, name) != NULL);
        lnt_mesh_close(rig.mesh, LINGER_MS);
        RANK_PASS(rank_barrier(self));
        return 0;
    }
    RANK_PASS(rank_barrier(self));
    lnt_mesh_close(rig.mesh, 0);
    return 0;
}

START_TEST(a_rank_that_never_comes_is_named)
{
    int before = count_fds();

    for (uint32_t absent = 0; absent < 3; absent++) {
        ck_assert_uint_eq(fork_ranks(3, body_absent, &absent, DEADLINE_MS, NULL), 0);
    }
    ck_assert_uint_eq(thread_ranks(3, body_absent, &(uint32_t){1}, DEADLINE_MS), 0);
    ck_assert_int_eq(count_fds(), before);
}
END_TEST

START_TEST(an_interface_that_is_not_there_is_named)
{
    lnt_peer_id_t me = {.rank = 0, .n_ranks = 1};
    lnt_mesh_t *mesh = NULL;
    int before = count_fds();

    ck_assert_int_eq(lnt_mesh_open(&me, "nosuch0", &mesh), LNT_ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, "nosuch0"));
    ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, " lo"));
    ck_assert_ptr_null(mesh);
    ck_assert_int_eq(count_fds(), before);
    lnt_mesh_close(NULL, 0);
}
END_TEST

/* Rank 0 runs out of descriptors while the others connect to it: everybody hears why. */
static int body_no_descriptors(rank_self_t *self)
{
    mesh_rig_t rig;
    struct rlimit none = {.rlim_cur = 3, .rlim_max = 3};

    RANK_PASS(mesh_rig_open(&rig, self, false));
    if (self->rank == 0) {
        RANK_CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    }
    RANK_CHECK(lnt_mesh_connect(rig.mesh, rig.peers, WAIT_MS) < 0);
    RANK_CHECK(lnt_last_error()->peer == 0);
    lnt_mesh_close(rig.mesh, LINGER_MS);
    return 0;
}

START_TEST(a_full_descriptor_table_is_named)
{
    ck_assert_uint_eq(fork_ranks(3, body_no_descriptors, NULL, DEADLINE_MS, NULL), 0);
}
END_TEST

START_TEST(failed_allocations_leave_nothing_behind)
{
    int before = count_fds();
    lnt_status_t status = LNT_ERR_NO_MEMORY;

    for (uint64_t k = 1; status < 0; k++) {
        lnt_peer_id_t me = {.rank = 0, .n_ranks = 1};
        lnt_mesh_t *mesh = NULL;

        lnt_memory_fail_after(k);
        status = lnt_mesh_open(&me, NULL, &mesh);
        if (status == LNT_OK) {
            status = lnt_mesh_connect(mesh, &me, WAIT_MS);
        }
        ck_assert((status == LNT_OK) || (status == LNT_ERR_NO_MEMORY));
        lnt_mesh_close(mesh, 0);
    }
    lnt_memory_fail_after(0);
    ck_assert_uint_eq(lnt_memory_live(), 0);
    ck_assert_int_eq(count_fds(), before);
}
END_TEST

/* ---- failures ---- */

typedef struct failure_log {
    uint32_t times;
    lnt_error_info_t record;
} failure_log_t;

static void note_failure(void *arg, const lnt_error_info_t *record)
{
    failure_log_t *log = arg;

    log->times++;
    log->record = *record;
}

/* Progress, sleeping on the mesh's descriptor, until a failure or the end of patience. */
static void wait_failure(lnt_mesh_t *mesh, failure_log_t *log, int patience_ms)
{
    uint64_t end = rank_now_ms() + (uint64_t)patience_ms;

    while ((log->times == 0) && (rank_now_ms() < end)) {
        struct pollfd sleeper = {.fd = lnt_mesh_fd(mesh), .events = POLLIN};

        (void)poll(&sleeper, 1, 50);
        (void)lnt_mesh_progress(mesh);
    }
}

enum { DIE_AT_CONNECT, DIE_AT_EXCHANGE, DIE_AT_VOTE, DIE_LATER, DIE_POINTS };

typedef struct death {
    uint32_t victim;
    int point;
    bool tcp;
} death_t;

static void die_if(const rank_self_t *self, const death_t *death, int point)
{
    if ((self->rank == death->victim) && (death->point == point)) {
        kill(getpid(), SIGKILL);
    }
}

static int check_blame(rank_self_t *self, mesh_rig_t *rig, lnt_status_t status, const lnt_error_info_t *record)
{
    const death_t *death = self->arg;

    RANK_CHECK(status == LNT_ERR_PEER_LOST);
    RANK_CHECK(record->peer == death->victim);
    RANK_CHECK(record->cause[0] != '\0');
    lnt_mesh_close(rig->mesh, LINGER_MS);
    return 0;
}

static int body_death(rank_self_t *self)
{
    const death_t *death = self->arg;
    mesh_rig_t rig;
    round_state_t state = {.self = self, .tcp = death->tcp, .pipe_fd = -1};
    lnt_mesh_setup_t setup = {.arg = &state, .out = round_out, .in = round_in};
    failure_log_t log = {0};
    lnt_status_t status;

    RANK_PASS(mesh_rig_open(&rig, self, death->tcp));
    die_if(self, death, DIE_AT_CONNECT);
    status = lnt_mesh_connect(rig.mesh, rig.peers, WAIT_MS);
    if ((status < 0) || (death->point == DIE_AT_CONNECT)) {
        return check_blame(self, &rig, status, lnt_last_error());
    }
    die_if(self, death, DIE_AT_EXCHANGE);
    status = lnt_mesh_exchange(rig.mesh, &setup, WAIT_MS);
    if ((status < 0) || (death->point == DIE_AT_EXCHANGE)) {
        return check_blame(self, &rig, status, lnt_last_error());
    }
    die_if(self, death, DIE_AT_VOTE);
    status = lnt_mesh_vote(rig.mesh, LNT_OK, WAIT_MS);
    if ((status < 0) || (death->point == DIE_AT_VOTE)) {
        return check_blame(self, &rig, status, lnt_last_error());
    }
    lnt_mesh_on_failure(rig.mesh, note_failure, &log);
    die_if(self, death, DIE_LATER);
    wait_failure(rig.mesh, &log, WAIT_MS);
    RANK_CHECK(log.times == 1);
    return check_blame(self, &rig, log.record.status, &log.record);
}

START_TEST(the_dead_rank_is_named)
{
    death_t death = {.point = _i / 2, .tcp = (_i % 2) == 1};
    int codes[4];

    for (death.victim = 0; death.victim < 4; death.victim += 1 + (uint32_t)test_random_below(2)) {
        /* The highest rank is dialed by nobody: a death before it connects can only show as absence. */
        if ((death.point == DIE_AT_CONNECT) && (death.victim == 3)) {
            continue;
        }
        (void)fork_ranks(4, body_death, &death, DEADLINE_MS, codes);
        for (uint32_t i = 0; i < 4; i++) {
            ck_assert_msg(codes[i] == ((i == death.victim) ? 128 + SIGKILL : 0),
                          "point %d tcp %d victim %u: rank %u: %d", death.point, death.tcp, death.victim, i, codes[i]);
        }
    }
}
END_TEST

/* Rank 0 finds a failure, tells and leaves at once, without goodbye: it is not taken for the culprit. */
static int body_messenger(rank_self_t *self)
{
    mesh_rig_t rig;
    failure_log_t log = {0};
    lnt_error_info_t record;

    RANK_PASS(mesh_rig_connect(&rig, self, *(const bool *)self->arg, WAIT_MS));
    RANK_OK(lnt_mesh_vote(rig.mesh, LNT_OK, WAIT_MS));
    lnt_mesh_on_failure(rig.mesh, note_failure, &log);
    RANK_PASS(rank_barrier(self)); /* a failure could reach a rank that still collects votes */
    if (self->rank == 0) {
        lnt_error_fill(&record, LNT_ERR_MISMATCH, "agree", "ranks disagree");
        record.peer = 2;
        record.step = 77;
        record.tensor = 5;
        lnt_mesh_fail(rig.mesh, &record);
        RANK_CHECK(log.times == 1);
        record.peer = 1;
        lnt_mesh_fail(rig.mesh, &record); /* too late: the first one counts */
        RANK_CHECK(log.times == 1);
        kill(getpid(), SIGKILL);
    }
    wait_failure(rig.mesh, &log, WAIT_MS);
    RANK_CHECK(log.times == 1);
    for (int i = 0; i < 20; i++) {
        rank_nap_us(1000);
        (void)lnt_mesh_progress(rig.mesh);
    }
    RANK_CHECK(log.times == 1);
    RANK_CHECK((log.record.status == LNT_ERR_MISMATCH) && (log.record.peer == 2) && (log.record.step == 77));
    RANK_CHECK((log.record.tensor == 5) && (strcmp(log.record.cause, "ranks disagree") == 0));
    RANK_CHECK(strcmp(log.record.cure, "agree") == 0);
    lnt_mesh_close(rig.mesh, LINGER_MS);
    return 0;
}

START_TEST(the_first_record_wins)
{
    bool tcp = _i == 1;
    int codes[4];

    (void)fork_ranks(4, body_messenger, &tcp, DEADLINE_MS, codes);
    ck_assert_int_eq(codes[0], 128 + SIGKILL);
    for (uint32_t i = 1; i < 4; i++) {
        ck_assert_int_eq(codes[i], 0);
    }
}
END_TEST

/* Leaving with goodbye is no failure, even if the others stay for a while. */
static int body_goodbye(rank_self_t *self)
{
    mesh_rig_t rig;
    failure_log_t log = {0};

    RANK_PASS(mesh_rig_connect(&rig, self, *(const bool *)self->arg, WAIT_MS));
    RANK_OK(lnt_mesh_vote(rig.mesh, LNT_OK, WAIT_MS));
    lnt_mesh_on_failure(rig.mesh, note_failure, &log);
    if (self->rank != 1) {
        RANK_PASS(rank_barrier(self)); /* rank 1 has left */
        wait_failure(rig.mesh, &log, 100);
        RANK_CHECK(log.times == 0);
    }
    lnt_mesh_close(rig.mesh, LINGER_MS);
    return (self->rank == 1) ? rank_barrier(self) : 0;
}

START_TEST(leaving_is_no_failure)
{
    bool tcp = _i == 1;

    ck_assert_uint_eq(fork_ranks(3, body_goodbye, &tcp, DEADLINE_MS, NULL), 0);
    ck_assert_uint_eq(thread_ranks(3, body_goodbye, &tcp, DEADLINE_MS), 0);
}
END_TEST

/* Rank 1 is stopped for a while: slow, not dead. */
static int body_stopped(rank_self_t *self)
{
    mesh_rig_t rig;
    failure_log_t log = {0};

    RANK_PASS(mesh_rig_connect(&rig, self, false, WAIT_MS));
    RANK_OK(lnt_mesh_vote(rig.mesh, LNT_OK, WAIT_MS));
    lnt_mesh_on_failure(rig.mesh, note_failure, &log);
    if (self->rank == 1) {
        raise(SIGSTOP);
    } else {
        wait_failure(rig.mesh, &log, 300);
        RANK_CHECK(log.times == 0);
    }
    if (self->rank == 0) {
        kill(self->world->pids[1], SIGCONT);
    }
    RANK_OK(lnt_mesh_vote(rig.mesh, LNT_OK, WAIT_MS));
    lnt_mesh_close(rig.mesh, LINGER_MS);
    return 0;
}

START_TEST(a_stopped_rank_is_not_dead)
{
    ck_assert_uint_eq(fork_ranks(3, body_stopped, NULL, DEADLINE_MS, NULL), 0);
}
END_TEST

/* A child of rank 1 keeps its sockets open: the pidfd tells all the same. */
static int body_orphan(rank_self_t *self)
{
    mesh_rig_t rig;
    failure_log_t log = {0};

    RANK_PASS(mesh_rig_connect(&rig, self, false, WAIT_MS));
    RANK_OK(lnt_mesh_vote(rig.mesh, LNT_OK, WAIT_MS));
    lnt_mesh_on_failure(rig.mesh, note_failure, &log);
    RANK_PASS(rank_barrier(self));
    if (self->rank == 1) {
        pid_t child = fork();

        if (child == 0) {
            for (int i = 0; (i < 5000) && (atomic_load(&self->world->flags[0]) == 0); i++) {
                rank_nap_us(1000);
            }
            _exit(0);
        }
        kill(getpid(), SIGKILL);
    }
    wait_failure(rig.mesh, &log, WAIT_MS);
    atomic_store(&self->world->flags[0], 1);
    RANK_CHECK((log.times == 1) && (log.record.status == LNT_ERR_PEER_LOST) && (log.record.peer == 1));
    lnt_mesh_close(rig.mesh, LINGER_MS);
    return 0;
}

START_TEST(a_child_that_keeps_the_socket_hides_nothing)
{
    int codes[2];

    (void)fork_ranks(2, body_orphan, NULL, DEADLINE_MS, codes);
    ck_assert_int_eq(codes[0], 0);
    ck_assert_int_eq(codes[1], 128 + SIGKILL);
}
END_TEST

static void *abort_soon(void *arg)
{
    rank_nap_us(20000);
    lnt_mesh_abort(arg, "the user said so");
    lnt_mesh_abort(arg, "again");
    return NULL;
}

static int body_abort(rank_self_t *self)
{
    mesh_rig_t rig;
    failure_log_t log = {0};
    pthread_t thread;

    RANK_PASS(mesh_rig_connect(&rig, self, false, WAIT_MS));
    RANK_OK(lnt_mesh_vote(rig.mesh, LNT_OK, WAIT_MS));
    lnt_mesh_on_failure(rig.mesh, note_failure, &log);
    RANK_PASS(rank_barrier(self));
    if (self->rank == 2) {
        RANK_CHECK(pthread_create(&thread, NULL, abort_soon, rig.mesh) == 0);
    }
    wait_failure(rig.mesh, &log, WAIT_MS);
    if (self->rank == 2) {
        pthread_join(thread, NULL);
    }
    RANK_CHECK((log.times == 1) && (log.record.status == LNT_ERR_ABORTED) && (log.record.peer == 2));
    RANK_CHECK(strstr(log.record.cause, "the user said so") != NULL);
    lnt_mesh_close(rig.mesh, LINGER_MS);
    return 0;
}

START_TEST(abort_from_another_thread)
{
    ck_assert_uint_eq(fork_ranks(3, body_abort, NULL, DEADLINE_MS, NULL), 0);
    ck_assert_uint_eq(thread_ranks(3, body_abort, NULL, DEADLINE_MS), 0);
}
END_TEST

/* 0 waits for 1, 1 for 2, 2 for 3, and 3 for nobody; then 3 waits for 1: a circle. */
static int body_culprit(rank_self_t *self)
{
    mesh_rig_t rig;
    failure_log_t log = {0};

    RANK_PASS(mesh_rig_connect(&rig, self, *(const bool *)self->arg, WAIT_MS));
    RANK_OK(lnt_mesh_vote(rig.mesh, LNT_OK, WAIT_MS));
    lnt_mesh_on_failure(rig.mesh, note_failure, &log);
    for (int i = 0; i < 50; i++) { /* only changes travel, and they overtake each other */
        lnt_mesh_set_waiting(rig.mesh, (i + 1) % 4, "bucket 1");
    }
    lnt_mesh_set_waiting(rig.mesh, (self->rank < 3) ? (int64_t)self->rank + 1 : -1, "bucket 2");
    for (int i = 0; (i < 5000) && (self->rank != 3) && (lnt_mesh_culprit(rig.mesh, self->rank + 1) != 3); i++) {
        rank_nap_us(1000);
        (void)lnt_mesh_progress(rig.mesh);
    }
    RANK_PASS(rank_barrier(self));
    RANK_CHECK((self->rank == 3) || (lnt_mesh_culprit(rig.mesh, self->rank + 1) == 3));
    RANK_CHECK(lnt_mesh_culprit(rig.mesh, -1) == -1);
    lnt_mesh_set_waiting(rig.mesh, (self->rank == 3) ? 1 : (int64_t)self->rank + 1, "bucket 2");
    wait_failure(rig.mesh, &log, 100);
    RANK_CHECK((self->rank != 0) || (lnt_mesh_culprit(rig.mesh, 1) == 1));
    RANK_CHECK(log.times == 0);
    RANK_PASS(rank_barrier(self));
    lnt_mesh_close(rig.mesh, LINGER_MS);
    return 0;
}

START_TEST(the_chain_of_waiting_ends_at_the_culprit)
{
    bool tcp = _i == 1;

    ck_assert_uint_eq(fork_ranks(4, body_culprit, &tcp, DEADLINE_MS, NULL), 0);
}
END_TEST

/* Created and closed over and over, threads in one process: no descriptor stays. */
static int body_cycle(rank_self_t *self)
{
    for (int i = 0; i < 5; i++) {
        mesh_rig_t rig;

        RANK_PASS(mesh_rig_connect(&rig, self, i % 2 == 1, WAIT_MS));
        if (i % 3 != 0) {
            RANK_OK(lnt_mesh_vote(rig.mesh, LNT_OK, WAIT_MS));
        }
        RANK_PASS(rank_barrier(self)); /* without a vote a fast rank's goodbye could come during connect */
        lnt_mesh_close(rig.mesh, LINGER_MS);
    }
    return 0;
}

START_TEST(no_descriptor_leaks)
{
    int before = count_fds();

    ck_assert_uint_eq(thread_ranks(4, body_cycle, NULL, DEADLINE_MS), 0);
    ck_assert_int_eq(count_fds(), before);
}
END_TEST

static Suite *mesh_suite(void)
{
    Suite *suite = suite_create("mesh");
    TCase *setup = tcase_create("setup");
    TCase *faults = tcase_create("faults");

    tcase_add_test(setup, rounds_as_processes);
    tcase_add_test(setup, rounds_as_threads);
    tcase_add_test(setup, refusals_and_votes);
    tcase_add_test(setup, strangers_do_no_harm);
    tcase_add_test(setup, a_rank_that_never_comes_is_named);
    tcase_add_test(setup, an_interface_that_is_not_there_is_named);
    tcase_add_test(setup, a_full_descriptor_table_is_named);
    tcase_add_test(setup, failed_allocations_leave_nothing_behind);
    tcase_add_test(setup, no_descriptor_leaks);
    suite_add_tcase(suite, setup);
    tcase_add_loop_test(faults, the_dead_rank_is_named, 0, 2 * DIE_POINTS);
    tcase_add_loop_test(faults, the_first_record_wins, 0, 2);
    tcase_add_loop_test(faults, leaving_is_no_failure, 0, 2);
    tcase_add_test(faults, a_stopped_rank_is_not_dead);
    tcase_add_test(faults, a_child_that_keeps_the_socket_hides_nothing);
    tcase_add_test(faults, abort_from_another_thread);
    tcase_add_loop_test(faults, the_chain_of_waiting_ends_at_the_culprit, 0, 2);
    suite_add_tcase(suite, faults);
    return suite;
}

int main(void)
{
    return test_main(mesh_suite());
}
