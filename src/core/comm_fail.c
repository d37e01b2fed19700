/* How a communicator fails: once, with one record that names the same culprit on all ranks.
 *
 * The mesh decides which record wins; this file keeps it, and holds back what a broken channel alone would say, since
 * the mesh usually knows within moments whose process is gone.
 */
#include "comm_net.h"

#include <stdio.h>

static const uint64_t BROKEN_GRACE_NS = 1000000000;

void lnt_comm_on_failure(void *arg, const lnt_error_info_t *record)
{
    lnt_comm_t *comm = arg;

    if (atomic_exchange(&comm->net->record_claimed, 1) != 0) return;
    comm->record = *record;
    comm->record.rank = comm->rank;
    lnt_log(comm->context->logger, LNT_LOG_ERROR, LNT_SUB_FAULT, "communicator failed: %s, rank %lld: %s%s%s",
            lnt_status_string(record->status), (long long)record->peer, record->cause,
            (record->cure[0] != '\0') ? "; cure: " : "", record->cure);
    atomic_store_explicit(&comm->failed, (uint32_t) - (int32_t)record->status, memory_order_release);
}

void lnt_comm_report(lnt_comm_t *comm, const lnt_error_info_t *record)
{
    lnt_error_info_t mine = *record;

    mine.rank = comm->rank;
    lnt_mesh_fail(comm->mesh, &mine);
}

void lnt_comm_channel_broken(lnt_comm_t *comm, uint32_t peer, const char *why)
{
    lnt_comm_net_t *net = comm->net;

    if (net->broken_peer >= 0) return;
    net->broken_peer = peer;
    net->broken_ns = lnt_now_ns();
    snprintf(net->broken_why, sizeof(net->broken_why), "%s", why);
}

void lnt_comm_check_broken(lnt_comm_t *comm)
{
    lnt_comm_net_t *net = comm->net;
    lnt_error_info_t record;
    lnt_stall_t stall;

    if (net->broken_peer < 0 || lnt_comm_has_failed(comm) || lnt_now_ns() - net->broken_ns < BROKEN_GRACE_NS) return;
    lnt_exec_stall(comm->exec, &stall);
    if (net->in_flight == 0 && (!stall.running || stall.own)) return; /* the peer took its leave; nobody needs it */
    lnt_error_fill(&record, LNT_ERR_PEER_LOST, NULL, "the data channel to rank %lld broke: %s",
                   (long long)net->broken_peer, net->broken_why);
    record.peer = net->broken_peer;
    lnt_comm_report(comm, &record);
}

void lnt_comm_abort(lnt_comm_t *comm, const char *reason)
{
    if (comm == NULL || lnt_comm_check_owner(comm) < 0) return;
    lnt_mesh_abort(comm->mesh, (reason != NULL) ? reason : "no reason given");
    lnt_progress_wake(comm->context->progress);
}

lnt_status_t lnt_comm_async_error(lnt_comm_t *comm, lnt_error_info_t *info_p)
{
    uint32_t failed;

    LNT_TRY(lnt_comm_check_owner(comm));
    lnt_progress_poll(comm->context->progress);
    failed = atomic_load_explicit(&comm->failed, memory_order_acquire);
    if (failed == 0) return LNT_OK;
    if (info_p != NULL) *info_p = comm->record;
    return (lnt_status_t) - (int32_t)failed;
}
