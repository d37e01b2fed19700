/* Insides of the exchange, shared by exchange.c (life, sizes), exchange_build.c (the graph), exchange_form.c (values
 * before they are coded), exchange_tasks.c (coding), exchange_errors.c and exchange_state.c (masks,
 * results).
 *
 * Frames are numbered in groups, so a frame is found by arithmetic:
 *
 *   result_frame + i                      chunk segment i as the servers coded it (phase 2), all shards and chunks
 *   code_frame   + i                      chunk segment own_code + i as this owner coded it (phase 1); one node: the
 * result itself serve_frame  + b * n_serve + s        own chunk's segment s from node b (phase 1); b skips this node
 *   gather_frame + j * n_gather + s       own shard's segment s from rank j of this node (phase 0); j skips this rank
 *   and behind these the frames of other owners' shards that this rank sends (phase 0).
 */
#ifndef LNT_COLL_EXCHANGE_INTERNAL_H
#define LNT_COLL_EXCHANGE_INTERNAL_H

#include "exchange.h"

enum {
    LNT_STACK_ELEMS = 4096, /* values on the way through a task: stays in the first-level cache */
    LNT_SERVE_ELEMS = 1024  /* the same at a server, which passes over them often: one chunk of a kernel */
};

/* The most elements that are whole blocks and not more than `most`, or one block. */
static inline uint64_t lnt_piece_elems(uint64_t block, uint64_t most)
{
    return block > most ? block : most / block * block;
}

/* Whole blocks and their positions: what one frame carries. */
typedef struct lnt_segment {
    lnt_range_t range;
    uint64_t pos, end;
} lnt_segment_t;

/* A block of the worker's scale in compat grids. Written by its measure task, read by the encode tasks behind it. */
typedef struct lnt_scale_block {
    lnt_segment_t segment;
    float scale;
    uint8_t flags;
} lnt_scale_block_t;

/* Errors of a shard or chunk as they are kept. scales: LNT_ERROR_BLOCKs follow the grid's blocks, whole in each. */
typedef struct lnt_kept {
    void *codes;
    float *scales;
} lnt_kept_t;

struct lnt_exchange {
    lnt_exchange_params_t params; /* extents: see grid */
    lnt_graph_t graph;
    lnt_grid_t grid;
    lnt_codec_t wire; /* between nodes; f32 where there is one node */
    uint32_t node, local, n_local;
    bool owns;     /* a shard, the one with this rank's local index */
    bool feedback; /* errors are kept, if it owns something */
    bool carried;  /* the carry went out with the last commit */
    lnt_exchange_step_t step;

    lnt_segment_t *shard_segs;     /* of all shards, in order of position */
    uint32_t *shard_first;         /* [S + 1] */
    lnt_segment_t *chunk_segs;     /* of all chunks of all shards, in order of position */
    uint32_t *chunk_first;         /* [S * M + 1] */
    uint32_t own_gather, n_gather; /* shard segments of the own shard */
    uint32_t own_code, n_code;     /* chunk segments of the own shard */
    uint32_t own_serve, n_serve;   /* chunk segments of the own chunk */
    uint32_t result_frame, code_frame, serve_frame, gather_frame;
    uint64_t shard_pos, shard_end, chunk_pos, chunk_end;

    uint64_t piece_max; /* elements a task handles at a time, whole blocks */
    uint64_t serve_max; /* the same for the server; not more than piece_max */
    uint64_t span_max;  /* elements a stage function gets, whole blocks where they fit */
    float *big[2]; /* values of one block too large for the stack: encode, serve. Their tasks are chained by edges */

    lnt_scale_block_t *scale_blocks; /* compat grids only */
    uint32_t n_scale_blocks;
    uint64_t formed; /* offset in the workspace of the own shard's values, between measure and encode */

    const lnt_error_row_t *errors;    /* how errors are kept */
    lnt_kept_t worker, worker_shadow; /* [shard_end - shard_pos] */
    lnt_kept_t server, server_shadow; /* [chunk_end - chunk_pos] */
    float *big_error[2];              /* as `big`, for errors that are not kept in f32 */
    uint8_t *mask;       /* one bit per element, every block on a byte; NULL where masks are not possible */
    uint8_t *dead_block; /* [n_blocks] the block has dead coordinates */
    uint8_t
        *touched;    /* [n_blocks] a dead coordinate's node sum is not zero; written by the task that forms the block */
    uint8_t *active; /* [n_blocks] result */
    bool any_dead;
};

