/* All-reduce: the two-phase exchange over one extent, hierarchical where ranks share nodes.
 *
 * The exchange keeps every frame until the output has been written, so a poisoned run is simply not written.
 */
#include "../base/error.h"
#include "../base/memory.h"
#include "coll.h"

enum { TILE_ELEMS = 1 << 16 };

static uint64_t tile_elems(const lnt_coll_t *coll)
{
    const uint32_t block = coll->args.codec.cfg.block;

    return (block >= TILE_ELEMS) ? block : TILE_ELEMS / block * block;
}

static lnt_status_t init(lnt_coll_t *coll)
{
    const lnt_coll_args_t *args = &coll->args;
    const lnt_extent_t extent = {0, 0, args->count};
    const lnt_exchange_params_t params = {
        .topo = args->topo,
        .rank = args->rank,
        .extents = &extent,
        .n_extents = 1,
        .codec = args->codec,
        .segment_elems = args->segment_elems,
        .stream = args->count >= LNT_STREAM_ELEMS,
        .feedback = args->feedback,
        .stage = {.struct_size = sizeof(lnt_stage_t)},
        .sources = &coll->source,
    };

    if (args->dtype != LNT_F32) {
        coll->tile = lnt_alloc_aligned(tile_elems(coll) * sizeof(float), "tile of an all-reduce");
        if (coll->tile == NULL) {
            return LNT_ERR_NO_MEMORY;
        }
    }
    LNT_TRY(lnt_exchange_create(&params, &coll->exchange));
    coll->graph = lnt_exchange_graph(coll->exchange);
    return LNT_OK;
}

/* The one factor of the exchange: sums of nodes times M/n, then the servers' mean over M nodes. */
static void prepare(lnt_coll_t *coll)
{
    const double n_nodes = coll->args.topo->n_nodes, n_ranks = coll->args.topo->n_ranks;
    lnt_exchange_step_t step = {.factor = 1, .server_factor = 1, .step = coll->seed};

    coll->source = (lnt_source_t){.values = coll->input, .dtype = coll->args.dtype};
    if (coll->args.redop == LNT_MEAN) {
        step.factor = (float)(n_nodes / n_ranks);
        step.server_factor = (float)(1.0 / n_nodes);
    }
    lnt_exchange_prepare(coll->exchange, &step);
}

/* The tile at pos, decoded: its number of elements. */
static uint64_t read_tile(const lnt_coll_t *coll, uint64_t pos)
{
    const uint64_t step = tile_elems(coll), left = coll->args.count - pos, n = (left < step) ? left : step;

    lnt_exchange_read(coll->exchange, pos, n, coll->tile);
    return n;
}

/* A mean may be finite in f32 and too large for the dtype. All ranks have the same bytes, so they agree. In f32 the
 * servers have looked. */
static bool fits(const lnt_coll_t *coll)
{
    bool fit = true;

    for (uint64_t pos = 0; (coll->tile != NULL) && fit && (pos < coll->args.count);) {
        const uint64_t n = read_tile(coll, pos);

        fit = lnt_arrays()->fits[coll->args.dtype](coll->tile, n);
        pos += n;
    }
    return fit;
}

static void write_converted(const lnt_coll_t *coll)
{
    const lnt_dtype_t dtype = coll->args.dtype;

    for (uint64_t pos = 0; pos < coll->args.count;) {
        const uint64_t n = read_tile(coll, pos);

        lnt_arrays()->narrow[dtype](coll->tile, n, (uint8_t *)coll->output + pos * lnt_dtype_size(dtype));
        pos += n;
    }
}

static void finish(lnt_coll_t *coll)
{
    if (coll->tile != NULL) {
        write_converted(coll);
    } else {
        lnt_exchange_read(coll->exchange, 0, coll->args.count, coll->output);
    }
    lnt_exchange_commit(coll->exchange);
}

const lnt_coll_row_t lnt_coll_allreduce = {
    .name = "allreduce",
    .doc = "mean or sum over all ranks by the two-phase exchange, hierarchical by node",
    .op = LNT_COLL_ALLREDUCE,
    .min_ranks = 1,
    .init = init,
    .prepare = prepare,
    .fits = fits,
    .finish = finish,
};
