/* The executor over a network in memory: order of tasks and graphs, early and held frames, refusals, failure, stalls,
 * threads. */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>

#include "../../src/base/clock.h"
#include "../../src/base/error.h"
#include "../../src/base/memory.h"
#include "../fake_net.h"

enum { N = 2, BUCKETS = 5, SEGMENTS = 4, COUNT = 16, TASKS = BUCKETS * SEGMENTS * 4 };

static fake_net_t net;
static fake_rank_t at[N];

/* Every bucket: make SEGMENTS frames for the other rank, sum what came from it. */
typedef struct side {
    lnt_graph_t graph[BUCKETS];
    lnt_graph_t *list[BUCKETS];
    _Atomic uint8_t ready[BUCKETS];
    lnt_job_t job;
    uint32_t order[BUCKETS * SEGMENTS], n_order; /* buckets in the order their frames were made */
    uint32_t left[BUCKETS * SEGMENTS];           /* frames on the net when each was made */
    float base, sum[BUCKETS];
    uint8_t poison;
} side_t;

static side_t side[N];
static uint64_t make_elems; /* how much work a frame is said to be */

static void make(lnt_graph_t *graph, uint32_t task, uint64_t arg)
{
    side_t *mine = graph->owner;
    float *out = (float *)(void *)lnt_graph_payload(graph, (uint32_t)arg);

    (void)task;
    for (int i = 0; i < COUNT; i++) {
        out[i] = mine->base + (float)(graph->bucket * 100 + arg);
    }
    lnt_graph_header(graph, (uint32_t)arg)->flags = (uint8_t)(graph->flags | (graph->bucket == 1 ? mine->poison : 0));
    mine->left[mine->n_order] = net.n_items;
    mine->order[mine->n_order++] = graph->bucket;
}

static void sum(lnt_graph_t *graph, uint32_t task, uint64_t arg)
{
    side_t *mine = graph->owner;
    const float *in = (const float *)(const void *)lnt_graph_payload(graph, (uint32_t)arg);

    (void)task;
    for (int i = 0; i < COUNT; i++) {
        mine->sum[graph->bucket] += in[i];
    }
}

static void build_bucket(side_t *mine, uint32_t rank, uint32_t bucket)
{
    lnt_graph_builder_t *builder;
    lnt_graph_t *graph = &mine->graph[bucket];

    ck_assert_int_eq(lnt_graph_begin(&builder), LNT_OK);
    for (uint32_t s = 0; s < SEGMENTS; s++) {
        lnt_frame_header_t header = {
            .phase = 3, .bucket = bucket, .source = rank, .segment = s, .block = 64, .count = COUNT};
        uint32_t out = lnt_graph_add_frame(builder, COUNT * 4, 0), in = lnt_graph_add_frame(builder, COUNT * 4, 0);
        uint32_t made, away, came, done;

        lnt_graph_set_header(builder, out, &header);
        header.source = 1 - rank;
        lnt_graph_set_header(builder, in, &header);
        made = lnt_graph_add_run(builder, make, out);
        lnt_graph_set_elems(builder, made, make_elems);
        away = lnt_graph_add_send(builder, out, 1 - rank);
        came = lnt_graph_add_recv(builder, in, 1 - rank, lnt_graph_key(3, 0, 0, 1 - rank, s));
        done = lnt_graph_add_run(builder, sum, in);
        lnt_graph_add_edge(builder, made, away);
        lnt_graph_add_edge(builder, came, done);
    }
    ck_assert_int_eq(lnt_graph_finish(builder, graph, NULL), LNT_OK);
    graph->owner = mine;
    graph->bucket = bucket;
    mine->list[bucket] = graph;
}

