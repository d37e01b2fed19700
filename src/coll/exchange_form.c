/* Values before they are coded: walking a segment in pieces, local contributions, the node sum.
 *
 * A piece goes through a buffer that stays in cache. f32, one rounding per operation, the sum in rank order. */
#include "exchange_internal.h"

#include <string.h>

enum { STRIP = 1024 };

static uint8_t flag_unless(bool finite)
{
    return finite ? 0 : LNT_FRAME_POISONED;
}

/* --- pieces ------------------------------------------------------------------------------------------------------- */

lnt_piece_t lnt_piece_begin(const lnt_exchange_t *exchange, const lnt_segment_t *segment)
{
    return (lnt_piece_t){.pos = segment->pos,
                         .end = segment->end,
                         .max = exchange->piece_max,
                         .block = segment->range.begin,
                         .mask =
                             exchange->any_dead ? lnt_layout_mask_offset(&exchange->grid, segment->range.begin) : 0};
}

bool lnt_piece_next(const lnt_exchange_t *exchange, lnt_piece_t *piece)
{
    const lnt_grid_t *grid = &exchange->grid;
    uint64_t count;

    piece->pos += piece->count;
    piece->block += piece->n_blocks;
    piece->code += (piece->count * exchange->wire.row->bits + 7) / 8;
    piece->mask += (piece->count + 7) / 8;
    if (piece->pos >= piece->end) {
        return false;
    }
    count = grid->packed ? piece->end - piece->pos : lnt_layout_run(grid, piece->pos, piece->end).count;
    piece->count = count < piece->max ? count : piece->max;
    piece->n_blocks = (piece->count + grid->block - 1) / grid->block;
    return true;
}

const uint8_t *lnt_piece_live(const lnt_exchange_t *exchange, const lnt_piece_t *piece)
{
    if (!exchange->any_dead || memchr(exchange->dead_block + piece->block, 1, piece->n_blocks) == NULL) {
        return NULL;
    }
    return exchange->mask + piece->mask;
}

