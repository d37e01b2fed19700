/* UCX module: opening, addresses, progress, closing. */
#include "ucx.h"

#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucs/debug/debug.h>

enum { SLAB_RECORDS = 64, CLOSE_MS = 1000, SETTLE_NAP_NS = 100000 };

static const lnt_host_ops_t *host_ops; /* set once when the module is loaded; constant afterwards */

/* ---- records ---- */

typedef struct slab {
    struct slab *next;
    lnt_ucx_note_t notes[SLAB_RECORDS];
    lnt_ucx_post_t posts[SLAB_RECORDS];
} slab_t;

static bool grow(lnt_ucx_t *ucx)
{
    slab_t *slab = ucx->host->calloc(1, sizeof(*slab), "ucx records");

    if (slab == NULL) {
        return false;
    }
    slab->next = ucx->slabs;
    ucx->slabs = slab;
    for (int i = 0; i < SLAB_RECORDS; i++) {
        lnt_ucx_give_note(ucx, &slab->notes[i]);
        lnt_ucx_give_post(ucx, &slab->posts[i]);
    }
    return true;
}

/* A slab for each peer. */
static lnt_status_t reserve(lnt_ucx_t *ucx)
{
    for (uint32_t rank = 0; rank < ucx->params.n_ranks; rank++) {
        if (ucx->params.use[rank] != 0 && !grow(ucx)) {
            return LNT_ERR_NO_MEMORY;
        }
    }
    return LNT_OK;
}

/* The fault is this rank's, not the peer's; frames of that peer would be out of order from here on. */
static bool grow_under_way(lnt_ucx_t *ucx, lnt_ucx_peer_t *peer)
{
    if (grow(ucx)) {
        return true;
    }
    peer->broken = true;
    ucx->any_broken = true;
    ucx->params.sink.failed(ucx->params.sink.arg);
    return false;
}

lnt_ucx_note_t *lnt_ucx_take_note(lnt_ucx_t *ucx, lnt_ucx_peer_t *peer)
{
    lnt_ucx_note_t *note;

    if (ucx->free_notes == NULL && !grow_under_way(ucx, peer)) {
        return NULL;
    }
    note = ucx->free_notes;
    ucx->free_notes = note->next;
    return note;
}

lnt_ucx_post_t *lnt_ucx_take_post(lnt_ucx_t *ucx, lnt_ucx_peer_t *peer)
{
    lnt_ucx_post_t *post;

    if (ucx->free_posts == NULL && !grow_under_way(ucx, peer)) {
        return NULL;
    }
    post = ucx->free_posts;
    ucx->free_posts = post->next;
    return post;
}

/* ---- errors ---- */

void lnt_ucx_break(lnt_ucx_t *ucx, uint32_t peer, const char *why)
{
    const lnt_sink_t *sink = &ucx->params.sink;

    if (ucx->peers[peer].broken) {
        return;
    }
    ucx->peers[peer].broken = true;
    ucx->any_broken = true;
    ucx->moved = true;
    sink->broken(sink->arg, peer, why);
}

static void on_endpoint_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    lnt_ucx_peer_t *peer = arg;

    (void)ep;
    lnt_ucx_break(peer->ucx, peer->rank, ucs_status_string(status));
}

static lnt_status_t ucx_error(const lnt_ucx_t *ucx, const char *what, ucs_status_t status)
{
    return ucx->host->error(LNT_ERR_TRANSPORT, "see UCX_LOG_LEVEL=info, UCX_TLS and LINNET_NET_DEVICES", "UCX: %s: %s",
                            what, ucs_status_string(status));
}

/* ---- opening ---- */

/* Is there a device that can read a peer's memory? Then rendezvous is the way for large frames. */
static bool has_rdma(void)
{
    glob_t found;
    bool any = glob("/sys/class/infiniband/*", GLOB_NOSORT, NULL, &found) == 0;

    globfree(&found);
    return any;
}

/* With peer error handling UCX refuses its own shared memory, and we have ours: keep to the network. Over TCP a
 * rendezvous pulls the frame in pieces, each after a round trip, and reaches half of a 1 Gbit/s wire: send eagerly
 * there. What the user set stays. */
static void modify_config(const lnt_ucx_t *ucx, ucp_config_t *config)
{
    if (getenv("UCX_RNDV_THRESH") == NULL && !has_rdma()) {
        ucp_config_modify(config, "RNDV_THRESH", "inf");
    }
    if (getenv("UCX_TLS") == NULL) {
        ucp_config_modify(config, "TLS", "^sm");
    }
    if (ucx->params.net_devices != NULL) {
        ucp_config_modify(config, "NET_DEVICES", ucx->params.net_devices);
    }
}

