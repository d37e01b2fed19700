/* The RUN tasks that code: measuring, encoding, the server.
 *
 * A task writes only its own frame and its own part of the shadows; what it reads is ordered by edges. So several may
 * run at once, each in a thread. f32, one rounding per operation, the server's sum in node order. */
#include "exchange_internal.h"

#include <string.h>

#include "../base/hash.h"

static uint8_t flag_if(bool poisoned)
{
    return poisoned ? LNT_FRAME_POISONED : 0;
}

/* --- coding ------------------------------------------------------------------------------------------------------- */

/* One frame to be coded, and the errors that belong to its values. Errors kept in f32 are used where they lie; others
 * are brought into `room` before a piece is coded, and what coding leaves there is kept. */
typedef struct coder {
    const lnt_exchange_t *exchange;
    const lnt_segment_t *segment;
    uint8_t *scales, *codes;
    const lnt_kept_t *error, *shadow; /* codes NULL: none */
    uint64_t base;                    /* position of their first element */
    float *room;                      /* NULL: errors are f32 */
    uint64_t seed;                    /* of this run and coder; tensors have their own */
} coder_t;

enum { SERVER = 0, FIRST_NODE = 1 }; /* who codes */
enum { RUNS_MAX = 8 };               /* decoded in one call */

static uint64_t seed_of(const lnt_exchange_t *exchange, uint64_t who)
{
    return lnt_hash64_u64(lnt_hash64_u64(exchange->step.step, exchange->params.program), who);
}

static coder_t coder_of(const lnt_exchange_t *exchange, const lnt_segment_t *segment, uint32_t frame)
{
    uint8_t *payload = lnt_graph_payload(&exchange->graph, frame);

    return (coder_t){.exchange = exchange,
                     .segment = segment,
                     .scales = payload,
                     .codes = payload + lnt_layout_scale_bytes(&exchange->wire, &exchange->grid, segment->range)};
}

/* Whose errors: of the worker or the server, which begin at `base`. `room` is for errors that are not f32. */
static void set_errors(coder_t *coder, const lnt_kept_t *error, const lnt_kept_t *shadow, uint64_t base, float *room)
{
    coder->error = error;
    coder->shadow = shadow;
    coder->base = base;
    coder->room = coder->exchange->errors->dtype != LNT_ERROR_F32 && error->codes != NULL ? room : NULL;
}

static float *errors_at(const coder_t *coder, const lnt_kept_t *kept, uint64_t pos)
{
    if (kept->codes == NULL) {
        return NULL;
    }
    return coder->room != NULL ? coder->room : (float *)kept->codes + (pos - coder->base);
}

static lnt_kept_run_t kept_run(const coder_t *coder, const lnt_piece_t *piece)
{
    return (lnt_kept_run_t){.base = coder->base, .pos = piece->pos, .count = piece->count, .block = piece->block};
}

static void load_errors(const coder_t *coder, const lnt_piece_t *piece)
{
    if (coder->room != NULL) {
        lnt_kept_run_t run = kept_run(coder, piece);

        lnt_exchange_load(coder->exchange, coder->error, &run, coder->room);
    }
}

static void store_errors(const coder_t *coder, const lnt_piece_t *piece)
{
    if (coder->room != NULL) {
        lnt_kept_run_t run = kept_run(coder, piece);

        lnt_exchange_store(coder->exchange, coder->shadow, &run, coder->room);
    }
}

static uint8_t *scales_at(const coder_t *coder, uint64_t block)
{
    return coder->exchange->wire.row->has_scales ? coder->scales + sizeof(float) * (block - coder->segment->range.begin)
                                                 : NULL;
}

/* Programs that square the mean: its f32 square, error included, must be finite, and that of the decoded value too. */
static uint8_t check_squares(const float *values, const float *error, const uint8_t *live, uint64_t n)
{
    return flag_if(!lnt_arrays()->squares_fit(values, error, live, n));
}

/* Compat grids: the piece lies in scale blocks that were measured before; every block of the frame repeats its scale.
 */
