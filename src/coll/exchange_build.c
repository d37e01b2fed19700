/* The graph of an exchange for one rank: which frames it makes, sends, receives and passes on, in what order.
 *
 * Phase 0 and its sum, phase 1, the server, phase 2 and the hand-over inside the node, as drawn in exchange.h. There is
 * no task for the node sum: the task that encodes a segment sums what it needs, so a value is formed, coded and
 * forgotten in cache. */
#include "exchange_internal.h"

#include <assert.h>
#include <string.h>

#include "../base/error.h"

typedef struct build {
    lnt_exchange_t *exchange;
    lnt_graph_builder_t *builder;
    lnt_status_t status; /* of sizes; the builder keeps its own */
    uint32_t next_frame;
    uint32_t gather_task; /* RECV of gather frame 0; numbered like the frames */
    uint32_t serve_task;  /* RECV of serve frame 0 */
    uint32_t code_task;   /* encode task 0, see code_task_of */
    uint32_t first_code;  /* its chunk segment behind own_code */
} build_t;

static uint32_t add_frame(build_t *build, const lnt_segment_t *segment, lnt_frame_header_t header)
{
    const lnt_exchange_t *exchange = build->exchange;
    const lnt_codec_t *wire = &exchange->wire;
    uint64_t count = segment->end - segment->pos, payload = count * sizeof(float), section = 0;
    uint32_t frame;

    header.codec = LNT_CODEC_F32;
    if (header.phase != 0) {
        header.codec = (uint8_t)wire->row->id;
        payload = lnt_layout_scale_bytes(wire, &exchange->grid, segment->range) +
                  lnt_layout_code_bytes(wire, &exchange->grid, segment->range);
        section = exchange->grid.packed ? 0 : (segment->range.end - segment->range.begin + 7) / 8;
    }
    if (payload + section > INT32_MAX || count > UINT32_MAX) {
        build->status = lnt_error(LNT_ERR_OUT_OF_RANGE, "use smaller segments or blocks",
                                  "a frame of %llu elements is too large", (unsigned long long)count);
        payload = section = 0;
    }
    header.program = exchange->params.program;
    header.bucket = exchange->params.bucket;
    header.block = exchange->grid.block;
    header.count = (uint32_t)count;
    frame = lnt_graph_add_frame(build->builder, (uint32_t)payload, (uint32_t)section);
    lnt_graph_set_header(build->builder, frame, &header);
    build->next_frame++;
    return frame;
}

static uint32_t add_recv(build_t *build, uint32_t frame, uint32_t peer, const lnt_frame_header_t *header)
{
    return lnt_graph_add_recv(
        build->builder, frame, peer,
        lnt_graph_key(header->phase, header->shard, header->chunk, header->source, header->segment));
}

static void add_send(build_t *build, uint32_t frame, uint32_t peer, uint32_t maker)
{
    lnt_graph_add_edge(build->builder, maker, lnt_graph_add_send(build->builder, frame, peer));
}

static uint32_t rank_of(const build_t *build, uint32_t local)
{
    const lnt_exchange_t *exchange = build->exchange;

    return exchange->params.topo->ranks[exchange->params.topo->node_begin[exchange->node] + local];
}

/* The frame goes to all other ranks of the node as soon as `maker` is done. */
static void send_to_node(build_t *build, uint32_t frame, uint32_t maker)
{
    for (uint32_t j = 0; j < build->exchange->n_local; j++) {
        if (j != build->exchange->local) {
            add_send(build, frame, rank_of(build, j), maker);
        }
    }
}

/* Calls visit for every chunk segment: of chunk c of shard d, number s in it, number i of all. */
typedef void (*visit_fn_t)(build_t *build, uint32_t shard, uint32_t chunk, uint32_t s, uint32_t i);

static void each_chunk_segment(build_t *build, visit_fn_t visit)
{
    const lnt_exchange_t *exchange = build->exchange;
    uint32_t n_nodes = exchange->params.topo->n_nodes;

    for (uint32_t part = 0; part < exchange->params.topo->n_shards * n_nodes; part++) {
        for (uint32_t i = exchange->chunk_first[part]; i < exchange->chunk_first[part + 1]; i++) {
            visit(build, part / n_nodes, part % n_nodes, i - exchange->chunk_first[part], i);
        }
    }
}

