/* The communicator's data side: opens the transports its routes need, connects them to the executor and moves them.
 *
 * The executor knows one sink and one send function; this file sits between. When the communicator fails, transports
 * are closed *before* the executor ends its jobs: from the moment a job is done its memory belongs to the caller again.
 */
#include "comm_net.h"

#include <string.h>

enum { MESH_EVERY_TURNS = 16, PACED_POLL_NS = 200000 };

/* ---- between executor and transports ---- */

static void send_frame(void *arg, lnt_send_t *send)
{
    lnt_comm_net_t *net = arg;
    lnt_channel_t *channel = &net->channels[net->row_of[send->peer]];

    if (channel->transport == NULL) return; /* failed: the executor is about to hear it */
    net->in_flight++;
    __atomic_store_n(&net->comm->frames_sent, net->comm->frames_sent + 1, __ATOMIC_RELAXED);
    channel->ops->send(channel->transport, send);
}

static void wake_loop(void *arg)
{
    const lnt_comm_net_t *net = arg;

    lnt_progress_wake(net->comm->context->progress);
}

static void exec_failed(void *arg, const lnt_error_info_t *record)
{
    lnt_comm_report(((lnt_comm_net_t *)arg)->comm, record);
}

static lnt_status_t sink_locate(void *arg, uint32_t src, const lnt_frame_header_t *header, void **body_p)
{
    lnt_comm_net_t *net = arg;
    lnt_status_t status;

    if (lnt_comm_has_failed(net->comm)) return LNT_IN_PROGRESS; /* keep it: the channel is closed in a moment */
    status = net->exec_sink.locate(net->exec_sink.arg, src, header, body_p);
    if (status < 0) lnt_comm_report(net->comm, lnt_last_error());
    return status;
}

static void sink_arrived(void *arg, uint32_t src, const lnt_frame_header_t *header, void *body)
{
    const lnt_comm_net_t *net = arg;

    net->exec_sink.arrived(net->exec_sink.arg, src, header, body);
}

static void sink_sent(void *arg, lnt_send_t *send)
{
    lnt_comm_net_t *net = arg;

    net->in_flight--;
    net->exec_sink.sent(net->exec_sink.arg, send);
}

static void sink_broken(void *arg, uint32_t peer, const char *why)
{
    lnt_comm_channel_broken(((lnt_comm_net_t *)arg)->comm, peer, why);
}

static void sink_failed(void *arg)
{
    lnt_comm_t *comm = ((lnt_comm_net_t *)arg)->comm;
    lnt_error_info_t record = *lnt_last_error();

    record.peer = comm->rank;
    lnt_comm_report(comm, &record);
}

/* ---- progress ---- */

/* Everything that may touch a job's memory stops, then the jobs end. */
static void settle(lnt_comm_t *comm)
{
    lnt_net_close(comm);
    lnt_exec_fail(comm->exec, &comm->record);
    comm->net->settled = true;
}

/* A transport may have brought the frame that ends this communicator: no task begins after that, so that who sees
 * the failure waits for at most one per thread. */
static bool move_data(lnt_comm_t *comm)
{
    lnt_comm_net_t *net = comm->net;
    bool moved = false;

    for (size_t i = 0; i < net->n_channels; i++) {
        if (net->channels[i].transport != NULL) moved |= net->channels[i].ops->progress(net->channels[i].transport);
    }
    if (!lnt_comm_has_failed(comm)) moved |= lnt_exec_progress(comm->exec);
    if (moved) lnt_watch_moved(comm);
    return moved;
}

static bool item_progress(void *arg, bool woken)
{
    lnt_comm_t *comm = arg;
    lnt_comm_net_t *net = comm->net;
    bool moved = false;

    if (woken || net->turns++ % MESH_EVERY_TURNS == 0) moved |= lnt_mesh_progress(comm->mesh);
    if (!lnt_comm_has_failed(comm)) {
        moved |= move_data(comm);
        lnt_comm_check_broken(comm);
        lnt_watch_check(comm);
    }
    if (lnt_comm_has_failed(comm)) {
        moved |= !net->settled; /* jobs end: whoever makes progress for one of them must look before it sleeps */
        if (!net->settled) settle(comm);
        moved |= lnt_exec_progress(comm->exec); /* ends jobs that come late */
    }
    return moved;
}

static bool item_arm(void *arg)
{
    lnt_comm_t *comm = arg;
    bool quiet = !lnt_mesh_progress(comm->mesh);

    for (size_t i = 0; i < comm->net->n_channels; i++) {
        lnt_channel_t *channel = &comm->net->channels[i];

        if (channel->transport != NULL) quiet &= channel->ops->arm(channel->transport);
    }
    return quiet;
}

