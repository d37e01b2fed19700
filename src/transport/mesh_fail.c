/* Failures: one record per communicator, the first one wins, everybody gets it.
 *
 * Whoever gets a record first (by finding a failure, or from a peer) passes it to all its links once. A socket keeps
 * order, so a rank that fails, tells and leaves is never taken for the culprit by its own departure.
 * Also here: whom everybody waits for, which finds the rank that a time-out is to be blamed on, and abort.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../base/error.h"
#include "mesh_internal.h"

static bool can_tell(const lnt_mesh_link_t *link)
{
    return (link->state == LNT_LINK_GREETING) || (link->state == LNT_LINK_UP);
}

void lnt_mesh_tell_failure(lnt_mesh_t *mesh, lnt_mesh_link_t *link)
{
    lnt_msg_header_t header = {.kind = LNT_MSG_FAILURE, .bytes = sizeof(lnt_msg_failure_t)};
    lnt_msg_failure_t body = {.rank = mesh->record.rank,
                              .peer = mesh->record.peer,
                              .tensor = mesh->record.tensor,
                              .step = mesh->record.step,
                              .status = (int32_t)mesh->record.status};

    memcpy(body.cause, mesh->record.cause, sizeof(body.cause));
    memcpy(body.cure, mesh->record.cure, sizeof(body.cure));
    (void)lnt_mesh_link_queue(mesh, link, &header, &body, NULL);
}

static void flood(lnt_mesh_t *mesh)
{
    for (uint32_t i = 0; i < mesh->n_links; i++) {
        if (can_tell(&mesh->links[i])) {
            lnt_mesh_tell_failure(mesh, &mesh->links[i]);
        }
    }
}

void lnt_mesh_fail(lnt_mesh_t *mesh, const lnt_error_info_t *record)
{
    if (mesh->failed) {
        return;
    }
    mesh->failed = true;
    mesh->record = *record;
    flood(mesh);
    if ((mesh->on_failure != NULL) && !mesh->closing) {
        mesh->on_failure(mesh->on_failure_arg, &mesh->record);
    }
}

void lnt_mesh_on_failure(lnt_mesh_t *mesh, lnt_mesh_failed_fn_t failed, void *arg)
{
    mesh->on_failure = failed;
    mesh->on_failure_arg = arg;
    if (mesh->failed && (failed != NULL)) {
        failed(arg, &mesh->record); /* it came during set-up, after this rank's last vote */
    }
}

void lnt_mesh_on_failure_message(lnt_mesh_t *mesh, const void *body)
{
    lnt_msg_failure_t message;
    lnt_error_info_t record;

    memcpy(&message, body, sizeof(message));
    message.cause[LNT_ERROR_TEXT_MAX - 1] = '\0';
    message.cure[LNT_ERROR_TEXT_MAX - 1] = '\0';
    lnt_error_fill(&record, (message.status < 0) ? (lnt_status_t)message.status : LNT_ERR_TRANSPORT, message.cure, "%s",
                   message.cause);
    record.rank = message.rank;
    record.peer = message.peer;
    record.tensor = message.tensor;
    record.step = message.step;
    lnt_mesh_fail(mesh, &record);
}

lnt_status_t lnt_mesh_report(const lnt_mesh_t *mesh)
{
    const lnt_error_info_t *record = &mesh->record;

    (void)lnt_error(record->status, record->cure, "%s", record->cause);
    return lnt_error_restore(record);
}

void lnt_mesh_link_lost(lnt_mesh_t *mesh, lnt_mesh_link_t *link, const char *why)
{
    const lnt_peer_id_t *peer = &mesh->peers[link->peer];
    lnt_error_info_t record;

    lnt_error_fill(&record, LNT_ERR_PEER_LOST, "look for the end of that rank's log; then rebuild the communicator",
                   "rank %u (host %.*s, pid %u) is lost: %s", link->peer, (int)sizeof(peer->host), peer->host,
                   peer->pid, why);
    record.rank = mesh->me.rank;
    record.peer = link->peer;
    lnt_mesh_link_close(link);
    if (!mesh->closing) {
        lnt_mesh_fail(mesh, &record);
    }
}