static lnt_frame_header_t result_header(const build_t *build, uint32_t shard, uint32_t chunk, uint32_t s)
{
    return (lnt_frame_header_t){.phase = 2,
                                .shard = (uint16_t)shard,
                                .chunk = (uint16_t)chunk,
                                .segment = s,
                                .source = lnt_topo_owner(build->exchange->params.topo, chunk, shard)};
}

static void add_result_frame(build_t *build, uint32_t shard, uint32_t chunk, uint32_t s, uint32_t i)
{
    add_frame(build, &build->exchange->chunk_segs[i], result_header(build, shard, chunk, s));
}

/* Phase 0, incoming: frames and RECVs of the own shard, by source, then segment. */
static void add_gather(build_t *build)
{
    lnt_exchange_t *exchange = build->exchange;
    bool first = true;

    exchange->gather_frame = build->next_frame;
    for (uint32_t j = 0; j < exchange->n_local; j++) {
        for (uint32_t s = 0; s < exchange->n_gather && j != exchange->local; s++) {
            lnt_frame_header_t header = {.shard = (uint16_t)exchange->local, .segment = s, .source = rank_of(build, j)};
            uint32_t frame = add_frame(build, &exchange->shard_segs[exchange->own_gather + s], header);
            uint32_t task = add_recv(build, frame, header.source, &header);

            build->gather_task = first ? task : build->gather_task;
            first = false;
        }
    }
}

/* `task` reads the node's contributions to [pos, end). */
static void needs_gather(build_t *build, uint32_t task, uint64_t pos, uint64_t end)
{
    const lnt_exchange_t *exchange = build->exchange;
    const lnt_segment_t *own = exchange->shard_segs + exchange->own_gather;

    if (exchange->n_local == 1) {
        return;
    }
    for (uint32_t s = lnt_exchange_find(own, exchange->n_gather, pos); s < exchange->n_gather && own[s].pos < end;
         s++) {
        for (uint32_t j = 0; j + 1 < exchange->n_local; j++) {
            lnt_graph_add_edge(build->builder, build->gather_task + j * exchange->n_gather + s, task);
        }
    }
}

/* A RUN task over a segment's elements, which any thread may run. */
static uint32_t add_run(build_t *build, lnt_task_fn_t run, uint64_t arg, const lnt_segment_t *segment)
{
    uint32_t task = lnt_graph_add_run(build->builder, run, arg);

    lnt_graph_set_elems(build->builder, task, segment->end - segment->pos);
    return task;
}

static uint32_t add_measures(build_t *build)
{
    lnt_exchange_t *exchange = build->exchange;
    uint32_t first = 0;

    exchange->formed =
        lnt_graph_add_scratch(build->builder, (exchange->shard_end - exchange->shard_pos) * sizeof(float));
    for (uint32_t k = 0; k < exchange->n_scale_blocks; k++) {
        const lnt_segment_t *segment = &exchange->scale_blocks[k].segment;
        uint32_t task = add_run(build, lnt_exchange_run_measure, k, segment);

        first = k == 0 ? task : first;
        needs_gather(build, task, segment->pos, segment->end);
    }
    return first;
}

static void needs_measures(build_t *build, uint32_t task, uint32_t first_measure, const lnt_segment_t *segment)
{
    const lnt_exchange_t *exchange = build->exchange;

    for (uint32_t k = 0; k < exchange->n_scale_blocks; k++) {
        const lnt_segment_t *measured = &exchange->scale_blocks[k].segment;

        if (measured->pos < segment->end && segment->pos < measured->end) {
            lnt_graph_add_edge(build->builder, first_measure + k, task);
        }
    }
}

/* Tasks that share the scratch of a large block run one after the other. */
static void chain(build_t *build, uint32_t *last, uint32_t task)
{
    if (build->exchange->grid.block <= LNT_STACK_ELEMS) {
        return;
    }
    if (*last != UINT32_MAX) {
        lnt_graph_add_edge(build->builder, *last, task);
    }
    *last = task;
}

