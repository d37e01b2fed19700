/* One-shot calls: a small cache of requests per communicator, so that a loop of equal calls builds its graph once.
 *
 * The cache holds at most MAX_CACHED requests, all idle between calls; the one that was not used for longest goes
 * first. After a failure nothing is freed before the communicator closes its transports, since they may still hold
 * frames.
 */
#include "request.h"

#include <string.h>

enum { MAX_CACHED = 8 };

struct lnt_coll_cache {
    lnt_request_t *cached[MAX_CACHED];
    uint64_t time;         /* counts calls */
    lnt_request_t *buried; /* list by request->next */
};

lnt_status_t lnt_request_cache_prepare(lnt_comm_t *comm)
{
    if (comm->cache == NULL) {
        comm->cache = lnt_calloc(1, sizeof(*comm->cache), "cache of collectives");
    }
    return (comm->cache != NULL) ? LNT_OK : LNT_ERR_NO_MEMORY;
}

void lnt_request_bury(lnt_request_t *request)
{
    request->next = request->comm->cache->buried;
    request->comm->cache->buried = request;
}

void lnt_comm_cache_destroy(lnt_comm_t *comm)
{
    lnt_coll_cache_t *cache = comm->cache;

    if (cache == NULL) {
        return;
    }
    for (size_t i = 0; i < MAX_CACHED; ++i) {
        if (cache->cached[i] != NULL) {
            lnt_request_free(cache->cached[i]);
        }
    }
    while (cache->buried != NULL) {
        lnt_request_t *request = cache->buried;

        cache->buried = request->next;
        lnt_request_free(request);
    }
    lnt_free(cache);
    comm->cache = NULL;
}

/* All implementations give the same bytes. */
static bool same_codec(const lnt_codec_t *a, const lnt_codec_t *b)
{
    return (a->row == b->row) && (a->cfg.block == b->cfg.block) && (a->cfg.scale_rule == b->cfg.scale_rule);
}

static bool same_args(const lnt_coll_args_t *a, const lnt_coll_args_t *b)
{
    return (a->topo == b->topo) && (a->root == b->root) && (a->count == b->count) && (a->dtype == b->dtype) &&
           (a->raw == b->raw) && (a->coded == b->coded) && (a->feedback == b->feedback) &&
           same_codec(&a->codec, &b->codec) && (a->redop == b->redop) && (a->segment_elems == b->segment_elems);
}

/* The slot of these arguments: of the request itself, else an empty one, else the one that was not used for longest. */
static lnt_request_t **find_slot(lnt_coll_cache_t *cache, lnt_coll_op_t op, const lnt_coll_args_t *args)
{
    lnt_request_t **best = &cache->cached[0];

    for (size_t i = 0; i < MAX_CACHED; ++i) {
        lnt_request_t **slot = &cache->cached[i];

        if ((*slot != NULL) && ((*slot)->op == op) && same_args(&(*slot)->coll->args, args)) {
            return slot;
        }
        if ((*best != NULL) && ((*slot == NULL) || ((*slot)->used < (*best)->used))) {
            best = slot;
        }
    }
    return best;
}

static lnt_status_t get_request(lnt_comm_t *comm, lnt_coll_op_t op, const lnt_coll_args_t *args,
                                lnt_request_t **request_p)
{
    lnt_request_t **slot;

    LNT_TRY(lnt_request_cache_prepare(comm));
    slot = find_slot(comm->cache, op, args);
    if ((*slot == NULL) || ((*slot)->op != op) || !same_args(&(*slot)->coll->args, args)) {
        lnt_request_t *made;

        LNT_TRY(lnt_request_create(comm, op, args, &made));
        if (*slot != NULL) {
            lnt_request_free(*slot);
        }
        *slot = made;
    }
    (*slot)->used = ++comm->cache->time;
    *request_p = *slot;
    return LNT_OK;
}

lnt_status_t lnt_request_once(lnt_comm_t *comm, lnt_coll_op_t op, const lnt_coll_args_t *args, lnt_residual_t *residual,
                              const void *input, void *output)
{
    lnt_request_t *request;

    LNT_TRY(get_request(comm, op, args, &request));
    request->residual = residual;
    LNT_TRY(lnt_request_start(request, input, output));
    return lnt_request_wait(request);
}

static lnt_status_t call(lnt_comm_t *comm, lnt_coll_op_t op, const void *input, void *output, uint64_t count,
                         lnt_dtype_t dtype, uint32_t root, const lnt_coll_params_t *params)
{
    lnt_coll_args_t args;

    LNT_TRY(lnt_comm_enter(comm));
    LNT_TRY(lnt_request_args(comm, op, count, dtype, root, params, &args));
    return lnt_request_once(comm, op, &args, (params != NULL) ? params->residual : NULL, input, output);
}

lnt_status_t lnt_allreduce(lnt_comm_t *comm, const void *input, void *output, uint64_t count, lnt_dtype_t dtype,
                           const lnt_coll_params_t *params)
{
    return call(comm, LNT_COLL_ALLREDUCE, input, output, count, dtype, 0, params);
}

lnt_status_t lnt_reduce_scatter(lnt_comm_t *comm, const void *input, void *output, uint64_t count, lnt_dtype_t dtype,
                                const lnt_coll_params_t *params)
{
    return call(comm, LNT_COLL_REDUCE_SCATTER, input, output, count, dtype, 0, params);
}

lnt_status_t lnt_allgather(lnt_comm_t *comm, const void *input, void *output, uint64_t count, lnt_dtype_t dtype,
                           const lnt_coll_params_t *params)
{
    return call(comm, LNT_COLL_ALLGATHER, input, output, count, dtype, 0, params);
}

lnt_status_t lnt_broadcast(lnt_comm_t *comm, void *buffer, uint64_t count, lnt_dtype_t dtype, uint32_t root,
                           const lnt_coll_params_t *params)
{
    return call(comm, LNT_COLL_BROADCAST, NULL, buffer, count, dtype, root, params);
}

lnt_status_t lnt_barrier(lnt_comm_t *comm)
{
    return call(comm, LNT_COLL_BARRIER, NULL, NULL, 0, LNT_F32, 0, NULL);
}

lnt_status_t lnt_comm_gather_small(lnt_comm_t *comm, const void *input, void *output, size_t bytes)
{
    lnt_coll_args_t args;

    LNT_TRY(lnt_request_args(comm, LNT_COLL_ALLGATHER, bytes, LNT_F32, 0, NULL, &args));
    args.raw = true;
    return lnt_request_once(comm, LNT_COLL_ALLGATHER, &args, NULL, input, output);
}