static lnt_status_t open_context(lnt_ucx_t *ucx)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
                           .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
                           .estimated_num_eps = ucx->params.n_ranks};
    ucp_config_t *config;
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);

    if (status != UCS_OK) {
        return ucx_error(ucx, "configuration", status);
    }
    modify_config(ucx, config);
    status = ucp_init(&params, config, &ucx->context);
    ucp_config_release(config);
    return status == UCS_OK ? LNT_OK : ucx_error(ucx, "ucp_init", status);
}

static lnt_status_t open_worker(lnt_ucx_t *ucx)
{
    ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                                                    UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                      .id = LNT_UCX_AM_ID,
                                      .flags = UCP_AM_FLAG_PERSISTENT_DATA,
                                      .cb = lnt_ucx_on_message,
                                      .arg = ucx};
    ucs_status_t status = ucp_worker_create(ucx->context, &params, &ucx->worker);

    if (status != UCS_OK) {
        return ucx_error(ucx, "ucp_worker_create", status);
    }
    status = ucp_worker_set_am_recv_handler(ucx->worker, &handler);
    if (status == UCS_OK) {
        status = ucp_worker_get_address(ucx->worker, &ucx->address, &ucx->address_bytes);
    }
    if (status == UCS_OK) {
        status = ucp_worker_get_efd(ucx->worker, &ucx->event_fd);
    }
    return status == UCS_OK ? LNT_OK : ucx_error(ucx, "worker set-up", status);
}

static void ucx_close(lnt_transport_t *transport);

static lnt_status_t ucx_open(const lnt_transport_params_t *params, lnt_transport_t **transport_p)
{
    lnt_ucx_t *ucx = host_ops->calloc(1, sizeof(*ucx), "ucx transport");
    lnt_status_t status;

    if (ucx == NULL) {
        return LNT_ERR_NO_MEMORY;
    }
    ucx->host = host_ops;
    ucx->params = *params;
    ucx->event_fd = -1;
    ucx->peers = host_ops->calloc(params->n_ranks, sizeof(*ucx->peers), "ucx peers");
    status = ucx->peers == NULL ? LNT_ERR_NO_MEMORY : reserve(ucx);
    if (status == LNT_OK) {
        status = open_context(ucx);
    }
    if (status == LNT_OK) {
        status = open_worker(ucx);
    }
    for (uint32_t rank = 0; status == LNT_OK && rank < params->n_ranks; rank++) {
        ucx->peers[rank].ucx = ucx;
        ucx->peers[rank].rank = rank;
    }
    if (status < 0) {
        ucx_close((lnt_transport_t *)(void *)ucx);
        return status;
    }
    *transport_p = (lnt_transport_t *)(void *)ucx;
    return LNT_OK;
}

static lnt_status_t ucx_offer(lnt_transport_t *transport, uint32_t peer, void *buffer, size_t *bytes_p, int *fds,
                              size_t *n_fds_p)
{
    lnt_ucx_t *ucx = (lnt_ucx_t *)(void *)transport;

    (void)peer;
    (void)fds;
    *n_fds_p = 0;
    if (ucx->address_bytes > LNT_MESH_SETUP_BYTES) {
        return ucx->host->error(LNT_ERR_TRANSPORT, "name fewer devices in LINNET_NET_DEVICES",
                                "the UCX address takes %zu bytes, at most %d can be sent", ucx->address_bytes,
                                LNT_MESH_SETUP_BYTES);
    }
    memcpy(buffer, ucx->address, ucx->address_bytes);
    *bytes_p = ucx->address_bytes;
    return LNT_OK;
}

/* What UCX chose for an endpoint, at debug level. */
static void log_endpoint(const lnt_ucx_t *ucx, const lnt_ucx_peer_t *peer)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);

    if (stream == NULL) {
        return;
    }
    ucp_ep_print_info(peer->ep, stream);
    fclose(stream);
    ucx->host->log(ucx->params.logger, LNT_LOG_DEBUG, LNT_SUB_NET, "ucx endpoint to rank %u: %s", peer->rank, text);
    free(text);
}

static lnt_status_t ucx_accept(lnt_transport_t *transport, uint32_t rank, const void *buffer, size_t bytes,
                               const int *fds, size_t n_fds)
{
    lnt_ucx_t *ucx = (lnt_ucx_t *)(void *)transport;
    lnt_ucx_peer_t *peer = &ucx->peers[rank];
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLER,
                              .address = buffer,
                              .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                              .err_handler.cb = on_endpoint_error,
                              .err_handler.arg = peer};
    ucs_status_t status;

    (void)fds;
    if (bytes == 0 || n_fds != 0) {
        return ucx->host->error(LNT_ERR_CORRUPT, "use one library version on all ranks", "rank %u sent no UCX address",
                                rank);
    }
    status = ucp_ep_create(ucx->worker, &params, &peer->ep);
    if (status != UCS_OK) {
        return ucx_error(ucx, "endpoint", status);
    }
    log_endpoint(ucx, peer);
    return LNT_OK;
}

