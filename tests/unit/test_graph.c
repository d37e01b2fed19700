/* Graph builder: random graphs against plain lists of what was added, the prediction against what was allocated, and
 * every allocation failing in turn. */
#include <string.h>

#include "../../src/base/error.h"
#include "../../src/base/memory.h"
#include "../../src/coll/graph.h"
#include "testing.h"

enum { MAX_TASKS = 200, MAX_EDGES = 400, MAX_FRAMES = 40 };

static uint32_t below(uint32_t n)
{
    return (uint32_t)test_random_below(n);
}

typedef struct wanted {
    uint32_t n_tasks, n_edges, n_frames;
    uint32_t before[MAX_EDGES], after[MAX_EDGES];
    uint32_t payload[MAX_FRAMES], section[MAX_FRAMES];
    uint64_t keys[MAX_TASKS]; /* of RECV tasks, else 0 */
    uint64_t scratch, scratch_offset;
} wanted_t;

static void nothing(lnt_graph_t *graph, uint32_t task, uint64_t arg)
{
    (void)graph;
    (void)task;
    (void)arg;
}

static void draw(wanted_t *want)
{
    memset(want, 0, sizeof(*want));
    want->n_tasks = 1 + below(MAX_TASKS);
    want->n_frames = 1 + below(MAX_FRAMES);
    want->n_edges = (want->n_tasks > 1) ? below(MAX_EDGES) : 0;
    want->scratch = below(1000);
    for (uint32_t f = 0; f < want->n_frames; ++f) {
        want->payload[f] = below(3000);
        want->section[f] = below(20);
    }
    for (uint32_t i = 0; i < want->n_edges; ++i) {
        want->before[i] = below(want->n_tasks - 1);
        want->after[i] = want->before[i] + 1 + below(want->n_tasks - 1 - want->before[i]);
    }
    for (uint32_t t = 0; t < MAX_TASKS; ++t) {
        want->keys[t] = (t % 3 == 2) ? lnt_graph_key((uint8_t)(t % 4), (uint16_t)t, 7, t + 1, t / 5) : 0;
    }
}

/* Task t: kind t % 3, peer 100 + t. */
static lnt_status_t make(wanted_t *want, lnt_graph_t *graph, lnt_graph_bytes_t *bytes)
{
    lnt_graph_builder_t *builder;

    LNT_TRY(lnt_graph_begin(&builder));
    for (uint32_t f = 0; f < want->n_frames; ++f) {
        lnt_frame_header_t header = {.phase = 1, .segment = f, .count = 17};
        uint32_t number = lnt_graph_add_frame(builder, want->payload[f], want->section[f]);

        lnt_graph_set_header(builder, number, &header);
    }
    want->scratch_offset = lnt_graph_add_scratch(builder, want->scratch);
    for (uint32_t t = 0; t < want->n_tasks; ++t) {
        uint32_t frame = t % want->n_frames;

        if (t % 3 == 0) {
            lnt_graph_add_run(builder, nothing, 1000 + t);
        } else if (t % 3 == 1) {
            lnt_graph_add_send(builder, frame, 100 + t);
        } else {
            lnt_graph_add_recv(builder, frame, 100 + t, want->keys[t]);
        }
    }
    for (uint32_t i = 0; i < want->n_edges; ++i) {
        lnt_graph_add_edge(builder, want->before[i], want->after[i]);
    }
    return lnt_graph_finish(builder, graph, bytes);
}

static void check_tasks(const wanted_t *want, const lnt_graph_t *graph)
{
    ck_assert_uint_eq(graph->n_tasks, want->n_tasks);
    for (uint32_t t = 0; t < want->n_tasks; ++t) {
        const lnt_task_t *task = &graph->tasks[t];
        uint32_t n_deps = 0, n_next = 0;

        ck_assert_int_eq(task->kind, (lnt_task_kind_t)(t % 3));
        ck_assert((task->kind != LNT_TASK_RUN) || ((task->run == nothing) && (task->arg == 1000 + t)));
        ck_assert((task->kind == LNT_TASK_RUN) || ((task->peer == 100 + t) && (task->frame == t % want->n_frames)));
        for (uint32_t i = 0; i < want->n_edges; ++i) {
            n_deps += (want->after[i] == t);
            if (want->before[i] == t) {
                ck_assert_uint_eq(graph->next[task->first_next + n_next], want->after[i]);
                ++n_next;
            }
        }
        ck_assert_uint_eq(task->n_deps, n_deps);
        ck_assert_uint_eq(task->n_next, n_next);
    }
}