uint32_t lnt_exchange_find(const lnt_segment_t *segments, uint32_t n, uint64_t pos)
{
    uint32_t low = 0, high = n;

    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;

        if (segments[middle].pos <= pos) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* --- local contributions ------------------------------------------------------------------------------------------ */

static void widen(const void *values, lnt_dtype_t dtype, uint64_t n, float *out)
{
    if (values == NULL) {
        memset(out, 0, n * sizeof(*out));
    } else {
        lnt_arrays()->widen[dtype](values, n, out);
    }
}

/* Pads of a unit have no gradient. */
static const lnt_source_t *source_of(const lnt_exchange_t *exchange, uint32_t tensor)
{
    static const lnt_source_t zeros = {.values = NULL, .dtype = LNT_F32};

    return tensor == LNT_TENSOR_PAD ? &zeros : &exchange->params.sources[tensor];
}

static void local_span(const lnt_exchange_t *exchange, const lnt_span_t *span, float *out)
{
    const lnt_source_t *source = source_of(exchange, span->tensor);
    const lnt_stage_t *stage = &exchange->params.stage;
    size_t size = lnt_dtype_size(source->dtype);
    const void *grad = source->values == NULL ? NULL : (const uint8_t *)source->values + span->offset * size;
    lnt_dtype_t dtype = source->dtype;

    bool produced = stage->produce_local != NULL && span->tensor != LNT_TENSOR_PAD;

    if (source->accumulated != NULL || !produced) {
        widen(grad, dtype, span->count, out);
        grad = out;
        dtype = LNT_F32;
    }
    if (source->accumulated != NULL) {
        lnt_arrays()->add(out, source->accumulated + span->offset, span->count);
    }
    if (produced) {
        stage->produce_local(stage->arg, span, grad, dtype, out);
    }
}

/* The span that starts at pos: inside one tensor, at most span_max elements. */
static lnt_span_t span_at(const lnt_exchange_t *exchange, uint64_t pos, uint64_t end)
{
    lnt_run_t run = lnt_layout_run(&exchange->grid, pos, end);

    return (lnt_span_t){run.tensor, exchange->params.bucket, run.offset,
                        run.count < exchange->span_max ? run.count : exchange->span_max};
}

static void form_local(const lnt_exchange_t *exchange, uint64_t pos, uint64_t end, float *out)
{
    while (pos < end) {
        lnt_span_t span = span_at(exchange, pos, end);

        local_span(exchange, &span, out);
        out += span.count;
        pos += span.count;
    }
}

/* A contribution that is the gradient and nothing else, widened and scaled in one pass. */
static bool is_plain(const lnt_exchange_t *exchange, const lnt_source_t *source)
{
    return exchange->params.stage.produce_local == NULL && source->accumulated == NULL && source->values != NULL;
}

static bool scale_span(const lnt_exchange_t *exchange, const lnt_span_t *span, float *out)
{
    const lnt_source_t *source = source_of(exchange, span->tensor);
    const uint8_t *values = source->values;

    if (is_plain(exchange, source)) {
        values += span->offset * lnt_dtype_size(source->dtype);
        return lnt_arrays()->widen_scaled[source->dtype](values, span->count, exchange->step.factor, out);
    }
    local_span(exchange, span, out);
    return lnt_arrays()->scale(out, span->count, exchange->step.factor);
}

/* Where a rank is alone on its node. True: all are finite. */
static bool form_scaled(const lnt_exchange_t *exchange, uint64_t pos, uint64_t end, float *out)
{
    bool finite = true;

    while (pos < end) {
        lnt_span_t span = span_at(exchange, pos, end);

        finite &= scale_span(exchange, &span, out);
        out += span.count;
        pos += span.count;
    }
    return finite;
}

void lnt_exchange_run_local(lnt_graph_t *graph, uint32_t task, uint64_t arg)
{
    lnt_exchange_t *exchange = graph->owner;
    const lnt_segment_t *segment = &exchange->shard_segs[arg >> 32];
    uint32_t frame = (uint32_t)arg;
    float *out = (float *)(void *)lnt_graph_payload(graph, frame);

    (void)task;
    form_local(exchange, segment->pos, segment->end, out);
    lnt_graph_header(graph, frame)->flags =
        (uint8_t)(graph->flags | flag_unless(lnt_arrays()->finite(out, segment->end - segment->pos)));
}

/* --- the node sum ------------------------------------------------------------------------------------------------- */

/* What rank j of this node, another one, sent: element `offset` of segment g. */
static const float *gathered(const lnt_exchange_t *exchange, uint32_t j, uint32_t g, uint64_t offset)
{
    uint32_t frame = exchange->gather_frame + (j - (j > exchange->local)) * exchange->n_gather + g;

    return (const float *)(const void *)lnt_graph_payload(&exchange->graph, frame) + offset;
}

/* Own contribution <- sum in rank order over [pos, pos + n), all inside shard segment g. Ranks before this one are
 * summed apart, unless there is only one: a + b is b + a. */
static void sum_strip(const lnt_exchange_t *exchange, uint32_t g, uint64_t pos, uint64_t n, float *own)
{
    const lnt_array_ops_t *arrays = lnt_arrays();
    uint64_t offset = pos - exchange->shard_segs[exchange->own_gather + g].pos;
    float sum[STRIP];

    if (exchange->local == 1) {
        arrays->add(own, gathered(exchange, 0, g, offset), n);
    } else if (exchange->local > 1) {
        memcpy(sum, gathered(exchange, 0, g, offset), n * sizeof(sum[0]));
        for (uint32_t j = 1; j < exchange->local; j++) {
            arrays->add(sum, gathered(exchange, j, g, offset), n);
        }
        arrays->add(own, sum, n);
    }
    for (uint32_t j = exchange->local + 1; j < exchange->n_local; j++) {
        arrays->add(own, gathered(exchange, j, g, offset), n);
    }
}

static void sum_node(const lnt_exchange_t *exchange, uint64_t pos, uint64_t end, float *own)
{
    const lnt_segment_t *segments = exchange->shard_segs + exchange->own_gather;
    uint32_t g = lnt_exchange_find(segments, exchange->n_gather, pos);

    while (pos < end) {
        uint64_t limit = segments[g].end < end ? segments[g].end : end;
        uint64_t n = limit - pos < STRIP ? limit - pos : STRIP;

        sum_strip(exchange, g, pos, n, own);
        own += n;
        pos += n;
        g += pos == segments[g].end;
    }
}

/* Notes per block whether the node's sum of a dead coordinate is not zero. */
static void note_touched(const lnt_exchange_t *exchange, const lnt_piece_t *piece, const uint8_t *live,
                         const float *values)
{
    for (uint64_t b = 0, i = 0; b < piece->n_blocks && live != NULL; b++) {
        uint64_t end = i + exchange->grid.block < piece->count ? i + exchange->grid.block : piece->count;
        bool touched = false;

        for (; i < end; i++) {
            touched |= !lnt_live_bit(live, i) && values[i] != 0;
        }
        exchange->touched[piece->block + b] = touched;
    }
}

/* The node's sum times the factor. True: all are finite. */
static bool form_sum(const lnt_exchange_t *exchange, uint64_t pos, uint64_t end, float *values)
{
    if (exchange->n_local == 1) {
        return form_scaled(exchange, pos, end, values);
    }
    form_local(exchange, pos, end, values);
    sum_node(exchange, pos, end, values);
    return lnt_arrays()->scale(values, end - pos, exchange->step.factor);
}

/* What is coded, before the error is added: node sum, factor, finite check, produce_wire. Returns flags. */
uint8_t lnt_exchange_form_wire(const lnt_exchange_t *exchange, const lnt_piece_t *piece, float *values)
{
    const lnt_stage_t *stage = &exchange->params.stage;
    uint64_t end = piece->pos + piece->count;
    bool finite = form_sum(exchange, piece->pos, end, values);

    note_touched(exchange, piece, lnt_piece_live(exchange, piece), values);
    for (uint64_t pos = piece->pos; pos < end && stage->produce_wire != NULL;) {
        lnt_span_t span = span_at(exchange, pos, end);

        stage->produce_wire(stage->arg, &span, values + (pos - piece->pos));
        pos += span.count;
    }
    return flag_unless(finite);
}

/* Nothing to add, to multiply or to note. Coding finds what is not finite, as form_wire does. */
const void *lnt_exchange_as_given(const lnt_exchange_t *exchange, const lnt_piece_t *piece, lnt_dtype_t *dtype_p)
{
    lnt_run_t run = lnt_layout_run(&exchange->grid, piece->pos, piece->pos + 1);
    const lnt_source_t *source = source_of(exchange, run.tensor);

    if (exchange->n_local > 1 || exchange->step.factor != 1 || exchange->params.stage.produce_wire != NULL ||
        exchange->params.feeds_v || exchange->any_dead || exchange->grid.packed || !is_plain(exchange, source)) {
        return NULL;
    }
    *dtype_p = source->dtype;
    return (const uint8_t *)source->values + run.offset * lnt_dtype_size(source->dtype);
}

/* Flags of the node's frames that overlap [pos, end). */
uint8_t lnt_exchange_gather_flags(const lnt_exchange_t *exchange, uint64_t pos, uint64_t end)
{
    const lnt_segment_t *own = exchange->shard_segs + exchange->own_gather;
    uint8_t flags = 0;

    for (uint32_t j = 0; j + 1 < exchange->n_local; j++) {
        for (uint32_t g = lnt_exchange_find(own, exchange->n_gather, pos); g < exchange->n_gather && own[g].pos < end;
             g++) {
            flags |= lnt_graph_header(&exchange->graph, exchange->gather_frame + j * exchange->n_gather + g)->flags;
        }
    }
    return flags;
}
