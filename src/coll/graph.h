/* A collective as a graph of tasks: built once, re-armed for every run.
 *
 * Kinds: RUN computes (encode, sum, decode...), SEND queues a frame, RECV is complete when its frame has arrived. A
 * task is ready when all it depends on are done; a graph is done when all its tasks are. Frames live in the graph's
 * workspace. The graph says *what*, the executor says when and where: tasks name memory by offset into lnt_space_t,
 * never by raw pointer, so that a space may be device memory later.
 *
 * Building: begin, add frames and tasks, add edges, finish. No allocation afterwards.
 */
#ifndef LNT_COLL_GRAPH_H
#define LNT_COLL_GRAPH_H

#include "../transport/transport.h"

typedef enum lnt_task_kind { LNT_TASK_RUN, LNT_TASK_SEND, LNT_TASK_RECV } lnt_task_kind_t;

typedef struct lnt_graph lnt_graph_t;

/* Computes. `task` is the task's number; arg is what the builder stored. Must not block. With a number of elements
 * (lnt_graph_set_elems) it may run on any thread beside other tasks, those of other graphs too: it touches only what
 * edges order. That holds for frame headers too: it reads those of frames that its edges say have arrived, writes those
 * of frames it makes, and touches none that a SEND may be writing. */
typedef void (*lnt_task_fn_t)(lnt_graph_t *graph, uint32_t task, uint64_t arg);

typedef struct lnt_task {
    lnt_task_kind_t kind;
    lnt_task_fn_t run; /* RUN */
    uint64_t arg;      /* RUN */
    uint32_t frame;    /* SEND, RECV */
    uint32_t peer;     /* SEND: to; RECV: from */
    uint32_t elems;    /* RUN: how much work it is; 0: for the progressing thread alone */
    uint32_t n_deps;
    uint32_t first_next, n_next; /* into graph->next */
} lnt_task_t;

/* A frame buffer: `offset` of its header in the workspace (64-byte aligned). */
typedef struct lnt_frame {
    uint64_t offset;
    uint32_t section_bytes, payload_bytes;
} lnt_frame_t;

/* Memory of a graph: type and base. Only executors and transports dereference. */
typedef struct lnt_space {
    lnt_memtype_t memtype;
    uint8_t *base;
    uint64_t bytes;
} lnt_space_t;

struct lnt_graph {
    void *owner; /* the exchange or collective that built it */
    lnt_task_t *tasks;
    uint32_t n_tasks;
    uint32_t *next; /* successor lists */
    lnt_frame_t *frames;
    uint32_t n_frames;
    uint64_t *recv_keys;  /* sorted; see lnt_graph_key */
    uint32_t *recv_tasks; /* same order */
    uint32_t n_recvs;
    lnt_space_t space;
    uint16_t program;
    uint32_t bucket;

    /* Run state: the executor's from arm to done. */
    uint32_t *pending; /* [n_tasks] dependencies left */
    lnt_send_t *sends; /* [n_tasks] used by SEND tasks */
    uint32_t left;     /* tasks not yet done */
    uint8_t flags;     /* OR of the flags of everything that came in or was made */
    bool started;
    struct lnt_job *job;
};

/* Identity of an expected frame inside a graph: phase, shard, chunk, segment and (phase 0, 1, 3) source. */
uint64_t lnt_graph_key(uint8_t phase, uint16_t shard, uint16_t chunk, uint32_t source, uint32_t segment);

/* Builder. Errors stick and are returned by finish. */
typedef struct lnt_graph_builder lnt_graph_builder_t;
lnt_status_t lnt_graph_begin(lnt_graph_builder_t **builder_p);
uint32_t lnt_graph_add_frame(lnt_graph_builder_t *builder, uint32_t payload_bytes, uint32_t section_bytes);
/* A frame gets its fixed header fields (all but flags, sequence, hashes) once. */
void lnt_graph_set_header(lnt_graph_builder_t *builder, uint32_t frame, const lnt_frame_header_t *header);
uint32_t lnt_graph_add_run(lnt_graph_builder_t *builder, lnt_task_fn_t run, uint64_t arg);
void lnt_graph_set_elems(lnt_graph_builder_t *builder, uint32_t run, uint64_t n_elems);
uint32_t lnt_graph_add_send(lnt_graph_builder_t *builder, uint32_t frame, uint32_t peer);
uint32_t lnt_graph_add_recv(lnt_graph_builder_t *builder, uint32_t frame, uint32_t peer, uint64_t key);
void lnt_graph_add_edge(lnt_graph_builder_t *builder, uint32_t before, uint32_t after);
/* Extra scratch of the owner in the same workspace; returns its offset (64-byte aligned). */
uint64_t lnt_graph_add_scratch(lnt_graph_builder_t *builder, uint64_t bytes);
/* Frees the builder in any case. With graph NULL nothing is built: *bytes_p (may be NULL) receives workspace and graph
 * bytes, exactly what finish would allocate. */
typedef struct lnt_graph_bytes {
    uint64_t workspace, graph;
} lnt_graph_bytes_t;
lnt_status_t lnt_graph_finish(lnt_graph_builder_t *builder, lnt_graph_t *graph, lnt_graph_bytes_t *bytes_p);
void lnt_graph_release(lnt_graph_t *graph);

static inline lnt_frame_header_t *lnt_graph_header(const lnt_graph_t *graph, uint32_t frame)
{
    return (lnt_frame_header_t *)(void *)(graph->space.base + graph->frames[frame].offset);
}

static inline uint8_t *lnt_graph_payload(const lnt_graph_t *graph, uint32_t frame)
{
    return graph->space.base + graph->frames[frame].offset + LNT_FRAME_HEADER_BYTES;
}

static inline uint8_t *lnt_graph_section(const lnt_graph_t *graph, uint32_t frame) /* behind the payload */
{
    return lnt_graph_payload(graph, frame) + graph->frames[frame].payload_bytes;
}

#endif