/* ---- progress and sleeping ---- */

static bool ucx_progress(lnt_transport_t *transport)
{
    lnt_ucx_t *ucx = (lnt_ucx_t *)(void *)transport;
    bool any = lnt_ucx_push(ucx);

    for (int i = 0; i < 16 && ucp_worker_progress(ucx->worker) != 0; i++) {
        ucx->moved = true;
    }
    any |= lnt_ucx_deliver(ucx) | ucx->moved;
    ucx->moved = false;
    return any;
}

static bool ucx_arm(lnt_transport_t *transport)
{
    lnt_ucx_t *ucx = (lnt_ucx_t *)(void *)transport;

    return ucp_worker_arm(ucx->worker) == UCS_OK;
}

static void ucx_disarm(lnt_transport_t *transport)
{
    (void)transport;
}

static int ucx_event_fd(lnt_transport_t *transport)
{
    return ((lnt_ucx_t *)(void *)transport)->event_fd;
}

/* ---- closing ---- */

/* Progress until `request` is done or the time is up. */
static void settle(lnt_ucx_t *ucx, ucs_status_ptr_t request, uint64_t deadline_ns)
{
    if (request == NULL || UCS_PTR_IS_ERR(request)) {
        return;
    }
    while (ucp_request_check_status(request) == UCS_INPROGRESS && ucx->host->now_ns() < deadline_ns) {
        if (ucp_worker_progress(ucx->worker) == 0) {
            nanosleep(&(struct timespec){.tv_nsec = SETTLE_NAP_NS}, NULL);
        }
    }
    ucp_request_free(request);
}

/* A sound channel is flushed for at most CLOSE_MS, a broken one dropped. */
static void close_endpoints(lnt_ucx_t *ucx)
{
    uint64_t deadline_ns = ucx->host->now_ns() + (uint64_t)CLOSE_MS * 1000000u;

    for (uint32_t rank = 0; rank < ucx->params.n_ranks; rank++) {
        ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                     .flags = ucx->any_broken ? UCP_EP_CLOSE_FLAG_FORCE : 0};

        if (ucx->peers[rank].ep != NULL) {
            settle(ucx, ucp_ep_close_nbx(ucx->peers[rank].ep, &param), deadline_ns);
        }
    }
}

static void free_slabs(lnt_ucx_t *ucx)
{
    while (ucx->slabs != NULL) {
        slab_t *slab = ucx->slabs;

        ucx->slabs = slab->next;
        ucx->host->free(slab);
    }
}

static void ucx_close(lnt_transport_t *transport)
{
    lnt_ucx_t *ucx = (lnt_ucx_t *)(void *)transport;

    if (ucx == NULL) {
        return;
    }
    if (ucx->worker != NULL) {
        lnt_ucx_drop_notes(ucx);
        close_endpoints(ucx);
        lnt_ucx_drop_notes(ucx);
        if (ucx->address != NULL) {
            ucp_worker_release_address(ucx->worker, ucx->address);
        }
        ucp_worker_destroy(ucx->worker);
    }
    if (ucx->context != NULL) {
        ucp_cleanup(ucx->context);
    }
    free_slabs(ucx);
    ucx->host->free(ucx->peers);
    ucx->host->free(ucx);
}

/* ---- the row ---- */

static bool ucx_usable(char *why, size_t size)
{
    (void)why;
    (void)size;
    return true;
}

static bool ucx_reachable(const lnt_peer_id_t *me, const lnt_peer_id_t *peer)
{
    (void)me;
    (void)peer;
    return true;
}

LNT_API const lnt_transport_ops_t *lnt_ucx_transport_ops(const lnt_host_ops_t *host);

const lnt_transport_ops_t *lnt_ucx_transport_ops(const lnt_host_ops_t *host)
{
    static const lnt_transport_ops_t ops = {.name = "ucx",
                                            .doc = "UCX active messages between hosts",
                                            .usable = ucx_usable,
                                            .reachable = ucx_reachable,
                                            .open = ucx_open,
                                            .offer = ucx_offer,
                                            .accept = ucx_accept,
                                            .send = lnt_ucx_send,
                                            .progress = ucx_progress,
                                            .arm = ucx_arm,
                                            .disarm = ucx_disarm,
                                            .event_fd = ucx_event_fd,
                                            .close = ucx_close};
    const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};

    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        ucs_debug_disable_signal(signals[i]); /* the application's handlers stay its own */
    }
    host_ops = host;
    return &ops;
}