/* Chunk segment `segment` in the high half, frame in the low one. */
static inline uint64_t lnt_exchange_task_arg(uint32_t segment, uint32_t frame)
{
    return (uint64_t)segment << 32 | frame;
}

lnt_status_t lnt_exchange_build(lnt_exchange_t *exchange, lnt_graph_t *graph, lnt_graph_bytes_t *bytes_p);
void lnt_exchange_update_sections(lnt_exchange_t *exchange);
void lnt_exchange_init_mask(lnt_exchange_t *exchange);

/* Segment of [first, first + n) that holds position pos. */
uint32_t lnt_exchange_find(const lnt_segment_t *segments, uint32_t n, uint64_t pos);

/* Kept errors of [pos, pos + count); base: the first position kept. */
typedef struct lnt_kept_run {
    uint64_t base, pos, count;
    uint64_t block, within; /* `within` elements behind the beginning of this block, in its extent */
} lnt_kept_run_t;
void lnt_exchange_load(const lnt_exchange_t *exchange, const lnt_kept_t *kept, const lnt_kept_run_t *run, float *out);
void lnt_exchange_store(const lnt_exchange_t *exchange, const lnt_kept_t *kept, const lnt_kept_run_t *run,
                        const float *values);

uint64_t lnt_exchange_scale_bytes(const lnt_exchange_t *exchange, uint64_t pos, uint64_t end);
/* One element, after which its extent is to be kept again. */
void lnt_exchange_zero_error(lnt_exchange_t *exchange, uint64_t pos);
void lnt_exchange_keep_again(lnt_exchange_t *exchange, uint64_t pos, uint64_t end);

/* RUN tasks. */
void lnt_exchange_run_local(lnt_graph_t *graph, uint32_t task, uint64_t arg);   /* arg: shard segment, frame */
void lnt_exchange_run_measure(lnt_graph_t *graph, uint32_t task, uint64_t arg); /* arg: scale block */
void lnt_exchange_run_encode(lnt_graph_t *graph, uint32_t task, uint64_t arg);  /* arg: chunk segment, frame */
void lnt_exchange_run_serve(lnt_graph_t *graph, uint32_t task, uint64_t arg);   /* arg: chunk segment, frame */

/* Walks a segment in pieces of at most `max` elements: whole blocks that follow each other inside one extent, or
 * for packed grids anywhere. Offsets are relative to the codes of the segment's frame. Start with lnt_piece_begin. */
typedef struct lnt_piece {
    uint64_t pos, count, end, max;
    uint64_t block, n_blocks;
    uint64_t code; /* byte of the first block's code */
    uint64_t mask; /* byte of the first block's mask */
} lnt_piece_t;

lnt_piece_t lnt_piece_begin(const lnt_exchange_t *exchange, const lnt_segment_t *segment); /* max: piece_max */
bool lnt_piece_next(const lnt_exchange_t *exchange, lnt_piece_t *piece);
const uint8_t *lnt_piece_live(const lnt_exchange_t *exchange,
                              const lnt_piece_t *piece); /* mask of its blocks or NULL */

/* Values of a piece of a segment as `frame` holds them; code: byte of the piece's first code among those of the frame.
 */
void lnt_exchange_decode_piece(const lnt_exchange_t *exchange, const lnt_segment_t *segment, uint32_t frame,
                               const lnt_piece_t *piece, uint64_t code, float *out);

static inline bool lnt_live_bit(const uint8_t *live, uint64_t i)
{
    return live == NULL || (live[i / 8] >> (i % 8) & 1) != 0;
}

/* What is coded, before the error is added: node sum, factor, finite check, produce_wire. Also notes which blocks are
 * touched. Returns flags of the values; those of the node's frames that overlap [pos, end) come from gather_flags. */
uint8_t lnt_exchange_form_wire(const lnt_exchange_t *exchange, const lnt_piece_t *piece, float *values);
/* The gradient itself, where form_wire would make nothing else of it: its elements of *dtype_p, to be coded as they
 * are. NULL: form it. */
const void *lnt_exchange_as_given(const lnt_exchange_t *exchange, const lnt_piece_t *piece, lnt_dtype_t *dtype_p);
uint8_t lnt_exchange_gather_flags(const lnt_exchange_t *exchange, uint64_t pos, uint64_t end);

#endif
