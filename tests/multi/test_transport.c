/* Every transport row among 2 and 4 ranks, as threads and as processes: random frames in random order, checked byte by
 * byte; receivers that refuse for a while; sleeping and waking; pacing; broken peers; leaving in any order.
 *
 * What a frame holds is a function of (source, destination, number), so both sides know it without talking.
 */
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include "../../src/base/memory.h"
#include "../../src/transport/transport.h"
#include "../fork_ranks.h"
#include "../mesh_rig.h"
#include "../testing.h"
#include "../thread_ranks.h"

enum { WAIT_MS = 10000, DEADLINE_MS = 60000, SKIPPED = 77, OVERSLEEP_MS = 5000, FRAMES_MAX = 400 };

typedef struct script {
    const char *row;
    uint64_t seed, ring_bytes, largest;
    uint32_t frames;  /* per ordered pair */
    uint32_t nap_us;  /* random naps up to this, 0: none */
    bool refuse;      /* locate says "later" now and then */
    double pace_gbps; /* 0: not paced */
    bool tcp;         /* for rows between hosts */
} script_t;

static uint64_t frame_key(const script_t *script, uint32_t src, uint32_t dst, uint64_t number)
{
    return test_mix_pair(test_mix_pair(script->seed, src * 16 + dst), number);
}

/* 0, 1, 4095 and the largest size, and anything in between. */
static uint32_t frame_size(const script_t *script, uint64_t key)
{
    const uint64_t sizes[] = {
        0, 1, 4095, script->largest, test_mix_pair(key, 1) % (script->largest + 1), test_mix_pair(key, 2) % 200};
    uint64_t size = sizes[test_mix_pair(key, 3) % 6];

    return (uint32_t)((size < script->largest) ? size : script->largest);
}

static void fill_body(uint64_t key, unsigned char *body, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i += 8) {
        uint64_t word = test_mix_pair(key, i);

        memcpy(body + i, &word, (bytes - i < 8) ? bytes - i : 8);
    }
}

/* No frame: its header is all zero. */
static const unsigned char garbage[300];

/* One rank's state; as sink argument, too. */
typedef struct rig {
    mesh_rig_t mesh;
    rank_self_t *self;
    const script_t *script;
    const lnt_transport_ops_t *ops;
    lnt_transport_t *transport;
    lnt_pacer_t *pacer;
    int doorbell;
    uint8_t use[RANKS_MAX], is_inter[RANKS_MAX];
    uint64_t wire_bytes[2], expected_bytes;
    uint64_t random;
    bool refused;
    uint32_t located[RANKS_MAX], n_received, n_sent, n_broken, n_failed, n_wrong, n_overslept;
    char why[128];
    lnt_send_t sends[RANKS_MAX][FRAMES_MAX];
    lnt_status_t locate_status;
} rig_t;

static lnt_status_t sink_locate(void *arg, uint32_t src, const lnt_frame_header_t *header, void **body_p)
{
    rig_t *rig = arg;
    uint64_t key = frame_key(rig->script, src, rig->self->rank, rig->located[src]);

    if (rig->locate_status != LNT_OK) {
        return rig->locate_status;
    }
    rig->random = test_mix_pair(rig->random, 5);
    if (rig->script->refuse && (rig->random % 4 == 0)) {
        rig->refused = true;
        return LNT_IN_PROGRESS;
    }
    rig->n_wrong += (header->sequence != rig->located[src]) || (header->source != src) ||
                    (header->payload_bytes + header->section_bytes != frame_size(rig->script, key));
    if (rig->n_wrong > 0) {
        return LNT_ERR_CORRUPT;
    }
    rig->located[src]++;
    *body_p = lnt_alloc_aligned(frame_size(rig->script, key), "body"); /* several may be on their way at once */
    return LNT_OK;
}

static void sink_arrived(void *arg, uint32_t src, const lnt_frame_header_t *header, void *body)
{
    rig_t *rig = arg;
    const unsigned char *got = body;
    uint64_t bytes = (uint64_t)header->payload_bytes + header->section_bytes;
    uint64_t key = frame_key(rig->script, src, rig->self->rank, header->sequence);

    for (uint64_t i = 0; i < bytes; i += 8) {
        uint64_t word = test_mix_pair(key, i);

        rig->n_wrong += memcmp(got + i, &word, (bytes - i < 8) ? bytes - i : 8) != 0;
    }
    lnt_free(body);
    rig->n_received++;
}

