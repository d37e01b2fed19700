/* The layout rules as pure functions of a grid (docs/architecture.md L1 to L7).
 *
 * Everything is found by binary search over extents; blocks are never listed. Positions of blocks rise strictly, since
 * no block is empty. A grid is limited to 2^56 elements, so sums of positions, bytes and bits of codes fit 64 bits;
 * products with world sizes are formed in 128 bits.
 */
#include "layout.h"

#include <assert.h>
#include <string.h>

#include "../base/error.h"
#include "../base/memory.h"
#include "../transport/transport.h"

#define MAX_ELEMS (UINT64_C(1) << 56)

__extension__ typedef unsigned __int128 wide_t;

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return (a < b) ? a : b;
}

static uint64_t blocks_in(uint64_t count, uint32_t block)
{
    return count / block + (count % block != 0);
}

/* Fills pos and first from the copied extents. False: more elements than a grid may have. */
static bool number_blocks(lnt_grid_t *grid, uint64_t *pos, uint64_t *first)
{
    for (size_t e = 0; e < grid->n_extents; ++e) {
        const lnt_extent_t *extent = &grid->extents[e];

        assert(grid->packed || (extent->offset % grid->block == 0));
        if (extent->count > MAX_ELEMS - pos[e]) {
            return false;
        }
        pos[e + 1] = pos[e] + extent->count;
        first[e + 1] =
            grid->packed ? blocks_in(pos[e + 1], grid->block) : first[e] + blocks_in(extent->count, grid->block);
    }
    grid->n_elems = pos[grid->n_extents];
    grid->n_blocks = first[grid->n_extents];
    return true;
}

lnt_status_t lnt_grid_init(lnt_grid_t *grid, const lnt_extent_t *extents, size_t n_extents, uint32_t block, bool packed)
{
    const size_t n_words = 2 * (n_extents + 1);
    lnt_grid_t made = {.block = block, .packed = packed, .n_extents = n_extents};
    uint64_t *pos;

    LNT_CHECK_ARG((grid != NULL) && ((extents != NULL) || (n_extents == 0)));
    LNT_CHECK_ARG((block != 0) && (block % 8 == 0)); /* compat grids need 8, all others keep 64 */
    pos = lnt_calloc(1, n_words * sizeof(*pos) + n_extents * sizeof(*extents), "grid");
    if (pos == NULL) {
        return LNT_ERR_NO_MEMORY;
    }
    made.pos = pos;
    made.first = pos + n_extents + 1;
    made.extents = (const lnt_extent_t *)(const void *)(pos + n_words);
    if (n_extents != 0) {
        memcpy(pos + n_words, extents, n_extents * sizeof(*extents));
    }
    if (!number_blocks(&made, pos, pos + n_extents + 1)) {
        lnt_free(pos);
        return lnt_error(LNT_ERR_OUT_OF_RANGE, "use smaller tensors or more buckets",
                         "a grid holds at most 2^56 elements");
    }
    *grid = made;
    return LNT_OK;
}

void lnt_grid_release(lnt_grid_t *grid)
{
    lnt_free((void *)(uintptr_t)grid->pos); /* one allocation */
    *grid = (lnt_grid_t){0};
}

