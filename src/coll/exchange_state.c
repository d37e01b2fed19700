/* What an exchange gives out after a run, and its masks: decoded values, activity. All of it between runs only. */
#include "exchange_internal.h"

#include <string.h>

#include "../base/error.h"

/* --- results ------------------------------------------------------------------------------------------------------ */

static uint32_t n_chunk_segs(const lnt_exchange_t *exchange)
{
    return exchange->chunk_first[exchange->params.topo->n_shards * exchange->params.topo->n_nodes];
}

void lnt_exchange_decode_piece(const lnt_exchange_t *exchange, const lnt_segment_t *segment, uint32_t frame,
                               const lnt_piece_t *piece, uint64_t code, float *out)
{
    const lnt_codec_t *wire = &exchange->wire;
    const uint8_t *payload = lnt_graph_payload(&exchange->graph, frame);
    const uint8_t *codes = payload + lnt_layout_scale_bytes(wire, &exchange->grid, segment->range);
    const uint8_t *scales =
        wire->row->has_scales ? payload + sizeof(float) * (piece->block - segment->range.begin) : NULL;

    wire->ops.decode(&wire->cfg, scales, codes + code, piece->count, lnt_piece_live(exchange, piece), out);
}

/* Decodes [pos, end), which lies in chunk segment i. */
static void read_segment(const lnt_exchange_t *exchange, uint32_t i, uint64_t pos, uint64_t end, float *out)
{
    const lnt_segment_t *segment = &exchange->chunk_segs[i];
    lnt_segment_t part = {{lnt_grid_block(&exchange->grid, pos), 0}, pos, end};
    lnt_piece_t piece = lnt_piece_begin(exchange, &part);
    uint64_t code = lnt_layout_code_offset(&exchange->wire, &exchange->grid, segment->range, part.range.begin);

    while (lnt_piece_next(exchange, &piece)) {
        lnt_exchange_decode_piece(exchange, segment, exchange->result_frame + i, &piece, code + piece.code,
                                  out + (piece.pos - pos));
    }
}

void lnt_exchange_read(const lnt_exchange_t *exchange, uint64_t pos, uint64_t count, float *out)
{
    uint64_t end = pos + count;
    uint32_t i = lnt_exchange_find(exchange->chunk_segs, n_chunk_segs(exchange), pos);

    while (pos < end) {
        uint64_t limit = exchange->chunk_segs[i].end < end ? exchange->chunk_segs[i].end : end;

        read_segment(exchange, i++, pos, limit, out);
        out += limit - pos;
        pos = limit;
    }
}

/* Decodes [pos, pos + count) of the block at `begin`. Codes are read from whole bytes: at most 7 elements too many. */
static void read_in_block(const lnt_exchange_t *exchange, uint64_t begin, uint64_t pos, uint64_t count, float *out)
{
    const lnt_grid_t *grid = &exchange->grid;
    const lnt_codec_t *wire = &exchange->wire;
    const uint32_t i = lnt_exchange_find(exchange->chunk_segs, n_chunk_segs(exchange), pos);
    const lnt_range_t range = exchange->chunk_segs[i].range;
    const uint8_t *payload = lnt_graph_payload(&exchange->graph, exchange->result_frame + i);
    const uint64_t block = lnt_grid_block(grid, begin), lead = (pos - begin) % 8;
    const uint8_t *scales = wire->row->has_scales ? payload + sizeof(float) * (block - range.begin) : NULL;
    const uint8_t *codes = payload + lnt_layout_scale_bytes(wire, grid, range) +
                           lnt_layout_code_offset(wire, grid, range, block) + (pos - begin) / 8 * wire->row->bits;
    float first[8];

    if (lead != 0) {
        uint64_t n = 8 - lead < count ? 8 - lead : count;
        wire->ops.decode(&wire->cfg, scales, codes, lead + n, NULL, first);
        memcpy(out, first + lead, n * sizeof(*first));
        codes += wire->row->bits;
        count -= n;
        out += n;
    }
    wire->ops.decode(&wire->cfg, scales, codes, count, NULL, out);
}

void lnt_exchange_read_part(const lnt_exchange_t *exchange, uint64_t pos, uint64_t count, float *out)
{
    const uint64_t block = exchange->grid.block, stop = pos + count;

    while (pos < stop) {
        uint64_t begin = pos / block * block, end = begin + block < stop ? begin + block : stop;

        read_in_block(exchange, begin, pos, end - pos, out);
        out += end - pos;
        pos = end;
    }
}

const uint8_t *lnt_exchange_live(const lnt_exchange_t *exchange, uint64_t pos, uint64_t count)
{
    const lnt_grid_t *grid = &exchange->grid;
    uint64_t first = lnt_grid_block(grid, pos);

    for (uint64_t b = first; exchange->any_dead && b < grid->n_blocks && lnt_grid_pos(grid, b) < pos + count; b++) {
        if (exchange->dead_block[b]) {
            return exchange->mask + lnt_layout_mask_offset(grid, first);
        }
    }
    return NULL;
}

