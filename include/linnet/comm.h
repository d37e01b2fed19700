/* Communicators: a group of ranks, how they find each other, and where they sit.
 *
 * Everything starts from one primitive, an all-gather of small byte strings that the caller supplies
 * (lnt_bootstrap_t). Three suppliers come with the library: ranks as threads of one process, the usual environment
 * variables (torchrun, or a shell loop) over an authenticated TCP store, and MPI (linnet/mpi.h).
 *
 * After creation the ranks of a communicator talk over a mesh of control sockets (liveness, errors) and over one data
 * transport per pair: `loop` inside a process, `shm` inside a host, `ucx` between hosts.
 *
 * Threads: calls on one communicator may come from one thread at a time, lnt_comm_abort and lnt_comm_async_error
 * from any. Two communicators are independent.
 */
#ifndef LINNET_COMM_H
#define LINNET_COMM_H

#include <linnet/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/* All-gather of `bytes` bytes from every rank: output receives n_ranks * bytes in rank order. Called by the thread
 * that calls lnt_comm_create, a handful of times, the same number on all ranks. What happens inside cannot be
 * bounded by the library: give it a deadline of its own. Any non-zero return is passed on as LNT_ERR_BOOTSTRAP. */
typedef int (*lnt_allgather_fn_t)(void *arg, const void *input, void *output, size_t bytes);

typedef struct lnt_bootstrap {
    size_t struct_size;
    uint32_t rank;
    uint32_t n_ranks;
    lnt_allgather_fn_t allgather;
    void *arg;
    void (*destroy)(void *arg); /* NULL or called by lnt_bootstrap_destroy */
} lnt_bootstrap_t;

/* Releases what a supplier below holds. May follow lnt_comm_create at once. NULL is legal. */
LNT_API void lnt_bootstrap_destroy(lnt_bootstrap_t *bootstrap);

/* Ranks as threads of one process: fills n_ranks bootstraps that belong together. A thread that waits longer than
 * timeout_ms for the others gets an error. */
LNT_API lnt_status_t lnt_bootstrap_threads(uint32_t n_ranks, uint32_t timeout_ms, lnt_bootstrap_t *bootstraps);

/* MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE (and LOCAL_RANK, unused here): rank 0 serves a TCP store. With
 * LINNET_SECRET (or LINNET_SECRET_FILE) every connection is authenticated in both directions; without one the store
 * listens on loopback only. The secret protects the start-up, not the payload that follows. Errors: LNT_ERR_CONFIG
 * (a variable is missing or malformed), LNT_ERR_AUTH, LNT_ERR_TIMED_OUT naming the ranks that did not come,
 * LNT_ERR_MISMATCH (two ranks with one number, another world size, another library version). */
LNT_API lnt_status_t lnt_bootstrap_env(lnt_context_t *context, lnt_bootstrap_t *bootstrap);

typedef struct lnt_comm_params {
    size_t struct_size;
    const lnt_bootstrap_t *bootstrap; /* borrowed for the call */
    const char *node;    /* overrides the node of this rank: ranks with equal text share a node. NULL: LINNET_NODE, else
                          * the host. One machine can so play several nodes */
    uint32_t timeout_ms; /* progress timeout; 0: LINNET_TIMEOUT (10 min) */
    double emulate_gbps; /* > 0: egress of every node limited to this; 0: LINNET_EMULATE_GBPS */
    const char *transports; /* comma-separated list allowed, e.g. "shm,ucx"; NULL: LINNET_TLS */
} lnt_comm_params_t;

/* Collective. On failure every rank gets an error (a vote is taken) and nothing is left behind. */
LNT_API lnt_status_t lnt_comm_create(lnt_context_t *context, const lnt_comm_params_t *params, lnt_comm_t **comm_p);

/* Local; says goodbye to the peers, lingers at most 1 s to deliver it. Plans must be gone (LNT_ERR_INVALID_USAGE).
 * NULL is legal. Also for a failed communicator. */
LNT_API lnt_status_t lnt_comm_destroy(lnt_comm_t *comm);

/* Collective over comm: ranks with equal color form a new communicator, ordered by (key, rank). color < 0: none, and
 * *comm_p becomes NULL. */
LNT_API lnt_status_t lnt_comm_split(lnt_comm_t *comm, int64_t color, int64_t key, lnt_comm_t **comm_p);

/* Any thread: every pending and later call on this communicator, on every rank, returns LNT_ERR_ABORTED. Does not
 * block. */
LNT_API void lnt_comm_abort(lnt_comm_t *comm, const char *reason);

/* LNT_OK, or the error the communicator failed with; *info_p (may be NULL) receives the record. A lost,
 * stopped or aborting rank is named alike by all ranks; where ranks disagree (MISMATCH) each side may name the other.
 * Any thread. */
LNT_API lnt_status_t lnt_comm_async_error(lnt_comm_t *comm, lnt_error_info_t *info_p);

typedef struct lnt_comm_info {
    size_t struct_size;
    uint32_t rank, n_ranks;
    uint32_t node, n_nodes;       /* nodes are numbered by their smallest rank */
    uint32_t local_rank, n_local; /* on this node */
    uint32_t n_shards;            /* smallest local size over nodes */
    uint32_t n_threads;           /* of this rank that run tasks: LINNET_THREADS, or what it came to */
    double emulate_gbps;          /* 0: not emulated */
    char intra_transport[16];     /* transport to ranks of the same node, "-" if there are none */
    char inter_transport[16];     /* transport to ranks of other nodes */
} lnt_comm_info_t;
LNT_API lnt_status_t lnt_comm_get_info(const lnt_comm_t *comm, lnt_comm_info_t *info_p);

/* Node number of every rank; `node_of` has room for n_ranks entries. */
LNT_API lnt_status_t lnt_comm_get_nodes(const lnt_comm_t *comm, uint32_t *node_of);

/* Bytes this rank has sent since creation or the last reset, counted where they are sent: frame headers included,
 * retransmission and transport protocol not. "inter" is to other nodes. */
typedef struct lnt_comm_stats {
    size_t struct_size;
    uint64_t wire_bytes_intra;
    uint64_t wire_bytes_inter;
    uint64_t frames_sent;
    uint64_t exposed_ns; /* time callers spent waiting */
} lnt_comm_stats_t;
LNT_API lnt_status_t lnt_comm_get_stats(lnt_comm_t *comm, lnt_comm_stats_t *stats_p, bool reset);

#ifdef __cplusplus
}
#endif
#endif