static void build(void)
{
    memset(&net, 0, sizeof(net));
    memset(side, 0, sizeof(side));
    net.n_ranks = N;
    net.random = 88172645463325252u;
    for (uint32_t r = 0; r < N; r++) {
        lnt_exec_params_t params = {
            .rank = r, .n_ranks = N, .arg = &at[r], .send = fake_send, .wake = fake_wake, .fail = fake_fail};

        at[r] = (fake_rank_t){&net, r};
        ck_assert_int_eq(lnt_exec_create(&params, &net.exec[r]), LNT_OK);
        lnt_exec_sink(net.exec[r], &net.sink[r]);
        for (uint32_t b = 0; b < BUCKETS; b++) {
            build_bucket(&side[r], r, b);
        }
        ck_assert_int_eq(lnt_exec_reserve(net.exec[r], TASKS), LNT_OK);
        side[r].base = (float)(1000 * (r + 1));
    }
}

static void tear_down(void)
{
    for (uint32_t r = 0; r < N; r++) {
        for (uint32_t b = 0; b < BUCKETS; b++) {
            lnt_graph_release(&side[r].graph[b]);
        }
        lnt_exec_unreserve(net.exec[r], TASKS);
        lnt_exec_destroy(net.exec[r]);
    }
    ck_assert_uint_eq(lnt_memory_live(), 0);
}

static void post(uint32_t rank, uint64_t sequence)
{
    side_t *mine = &side[rank];

    mine->job.graphs = mine->list;
    mine->job.n_graphs = BUCKETS;
    mine->job.ready = mine->ready;
    mine->job.sequence = sequence;
    mine->job.layout_hash = 77;
    mine->n_order = 0;
    snprintf(mine->job.what, sizeof(mine->job.what), "step %d of plan", (int)sequence);
    memset(mine->sum, 0, sizeof(mine->sum));
    lnt_exec_post(net.exec[rank], &mine->job);
}

static bool is_done(uint32_t rank)
{
    return atomic_load(&side[rank].job.state) == LNT_JOB_DONE;
}

static void settle(void)
{
    bool moved = true;

    while (moved) {
        moved = lnt_exec_progress(net.exec[0]);
        moved |= lnt_exec_progress(net.exec[1]);
        moved |= fake_step(&net);
    }
}

static void ready_all(uint32_t rank)
{
    for (uint32_t b = 0; b < BUCKETS; b++) {
        lnt_job_ready(net.exec[rank], &side[rank].job, b);
    }
}

static void check_sums(void)
{
    for (uint32_t r = 0; r < N; r++) {
        ck_assert(is_done(r));
        ck_assert_int_eq(side[r].job.status, LNT_OK);
        for (uint32_t b = 0; b < BUCKETS; b++) {
            float each = (float)(1000 * (2 - r) + b * 100);

            ck_assert(side[r].sum[b] == COUNT * (SEGMENTS * each + 0 + 2 + 4 + 6));
        }
    }
}

START_TEST(runs_again_and_again)
{
    build();
    for (uint64_t sequence = 5; sequence < 30; sequence++) {
        post(0, sequence);
        post(1, sequence);
        ready_all(0);
        ready_all(1);
        settle();
        check_sums();
        ck_assert_uint_eq(side[0].job.flags, 0);
    }
    tear_down();
}
END_TEST

/* Not when all are made. */
START_TEST(frames_leave_as_soon_as_they_are_made)
{
    build();
    post(0, 1);
    ready_all(0);
    while (lnt_exec_progress(net.exec[0])) {
    }
    ck_assert_uint_eq(side[0].n_order, BUCKETS * SEGMENTS);
    for (uint32_t i = 0; i < BUCKETS * SEGMENTS; i++) {
        ck_assert_uint_eq(side[0].left[i], i);
    }
    post(1, 1);
    ready_all(1);
    settle();
    check_sums();
    tear_down();
}
END_TEST

START_TEST(calls_are_short_where_tasks_are_large)
{
    make_elems = 1 << 20;
    build();
    post(0, 1);
    post(1, 1);
    ready_all(0);
    for (uint32_t i = 1; i <= SEGMENTS; i++) {
        ck_assert(lnt_exec_progress(net.exec[0]));
        ck_assert_uint_eq(side[0].n_order, i);
    }
    ready_all(1);
    settle();
    check_sums();
    tear_down();
    make_elems = 0;
}
END_TEST

