/* The errors an exchange keeps between runs: how many bytes, access by copies, dropping, commit. Between runs only, but
 * for load and store, which tasks call on their own parts. Elements of an extent have scales one after the other, since
 * every full block of the grid has the same number of them. */
#include "exchange_internal.h"

#include <string.h>

/* --- kept errors -------------------------------------------------------------------------------------------------- */

static uint32_t scales_per_block(const lnt_exchange_t *exchange)
{
    return exchange->errors->has_scales ? exchange->grid.block / LNT_ERROR_BLOCK : 0;
}

uint64_t lnt_exchange_scale_bytes(const lnt_exchange_t *exchange, uint64_t pos, uint64_t end)
{
    uint64_t n_blocks = lnt_grid_block(&exchange->grid, end) - lnt_grid_block(&exchange->grid, pos);

    return n_blocks * scales_per_block(exchange) * sizeof(float);
}

static lnt_kept_t place_of(const lnt_exchange_t *exchange, const lnt_kept_t *kept, const lnt_kept_run_t *run)
{
    lnt_kept_t place = {(uint8_t *)kept->codes + (run->pos - run->base) * exchange->errors->elem_bytes, NULL};

    if (kept->scales != NULL) {
        uint64_t n_blocks = run->block - lnt_grid_block(&exchange->grid, run->base);

        place.scales = kept->scales + n_blocks * scales_per_block(exchange) + run->within / LNT_ERROR_BLOCK;
    }
    return place;
}

void lnt_exchange_load(const lnt_exchange_t *exchange, const lnt_kept_t *kept, const lnt_kept_run_t *run, float *out)
{
    lnt_kept_t place = place_of(exchange, kept, run);

    exchange->errors->read(place.codes, place.scales, run->count, out);
}

void lnt_exchange_store(const lnt_exchange_t *exchange, const lnt_kept_t *kept, const lnt_kept_run_t *run,
                        const float *values)
{
    lnt_kept_t place = place_of(exchange, kept, run);

    exchange->errors->write(values, run->count, place.codes, place.scales);
}

static void swap(lnt_kept_t *a, lnt_kept_t *b)
{
    lnt_kept_t t = *a;

    *a = *b;
    *b = t;
}

void lnt_exchange_commit(lnt_exchange_t *exchange)
{
    swap(&exchange->worker, &exchange->worker_shadow);
    swap(&exchange->server, &exchange->server_shadow);
    exchange->carried = exchange->params.topo->n_nodes == 1 && exchange->server.codes != NULL;
}

/* Elements [pos, end) of one extent as they were before the commit, where they are owned. */
static void restore(const lnt_exchange_t *exchange, bool server, uint64_t pos, uint64_t end)
{
    const lnt_kept_t *live = server ? &exchange->server : &exchange->worker;
    const lnt_kept_t *before = server ? &exchange->server_shadow : &exchange->worker_shadow;
    const lnt_owned_t owned = server ? lnt_exchange_server_error(exchange) : lnt_exchange_worker_error(exchange);
    const uint64_t first = pos > owned.begin ? pos : owned.begin, last = end < owned.end ? end : owned.end;
    const lnt_kept_run_t run = {
        .base = owned.begin, .pos = first, .block = first < last ? lnt_grid_block(&exchange->grid, first) : 0};

    if (first < last) {
        lnt_kept_t to = place_of(exchange, live, &run), from = place_of(exchange, before, &run);

        memcpy(to.codes, from.codes, (last - first) * exchange->errors->elem_bytes);
        if (to.scales != NULL) {
            memcpy(to.scales, from.scales, lnt_exchange_scale_bytes(exchange, first, last));
        }
    }
}

void lnt_exchange_keep_errors(lnt_exchange_t *exchange, uint32_t tensor)
{
    const lnt_grid_t *grid = &exchange->grid;

    for (size_t e = 0; e < grid->n_extents; e++) {
        uint64_t pos = grid->pos[e], end = pos + grid->extents[e].count;

        if (grid->extents[e].tensor == tensor) {
            exchange->carried = false; /* not this part of it */
            restore(exchange, false, pos, end);
            restore(exchange, true, pos, end);
        }
    }
}

/* --- from outside ------------------------------------------------------------------------------------------------- */

static lnt_owned_t owned(const lnt_exchange_t *exchange, const lnt_kept_t *kept, uint64_t begin, uint64_t end)
{
    if (kept->codes == NULL || exchange->carried) {
        return (lnt_owned_t){0};
    }
    return (lnt_owned_t){begin, end, exchange->errors->dtype == LNT_ERROR_F32 ? kept->codes : NULL};
}

lnt_owned_t lnt_exchange_worker_error(const lnt_exchange_t *exchange)
{
    return owned(exchange, &exchange->worker, exchange->shard_pos, exchange->shard_end);
}

lnt_owned_t lnt_exchange_server_error(const lnt_exchange_t *exchange)
{
    return owned(exchange, &exchange->server, exchange->chunk_pos, exchange->chunk_end);
}

/* Walks [pos, pos + count) in runs of at most LNT_STACK_ELEMS inside one extent; visit gets the elements before it. */
typedef struct walk {
    const lnt_exchange_t *exchange;
    const lnt_kept_t *kept;
    uint64_t base;
    float *out;          /* of read */
    const float *values; /* of write */
    double sum;          /* of squares */
} walk_t;
typedef void (*visit_fn_t)(walk_t *walk, const lnt_kept_run_t *run, uint64_t before);