static void sink_sent(void *arg, lnt_send_t *send)
{
    rig_t *rig = arg;

    rig->n_sent++;
    if (send->frame != garbage) {
        lnt_free((void *)(uintptr_t)send->frame); /* the memory is ours again */
    }
    send->frame = NULL;
}

static void sink_broken(void *arg, uint32_t peer, const char *why)
{
    rig_t *rig = arg;

    (void)peer;
    rig->n_broken++;
    (void)snprintf(rig->why, sizeof(rig->why), "%s", why);
}

static void sink_failed(void *arg)
{
    rig_t *rig = arg;

    rig->n_failed++;
}

static lnt_status_t setup_out(void *arg, uint32_t peer, void *buffer, size_t *bytes_p, int *fds, size_t *n_fds_p)
{
    rig_t *rig = arg;

    return rig->ops->offer(rig->transport, peer, buffer, bytes_p, fds, n_fds_p);
}

static lnt_status_t setup_in(void *arg, uint32_t peer, const void *buffer, size_t bytes, const int *fds, size_t n_fds)
{
    rig_t *rig = arg;

    return rig->ops->accept(rig->transport, peer, buffer, bytes, fds, n_fds);
}

static const lnt_transport_ops_t *find_row(const char *name)
{
    size_t n;
    const lnt_transport_ops_t *const *rows = lnt_transport_rows(&n);

    for (size_t i = 0; i < n; i++) {
        if (strcmp(rows[i]->name, name) == 0) {
            return rows[i];
        }
    }
    return NULL;
}

/* Usable, and can it reach the peers the way they are started here? */
static bool row_fits(rig_t *rig)
{
    char why[256] = "";

    if (!rig->ops->usable(why, sizeof(why))) {
        if (rig->self->rank == 0) test_say_skipped(rig->ops->name, why);
        return false;
    }
    for (uint32_t i = 0; i < rig->self->n_ranks; i++) {
        if ((i != rig->self->rank) && !rig->ops->reachable(&rig->mesh.me, &rig->mesh.peers[i])) {
            return false;
        }
    }
    return true;
}

static lnt_transport_params_t rig_params(rig_t *rig)
{
    return (lnt_transport_params_t){.rank = rig->self->rank,
                                    .n_ranks = rig->self->n_ranks,
                                    .peers = rig->mesh.peers,
                                    .use = rig->use,
                                    .is_inter = rig->is_inter,
                                    .pacer = rig->pacer,
                                    .doorbell = rig->doorbell,
                                    .ring_bytes = rig->script->ring_bytes,
                                    .sink = {.arg = rig,
                                             .locate = sink_locate,
                                             .arrived = sink_arrived,
                                             .sent = sink_sent,
                                             .broken = sink_broken,
                                             .failed = sink_failed},
                                    .wire_bytes = rig->wire_bytes};
}

static int rig_open(rig_t *rig, rank_self_t *self)
{
    lnt_mesh_setup_t setup = {.arg = rig, .out = setup_out, .in = setup_in};
    lnt_transport_params_t params;

    rig->self = self;
    rig->script = self->arg;
    rig->random = test_mix_pair(rig->script->seed, 1000 + self->rank);
    rig->ops = find_row(rig->script->row);
    rig->doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    RANK_CHECK((rig->ops != NULL) && (rig->doorbell >= 0));
    RANK_PASS(mesh_rig_connect(&rig->mesh, self, rig->script->tcp, WAIT_MS));
    if (!row_fits(rig)) {
        RANK_OK(lnt_mesh_vote(rig->mesh.mesh, LNT_OK, WAIT_MS));
        lnt_mesh_close(rig->mesh.mesh, 1000);
        close(rig->doorbell);
        return SKIPPED;
    }
    if (rig->script->pace_gbps > 0) {
        RANK_OK(lnt_pacer_create(rig->script->pace_gbps, 65536, &self->world->flags, &rig->pacer));
    }
    for (uint32_t i = 0; i < self->n_ranks; i++) {
        rig->use[i] = (i != self->rank);
        rig->is_inter[i] = (i % 2) != (self->rank % 2);
    }
    params = rig_params(rig);
    RANK_OK(rig->ops->open(&params, &rig->transport));
    RANK_OK(lnt_mesh_exchange(rig->mesh.mesh, &setup, WAIT_MS));
    RANK_OK(lnt_mesh_vote(rig->mesh.mesh, LNT_OK, WAIT_MS));
    return 0;
}

