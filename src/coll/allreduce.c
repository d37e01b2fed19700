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
        .feedback = args->feedback,
        .stage = {.struct_size = sizeof(lnt_stage_t)},
        .sources = &coll->source,
    };

    if (args->dtype != LNT_F32) {
        LNT_TRY(lnt_codec_init(&coll->narrow, lnt_dtype_name(args->dtype), 0, LNT_SCALE_L2));
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

    coll->source = (lnt_source_t){.values = coll->input, .dtype = coll->args.dtype};
    if (coll->args.redop == LNT_MEAN) {
        lnt_exchange_prepare(coll->exchange, (float)(n_nodes / n_ranks), (float)(1.0 / n_nodes));
    } else {
        lnt_exchange_prepare(coll->exchange, 1.0f, 1.0f);
    }
}

static void write_converted(lnt_coll_t *coll)
{
    const uint64_t step = tile_elems(coll);
    uint16_t *out = coll->output;

    for (uint64_t pos = 0; pos < coll->args.count; pos += step) {
        const uint64_t n = (coll->args.count - pos < step) ? coll->args.count - pos : step;
        lnt_encode_in_t values = {.values = coll->tile, .dtype = LNT_F32, .n = n};
        lnt_encode_out_t coded = {.codes = (uint8_t *)(out + pos)};

        lnt_exchange_read(coll->exchange, pos, n, coll->tile);
        coll->narrow.ops->encode(&coll->narrow.cfg, &values, &coded);
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
    .finish = finish,
};
