/* Internals of the UCX module (liblinnet_ucx.so): active messages over UCP with peer error handling.
 *
 * One UCP context and worker per communicator. A frame is one active message: its header travels as the message's
 * header behind the sender's rank, its body as the data. UCX keeps data that comes early (persistent data or a
 * rendezvous descriptor); we keep a note of it per peer and ask the sink again, so that order and back pressure are
 * those of every transport.
 */
#ifndef LNT_TRANSPORT_UCX_H
#define LNT_TRANSPORT_UCX_H

#include <ucp/api/ucp.h>

#include "host_ops.h"

typedef struct lnt_ucx lnt_ucx_t;

/* Header of the active message. */
typedef struct lnt_ucx_header {
    uint32_t magic;
    uint32_t sender;
    lnt_frame_header_t frame;
} lnt_ucx_header_t;

enum { LNT_UCX_AM_ID = 7 };
#define LNT_UCX_MAGIC 0x58434e4cu

/* A frame that came and has not been delivered. */
typedef struct lnt_ucx_note {
    struct lnt_ucx_note *next;
    lnt_ucx_t *ucx;
    lnt_frame_header_t header;
    uint32_t peer;
    void *data; /* persistent data, or rendezvous descriptor; NULL for an empty body */
    void *body; /* where it goes, once located */
    size_t bytes;
    bool rendezvous;
    ucs_status_ptr_t request; /* of a rendezvous receive in flight */
} lnt_ucx_note_t;

/* A send in flight. */
typedef struct lnt_ucx_post {
    struct lnt_ucx_post *next;
    lnt_ucx_t *ucx;
    lnt_send_t *send;
    lnt_ucx_header_t header;
} lnt_ucx_post_t;

typedef struct lnt_ucx_peer {
    lnt_ucx_t *ucx;
    uint32_t rank;
    ucp_ep_h ep;
    bool broken;
    bool wired;                     /* its first frame was flushed: the connection is complete */
    lnt_ucx_note_t *first, *last;   /* undelivered, in order */
    lnt_send_t *queue, *queue_last; /* waiting for the pacer, in order */
} lnt_ucx_peer_t;

struct lnt_ucx {
    const lnt_host_ops_t *host;
    lnt_transport_params_t params;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *address;
    size_t address_bytes;
    int event_fd;
    bool any_broken;
    bool moved;         /* a callback did something since the last look */
    uint32_t in_flight; /* sends and rendezvous receives */
    lnt_ucx_peer_t *peers;
    lnt_ucx_note_t *free_notes;
    lnt_ucx_post_t *free_posts;
    void *slabs; /* linked list of what notes and posts were carved from */
};

/* ucx_recv.c */
ucs_status_t lnt_ucx_on_message(void *arg, const void *header, size_t header_bytes, void *data, size_t bytes,
                                const ucp_am_recv_param_t *param);
bool lnt_ucx_deliver(lnt_ucx_t *ucx);
void lnt_ucx_drop_notes(lnt_ucx_t *ucx);

/* ucx_send.c */
void lnt_ucx_send(lnt_transport_t *transport, lnt_send_t *send);
bool lnt_ucx_push(lnt_ucx_t *ucx);

/* ucx.c: records are taken from slabs. There is one slab per peer from the start; more are added, and kept, when more
 * frames are under way at once than ever before, so a steady state allocates nothing. NULL when memory is out: the
 * communicator has then failed, and `peer` carries nothing more. */
lnt_ucx_note_t *lnt_ucx_take_note(lnt_ucx_t *ucx, lnt_ucx_peer_t *peer);
lnt_ucx_post_t *lnt_ucx_take_post(lnt_ucx_t *ucx, lnt_ucx_peer_t *peer);
void lnt_ucx_break(lnt_ucx_t *ucx, uint32_t peer, const char *why);

static inline void lnt_ucx_give_note(lnt_ucx_t *ucx, lnt_ucx_note_t *note)
{
    note->next = ucx->free_notes;
    ucx->free_notes = note;
}

static inline void lnt_ucx_give_post(lnt_ucx_t *ucx, lnt_ucx_post_t *post)
{
    post->next = ucx->free_posts;
    ucx->free_posts = post;
}

#endif
