/* Life and sizes of an exchange: cuts the bucket into segments, owns the errors, the masks and the graph. */
#include "exchange_internal.h"

#include <string.h>

#include "../base/error.h"
#include "../base/memory.h"

enum { PARTS_MAX = 65535 }; /* shard and chunk numbers have 16 bits on the wire */

static lnt_range_t shard_range(const lnt_exchange_t *exchange, uint32_t shard)
{
    return lnt_layout_part(&exchange->grid, (lnt_range_t){0, exchange->grid.n_blocks}, exchange->params.topo->n_shards,
                           shard);
}

static lnt_range_t chunk_range(const lnt_exchange_t *exchange, uint32_t shard, uint32_t chunk)
{
    return lnt_layout_part(&exchange->grid, shard_range(exchange, shard), exchange->params.topo->n_nodes, chunk);
}

static void cut(const lnt_exchange_t *exchange, lnt_range_t range, lnt_segment_t *segments)
{
    const lnt_grid_t *grid = &exchange->grid;

    for (uint64_t block = range.begin; block < range.end; segments++) {
        segments->range = lnt_layout_segment(grid, range, block, exchange->params.segment_elems);
        segments->pos = lnt_grid_pos(grid, segments->range.begin);
        segments->end = lnt_grid_pos(grid, segments->range.end);
        block = segments->range.end;
    }
}

/* Part i of the list that is to be cut: shard i, or chunk i % M of shard i / M. */
static lnt_range_t part_range(const lnt_exchange_t *exchange, bool chunks, uint32_t i)
{
    uint32_t n_nodes = exchange->params.topo->n_nodes;

    return chunks ? chunk_range(exchange, i / n_nodes, i % n_nodes) : shard_range(exchange, i);
}

static lnt_status_t cut_parts(const lnt_exchange_t *exchange, bool chunks, uint32_t n_parts, uint32_t **first_p,
                              lnt_segment_t **segs_p)
{
    uint32_t *first = *first_p = lnt_calloc(n_parts + 1, sizeof(*first), "segment index");

    if (first == NULL) {
        return LNT_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < n_parts; i++) {
        first[i + 1] = first[i] + lnt_layout_n_segments(&exchange->grid, part_range(exchange, chunks, i),
                                                        exchange->params.segment_elems);
    }
    *segs_p = lnt_calloc(first[n_parts], sizeof(**segs_p), "segments");
    if (*segs_p == NULL) {
        return LNT_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < n_parts; i++) {
        cut(exchange, part_range(exchange, chunks, i), *segs_p + first[i]);
    }
    return LNT_OK;
}

static void find_own_parts(lnt_exchange_t *exchange)
{
    const lnt_grid_t *grid = &exchange->grid;
    uint32_t n_nodes = exchange->params.topo->n_nodes, shard = exchange->local;
    uint32_t chunk = shard * n_nodes + exchange->node;
    lnt_range_t range = shard_range(exchange, shard), own = chunk_range(exchange, shard, exchange->node);

    exchange->own_gather = exchange->shard_first[shard];
    exchange->n_gather = exchange->shard_first[shard + 1] - exchange->own_gather;
    exchange->own_code = exchange->chunk_first[shard * n_nodes];
    exchange->n_code = exchange->chunk_first[(shard + 1) * n_nodes] - exchange->own_code;
    exchange->own_serve = exchange->chunk_first[chunk];
    exchange->n_serve = exchange->chunk_first[chunk + 1] - exchange->own_serve;
    exchange->shard_pos = lnt_grid_pos(grid, range.begin);
    exchange->shard_end = lnt_grid_pos(grid, range.end);
    exchange->chunk_pos = lnt_grid_pos(grid, own.begin);
    exchange->chunk_end = lnt_grid_pos(grid, own.end);
}

/* End of the worker's scale block that starts at pos: a multiple of scale_block in its tensor (packed: in the vector),
 * or the end of the extent or shard. */
static uint64_t scale_block_end(const lnt_exchange_t *exchange, uint64_t pos)
{
    uint64_t size = exchange->params.scale_block;
    lnt_run_t run = lnt_layout_run(&exchange->grid, pos, exchange->shard_end);
    uint64_t begin = exchange->grid.packed ? pos : run.offset;
    uint64_t end = exchange->grid.packed ? exchange->shard_end : pos + run.count;
    uint64_t next = pos + size - begin % size;

    return next < end ? next : end;
}

