/* Watches for communicators that wait too long: the stall message, the waiting-for edges and the time-out.
 *
 * The clock counts only time in which this thread could run, in slices: a rank that was stopped (SIGSTOP, a suspended
 * host) wakes with at most one slice on its clock and hears first, over the mesh, what the others decided about it.
 * Waiting for this rank's own caller is not counted: others judge that.
 */
#include "comm_net.h"

static const uint64_t NS_PER_MS = 1000000;
static const uint64_t SLICE_NS = 100000000; /* longest sleep while a job waits, and most that one look can add */
static const uint64_t LOOK_NS = 20000000;   /* shortest time between two looks */
static const uint64_t EDGE_AFTER_NS =
    1000000000; /* tell the peers whom this rank waits for after this, or timeout / 4 */

static const uint64_t LEFT_AFTER_NS = 500000000; /* what a peer sent before it left has come by then */

static uint64_t timeout_ns(const lnt_comm_t *comm)
{
    return comm->timeout_ms * NS_PER_MS;
}

static uint64_t edge_after_ns(const lnt_comm_t *comm)
{
    const uint64_t quarter = timeout_ns(comm) / 4;

    return (quarter < EDGE_AFTER_NS) ? quarter : EDGE_AFTER_NS;
}

/* Looks come often enough for short time-outs: a test may set 200 ms. */
static uint64_t look_ns(const lnt_comm_t *comm)
{
    const uint64_t part = timeout_ns(comm) / 16;

    return (part < LOOK_NS) ? part : LOOK_NS;
}

static void restart(lnt_comm_t *comm, uint64_t since_ns)
{
    lnt_comm_watch_t *watch = &comm->net->watch;

    if (watch->told) lnt_mesh_set_waiting(comm->mesh, -1, "");
    watch->since_ns = since_ns;
    watch->waited_ns = 0;
    watch->warned = watch->told = false;
}

void lnt_watch_moved(lnt_comm_t *comm)
{
    comm->net->watch.waited_ns = 0;
    comm->net->watch.fresh = true;
}

static void time_out(lnt_comm_t *comm, const lnt_stall_t *stall)
{
    const int64_t end = lnt_mesh_culprit(comm->mesh, stall->peer);
    const int64_t culprit = (end >= 0) ? end : stall->peer;
    lnt_error_info_t record;

    lnt_error_fill(&record, LNT_ERR_TIMED_OUT, "look why that rank stands still, or raise LINNET_TIMEOUT",
                   "no progress for %u ms: rank %u waits for rank %lld (%s), and in the end all wait for rank %lld",
                   comm->timeout_ms, comm->rank, (long long)stall->peer, stall->what, (long long)culprit);
    record.peer = culprit;
    record.step = (int64_t)stall->sequence;
    lnt_comm_report(comm, &record);
}

/* It destroyed its communicator while this rank still expects something of it: nothing will come. */
static void left_behind(lnt_comm_t *comm, const lnt_stall_t *stall)
{
    lnt_error_info_t record;

    lnt_error_fill(&record, LNT_ERR_PEER_LOST, "make the same calls on all ranks before the communicator is destroyed",
                   "rank %lld has left the communicator, but rank %u still needs it: %s", (long long)stall->peer,
                   comm->rank, stall->what);
    record.peer = stall->peer;
    record.step = (int64_t)stall->sequence;
    lnt_comm_report(comm, &record);
}

static void judge(lnt_comm_t *comm, const lnt_stall_t *stall)
{
    lnt_comm_watch_t *watch = &comm->net->watch;
    const uint64_t waited_ms = watch->waited_ns / NS_PER_MS;

    if (watch->waited_ns >= edge_after_ns(comm)) {
        lnt_mesh_set_waiting(comm->mesh, stall->peer, stall->what);
        watch->told = true;
    }
    if (!watch->warned && waited_ms >= comm->context->config.stall_ms) {
        watch->warned = true;
        lnt_log(comm->context->logger, LNT_LOG_WARN, LNT_SUB_FAULT, "waiting %llu s for rank %lld: %s",
                (unsigned long long)(waited_ms / 1000), (long long)stall->peer, stall->what);
    }
    if (watch->waited_ns >= LEFT_AFTER_NS && lnt_mesh_has_left(comm->mesh, (uint32_t)stall->peer)) {
        left_behind(comm, stall);
    } else if (waited_ms >= comm->timeout_ms) {
        time_out(comm, stall);
    }
}

static void look(lnt_comm_t *comm, uint64_t now_ns)
{
    lnt_comm_watch_t *watch = &comm->net->watch;
    const uint64_t passed_ns = now_ns - watch->tick_ns;
    const bool was_running = watch->running;
    lnt_stall_t stall;

    watch->tick_ns = now_ns;
    watch->fresh = false;
    lnt_exec_stall(comm->exec, &stall);
    watch->running = stall.running && !stall.own && stall.peer >= 0;
    if (!watch->running || !was_running || stall.since_ns != watch->since_ns) {
        restart(comm, stall.since_ns);
        return;
    }
    watch->waited_ns += (passed_ns < SLICE_NS) ? passed_ns : SLICE_NS;
    judge(comm, &stall);
}

void lnt_watch_check(lnt_comm_t *comm)
{
    const uint64_t now_ns = lnt_now_ns();

    if (lnt_comm_has_failed(comm) || now_ns - comm->net->watch.tick_ns < look_ns(comm)) return;
    (void)lnt_mesh_progress(comm->mesh); /* a verdict that has come in goes before our own */
    if (!lnt_comm_has_failed(comm)) look(comm, now_ns);
}

uint64_t lnt_watch_sleep_ns(const lnt_comm_t *comm)
{
    const uint64_t slice_ns = look_ns(comm) * 5;

    if (lnt_comm_has_failed(comm)) return UINT64_MAX;
    /* Idle at the last look, and nothing moved since: whoever posts rings. Otherwise look again soon. */
    if (!comm->net->watch.running && !comm->net->watch.fresh) return UINT64_MAX;
    return (slice_ns < SLICE_NS) ? slice_ns : SLICE_NS;
}
