/* The transport that `loop` and `shm` share: frames stream through one byte ring per ordered pair of ranks.
 *
 * A receiving rank owns an *area*: a control page, then one inbound ring per sender that uses this transport. loop
 * keeps it on the heap and shows its address, shm in a memfd whose descriptor it passes. That difference is the table
 * lnt_ring_memory_t; everything else, doorbells included (descriptors passed at set-up), is common.
 */
#ifndef LNT_TRANSPORT_RING_NET_H
#define LNT_TRANSPORT_RING_NET_H

#include "ring.h"
#include "transport.h"

/* Start of an area. The owner writes, senders look. */
typedef struct lnt_ring_page {
    alignas(LNT_CACHE_LINE) _Atomic uint32_t sleeping; /* the owner wants its doorbell rung */
    _Atomic uint32_t closed;                           /* the owner is gone: what is sent will not be read */
} lnt_ring_page_t;

enum { LNT_RING_PAGE_BYTES = 4096, LNT_RING_PIECE_BYTES = 64 * 1024, LNT_RING_BLOB_BYTES = 64 };

/* One peer's view of an area: the control page and the ring that leads there. */
typedef struct lnt_ring_view {
    lnt_ring_page_t *page;
    lnt_ring_t *ring;
    void *mapping; /* the memory table's own */
    size_t mapping_bytes;
} lnt_ring_view_t;

typedef struct lnt_ring_area {
    void *base;
    size_t bytes;
    int fd; /* memfd, or -1 */
} lnt_ring_area_t;

typedef struct lnt_ring_memory {
    const char *name; /* of the transport, for messages */
    lnt_status_t (*create)(size_t bytes, lnt_ring_area_t *area_p);
    void (*destroy)(lnt_ring_area_t *area);
    /* What a peer needs to see the ring at `offset`: at most LNT_RING_BLOB_BYTES, and at most one descriptor. */
    lnt_status_t (*show)(lnt_ring_area_t *area, size_t offset, void *blob, size_t *bytes_p, int *fd_p);
    /* The other side; `footprint` is the size of the ring. Takes the fd (-1: none came). */
    lnt_status_t (*attach)(const void *blob, size_t bytes, int fd, size_t footprint, lnt_ring_view_t *view_p);
    void (*detach)(lnt_ring_view_t *view);
} lnt_ring_memory_t;

typedef enum lnt_lane_stage { LNT_LANE_HEADER, LNT_LANE_LOCATE, LNT_LANE_BODY } lnt_lane_stage_t;

/* Traffic with one peer, both ways. */
typedef struct lnt_lane {
    uint32_t peer;
    bool inter; /* count and pace as traffic between nodes */
    bool up;    /* the peer's side is attached */
    bool broken;
    int bell; /* the peer's doorbell, or -1 */
    /* out */
    lnt_send_t *queue, **queue_end;
    lnt_ring_writer_t out;
    lnt_ring_view_t view;
    /* in */
    lnt_ring_reader_t in;
    lnt_lane_stage_t stage;
    lnt_frame_header_t header;
    unsigned char *body;
    uint64_t have; /* bytes of the header or body so far */
} lnt_lane_t;

struct lnt_transport {
    lnt_transport_params_t params;
    const lnt_ring_memory_t *memory;
    lnt_ring_area_t area;
    lnt_ring_page_t *page;
    uint64_t capacity; /* of every ring of this rank's area */
    lnt_lane_t *lanes;
    uint32_t n_lanes;
    uint32_t *lane_of; /* [n_ranks], n_lanes where there is none */
};

/* Functions for the rows. */
lnt_status_t lnt_ring_net_open(const lnt_transport_params_t *params, const lnt_ring_memory_t *memory,
                               lnt_transport_t **transport_p);
lnt_status_t lnt_ring_net_offer(lnt_transport_t *transport, uint32_t peer, void *buffer, size_t *bytes_p, int *fds,
                                size_t *n_fds_p);
lnt_status_t lnt_ring_net_accept(lnt_transport_t *transport, uint32_t peer, const void *buffer, size_t bytes,
                                 const int *fds, size_t n_fds);
void lnt_ring_net_send(lnt_transport_t *transport, lnt_send_t *send);
bool lnt_ring_net_progress(lnt_transport_t *transport);
bool lnt_ring_net_arm(lnt_transport_t *transport);
void lnt_ring_net_disarm(lnt_transport_t *transport);
int lnt_ring_net_event_fd(lnt_transport_t *transport);
void lnt_ring_net_close(lnt_transport_t *transport);

/* What the rows have in common: everything behind the opening. */
#define LNT_RING_NET_OPS                                                                                               \
    .offer = lnt_ring_net_offer, .accept = lnt_ring_net_accept, .send = lnt_ring_net_send,                             \
    .progress = lnt_ring_net_progress, .arm = lnt_ring_net_arm, .disarm = lnt_ring_net_disarm,                         \
    .event_fd = lnt_ring_net_event_fd, .close = lnt_ring_net_close

/* One lane's share of progress (ring_lane.c). */
bool lnt_lane_push(lnt_transport_t *transport, lnt_lane_t *lane);
bool lnt_lane_pull(lnt_transport_t *transport, lnt_lane_t *lane);
/* Would push or pull do something now? Registers for a wake-up where it waits for room. */
bool lnt_lane_busy(lnt_transport_t *transport, lnt_lane_t *lane);

#endif