static void encode_measured(const coder_t *coder, const lnt_piece_t *piece, const lnt_encode_in_t *in,
                            lnt_encode_out_t *out)
{
    const lnt_exchange_t *exchange = coder->exchange;
    uint64_t block = exchange->grid.block;
    uint32_t k = 0;

    for (uint64_t i = 0, b = 0; i < piece->count; i += block, b++) {
        lnt_encode_in_t one = *in;
        lnt_encode_out_t one_out = *out;

        while (exchange->scale_blocks[k].segment.end <= piece->pos + i) {
            k++;
        }
        one.values = (const float *)in->values + i;
        one.index = in->index + i;
        one.n = piece->count - i < block ? piece->count - i : block;
        one.live = in->live == NULL ? NULL : in->live + i / 8;
        one.error_in = in->error_in == NULL ? NULL : in->error_in + i;
        one_out.error_out = out->error_out == NULL ? NULL : out->error_out + i;
        one_out.codes = out->codes + i * exchange->wire.row->bits / 8;
        one_out.scales = scales_at(coder, piece->block + b);
        exchange->wire.ops.encode_scaled(&exchange->wire.cfg, &one, exchange->scale_blocks[k].scale, &one_out);
        out->poisoned |= one_out.poisoned;
    }
}

static lnt_encode_in_t input_of(const coder_t *coder, const lnt_piece_t *piece, const void *values, lnt_dtype_t dtype)
{
    lnt_run_t run = lnt_layout_run(&coder->exchange->grid, piece->pos, piece->pos + 1);

    return (lnt_encode_in_t){.values = values,
                             .dtype = dtype,
                             .n = piece->count,
                             .live = lnt_piece_live(coder->exchange, piece),
                             .error_in = errors_at(coder, coder->error, piece->pos),
                             .seed = lnt_hash64_u64(coder->seed, run.tensor),
                             .index = run.offset};
}

static lnt_encode_out_t output_of(const coder_t *coder, const lnt_piece_t *piece)
{
    return (lnt_encode_out_t){.scales = scales_at(coder, piece->block),
                              .codes = coder->codes + piece->code,
                              .error_out = errors_at(coder, coder->shadow, piece->pos),
                              .stream = coder->exchange->params.stream && coder->room == NULL};
}

/* Codes a piece; `values` is overwritten. Returns flags. */
static uint8_t code_piece(const coder_t *coder, const lnt_piece_t *piece, float *values, bool measured)
{
    const lnt_exchange_t *exchange = coder->exchange;
    const lnt_codec_t *wire = &exchange->wire;
    lnt_encode_in_t in = input_of(coder, piece, values, LNT_F32);
    lnt_encode_out_t out = output_of(coder, piece);
    uint8_t flags = exchange->params.feeds_v ? check_squares(values, in.error_in, in.live, piece->count) : 0;

    if (measured) {
        encode_measured(coder, piece, &in, &out);
    } else {
        wire->ops.encode(&wire->cfg, &in, &out);
    }
    if (exchange->params.feeds_v && wire->row->id != LNT_CODEC_F32) {
        wire->ops.decode(&wire->cfg, out.scales, out.codes, piece->count, in.live, values);
        flags |= check_squares(values, NULL, NULL, piece->count);
    }
    return (uint8_t)(flags | flag_if(out.poisoned));
}

/* Forms a piece, unless the gradient is that already, and codes it. Returns flags. */
static uint8_t form_and_code(const coder_t *coder, const lnt_piece_t *piece, float *room)
{
    const lnt_codec_t *wire = &coder->exchange->wire;
    lnt_dtype_t dtype = LNT_F32;
    const void *given = lnt_exchange_as_given(coder->exchange, piece, &dtype);
    lnt_encode_in_t in = input_of(coder, piece, given, dtype);
    lnt_encode_out_t out = output_of(coder, piece);
    uint8_t flags;

    if (given != NULL) {
        wire->ops.encode(&wire->cfg, &in, &out);
        return flag_if(out.poisoned);
    }
    flags = lnt_exchange_form_wire(coder->exchange, piece, room);
    return (uint8_t)(flags | code_piece(coder, piece, room, false));
}

static lnt_scale_block_t *first_scale_block(const lnt_exchange_t *exchange, const lnt_segment_t *segment)
{
    lnt_scale_block_t *block = exchange->scale_blocks;

    while (block->segment.end <= segment->pos) {
        block++;
    }
    return block;
}