static lnt_status_t cut_scale_blocks(lnt_exchange_t *exchange)
{
    uint32_t n = 0;

    for (uint64_t pos = exchange->shard_pos; pos < exchange->shard_end; n++) {
        pos = scale_block_end(exchange, pos);
    }
    exchange->scale_blocks = lnt_calloc(n, sizeof(*exchange->scale_blocks), "scale blocks");
    if (exchange->scale_blocks == NULL) {
        return LNT_ERR_NO_MEMORY;
    }
    exchange->n_scale_blocks = n;
    for (uint64_t pos = exchange->shard_pos, i = 0; i < n; i++) {
        uint64_t end = scale_block_end(exchange, pos);

        exchange->scale_blocks[i].segment =
            (lnt_segment_t){{lnt_grid_block(&exchange->grid, pos), lnt_grid_block(&exchange->grid, end)}, pos, end};
        pos = end;
    }
    return LNT_OK;
}

static lnt_status_t check_params(const lnt_exchange_params_t *params)
{
    const lnt_topo_t *topo = params->topo;

    LNT_CHECK_ARG((topo != NULL) && (params->rank < topo->n_ranks) && (params->codec.row != NULL));
    LNT_CHECK_ARG((params->scale_block == 0) || (params->scale_block % params->codec.cfg.block == 0));
    if (topo->n_nodes > PARTS_MAX || topo->n_shards > PARTS_MAX) {
        return lnt_error(LNT_ERR_UNSUPPORTED, "use fewer ranks", "%u nodes with %u shards: frames can number %d",
                         topo->n_nodes, topo->n_shards, PARTS_MAX);
    }
    return LNT_OK;
}

static void choose_sizes(lnt_exchange_t *exchange)
{
    uint64_t block = exchange->params.codec.cfg.block;

    exchange->piece_max = lnt_piece_elems(block, LNT_STACK_ELEMS);
    exchange->serve_max = lnt_piece_elems(block, LNT_SERVE_ELEMS);
    exchange->span_max = block > LNT_SPAN_MAX ? LNT_SPAN_MAX : LNT_SPAN_MAX / block * block;
}

static lnt_status_t choose_wire(lnt_exchange_t *exchange)
{
    exchange->wire = exchange->params.codec;
    if (exchange->params.topo->n_nodes > 1) {
        return LNT_OK;
    }
    exchange->params.scale_block = 0;
    LNT_TRY(lnt_codec_init(&exchange->wire, "f32", 0, LNT_SCALE_L2));
    exchange->wire.cfg.block = exchange->params.codec.cfg.block;
    return LNT_OK;
}

/* Blocks of packed grids depend on buckets, and a compat grid reproduces its reference: both keep f32, and so does the
 * carry of one node. */
static const lnt_error_row_t *choose_errors(const lnt_exchange_params_t *params)
{
    bool plain = params->errors == NULL || params->packed || params->scale_block != 0 || params->topo->n_nodes == 1;

    return plain ? lnt_error_row(LNT_ERROR_F32) : params->errors;
}

/* Everything that is known without memory for values: grid, segments, roles. */
static lnt_status_t lay_out(lnt_exchange_t *exchange)
{
    const lnt_exchange_params_t *params = &exchange->params;
    const lnt_topo_t *topo = params->topo;

    LNT_TRY(choose_wire(exchange));
    LNT_TRY(
        lnt_grid_init(&exchange->grid, params->extents, params->n_extents, params->codec.cfg.block, params->packed));
    exchange->params.extents = exchange->grid.extents;
    exchange->node = topo->node_of[params->rank];
    exchange->local = topo->local_of[params->rank];
    exchange->n_local = lnt_topo_local_size(topo, exchange->node);
    exchange->owns = exchange->local < topo->n_shards;
    exchange->feedback = params->feedback && exchange->owns && exchange->wire.row->has_feedback;
    exchange->errors = choose_errors(params);
    choose_sizes(exchange);
    LNT_TRY(cut_parts(exchange, false, topo->n_shards, &exchange->shard_first, &exchange->shard_segs));
    LNT_TRY(cut_parts(exchange, true, topo->n_shards * topo->n_nodes, &exchange->chunk_first, &exchange->chunk_segs));
    if (exchange->owns) {
        find_own_parts(exchange);
    }
    return exchange->owns && exchange->params.scale_block != 0 ? cut_scale_blocks(exchange) : LNT_OK;
}