START_TEST(graphs_start_in_list_order)
{
    build();
    post(0, 1);
    post(1, 1);
    ready_all(1);
    for (uint32_t b = BUCKETS; b-- > 1;) {
        lnt_job_ready(net.exec[0], &side[0].job, b);
        settle();
        ck_assert_uint_eq(side[0].n_order, 0);
    }
    ck_assert(!is_done(0) && !is_done(1));
    lnt_job_ready(net.exec[0], &side[0].job, 0);
    settle();
    check_sums();
    for (uint32_t i = 0; i < BUCKETS * SEGMENTS; i++) {
        ck_assert_uint_eq(side[0].order[i], i / SEGMENTS);
    }
    tear_down();
}
END_TEST

START_TEST(newer_frames_are_held_and_early_ones_kept)
{
    build();
    post(1, 9);
    ready_all(1);
    settle(); /* rank 0 has armed nothing: all is held */
    ck_assert_uint_eq(net.n_items, BUCKETS * SEGMENTS);
    ck_assert_uint_gt(net.held, 0);
    post(0, 9);
    settle(); /* armed, not started: frames come in, nothing runs */
    ck_assert_uint_eq(net.n_items, 0);
    ck_assert(!is_done(0));
    ck_assert(side[0].sum[0] == 0);
    ready_all(0);
    settle();
    check_sums();
    tear_down();
}
END_TEST

START_TEST(flags_reach_both_sides)
{
    build();
    side[0].poison = LNT_FRAME_POISONED;
    atomic_store(&side[1].job.raised, LNT_FRAME_VETO);
    for (uint64_t sequence = 1; sequence < 3; sequence++) {
        post(0, sequence);
        post(1, sequence);
        ready_all(0);
        ready_all(1);
        settle();
        check_sums();
        for (uint32_t r = 0; r < N; r++) {
            ck_assert_uint_eq(side[r].job.flags, sequence == 1 ? LNT_FRAME_POISONED | LNT_FRAME_VETO : 0);
        }
        side[0].poison = 0;
        atomic_store(&side[1].job.raised, 0);
    }
    tear_down();
}
END_TEST

START_TEST(veto_reaches_graphs_that_start_later)
{
    build();
    post(0, 1);
    post(1, 1);
    ready_all(1);
    lnt_job_ready(net.exec[0], &side[0].job, 0);
    settle();
    atomic_store(&side[0].job.raised, LNT_FRAME_VETO);
    for (uint32_t b = 1; b < BUCKETS; b++) {
        lnt_job_ready(net.exec[0], &side[0].job, b);
    }
    settle();
    check_sums();
    ck_assert_uint_eq(side[0].graph[0].flags, 0);
    ck_assert_uint_eq(side[1].graph[1].flags, LNT_FRAME_VETO);
    ck_assert_uint_eq(side[0].job.flags, LNT_FRAME_VETO);
    ck_assert_uint_eq(side[1].job.flags, LNT_FRAME_VETO);
    tear_down();
}
END_TEST

START_TEST(empty_jobs_and_graphs_end)
{
    lnt_graph_builder_t *builder;
    lnt_graph_t empty[2] = {0}, *list[2] = {&empty[0], &empty[1]};
    _Atomic uint8_t ready[2];
    lnt_job_t job = {.graphs = list, .ready = ready, .sequence = 1, .raised = LNT_FRAME_VETO};

    build();
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(lnt_graph_begin(&builder), LNT_OK);
        ck_assert_int_eq(lnt_graph_finish(builder, &empty[i], NULL), LNT_OK);
    }
    lnt_exec_post(net.exec[0], &job);
    lnt_exec_progress(net.exec[0]);
    ck_assert_uint_eq(atomic_load(&job.state), LNT_JOB_DONE);
    job.n_graphs = 2;
    job.sequence = 2;
    lnt_exec_post(net.exec[0], &job);
    lnt_job_ready(net.exec[0], &job, 1);
    lnt_exec_progress(net.exec[0]);
    ck_assert_uint_eq(atomic_load(&job.state), LNT_JOB_RUNNING);
    lnt_job_ready(net.exec[0], &job, 0);
    lnt_exec_progress(net.exec[0]);
    ck_assert_uint_eq(atomic_load(&job.state), LNT_JOB_DONE);
    ck_assert_uint_eq(job.flags, 0); /* no frame carried the veto, so it does not count here either */
    lnt_graph_release(&empty[0]);
    lnt_graph_release(&empty[1]);
    tear_down();
}
END_TEST

