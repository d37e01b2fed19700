/* Internals of context and communicator that core files share (context.c, comm.c, progress.c, request.c, plan*.c). */
#ifndef LNT_CORE_H
#define LNT_CORE_H

#include <linnet/linnet.h>
#include <linnet/stage.h>

#include "../base/clock.h"
#include "../base/config.h"
#include "../base/error.h"
#include "../base/hash.h"
#include "../base/log.h"
#include "../base/memory.h"
#include "../coll/exchange.h"

/* LINNET_* of this module; the table is in core_config.c, rows documented there. */
typedef struct lnt_core_config {
    uint32_t timeout_ms;      /* TIMEOUT: progress timeout */
    uint32_t init_timeout_ms; /* INIT_TIMEOUT: bound of creation */
    uint32_t stall_ms;        /* STALL_WARN: message long before the timeout */
    char *node;               /* NODE */
    char *transports;         /* TLS: comma list, ^ excludes */
    double emulate_gbps;      /* EMULATE_GBPS */
    char *socket_ifname;      /* SOCKET_IFNAME */
    char *net_devices;        /* NET_DEVICES */
    uint64_t ring_bytes;      /* RING_BYTES */
    uint64_t bucket_bytes;    /* BUCKET_BYTES */
    uint64_t segment_bytes;   /* SEGMENT_BYTES */
    uint32_t max_skips;       /* MAX_SKIPS */
    uint32_t check_every;     /* CHECK_EVERY: compare state hashes every k steps, 0 = never */
    int error_dtype;          /* ERROR_DTYPE: index into lnt_error_words */
    uint32_t health_every;    /* HEALTH_EVERY: measure the coding every k steps, 0 = never */
    uint32_t spin_us;         /* SPIN_US: look this long before sleeping */
    bool progress_thread;     /* PROGRESS_THREAD */
    uint32_t threads;         /* THREADS: that run tasks, 0 = by the cores */
    uint64_t thread_bytes;    /* THREAD_MIN_BYTES: smaller tasks stay on one thread */
    char *cpus;               /* PROGRESS_CPUS */
} lnt_core_config_t;

extern const lnt_cfg_row_t lnt_core_config_rows[];
extern const lnt_cfg_row_t lnt_boot_config_rows[]; /* bootstrap_env.c */
/* All tables of the library, for docs/config.md, linnet-info and the check for unknown names. */
const lnt_cfg_table_t *lnt_config_tables(size_t *n_tables_p);

struct lnt_context {
    lnt_core_config_t config;
    lnt_logger_t *logger;
    uint32_t pid;               /* of the creator: calls from a forked child are refused */
    _Atomic uint32_t n_objects; /* communicators alive */
    lnt_log_config_t log_config;
    struct lnt_progress *progress; /* the thread, its epoll set, the list of communicators */
    lnt_pool_t *pool;              /* helpers of that thread; started by the first communicator (threads.c) */
};

/* Entry check of public calls on a context: not NULL, not a forked child; its logger becomes the thread's. */
lnt_status_t lnt_context_enter(lnt_context_t *context);

/* Communicator. Fields are set by lnt_comm_create and constant afterwards unless marked. */
struct lnt_comm {
    lnt_context_t *context;
    uint32_t rank, n_ranks;
    lnt_topo_t *topo;
    lnt_topo_t *flat; /* every rank a node of its own, for collectives that have no hierarchical form */
    lnt_peer_id_t *peers;
    lnt_mesh_t *mesh;
    lnt_exec_t *exec;
    struct lnt_comm_net *net; /* opened transports and routes; comm_net.c */
    uint32_t timeout_ms;
    double emulate_gbps;
    uint64_t sequence;                   /* next transaction; by the calling thread */
    uint32_t n_objects;                  /* plans and requests alive */
    uint64_t wire_bytes[2], frames_sent; /* progress side; read with relaxed atomics */
    uint64_t exposed_ns;
    struct lnt_coll_cache *cache; /* one-shot requests; request_cache.c */
    _Atomic uint32_t failed;      /* lnt_status_t of the failure as positive number, 0 = sound */
    lnt_error_info_t record;      /* valid when failed != 0 */
};

/* Entry check of every public call on a communicator: forked child, failed communicator (restores its record), logger.
 */
lnt_status_t lnt_comm_enter(lnt_comm_t *comm);

/* Run a job to its end on behalf of the caller: sleeps, or makes progress itself when there is no progress thread.
 * Bounded by the communicator's timeout without progress. Returns the job's status (group -40 or LNT_OK); adds the time
 * to exposed_ns. */
lnt_status_t lnt_comm_wait_job(lnt_comm_t *comm, lnt_job_t *job);
bool lnt_comm_test_job(lnt_comm_t *comm, lnt_job_t *job); /* true when done */

/* Destroys comm->cache (NULL is legal); called by lnt_comm_destroy, when nothing is in progress any more. Implemented
 * in request_cache.c. */
void lnt_comm_cache_destroy(lnt_comm_t *comm);

/* All-gather of small equal-sized blobs (set-up of splits, hashes, votes) as an ordinary all-gather of the
 * communicator, in sequence with all other collectives; bounded by the progress timeout. Implemented in
 * request_cache.c. */
lnt_status_t lnt_comm_gather_small(lnt_comm_t *comm, const void *input, void *output, size_t bytes);

#endif