const uint8_t *lnt_exchange_active(const lnt_exchange_t *exchange)
{
    if (!exchange->any_dead) {
        return NULL;
    }
    for (uint32_t i = 0; i < n_chunk_segs(exchange); i++) {
        const lnt_range_t *range = &exchange->chunk_segs[i].range;
        const uint8_t *section = lnt_graph_section(&exchange->graph, exchange->result_frame + i);
        uint32_t bit = 0;

        for (uint64_t b = range->begin; b < range->end; b++) {
            exchange->active[b] = 0;
            if (exchange->dead_block[b]) {
                exchange->active[b] = section[bit / 8] >> bit % 8 & 1;
                bit++;
            }
        }
    }
    return exchange->active;
}

/* --- masks -------------------------------------------------------------------------------------------------------- */

/* Elements [from, to) of extent e; live[i] belongs to element from + i. Blocks start on bytes and are multiples of 8,
 * so inside an extent element i has bit i. */
static void set_extent(lnt_exchange_t *exchange, size_t e, uint64_t from, uint64_t to, const uint8_t *live)
{
    const lnt_grid_t *grid = &exchange->grid;
    uint8_t *mask = exchange->mask + lnt_layout_mask_offset(grid, grid->first[e]);

    for (uint64_t i = from; i < to; i++) {
        uint8_t bit = (uint8_t)(1u << i % 8);

        if (live == NULL || live[i - from] != 0) {
            mask[i / 8] = (uint8_t)(mask[i / 8] | bit);
            continue;
        }
        mask[i / 8] = (uint8_t)(mask[i / 8] & ~bit);
        lnt_exchange_zero_error(exchange, grid->pos[e] + i);
    }
    lnt_exchange_keep_again(exchange, grid->pos[e], grid->pos[e + 1]);
}

static void find_dead_blocks(lnt_exchange_t *exchange, size_t e)
{
    const lnt_grid_t *grid = &exchange->grid;
    const uint8_t *mask = exchange->mask + lnt_layout_mask_offset(grid, grid->first[e]);
    uint64_t count = grid->extents[e].count;

    for (uint64_t i = 0, b = grid->first[e]; i < count; b++) {
        uint64_t end = i + grid->block < count ? i + grid->block : count;
        bool dead = false;

        for (; i < end; i++) {
            dead = dead || (mask[i / 8] >> i % 8 & 1) == 0;
        }
        exchange->dead_block[b] = dead;
    }
}

void lnt_exchange_init_mask(lnt_exchange_t *exchange)
{
    for (size_t e = 0; e < exchange->grid.n_extents && exchange->mask != NULL; e++) {
        set_extent(exchange, e, 0, exchange->grid.extents[e].count, NULL);
    }
}

static void set_section(lnt_exchange_t *exchange, uint32_t frame, uint32_t bytes)
{
    exchange->graph.frames[frame].section_bytes = bytes;
    lnt_graph_header(&exchange->graph, frame)->section_bytes = bytes;
}

/* Frames shrink and grow with the number of blocks that have dead coordinates; room for all was reserved. */
void lnt_exchange_update_sections(lnt_exchange_t *exchange)
{
    uint32_t n_nodes = exchange->params.topo->n_nodes;

    exchange->any_dead = !exchange->grid.packed && exchange->grid.n_blocks != 0 &&
                         memchr(exchange->dead_block, 1, exchange->grid.n_blocks) != NULL;
    for (uint32_t i = 0; i < n_chunk_segs(exchange); i++) {
        const lnt_range_t *range = &exchange->chunk_segs[i].range;
        uint64_t n_dead = 0;
        uint32_t bytes;

        for (uint64_t b = range->begin; b < range->end && exchange->any_dead; b++) {
            n_dead += exchange->dead_block[b];
        }
        bytes = (uint32_t)((n_dead + 7) / 8);
        set_section(exchange, exchange->result_frame + i, bytes);
        if (exchange->owns && i - exchange->own_code < exchange->n_code) {
            set_section(exchange, exchange->code_frame + (i - exchange->own_code), bytes);
        }
        for (uint32_t b = 0; b + 1 < n_nodes && exchange->owns && i - exchange->own_serve < exchange->n_serve; b++) {
            set_section(exchange, exchange->serve_frame + b * exchange->n_serve + (i - exchange->own_serve), bytes);
        }
    }
}

lnt_status_t lnt_exchange_set_live(lnt_exchange_t *exchange, uint32_t tensor, uint64_t offset, uint64_t count,
                                   const uint8_t *live)
{
    const lnt_grid_t *grid = &exchange->grid;

    LNT_CHECK_ARG(!grid->packed);
    for (size_t e = 0; e < grid->n_extents; e++) {
        const lnt_extent_t *extent = &grid->extents[e];
        uint64_t begin = extent->offset > offset ? extent->offset : offset;
        uint64_t end =
            extent->offset + extent->count < offset + count ? extent->offset + extent->count : offset + count;

        if (extent->tensor == tensor && begin < end) {
            set_extent(exchange, e, begin - extent->offset, end - extent->offset,
                       live == NULL ? NULL : live + (begin - offset));
            find_dead_blocks(exchange, e);
        }
    }
    lnt_exchange_update_sections(exchange);
    return LNT_OK;
}