/* Phase 1, outgoing. Frames first: they are found by number. One node: the coded value is the result. */
static void add_code_frames(build_t *build)
{
    lnt_exchange_t *exchange = build->exchange;
    uint32_t n_nodes = exchange->params.topo->n_nodes;

    if (n_nodes == 1) {
        exchange->code_frame = exchange->result_frame + exchange->own_code;
        return;
    }
    exchange->code_frame = build->next_frame;
    for (uint32_t c = 0; c < n_nodes; c++) {
        const uint32_t *first = exchange->chunk_first + exchange->local * n_nodes + c;

        for (uint32_t i = first[0]; i < first[1]; i++) {
            add_frame(build, &exchange->chunk_segs[i],
                      (lnt_frame_header_t){.phase = 1,
                                           .shard = (uint16_t)exchange->local,
                                           .chunk = (uint16_t)c,
                                           .segment = i - first[0],
                                           .source = exchange->params.rank});
        }
    }
}

/* Encode task of chunk segment own_code + k. Tasks that are ready together run in the order of their numbers: chunks
 * for other nodes come first, from the next node on, and the own one last, since nobody waits for its frames. */
static uint32_t code_task_of(const build_t *build, uint32_t k)
{
    const lnt_exchange_t *exchange = build->exchange;

    return build->code_task + (k + exchange->n_code - build->first_code) % exchange->n_code;
}

static void find_first_code(build_t *build)
{
    const lnt_exchange_t *exchange = build->exchange;
    uint32_t n_nodes = exchange->params.topo->n_nodes;
    uint32_t chunk = exchange->local * n_nodes + (exchange->node + 1) % n_nodes;

    build->first_code =
        exchange->n_code == 0 ? 0 : (exchange->chunk_first[chunk] - exchange->own_code) % exchange->n_code;
}

static void add_encode_sends(build_t *build)
{
    const lnt_exchange_t *exchange = build->exchange;
    const lnt_topo_t *topo = exchange->params.topo;

    for (uint32_t c = 0; c < topo->n_nodes; c++) {
        const uint32_t *first = exchange->chunk_first + exchange->local * topo->n_nodes + c;

        for (uint32_t i = first[0]; i < first[1] && c != exchange->node; i++) {
            uint32_t k = i - exchange->own_code;

            add_send(build, exchange->code_frame + k, lnt_topo_owner(topo, c, exchange->local), code_task_of(build, k));
        }
    }
}

static void add_encodes(build_t *build)
{
    const lnt_exchange_t *exchange = build->exchange;
    bool compat = exchange->params.scale_block != 0;
    uint32_t measure = compat ? add_measures(build) : 0, last = UINT32_MAX;

    find_first_code(build);
    for (uint32_t t = 0; t < exchange->n_code; t++) {
        uint32_t k = (build->first_code + t) % exchange->n_code, i = exchange->own_code + k;
        const lnt_segment_t *segment = &exchange->chunk_segs[i];
        uint32_t task =
            add_run(build, lnt_exchange_run_encode, lnt_exchange_task_arg(i, exchange->code_frame + k), segment);

        build->code_task = t == 0 ? task : build->code_task;
        if (compat) {
            needs_measures(build, task, measure, segment);
        } else {
            needs_gather(build, task, segment->pos, segment->end);
            chain(build, &last, task);
        }
    }
    add_encode_sends(build);
}

/* Phase 1, incoming: the own chunk from all other nodes. */
static void add_serve_recvs(build_t *build)
{
    lnt_exchange_t *exchange = build->exchange;
    const lnt_topo_t *topo = exchange->params.topo;
    bool first = true;

    exchange->serve_frame = build->next_frame;
    for (uint32_t b = 0; b < topo->n_nodes; b++) {
        for (uint32_t s = 0; s < exchange->n_serve && b != exchange->node; s++) {
            lnt_frame_header_t header = {.phase = 1,
                                         .shard = (uint16_t)exchange->local,
                                         .chunk = (uint16_t)exchange->node,
                                         .segment = s,
                                         .source = lnt_topo_owner(topo, b, exchange->local)};
            uint32_t frame = add_frame(build, &exchange->chunk_segs[exchange->own_serve + s], header);
            uint32_t task = add_recv(build, frame, header.source, &header);

            build->serve_task = first ? task : build->serve_task;
            first = false;
        }
    }
}

