/* The operations, as the library executes them: what they read and write, and how a thread does its part.
 *
 * Codecs work on a whole part in one call; momentum_ef and server go through pieces in cache as the tasks of the
 * exchange do (src/coll/exchange_tasks.c), and the frozen step gets its values from a cached piece as the commit does.
 */
#include <string.h>

#include "../optim/update.h"
#include "../src/coll/exchange_internal.h"
#include "codec_perf.h"

static const lnt_adam_consts_t adam_consts = {
    .b1 = 0.9f, .o1 = 0.1f, .b2 = 0.999f, .o2 = 0.001f, .i1 = 1.1f, .i2 = 1.2f, .lr = 1e-3f, .eps = 1e-8f, .w = 1e-5f};

uint64_t codec_piece(const codec_case_t *test)
{
    return test->row == NULL ? LNT_SPAN_MAX : lnt_piece_elems(test->cfg.block, LNT_STACK_ELEMS);
}

static float *floats_at(const codec_case_t *test, codec_array_t id, uint64_t first)
{
    return (float *)(void *)codec_at(test, id, first);
}

static float *values_of(const codec_case_t *test, const codec_part_t *part)
{
    return test->values + part->thread * test->piece;
}

/* ---- encode ---- */

static lnt_encode_in_t input_of(const codec_case_t *test, const codec_part_t *part)
{
    return (lnt_encode_in_t){.values = codec_at(test, ARRAY_INPUT, part->first),
                             .dtype = test->dtype,
                             .n = part->n,
                             .seed = CODEC_CHANCE_SEED,
                             .index = part->first};
}

static lnt_encode_out_t output_of(const codec_case_t *test, const codec_part_t *part)
{
    return (lnt_encode_out_t){.scales = codec_at(test, ARRAY_SCALES, part->first),
                              .codes = codec_at(test, ARRAY_CODES, part->first),
                              .stream = test->stream};
}

static void run_encode(const codec_case_t *test, const codec_lane_t *lane, const codec_part_t *part)
{
    lnt_encode_in_t in = input_of(test, part);
    lnt_encode_out_t out = output_of(test, part);

    lane->ops.encode(&test->cfg, &in, &out);
}

static void run_encode_ef(const codec_case_t *test, const codec_lane_t *lane, const codec_part_t *part)
{
    lnt_encode_in_t in = input_of(test, part);
    lnt_encode_out_t out = output_of(test, part);

    out.error_out = floats_at(test, ARRAY_ERROR, part->first);
    in.error_in = out.error_out;
    lane->ops.encode(&test->cfg, &in, &out);
}

static void run_encode_ef_shadow(const codec_case_t *test, const codec_lane_t *lane, const codec_part_t *part)
{
    lnt_encode_in_t in = input_of(test, part);
    lnt_encode_out_t out = output_of(test, part);

    in.error_in = floats_at(test, ARRAY_ERROR, part->first);
    out.error_out = floats_at(test, ARRAY_SHADOW, part->first);
    lane->ops.encode(&test->cfg, &in, &out);
}

/* ---- in pieces ---- */

typedef void (*piece_fn_t)(const codec_case_t *test, const codec_lane_t *lane, const codec_part_t *piece);

static void each_piece(const codec_case_t *test, const codec_lane_t *lane, const codec_part_t *part, uint64_t most,
                       piece_fn_t run)
{
    for (uint64_t done = 0; done < part->n; done += most) {
        uint64_t left = part->n - done;
        codec_part_t piece = {part->first + done, left < most ? left : most, part->thread};

        run(test, lane, &piece);
    }
}

/* Widen, factor and finite check; momentum form; code with a shadow of the error. */
static void momentum_piece(const codec_case_t *test, const codec_lane_t *lane, const codec_part_t *piece)
{
    lnt_encode_in_t in = input_of(test, piece);
    lnt_encode_out_t out = output_of(test, piece);
    float *values = values_of(test, piece);

    out.poisoned = !lnt_arrays()->widen_scaled[test->dtype](in.values, piece->n, CODEC_FACTOR, values);
    lnt_updates()->momentum(&adam_consts, floats_at(test, ARRAY_M, piece->first), piece->n, values);
    in.values = values;
    in.dtype = LNT_F32;
    in.error_in = floats_at(test, ARRAY_ERROR, piece->first);
    out.error_out = floats_at(test, ARRAY_SHADOW, piece->first);
    lane->ops.encode(&test->cfg, &in, &out);
}

static void run_momentum_ef(const codec_case_t *test, const codec_lane_t *lane, const codec_part_t *part)
{
    each_piece(test, lane, part, test->piece, momentum_piece);
}

/* ---- decode ---- */

static lnt_coded_run_t coded_run(const codec_case_t *test, uint64_t first, uint32_t r)
{
    uint64_t scale_bytes = test->array_bytes[ARRAY_RUN_SCALES] / test->n_runs;
    uint64_t code_bytes = test->array_bytes[ARRAY_RUN_CODES] / test->n_runs;
    const uint8_t *scales = codec_at(test, ARRAY_RUN_SCALES, first);

    return (lnt_coded_run_t){.scales = scales == NULL ? NULL : scales + r * scale_bytes,
                             .codes = codec_at(test, ARRAY_RUN_CODES, first) + r * code_bytes};
}

static void run_decode(const codec_case_t *test, const codec_lane_t *lane, const codec_part_t *part)
{
    lnt_coded_run_t run = coded_run(test, part->first, 0);

    lane->ops.decode(&test->cfg, run.scales, run.codes, part->n, NULL, floats_at(test, ARRAY_OUTPUT, part->first));
}