static void check_frames(const wanted_t *want, const lnt_graph_t *graph)
{
    uint64_t end = 0;

    for (uint32_t f = 0; f < want->n_frames; ++f) {
        const lnt_frame_t *frame = &graph->frames[f];
        const lnt_frame_header_t *header = lnt_graph_header(graph, f);

        ck_assert_uint_eq(frame->offset % 64, 0);
        ck_assert_uint_ge(frame->offset, end);
        end = frame->offset + 64 + want->payload[f] + want->section[f];
        ck_assert_uint_le(end, graph->space.bytes);
        ck_assert(lnt_graph_section(graph, f) == (const uint8_t *)header + 64 + want->payload[f]);
        ck_assert_uint_eq(header->magic, LNT_FRAME_MAGIC);
        ck_assert_uint_eq(header->segment, f);
        ck_assert_uint_eq(header->payload_bytes, want->payload[f]);
        ck_assert_uint_eq(header->section_bytes, want->section[f]);
    }
    ck_assert_uint_ge(want->scratch_offset, end);
    ck_assert_uint_eq(want->scratch_offset % 64, 0);
    ck_assert_uint_le(want->scratch_offset + want->scratch, graph->space.bytes);
}

static void check_recvs(const wanted_t *want, const lnt_graph_t *graph)
{
    uint32_t n = 0;

    for (uint32_t t = 0; t < want->n_tasks; ++t) {
        n += (t % 3 == 2);
    }
    ck_assert_uint_eq(graph->n_recvs, n);
    for (uint32_t i = 0; i < n; ++i) {
        ck_assert_uint_eq(graph->recv_keys[i], want->keys[graph->recv_tasks[i]]);
        ck_assert((i == 0) || (graph->recv_keys[i] > graph->recv_keys[i - 1]));
    }
}

START_TEST(random_graphs)
{
    static wanted_t want;

    for (int i = 0; i < 300; ++i) {
        lnt_graph_t graph = {0};
        lnt_graph_bytes_t predicted, made;

        draw(&want);
        ck_assert_int_eq(make(&want, NULL, &predicted), LNT_OK);
        ck_assert_int_eq(make(&want, &graph, &made), LNT_OK);
        ck_assert_uint_eq(predicted.workspace, made.workspace);
        ck_assert_uint_eq(predicted.graph, made.graph);
        ck_assert_uint_eq(graph.space.bytes, made.workspace);
        check_tasks(&want, &graph);
        check_frames(&want, &graph);
        check_recvs(&want, &graph);
        lnt_graph_release(&graph);
    }
}
END_TEST

START_TEST(allocation_failures)
{
    static wanted_t want;
    uint64_t live = lnt_memory_live();
    lnt_status_t status;
    uint64_t k = 0;

    draw(&want);
    want.n_tasks = MAX_TASKS;
    do {
        lnt_graph_t graph = {0};

        lnt_memory_fail_after(++k);
        status = make(&want, &graph, NULL);
        lnt_memory_fail_after(0);
        ck_assert_msg((status == LNT_OK) || (status == LNT_ERR_NO_MEMORY), "status %d: %s", status,
                      lnt_last_error()->cause);
        lnt_graph_release(&graph);
        ck_assert_uint_eq(lnt_memory_live(), live);
    } while (status < 0);
    ck_assert_uint_gt(k, 5);
}
END_TEST

START_TEST(errors_stick)
{
    lnt_graph_builder_t *builder;
    lnt_graph_t graph = {0};
    uint32_t frame;

    ck_assert_int_eq(lnt_graph_begin(&builder), LNT_OK);
    lnt_graph_add_frame(builder, UINT32_C(1) << 31, 0);
    lnt_graph_add_run(builder, nothing, 0);
    ck_assert_int_eq(lnt_graph_finish(builder, &graph, NULL), LNT_ERR_OUT_OF_RANGE);

    ck_assert_int_eq(lnt_graph_begin(&builder), LNT_OK);
    frame = lnt_graph_add_frame(builder, 4, 0);
    lnt_graph_add_recv(builder, frame, 1, 5);
    lnt_graph_add_recv(builder, frame, 2, 5);
    ck_assert_int_eq(lnt_graph_finish(builder, &graph, NULL), LNT_ERR_INTERNAL);
    ck_assert_ptr_null(graph.tasks);

    ck_assert_int_eq(lnt_graph_begin(&builder), LNT_OK);
    ck_assert_int_eq(lnt_graph_finish(builder, &graph, NULL), LNT_OK); /* an empty graph is legal */
    ck_assert_uint_eq(graph.n_tasks, 0);
    lnt_graph_release(&graph);
}
END_TEST

START_TEST(keys_differ)
{
    enum { N = 4 * 3 * 3 * 5 * 6 };
    static uint64_t keys[N];
    size_t n = 0;

    for (uint32_t i = 0; i < N; ++i) {
        uint32_t j = i;
        uint8_t phase = (uint8_t)(j % 4);
        uint16_t shard = (uint16_t)((j /= 4) % 3), chunk = (uint16_t)((j /= 3) % 3);
        uint32_t source = (j /= 3) % 5, segment = j / 5;

        keys[n++] = lnt_graph_key(phase, shard, chunk, source, segment);
        for (size_t k = 0; k + 1 < n; ++k) {
            ck_assert_uint_ne(keys[k], keys[n - 1]);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("graph");
    TCase *tcase = tcase_create("graph");

    tcase_add_test(tcase, random_graphs);
    tcase_add_test(tcase, allocation_failures);
    tcase_add_test(tcase, errors_stick);
    tcase_add_test(tcase, keys_differ);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
