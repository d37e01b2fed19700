/* Collectives over buffers, plain and compressed.
 *
 * Counts are elements (uint64_t); 0 is legal, as is a world of one rank. Input and output may be the same pointer
 * (in place) or must not overlap. Buffers are borrowed until the request completes. All ranks must call the same
 * collectives in the same order with the same arguments; a difference is LNT_ERR_MISMATCH on both sides.
 *
 * Results are bit-identical on all ranks and do not depend on segment size, transport, threads or timing: sums run in
 * rank order inside a node and in node order between nodes, in f32.
 *
 * Compressed forms (params.codec other than f32) are the two-phase exchange of 1-bit Adam (Tang et al. 2021,
 * arXiv 2102.02888) in its hierarchical form (docs/architecture.md): f32 reduce-scatter inside a node, codec between
 * nodes, all-gather of the encoded result. With one node the codec is not used. A non-finite input on any rank gives
 * LNT_SKIPPED_NONFINITE on every rank; output and residual are then untouched. Plain forms pass NaN through.
 */
#ifndef LINNET_COLL_H
#define LINNET_COLL_H

#include <linnet/codec.h>
#include <linnet/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Error-feedback state of one buffer: what was lost in earlier exchanges and is added to the next. Belongs to the
 * caller; keyed by element offset. One rank holds the part it owns. Use with one request at a time. */
typedef struct lnt_residual lnt_residual_t;

typedef struct lnt_coll_params {
    size_t struct_size;
    const lnt_codec_t *codec; /* NULL: plain, as the dtype is. Borrowed until the request is destroyed */
    lnt_redop_t op;           /* all-reduce and reduce-scatter: mean (default) or sum */
    uint64_t segment_bytes;   /* f32 bytes per task; 0: LINNET_SEGMENT_BYTES (1 MiB) */
    lnt_residual_t *residual; /* NULL: no error feedback */
} lnt_coll_params_t;

/* Persistent requests. `init` builds the task graph and all workspace (no communication); `start` runs it; `wait`
 * completes it; then it can be started again. params may be NULL. Not collective, but every rank must make the same
 * requests in the same order.
 *   allreduce        input, output: count elements of dtype
 *   reduce_scatter   input: n_ranks * count; output: count, the part of this rank
 *   allgather        input: count; output: n_ranks * count in rank order
 *   broadcast        buffer (passed as output; input unused): count, from root to all
 * With a codec, every rank (the source too) receives decode(encode(x)). */
LNT_API lnt_status_t lnt_allreduce_init(lnt_comm_t *comm, uint64_t count, lnt_dtype_t dtype,
                                        const lnt_coll_params_t *params, lnt_request_t **request_p);
LNT_API lnt_status_t lnt_reduce_scatter_init(lnt_comm_t *comm, uint64_t count, lnt_dtype_t dtype,
                                             const lnt_coll_params_t *params, lnt_request_t **request_p);
LNT_API lnt_status_t lnt_allgather_init(lnt_comm_t *comm, uint64_t count, lnt_dtype_t dtype,
                                        const lnt_coll_params_t *params, lnt_request_t **request_p);
LNT_API lnt_status_t lnt_broadcast_init(lnt_comm_t *comm, uint64_t count, lnt_dtype_t dtype, uint32_t root,
                                        const lnt_coll_params_t *params, lnt_request_t **request_p);
LNT_API lnt_status_t lnt_request_start(lnt_request_t *request, const void *input, void *output);

/* LNT_IN_PROGRESS, LNT_OK, a benign state or an error; LNT_ERR_INVALID_USAGE if it was never started. */
LNT_API lnt_status_t lnt_request_test(lnt_request_t *request);
/* Waits, for as long as somebody makes progress: at most the communicator's timeout without any. */
LNT_API lnt_status_t lnt_request_wait(lnt_request_t *request);
/* NULL is legal. A request that is running: LNT_ERR_INVALID_USAGE, unless its communicator has failed. */
LNT_API lnt_status_t lnt_request_destroy(lnt_request_t *request);

/* One-shot forms: init (kept in a small per-communicator cache), start, wait. */
LNT_API lnt_status_t lnt_allreduce(lnt_comm_t *comm, const void *input, void *output, uint64_t count, lnt_dtype_t dtype,
                                   const lnt_coll_params_t *params);
LNT_API lnt_status_t lnt_reduce_scatter(lnt_comm_t *comm, const void *input, void *output, uint64_t count,
                                        lnt_dtype_t dtype, const lnt_coll_params_t *params);
LNT_API lnt_status_t lnt_allgather(lnt_comm_t *comm, const void *input, void *output, uint64_t count, lnt_dtype_t dtype,
                                   const lnt_coll_params_t *params);
LNT_API lnt_status_t lnt_broadcast(lnt_comm_t *comm, void *buffer, uint64_t count, lnt_dtype_t dtype, uint32_t root,
                                   const lnt_coll_params_t *params);
LNT_API lnt_status_t lnt_barrier(lnt_comm_t *comm);

/* A residual for an all-reduce of count elements with this codec on this communicator. It starts at zero.
 * lnt_residual_read copies out the part this rank owns, lnt_residual_write puts it back: worker and server hold
 * lnt_residual_counts floats each. One that is destroyed while a request runs with it is freed when that run ends; the
 * request cannot be started again. */
LNT_API lnt_status_t lnt_residual_create(lnt_comm_t *comm, uint64_t count, const lnt_codec_t *codec,
                                         lnt_residual_t **residual_p);
LNT_API void lnt_residual_destroy(lnt_residual_t *residual);
LNT_API lnt_status_t lnt_residual_counts(const lnt_residual_t *residual, uint64_t *worker_offset_p,
                                         uint64_t *worker_count_p, uint64_t *server_offset_p, uint64_t *server_count_p);
LNT_API lnt_status_t lnt_residual_read(const lnt_residual_t *residual, float *worker, float *server);
LNT_API lnt_status_t lnt_residual_write(lnt_residual_t *residual, const float *worker, const float *server);

/* Bytes this rank will send for one run of the request: inside its node and between nodes. */
LNT_API lnt_status_t lnt_request_wire_bytes(const lnt_request_t *request, uint64_t *intra_p, uint64_t *inter_p);

#ifdef __cplusplus
}
#endif
#endif