static void rig_close(rig_t *rig)
{
    rig->ops->close(rig->transport);
    lnt_mesh_close(rig->mesh.mesh, 1000);
    lnt_pacer_destroy(rig->pacer);
    for (uint32_t i = 0; i < rig->self->n_ranks; i++) {
        for (uint32_t k = 0; k < FRAMES_MAX; k++) {
            lnt_free((void *)(uintptr_t)rig->sends[i][k].frame);
        }
    }
    close(rig->doorbell);
    free(rig);
}

static rig_t *rig_new(void)
{
    return calloc(1, sizeof(rig_t));
}

static int post(rig_t *rig, uint32_t peer, uint32_t number)
{
    uint64_t key = frame_key(rig->script, rig->self->rank, peer, number);
    uint32_t bytes = frame_size(rig->script, key);
    unsigned char *frame = lnt_alloc_aligned(sizeof(lnt_frame_header_t) + bytes + 8, "frame");
    lnt_frame_header_t header = {.magic = LNT_FRAME_MAGIC,
                                 .version = LNT_FRAME_VERSION,
                                 .sequence = number,
                                 .source = rig->self->rank,
                                 .payload_bytes = bytes - bytes / 3,
                                 .section_bytes = bytes / 3};
    lnt_send_t *send = &rig->sends[peer][number];

    RANK_CHECK(frame != NULL);
    memcpy(frame, &header, sizeof(header));
    fill_body(key, frame + sizeof(header), bytes);
    *send = (lnt_send_t){.frame = frame, .bytes = sizeof(header) + bytes, .peer = peer};
    rig->expected_bytes += send->bytes;
    rig->ops->send(rig->transport, send);
    return 0;
}

/* What the core's loop does when nothing moved. */
static void sleep_until_rung(rig_t *rig)
{
    struct pollfd sleepers[2] = {{.fd = rig->doorbell, .events = POLLIN},
                                 {.fd = rig->ops->event_fd(rig->transport), .events = POLLIN}};
    uint64_t count, wait_ns = UINT64_MAX;
    int timeout_ms = OVERSLEEP_MS;

    if (rig->refused) { /* our own fault: ask again */
        rig->refused = false;
        return;
    }
    if (!rig->ops->arm(rig->transport)) {
        return;
    }
    wait_ns = (rig->pacer != NULL) ? lnt_pacer_wait_ns(rig->pacer) : UINT64_MAX;
    if (wait_ns != UINT64_MAX) {
        timeout_ms = (int)(wait_ns / 1000000) + 1;
    }
    if ((poll(sleepers, 2, timeout_ms) == 0) && (wait_ns == UINT64_MAX)) {
        rig->n_overslept++;
    }
    rig->ops->disarm(rig->transport);
    (void)!read(rig->doorbell, &count, sizeof(count));
}

static bool rig_done(const rig_t *rig)
{
    uint32_t all = (rig->self->n_ranks - 1) * rig->script->frames;

    return ((rig->n_received == all) && (rig->n_sent == all)) || (rig->n_broken > 0);
}

static void maybe_nap(rig_t *rig)
{
    rig->random = test_mix_pair(rig->random, 6);
    if ((rig->script->nap_us > 0) && (rig->random % 8 == 0)) {
        rank_nap_us((long)(test_mix_pair(rig->random, 7) % rig->script->nap_us));
    }
}

