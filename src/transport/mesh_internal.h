/* What the mesh files share. Life of a mesh: open (listeners) -> connect (links come up) -> set-up rounds, votes ->
 * progress ... -> close. One epoll set holds everything; lnt_mesh_poll is the only place that waits.
 *
 *   mesh_open.c     listeners, choice of the network interface     mesh_link.c   bytes and descriptors of one link
 *   mesh_connect.c  dialing, guests, hello                         mesh_setup.c  exchange, vote
 *   mesh_knock.c    are awaited peers still there?
 *   mesh_fail.c     failure record, waiting-for edges, abort       mesh.c        event loop, goodbye, close
 */
#ifndef LNT_TRANSPORT_MESH_INTERNAL_H
#define LNT_TRANSPORT_MESH_INTERNAL_H

#include <stdatomic.h>
#include <sys/socket.h>

#include "mesh.h"

typedef enum lnt_msg_kind {
    LNT_MSG_SETUP = 1,
    LNT_MSG_VOTE,
    LNT_MSG_FAILURE,
    LNT_MSG_WAITING,
    LNT_MSG_GOODBYE,
    LNT_MSG_KINDS
} lnt_msg_kind_t;

typedef struct lnt_msg_header {
    uint32_t magic;
    uint8_t kind;    /* lnt_msg_kind_t */
    uint8_t refused; /* SETUP: the sender could not prepare; the body is the reason */
    uint16_t n_fds;
    uint32_t bytes; /* of the body */
} lnt_msg_header_t;

/* First thing on a connection, in both directions: who I am, and proof that I know whom I talk to. */
typedef struct lnt_hello {
    uint32_t magic, rank, n_ranks, reserved;
    uint64_t token; /* of the rank that is addressed */
} lnt_hello_t;

/* Bodies, little-endian, fixed size. */
typedef struct lnt_msg_vote {
    int32_t status;
    char cause[LNT_ERROR_TEXT_MAX], cure[LNT_ERROR_TEXT_MAX];
} lnt_msg_vote_t;

typedef struct lnt_msg_failure {
    int64_t rank, peer, tensor, step;
    int32_t status, reserved;
    char cause[LNT_ERROR_TEXT_MAX], cure[LNT_ERROR_TEXT_MAX];
} lnt_msg_failure_t;

enum { LNT_WAITING_TEXT = 96 };
typedef struct lnt_msg_waiting {
    int64_t peer; /* -1: nobody */
    char what[LNT_WAITING_TEXT];
} lnt_msg_waiting_t;

enum {
    LNT_MSG_IN_BYTES = sizeof(lnt_msg_header_t) + LNT_MESH_SETUP_BYTES,
    /* A hello, a set-up round, a vote, the failure, one waiting-for edge and a goodbye can be queued at once. */
    LNT_MSG_OUT_BYTES = 8192
};

typedef enum lnt_mesh_link_state {
    LNT_LINK_AWAITED,  /* the peer dials us */
    LNT_LINK_RETRY,    /* we dial again at `retry_at` */
    LNT_LINK_DIALING,  /* connect() is under way */
    LNT_LINK_GREETING, /* hello sent, answer awaited */
    LNT_LINK_UP,
    LNT_LINK_GONE
} lnt_mesh_link_state_t;

typedef struct lnt_link {
    uint32_t peer;
    lnt_mesh_link_state_t state;
    int fd, pidfd;
    bool local;
    uint32_t watched; /* events of fd in the epoll set, 0: not in it */
    uint64_t retry_at;

    int knock_fd; /* AWAITED: a connection that only asks whether the peer still listens, or -1 */
    uint64_t knock_at;
    uint32_t refusals; /* in a row */

    unsigned char out[LNT_MSG_OUT_BYTES];
    size_t out_begin, out_end;
    int out_fds[LNT_MESH_SETUP_FDS]; /* borrowed from the caller of exchange */
    size_t n_out_fds, out_fds_at;    /* they go with the byte at out_fds_at */
    bool out_dead;                   /* the peer takes nothing any more; what it sent may still be read */

    unsigned char in[LNT_MSG_IN_BYTES];
    size_t in_have;
    int in_fds[LNT_MESH_SETUP_FDS]; /* owned until a message is handed on */
    size_t n_in_fds;
    bool held;         /* a whole SETUP or VOTE waits for its round; nothing is read behind it */
    bool process_gone; /* told by the pidfd while a message was held */

    bool awaited;            /* its message of the running round is outstanding */
    lnt_msg_waiting_t waits; /* the peer's edge */
    bool tell;               /* our own edge has to be sent */
} lnt_mesh_link_t;

/* A connection that has not said who it is. */
typedef struct lnt_guest {
    int fd;
    bool local;
    uint64_t since;
    size_t have;
    lnt_hello_t hello;
} lnt_guest_t;

