/* The greeting: identity and settings of every rank, gathered once by the bootstrap.
 *
 * The check is a pure function of the gathered bytes, so every rank comes to the same verdict and names the same two
 * sides. A rank whose preparation failed takes part all the same and carries its status: nobody waits for it.
 */
#include "comm_net.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linnet/version.h>

static const uint32_t GREETING_MAGIC = 0x50544e4cu; /* "LNTP" */

static lnt_status_t fill_random(void *out, size_t bytes)
{
    if (getrandom(out, bytes, 0) != (ssize_t)bytes) return lnt_error(LNT_ERR_SYSTEM, NULL, "getrandom: %m");
    return LNT_OK;
}

/* The same for all contexts of a process, and for no other: a random word of the program image, mixed with what a fork
 * changes. */
static lnt_status_t process_cookie(uint64_t *cookie_p)
{
    static _Atomic uint64_t word;
    uint64_t fresh, expected = 0;
    struct stat pid_namespace;

    LNT_TRY(fill_random(&fresh, sizeof(fresh)));
    fresh |= 1;
    if (!atomic_compare_exchange_strong(&word, &expected, fresh)) fresh = expected;
    if (stat("/proc/self/ns/pid", &pid_namespace) != 0) pid_namespace.st_ino = 0;
    *cookie_p = lnt_hash64_u64(lnt_hash64_u64(fresh, (uint64_t)getpid()), (uint64_t)pid_namespace.st_ino);
    return LNT_OK;
}

static lnt_status_t fill_place(const lnt_comm_settings_t *settings, lnt_peer_id_t *id)
{
    char host_id[256];

    LNT_TRY(lnt_topo_host_id(host_id, sizeof(host_id)));
    id->host_hash = lnt_hash64_text(0, host_id);
    if (settings->node_label != 0) {
        id->node_label = settings->node_label;
    } else if (settings->node != NULL) {
        id->node_label = lnt_hash64_text(1, settings->node);
    } else {
        id->node_label = id->host_hash;
    }
    if (gethostname(id->host, sizeof(id->host)) != 0) (void)snprintf(id->host, sizeof(id->host), "?");
    id->host[sizeof(id->host) - 1] = '\0';
    return LNT_OK;
}

lnt_status_t lnt_greeting_fill(const lnt_comm_settings_t *settings, uint32_t rank, uint32_t n_ranks,
                               lnt_greeting_t *greeting)
{
    lnt_peer_id_t *id = &greeting->id;
    uint64_t emulate_bits;

    id->magic = GREETING_MAGIC;
    id->library_version = LINNET_VERSION;
    id->rank = rank;
    id->n_ranks = n_ranks;
    id->pid = (uint32_t)getpid();
    greeting->timeout_ms = settings->timeout_ms;
    greeting->emulate_gbps = settings->emulate_gbps;
    memcpy(&emulate_bits, &settings->emulate_gbps, sizeof(emulate_bits));
    id->settings_hash = lnt_hash64_u64(lnt_hash64_u64(0, settings->timeout_ms), emulate_bits);
    LNT_TRY(fill_random(&id->mesh_token, sizeof(id->mesh_token)));
    LNT_TRY(process_cookie(&id->cookie));
    LNT_TRY(fill_place(settings, id));
    id->transports = settings->usable;
    return (settings->usable != 0) ? LNT_OK : lnt_route_usable(settings->transports, &id->transports);
}

static lnt_status_t blame(lnt_status_t status, uint32_t peer)
{
    lnt_error_mutable()->peer = peer;
    return status;
}

