/* The last step of creation: every rank sends one empty frame to every other and waits for theirs.
 *
 * So a communicator that exists has channels that carry data: a wrong network device or a firewall fails here, by name,
 * and not in the first step of training. A second round tells that all ranks are through the first: transports that set
 * up a connection with its first message have that behind them on both sides (UCX 1.13 ends the process when a peer
 * dies in the middle of it). The frames are not counted in the statistics.
 */
#include "comm_net.h"

#include <stdio.h>
#include <string.h>

typedef struct lnt_probe {
    lnt_graph_t graph;
    lnt_graph_t *list[1];
    _Atomic uint8_t ready[1];
    lnt_job_t job;
    bool reserved;
} lnt_probe_t;

static void add_peer(lnt_graph_builder_t *builder, uint32_t me, uint32_t peer)
{
    lnt_frame_header_t header = {
        .magic = LNT_FRAME_MAGIC, .version = LNT_FRAME_VERSION, .phase = 3, .program = UINT16_MAX, .source = me};
    const uint32_t out = lnt_graph_add_frame(builder, 0, 0), in = lnt_graph_add_frame(builder, 0, 0);

    lnt_graph_set_header(builder, out, &header);
    header.source = peer;
    lnt_graph_set_header(builder, in, &header);
    (void)lnt_graph_add_send(builder, out, peer);
    (void)lnt_graph_add_recv(builder, in, peer, lnt_graph_key(header.phase, 0, 0, peer, 0));
}

static lnt_status_t build_graph(const lnt_comm_t *comm, lnt_probe_t *probe)
{
    lnt_graph_builder_t *builder;

    LNT_TRY(lnt_graph_begin(&builder));
    for (uint32_t peer = 0; peer < comm->n_ranks; peer++) {
        if (peer != comm->rank) add_peer(builder, comm->rank, peer);
    }
    LNT_TRY(lnt_graph_finish(builder, &probe->graph, NULL));
    probe->graph.owner = probe;
    probe->graph.program = UINT16_MAX;
    LNT_TRY(lnt_exec_reserve(comm->exec, probe->graph.n_tasks));
    probe->reserved = true;
    return LNT_OK;
}

lnt_status_t lnt_probe_create(lnt_comm_t *comm)
{
    lnt_probe_t *probe = lnt_calloc(1, sizeof(*probe), "first frames");

    if (probe == NULL) return LNT_ERR_NO_MEMORY;
    comm->net->probe = probe;
    probe->list[0] = &probe->graph;
    probe->job = (lnt_job_t){.graphs = probe->list, .n_graphs = 1, .ready = probe->ready};
    snprintf(probe->job.what, sizeof(probe->job.what), "first frames of the communicator");
    return build_graph(comm, probe);
}

static void forget_traffic(lnt_comm_t *comm)
{
    lnt_comm_stats_t ignored = {.struct_size = sizeof(ignored)};

    (void)lnt_comm_get_stats(comm, &ignored, true);
}

static lnt_status_t run_once(lnt_comm_t *comm, lnt_probe_t *probe)
{
    probe->job.sequence = comm->sequence++;
    lnt_exec_post(comm->exec, &probe->job);
    lnt_job_ready(comm->exec, &probe->job, 0);
    return lnt_comm_wait_job(comm, &probe->job);
}

lnt_status_t lnt_probe_run(lnt_comm_t *comm)
{
    LNT_TRY(run_once(comm, comm->net->probe));
    LNT_TRY(run_once(comm, comm->net->probe));
    forget_traffic(comm);
    lnt_probe_destroy(comm);
    return LNT_OK;
}

void lnt_probe_destroy(lnt_comm_t *comm)
{
    lnt_probe_t *probe = comm->net->probe;

    if (probe == NULL) return;
    if (probe->reserved) lnt_exec_unreserve(comm->exec, probe->graph.n_tasks);
    lnt_graph_release(&probe->graph);
    lnt_free(probe);
    comm->net->probe = NULL;
}