static void item_disarm(void *arg)
{
    lnt_comm_t *comm = arg;

    for (size_t i = 0; i < comm->net->n_channels; i++) {
        lnt_channel_t *channel = &comm->net->channels[i];

        if (channel->transport != NULL) channel->ops->disarm(channel->transport);
    }
}

static uint64_t item_max_sleep_ns(void *arg)
{
    lnt_comm_t *comm = arg;
    lnt_comm_net_t *net = comm->net;
    uint64_t sleep_ns = lnt_watch_sleep_ns(comm), paced_ns;

    if (net->in_flight == 0 || net->pace == NULL || lnt_comm_has_failed(comm)) return sleep_ns;
    paced_ns = lnt_pacer_wait_ns(lnt_pace_pacer(net->pace));
    if (paced_ns < PACED_POLL_NS)
        paced_ns = PACED_POLL_NS; /* the channel is free: something else holds the frames back */
    return (paced_ns < sleep_ns) ? paced_ns : sleep_ns;
}

/* ---- opening ---- */

static lnt_status_t alloc_tables(lnt_comm_net_t *net, uint32_t n_ranks)
{
    (void)lnt_transport_rows(&net->n_channels);
    net->row_of = lnt_calloc(n_ranks, sizeof(*net->row_of), "routes");
    net->is_inter = lnt_calloc(n_ranks, sizeof(*net->is_inter), "levels");
    net->channels = lnt_calloc(net->n_channels, sizeof(*net->channels), "channels");
    return (net->row_of != NULL && net->is_inter != NULL && net->channels != NULL) ? LNT_OK : LNT_ERR_NO_MEMORY;
}

static lnt_status_t fill_channels(lnt_comm_t *comm)
{
    lnt_comm_net_t *net = comm->net;
    size_t n_rows;
    const lnt_transport_ops_t *const *rows = lnt_transport_rows(&n_rows);

    for (size_t r = 0; r < n_rows; r++) {
        net->channels[r] = (lnt_channel_t){.ops = rows[r], .event_fd = -1};
        net->channels[r].use = lnt_calloc(comm->n_ranks, 1, "peers of a transport");
        if (net->channels[r].use == NULL) return LNT_ERR_NO_MEMORY;
    }
    for (uint32_t peer = 0; peer < comm->n_ranks; peer++) {
        net->is_inter[peer] = (comm->topo->node_of[peer] != comm->topo->node_of[comm->rank]);
        if (peer != comm->rank) net->channels[net->row_of[peer]].use[peer] = 1;
    }
    return LNT_OK;
}

static lnt_status_t create_exec(lnt_comm_t *comm)
{
    const lnt_exec_params_t params = {
        .rank = comm->rank,
        .n_ranks = comm->n_ranks,
        .arg = comm->net,
        .send = send_frame,
        .wake = wake_loop,
        .fail = exec_failed,
        .pool = comm->context->pool,
        .min_elems = comm->context->config.thread_bytes / sizeof(float),
    };

    LNT_TRY(lnt_exec_create(&params, &comm->exec));
    lnt_exec_sink(comm->exec, &comm->net->exec_sink);
    return LNT_OK;
}

lnt_status_t lnt_net_create(lnt_comm_t *comm, const lnt_peer_id_t *peers)
{
    lnt_comm_net_t *net = lnt_calloc(1, sizeof(*net), "communicator's data side");

    if (net == NULL) return LNT_ERR_NO_MEMORY;
    comm->net = net; /* lnt_net_destroy releases what is there */
    net->comm = comm;
    net->broken_peer = -1;
    net->item = (lnt_progress_item_t){.arg = comm,
                                      .progress = item_progress,
                                      .arm = item_arm,
                                      .disarm = item_disarm,
                                      .max_sleep_ns = item_max_sleep_ns};
    LNT_TRY(alloc_tables(net, comm->n_ranks));
    LNT_TRY(lnt_route_choose(peers, comm->rank, comm->n_ranks, net->row_of));
    LNT_TRY(fill_channels(comm));
    return create_exec(comm);
}