/* Does rank `i` belong to this world at all? Its other fields mean something only then. */
static lnt_status_t check_identity(const lnt_greeting_t *greetings, uint32_t i, uint32_t n_ranks)
{
    const lnt_peer_id_t *id = &greetings[i].id;

    if (id->magic != GREETING_MAGIC) {
        return blame(lnt_error(LNT_ERR_MISMATCH, "start the same program with the same library on all ranks",
                               "what rank %u sent through the bootstrap is not a greeting of this library", i),
                     i);
    }
    if (id->library_version != greetings[0].id.library_version) {
        return blame(lnt_error(LNT_ERR_MISMATCH, "use the same library on all ranks",
                               "rank 0 has library version %u, rank %u has %u", greetings[0].id.library_version, i,
                               id->library_version),
                     i);
    }
    if (id->n_ranks != n_ranks) {
        return blame(lnt_error(LNT_ERR_MISMATCH, "start all ranks with the same number of ranks",
                               "the bootstrap gathered %u ranks, rank %u believes in %u", n_ranks, i, id->n_ranks),
                     i);
    }
    if (id->rank != i) {
        return blame(lnt_error(LNT_ERR_MISMATCH, "give every process a rank of its own, and gather in rank order",
                               "place %u of the bootstrap's all-gather holds the greeting of rank %u (pid %u on %s)", i,
                               id->rank, id->pid, id->host),
                     i);
    }
    return LNT_OK;
}

static lnt_status_t check_settings(const lnt_greeting_t *greetings, uint32_t i)
{
    if (greetings[i].timeout_ms != greetings[0].timeout_ms) {
        return blame(lnt_error(LNT_ERR_MISMATCH, "set the same LINNET_TIMEOUT (timeout_ms) on all ranks",
                               "rank 0 has a progress timeout of %u ms, rank %u of %u ms", greetings[0].timeout_ms, i,
                               greetings[i].timeout_ms),
                     i);
    }
    if (memcmp(&greetings[i].emulate_gbps, &greetings[0].emulate_gbps, sizeof(double)) != 0) {
        return blame(lnt_error(LNT_ERR_MISMATCH, "set the same LINNET_EMULATE_GBPS (emulate_gbps) on all ranks",
                               "rank 0 emulates a link of %g Gbit/s, rank %u of %g Gbit/s", greetings[0].emulate_gbps,
                               i, greetings[i].emulate_gbps),
                     i);
    }
    if (greetings[i].id.settings_hash != greetings[0].id.settings_hash) {
        return blame(lnt_error(LNT_ERR_MISMATCH, "use the same library and settings on all ranks",
                               "rank 0 and rank %u have different settings", i),
                     i);
    }
    return LNT_OK;
}

/* The emulated link of a node is a piece of memory its ranks share. */
static lnt_status_t check_nodes(const lnt_greeting_t *greetings, uint32_t i)
{
    if (greetings[i].emulate_gbps <= 0) return LNT_OK;
    for (uint32_t j = 0; j < i; j++) {
        if (greetings[j].id.node_label == greetings[i].id.node_label &&
            greetings[j].id.host_hash != greetings[i].id.host_hash) {
            return blame(
                lnt_error(LNT_ERR_UNSUPPORTED,
                          "give ranks of different hosts different nodes, or switch LINNET_EMULATE_GBPS off",
                          "rank %u on %s and rank %u on %s share a node, but an emulated link cannot span hosts", j,
                          greetings[j].id.host, i, greetings[i].id.host),
                i);
        }
    }
    return LNT_OK;
}

lnt_status_t lnt_greeting_check(const lnt_greeting_t *greetings, uint32_t rank, uint32_t n_ranks)
{
    for (uint32_t i = 0; i < n_ranks; i++)
        LNT_TRY(check_identity(greetings, i, n_ranks));
    if (greetings[rank].status < 0)
        return (lnt_status_t)greetings[rank].status; /* its own error is this thread's last one */
    for (uint32_t i = 0; i < n_ranks; i++) {
        if (greetings[i].status < 0) {
            return blame(lnt_error((lnt_status_t)greetings[i].status, NULL, "rank %u cannot take part: %.*s", i,
                                   LNT_GREETING_CAUSE_MAX, greetings[i].cause),
                         i);
        }
        LNT_TRY(check_settings(greetings, i));
        LNT_TRY(check_nodes(greetings, i));
    }
    return LNT_OK;
}