static uint64_t n_run;

static void count_run(lnt_graph_t *graph, uint32_t task, uint64_t arg)
{
    (void)graph;
    ck_assert_uint_eq(task, arg);
    n_run += arg;
}

START_TEST(queue_grows_with_what_was_reserved)
{
    enum { WIDE = 1000 };
    lnt_graph_builder_t *builder;
    lnt_graph_t wide = {0}, *list[1] = {&wide};
    _Atomic uint8_t ready[1];
    lnt_job_t job = {.graphs = list, .n_graphs = 1, .ready = ready, .sequence = 1};

    build();
    ck_assert_int_eq(lnt_graph_begin(&builder), LNT_OK);
    for (uint64_t i = 0; i < WIDE; i++) {
        lnt_graph_add_run(builder, count_run, i);
    }
    ck_assert_int_eq(lnt_graph_finish(builder, &wide, NULL), LNT_OK);
    ck_assert_int_eq(lnt_exec_reserve(net.exec[0], WIDE), LNT_OK);
    lnt_exec_post(net.exec[0], &job);
    lnt_job_ready(net.exec[0], &job, 0);
    settle();
    ck_assert_uint_eq(atomic_load(&job.state), LNT_JOB_DONE);
    ck_assert_uint_eq(n_run, WIDE * (WIDE - 1) / 2);
    lnt_exec_unreserve(net.exec[0], WIDE);
    lnt_graph_release(&wide);
    tear_down();
}
END_TEST

/* Which header field is spoiled and what must come of it. */
static const struct refusal {
    size_t offset;
    lnt_status_t status;
    const char *text;
} refusals[] = {
    {offsetof(lnt_frame_header_t, layout_hash), LNT_ERR_MISMATCH, "layouts differ"},
    {offsetof(lnt_frame_header_t, hyper_hash), LNT_ERR_MISMATCH, "hyper-parameters differ"},
    {offsetof(lnt_frame_header_t, codec), LNT_ERR_MISMATCH, "frames differ"},
    {offsetof(lnt_frame_header_t, block), LNT_ERR_MISMATCH, "frames differ"},
    {offsetof(lnt_frame_header_t, count), LNT_ERR_MISMATCH, "frames differ"},
    {offsetof(lnt_frame_header_t, payload_bytes), LNT_ERR_MISMATCH, "frames differ"},
    {offsetof(lnt_frame_header_t, section_bytes), LNT_ERR_MISMATCH, "frames differ"},
    {offsetof(lnt_frame_header_t, bucket), LNT_ERR_MISMATCH, "unknown bucket"},
    {offsetof(lnt_frame_header_t, program), LNT_ERR_MISMATCH, "unknown bucket"},
    {offsetof(lnt_frame_header_t, phase), LNT_ERR_MISMATCH, "unexpected frame"},
    {offsetof(lnt_frame_header_t, shard), LNT_ERR_MISMATCH, "unexpected frame"},
    {offsetof(lnt_frame_header_t, chunk), LNT_ERR_MISMATCH, "unexpected frame"},
    {offsetof(lnt_frame_header_t, source), LNT_ERR_MISMATCH, "unexpected frame"},
    {offsetof(lnt_frame_header_t, segment), LNT_ERR_MISMATCH, "unexpected frame"},
    {offsetof(lnt_frame_header_t, flags), LNT_ERR_CORRUPT, "unknown flags"},
};

