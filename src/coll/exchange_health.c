/* How well the coding of the last run went, from what is there after its commit: decoded frames of this rank, its new
 * errors, and the old ones, which are now in the shadows. What was coded is decoded + new error; what went in before
 * the old error was added is that minus the old error. f64, sums in the order of elements. */
#include "exchange_internal.h"

#include <math.h>

/* Whose values: coded into frames that begin with `frame`, for chunk segments [first, first + n). */
typedef struct role {
    const lnt_exchange_t *exchange;
    const lnt_kept_t *errors, *before;
    uint64_t base;
    uint32_t first, n, frame;
    lnt_health_sums_t *sums;
} role_t;

/* Sums over one block. */
typedef struct block {
    double magnitude, squares;
    uint64_t n;
} block_t;

/* Elements [from, from + n) of a piece, inside one block. */
static void add_elems(const role_t *role, const lnt_piece_t *piece, uint64_t from, uint64_t n, const float *decoded,
                      block_t *block)
{
    const uint8_t *live = lnt_piece_live(role->exchange, piece);
    const lnt_kept_run_t run = {
        .base = role->base, .pos = piece->pos + from, .count = n, .block = piece->block, .within = from};
    float now[LNT_STACK_ELEMS], before[LNT_STACK_ELEMS];

    lnt_exchange_load(role->exchange, role->errors, &run, now);
    lnt_exchange_load(role->exchange, role->before, &run, before);
    for (uint64_t i = 0; i < n; i++) {
        const double error = (double)now[i], value = (double)decoded[from + i] + error,
                     input = value - (double)before[i];

        block->magnitude += fabs(value);
        block->squares += value * value;
        block->n += lnt_live_bit(live, from + i);
        role->sums->error += error * error;
        role->sums->input += input * input;
    }
}

static void add_piece(const role_t *role, const lnt_piece_t *piece, const float *decoded)
{
    const uint64_t size = role->exchange->grid.block;

    for (uint64_t i = 0; i < piece->count; i += size) {
        const uint64_t end = i + size < piece->count ? i + size : piece->count;
        block_t block = {.n = 0};

        for (uint64_t from = i; from < end; from += LNT_STACK_ELEMS) {
            add_elems(role, piece, from, end - from < LNT_STACK_ELEMS ? end - from : LNT_STACK_ELEMS, decoded, &block);
        }
        role->sums->value += block.squares;
        role->sums->n += block.n;
        if (block.n != 0) {
            role->sums->alike += block.magnitude * sqrt(block.squares / (double)block.n);
        }
    }
}

static void measure(const role_t *role)
{
    const lnt_exchange_t *exchange = role->exchange;
    float stack[LNT_STACK_ELEMS], *room = exchange->big[0] != NULL ? exchange->big[0] : stack;

    for (uint32_t s = 0; s < role->n; s++) {
        const lnt_segment_t *segment = &exchange->chunk_segs[role->first + s];
        lnt_piece_t piece = lnt_piece_begin(exchange, segment);

        while (lnt_piece_next(exchange, &piece)) {
            lnt_exchange_decode_piece(exchange, segment, role->frame + s, &piece, piece.code, room);
            add_piece(role, &piece, room);
        }
    }
}

bool lnt_exchange_measure_health(const lnt_exchange_t *exchange, lnt_exchange_health_t *health_p)
{
    lnt_exchange_health_t health = {.worker = {.n = 0}};

    if (!exchange->feedback) {
        return false;
    }
    measure(&(role_t){.exchange = exchange,
                      .errors = &exchange->worker,
                      .before = &exchange->worker_shadow,
                      .base = exchange->shard_pos,
                      .first = exchange->own_code,
                      .n = exchange->n_code,
                      .frame = exchange->code_frame,
                      .sums = &health.worker});
    measure(&(role_t){.exchange = exchange,
                      .errors = &exchange->server,
                      .before = &exchange->server_shadow,
                      .base = exchange->chunk_pos,
                      .first = exchange->own_serve,
                      .n = exchange->n_serve,
                      .frame = exchange->result_frame + exchange->own_serve,
                      .sums = &health.server});
    *health_p = health;
    return true;
}