/* Frames are posted peer by peer in random order, some at the start, the rest as time goes by. */
static int exchange_frames(rig_t *rig)
{
    uint32_t next[RANKS_MAX] = {0};
    uint32_t left = (rig->self->n_ranks - 1) * rig->script->frames;
    uint64_t deadline = rank_now_ms() + DEADLINE_MS / 2;

    while (!rig_done(rig)) {
        bool moved;

        for (int burst = 0; (burst < 3) && (left > 0); burst++) {
            uint32_t peer = (uint32_t)(test_mix_pair(rig->random, left) % rig->self->n_ranks);

            rig->random = test_mix_pair(rig->random, 8);
            if ((peer != rig->self->rank) && (next[peer] < rig->script->frames)) {
                RANK_PASS(post(rig, peer, next[peer]++));
                left--;
            }
        }
        moved = rig->ops->progress(rig->transport);
        maybe_nap(rig);
        if (!moved && (left == 0) && !rig_done(rig)) {
            sleep_until_rung(rig);
        }
        RANK_CHECK(rank_now_ms() < deadline);
    }
    return 0;
}

static int body_exchange(rank_self_t *self)
{
    rig_t *rig = rig_new();

    int code = rig_open(rig, self);

    if (code != 0) {
        free(rig);
        return code;
    }
    RANK_PASS(exchange_frames(rig));
    RANK_CHECK((rig->n_wrong == 0) && (rig->n_broken == 0) && (rig->n_overslept == 0));
    RANK_CHECK(rig->wire_bytes[0] + rig->wire_bytes[1] == rig->expected_bytes);
    RANK_CHECK((self->n_ranks > 2) || (rig->wire_bytes[0] == 0)); /* two ranks: both frames cross nodes */
    if (rig->ops->event_fd(rig->transport) >= 0) {
        RANK_PASS(rank_barrier(self)); /* rows with a protocol of their own finish it before anybody leaves */
    }
    rig_close(rig); /* no barrier: either side may be first */
    return 0;
}

static void expect_all(const script_t *script, uint32_t n_ranks, const int *codes)
{
    for (uint32_t i = 0; i < n_ranks; i++) {
        ck_assert_msg((codes[i] == 0) || (codes[i] == SKIPPED), "row %s, %u ranks: rank %u returned %d", script->row,
                      n_ranks, i, codes[i]);
    }
}

static void run_processes(script_t script)
{
    int codes[RANKS_MAX];

    for (uint32_t n = 2; n <= 4; n += 2) {
        script.seed = test_random();
        (void)fork_ranks(n, body_exchange, &script, DEADLINE_MS, codes);
        expect_all(&script, n, codes);
    }
}

static void run_threads(script_t script)
{
    int before = count_fds();
    uint64_t live = lnt_memory_live();

    for (uint32_t n = 2; n <= 4; n += 2) {
        script.seed = test_random();
        ck_assert_uint_eq(thread_ranks(n, body_exchange, &script, DEADLINE_MS), 0);
    }
    ck_assert_int_eq(count_fds(), before);
    ck_assert_uint_eq(lnt_memory_live(), live);
}

static const script_t big = {.ring_bytes = 1 << 17, .largest = 4 << 20, .frames = 4, .refuse = true};
static const script_t stress = {
    .ring_bytes = 4096, .largest = 300, .frames = FRAMES_MAX, .nap_us = 300, .refuse = true};
static const script_t paced = {.ring_bytes = 1 << 16, .largest = 100000, .frames = 6, .pace_gbps = 0.5};

static script_t with_row(script_t script, const char *row)
{
    script.row = row;
    return script;
}

START_TEST(every_row_as_processes)
{
    size_t n;
    const lnt_transport_ops_t *const *rows = lnt_transport_rows(&n);

    for (size_t i = 0; i < n; i++) {
        script_t script = with_row(big, rows[i]->name);

        script.tcp = strcmp(rows[i]->name, "ucx") == 0; /* not between ranks that see each other as local */
        run_processes(script);
    }
}
END_TEST

START_TEST(big_frames_among_threads)
{
    run_threads(with_row(big, "loop"));
    run_threads(with_row(big, "shm"));
}
END_TEST

START_TEST(sleeping_and_waking)
{
    run_threads(with_row(stress, "loop"));
    run_processes(with_row(stress, "shm"));
}
END_TEST

START_TEST(paced_frames_arrive_whole)
{
    run_threads(with_row(paced, "loop"));
    run_processes(with_row(paced, "shm"));
}
END_TEST