static float *formed_at(const lnt_exchange_t *exchange, uint64_t pos)
{
    return (float *)(void *)(exchange->graph.space.base + exchange->formed) + (pos - exchange->shard_pos);
}

/* Forms the values of a scale block, then measures them all: a block of the server's grid need not begin where pieces
 * of a measurement may. A scale block lies in one extent, or has no mask. */
void lnt_exchange_run_measure(lnt_graph_t *graph, uint32_t task, uint64_t arg)
{
    lnt_exchange_t *exchange = graph->owner;
    lnt_scale_block_t *block = &exchange->scale_blocks[arg];
    const lnt_segment_t *segment = &block->segment;
    const lnt_codec_t *wire = &exchange->wire;
    lnt_measure_t measure = {0};
    lnt_piece_t piece = lnt_piece_begin(exchange, segment), whole = piece;
    lnt_encode_in_t in = {.values = formed_at(exchange, segment->pos), .dtype = LNT_F32};
    bool poisoned = false;

    (void)task;
    block->flags = lnt_exchange_gather_flags(exchange, segment->pos, segment->end);
    while (lnt_piece_next(exchange, &piece)) {
        block->flags |= lnt_exchange_form_wire(exchange, &piece, formed_at(exchange, piece.pos));
    }
    whole.count = in.n = segment->end - segment->pos;
    whole.n_blocks = segment->range.end - segment->range.begin;
    in.live = lnt_piece_live(exchange, &whole);
    if (exchange->feedback) { /* compat grids keep f32 */
        in.error_in = (float *)exchange->worker.codes + (segment->pos - exchange->shard_pos);
    }
    wire->ops.measure(&wire->cfg, &in, 0, &measure);
    block->scale = wire->ops.finish(&wire->cfg, &measure, &poisoned);
    block->flags |= flag_if(poisoned);
}

static uint8_t measured_flags(const lnt_exchange_t *exchange, const lnt_segment_t *segment)
{
    uint8_t flags = 0;

    for (lnt_scale_block_t *k = first_scale_block(exchange, segment);
         k < exchange->scale_blocks + exchange->n_scale_blocks && k->segment.pos < segment->end; k++) {
        flags |= k->flags;
    }
    return flags;
}

/* Activity section: one bit per block with dead coordinates. */
static void write_section(const lnt_exchange_t *exchange, const lnt_segment_t *segment, uint32_t frame)
{
    uint8_t *section = lnt_graph_section(&exchange->graph, frame);
    uint32_t bit = 0;

    if (exchange->graph.frames[frame].section_bytes == 0) {
        return;
    }
    memset(section, 0, exchange->graph.frames[frame].section_bytes);
    for (uint64_t b = segment->range.begin; b < segment->range.end; b++) {
        if (exchange->dead_block[b]) {
            section[bit / 8] = (uint8_t)(section[bit / 8] | exchange->touched[b] << bit % 8);
            bit++;
        }
    }
}

void lnt_exchange_run_encode(lnt_graph_t *graph, uint32_t task, uint64_t arg)
{
    lnt_exchange_t *exchange = graph->owner;
    const lnt_segment_t *segment = &exchange->chunk_segs[arg >> 32];
    uint32_t frame = (uint32_t)arg;
    coder_t coder = coder_of(exchange, segment, frame);
    lnt_piece_t piece = lnt_piece_begin(exchange, segment);
    bool measured = exchange->params.scale_block != 0;
    uint8_t flags = graph->flags;
    float stack[LNT_STACK_ELEMS], *room = exchange->big[0] != NULL ? exchange->big[0] : stack;
    float errors[LNT_STACK_ELEMS];

    (void)task;
    if (exchange->params.topo->n_nodes > 1) {
        set_errors(&coder, &exchange->worker, &exchange->worker_shadow, exchange->shard_pos,
                   exchange->big_error[0] != NULL ? exchange->big_error[0] : errors);
    } else {
        set_errors(&coder, &exchange->server, &exchange->server_shadow, exchange->chunk_pos, NULL);
    }
    coder.seed = seed_of(exchange, FIRST_NODE + exchange->node);
    flags |=
        measured ? measured_flags(exchange, segment) : lnt_exchange_gather_flags(exchange, segment->pos, segment->end);
    while (lnt_piece_next(exchange, &piece)) {
        load_errors(&coder, &piece);
        flags |= measured ? code_piece(&coder, &piece, formed_at(exchange, piece.pos), true)
                          : form_and_code(&coder, &piece, room);
        store_errors(&coder, &piece);
    }
    write_section(exchange, segment, frame);
    lnt_graph_header(graph, frame)->flags = flags;
}

