/* Residuals: error feedback of one buffer that outlives the requests it is used with.
 *
 * What a rank owns follows from the layout alone: the shard of its local index for the worker error, its chunk of that
 * shard for the server error; nothing where ranks share one node or the codec keeps no error. During a run the exchange
 * has the memory (pointers are swapped, nothing is copied); afterwards the residual has what the exchange committed, or
 * what it lent.
 */
#include "request.h"

#include <string.h>

static void set_range(const lnt_grid_t *grid, lnt_range_t range, uint64_t *offset_p, uint64_t *count_p)
{
    *offset_p = lnt_grid_pos(grid, range.begin);
    *count_p = lnt_range_elems(grid, range);
}

static void find_own(lnt_residual_t *residual, const lnt_grid_t *grid)
{
    const lnt_topo_t *topo = residual->comm->topo;
    const uint32_t shard = topo->local_of[residual->comm->rank], node = topo->node_of[residual->comm->rank];
    lnt_range_t range = {0, grid->n_blocks};

    if ((topo->n_nodes == 1) || !residual->codec.row->has_feedback || (shard >= topo->n_shards)) {
        return;
    }
    range = lnt_layout_part(grid, range, topo->n_shards, shard);
    set_range(grid, range, &residual->worker_offset, &residual->worker_count);
    set_range(grid, lnt_layout_part(grid, range, topo->n_nodes, node), &residual->server_offset,
              &residual->server_count);
}

static lnt_status_t init(lnt_residual_t *residual)
{
    const lnt_extent_t extent = {0, 0, residual->count};
    lnt_grid_t grid;

    LNT_TRY(lnt_grid_init(&grid, &extent, 1, residual->codec.cfg.block, false));
    find_own(residual, &grid);
    lnt_grid_release(&grid);
    residual->worker = lnt_alloc_aligned(residual->worker_count * sizeof(float), "worker error");
    if (residual->worker == NULL) {
        return LNT_ERR_NO_MEMORY;
    }
    residual->server = lnt_alloc_aligned(residual->server_count * sizeof(float), "server error");
    return (residual->server != NULL) ? LNT_OK : LNT_ERR_NO_MEMORY;
}

static void release(lnt_residual_t *residual)
{
    lnt_free(residual->worker);
    lnt_free(residual->server);
    lnt_free(residual);
}

lnt_status_t lnt_residual_create(lnt_comm_t *comm, uint64_t count, const lnt_codec_t *codec,
                                 lnt_residual_t **residual_p)
{
    lnt_residual_t *residual;
    lnt_status_t status;

    LNT_TRY(lnt_comm_enter(comm));
    LNT_CHECK_ARG((codec != NULL) && (residual_p != NULL));
    residual = lnt_calloc(1, sizeof(*residual), "residual");
    if (residual == NULL) {
        return LNT_ERR_NO_MEMORY;
    }
    residual->comm = comm;
    residual->count = count;
    residual->codec = *codec;
    status = init(residual);
    if (status < 0) {
        release(residual);
        return status;
    }
    *residual_p = residual;
    return LNT_OK;
}

void lnt_residual_destroy(lnt_residual_t *residual)
{
    if (residual == NULL) {
        return;
    }
    if (residual->user != NULL) {
        residual->orphaned = true; /* the exchange writes to its memory until the run ends */
    } else {
        release(residual);
    }
}

void lnt_residual_lend(lnt_residual_t *residual, lnt_request_t *user)
{
    residual->user = user;
    lnt_exchange_swap_errors(user->coll->exchange, &residual->worker, &residual->server);
}

void lnt_residual_take_back(lnt_residual_t *residual)
{
    lnt_exchange_swap_errors(residual->user->coll->exchange, &residual->worker, &residual->server);
    if (residual->orphaned) {
        residual->user->residual = NULL;
        release(residual);
        return;
    }
    residual->user = NULL;
}

lnt_status_t lnt_residual_check(const lnt_residual_t *residual, const lnt_comm_t *comm, const lnt_coll_args_t *args)
{
    const lnt_codec_t *mine = &residual->codec, *wanted = &args->codec;

    if ((residual->comm != comm) || (residual->count != args->count) || (mine->row != wanted->row) ||
        (mine->cfg.block != wanted->cfg.block) || (mine->cfg.scale_rule != wanted->cfg.scale_rule)) {
        return lnt_error(
            LNT_ERR_INVALID_ARG, "create the residual for this communicator, count and codec",
            "the residual is for count %llu %s block %u scale rule %d%s; the call is for count %llu %s block "
            "%u scale rule %d",
            (unsigned long long)residual->count, mine->row->name, mine->cfg.block, (int)mine->cfg.scale_rule,
            (residual->comm != comm) ? " of another communicator" : "", (unsigned long long)args->count,
            wanted->row->name, wanted->cfg.block, (int)wanted->cfg.scale_rule);
    }
    return LNT_OK;
}

lnt_status_t lnt_residual_counts(const lnt_residual_t *residual, uint64_t *worker_offset_p, uint64_t *worker_count_p,
                                 uint64_t *server_offset_p, uint64_t *server_count_p)
{
    LNT_CHECK_ARG((residual != NULL) && (worker_offset_p != NULL) && (worker_count_p != NULL) &&
                  (server_offset_p != NULL) && (server_count_p != NULL));
    *worker_offset_p = residual->worker_offset;
    *worker_count_p = residual->worker_count;
    *server_offset_p = residual->server_offset;
    *server_count_p = residual->server_count;
    return LNT_OK;
}

static lnt_status_t check_access(const lnt_residual_t *residual, const float *worker, const float *server)
{
    LNT_CHECK_ARG(residual != NULL);
    LNT_CHECK_ARG(((worker != NULL) || (residual->worker_count == 0)) &&
                  ((server != NULL) || (residual->server_count == 0)));
    if (residual->user != NULL) {
        return lnt_error(LNT_ERR_INVALID_USAGE, "wait for the request first",
                         "the residual is in use by a running request");
    }
    return LNT_OK;
}

static void copy(float *to, const float *from, uint64_t count)
{
    if (count != 0) {
        memcpy(to, from, count * sizeof(*to));
    }
}

lnt_status_t lnt_residual_read(const lnt_residual_t *residual, float *worker, float *server)
{
    LNT_TRY(check_access(residual, worker, server));
    copy(worker, residual->worker, residual->worker_count);
    copy(server, residual->server, residual->server_count);
    return LNT_OK;
}

lnt_status_t lnt_residual_write(lnt_residual_t *residual, const float *worker, const float *server)
{
    LNT_TRY(check_access(residual, worker, server));
    copy(residual->worker, worker, residual->worker_count);
    copy(residual->server, server, residual->server_count);
    return LNT_OK;
}
