/* A small job for tests of communicators: every rank sends `bytes` to every other and checks what comes. */
#ifndef TESTS_SWAP_JOB_H
#define TESTS_SWAP_JOB_H

#include "../src/core/core.h"
#include "rank_common.h"

typedef struct swap_job {
    lnt_comm_t *comm;
    lnt_graph_t graph;
    lnt_graph_t *list[1];
    _Atomic uint8_t ready[1];
    lnt_job_t job;
    uint32_t bytes, wrong;
} swap_job_t;

static inline uint8_t swap_value(uint32_t src, uint32_t dst, uint64_t sequence, uint32_t i)
{
    return (uint8_t)(src * 31 + dst * 17 + sequence * 7 + i);
}

/* Frames lie in pairs: 2 * peer out, 2 * peer + 1 in. */
static inline void swap_make(lnt_graph_t *graph, uint32_t task, uint64_t peer)
{
    swap_job_t *swap = graph->owner;
    uint8_t *out = lnt_graph_payload(graph, 2 * (uint32_t)peer);

    (void)task;
    for (uint32_t i = 0; i < swap->bytes; i++)
        out[i] = swap_value(swap->comm->rank, (uint32_t)peer, swap->job.sequence, i);
}

static inline void swap_check(lnt_graph_t *graph, uint32_t task, uint64_t peer)
{
    swap_job_t *swap = graph->owner;
    const uint8_t *in = lnt_graph_payload(graph, 2 * (uint32_t)peer + 1);

    (void)task;
    for (uint32_t i = 0; i < swap->bytes; i++) {
        swap->wrong += (in[i] != swap_value((uint32_t)peer, swap->comm->rank, swap->job.sequence, i));
    }
}

static inline void swap_add_peer(lnt_graph_builder_t *builder, const swap_job_t *swap, uint32_t peer)
{
    const uint32_t me = swap->comm->rank;
    lnt_frame_header_t header = {
        .magic = LNT_FRAME_MAGIC, .version = LNT_FRAME_VERSION, .phase = 3, .source = me, .count = swap->bytes};
    const uint32_t out = lnt_graph_add_frame(builder, swap->bytes, 0),
                   in = lnt_graph_add_frame(builder, swap->bytes, 0);
    uint32_t before, after;

    lnt_graph_set_header(builder, out, &header);
    header.source = peer;
    lnt_graph_set_header(builder, in, &header);
    if (peer == me) return;
    before = lnt_graph_add_run(builder, swap_make, peer);
    after = lnt_graph_add_send(builder, out, peer);
    lnt_graph_add_edge(builder, before, after);
    before = lnt_graph_add_recv(builder, in, peer, lnt_graph_key(3, 0, 0, peer, 0));
    after = lnt_graph_add_run(builder, swap_check, peer);
    lnt_graph_add_edge(builder, before, after);
}

/* 0 when it worked. */
static inline int swap_init(swap_job_t *swap, lnt_comm_t *comm, uint32_t bytes)
{
    lnt_graph_builder_t *builder;

    *swap = (swap_job_t){.comm = comm, .bytes = bytes};
    RANK_OK(lnt_graph_begin(&builder));
    for (uint32_t peer = 0; peer < comm->n_ranks; peer++)
        swap_add_peer(builder, swap, peer);
    RANK_OK(lnt_graph_finish(builder, &swap->graph, NULL));
    RANK_OK(lnt_exec_reserve(comm->exec, swap->graph.n_tasks));
    swap->graph.owner = swap;
    swap->list[0] = &swap->graph;
    swap->job = (lnt_job_t){.graphs = swap->list, .n_graphs = 1, .ready = swap->ready};
    snprintf(swap->job.what, sizeof(swap->job.what), "swap of %u bytes", bytes);
    return 0;
}

static inline void swap_post(swap_job_t *swap)
{
    swap->job.sequence = swap->comm->sequence++;
    lnt_exec_post(swap->comm->exec, &swap->job);
    lnt_job_ready(swap->comm->exec, &swap->job, 0);
}

/* One run from post to end; wrong bytes are LNT_ERR_INTERNAL. */
static inline lnt_status_t swap_run(swap_job_t *swap)
{
    lnt_status_t status = lnt_comm_enter(swap->comm);

    if (status < 0) return status;
    swap_post(swap);
    status = lnt_comm_wait_job(swap->comm, &swap->job);
    return (status == LNT_OK && swap->wrong != 0) ? LNT_ERR_INTERNAL : status;
}

static inline void swap_destroy(swap_job_t *swap)
{
    lnt_exec_unreserve(swap->comm->exec, swap->graph.n_tasks);
    lnt_graph_release(&swap->graph);
}

#endif