static lnt_frame_header_t good_header(void)
{
    lnt_frame_header_t header = *lnt_graph_header(&side[1].graph[2], 2);

    header.sequence = 7;
    header.layout_hash = 77;
    return header;
}

START_TEST(refuses_what_does_not_fit)
{
    const struct refusal *refusal = &refusals[_i];
    lnt_frame_header_t header;
    void *body = NULL;

    build();
    post(0, 7);
    lnt_exec_progress(net.exec[0]);
    header = good_header();
    ((uint8_t *)&header)[refusal->offset] = (uint8_t)(((uint8_t *)&header)[refusal->offset] + 64);
    ck_assert_int_eq(net.sink[0].locate(net.sink[0].arg, 1, &header, &body), refusal->status);
    ck_assert_ptr_null(body);
    ck_assert(net.has_failed[0]);
    ck_assert_int_eq(net.record[0].status, refusal->status);
    ck_assert_int_eq(net.record[0].peer, 1);
    ck_assert_int_eq(net.record[0].rank, 0);
    ck_assert_int_eq(net.record[0].step, 7);
    ck_assert_ptr_nonnull(strstr(net.record[0].cause, refusal->text));
    if (refusal->status == LNT_ERR_MISMATCH) {
        ck_assert_ptr_nonnull(strstr(net.record[0].cause, "step 7 of plan"));
    }
    tear_down();
}
END_TEST

START_TEST(refuses_old_and_doubled_frames)
{
    lnt_frame_header_t header;
    void *body = NULL;

    build();
    post(0, 7);
    lnt_exec_progress(net.exec[0]);
    header = good_header();
    header.sequence = 6;
    ck_assert_int_eq(net.sink[0].locate(net.sink[0].arg, 1, &header, &body), LNT_ERR_MISMATCH);
    header.sequence = 8;
    ck_assert_int_eq(net.sink[0].locate(net.sink[0].arg, 1, &header, &body), LNT_IN_PROGRESS);
    header.sequence = 7;
    ck_assert_int_eq(net.sink[0].locate(net.sink[0].arg, 0, &header, &body),
                     LNT_ERR_MISMATCH); /* right frame, wrong sender */
    ck_assert_int_eq(net.sink[0].locate(net.sink[0].arg, 1, &header, &body), LNT_OK);
    ck_assert_ptr_eq(body, lnt_graph_payload(&side[0].graph[2], 3));
    ck_assert_int_eq(net.sink[0].locate(net.sink[0].arg, 1, &header, &body), LNT_ERR_MISMATCH);
    ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, "twice"));
    tear_down();
}
END_TEST

START_TEST(failure_ends_every_job_and_leaves_the_graphs_alone)
{
    lnt_error_info_t record;
    lnt_frame_header_t header;
    void *body = NULL;
    lnt_job_t later = {.sequence = 8};

    build();
    post(0, 7);
    ready_all(0);
    for (int i = 0; i < TASKS; i++) {
        lnt_exec_progress(net.exec[0]);
    }
    header = good_header();
    ck_assert_int_eq(net.sink[0].locate(net.sink[0].arg, 1, &header, &body), LNT_OK);
    lnt_error_fill(&record, LNT_ERR_PEER_LOST, NULL, "rank 1 is gone");
    lnt_exec_fail(net.exec[0], &record);
    ck_assert(is_done(0));
    ck_assert_int_eq(side[0].job.status, LNT_ERR_PEER_LOST);
    net.sink[0].arrived(net.sink[0].arg, 1, &header, body); /* what was on its way is ignored */
    net.sink[0].sent(net.sink[0].arg, net.items[0].send);
    ck_assert_int_eq(net.sink[0].locate(net.sink[0].arg, 1, &header, &body), LNT_IN_PROGRESS);
    lnt_exec_post(net.exec[0], &later);
    lnt_exec_progress(net.exec[0]);
    ck_assert_uint_eq(atomic_load(&later.state), LNT_JOB_DONE);
    ck_assert_int_eq(later.status, LNT_ERR_PEER_LOST);
    tear_down();
}
END_TEST