static walk_t walk_of(const lnt_exchange_t *exchange, bool server)
{
    return (walk_t){.exchange = exchange,
                    .kept = server ? &exchange->server : &exchange->worker,
                    .base = server ? exchange->chunk_pos : exchange->shard_pos};
}

static void each_run(walk_t *walk, uint64_t pos, uint64_t count, visit_fn_t visit)
{
    const lnt_grid_t *grid = &walk->exchange->grid;
    const uint64_t begin = pos, end = pos + count;

    while (pos < end) {
        const lnt_run_t extent = lnt_layout_run(grid, pos, end);
        lnt_kept_run_t run = {.base = walk->base, .block = lnt_grid_block(grid, pos)};

        for (; run.within < extent.count; run.within += run.count) {
            uint64_t left = extent.count - run.within;

            run.pos = pos + run.within;
            run.count = left < LNT_STACK_ELEMS ? left : LNT_STACK_ELEMS;
            visit(walk, &run, run.pos - begin);
        }
        pos += extent.count;
    }
}

static void read_run(walk_t *walk, const lnt_kept_run_t *run, uint64_t before)
{
    lnt_exchange_load(walk->exchange, walk->kept, run, walk->out + before);
}

void lnt_exchange_read_error(const lnt_exchange_t *exchange, bool server, uint64_t pos, uint64_t count, float *out)
{
    walk_t walk = walk_of(exchange, server);

    walk.out = out;
    each_run(&walk, pos, count, read_run);
}

static void write_run(walk_t *walk, const lnt_kept_run_t *run, uint64_t before)
{
    lnt_exchange_store(walk->exchange, walk->kept, run, walk->values + before);
}

/* Code 0 is zero whatever the scale. */
static void clear(const walk_t *walk, uint64_t pos, uint64_t count)
{
    const uint32_t size = walk->exchange->errors->elem_bytes;

    memset((uint8_t *)walk->kept->codes + (pos - walk->base) * size, 0, count * size);
}

void lnt_exchange_write_error(lnt_exchange_t *exchange, bool server, uint64_t pos, uint64_t count, const float *values)
{
    walk_t walk = walk_of(exchange, server);

    if (walk.kept->codes == NULL) { /* a carry that was not wanted after all */
        return;
    }
    if (values == NULL) {
        clear(&walk, pos, count);
        return;
    }
    walk.values = values;
    each_run(&walk, pos, count, write_run);
}

void lnt_exchange_zero_error(lnt_exchange_t *exchange, uint64_t pos)
{
    const lnt_owned_t worker = lnt_exchange_worker_error(exchange), server = lnt_exchange_server_error(exchange);

    if (pos >= worker.begin && pos < worker.end) {
        lnt_exchange_write_error(exchange, false, pos, 1, NULL);
    }
    if (pos >= server.begin && pos < server.end) {
        lnt_exchange_write_error(exchange, true, pos, 1, NULL);
    }
}

static void keep_run(walk_t *walk, const lnt_kept_run_t *run, uint64_t before)
{
    float values[LNT_STACK_ELEMS];

    (void)before;
    lnt_exchange_load(walk->exchange, walk->kept, run, values);
    lnt_exchange_store(walk->exchange, walk->kept, run, values);
}

/* Scales depend on what is largest in a block. */
void lnt_exchange_keep_again(lnt_exchange_t *exchange, uint64_t pos, uint64_t end)
{
    const lnt_owned_t owned[] = {lnt_exchange_worker_error(exchange), lnt_exchange_server_error(exchange)};

    for (int server = 0; server < 2 && exchange->errors->has_scales; server++) {
        uint64_t first = pos > owned[server].begin ? pos : owned[server].begin;
        uint64_t last = end < owned[server].end ? end : owned[server].end;
        walk_t walk = walk_of(exchange, server != 0);

        if (first < last) {
            each_run(&walk, first, last - first, keep_run);
        }
    }
}

static void square_run(walk_t *walk, const lnt_kept_run_t *run, uint64_t before)
{
    float values[LNT_STACK_ELEMS];

    (void)before;
    lnt_exchange_load(walk->exchange, walk->kept, run, values);
    for (uint64_t i = 0; i < run->count; i++) {
        walk->sum += (double)values[i] * (double)values[i];
    }
}

static double drop(const lnt_exchange_t *exchange, bool server, lnt_owned_t range)
{
    walk_t walk = walk_of(exchange, server);

    if (range.begin == range.end) {
        return 0;
    }
    each_run(&walk, range.begin, range.end - range.begin, square_run);
    clear(&walk, range.begin, range.end - range.begin);
    return walk.sum;
}

void lnt_exchange_drop_errors(lnt_exchange_t *exchange, double *sum_of_squares_p)
{
    double worker = drop(exchange, false, lnt_exchange_worker_error(exchange));

    *sum_of_squares_p = worker + drop(exchange, true, lnt_exchange_server_error(exchange));
}

void lnt_exchange_swap_errors(lnt_exchange_t *exchange, float **worker, float **server)
{
    float *own_worker = exchange->worker.codes, *own_server = exchange->server.codes;

    if (!exchange->feedback) {
        return;
    }
    exchange->worker.codes = *worker;
    exchange->server.codes = *server;
    *worker = own_worker;
    *server = own_server;
}