enum { LNT_MESH_GUESTS = 32, LNT_MESH_LISTENERS = 2 };

struct lnt_mesh {
    lnt_peer_id_t me;
    lnt_peer_id_t *peers;   /* copy, from connect on */
    lnt_mesh_link_t *links; /* [n_ranks], this rank's own is GONE; NULL before connect */
    uint32_t n_links;
    int epoll, event;
    int listeners[LNT_MESH_LISTENERS]; /* unix, tcp; -1 */
    lnt_guest_t guests[LNT_MESH_GUESTS];

    bool closing, failed;
    lnt_error_info_t record; /* valid when failed */
    lnt_mesh_failed_fn_t on_failure;
    void *on_failure_arg;
    lnt_msg_waiting_t waits; /* our own edge */

    _Atomic uint32_t abort_state; /* 0, 1: somebody writes the reason, 2: wanted */
    char abort_reason[LNT_ERROR_TEXT_MAX];
};

/* What an epoll event is about; the index is a rank, a guest or a listener. */
typedef enum lnt_watch {
    LNT_WATCH_LINK,
    LNT_WATCH_PIDFD,
    LNT_WATCH_GUEST,
    LNT_WATCH_LISTENER,
    LNT_WATCH_EVENT
} lnt_watch_t;

/* mesh.c */
int lnt_mesh_poll(lnt_mesh_t *mesh, int timeout_ms); /* handles what is ready; returns the number of events */
bool lnt_mesh_watch(lnt_mesh_t *mesh, int fd, uint32_t events, lnt_watch_t what, uint32_t index);

/* mesh_link.c */
bool lnt_mesh_link_queue(lnt_mesh_t *mesh, lnt_mesh_link_t *link, const lnt_msg_header_t *header, const void *body,
                         const int *fds);
void lnt_mesh_link_queue_bytes(lnt_mesh_link_t *link, const void *bytes, size_t count);
void lnt_mesh_link_flush(lnt_mesh_t *mesh, lnt_mesh_link_t *link);
void lnt_mesh_link_read(lnt_mesh_t *mesh, lnt_mesh_link_t *link);    /* until empty, held or gone */
void lnt_mesh_link_release(lnt_mesh_t *mesh, lnt_mesh_link_t *link); /* drops the held message */
void lnt_mesh_link_update_watch(lnt_mesh_t *mesh, lnt_mesh_link_t *link);
void lnt_mesh_link_close(lnt_mesh_link_t *link); /* silent; becomes GONE */
static inline bool lnt_mesh_link_pending(const lnt_mesh_link_t *link)
{
    return link->out_begin < link->out_end;
}

/* mesh_connect.c */
void lnt_mesh_on_pidfd(lnt_mesh_t *mesh, lnt_mesh_link_t *link);
void lnt_mesh_on_listener(lnt_mesh_t *mesh, uint32_t index);
void lnt_mesh_on_guest(lnt_mesh_t *mesh, uint32_t index);
void lnt_mesh_on_dialed(lnt_mesh_t *mesh, lnt_mesh_link_t *link);   /* DIALING: connect() ended */
void lnt_mesh_on_greeting(lnt_mesh_t *mesh, lnt_mesh_link_t *link); /* GREETING: readable */
void lnt_mesh_close_doors(lnt_mesh_t *mesh);                        /* listeners, guests, knocks */
socklen_t lnt_mesh_peer_address(const lnt_mesh_t *mesh, const lnt_mesh_link_t *link,
                                struct sockaddr_storage *address); /* 0: none */

/* mesh_knock.c */
void lnt_mesh_knock(lnt_mesh_t *mesh, lnt_mesh_link_t *link,
                    uint64_t now); /* AWAITED only; loses the link when nobody is in */
void lnt_mesh_end_knock(lnt_mesh_link_t *link);

/* mesh_fail.c */
void lnt_mesh_link_lost(lnt_mesh_t *mesh, lnt_mesh_link_t *link,
                        const char *why); /* closes it; PEER_LOST unless closing or failed */
void lnt_mesh_tell_failure(lnt_mesh_t *mesh, lnt_mesh_link_t *link);
void lnt_mesh_on_failure_message(lnt_mesh_t *mesh, const void *body);
void lnt_mesh_on_event(lnt_mesh_t *mesh);
void lnt_mesh_fail_timeout(lnt_mesh_t *mesh, const char *doing, bool (*missing)(const lnt_mesh_link_t *link),
                           uint32_t timeout_ms);
lnt_status_t lnt_mesh_report(const lnt_mesh_t *mesh); /* the record as this thread's error */
void lnt_mesh_tell_waiting(lnt_mesh_t *mesh, lnt_mesh_link_t *link);

#endif