static lnt_status_t open_channel(lnt_comm_t *comm, lnt_channel_t *channel)
{
    const lnt_comm_net_t *net = comm->net;
    const lnt_transport_params_t params = {
        .rank = comm->rank,
        .n_ranks = comm->n_ranks,
        .peers = comm->peers,
        .use = channel->use,
        .is_inter = net->is_inter,
        .pacer = lnt_pace_pacer(net->pace),
        .doorbell = lnt_progress_doorbell(comm->context->progress),
        .ring_bytes = comm->context->config.ring_bytes,
        .net_devices = comm->context->config.net_devices,
        .sink = {.arg = comm->net,
                 .locate = sink_locate,
                 .arrived = sink_arrived,
                 .sent = sink_sent,
                 .broken = sink_broken,
                 .failed = sink_failed},
        .wire_bytes = comm->wire_bytes,
        .logger = comm->context->logger,
    };

    char why[160] = "";

    if (!channel->ops->usable(why, sizeof(why))) {
        return lnt_error(LNT_ERR_UNSUPPORTED, "install what is missing, or allow another transport in LINNET_TLS",
                         "transport %s is needed on rank %u, but is not usable there: %s", channel->ops->name,
                         comm->rank, why);
    }
    return channel->ops->open(&params, &channel->transport);
}

lnt_status_t lnt_net_open(lnt_comm_t *comm)
{
    for (size_t i = 0; i < comm->net->n_channels; i++) {
        lnt_channel_t *channel = &comm->net->channels[i];

        if (memchr(channel->use, 1, comm->n_ranks) != NULL) LNT_TRY(open_channel(comm, channel));
    }
    return LNT_OK;
}

static lnt_status_t put_offer(void *arg, uint32_t peer, void *buffer, size_t *bytes_p, int *fds, size_t *n_fds_p)
{
    const lnt_comm_net_t *net = arg;
    const lnt_channel_t *channel = &net->channels[net->row_of[peer]];

    return channel->ops->offer(channel->transport, peer, buffer, bytes_p, fds, n_fds_p);
}

static lnt_status_t take_offer(void *arg, uint32_t peer, const void *buffer, size_t bytes, const int *fds, size_t n_fds)
{
    const lnt_comm_net_t *net = arg;
    const lnt_channel_t *channel = &net->channels[net->row_of[peer]];

    return channel->ops->accept(channel->transport, peer, buffer, bytes, fds, n_fds);
}

lnt_status_t lnt_net_exchange(lnt_comm_t *comm, uint32_t timeout_ms)
{
    const lnt_mesh_setup_t setup = {.arg = comm->net, .out = put_offer, .in = take_offer};

    return lnt_mesh_exchange(comm->mesh, &setup, timeout_ms);
}

/* ---- start, stop ---- */

lnt_status_t lnt_net_watch(lnt_comm_t *comm)
{
    lnt_progress_t *progress = comm->context->progress;

    LNT_TRY(lnt_progress_watch_fd(progress, lnt_mesh_fd(comm->mesh)));
    comm->net->watched = true;
    for (size_t i = 0; i < comm->net->n_channels; i++) {
        lnt_channel_t *channel = &comm->net->channels[i];
        const int fd = (channel->transport != NULL) ? channel->ops->event_fd(channel->transport) : -1;

        if (fd < 0) continue;
        LNT_TRY(lnt_progress_watch_fd(progress, fd));
        channel->event_fd = fd;
    }
    return LNT_OK;
}

void lnt_net_start(lnt_comm_t *comm)
{
    lnt_progress_add(comm->context->progress, &comm->net->item);
    comm->net->started = true;
}

void lnt_net_stop(lnt_comm_t *comm)
{
    if (comm->net == NULL) return;
    if (comm->net->started) lnt_progress_remove(comm->context->progress, &comm->net->item);
    if (comm->net->watched) lnt_progress_unwatch_fd(comm->context->progress, lnt_mesh_fd(comm->mesh));
    comm->net->started = comm->net->watched = false;
}

void lnt_net_close(lnt_comm_t *comm)
{
    for (size_t i = 0; i < comm->net->n_channels; i++) {
        lnt_channel_t *channel = &comm->net->channels[i];

        if (channel->transport == NULL) continue;
        if (channel->event_fd >= 0) lnt_progress_unwatch_fd(comm->context->progress, channel->event_fd);
        channel->ops->close(channel->transport);
        channel->transport = NULL;
        channel->event_fd = -1;
    }
}

void lnt_net_destroy(lnt_comm_t *comm)
{
    lnt_comm_net_t *net = comm->net;

    if (net == NULL) return;
    if (net->channels != NULL) {
        lnt_net_close(comm);
        for (size_t i = 0; i < net->n_channels; i++)
            lnt_free(net->channels[i].use);
    }
    lnt_probe_destroy(comm); /* still there when creation failed */
    lnt_pace_drop(net->pace);
    lnt_comm_cache_destroy(comm); /* channels are closed: nobody holds frames of requests any more */
    lnt_exec_destroy(comm->exec);
    lnt_free(net->channels);
    lnt_free(net->is_inter);
    lnt_free(net->row_of);
    lnt_free(net);
    comm->net = NULL;
}