static lnt_status_t new_exchange(const lnt_exchange_params_t *params, lnt_exchange_t **exchange_p)
{
    lnt_exchange_t *exchange;
    lnt_status_t status;

    LNT_TRY(check_params(params));
    exchange = lnt_calloc(1, sizeof(*exchange), "exchange");
    if (exchange == NULL) {
        return LNT_ERR_NO_MEMORY;
    }
    exchange->params = *params;
    exchange->step = (lnt_exchange_step_t){.factor = 1, .server_factor = 1};
    status = lay_out(exchange);
    if (status < 0) {
        lnt_exchange_destroy(exchange);
        return status;
    }
    *exchange_p = exchange;
    return LNT_OK;
}

/* Bytes of the arrays that alloc_state makes, in its order. */
typedef struct state_bytes {
    uint64_t worker, worker_scales, server, server_scales, big, big_error, mask, blocks;
} state_bytes_t;

static state_bytes_t count_state(const lnt_exchange_t *exchange)
{
    const lnt_grid_t *grid = &exchange->grid;
    state_bytes_t bytes = {0};

    if (exchange->feedback) {
        bytes.worker = (exchange->shard_end - exchange->shard_pos) * exchange->errors->elem_bytes;
        bytes.worker_scales = lnt_exchange_scale_bytes(exchange, exchange->shard_pos, exchange->shard_end);
        bytes.server = (exchange->chunk_end - exchange->chunk_pos) * exchange->errors->elem_bytes;
        bytes.server_scales = lnt_exchange_scale_bytes(exchange, exchange->chunk_pos, exchange->chunk_end);
    }
    if (exchange->owns && grid->block > LNT_STACK_ELEMS) {
        bytes.big = exchange->piece_max * sizeof(float);
        bytes.big_error = exchange->feedback && exchange->errors->dtype != LNT_ERROR_F32 ? bytes.big : 0;
    }
    if (!grid->packed) {
        bytes.mask = lnt_layout_mask_offset(grid, grid->n_blocks);
        bytes.blocks = grid->n_blocks;
    }
    return bytes;
}

static lnt_status_t alloc_array(void *array_p, uint64_t bytes, const char *name)
{
    void *memory = bytes == 0 ? NULL : lnt_alloc_aligned(bytes, name);

    memcpy(array_p, &memory, sizeof(memory));
    return memory == NULL && bytes != 0 ? LNT_ERR_NO_MEMORY : LNT_OK;
}

static lnt_status_t alloc_kept(lnt_kept_t *kept, uint64_t bytes, uint64_t scale_bytes, const char *name)
{
    LNT_TRY(alloc_array(&kept->codes, bytes, name));
    return alloc_array(&kept->scales, scale_bytes, name);
}

static lnt_status_t alloc_state(lnt_exchange_t *exchange)
{
    state_bytes_t bytes = count_state(exchange);

    LNT_TRY(alloc_kept(&exchange->worker, bytes.worker, bytes.worker_scales, "worker error"));
    LNT_TRY(alloc_kept(&exchange->worker_shadow, bytes.worker, bytes.worker_scales, "worker error shadow"));
    LNT_TRY(alloc_kept(&exchange->server, bytes.server, bytes.server_scales, "server error"));
    LNT_TRY(alloc_kept(&exchange->server_shadow, bytes.server, bytes.server_scales, "server error shadow"));
    LNT_TRY(alloc_array(&exchange->big[0], bytes.big, "block to encode"));
    LNT_TRY(alloc_array(&exchange->big[1], bytes.big, "block to serve"));
    LNT_TRY(alloc_array(&exchange->big_error[0], bytes.big_error, "errors of a block to encode"));
    LNT_TRY(alloc_array(&exchange->big_error[1], bytes.big_error, "errors of a block to serve"));
    LNT_TRY(alloc_array(&exchange->mask, bytes.mask, "live mask"));
    LNT_TRY(alloc_array(&exchange->dead_block, bytes.blocks, "blocks with dead coordinates"));
    LNT_TRY(alloc_array(&exchange->touched, bytes.blocks, "touched blocks"));
    return alloc_array(&exchange->active, bytes.blocks, "active blocks");
}

lnt_status_t lnt_exchange_create(const lnt_exchange_params_t *params, lnt_exchange_t **exchange_p)
{
    lnt_exchange_t *exchange = NULL;
    lnt_status_t status;

    LNT_TRY(new_exchange(params, &exchange));
    LNT_TRY_GOTO(status, lnt_exchange_build(exchange, &exchange->graph, NULL), err_destroy);
    LNT_TRY_GOTO(status, alloc_state(exchange), err_destroy);
    lnt_exchange_init_mask(exchange);
    lnt_exchange_update_sections(exchange);
    *exchange_p = exchange;
    return LNT_OK;

err_destroy:
    lnt_exchange_destroy(exchange);
    return status;
}

