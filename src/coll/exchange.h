/* The two-phase compressed mean over a hierarchy, for one bucket of one program (docs/architecture.md L3).
 *
 * Phase 0: every rank sends produce_local in f32 to the shard owners of its node; the owner sums in rank order and
 * multiplies by the factor. Phase 1: produce_wire, plus worker error, coded, to the server of each chunk. Phase 2: the
 * server decodes all in node order, times server_factor, plus server error, codes again, sends to the other owners of
 * the shard, and owners hand the received bytes on inside their node. All frames of phase 2 stay until commit or abort.
 * One node: no codec (f32), no errors, same factor. The flat form is the map with one rank per node.
 *
 * Errors are double: encode reads the live ones and writes the shadows; commit swaps.
 */
#ifndef LNT_COLL_EXCHANGE_H
#define LNT_COLL_EXCHANGE_H

#include "../../include/linnet/stage.h"
#include "exec.h"
#include "layout.h"

typedef struct lnt_exchange lnt_exchange_t;

/* Where the local contribution of a tensor lies in this step. `values` NULL: zeros. `accumulated` (f32) is added if not
 * NULL. */
typedef struct lnt_source {
    const void *values;
    lnt_dtype_t dtype;
    const float *accumulated;
} lnt_source_t;

typedef struct lnt_exchange_params {
    const lnt_topo_t *topo; /* outlives the exchange */
    uint32_t rank;
    const lnt_extent_t *extents; /* of the bucket, copied */
    size_t n_extents;
    bool packed;
    lnt_codec_t codec;
    uint32_t scale_block; /* compat: one worker scale per this many elements, a multiple of codec.cfg.block that may
                           * exceed chunks and segments; 0: the codec's block. The server grid keeps codec.cfg.block */
    uint64_t segment_elems;
    uint16_t program;
    uint32_t bucket;
    bool feeds_v;
    bool stream;                   /* errors are part of LNT_STREAM_ELEMS or more */
    bool feedback;                 /* keep errors (if the codec has feedback and there is more than one node) */
    const lnt_error_row_t *errors; /* how; NULL: f32. Packed and compat grids keep f32 in any case */
    lnt_stage_t stage;             /* produce_local, produce_wire; functions may be NULL */
    const lnt_source_t *sources;   /* indexed by tensor; read at run time */
} lnt_exchange_params_t;

typedef struct lnt_exchange_memory {
    uint64_t errors, shadows, frames, graphs;
} lnt_exchange_memory_t;

lnt_status_t lnt_exchange_create(const lnt_exchange_params_t *params, lnt_exchange_t **exchange_p);
lnt_status_t lnt_exchange_predict(const lnt_exchange_params_t *params, lnt_exchange_memory_t *memory_p);
void lnt_exchange_destroy(lnt_exchange_t *exchange);

lnt_graph_t *lnt_exchange_graph(lnt_exchange_t *exchange);
const lnt_grid_t *lnt_exchange_grid(const lnt_exchange_t *exchange);

/* What one run is made with. mean: factor = (float)((double)M / n * ...), server_factor = (float)(1.0 / M); sum: 1
 * and 1. Encode ops get as index an element's place in its tensor, and as seed a hash of step, program, tensor and who
 * codes (node, or server): independent of buckets and segments. Packed pieces count on from the tensor they begin in.
 */
typedef struct lnt_exchange_step {
    float factor, server_factor;
    uint64_t step; /* equal on all ranks; the number of committed steps, so that a resumed run draws the same numbers */
} lnt_exchange_step_t;

void lnt_exchange_prepare(lnt_exchange_t *exchange, const lnt_exchange_step_t *step); /* before arming */

/* After the job is done: decoded values of positions [pos, pos + count) of the packed vector; pos at a block border,
 * pos + count at a block border or the end. Same bytes on every rank. Also the mask of the grid, or NULL. */
