/* The table of collectives, and what all rows share: life of a collective, its verdict, its identity between ranks, the
 * bytes it sends. Adding one is a file with a row, an op in coll.h and a line here. */
#include <stdio.h>
#include <string.h>

#include "../base/error.h"
#include "../base/hash.h"
#include "../base/memory.h"
#include "coll.h"

static const lnt_coll_row_t *const rows[LNT_COLL_COUNT] = {
    [LNT_COLL_ALLREDUCE] = &lnt_coll_allreduce, [LNT_COLL_REDUCE_SCATTER] = &lnt_coll_reduce_scatter,
    [LNT_COLL_ALLGATHER] = &lnt_coll_allgather, [LNT_COLL_BROADCAST] = &lnt_coll_broadcast,
    [LNT_COLL_BARRIER] = &lnt_coll_barrier,
};

const lnt_coll_row_t *lnt_coll_row(lnt_coll_op_t op)
{
    return rows[op];
}

lnt_status_t lnt_coll_init_vector(lnt_coll_t *coll)
{
    const lnt_coll_vector_params_t params = {
        .count = coll->args.count,
        .dtype = coll->args.dtype,
        .raw = coll->args.raw,
        .codec = coll->args.coded ? &coll->args.codec : NULL,
        .segment_elems = coll->args.segment_elems,
    };

    return lnt_coll_vector_init(&coll->vector, &params);
}

lnt_status_t lnt_coll_create(lnt_coll_op_t op, const lnt_coll_args_t *args, lnt_coll_t **coll_p)
{
    lnt_coll_t *coll = lnt_calloc(1, sizeof(*coll), "collective");
    lnt_status_t status;

    if (coll == NULL) {
        return LNT_ERR_NO_MEMORY;
    }
    coll->row = rows[op];
    coll->args = *args;
    coll->graph = &coll->own_graph;
    status = coll->row->init(coll);
    if (status < 0) {
        lnt_coll_destroy(coll);
        return status;
    }
    coll->own_graph.owner = coll;
    *coll_p = coll;
    return LNT_OK;
}

void lnt_coll_destroy(lnt_coll_t *coll)
{
    if (coll == NULL) {
        return;
    }
    if (coll->exchange != NULL) {
        lnt_exchange_destroy(coll->exchange);
    }
    lnt_graph_release(&coll->own_graph);
    lnt_coll_vector_release(&coll->vector);
    lnt_free(coll->tile);
    lnt_free(coll);
}

void lnt_coll_prepare(lnt_coll_t *coll, const void *input, void *output, uint64_t sequence)
{
    coll->input = input;
    coll->output = output;
    coll->seed = lnt_hash64_u64(lnt_hash64_text(0, "collective"), sequence);
    if (coll->row->prepare != NULL) {
        coll->row->prepare(coll);
    }
}

lnt_status_t lnt_coll_finish(lnt_coll_t *coll, uint8_t flags)
{
    const bool checks = coll->args.coded && (coll->row->fits != NULL);

    if ((coll->args.coded && ((flags & LNT_FRAME_POISONED) != 0)) || (checks && !coll->row->fits(coll))) {
        return LNT_SKIPPED_NONFINITE;
    }
    if (coll->row->finish != NULL) {
        coll->row->finish(coll);
    }
    return LNT_OK;
}

uint64_t lnt_coll_hash(lnt_coll_op_t op, const lnt_coll_args_t *args)
{
    const uint64_t parts[] = {
        (uint64_t)op,
        args->count,
        (uint64_t)args->dtype,
        args->raw,
        args->coded,
        args->feedback,
        (uint64_t)args->codec.row->id,
        args->codec.cfg.block,
        (uint64_t)args->codec.cfg.scale_rule,
        args->segment_elems,
        (uint64_t)args->redop,
        args->root,
        args->topo->n_ranks,
    };
    uint64_t hash = 0;

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); ++i) {
        hash = lnt_hash64_u64(hash, parts[i]);
    }
    return hash;
}

void lnt_coll_describe(lnt_coll_op_t op, const lnt_coll_args_t *args, char *text, size_t size)
{
    snprintf(text, size, "%s count %llu %s %s block %u segment %llu%s root %u", rows[op]->name,
             (unsigned long long)args->count, args->raw ? "bytes" : lnt_dtype_name(args->dtype),
             args->coded ? args->codec.row->name : "plain", args->codec.cfg.block,
             (unsigned long long)args->segment_elems, (args->redop == LNT_SUM) ? " sum" : "", args->root);
}

lnt_bytes_t lnt_coll_bytes(const lnt_coll_t *coll, const lnt_topo_t *nodes)
{
    const lnt_graph_t *graph = coll->graph;
    lnt_bytes_t bytes = {0, 0};

    for (uint32_t t = 0; t < graph->n_tasks; ++t) {
        const lnt_task_t *task = &graph->tasks[t];

        if (task->kind == LNT_TASK_SEND) {
            const lnt_frame_t *frame = &graph->frames[task->frame];
            uint64_t n = LNT_FRAME_HEADER_BYTES + (uint64_t)frame->payload_bytes + frame->section_bytes;
            bool near = nodes->node_of[task->peer] == nodes->node_of[coll->args.rank];

            bytes.intra += near ? n : 0;
            bytes.inter += near ? 0 : n;
        }
    }
    return bytes;
}