lnt_status_t lnt_exchange_predict(const lnt_exchange_params_t *params, lnt_exchange_memory_t *memory_p)
{
    lnt_exchange_t *exchange = NULL;
    lnt_graph_bytes_t bytes;
    lnt_status_t status;
    uint32_t n_parts;

    LNT_TRY(new_exchange(params, &exchange));
    n_parts = params->topo->n_shards;
    status = lnt_exchange_build(exchange, NULL, &bytes);
    if (status >= 0) {
        state_bytes_t state = count_state(exchange);
        uint64_t tables = (exchange->shard_first[n_parts] + exchange->chunk_first[n_parts * params->topo->n_nodes]) *
                          sizeof(lnt_segment_t);

        memory_p->errors = state.worker + state.worker_scales + state.server + state.server_scales;
        memory_p->shadows = memory_p->errors;
        memory_p->frames = bytes.workspace + 2 * (state.big + state.big_error);
        memory_p->graphs = bytes.graph + tables + state.mask + 3 * state.blocks;
    }
    lnt_exchange_destroy(exchange);
    return status;
}

static void free_kept(lnt_kept_t *kept)
{
    lnt_free(kept->scales);
    lnt_free(kept->codes);
    *kept = (lnt_kept_t){NULL, NULL};
}

void lnt_exchange_destroy(lnt_exchange_t *exchange)
{
    if (exchange == NULL) {
        return;
    }
    lnt_graph_release(&exchange->graph);
    lnt_free(exchange->active);
    lnt_free(exchange->touched);
    lnt_free(exchange->dead_block);
    lnt_free(exchange->mask);
    for (int i = 0; i < 2; i++) {
        lnt_free(exchange->big_error[i]);
        lnt_free(exchange->big[i]);
    }
    free_kept(&exchange->server_shadow);
    free_kept(&exchange->server);
    free_kept(&exchange->worker_shadow);
    free_kept(&exchange->worker);
    lnt_free(exchange->scale_blocks);
    lnt_free(exchange->chunk_segs);
    lnt_free(exchange->chunk_first);
    lnt_free(exchange->shard_segs);
    lnt_free(exchange->shard_first);
    lnt_grid_release(&exchange->grid);
    lnt_free(exchange);
}

static uint64_t room_of_carry(const lnt_exchange_t *exchange)
{
    return (exchange->chunk_end - exchange->chunk_pos) * sizeof(float);
}

uint64_t lnt_exchange_carry_bytes(const lnt_exchange_t *exchange)
{
    return (exchange->params.topo->n_nodes == 1 && exchange->server.codes != NULL) ? room_of_carry(exchange) : 0;
}

lnt_status_t lnt_exchange_set_carry(lnt_exchange_t *exchange, bool wanted)
{
    const uint64_t bytes = room_of_carry(exchange);
    lnt_status_t status;

    if (exchange->params.topo->n_nodes > 1 || !exchange->owns || !exchange->params.feedback ||
        !exchange->params.codec.row->has_feedback || (wanted && exchange->server.codes != NULL && !exchange->carried)) {
        return LNT_OK;
    }
    exchange->carried = false;
    free_kept(&exchange->server);
    free_kept(&exchange->server_shadow);
    if (!wanted) {
        return LNT_OK;
    }
    status = alloc_kept(&exchange->server, bytes, 0, "carried residual");
    if (status >= 0) {
        status = alloc_kept(&exchange->server_shadow, bytes, 0, "carried residual, shadow");
    }
    if (status < 0) {
        free_kept(&exchange->server);
    }
    return status;
}

lnt_graph_t *lnt_exchange_graph(lnt_exchange_t *exchange)
{
    return &exchange->graph;
}

const lnt_grid_t *lnt_exchange_grid(const lnt_exchange_t *exchange)
{
    return &exchange->grid;
}

void lnt_exchange_prepare(lnt_exchange_t *exchange, const lnt_exchange_step_t *step)
{
    if (exchange->carried) {
        (void)lnt_exchange_set_carry(exchange, false);
    }
    exchange->step = *step;
}

lnt_status_t lnt_exchange_bytes(const lnt_exchange_t *exchange, lnt_bytes_t *bytes_p)
{
    const lnt_exchange_params_t *params = &exchange->params;

    return lnt_layout_exchange_bytes(&exchange->grid, params->topo, &params->codec, params->segment_elems,
                                     exchange->any_dead ? exchange->dead_block : NULL, params->rank, bytes_p);
}