/* --- the server --------------------------------------------------------------------------------------------------- */

/* Phase-1 frame of the own chunk's segment s from node b. */
static uint32_t serve_frame(const lnt_exchange_t *exchange, uint32_t b, uint32_t s)
{
    if (b == exchange->node) {
        return exchange->code_frame + (exchange->own_serve - exchange->own_code) + s;
    }
    return exchange->serve_frame + (b < exchange->node ? b : b - 1) * exchange->n_serve + s;
}

/* Mean over nodes, in node order. Runs of one call lie on the stack; later calls add. */
static void form_mean(const lnt_exchange_t *exchange, const lnt_segment_t *segment, uint32_t s,
                      const lnt_piece_t *piece, float *values)
{
    const lnt_codec_t *wire = &exchange->wire;
    const uint8_t *live = lnt_piece_live(exchange, piece);
    lnt_coded_run_t runs[RUNS_MAX];
    uint32_t n_runs = 0, n_nodes = exchange->params.topo->n_nodes;

    for (uint32_t b = 0; b < n_nodes; b++) {
        coder_t from = coder_of(exchange, segment, serve_frame(exchange, b, s));

        runs[n_runs++] = (lnt_coded_run_t){scales_at(&from, piece->block), from.codes + piece->code};
        if (n_runs == RUNS_MAX || b + 1 == n_nodes) {
            wire->ops.decode_sum(&wire->cfg, runs, n_runs, piece->count, live, b >= RUNS_MAX, values);
            n_runs = 0;
        }
    }
    (void)lnt_arrays()->scale(values, piece->count, exchange->step.server_factor); /* coding checks */
}

/* Flags and sections of all phase-1 frames go on into the result. */
static uint8_t merge_frames(const lnt_exchange_t *exchange, uint32_t s, uint32_t result)
{
    uint8_t *section = lnt_graph_section(&exchange->graph, result);
    uint32_t bytes = exchange->graph.frames[result].section_bytes;
    uint8_t flags = 0;

    memset(section, 0, bytes);
    for (uint32_t b = 0; b < exchange->params.topo->n_nodes; b++) {
        uint32_t frame = serve_frame(exchange, b, s);
        const uint8_t *more = lnt_graph_section(&exchange->graph, frame);

        flags |= lnt_graph_header(&exchange->graph, frame)->flags;
        for (uint32_t i = 0; i < bytes; i++) {
            section[i] |= more[i];
        }
    }
    return flags;
}

void lnt_exchange_run_serve(lnt_graph_t *graph, uint32_t task, uint64_t arg)
{
    lnt_exchange_t *exchange = graph->owner;
    const lnt_segment_t *segment = &exchange->chunk_segs[arg >> 32];
    uint32_t frame = (uint32_t)arg, s = (uint32_t)(arg >> 32) - exchange->own_serve;
    coder_t coder = coder_of(exchange, segment, frame);
    lnt_piece_t piece = lnt_piece_begin(exchange, segment);
    uint8_t flags = (uint8_t)(graph->flags | merge_frames(exchange, s, frame));
    float stack[LNT_STACK_ELEMS], *values = exchange->big[1] != NULL ? exchange->big[1] : stack;
    float errors[LNT_STACK_ELEMS];

    (void)task;
    set_errors(&coder, &exchange->server, &exchange->server_shadow, exchange->chunk_pos,
               exchange->big_error[1] != NULL ? exchange->big_error[1] : errors);
    coder.seed = seed_of(exchange, SERVER);
    piece.max = exchange->serve_max;
    while (lnt_piece_next(exchange, &piece)) {
        form_mean(exchange, segment, s, &piece, values);
        load_errors(&coder, &piece);
        flags |= code_piece(&coder, &piece, values, false);
        store_errors(&coder, &piece);
    }
    lnt_graph_header(graph, frame)->flags = flags;
}