/* Last index e < n_extents with starts[e] <= x; the extent it names holds x if x lies below starts[n_extents]. */
static size_t find_extent(const uint64_t *starts, size_t n_extents, uint64_t x)
{
    size_t low = 0, high = n_extents;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (starts[middle] <= x) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

uint64_t lnt_grid_pos(const lnt_grid_t *grid, uint64_t block)
{
    size_t e;

    assert(block <= grid->n_blocks);
    if (block >= grid->n_blocks) {
        return grid->n_elems;
    }
    if (grid->packed) {
        return block * grid->block;
    }
    e = find_extent(grid->first, grid->n_extents, block);
    return grid->pos[e] + (block - grid->first[e]) * grid->block;
}

uint64_t lnt_grid_block(const lnt_grid_t *grid, uint64_t pos)
{
    size_t e;

    if (pos >= grid->n_elems) {
        return grid->n_blocks;
    }
    if (grid->packed) {
        return blocks_in(pos, grid->block);
    }
    e = find_extent(grid->pos, grid->n_extents, pos);
    return grid->first[e] + blocks_in(pos - grid->pos[e], grid->block);
}

uint64_t lnt_range_elems(const lnt_grid_t *grid, lnt_range_t range)
{
    return lnt_grid_pos(grid, range.end) - lnt_grid_pos(grid, range.begin);
}

/* First block of `range` whose owner is i or higher: its offset times n is at least i * N. */
static uint64_t part_begin(const lnt_grid_t *grid, lnt_range_t range, uint32_t n, uint32_t i)
{
    const uint64_t n_elems = lnt_range_elems(grid, range);
    const uint64_t threshold = (uint64_t)(((wide_t)n_elems * i + n - 1) / n);
    const uint64_t block = lnt_grid_block(grid, lnt_grid_pos(grid, range.begin) + threshold);

    return min_u64(block, range.end);
}

lnt_range_t lnt_layout_part(const lnt_grid_t *grid, lnt_range_t range, uint32_t n, uint32_t i)
{
    assert(i < n);
    return (lnt_range_t){part_begin(grid, range, n, i), part_begin(grid, range, n, i + 1)};
}

lnt_range_t lnt_layout_segment(const lnt_grid_t *grid, lnt_range_t range, uint64_t begin, uint64_t segment_elems)
{
    const uint64_t pos = lnt_grid_pos(grid, begin);
    const uint64_t limit = pos + min_u64(segment_elems, grid->n_elems - pos);
    uint64_t end = lnt_grid_block(grid, limit);

    if (lnt_grid_pos(grid, end) > limit) {
        --end; /* the block that crosses the limit */
    }
    end = (end > begin) ? end : begin + 1;
    return (lnt_range_t){begin, min_u64(end, range.end)};
}

uint32_t lnt_layout_n_segments(const lnt_grid_t *grid, lnt_range_t range, uint64_t segment_elems)
{
    uint32_t n = 0;

    for (uint64_t k = range.begin; k < range.end; ++n) {
        k = lnt_layout_segment(grid, range, k, segment_elems).end;
    }
    return n;
}

lnt_run_t lnt_layout_run(const lnt_grid_t *grid, uint64_t pos, uint64_t end_pos)
{
    const size_t e = find_extent(grid->pos, grid->n_extents, pos);
    uint64_t end = min_u64(grid->pos[e + 1], end_pos);
    const uint64_t in = pos - grid->pos[e];

    assert((pos < end_pos) && (end_pos <= grid->n_elems));
    if (grid->packed) {
        end = min_u64(end, (pos / grid->block + 1) * grid->block);
    }
    return (lnt_run_t){grid->extents[e].tensor, grid->extents[e].offset + in, pos, end - pos};
}

uint64_t lnt_layout_scale_bytes(const lnt_codec_t *codec, const lnt_grid_t *grid, lnt_range_t range)
{
    (void)grid;
    return codec->row->has_scales ? sizeof(float) * (range.end - range.begin) : 0;
}

/* Codes of whole blocks [range.begin, range.end), `bits` per element. Only the last block of an extent (packed: of the
 * grid) can be short, and only below 8 bits does a short block waste any. */
static uint64_t code_bytes(uint32_t bits, const lnt_grid_t *grid, lnt_range_t range)
{
    uint64_t pos = lnt_grid_pos(grid, range.begin), end = lnt_grid_pos(grid, range.end), bytes = 0;

    if ((bits % 8 == 0) || grid->packed) {
        return ((end - pos) * bits + 7) / 8;
    }
    for (size_t e = (pos < end) ? find_extent(grid->pos, grid->n_extents, pos) : 0; pos < end; ++e) {
        uint64_t here = min_u64(grid->pos[e + 1], end) - pos;

        bytes += (here * bits + 7) / 8;
        pos += here;
    }
    return bytes;
}

uint64_t lnt_layout_code_bytes(const lnt_codec_t *codec, const lnt_grid_t *grid, lnt_range_t range)
{
    return code_bytes(codec->row->bits, grid, range);
}

uint64_t lnt_layout_code_offset(const lnt_codec_t *codec, const lnt_grid_t *grid, lnt_range_t range, uint64_t block)
{
    return code_bytes(codec->row->bits, grid, (lnt_range_t){range.begin, block});
}

uint64_t lnt_layout_mask_offset(const lnt_grid_t *grid, uint64_t block)
{
    return code_bytes(1, grid, (lnt_range_t){0, block});
}

uint64_t lnt_layout_frame_bytes(const lnt_codec_t *codec, const lnt_grid_t *grid, lnt_range_t range,
                                uint64_t n_dead_blocks)
{
    return LNT_FRAME_HEADER_BYTES + lnt_layout_scale_bytes(codec, grid, range) +
           lnt_layout_code_bytes(codec, grid, range) + (n_dead_blocks + 7) / 8;
}

/* Bytes of all frames of a range. Frames of phase 0 have no activity section: no dead_block. */
static wide_t frames_bytes(const lnt_codec_t *codec, const lnt_grid_t *grid, lnt_range_t range, uint64_t segment_elems,
                           const uint8_t *dead_block)
{
    wide_t bytes = 0;

    for (uint64_t k = range.begin; k < range.end;) {
        lnt_range_t segment = lnt_layout_segment(grid, range, k, segment_elems);
        uint64_t n_dead = 0;

        for (; (dead_block != NULL) && (k < segment.end); ++k) {
            n_dead += (dead_block[k] != 0);
        }
        bytes += lnt_layout_frame_bytes(codec, grid, segment, n_dead);
        k = segment.end;
    }
    return bytes;
}

typedef struct sent {
    wide_t intra, inter;
} sent_t;

/* What the owner of shard range `shard` on `node` sends: its coded chunks to their servers, what it serves to the other
 * owners, and everything to the ranks of its node. */
static sent_t owner_bytes(const lnt_grid_t *grid, const lnt_topo_t *topo, const lnt_codec_t *codec,
                          uint64_t segment_elems, const uint8_t *dead_block, lnt_range_t shard, uint32_t node)
{
    wide_t all = 0, own = 0;

    for (uint32_t c = 0; c < topo->n_nodes; ++c) {
        wide_t bytes =
            frames_bytes(codec, grid, lnt_layout_part(grid, shard, topo->n_nodes, c), segment_elems, dead_block);

        all += bytes;
        own = (c == node) ? bytes : own;
    }
    return (sent_t){(lnt_topo_local_size(topo, node) - 1) * all, all - own + (topo->n_nodes - 1) * own};
}

lnt_status_t lnt_layout_exchange_bytes(const lnt_grid_t *grid, const lnt_topo_t *topo, const lnt_codec_t *codec,
                                       uint64_t segment_elems, const uint8_t *dead_block, uint32_t rank,
                                       lnt_bytes_t *bytes_p)
{
    const uint32_t node = topo->node_of[rank];
    const lnt_codec_t plain = {.row = lnt_codec_row_by_name("f32")};
    const lnt_codec_t *wire = (topo->n_nodes > 1) ? codec : &plain;
    sent_t sum = {0, 0};

    for (uint32_t d = 0; d < topo->n_shards; ++d) {
        lnt_range_t shard = lnt_layout_part(grid, (lnt_range_t){0, grid->n_blocks}, topo->n_shards, d);

        if (lnt_topo_owner(topo, node, d) == rank) {
            sent_t owner = owner_bytes(grid, topo, wire, segment_elems, dead_block, shard, node);

            sum.intra += owner.intra;
            sum.inter += owner.inter;
        } else {
            sum.intra += frames_bytes(&plain, grid, shard, segment_elems, NULL);
        }
    }
    if ((sum.intra > UINT64_MAX) || (sum.inter > UINT64_MAX)) {
        return lnt_error(LNT_ERR_OUT_OF_RANGE, NULL, "the bytes rank %u sends do not fit 64 bits", rank);
    }
    *bytes_p = (lnt_bytes_t){(uint64_t)sum.intra, (uint64_t)sum.inter};
    return LNT_OK;
}

typedef struct bucket {
    lnt_extent_t *extents; /* room for one per tensor */
    size_t n_extents;
    uint64_t n_elems;
    lnt_bucket_fn_t emit;
    void *arg;
} bucket_t;

static lnt_status_t bucket_emit(bucket_t *bucket)
{
    lnt_status_t status =
        (bucket->n_extents != 0) ? bucket->emit(bucket->arg, bucket->extents, bucket->n_extents) : LNT_OK;

    bucket->n_extents = 0;
    bucket->n_elems = 0;
    return status;
}

/* Elements of whole blocks that may be added now, of `left` that remain in the tensor; 0: the bucket is full. */
static uint64_t bucket_room(const bucket_t *bucket, uint64_t left, uint32_t block, uint64_t bucket_elems)
{
    const uint64_t room = (bucket_elems > bucket->n_elems) ? bucket_elems - bucket->n_elems : 0;

    if (left <= room) {
        return left;
    }
    if ((room < block) && (bucket->n_elems == 0)) {
        return min_u64(left, block);
    }
    return room / block * block;
}

static lnt_status_t bucket_add_tensor(bucket_t *bucket, uint32_t tensor, uint64_t count, uint32_t block,
                                      uint64_t bucket_elems)
{
    for (uint64_t offset = 0; offset < count;) {
        uint64_t n = bucket_room(bucket, count - offset, block, bucket_elems);

        if (n == 0) {
            LNT_TRY(bucket_emit(bucket));
            continue;
        }
        bucket->extents[bucket->n_extents++] = (lnt_extent_t){tensor, offset, n};
        bucket->n_elems += n;
        offset += n;
    }
    return LNT_OK;
}

lnt_status_t lnt_layout_buckets(const uint64_t *counts, uint32_t n_tensors, uint32_t block, uint64_t bucket_elems,
                                lnt_bucket_fn_t emit, void *arg)
{
    bucket_t bucket = {.emit = emit, .arg = arg};
    lnt_status_t status = LNT_OK;

    bucket.extents = lnt_calloc(n_tensors, sizeof(*bucket.extents), "bucket extents");
    if (bucket.extents == NULL) {
        return LNT_ERR_NO_MEMORY;
    }
    for (uint32_t t = 0; (t < n_tensors) && (status >= 0); ++t) {
        status = bucket_add_tensor(&bucket, t, counts[t], block, bucket_elems);
    }
    if (status >= 0) {
        status = bucket_emit(&bucket);
    }
    lnt_free(bucket.extents);
    return status;
}