/* ---- broken peers; rank 0 misbehaves, rank 1 must notice and touch nothing ---- */

static void progress_until_broken(rig_t *rig)
{
    uint64_t end = rank_now_ms() + WAIT_MS;

    while ((rig->n_broken == 0) && (rank_now_ms() < end)) {
        if (!rig->ops->progress(rig->transport)) {
            rank_nap_us(500);
        }
    }
}

static int body_garbage(rank_self_t *self)
{
    lnt_send_t send = {.frame = garbage, .bytes = sizeof(garbage), .peer = 1};
    rig_t *rig = rig_new();

    RANK_PASS(rig_open(rig, self));
    if (self->rank == 0) {
        rig->ops->send(rig->transport, &send);
        (void)rig->ops->progress(rig->transport);
    } else {
        progress_until_broken(rig);
        RANK_CHECK((rig->n_broken == 1) && (strstr(rig->why, "header") != NULL) && (rig->n_received == 0));
        for (int i = 0; i < 10; i++) {
            RANK_CHECK(!rig->ops->progress(rig->transport));
        }
        RANK_CHECK(rig->n_broken == 1); /* told once */
    }
    RANK_PASS(rank_barrier(self));
    rig_close(rig);
    return 0;
}

/* The sink refuses the frame for good. */
static int body_refused_frame(rank_self_t *self)
{
    rig_t *rig = rig_new();

    RANK_PASS(rig_open(rig, self));
    rig->locate_status = LNT_ERR_MISMATCH;
    if (self->rank == 0) {
        RANK_PASS(post(rig, 1, 0));
        (void)rig->ops->progress(rig->transport);
    } else {
        progress_until_broken(rig);
        RANK_CHECK(rig->n_broken == 1);
    }
    RANK_PASS(rank_barrier(self));
    rig_close(rig);
    return 0;
}

/* Rank 1 leaves while rank 0 has more to send than fits. */
static int body_leaver(rank_self_t *self)
{
    rig_t *rig = rig_new();

    RANK_PASS(rig_open(rig, self));
    if (self->rank == 0) {
        for (uint32_t i = 0; i < rig->script->frames; i++) {
            RANK_PASS(post(rig, 1, i));
        }
        progress_until_broken(rig);
        RANK_CHECK((rig->n_broken == 1) && (strstr(rig->why, "closed") != NULL));
        RANK_CHECK(rig->n_sent < rig->script->frames);
    }
    rig_close(rig);
    return 0;
}

START_TEST(broken_peers_are_noticed)
{
    static const rank_fn_t bodies[] = {body_garbage, body_refused_frame, body_leaver};
    script_t script = {.ring_bytes = 4096, .largest = 3000, .frames = 20, .seed = test_random()};

    script.row = (_i % 2 == 0) ? "loop" : "shm";
    ck_assert_uint_eq(thread_ranks(2, bodies[_i / 2], &script, DEADLINE_MS), 0);
    if (_i % 2 == 1) {
        ck_assert_uint_eq(fork_ranks(2, bodies[_i / 2], &script, DEADLINE_MS, NULL), 0);
    }
}
END_TEST

/* The receiver cannot take its frames yet. What it has from the start holds a good many; when there are too many and
 * memory is out, that is its own fault and not the sender's. */
static int body_out_of_memory(rank_self_t *self)
{
    rig_t *rig = rig_new();
    uint64_t end = rank_now_ms() + WAIT_MS;
    _Atomic uint32_t *over = &self->world->flags[0];
    int code = rig_open(rig, self);

    if (code != 0) {
        return code;
    }
    rig->locate_status = LNT_IN_PROGRESS;
    for (uint32_t i = 0; (self->rank == 0) && (i < rig->script->frames); i++) {
        RANK_PASS(post(rig, 1, i));
    }
    lnt_memory_fail_after(self->rank); /* the receiver's next one */
    while ((atomic_load(over) == 0) && (rank_now_ms() < end)) {
        if (!rig->ops->progress(rig->transport)) {
            rank_nap_us(500);
        }
        atomic_fetch_add(over, (rig->n_failed > 0) || (rig->n_broken > 0));
    }
    if (self->rank == 1) {
        RANK_CHECK(lnt_memory_fault_fired() && (rig->n_failed == 1) && (rig->n_broken == 0));
        RANK_CHECK(lnt_last_error()->status == LNT_ERR_NO_MEMORY);
    }
    lnt_memory_fail_after(0);
    RANK_PASS(rank_barrier(self));
    rig_close(rig);
    return 0;
}

