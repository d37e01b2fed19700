/* The control mesh: one stream socket between every pair of ranks of a communicator.
 *
 * Abstract unix sockets between ranks of one host (they pass file descriptors), TCP otherwise. The mesh carries set-up
 * messages, liveness and errors; never payload. It knows when a peer process is gone (end of file without goodbye,
 * pidfd for local peers, kernel keepalive for remote ones) and floods the first failure record to everybody, so that
 * all ranks name the same culprit.
 *
 * Threads: set-up functions by the creating thread; afterwards lnt_mesh_progress and lnt_mesh_fail by whoever
 * progresses the communicator; lnt_mesh_abort from any thread.
 */
#ifndef LNT_TRANSPORT_MESH_H
#define LNT_TRANSPORT_MESH_H

#include <linnet/comm.h>

typedef struct lnt_mesh lnt_mesh_t;

/* What a rank tells the others through the bootstrap all-gather. Fixed size, little-endian. */
typedef struct lnt_peer_id {
    uint32_t magic, library_version;
    uint32_t rank, n_ranks;
    uint64_t cookie;        /* random per process: equal = same process */
    uint64_t host_hash;     /* of lnt_topo_host_id */
    uint64_t node_label;    /* hash of the node override, or of the host */
    uint64_t settings_hash; /* of what must agree: timeout class, transports... */
    uint64_t mesh_token;    /* random per rank and communicator: who connects must know it */
    uint32_t pid;
    uint32_t transports; /* bit per row of the transport table that is usable here */
    char unix_name[64];  /* abstract socket, without the leading 0 */
    uint8_t address[28]; /* sockaddr_in or sockaddr_in6 of the TCP listener */
    uint32_t address_bytes;
    char host[64];
} lnt_peer_id_t;

/* Opens listeners and fills the reachability fields of *me. interface: LINNET_SOCKET_IFNAME or NULL. need_tcp may be
 * decided later: both listeners are opened. */
lnt_status_t lnt_mesh_open(lnt_peer_id_t *me, const char *interface, lnt_mesh_t **mesh_p);

/* Connect to everybody. peers[n_ranks] from the all-gather. Bounded by timeout_ms; an error names the rank that is
 * missing. After it the listeners are closed. */
lnt_status_t lnt_mesh_connect(lnt_mesh_t *mesh, const lnt_peer_id_t *peers, uint32_t timeout_ms);

/* Set-up exchange with every peer: `out(arg, peer, buf, &bytes, fds, &n_fds)` writes what to send, `in` gets what came.
 * At most LNT_MESH_SETUP_BYTES and LNT_MESH_SETUP_FDS each. Bounded; collective. fds are passed only to local peers. */
enum { LNT_MESH_SETUP_BYTES = 4096, LNT_MESH_SETUP_FDS = 4 };
typedef struct lnt_mesh_setup {
    void *arg;
    lnt_status_t (*out)(void *arg, uint32_t peer, void *buffer, size_t *bytes_p, int *fds, size_t *n_fds_p);
    lnt_status_t (*in)(void *arg, uint32_t peer, const void *buffer, size_t bytes, const int *fds,
                       size_t n_fds); /* takes the fds */
} lnt_mesh_setup_t;
lnt_status_t lnt_mesh_exchange(lnt_mesh_t *mesh, const lnt_mesh_setup_t *setup, uint32_t timeout_ms);

/* A vote: *all_p = no rank passed an error. An error of this rank is told to the others with its text. Collective,
 * bounded. When it fails on a peer, this thread's last error says which and why. */
lnt_status_t lnt_mesh_vote(lnt_mesh_t *mesh, lnt_status_t mine, uint32_t timeout_ms);

/* Failure record of a communicator: the first one wins everywhere. */
typedef void (*lnt_mesh_failed_fn_t)(void *arg, const lnt_error_info_t *record);
void lnt_mesh_on_failure(lnt_mesh_t *mesh, lnt_mesh_failed_fn_t failed, void *arg);

/* Handle what came in; returns true when something happened. Never blocks. */
bool lnt_mesh_progress(lnt_mesh_t *mesh);

/* This rank found a failure: flood it and report it through the callback (unless another record came first). */
void lnt_mesh_fail(lnt_mesh_t *mesh, const lnt_error_info_t *record);

/* Tell the peers for whom this rank waits (-1: for nobody), so that a time-out blames the right rank. Only sends when
 * it changes. */
void lnt_mesh_set_waiting(lnt_mesh_t *mesh, int64_t peer, const char *what);
/* Did that peer say goodbye, or is it lost? Then no message comes from it any more. */
bool lnt_mesh_has_left(const lnt_mesh_t *mesh, uint32_t peer);
/* Follow the waiting-for edges from this rank to one that waits for nobody: the culprit of a stall. */
int64_t lnt_mesh_culprit(const lnt_mesh_t *mesh, int64_t first);

/* Any thread. */
void lnt_mesh_abort(lnt_mesh_t *mesh, const char *reason);

/* An epoll descriptor (level-triggered) that is readable when progress would do something. */
int lnt_mesh_fd(const lnt_mesh_t *mesh);

/* Says goodbye, lingers at most linger_ms to deliver what is queued, closes everything. NULL is legal. */
void lnt_mesh_close(lnt_mesh_t *mesh, uint32_t linger_ms);

#endif
