/* Transports: rows of ops that move frames between two ranks of a communicator.
 *
 * A channel carries whole frames, reliably and in order per pair. The receiver's sink says where a frame's body goes;
 * if the sink is not ready the frame waits in the channel and holds back what follows from that peer (back pressure).
 * All calls on an opened transport come from the thread that progresses the communicator; only `doorbell` may be rung
 * from elsewhere.
 *
 * A new transport is one file and one row in transport_table.c (docs/howto_add_a_transport.md).
 */
#ifndef LNT_TRANSPORT_H
#define LNT_TRANSPORT_H

#include "../base/log.h"
#include "frame.h"
#include "mesh.h"

typedef struct lnt_transport lnt_transport_t; /* each row defines its own, starting with lnt_transport_base_t */

/* A frame on its way. Belongs to the caller, lives until `done`. */
typedef struct lnt_send {
    struct lnt_send *next; /* the transport's queue */
    const void *frame;
    uint64_t bytes; /* header included */
    uint64_t sent;  /* the transport's */
    uint32_t peer;
    void *request; /* the transport's */
    void *owner;   /* the caller's */
} lnt_send_t;

typedef struct lnt_sink {
    void *arg;
    /* Header of the next frame from src. LNT_OK and *body_p (payload_bytes + section_bytes of room); LNT_IN_PROGRESS:
     * keep it and ask again later; an error: the communicator fails with the thread's last error. */
    lnt_status_t (*locate)(void *arg, uint32_t src, const lnt_frame_header_t *header, void **body_p);
    /* The whole body is there. */
    void (*arrived)(void *arg, uint32_t src, const lnt_frame_header_t *header, void *body);
    /* A send is complete: its memory may be reused. */
    void (*sent)(void *arg, lnt_send_t *send);
    /* A channel broke. The sink decides (the mesh usually knows more). */
    void (*broken)(void *arg, uint32_t peer, const char *why);
    /* This rank itself cannot go on (no memory): the communicator fails with the thread's last error. */
    void (*failed)(void *arg);
} lnt_sink_t;

/* Egress limit shared by the ranks of one played node; NULL where nothing is emulated. */
typedef struct lnt_pacer lnt_pacer_t;

typedef struct lnt_transport_params {
    uint32_t rank, n_ranks;
    const lnt_peer_id_t *peers; /* all ranks; valid while the transport is open */
    const uint8_t *use;         /* [n_ranks] 1 = this transport carries the traffic to that peer */
    const uint8_t *is_inter;    /* [n_ranks] 1 = peer sits on another node: count and pace there */
    lnt_pacer_t *pacer;         /* for inter traffic, or NULL */
    int doorbell;               /* eventfd of this rank: written by senders when it sleeps */
    uint64_t ring_bytes;
    const char *net_devices; /* LINNET_NET_DEVICES or NULL */
    lnt_sink_t sink;
    uint64_t *wire_bytes; /* [2]: intra, inter; the transport adds what it sends, headers included */
    lnt_logger_t *logger;
} lnt_transport_params_t;

typedef struct lnt_transport_ops {
    const char *name;
    const char *doc;
    /* Usable in this process? Otherwise a reason in `why`. */
    bool (*usable)(char *why, size_t size);
    /* Can `me` talk to `peer` this way? Pure. */
    bool (*reachable)(const lnt_peer_id_t *me, const lnt_peer_id_t *peer);
    lnt_status_t (*open)(const lnt_transport_params_t *params, lnt_transport_t **transport_p);
    /* Set-up blobs for lnt_mesh_exchange; called for peers with use[peer] only. */
    lnt_status_t (*offer)(lnt_transport_t *transport, uint32_t peer, void *buffer, size_t *bytes_p, int *fds,
                          size_t *n_fds_p);
    lnt_status_t (*accept)(lnt_transport_t *transport, uint32_t peer, const void *buffer, size_t bytes, const int *fds,
                           size_t n_fds);
    /* Queue a frame. Never blocks, never fails: trouble is reported through sink.broken or sink.failed. */
    void (*send)(lnt_transport_t *transport, lnt_send_t *send);
    /* Move what can be moved; true when something moved. */
    bool (*progress)(lnt_transport_t *transport);
    /* Before sleeping: announce that this rank sleeps, and look once more; false = something came, do not sleep.
     * After waking: disarm. */
    bool (*arm)(lnt_transport_t *transport);
    void (*disarm)(lnt_transport_t *transport);
    /* Descriptor that becomes readable when a message comes (besides the doorbell), or -1. */
    int (*event_fd)(lnt_transport_t *transport);
    void (*close)(lnt_transport_t *transport); /* NULL is legal */
} lnt_transport_ops_t;

/* How a transport counts in wire_bytes: one writer, while other threads read at any time. */
static inline void lnt_transport_count(uint64_t *counter, uint64_t bytes)
{
    __atomic_store_n(counter, __atomic_load_n(counter, __ATOMIC_RELAXED) + bytes, __ATOMIC_RELAXED);
}

/* Rows in order of preference. UCX's ops come from a module that is loaded on first use. */
const lnt_transport_ops_t *const *lnt_transport_rows(size_t *n_rows_p);

/* Pacer: a token bucket of `burst` bytes in memory shared by all ranks of a node (egress only, full duplex). */
lnt_status_t lnt_pacer_create(double gbps, uint64_t burst_bytes, void *shared,
                              lnt_pacer_t **pacer_p); /* shared: zeroed LNT_PACER_BYTES common to the node's ranks */
enum { LNT_PACER_BYTES = 64 };
void lnt_pacer_destroy(lnt_pacer_t *pacer);
uint64_t lnt_pacer_take(lnt_pacer_t *pacer, uint64_t want); /* granted bytes now, 0..want */
/* For the sleeper's timeout: UINT64_MAX when no take through this handle was cut short since, else the time until a
 * useful piece can be granted; 0 = go and ask again. */
uint64_t lnt_pacer_wait_ns(lnt_pacer_t *pacer);

#endif
