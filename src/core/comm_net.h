/* What the files of the communicator share: greeting, routes, opened transports, watch, failure. */
#ifndef LNT_CORE_COMM_NET_H
#define LNT_CORE_COMM_NET_H

#include "progress.h"

typedef struct lnt_comm_net lnt_comm_net_t;

/* ---- greeting (comm_greeting.c): what every rank tells the others through the bootstrap's one all-gather ---- */

enum { LNT_GREETING_CAUSE_MAX = 192 };

typedef struct lnt_greeting {
    lnt_peer_id_t id;
    int32_t status; /* of the rank's own preparation: a rank that cannot take part still says so */
    uint32_t timeout_ms;
    double emulate_gbps;
    char cause[LNT_GREETING_CAUSE_MAX];
} lnt_greeting_t;

/* What a communicator is made with, after defaults; strings are borrowed. */
typedef struct lnt_comm_settings {
    const char *node;       /* NULL: the host */
    uint64_t node_label;    /* not 0: instead of `node` */
    const char *transports; /* list, or NULL */
    uint32_t usable;        /* not 0: bits instead of `transports` */
    uint32_t timeout_ms;
    double emulate_gbps;
    struct lnt_pace *pace; /* the emulated link to share, or NULL */
} lnt_comm_settings_t;

/* Fills all but the mesh's fields. */
lnt_status_t lnt_greeting_fill(const lnt_comm_settings_t *settings, uint32_t rank, uint32_t n_ranks,
                               lnt_greeting_t *greeting);
/* The same verdict on every rank, from the same bytes. */
lnt_status_t lnt_greeting_check(const lnt_greeting_t *greetings, uint32_t rank, uint32_t n_ranks);

/* ---- routes (comm_route.c) ---- */

/* Bit per row of the transport table that `list` allows and that is usable in this process, as far as it is tried yet.
 */
lnt_status_t lnt_route_usable(const char *list, uint32_t *transports_p);
/* Row of the transport table for every peer; an error (on every rank the same) when some pair has none. */
lnt_status_t lnt_route_choose(const lnt_peer_id_t *peers, uint32_t rank, uint32_t n_ranks, uint8_t *row_of);
/* One line per level: what was chosen and why. */
void lnt_route_log(const lnt_comm_t *comm);

/* ---- emulated link of a node (comm_pace.c) ---- */

typedef struct lnt_pace lnt_pace_t;

/* Collective over the mesh: one piece of memory per node. gbps > 0. */
lnt_status_t lnt_pace_create(lnt_comm_t *comm, uint32_t timeout_ms, lnt_pace_t **pace_p);
lnt_pace_t *lnt_pace_hold(lnt_pace_t *pace);
void lnt_pace_drop(lnt_pace_t *pace); /* NULL is legal */
lnt_pacer_t *lnt_pace_pacer(lnt_pace_t *pace);

/* ---- waiting too long (comm_watch.c) ---- */

typedef struct lnt_comm_watch {
    uint64_t since_ns;  /* the progress the wait began after */
    uint64_t tick_ns;   /* last look */
    uint64_t waited_ns; /* time this thread could run in since then */
    bool running;       /* a job waited for another rank at the last look */
    bool fresh;         /* something moved since the last look */
    bool warned, told;
} lnt_comm_watch_t;

void lnt_watch_check(lnt_comm_t *comm); /* cheap unless a look is due */
void lnt_watch_moved(lnt_comm_t *comm); /* bytes moved: that is progress */
uint64_t lnt_watch_sleep_ns(const lnt_comm_t *comm);

/* ---- transports and progress (comm_net.c) ---- */

/* One row of the transport table, opened. */
typedef struct lnt_channel {
    const lnt_transport_ops_t *ops;
    lnt_transport_t *transport; /* NULL: not used, or closed */
    uint8_t *use;               /* [n_ranks] */
    int event_fd;
} lnt_channel_t;

struct lnt_comm_net {
    lnt_comm_t *comm;
    lnt_progress_item_t item;
    uint8_t *row_of;         /* [n_ranks] */
    uint8_t *is_inter;       /* [n_ranks] */
    lnt_channel_t *channels; /* [n_channels], by row of the transport table */
    size_t n_channels;
    lnt_sink_t exec_sink;
    lnt_pace_t *pace;   /* NULL: nothing is emulated */
    uint32_t in_flight; /* frames queued and not yet sent */
    uint32_t turns;     /* for looking at the mesh now and then */
    lnt_comm_watch_t watch;
    int64_t broken_peer; /* -1: no channel broke */
    uint64_t broken_ns;
    char broken_why[160];
    struct lnt_probe *probe; /* only during creation */
    bool watched, started;   /* lnt_net_watch, lnt_net_start; both end with lnt_net_stop */
    _Atomic uint32_t record_claimed;
    bool settled; /* the executor knows the failure */
    uint64_t stats_base[3];
};

lnt_status_t lnt_net_create(lnt_comm_t *comm, const lnt_peer_id_t *peers);
lnt_status_t lnt_net_open(lnt_comm_t *comm);                          /* this rank's side of every transport */
lnt_status_t lnt_net_exchange(lnt_comm_t *comm, uint32_t timeout_ms); /* collective */
lnt_status_t lnt_net_watch(lnt_comm_t *comm);                         /* its descriptors wake the progress loop */
void lnt_net_start(lnt_comm_t *comm);                                 /* from now on in progress */
void lnt_net_stop(lnt_comm_t *comm);                                  /* not any more; legal when never started */
void lnt_net_close(lnt_comm_t *comm);                                 /* transports; idempotent */
void lnt_net_destroy(lnt_comm_t *comm);                               /* NULL net is legal */

/* ---- a first frame through every channel (comm_probe.c) ---- */

lnt_status_t lnt_probe_create(lnt_comm_t *comm); /* into net->probe */
lnt_status_t lnt_probe_run(lnt_comm_t *comm);    /* collective; the communicator must be in progress */
void lnt_probe_destroy(lnt_comm_t *comm);

/* ---- failure (comm_fail.c) ---- */

void lnt_comm_on_failure(void *comm, const lnt_error_info_t *record);           /* the mesh's verdict, any thread */
void lnt_comm_report(lnt_comm_t *comm, const lnt_error_info_t *record);         /* this rank found it; progress side */
void lnt_comm_channel_broken(lnt_comm_t *comm, uint32_t peer, const char *why); /* progress side */
void lnt_comm_check_broken(lnt_comm_t *comm);                                   /* progress side, now and then */
static inline bool lnt_comm_has_failed(const lnt_comm_t *comm)
{
    return atomic_load(&comm->failed) != 0;
}

/* ---- creation, shared with split (comm.c) ---- */

/* Not NULL, not a forked child; a failed communicator passes. */
lnt_status_t lnt_comm_check_owner(const lnt_comm_t *comm);
lnt_status_t lnt_comm_build(lnt_context_t *context, const lnt_bootstrap_t *bootstrap,
                            const lnt_comm_settings_t *settings, lnt_comm_t **comm_p);

#endif
