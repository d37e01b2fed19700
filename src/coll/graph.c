/* Builder and memory of task graphs.
 *
 * The builder collects tasks, edges and frames in growing arrays; finish turns them into two blocks of memory: the
 * graph (tasks, successor lists, receive index, run state) and the workspace (frames and scratch, each at a multiple of
 * 64 bytes). Sizes of both are known before anything is allocated, which is what the prediction reports. Nothing here
 * runs tasks.
 */
#include "graph.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "../base/error.h"
#include "../base/hash.h"
#include "../base/memory.h"

enum { ALIGNMENT = 64 };

typedef struct edge {
    uint32_t before, after;
} edge_t;

typedef struct expected {
    uint64_t key;
    uint32_t task;
} expected_t;

typedef struct array {
    void *items;
    uint32_t n, room;
} array_t;

struct lnt_graph_builder {
    array_t tasks;       /* lnt_task_t */
    array_t frames;      /* lnt_frame_t */
    array_t headers;     /* lnt_frame_header_t, one per frame */
    array_t edges;       /* edge_t */
    array_t recvs;       /* expected_t */
    uint64_t bytes;      /* of the workspace so far */
    lnt_status_t status; /* the first error */
};

static uint64_t align_up(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

uint64_t lnt_graph_key(uint8_t phase, uint16_t shard, uint16_t chunk, uint32_t source, uint32_t segment)
{
    const uint64_t place = (uint64_t)phase << 32 | (uint64_t)shard << 16 | chunk;

    return lnt_hash64_u64(lnt_hash64_u64(0, place), (uint64_t)source << 32 | segment);
}

lnt_status_t lnt_graph_begin(lnt_graph_builder_t **builder_p)
{
    lnt_graph_builder_t *builder = lnt_calloc(1, sizeof(*builder), "graph builder");

    if (builder == NULL) {
        return LNT_ERR_NO_MEMORY;
    }
    *builder_p = builder;
    return LNT_OK;
}

static void *array_grow(array_t *array, size_t size)
{
    const uint32_t room = (array->room == 0) ? 64 : 2 * array->room;
    void *items = (room > array->room) ? lnt_calloc(room, size, "graph builder array") : NULL;

    if (items == NULL) {
        return NULL;
    }
    if (array->n != 0) {
        memcpy(items, array->items, array->n * size);
    }
    lnt_free(array->items);
    array->items = items;
    array->room = room;
    return items;
}

/* A copy of *item at the end of the array; returns its number, 0 once the builder has failed. */
static uint32_t array_add(lnt_graph_builder_t *builder, array_t *array, const void *item, size_t size)
{
    if (builder->status < 0) {
        return 0;
    }
    if ((array->n == array->room) && (array_grow(array, size) == NULL)) {
        builder->status = LNT_ERR_NO_MEMORY;
        return 0;
    }
    memcpy((uint8_t *)array->items + array->n * size, item, size);
    return array->n++;
}

uint64_t lnt_graph_add_scratch(lnt_graph_builder_t *builder, uint64_t bytes)
{
    const uint64_t offset = builder->bytes;

    if (bytes > (UINT64_C(1) << 62) - offset) {
        if (builder->status >= 0) {
            builder->status = lnt_error(LNT_ERR_OUT_OF_RANGE, "use smaller buckets", "a workspace beyond 2^62 bytes");
        }
        return 0;
    }
    builder->bytes += align_up(bytes);
    return offset;
}

uint32_t lnt_graph_add_frame(lnt_graph_builder_t *builder, uint32_t payload_bytes, uint32_t section_bytes)
{
    const uint64_t bytes = LNT_FRAME_HEADER_BYTES + (uint64_t)payload_bytes + section_bytes;
    const lnt_frame_header_t header = {.magic = LNT_FRAME_MAGIC, .version = LNT_FRAME_VERSION};
    lnt_frame_t frame = {0, section_bytes, payload_bytes};

    if (((uint64_t)payload_bytes + section_bytes > INT32_MAX) && (builder->status >= 0)) {
        builder->status = lnt_error(LNT_ERR_OUT_OF_RANGE, "use smaller segments",
                                    "a frame of %u + %u bytes: below 2^31 is legal", payload_bytes, section_bytes);
    }
    frame.offset = lnt_graph_add_scratch(builder, bytes);
    array_add(builder, &builder->headers, &header, sizeof(header));
    return array_add(builder, &builder->frames, &frame, sizeof(frame));
}

void lnt_graph_set_header(lnt_graph_builder_t *builder, uint32_t frame, const lnt_frame_header_t *header)
{
    const lnt_frame_t *sizes = builder->frames.items;
    lnt_frame_header_t *stored = builder->headers.items;

    if (builder->status < 0) {
        return;
    }
    assert(frame < builder->frames.n);
    stored[frame] = *header;
    stored[frame].magic = LNT_FRAME_MAGIC;
    stored[frame].version = LNT_FRAME_VERSION;
    stored[frame].payload_bytes = sizes[frame].payload_bytes;
    stored[frame].section_bytes = sizes[frame].section_bytes;
}

uint32_t lnt_graph_add_run(lnt_graph_builder_t *builder, lnt_task_fn_t run, uint64_t arg)
{
    const lnt_task_t task = {.kind = LNT_TASK_RUN, .run = run, .arg = arg};

    return array_add(builder, &builder->tasks, &task, sizeof(task));
}

void lnt_graph_set_elems(lnt_graph_builder_t *builder, uint32_t run, uint64_t n_elems)
{
    lnt_task_t *tasks = builder->tasks.items;

    if (builder->status >= 0) {
        assert((run < builder->tasks.n) && (tasks[run].kind == LNT_TASK_RUN));
        tasks[run].elems = (n_elems < UINT32_MAX) ? (uint32_t)n_elems : UINT32_MAX;
    }
}

uint32_t lnt_graph_add_send(lnt_graph_builder_t *builder, uint32_t frame, uint32_t peer)
{
    const lnt_task_t task = {.kind = LNT_TASK_SEND, .frame = frame, .peer = peer};

    return array_add(builder, &builder->tasks, &task, sizeof(task));
}

uint32_t lnt_graph_add_recv(lnt_graph_builder_t *builder, uint32_t frame, uint32_t peer, uint64_t key)
{
    const lnt_task_t task = {.kind = LNT_TASK_RECV, .frame = frame, .peer = peer};
    const uint32_t number = array_add(builder, &builder->tasks, &task, sizeof(task));
    const expected_t expected = {key, number};

    array_add(builder, &builder->recvs, &expected, sizeof(expected));
    return number;
}

void lnt_graph_add_edge(lnt_graph_builder_t *builder, uint32_t before, uint32_t after)
{
    const edge_t edge = {before, after};

    assert((builder->status < 0) || ((before < builder->tasks.n) && (after < builder->tasks.n) && (before != after)));
    array_add(builder, &builder->edges, &edge, sizeof(edge));
}

/* Where the arrays of a finished graph begin in its one block of memory. */
typedef struct plan {
    uint64_t tasks, next, frames, keys, recv_tasks, pending, sends, end;
} plan_t;

static plan_t plan_graph(const lnt_graph_builder_t *builder)
{
    plan_t plan = {0};

    plan.next = plan.tasks + align_up(builder->tasks.n * sizeof(lnt_task_t));
    plan.frames = plan.next + align_up(builder->edges.n * sizeof(uint32_t));
    plan.keys = plan.frames + align_up(builder->frames.n * sizeof(lnt_frame_t));
    plan.recv_tasks = plan.keys + align_up(builder->recvs.n * sizeof(uint64_t));
    plan.pending = plan.recv_tasks + align_up(builder->recvs.n * sizeof(uint32_t));
    plan.sends = plan.pending + align_up(builder->tasks.n * sizeof(uint32_t));
    plan.end = plan.sends + align_up(builder->tasks.n * sizeof(lnt_send_t));
    return plan;
}

static void place_arrays(lnt_graph_t *graph, uint8_t *memory, const plan_t *plan)
{
    graph->tasks = (lnt_task_t *)(void *)(memory + plan->tasks);
    graph->next = (uint32_t *)(void *)(memory + plan->next);
    graph->frames = (lnt_frame_t *)(void *)(memory + plan->frames);
    graph->recv_keys = (uint64_t *)(void *)(memory + plan->keys);
    graph->recv_tasks = (uint32_t *)(void *)(memory + plan->recv_tasks);
    graph->pending = (uint32_t *)(void *)(memory + plan->pending);
    graph->sends = (lnt_send_t *)(void *)(memory + plan->sends);
}

static void copy_items(void *to, const array_t *array, size_t size)
{
    if (array->n != 0) {
        memcpy(to, array->items, array->n * size);
    }
}

/* Successor lists by a counting sort of the edges: successors keep the order in which their edges were added. */
static void link_tasks(lnt_graph_t *graph, const array_t *edges)
{
    const edge_t *edge = edges->items;
    uint32_t first = 0;

    for (uint32_t i = 0; i < edges->n; ++i) {
        ++graph->tasks[edge[i].before].n_next;
        ++graph->tasks[edge[i].after].n_deps;
    }
    for (uint32_t t = 0; t < graph->n_tasks; ++t) {
        graph->tasks[t].first_next = first;
        first += graph->tasks[t].n_next;
        graph->tasks[t].n_next = 0;
    }
    for (uint32_t i = 0; i < edges->n; ++i) {
        lnt_task_t *before = &graph->tasks[edge[i].before];

        graph->next[before->first_next + before->n_next++] = edge[i].after;
    }
}

static int compare_keys(const void *a, const void *b)
{
    const uint64_t x = ((const expected_t *)a)->key, y = ((const expected_t *)b)->key;

    return (x > y) - (x < y);
}

static lnt_status_t sort_recvs(array_t *recvs)
{
    const expected_t *expected = recvs->items;

    if (recvs->n != 0) {
        qsort(recvs->items, recvs->n, sizeof(expected_t), compare_keys);
    }
    for (uint32_t i = 1; i < recvs->n; ++i) {
        if (expected[i].key == expected[i - 1].key) {
            return lnt_error(LNT_ERR_INTERNAL, "report this", "two frames of a graph have one key (tasks %u and %u)",
                             expected[i - 1].task, expected[i].task);
        }
    }
    return LNT_OK;
}

static void fill_graph(lnt_graph_t *graph, const lnt_graph_builder_t *builder)
{
    const expected_t *expected = builder->recvs.items;
    const lnt_frame_header_t *headers = builder->headers.items;

    graph->n_tasks = builder->tasks.n;
    graph->n_frames = builder->frames.n;
    graph->n_recvs = builder->recvs.n;
    copy_items(graph->tasks, &builder->tasks, sizeof(lnt_task_t));
    copy_items(graph->frames, &builder->frames, sizeof(lnt_frame_t));
    link_tasks(graph, &builder->edges);
    for (uint32_t i = 0; i < graph->n_recvs; ++i) {
        graph->recv_keys[i] = expected[i].key;
        graph->recv_tasks[i] = expected[i].task;
    }
    for (uint32_t f = 0; f < graph->n_frames; ++f) {
        *lnt_graph_header(graph, f) = headers[f];
    }
}

static lnt_status_t build(lnt_graph_builder_t *builder, lnt_graph_t *graph, const plan_t *plan)
{
    uint8_t *memory, *space;

    LNT_TRY(sort_recvs(&builder->recvs));
    memory = lnt_alloc_aligned(plan->end, "graph");
    if (memory == NULL) {
        return LNT_ERR_NO_MEMORY;
    }
    space = lnt_alloc_aligned(builder->bytes, "graph workspace");
    if (space == NULL) {
        lnt_free(memory);
        return LNT_ERR_NO_MEMORY;
    }
    place_arrays(graph, memory, plan);
    graph->space = (lnt_space_t){LNT_HOST, space, builder->bytes};
    fill_graph(graph, builder);
    return LNT_OK;
}

lnt_status_t lnt_graph_finish(lnt_graph_builder_t *builder, lnt_graph_t *graph, lnt_graph_bytes_t *bytes_p)
{
    const plan_t plan = plan_graph(builder);
    lnt_status_t status = builder->status;

    if ((status >= 0) && (graph != NULL)) {
        status = build(builder, graph, &plan);
    }
    if ((status >= 0) && (bytes_p != NULL)) {
        *bytes_p = (lnt_graph_bytes_t){builder->bytes, plan.end};
    }
    lnt_free(builder->tasks.items);
    lnt_free(builder->frames.items);
    lnt_free(builder->headers.items);
    lnt_free(builder->edges.items);
    lnt_free(builder->recvs.items);
    lnt_free(builder);
    return status;
}

void lnt_graph_release(lnt_graph_t *graph)
{
    lnt_free(graph->tasks); /* one block: see plan_t */
    lnt_free(graph->space.base);
    graph->tasks = NULL;
    graph->space.base = NULL;
}