static void run_decode_add(const codec_case_t *test, const codec_lane_t *lane, const codec_part_t *part)
{
    lnt_coded_run_t run = coded_run(test, part->first, 0);

    lane->ops.decode_add(&test->cfg, run.scales, run.codes, part->n, NULL, floats_at(test, ARRAY_OUTPUT, part->first));
}

/* Sum of the runs, factor, code with the error in place. */
static void server_piece(const codec_case_t *test, const codec_lane_t *lane, const codec_part_t *piece)
{
    lnt_coded_run_t runs[CODEC_RUNS_MAX];
    lnt_encode_out_t out = output_of(test, piece);
    float *values = values_of(test, piece);
    lnt_encode_in_t in = {
        .values = values, .dtype = LNT_F32, .n = piece->n, .seed = CODEC_CHANCE_SEED, .index = piece->first};

    for (uint32_t r = 0; r < test->n_runs; r++)
        runs[r] = coded_run(test, piece->first, r);
    lane->ops.decode_sum(&test->cfg, runs, test->n_runs, piece->n, NULL, false, values);
    (void)lnt_arrays()->scale(values, piece->n, CODEC_FACTOR); /* coding checks */
    out.error_out = floats_at(test, ARRAY_ERROR, piece->first);
    in.error_in = out.error_out;
    lane->ops.encode(&test->cfg, &in, &out);
}

static void run_server(const codec_case_t *test, const codec_lane_t *lane, const codec_part_t *part)
{
    each_piece(test, lane, part, lnt_piece_elems(test->cfg.block, LNT_SERVE_ELEMS), server_piece);
}

/* ---- update rules ---- */

static void run_adam(const codec_case_t *test, const codec_lane_t *lane, const codec_part_t *part)
{
    (void)lane;
    lnt_updates()->adam(&adam_consts, floats_at(test, ARRAY_G, part->first), NULL, part->n,
                        floats_at(test, ARRAY_M, part->first), floats_at(test, ARRAY_V, part->first),
                        floats_at(test, ARRAY_X, part->first));
}

/* Element i gets value i modulo LNT_SPAN_MAX, so that results do not depend on the number of threads. */
static void run_frozen(const codec_case_t *test, const codec_lane_t *lane, const codec_part_t *part)
{
    (void)lane;
    for (uint64_t i = part->first, end = part->first + part->n; i < end;) {
        uint64_t from = i % LNT_SPAN_MAX, left = end - i;
        uint64_t n = left < LNT_SPAN_MAX - from ? left : LNT_SPAN_MAX - from;

        lnt_updates()->frozen(&adam_consts, values_of(test, part) + from, floats_at(test, ARRAY_DENOMINATOR, i),
                              codec_at(test, ARRAY_DEAD, i), test->stream, n, floats_at(test, ARRAY_M, i),
                              floats_at(test, ARRAY_X, i));
        i += n;
    }
}

/* ---- the table ---- */

#define SET(_id) (1u << ARRAY_##_id)
#define WIRE (SET(SCALES) | SET(CODES))
#define RUNS (SET(RUN_SCALES) | SET(RUN_CODES))

static const codec_op_t ops[] = {
    {.name = "encode", .doc = "code a run", .reads = SET(INPUT), .writes = WIRE, .run = run_encode},
    {.name = "encode_ef",
     .doc = "code with error feedback, the error in place",
     .reads = SET(INPUT) | SET(ERROR),
     .writes = SET(ERROR) | WIRE,
     .feedback = true,
     .run = run_encode_ef},
    {.name = "encode_ef_shadow",
     .doc = "the new error goes to another array",
     .reads = SET(INPUT) | SET(ERROR),
     .writes = SET(SHADOW) | WIRE,
     .feedback = true,
     .streams = true,
     .run = run_encode_ef_shadow},
    {.name = "momentum_ef",
     .doc = "factor, momentum form and code with a shadow error, in the pieces of the exchange",
     .reads = SET(INPUT) | SET(M) | SET(ERROR),
     .writes = SET(SHADOW) | WIRE,
     .feedback = true,
     .elementwise = true,
     .streams = true,
     .run = run_momentum_ef},
    {.name = "decode", .doc = "decode a run", .reads = RUNS, .writes = SET(OUTPUT), .run = run_decode},
    {.name = "decode_add",
     .doc = "decode and add",
     .reads = RUNS | SET(OUTPUT),
     .writes = SET(OUTPUT),
     .run = run_decode_add},
    {.name = "server",
     .doc = "mean of --inputs runs, coded again with the error in place, in the pieces of the exchange",
     .reads = RUNS | SET(ERROR),
     .writes = SET(ERROR) | WIRE,
     .feedback = true,
     .several = true,
     .elementwise = true,
     .run = run_server},
    {.name = "step",
     .doc = "a step of Adam",
     .rule = "adam",
     .reads = SET(G) | SET(M) | SET(V) | SET(X),
     .writes = SET(M) | SET(V) | SET(X),
     .run = run_adam},
    {.name = "frozen",
     .doc = "the step of 1-bit Adam behind the freeze, from decoded values in cache",
     .rule = "onebit_step",
     .reads = SET(DENOMINATOR) | SET(DEAD) | SET(X),
     .writes = SET(M) | SET(X),
     .streams = true,
     .run = run_frozen},
};

const codec_op_t *codec_ops(size_t *n_ops_p)
{
    *n_ops_p = sizeof(ops) / sizeof(ops[0]);
    return ops;
}

bool codec_op_fits(const codec_op_t *op, const char *codec)
{
    const lnt_codec_row_t *row = lnt_codec_row_by_name(codec);

    if (op->rule != NULL) return strcmp(op->rule, codec) == 0;
    return row != NULL && (row->has_feedback || !op->feedback);
}

bool codec_op_has_dtype(const codec_op_t *op)
{
    return (op->reads & SET(INPUT)) != 0;
}