void lnt_exchange_read(const lnt_exchange_t *exchange, uint64_t pos, uint64_t count, float *out);
/* The same for packed grids, from any position to any other. */
void lnt_exchange_read_part(const lnt_exchange_t *exchange, uint64_t pos, uint64_t count, float *out);
/* Mask bits of [pos, pos + count), which starts at a block border and lies in one extent; NULL if all are live. */
const uint8_t *lnt_exchange_live(const lnt_exchange_t *exchange, uint64_t pos, uint64_t count);

void lnt_exchange_commit(lnt_exchange_t *exchange); /* shadows become live */
/* Abort = call nothing. */
void lnt_exchange_keep_errors(lnt_exchange_t *exchange, uint32_t tensor); /* after commit: its errors as before it */

/* live: one byte per element of [offset, offset + count) of `tensor`, or NULL = all live. Idle only. */
lnt_status_t lnt_exchange_set_live(lnt_exchange_t *exchange, uint32_t tensor, uint64_t offset, uint64_t count,
                                   const uint8_t *live);
void lnt_exchange_drop_errors(lnt_exchange_t *exchange, double *sum_of_squares_p);

/* Live errors this rank owns: positions [begin, end) of the packed vector; empty where it owns none. `values`: the
 * errors themselves if they are kept in f32, else NULL: read and write copies, of ranges that begin at a block border.
 */
typedef struct lnt_owned {
    uint64_t begin, end;
    float *values;
} lnt_owned_t;
lnt_owned_t lnt_exchange_worker_error(const lnt_exchange_t *exchange);
lnt_owned_t lnt_exchange_server_error(const lnt_exchange_t *exchange);
void lnt_exchange_read_error(const lnt_exchange_t *exchange, bool server, uint64_t pos, uint64_t count, float *out);
void lnt_exchange_write_error(lnt_exchange_t *exchange, bool server, uint64_t pos, uint64_t count,
                              const float *values); /* NULL: zeros */

/* Idle, one node only: room for a residual that comes from a world of several nodes, zeros at first, as server errors
 * of the own shard. A run adds it to the value; with the commit of that run it is gone, and the room too by the next
 * one. No effect where errors are kept anyway, or the codec would keep none. Removing never fails. */
lnt_status_t lnt_exchange_set_carry(lnt_exchange_t *exchange, bool wanted);
/* Bytes of that room now, the same again for its shadow; no part of lnt_exchange_predict. */
uint64_t lnt_exchange_carry_bytes(const lnt_exchange_t *exchange);

/* Idle, errors kept in f32: swaps the live errors with memory of the same sizes (lnt_alloc_aligned), so that errors may
 * outlive the exchange. */
void lnt_exchange_swap_errors(lnt_exchange_t *exchange, float **worker, float **server);

/* Sums over what this rank coded in the last run: squares of what went in (without the old error), of what was coded
 * (with it) and of the new error; per block |a|_1 * |a|_2 / sqrt(n), whose ratio to the squares of a is rho; live
 * elements. */
typedef struct lnt_health_sums {
    double input, value, error, alike;
    uint64_t n;
} lnt_health_sums_t;

typedef struct lnt_exchange_health {
    lnt_health_sums_t worker, server;
} lnt_exchange_health_t;

/* Right after lnt_exchange_commit. False where no errors are kept. */
bool lnt_exchange_measure_health(const lnt_exchange_t *exchange, lnt_exchange_health_t *health_p);

/* Bytes this rank sends for one run, from the layout functions alone. */
lnt_status_t lnt_exchange_bytes(const lnt_exchange_t *exchange, lnt_bytes_t *bytes_p);

/* Blocks with dead coordinates whose node sum was not zero on some node in the last run: one byte per block of the
 * grid, or NULL when no block has dead coordinates. (Late comers; same on every rank.) */
const uint8_t *lnt_exchange_active(const lnt_exchange_t *exchange);

#endif
