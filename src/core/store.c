/* The store: opening and closing, and which side this rank is. */
#include "store.h"

#include <unistd.h>

#include "store_internal.h"

static lnt_status_t store_allocate(const lnt_store_params_t *params, lnt_store_t **store_p)
{
    lnt_store_t *store = lnt_calloc(1, sizeof(*store), "store");
    uint32_t n_links = params->rank == 0 ? params->n_ranks : 1;

    if (store == NULL) {
        return LNT_ERR_NO_MEMORY;
    }
    store->links = lnt_calloc(n_links, sizeof(*store->links), "store connections");
    if (store->links == NULL) {
        lnt_free(store);
        return LNT_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < n_links; i++) {
        store->links[i].fd = -1;
    }
    store->rank = params->rank;
    store->n_ranks = params->n_ranks;
    store->timeout_ms = params->timeout_ms;
    *store_p = store;
    return LNT_OK;
}

/* The port is taken: if a rank 0 sits there, both sides shall hear of it. */
static lnt_status_t meet_other_rank_0(lnt_store_t *store, const lnt_store_params_t *params)
{
    const lnt_error_info_t own = *lnt_last_error();

    if (lnt_store_join(store, params, lnt_store_deadline(LNT_STORE_HANDSHAKE_MS)) == LNT_ERR_MISMATCH) {
        return LNT_ERR_MISMATCH;
    }
    return lnt_error_restore(&own);
}

static lnt_status_t serve(lnt_store_t *store, const lnt_store_params_t *params)
{
    uint64_t deadline_ns = lnt_store_deadline(params->timeout_ms);
    int listener = -1;
    bool in_use;
    lnt_status_t status = lnt_store_listen(params, &listener, &in_use);

    if (status < 0) {
        return in_use ? meet_other_rank_0(store, params) : status;
    }
    status = lnt_store_serve_join(store, listener, deadline_ns);
    close(listener);
    return status;
}

lnt_status_t lnt_store_open(const lnt_store_params_t *params, lnt_store_t **store_p)
{
    lnt_store_t *store;
    lnt_status_t status = LNT_OK;

    LNT_TRY(store_allocate(params, &store));
    if (params->secret != NULL) {
        LNT_TRY_GOTO(status, lnt_auth_load(&store->auth), err_close);
        store->auth->key(params->secret, store->base_key);
    }
    status = (params->rank == 0) ? serve(store, params)
                                 : lnt_store_join(store, params, lnt_store_deadline(params->timeout_ms));
    if (status < 0) {
        goto err_close;
    }
    *store_p = store;
    return LNT_OK;

err_close:
    lnt_store_close(store);
    return status;
}

lnt_status_t lnt_store_allgather(lnt_store_t *store, const void *input, void *output, size_t bytes)
{
    if (bytes * store->n_ranks > LNT_STORE_MESSAGE_MAX) {
        return lnt_error(LNT_ERR_OUT_OF_RANGE, "exchange less per call",
                         "the store moves at most %d bytes, asked for %zu", LNT_STORE_MESSAGE_MAX,
                         bytes * store->n_ranks);
    }
    return (store->rank == 0) ? lnt_store_serve_allgather(store, input, output, bytes)
                              : lnt_store_ask_allgather(store, input, output, bytes);
}

void lnt_store_close(lnt_store_t *store)
{
    uint32_t n_links;

    if (store == NULL) {
        return;
    }
    n_links = store->rank == 0 ? store->n_ranks : 1;
    for (uint32_t i = 0; i < n_links; i++) {
        lnt_store_link_close(&store->links[i]);
    }
    if (store->auth != NULL) {
        store->auth->wipe(store->base_key, sizeof(store->base_key));
    }
    lnt_free(store->links);
    lnt_free(store);
}
