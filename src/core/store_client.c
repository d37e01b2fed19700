/* The ranks of the store that are not rank 0: joining and the all-gather. An error that rank 0 tells keeps its status.
 */
#include <linnet/context.h>
#include <string.h>

#include "store_internal.h"

/* The text of rank 0, with the status rank 0 has. */
static lnt_status_t told_failure(const void *message, size_t bytes)
{
    const size_t head = offsetof(lnt_store_failure_t, text);
    lnt_store_failure_t failure = {0};

    memcpy(&failure, message, bytes < sizeof(failure) ? bytes : sizeof(failure));
    if (bytes <= head || bytes > sizeof(failure) || failure.status >= 0) {
        return lnt_error(LNT_ERR_CORRUPT, "use one library on all ranks",
                         "rank 0 sent an error that is not well formed");
    }
    return lnt_error((lnt_status_t)failure.status, "look at the log of rank 0", "rank 0 ended the start: %.*s",
                     (int)(bytes - head), failure.text);
}

static lnt_status_t no_answer(const lnt_store_t *store, uint32_t expected, lnt_status_t status)
{
    if (status == LNT_ERR_PEER_LOST && expected == LNT_STORE_WELCOME) {
        return lnt_error(status, "look at the log of rank 0", "rank %u: rank 0 went away before all ranks had joined",
                         store->rank);
    }
    return lnt_error(status, "look at the log of rank 0", "rank %u: no answer from rank 0 in the start-up: %s",
                     store->rank, lnt_status_string(status));
}

/* The server's answer: data of exactly `bytes`, a welcome (bytes 0), or an error. */
static lnt_status_t await_answer(lnt_store_t *store, uint32_t expected, void *data, size_t bytes)
{
    uint64_t deadline_ns = lnt_store_deadline(store->timeout_ms + 2 * LNT_STORE_HANDSHAKE_MS);
    size_t room = bytes > sizeof(lnt_store_failure_t) ? bytes : sizeof(lnt_store_failure_t);
    char *buffer = lnt_calloc(1, room, "store answer");
    uint32_t type = 0;
    size_t got = 0;
    lnt_status_t status;

    if (buffer == NULL) {
        return LNT_ERR_NO_MEMORY;
    }
    status = lnt_store_link_receive(&store->links[0], &type, buffer, room, &got, deadline_ns);
    if (status < 0) {
        status = no_answer(store, expected, status);
    } else if (type == LNT_STORE_ERROR) {
        status = told_failure(buffer, got);
    } else if (type != expected || got != bytes) {
        status = lnt_error(LNT_ERR_MISMATCH, "every rank must make the same calls",
                           "rank %u: rank 0 is at another exchange", store->rank);
    } else if (bytes > 0) {
        memcpy(data, buffer, bytes);
    }
    lnt_free(buffer);
    return status;
}

static lnt_status_t handshake_failed(const lnt_store_params_t *params, lnt_status_t status, uint32_t other)
{
    if (status == LNT_ERR_AUTH) {
        return lnt_error(status, "set the same LINNET_SECRET (or none) on every rank",
                         "rank %u: rank 0 and this rank do not have the same secret", params->rank);
    }
    if (status == LNT_ERR_VERSION) {
        return lnt_error(status, "use one library on all ranks",
                         "rank %u speaks protocol %u of the start-up, rank 0 protocol %u", params->rank,
                         (unsigned)LNT_STORE_PROTOCOL, other);
    }
    if (status == LNT_ERR_PEER_LOST) {
        return lnt_error(status, "look at the log of rank 0", "rank %u: rank 0 went away during the handshake",
                         params->rank);
    }
    return lnt_error(status, "is something else listening at MASTER_ADDR:MASTER_PORT?",
                     "rank %u: what answers at %s:%u does not speak the protocol", params->rank, params->address,
                     params->port);
}

lnt_status_t lnt_store_join(lnt_store_t *store, const lnt_store_params_t *params, uint64_t deadline_ns)
{
    lnt_store_hello_t hello = {
        .rank = params->rank, .n_ranks = params->n_ranks, .library_version = (uint32_t)LINNET_VERSION};
    lnt_status_t status;
    uint32_t other = 0;

    LNT_TRY(lnt_store_dial(params, deadline_ns, &store->links[0].fd));
    store->links[0].auth = store->auth;
    status = lnt_store_link_handshake(&store->links[0], store->base_key, &hello, &other,
                                      lnt_store_deadline(2 * LNT_STORE_HANDSHAKE_MS));
    if (status < 0) {
        return handshake_failed(params, status, other);
    }
    return await_answer(store, LNT_STORE_WELCOME, NULL, 0);
}

lnt_status_t lnt_store_ask_allgather(lnt_store_t *store, const void *input, void *output, size_t bytes)
{
    lnt_status_t status =
        lnt_store_link_send(&store->links[0], LNT_STORE_DATA, input, bytes, lnt_store_deadline(store->timeout_ms));

    if (status < 0) {
        return lnt_error(status, "look at the log of rank 0", "rank %u lost rank 0 in the start-up", store->rank);
    }
    return await_answer(store, LNT_STORE_DATA, output, bytes * store->n_ranks);
}