START_TEST(own_lack_of_memory_is_not_the_peers_fault)
{
    script_t script = {
        .row = "ucx", .tcp = true, .ring_bytes = 4096, .largest = 100, .frames = 200, .seed = test_random()};
    int codes[2];

    (void)fork_ranks(2, body_out_of_memory, &script, DEADLINE_MS, codes);
    for (int i = 0; i < 2; i++) {
        ck_assert((codes[i] == 0) || (codes[i] == SKIPPED)); /* every_row_as_processes says so */
    }
}
END_TEST

START_TEST(failed_allocations_leave_nothing_behind)
{
    uint64_t wire_bytes[2] = {0};
    uint8_t use[4] = {0, 1, 1, 1}, is_inter[4] = {0};
    lnt_transport_params_t params = {.n_ranks = 4,
                                     .use = use,
                                     .is_inter = is_inter,
                                     .doorbell = -1,
                                     .ring_bytes = 1 << 20,
                                     .wire_bytes = wire_bytes};
    lnt_transport_t *transport = NULL;
    int before = count_fds();

    for (uint64_t k = 1;; k++) {
        lnt_status_t status;

        lnt_memory_fail_after(k);
        status = find_row("loop")->open(&params, &transport);
        if (status == LNT_OK) {
            break;
        }
        ck_assert_int_eq(status, LNT_ERR_NO_MEMORY);
        ck_assert_ptr_null(transport);
    }
    lnt_memory_fail_after(0);
    find_row("loop")->close(transport);
    find_row("loop")->close(NULL);
    ck_assert_uint_eq(lnt_memory_live(), 0);
    ck_assert_int_eq(count_fds(), before);
}
END_TEST

/* shm under a limit of address space: mmap says no, in words. Sanitizers need all the space there is. */
static int body_no_space(rank_self_t *self)
{
    uint64_t wire_bytes[2] = {0};
    uint8_t use[2] = {0, 1}, is_inter[2] = {0};
    lnt_transport_params_t params = {.n_ranks = 2,
                                     .use = use,
                                     .is_inter = is_inter,
                                     .doorbell = -1,
                                     .ring_bytes = 8 << 20,
                                     .wire_bytes = wire_bytes};
    lnt_transport_t *transport = NULL;
    struct rlimit space = {.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
    int before = count_fds();

    (void)self;
    RANK_CHECK(setrlimit(RLIMIT_AS, &space) == 0);
    RANK_CHECK(find_row("shm")->open(&params, &transport) == LNT_ERR_NO_MEMORY);
    RANK_CHECK(strstr(lnt_last_error()->cause, "rings") != NULL);
    RANK_CHECK(strstr(lnt_last_error()->cure, "LINNET_RING_BYTES") != NULL);
    RANK_CHECK((transport == NULL) && (count_fds() == before));
    return 0;
}

START_TEST(memory_that_is_not_there_is_named)
{
    ck_assert_uint_eq(fork_ranks(1, body_no_space, NULL, DEADLINE_MS, NULL), 0);
}
END_TEST

static Suite *transport_suite(void)
{
    Suite *suite = suite_create("transport");
    TCase *tcase = tcase_create("transport");

    tcase_add_test(tcase, every_row_as_processes);
    tcase_add_test(tcase, big_frames_among_threads);
    tcase_add_test(tcase, sleeping_and_waking);
    tcase_add_test(tcase, paced_frames_arrive_whole);
    tcase_add_loop_test(tcase, broken_peers_are_noticed, 0, 6);
    tcase_add_test(tcase, own_lack_of_memory_is_not_the_peers_fault);
    tcase_add_test(tcase, failed_allocations_leave_nothing_behind);
    if (TEST_SANITIZED) {
        test_say_skipped("a limit of address space", "sanitizers need all the space there is");
    } else {
        tcase_add_test(tcase, memory_that_is_not_there_is_named);
    }
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return test_main(transport_suite());
}