/* "3, 5, 6 and 12 more" */
static int64_t name_missing(const lnt_mesh_t *mesh, bool (*missing)(const lnt_mesh_link_t *link), char *text,
                            size_t size)
{
    const uint32_t most = 8;
    int64_t first = -1;
    uint32_t n = 0;
    size_t used = 0;

    for (uint32_t i = 0; i < mesh->n_links; i++) {
        if ((i == mesh->me.rank) || !missing(&mesh->links[i])) {
            continue;
        }
        first = (first < 0) ? (int64_t)i : first;
        if (n++ < most) {
            used += (size_t)snprintf(text + used, size - used, "%s%u", (n > 1) ? ", " : "", i);
        }
    }
    if (n > most) {
        (void)snprintf(text + used, size - used, " and %u more", n - most);
    }
    return first;
}

void lnt_mesh_fail_timeout(lnt_mesh_t *mesh, const char *doing, bool (*missing)(const lnt_mesh_link_t *link),
                           uint32_t timeout_ms)
{
    char ranks[160] = "";
    int64_t first = name_missing(mesh, missing, ranks, sizeof(ranks));
    lnt_error_info_t record;

    lnt_error_fill(&record, LNT_ERR_TIMED_OUT,
                   "look whether these ranks run and can be reached (LINNET_SOCKET_IFNAME, firewall); "
                   "LINNET_INIT_TIMEOUT sets the limit",
                   "%s: rank %s did not come within %u ms", doing, ranks, timeout_ms);
    record.rank = mesh->me.rank;
    record.peer = first;
    lnt_mesh_fail(mesh, &record);
}

void lnt_mesh_tell_waiting(lnt_mesh_t *mesh, lnt_mesh_link_t *link)
{
    lnt_msg_header_t header = {.kind = LNT_MSG_WAITING, .bytes = sizeof(mesh->waits)};

    if (link->tell && (link->state == LNT_LINK_UP) && !lnt_mesh_link_pending(link)) {
        link->tell = false; /* later changes overtake each other: only the newest edge is sent */
        (void)lnt_mesh_link_queue(mesh, link, &header, &mesh->waits, NULL);
    }
}

void lnt_mesh_set_waiting(lnt_mesh_t *mesh, int64_t peer, const char *what)
{
    lnt_msg_waiting_t waits = {.peer = peer};

    (void)snprintf(waits.what, sizeof(waits.what), "%s", (what != NULL) ? what : "");
    if ((peer == mesh->waits.peer) && (strcmp(waits.what, mesh->waits.what) == 0)) {
        return;
    }
    mesh->waits = waits;
    for (uint32_t i = 0; i < mesh->n_links; i++) {
        mesh->links[i].tell = true;
        lnt_mesh_tell_waiting(mesh, &mesh->links[i]);
    }
}

bool lnt_mesh_has_left(const lnt_mesh_t *mesh, uint32_t peer)
{
    return (peer != mesh->me.rank) && (peer < mesh->n_links) && (mesh->links[peer].state == LNT_LINK_GONE);
}

int64_t lnt_mesh_culprit(const lnt_mesh_t *mesh, int64_t first)
{
    int64_t at = first;

    for (uint32_t hops = 0; hops < mesh->n_links; hops++) {
        if ((at < 0) || (at >= mesh->n_links) || (at == mesh->me.rank)) {
            return first; /* the chain leads back here: all we know is whom we miss */
        }
        if (mesh->links[at].waits.peer < 0) {
            return at;
        }
        at = mesh->links[at].waits.peer;
    }
    return first; /* a circle without us */
}

void lnt_mesh_abort(lnt_mesh_t *mesh, const char *reason)
{
    const uint64_t one = 1;
    uint32_t idle = 0;

    if (!atomic_compare_exchange_strong(&mesh->abort_state, &idle, 1)) {
        return; /* somebody else was first */
    }
    (void)snprintf(mesh->abort_reason, sizeof(mesh->abort_reason), "%s", (reason != NULL) ? reason : "no reason given");
    atomic_store(&mesh->abort_state, 2);
    (void)!write(mesh->event, &one, sizeof(one)); /* cannot be full: written once */
}

void lnt_mesh_on_event(lnt_mesh_t *mesh)
{
    uint64_t count;
    lnt_error_info_t record;

    (void)!read(mesh->event, &count, sizeof(count));
    if (atomic_load(&mesh->abort_state) != 2) {
        return;
    }
    lnt_error_fill(&record, LNT_ERR_ABORTED, "rebuild the communicator", "rank %u aborted the communicator: %s",
                   mesh->me.rank, mesh->abort_reason);
    record.rank = record.peer = mesh->me.rank;
    lnt_mesh_fail(mesh, &record);
}