START_TEST(stall_names_who_is_waited_for)
{
    lnt_stall_t stall;

    build();
    lnt_exec_stall(net.exec[0], &stall);
    ck_assert(!stall.running);
    post(0, 7);
    lnt_exec_progress(net.exec[0]);
    lnt_exec_stall(net.exec[0], &stall);
    ck_assert(stall.running && stall.own);
    ck_assert_int_eq(stall.peer, -1);
    lnt_job_ready(net.exec[0], &side[0].job, 0);
    settle();
    lnt_exec_stall(net.exec[0], &stall);
    ck_assert(stall.running && !stall.own);
    ck_assert_int_eq(stall.peer, 1);
    ck_assert_uint_eq(stall.sequence, 7);
    ck_assert_ptr_nonnull(strstr(stall.what, "bucket 0, phase 3, step 7 of plan"));
    ck_assert_uint_gt(stall.since_ns, 0);
    tear_down();
}
END_TEST

/* The progress thread of both ranks; the callers post and sleep elsewhere. */
static _Atomic bool stop;

static void *progress_thread(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop)) {
        bool moved = lnt_exec_progress(net.exec[0]);

        moved |= lnt_exec_progress(net.exec[1]);
        if (!(fake_step(&net) || moved)) {
            sched_yield();
        }
    }
    return NULL;
}

static void *caller_thread(void *arg)
{
    uint32_t rank = *(uint32_t *)arg;

    for (uint64_t sequence = 1; sequence <= 50; sequence++) {
        ck_assert_int_eq(lnt_exec_reserve(net.exec[rank], 100), LNT_OK); /* the queue grows under way */
        post(rank, sequence);
        ready_all(rank);
        while (!is_done(rank)) {
            lnt_wait_word(&side[rank].job.state, LNT_JOB_RUNNING, 100000000);
        }
        ck_assert_int_eq(side[rank].job.status, LNT_OK);
    }
    lnt_exec_unreserve(net.exec[rank], 5000);
    return NULL;
}

START_TEST(callers_and_progress_in_threads)
{
    pthread_t progress, caller[N];
    uint32_t rank[N] = {0, 1};

    build();
    atomic_store(&stop, false);
    ck_assert_int_eq(pthread_create(&progress, NULL, progress_thread, NULL), 0);
    for (uint32_t r = 0; r < N; r++) {
        ck_assert_int_eq(pthread_create(&caller[r], NULL, caller_thread, &rank[r]), 0);
    }
    for (uint32_t r = 0; r < N; r++) {
        pthread_join(caller[r], NULL);
    }
    atomic_store(&stop, true);
    pthread_join(progress, NULL);
    check_sums();
    tear_down();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("exec");
    TCase *tests = tcase_create("exec");
    SRunner *runner;
    int failed;

    tcase_add_test(tests, runs_again_and_again);
    tcase_add_test(tests, frames_leave_as_soon_as_they_are_made);
    tcase_add_test(tests, calls_are_short_where_tasks_are_large);
    tcase_add_test(tests, graphs_start_in_list_order);
    tcase_add_test(tests, newer_frames_are_held_and_early_ones_kept);
    tcase_add_test(tests, flags_reach_both_sides);
    tcase_add_test(tests, veto_reaches_graphs_that_start_later);
    tcase_add_test(tests, empty_jobs_and_graphs_end);
    tcase_add_test(tests, queue_grows_with_what_was_reserved);
    tcase_add_loop_test(tests, refuses_what_does_not_fit, 0, sizeof(refusals) / sizeof(refusals[0]));
    tcase_add_test(tests, refuses_old_and_doubled_frames);
    tcase_add_test(tests, failure_ends_every_job_and_leaves_the_graphs_alone);
    tcase_add_test(tests, stall_names_who_is_waited_for);
    tcase_add_test(tests, callers_and_progress_in_threads);
    suite_add_tcase(suite, tests);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