static uint32_t add_serve(build_t *build, uint32_t s, uint32_t *last)
{
    lnt_exchange_t *exchange = build->exchange;
    const lnt_topo_t *topo = exchange->params.topo;
    uint32_t i = exchange->own_serve + s, frame = exchange->result_frame + i;
    uint32_t task = add_run(build, lnt_exchange_run_serve, lnt_exchange_task_arg(i, frame), &exchange->chunk_segs[i]);

    lnt_graph_add_edge(build->builder, code_task_of(build, i - exchange->own_code), task);
    for (uint32_t b = 0; b + 1 < topo->n_nodes; b++) {
        lnt_graph_add_edge(build->builder, build->serve_task + b * exchange->n_serve + s, task);
    }
    chain(build, last, task);
    for (uint32_t b = 0; b < topo->n_nodes; b++) {
        if (b != exchange->node) {
            add_send(build, frame, lnt_topo_owner(topo, b, exchange->local), task);
        }
    }
    return task;
}

/* The server, and the hand-over of its results inside the node. One node: the encode task made the result. */
static void add_serves(build_t *build)
{
    lnt_exchange_t *exchange = build->exchange;
    bool alone = exchange->params.topo->n_nodes == 1;
    uint32_t last = UINT32_MAX;

    for (uint32_t s = 0; s < exchange->n_serve; s++) {
        uint32_t i = exchange->own_serve + s;
        uint32_t maker = alone ? code_task_of(build, i - exchange->own_code) : add_serve(build, s, &last);

        send_to_node(build, exchange->result_frame + i, maker);
    }
}

/* Phase 2, incoming: the own shard's other chunks from their servers, to be passed on; other shards from their owner in
 * this node. */
static void add_result_recv(build_t *build, uint32_t shard, uint32_t chunk, uint32_t s, uint32_t i)
{
    const lnt_exchange_t *exchange = build->exchange;
    bool own = exchange->owns && shard == exchange->local;
    lnt_frame_header_t header = result_header(build, shard, chunk, s);
    uint32_t frame = exchange->result_frame + i, task;

    if (own && chunk == exchange->node) {
        return;
    }
    task = add_recv(build, frame, own ? header.source : lnt_topo_owner(exchange->params.topo, exchange->node, shard),
                    &header);
    if (own) {
        send_to_node(build, frame, task);
    }
}

/* Phase 0, outgoing: to the owners of all shards but the own one. */
static void add_locals(build_t *build)
{
    const lnt_exchange_t *exchange = build->exchange;

    for (uint32_t d = 0; d < exchange->params.topo->n_shards; d++) {
        uint32_t owner = lnt_topo_owner(exchange->params.topo, exchange->node, d);

        for (uint32_t i = exchange->shard_first[d]; i < exchange->shard_first[d + 1] && owner != exchange->params.rank;
             i++) {
            lnt_frame_header_t header = {
                .shard = (uint16_t)d, .segment = i - exchange->shard_first[d], .source = exchange->params.rank};
            uint32_t frame = add_frame(build, &exchange->shard_segs[i], header);
            uint32_t task =
                add_run(build, lnt_exchange_run_local, lnt_exchange_task_arg(i, frame), &exchange->shard_segs[i]);

            add_send(build, frame, owner, task);
        }
    }
}

lnt_status_t lnt_exchange_build(lnt_exchange_t *exchange, lnt_graph_t *graph, lnt_graph_bytes_t *bytes_p)
{
    build_t build = {.exchange = exchange};
    lnt_status_t status;

    LNT_TRY(lnt_graph_begin(&build.builder));
    exchange->result_frame = 0;
    each_chunk_segment(&build, add_result_frame);
    if (exchange->owns) {
        add_code_frames(&build);
        add_serve_recvs(&build);
        add_gather(&build);
    }
    add_locals(&build); /* early: others wait for them */
    if (exchange->owns) {
        add_encodes(&build);
        add_serves(&build);
    }
    each_chunk_segment(&build, add_result_recv);
    status = lnt_graph_finish(build.builder, build.status < 0 ? NULL : graph, bytes_p);
    if (graph != NULL) {
        graph->owner = exchange;
        graph->program = exchange->params.program;
        graph->bucket = exchange->params.bucket;
    }
    return build.status < 0 ? build.status : status;
}
