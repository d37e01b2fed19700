/* Which transport carries the traffic between two ranks: the first row of the table that both may use and that reaches.
 *
 * The choice is a pure function of the gathered greetings, so both sides of a pair choose alike, and a pair that has no
 * transport is an error on every rank, not only on those two.
 */
#include "comm_net.h"

#include <stdio.h>
#include <string.h>

enum { REASON_MAX = 320, MAX_ROWS = 32 };

/* ---- what this process may use ---- */

static lnt_status_t row_by_name(const char *word, size_t length, size_t *row_p)
{
    size_t n_rows;
    const lnt_transport_ops_t *const *rows = lnt_transport_rows(&n_rows);
    const char *names[MAX_ROWS], *nearest;
    char name[32];

    for (size_t r = 0; r < n_rows; r++) {
        names[r] = rows[r]->name;
        if (strlen(names[r]) == length && strncmp(names[r], word, length) == 0) {
            *row_p = r;
            return LNT_OK;
        }
    }
    snprintf(name, sizeof(name), "%.*s", (int)length, word);
    nearest = lnt_nearest_name(name, names, n_rows);
    return lnt_error(LNT_ERR_CONFIG,
                     "LINNET_TLS (transports) is a list such as shm,ucx or ^ucx; linnet-info -d lists the names",
                     "\"%s\" is not a transport%s%s", name, (nearest != NULL) ? "; nearest: " : "",
                     (nearest != NULL) ? nearest : "");
}

static lnt_status_t parse_list(const char *list, uint32_t *allowed_p)
{
    const bool exclude = (list != NULL && list[0] == '^');
    const char *word = (list != NULL) ? list + (exclude ? 1 : 0) : "";
    uint32_t named = 0;

    while (*word != '\0') {
        size_t length = strcspn(word, ","), row = 0;

        LNT_TRY(row_by_name(word, length, &row));
        named |= 1u << row;
        word += length + ((word[length] == ',') ? 1 : 0);
    }
    *allowed_p = (list == NULL || exclude) ? ~named : named;
    return LNT_OK;
}

static bool is_usable(const lnt_transport_ops_t *row)
{
    char why[160] = "";

    if (row->usable(why, sizeof(why))) return true;
    lnt_log(lnt_log_current(), LNT_LOG_INFO, LNT_SUB_NET, "transport %s is not usable here: %s", row->name, why);
    return false;
}

/* The last row allowed has nothing behind it to fall back on, so it is tried only when it is chosen (lnt_net_open): a
 * network library is not loaded for ranks that share a host. */
lnt_status_t lnt_route_usable(const char *list, uint32_t *transports_p)
{
    size_t n_rows;
    const lnt_transport_ops_t *const *rows = lnt_transport_rows(&n_rows);
    uint32_t allowed, usable;

    LNT_TRY(parse_list(list, &allowed));
    allowed &= (1u << n_rows) - 1;
    usable = allowed;
    for (size_t r = 0; r < n_rows; r++) {
        const uint32_t bit = 1u << r;

        if ((allowed & bit) != 0 && (allowed >> r) > 1 && !is_usable(rows[r])) usable &= ~bit;
    }
    *transports_p = usable;
    return LNT_OK;
}

/* ---- the choice ---- */

/* Why row r does not carry a to b, or NULL when it does. */
static const char *obstacle(const lnt_transport_ops_t *row, size_t r, const lnt_peer_id_t *a, const lnt_peer_id_t *b)
{
    if (((a->transports >> r) & 1) == 0) return "not allowed or not usable on the first";
    if (((b->transports >> r) & 1) == 0) return "not allowed or not usable on the second";
    return row->reachable(a, b) ? NULL : "does not reach";
}

static size_t first_row(const lnt_peer_id_t *a, const lnt_peer_id_t *b, char *reasons, size_t size)
{
    size_t n_rows, used = 0;
    const lnt_transport_ops_t *const *rows = lnt_transport_rows(&n_rows);

    reasons[0] = '\0';
    for (size_t r = 0; r < n_rows; r++) {
        const char *why = obstacle(rows[r], r, a, b);

        if (why == NULL) return r;
        if (used < size)
            used +=
                (size_t)snprintf(reasons + used, size - used, "%s%s: %s", (used > 0) ? ", " : "", rows[r]->name, why);
    }
    return n_rows;
}

static lnt_status_t check_pair(const lnt_peer_id_t *a, const lnt_peer_id_t *b, size_t *row_p)
{
    size_t n_rows;
    char reasons[REASON_MAX];

    (void)lnt_transport_rows(&n_rows);
    *row_p = first_row(a, b, reasons, sizeof(reasons));
    if (*row_p < n_rows) return LNT_OK;
    (void)lnt_error(LNT_ERR_UNSUPPORTED, "allow more in LINNET_TLS, or install what linnet-info -d says is missing",
                    "no transport between rank %u on %s and rank %u on %s (%s)", a->rank, a->host, b->rank, b->host,
                    reasons);
    lnt_error_mutable()->peer = b->rank;
    return LNT_ERR_UNSUPPORTED;
}

lnt_status_t lnt_route_choose(const lnt_peer_id_t *peers, uint32_t rank, uint32_t n_ranks, uint8_t *row_of)
{
    for (uint32_t i = 0; i < n_ranks; i++) {
        for (uint32_t j = i + 1; j < n_ranks; j++) {
            size_t row;

            LNT_TRY(check_pair(&peers[i], &peers[j], &row));
            if (i == rank) row_of[j] = (uint8_t)row;
            if (j == rank) row_of[i] = (uint8_t)row;
        }
    }
    return LNT_OK;
}

/* ---- telling the user ---- */

static void log_level(const lnt_comm_t *comm, const char *level, uint8_t inter)
{
    size_t n_rows;
    const lnt_transport_ops_t *const *rows = lnt_transport_rows(&n_rows);
    char reasons[REASON_MAX];

    for (uint32_t peer = 0; peer < comm->n_ranks; peer++) {
        if (peer == comm->rank || comm->net->is_inter[peer] != inter) continue;
        (void)first_row(&comm->peers[comm->rank], &comm->peers[peer], reasons, sizeof(reasons));
        lnt_log(comm->context->logger, LNT_LOG_INFO, LNT_SUB_NET, "%s: %s (%s), the first that reaches rank %u%s%s",
                level, rows[comm->net->row_of[peer]]->name, rows[comm->net->row_of[peer]]->doc, peer,
                (reasons[0] != '\0') ? "; " : "", reasons);
        return;
    }
}

void lnt_route_log(const lnt_comm_t *comm)
{
    const lnt_topo_t *topo = comm->topo;

    lnt_log(comm->context->logger, LNT_LOG_INFO, LNT_SUB_INIT,
            "communicator of %u ranks on %u nodes, %u shards; this is rank %u, node %u, place %u of %u; timeout %u ms",
            comm->n_ranks, topo->n_nodes, topo->n_shards, comm->rank, topo->node_of[comm->rank],
            topo->local_of[comm->rank], lnt_topo_local_size(topo, topo->node_of[comm->rank]), comm->timeout_ms);
    log_level(comm, "inside the node", 0);
    log_level(comm, "between nodes", 1);
    if (comm->emulate_gbps > 0) {
        lnt_log(comm->context->logger, LNT_LOG_INFO, LNT_SUB_NET, "between nodes: EMULATED link of %g Gbit/s per node",
                comm->emulate_gbps);
    }
}
