/* Layout: rules L1 to L7 of docs/architecture.md as pure functions. Used by sender, receiver, error-feedback export,
 * byte counters and tests; nobody else computes an offset.
 *
 * A *grid* describes the packed vector of one program in one bucket: extents (pieces of tensors) one after the other,
 * cut into blocks. Positions (`pos`) count elements of the packed vector. Nothing but the grid's own extents and block
 * size cuts a block (L1). Nothing here allocates per block: a grid of 2^33 elements costs its extents only.
 */
#ifndef LNT_COLL_LAYOUT_H
#define LNT_COLL_LAYOUT_H

#include "../../kernels/codec.h"
#include "../topo/topo.h"

typedef struct lnt_extent {
    uint32_t tensor;
    uint64_t offset; /* first element inside the tensor */
    uint64_t count;
} lnt_extent_t;

typedef struct lnt_grid {
    uint32_t block;
    bool packed; /* blocks run over extent borders */
    size_t n_extents;
    const lnt_extent_t *extents; /* owned by the grid */
    const uint64_t *pos;         /* [n_extents + 1] first position of every extent */
    const uint64_t *first; /* [n_extents + 1] number of the first block that begins in every extent (not packed) */
    uint64_t n_blocks;
    uint64_t n_elems;
} lnt_grid_t;

/* Copies extents; those with count 0 are kept. An extent that does not start at a block border of its tensor is a bug
 * of the caller (assert) unless packed. */
lnt_status_t lnt_grid_init(lnt_grid_t *grid, const lnt_extent_t *extents, size_t n_extents, uint32_t block,
                           bool packed);
void lnt_grid_release(lnt_grid_t *grid);

/* First position of block k; lnt_grid_pos(grid, n_blocks) = n_elems. O(log extents). */
uint64_t lnt_grid_pos(const lnt_grid_t *grid, uint64_t block);
/* First block that starts at or behind pos; n_blocks if there is none. O(log extents). */
uint64_t lnt_grid_block(const lnt_grid_t *grid, uint64_t pos);

/* A range of whole blocks. */
typedef struct lnt_range {
    uint64_t begin, end; /* block numbers */
} lnt_range_t;

uint64_t lnt_range_elems(const lnt_grid_t *grid, lnt_range_t range);

/* L2: part i of `range` cut among n owners: block k belongs to floor(o_k * n / N), o_k and N relative to the range. */
lnt_range_t lnt_layout_part(const lnt_grid_t *grid, lnt_range_t range, uint32_t n, uint32_t i);

/* L4: the segment of `range` that starts at block `begin`: as many blocks as fit into segment_elems, at least one. */
lnt_range_t lnt_layout_segment(const lnt_grid_t *grid, lnt_range_t range, uint64_t begin, uint64_t segment_elems);
uint32_t lnt_layout_n_segments(const lnt_grid_t *grid, lnt_range_t range, uint64_t segment_elems);

/* Largest contiguous run inside one extent: the run of `range` that starts at position pos. For packed grids a run ends
 * at extent and block borders. */
typedef struct lnt_run {
    uint32_t tensor;
    uint64_t offset; /* in the tensor */
    uint64_t pos;    /* in the packed vector */
    uint64_t count;
} lnt_run_t;
lnt_run_t lnt_layout_run(const lnt_grid_t *grid, uint64_t pos, uint64_t end_pos);

/* L5: payload of the blocks of a range: scales first, then codes, each block on a byte. */
uint64_t lnt_layout_scale_bytes(const lnt_codec_t *codec, const lnt_grid_t *grid, lnt_range_t range);
uint64_t lnt_layout_code_bytes(const lnt_codec_t *codec, const lnt_grid_t *grid, lnt_range_t range);
/* Codes of block `block` start at this byte of the frame's codes. */
uint64_t lnt_layout_code_offset(const lnt_codec_t *codec, const lnt_grid_t *grid, lnt_range_t range, uint64_t block);

/* Live masks use the code layout of sign1: bytes before the mask of `block` in a mask of the whole grid. */
uint64_t lnt_layout_mask_offset(const lnt_grid_t *grid, uint64_t block);

/* Bytes of one frame: header, payload, activity section (one bit per block of the range that has dead coordinates;
 * n_dead_blocks of them). */
uint64_t lnt_layout_frame_bytes(const lnt_codec_t *codec, const lnt_grid_t *grid, lnt_range_t range,
                                uint64_t n_dead_blocks);

/* L7: bytes every rank sends for one exchange: inside nodes, between nodes. dead_block[k] != 0: block k has dead
 * coordinates; NULL: none. */
typedef struct lnt_bytes {
    uint64_t intra, inter;
} lnt_bytes_t;
lnt_status_t lnt_layout_exchange_bytes(const lnt_grid_t *grid, const lnt_topo_t *topo, const lnt_codec_t *codec,
                                       uint64_t segment_elems, const uint8_t *dead_block, uint32_t rank,
                                       lnt_bytes_t *bytes_p);

/* Buckets: extents of the plan cut greedily at borders of `block`-blocks so that a bucket holds at most bucket_elems,
 * unless one block does. Calls emit for each bucket with its extents. counts[t] is the length of tensor t. */
typedef lnt_status_t (*lnt_bucket_fn_t)(void *arg, const lnt_extent_t *extents, size_t n_extents);
lnt_status_t lnt_layout_buckets(const uint64_t *counts, uint32_t n_tensors, uint32_t block, uint64_t bucket_elems,
                                lnt_bucket_fn_t emit, void *arg);

#endif
