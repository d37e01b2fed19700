/* What a caller may ask a communicator, and how a caller waits for its jobs. */
#include "comm_net.h"

#include <stdio.h>
#include <string.h>

/* Names of the transports that carry one level: usually one, joined by + where there are several. */
static void level_name(const lnt_comm_t *comm, uint8_t inter, char *out, size_t size)
{
    const lnt_comm_net_t *net = comm->net;
    size_t used = 0;

    snprintf(out, size, "-");
    for (size_t i = 0; i < net->n_channels; i++) {
        bool carries = false;

        for (uint32_t peer = 0; peer < comm->n_ranks; peer++) {
            carries |= (peer != comm->rank && net->row_of[peer] == i && net->is_inter[peer] == inter);
        }
        if (!carries || used >= size) continue;
        used += (size_t)snprintf(out + used, size - used, "%s%s", (used > 0) ? "+" : "", net->channels[i].ops->name);
    }
}

lnt_status_t lnt_comm_get_info(const lnt_comm_t *comm, lnt_comm_info_t *info_p)
{
    const lnt_topo_t *topo;

    LNT_TRY(lnt_comm_check_owner(comm));
    LNT_CHECK_ARG(info_p != NULL);
    LNT_CHECK_STRUCT(info_p);
    topo = comm->topo;
    *info_p = (lnt_comm_info_t){
        .struct_size = sizeof(*info_p),
        .rank = comm->rank,
        .n_ranks = comm->n_ranks,
        .node = topo->node_of[comm->rank],
        .n_nodes = topo->n_nodes,
        .local_rank = topo->local_of[comm->rank],
        .n_local = lnt_topo_local_size(topo, topo->node_of[comm->rank]),
        .n_shards = topo->n_shards,
        .n_threads = lnt_pool_threads(comm->context->pool),
        .emulate_gbps = comm->emulate_gbps,
    };
    level_name(comm, 0, info_p->intra_transport, sizeof(info_p->intra_transport));
    level_name(comm, 1, info_p->inter_transport, sizeof(info_p->inter_transport));
    return LNT_OK;
}

lnt_status_t lnt_comm_get_nodes(const lnt_comm_t *comm, uint32_t *node_of)
{
    LNT_TRY(lnt_comm_check_owner(comm));
    LNT_CHECK_ARG(node_of != NULL);
    memcpy(node_of, comm->topo->node_of, comm->n_ranks * sizeof(*node_of));
    return LNT_OK;
}

lnt_status_t lnt_comm_get_stats(lnt_comm_t *comm, lnt_comm_stats_t *stats_p, bool reset)
{
    uint64_t *base, now[3];

    LNT_TRY(lnt_comm_check_owner(comm));
    LNT_CHECK_ARG(stats_p != NULL);
    LNT_CHECK_STRUCT(stats_p);
    base = comm->net->stats_base; /* the counters themselves belong to the progress side */
    now[0] = __atomic_load_n(&comm->wire_bytes[0], __ATOMIC_RELAXED);
    now[1] = __atomic_load_n(&comm->wire_bytes[1], __ATOMIC_RELAXED);
    now[2] = __atomic_load_n(&comm->frames_sent, __ATOMIC_RELAXED);
    *stats_p = (lnt_comm_stats_t){
        .struct_size = sizeof(*stats_p),
        .wire_bytes_intra = now[0] - base[0],
        .wire_bytes_inter = now[1] - base[1],
        .frames_sent = now[2] - base[2],
        .exposed_ns = comm->exposed_ns,
    };
    if (reset) {
        memcpy(base, now, sizeof(now));
        comm->exposed_ns = 0;
    }
    return LNT_OK;
}

/* A job ends with its own result or, when the communicator failed, with the record every rank has. */
static lnt_status_t job_status(const lnt_comm_t *comm, const lnt_job_t *job)
{
    if (job->status < 0 && atomic_load_explicit(&comm->failed, memory_order_acquire) != 0)
        return lnt_error_restore(&comm->record);
    return job->status;
}

lnt_status_t lnt_comm_wait_job(lnt_comm_t *comm, lnt_job_t *job)
{
    const uint64_t start_ns = lnt_now_ns();

    lnt_progress_wait(comm->context->progress, &job->state, LNT_JOB_DONE);
    comm->exposed_ns += lnt_now_ns() - start_ns;
    return job_status(comm, job);
}

bool lnt_comm_test_job(lnt_comm_t *comm, lnt_job_t *job)
{
    if (atomic_load(&job->state) == LNT_JOB_DONE) return true;
    lnt_progress_poll(comm->context->progress);
    return atomic_load(&job->state) == LNT_JOB_DONE;
}
