/* Every collective over worlds of 1 to 8 ranks (threads, `loop`), node maps, dtypes, codecs, counts, segment sizes, in
 * and out of place, against plain loops over all ranks' inputs: bit by bit, so results are equal on all ranks and do
 * not depend on segments.
 *
 * Each rank draws the same choices and everybody's input from one seed, and computes what it must get.
 */
#include <math.h>
#include <string.h>

#include <linnet/linnet.h>

#include "../../src/base/memory.h"
#include "kernel/half_oracle.h"
#include "testing.h"
#include "thread_ranks.h"

enum { MAX_COUNT = 3000, ROUNDS = 40, DEADLINE_MS = 60000 };

typedef struct world {
    uint32_t n_ranks;
    uint32_t nodes[RANKS_MAX]; /* numbered by smallest rank */
    uint64_t seed;
    bool progress_thread;
} world_t;

static const world_t worlds[] = {
    {.n_ranks = 1},
    {.n_ranks = 2, .nodes = {0, 1}},
    {.n_ranks = 3, .nodes = {0, 1, 2}},
    {.n_ranks = 3, .nodes = {0, 0, 0}},
    {.n_ranks = 4, .nodes = {0, 1, 0, 1}},
    {.n_ranks = 5, .nodes = {0, 0, 0, 1, 1}},
    {.n_ranks = 7, .nodes = {0, 1, 2, 2, 1, 1, 0}},
    {.n_ranks = 8, .nodes = {0, 1, 1, 0, 2, 0, 1, 2}},
    {.n_ranks = 16, .nodes = {0, 1, 2, 3, 0, 1, 2, 0, 3, 3, 2, 1, 0, 0, 1, 2}},
};

typedef enum op { ALLREDUCE, REDUCE_SCATTER, ALLGATHER, BROADCAST, N_OPS } op_t;

typedef struct choice {
    op_t op;
    uint64_t count;
    lnt_dtype_t dtype;
    const char *codec; /* NULL: plain */
    uint32_t block, root;
    lnt_redop_t redop;
    uint64_t segment_bytes;
    bool in_place, persistent, poison;
    uint32_t poisoned_rank;
    uint64_t poisoned_index;
    float poison_value;
} choice_t;

typedef struct side {
    rank_self_t *self;
    const world_t *world;
    lnt_comm_t *comm;
    uint64_t random;
    float *in[RANKS_MAX]; /* all ranks' inputs as f32, n_ranks * MAX_COUNT */
    float *want;
    uint8_t *wire;
    void *input, *output, *before;
} side_t;

static uint64_t draw(side_t *side)
{
    return test_random_from(&side->random);
}

static choice_t draw_choice(side_t *side)
{
    static const char *const codecs[] = {NULL, "sign1", "int8", "bf16", "f32", "int4", "f16", "int4_hadamard"};
    static const uint64_t counts[] = {0, 1, 63, 64, 65, 127, 1000, 2049};
    choice_t c = {.op = (op_t)(draw(side) % N_OPS), .count = counts[draw(side) % 8]};

    if (draw(side) % 2 != 0) {
        c.count = draw(side) % (MAX_COUNT + 1);
    }
    c.dtype = (lnt_dtype_t)(draw(side) % LNT_DTYPE_COUNT);
    c.codec = codecs[draw(side) % 8];
    c.block = 64 * (uint32_t)(1 + draw(side) % 5);
    c.root = (uint32_t)(draw(side) % side->self->n_ranks);
    c.redop = (draw(side) % 2 != 0) ? LNT_SUM : LNT_MEAN;
    c.segment_bytes = (uint64_t[]){0, 256, 1300, 4096}[draw(side) % 4];
    c.in_place = draw(side) % 2 != 0;
    c.persistent = draw(side) % 2 != 0;
    c.poison = (draw(side) % 5 == 0) && (c.count > 0);
    c.poisoned_rank = (c.op == BROADCAST) ? c.root : (uint32_t)(draw(side) % side->self->n_ranks);
    c.poisoned_index = (c.count > 0) ? draw(side) % c.count : 0;
    c.poison_value = (draw(side) % 2 != 0) ? NAN : INFINITY;
    return c;
}

/* ---- 16-bit types by their definition ---------------------------------------------------------------------------- */

static float from_half(lnt_dtype_t dtype, uint16_t half)
{
    return (dtype == LNT_F16) ? oracle_f16_value(half) : oracle_bf16_value(half);
}

static uint16_t to_half(lnt_dtype_t dtype, float value)
{
    return (dtype == LNT_F16) ? oracle_f16(value) : oracle_bf16(value);
}

static void to_dtype(const float *from, uint64_t n, lnt_dtype_t dtype, void *to)
{
    for (uint64_t i = 0; i < n; ++i) {
        if (dtype == LNT_F32) {
            ((float *)to)[i] = from[i];
        } else {
            ((uint16_t *)to)[i] = to_half(dtype, from[i]);
        }
    }
}

static float element(const void *from, lnt_dtype_t dtype, uint64_t i)
{
    return (dtype == LNT_F32) ? ((const float *)from)[i] : from_half(dtype, ((const uint16_t *)from)[i]);
}

/* ---- what must come out ----------------------------------------------------------------------------------------- */

/* x = decode(encode(x)); block by block, so the whole vector at once gives what any segmentation gives. */
static int through_codec(side_t *side, const choice_t *c, const lnt_codec_t *codec, float *x, uint64_t n)
{
    if (c->codec != NULL) {
        RANK_CHECK(lnt_codec_encode(codec, x, LNT_F32, n, NULL, NULL, side->wire) >= 0); /* plain ones pass NaN on */
        RANK_OK(lnt_codec_decode(codec, side->wire, lnt_codec_encoded_size(codec, n), n, x));
    }
    return 0;
}

static void add(float *sum, const float *x, uint64_t n, bool first)
{
    for (uint64_t i = 0; i < n; ++i) {
        sum[i] = first ? x[i] : sum[i] + x[i];
    }
}

static void scale(float *x, uint64_t n, float factor)
{
    for (uint64_t i = 0; i < n; ++i) {
        x[i] *= factor;
    }
}

/* Sum over nodes of coded node sums, coded again. Plain 16-bit elements travel as they are between nodes. */
static int want_allreduce(side_t *side, choice_t c, const lnt_codec_t *codec)
{
    const uint32_t n = side->world->n_ranks;
    uint32_t n_nodes = 0;
    static _Thread_local float sum[MAX_COUNT];

    for (uint32_t r = 0; r < n; ++r) {
        n_nodes = (side->world->nodes[r] + 1 > n_nodes) ? side->world->nodes[r] + 1 : n_nodes;
    }
    c.codec = (n_nodes == 1) ? NULL : (c.codec == NULL) ? lnt_dtype_name(c.dtype) : c.codec;
    for (uint32_t a = 0; a < n_nodes; ++a) {
        bool first = true;

        for (uint32_t r = 0; r < n; ++r) {
            if (side->world->nodes[r] == a) {
                add(sum, side->in[r], c.count, first);
                first = false;
            }
        }
        scale(sum, c.count, (c.redop == LNT_MEAN) ? (float)((double)n_nodes / n) : 1.0f);
        RANK_PASS(through_codec(side, &c, codec, sum, c.count));
        add(side->want, sum, c.count, a == 0);
    }
    scale(side->want, c.count, (c.redop == LNT_MEAN) ? (float)(1.0 / n_nodes) : 1.0f);
    return through_codec(side, &c, codec, side->want, c.count);
}

static int want_reduce_scatter(side_t *side, const choice_t *c, const lnt_codec_t *codec)
{
    static _Thread_local float part[MAX_COUNT];

    for (uint32_t r = 0; r < side->world->n_ranks; ++r) {
        memcpy(part, side->in[r] + side->self->rank * c->count, c->count * sizeof(float));
        RANK_PASS(through_codec(side, c, codec, part, c->count));
        add(side->want, part, c->count, r == 0);
    }
    scale(side->want, c->count, (c->redop == LNT_MEAN) ? (float)(1.0 / side->world->n_ranks) : 1.0f);
    return 0;
}

static int want_copies(side_t *side, const choice_t *c, const lnt_codec_t *codec)
{
    const uint32_t first = (c->op == BROADCAST) ? c->root : 0, n = (c->op == BROADCAST) ? 1 : side->world->n_ranks;

    for (uint32_t i = 0; i < n; ++i) {
        memcpy(side->want + i * c->count, side->in[first + i], c->count * sizeof(float));
        RANK_PASS(through_codec(side, c, codec, side->want + i * c->count, c->count));
    }
    return 0;
}

/* ---- one round -------------------------------------------------------------------------------------------------- */

static uint64_t input_count(const side_t *side, const choice_t *c)
{
    return (c->op == REDUCE_SCATTER) ? c->count * side->world->n_ranks : c->count;
}

static uint64_t output_count(const side_t *side, const choice_t *c)
{
    return (c->op == ALLGATHER) ? c->count * side->world->n_ranks : c->count;
}

static void draw_inputs(side_t *side, const choice_t *c)
{
    const uint64_t n = input_count(side, c);

    for (uint32_t r = 0; r < side->world->n_ranks; ++r) {
        for (uint64_t i = 0; i < n; ++i) {
            float x = (float)((double)(int64_t)draw(side) * 0x1p-63) * ((draw(side) % 16 == 0) ? 100.0f : 1.0f);

            side->in[r][i] = (draw(side) % 20 == 0)  ? 0.0f
                             : (c->dtype == LNT_F32) ? x
                                                     : from_half(c->dtype, to_half(c->dtype, x));
        }
        if (c->poison && (r == c->poisoned_rank)) {
            side->in[r][c->poisoned_index] = c->poison_value;
        }
    }
    to_dtype(side->in[side->self->rank], n, c->dtype, side->input);
}

static int run(side_t *side, const choice_t *c, const lnt_coll_params_t *params, const void *input, void *output,
               lnt_status_t *status_p)
{
    lnt_request_t *request;
    lnt_comm_t *comm = side->comm;

    if (!c->persistent) {
        *status_p = (c->op == ALLREDUCE)        ? lnt_allreduce(comm, input, output, c->count, c->dtype, params)
                    : (c->op == REDUCE_SCATTER) ? lnt_reduce_scatter(comm, input, output, c->count, c->dtype, params)
                    : (c->op == ALLGATHER)      ? lnt_allgather(comm, input, output, c->count, c->dtype, params)
                                                : lnt_broadcast(comm, output, c->count, c->dtype, c->root, params);
        return 0;
    }
    RANK_OK((c->op == ALLREDUCE)        ? lnt_allreduce_init(comm, c->count, c->dtype, params, &request)
            : (c->op == REDUCE_SCATTER) ? lnt_reduce_scatter_init(comm, c->count, c->dtype, params, &request)
            : (c->op == ALLGATHER)      ? lnt_allgather_init(comm, c->count, c->dtype, params, &request)
                                        : lnt_broadcast_init(comm, c->count, c->dtype, c->root, params, &request));
    RANK_CHECK(lnt_request_wait(request) == LNT_ERR_INVALID_USAGE);
    RANK_OK(lnt_request_start(request, input, output));
    do {
        *status_p = lnt_request_test(request);
    } while (*status_p == LNT_IN_PROGRESS);
    RANK_CHECK(lnt_request_wait(request) == *status_p);
    RANK_OK(lnt_request_destroy(request));
    return 0;
}

/* Plain NaNs come out wherever they belong; elsewhere bits count. */
static int compare(const side_t *side, const choice_t *c, const void *output)
{
    const uint64_t n = output_count(side, c);
    const size_t size = lnt_dtype_size(c->dtype);
    uint8_t want[sizeof(float)];

    for (uint64_t i = 0; i < n; ++i) {
        to_dtype(side->want + i, 1, c->dtype, want);
        if (isnan(side->want[i])) {
            RANK_CHECK(isnan(element(output, c->dtype, i)));
        } else if (memcmp((const uint8_t *)output + i * size, want, size) != 0) {
            fprintf(stderr, "op %d codec %s dtype %d count %llu element %llu: %.9g, not %.9g\n", c->op,
                    c->codec ? c->codec : "-", c->dtype, (unsigned long long)c->count, (unsigned long long)i,
                    (double)element(output, c->dtype, i), (double)side->want[i]);
            return 1;
        }
    }
    return 0;
}

static int play(side_t *side)
{
    choice_t c = draw_choice(side);
    const size_t size = lnt_dtype_size(c.dtype);
    lnt_codec_params_t cp = {
        .struct_size = sizeof(cp), .name = c.codec ? c.codec : lnt_dtype_name(c.dtype), .block = c.block};
    lnt_coll_params_t params = {.struct_size = sizeof(params), .op = c.redop, .segment_bytes = c.segment_bytes};
    lnt_codec_t *codec;
    lnt_status_t status;
    void *output = (c.in_place || (c.op == BROADCAST)) ? side->input : side->output;
    const bool skip = c.poison && (c.codec != NULL);

    RANK_OK(lnt_codec_create(&cp, &codec));
    params.codec = (c.codec != NULL) ? codec : NULL;
    draw_inputs(side, &c);
    memcpy(side->before, output, output_count(side, &c) * size);
    RANK_PASS(run(side, &c, &params, side->input, output, &status));
    RANK_CHECK(status == (skip ? LNT_SKIPPED_NONFINITE : LNT_OK));
    if (skip) {
        RANK_CHECK(memcmp(side->before, output, output_count(side, &c) * size) == 0);
    } else {
        RANK_PASS((c.op == ALLREDUCE)        ? want_allreduce(side, c, codec)
                  : (c.op == REDUCE_SCATTER) ? want_reduce_scatter(side, &c, codec)
                                             : want_copies(side, &c, codec));
        RANK_PASS(compare(side, &c, output));
    }
    lnt_codec_destroy(codec);
    return 0;
}

static int open_world(side_t *side, lnt_context_t **context_p)
{
    lnt_context_params_t params = {.struct_size = sizeof(params),
                                   .progress_thread = side->world->progress_thread ? LNT_ON : LNT_OFF};
    lnt_comm_params_t comm = {.struct_size = sizeof(comm), .bootstrap = &side->self->bootstrap, .timeout_ms = 20000};
    char node[16];

    snprintf(node, sizeof(node), "node%u", side->world->nodes[side->self->rank]);
    comm.node = node;
    RANK_OK(lnt_context_create(&params, context_p));
    RANK_OK(lnt_comm_create(*context_p, &comm, &side->comm));
    RANK_CHECK(side->self->bootstrap.allgather(side->self->bootstrap.arg, "here", node, 1) ==
               0); /* all have come so far */
    return 0;
}

static int close_world(side_t *side, lnt_context_t *context)
{
    RANK_OK(lnt_comm_destroy(side->comm));
    RANK_OK(lnt_context_destroy(context));
    return 0;
}

static void allocate(side_t *side)
{
    const size_t n = (size_t)side->world->n_ranks * (MAX_COUNT + 1);

    for (uint32_t r = 0; r < side->world->n_ranks; ++r) {
        side->in[r] = calloc(n, sizeof(float));
    }
    side->want = calloc(n, sizeof(float));
    side->wire = calloc(n, 2 * sizeof(float));
    side->input = calloc(n, sizeof(float));
    side->output = calloc(n, sizeof(float));
    side->before = calloc(n, sizeof(float));
}

static void release(side_t *side)
{
    for (uint32_t r = 0; r < side->world->n_ranks; ++r) {
        free(side->in[r]);
    }
    free(side->want);
    free(side->wire);
    free(side->input);
    free(side->output);
    free(side->before);
}

static int body(rank_self_t *self)
{
    side_t side = {.self = self, .world = self->arg, .random = ((const world_t *)self->arg)->seed};
    lnt_context_t *context;

    allocate(&side);
    RANK_PASS(open_world(&side, &context));
    for (uint32_t i = 0; i < ROUNDS * 8 / (8 + self->n_ranks); ++i) {
        RANK_PASS(play(&side));
    }
    RANK_OK(lnt_barrier(side.comm));
    RANK_PASS(close_world(&side, context));
    release(&side);
    return 0;
}

START_TEST(random_calls)
{
    world_t world = worlds[_i];

    world.seed = test_random() + (uint64_t)_i;
    world.progress_thread = test_random_below(2) != 0;
    ck_assert_uint_eq(thread_ranks(world.n_ranks, body, &world, DEADLINE_MS), 0);
}
END_TEST

/* ---- finite values with a result that is not --------------------------------------------------------------------- */

/* Rank 1's part alone overflows, in its last segment; all ranks must be told, and nothing be written. */
static int overflow_body(rank_self_t *self)
{
    enum { PER_RANK = 300 };
    side_t side = {.self = self, .world = self->arg};
    const lnt_dtype_t dtype = (lnt_dtype_t)(side.world->seed % LNT_DTYPE_COUNT);
    const bool scatter = side.world->seed / LNT_DTYPE_COUNT % 2 != 0;
    lnt_codec_params_t cp = {.struct_size = sizeof(cp), .name = "f32", .block = 64};
    lnt_coll_params_t params = {.struct_size = sizeof(params), .op = LNT_SUM, .segment_bytes = 512};
    const uint64_t n = (uint64_t)PER_RANK * self->n_ranks;
    float values[PER_RANK * 4] = {0};
    lnt_context_t *context;
    lnt_codec_t *codec;
    lnt_status_t status;

    allocate(&side);
    RANK_PASS(open_world(&side, &context));
    RANK_OK(lnt_codec_create(&cp, &codec));
    params.codec = codec;
    /* 16 bits: two ranks give a sum that f32 holds and the type does not */
    values[2 * PER_RANK - 1] = (dtype == LNT_F32)  ? 3e38f
                               : (self->rank == 0) ? ((dtype == LNT_BF16) ? 3.3895314e38f : 65504)
                               : (self->rank == 1) ? ((dtype == LNT_BF16) ? 1e36f : 20)
                                                   : 0;
    to_dtype(values, n, dtype, side.input);
    memset(side.output, 7, n * sizeof(float));
    memcpy(side.before, side.output, n * sizeof(float));
    status = scatter ? lnt_reduce_scatter(side.comm, side.input, side.output, PER_RANK, dtype, &params)
                     : lnt_allreduce(side.comm, side.input, side.output, n, dtype, &params);
    RANK_CHECK(status == LNT_SKIPPED_NONFINITE);
    RANK_CHECK(memcmp(side.before, side.output, n * sizeof(float)) == 0);
    lnt_codec_destroy(codec);
    RANK_PASS(close_world(&side, context));
    release(&side);
    return 0;
}

START_TEST(results_that_are_not_finite_are_voted_on)
{
    world_t world = {.n_ranks = 3, .nodes = {0, 1, 1}, .progress_thread = true, .seed = (uint64_t)_i};

    ck_assert_uint_eq(thread_ranks(3, overflow_body, &world, DEADLINE_MS), 0);
}
END_TEST

/* ---- rounding by chance ----------------------------------------------------------------------------------------- */

/* One call with the same value everywhere, a quarter of the way between two numbers of the codec. */
static int roll(side_t *side, int kind, const lnt_coll_params_t *params, uint64_t n, float value, float *out)
{
    const uint32_t n_ranks = side->world->n_ranks;

    for (uint64_t i = 0; i < n * n_ranks; ++i) {
        ((float *)side->input)[i] = value;
    }
    RANK_OK((kind == 0)   ? lnt_allreduce(side->comm, side->input, out, n * n_ranks, LNT_F32, params)
            : (kind == 1) ? lnt_reduce_scatter(side->comm, side->input, out, n, LNT_F32, params)
            : (kind == 2)
                ? lnt_allgather(side->comm, side->input, out, n, LNT_F32, params)
                : lnt_broadcast(side->comm, memcpy(out, side->input, n * sizeof(float)), n, LNT_F32, 0, params));
    return 0;
}

/* Every result is next to the value; one in four is above it, so the mean over n is off by 4 sigma at most, sigma =
 * unit * sqrt(3 / 16 / n) for one rounding and less than twice that for the two of all-reduce. The random numbers
 * follow from the calls made before: nothing here changes from run to run. */
static int check_rolls(const float *out, uint64_t n, float value, float unit)
{
    double sum = 0;

    for (uint64_t i = 0; i < n; ++i) {
        RANK_CHECK(fabsf(out[i] - value) < unit);
        sum += (double)out[i] - (double)value;
    }
    RANK_CHECK(fabs(sum / (double)n) < 4 * 2 * (double)unit * sqrt(3.0 / 16 / (double)n));
    return 0;
}

/* No two runs, sources or parts share random numbers: equal results of two would agree in 10 of 16 places. */
static int check_apart(const float *a, const float *b, uint64_t n)
{
    uint64_t same = 0;

    for (uint64_t i = 0; i < n; ++i) {
        same += a[i] == b[i];
    }
    RANK_CHECK(same < n * 3 / 4);
    return 0;
}

static int chance_body(rank_self_t *self)
{
    enum { PER_RANK = 600 };
    side_t side = {.self = self, .world = self->arg};
    const bool f16 = side.world->seed % 2 != 0;
    const float unit = f16 ? 0x1p-10f : 0x1p-7f, value = 1 + unit / 4;
    lnt_codec_params_t cp = {.struct_size = sizeof(cp), .name = f16 ? "f16_sr" : "bf16_sr", .block = 64};
    lnt_coll_params_t params = {.struct_size = sizeof(params), .segment_bytes = 512};
    lnt_context_t *context;
    lnt_codec_t *codec;

    allocate(&side);
    RANK_PASS(open_world(&side, &context));
    RANK_OK(lnt_codec_create(&cp, &codec));
    params.codec = codec;
    for (int kind = 0; kind < 4; ++kind) {
        const uint64_t n = (kind % 2 == 0) ? (uint64_t)PER_RANK * self->n_ranks : PER_RANK;

        RANK_PASS(roll(&side, kind, &params, PER_RANK, value, side.output));
        RANK_PASS(check_rolls(side.output, n, value, unit));
        RANK_PASS(roll(&side, kind, &params, PER_RANK, value, side.want));
        RANK_PASS(check_apart(side.output, side.want, n));
        for (uint32_t r = 1; (kind % 2 == 0) && (r < self->n_ranks); ++r) {
            RANK_PASS(check_apart(side.output, (float *)side.output + r * PER_RANK, PER_RANK));
        }
        RANK_OK(lnt_allgather(side.comm, side.output, side.in[0], (kind == 1) ? 0 : n, LNT_F32, NULL));
        for (uint32_t r = 0; (kind != 1) && (r < self->n_ranks); ++r) {
            RANK_CHECK(memcmp(side.in[0] + r * n, side.output, n * sizeof(float)) == 0);
        }
    }
    lnt_codec_destroy(codec);
    RANK_PASS(close_world(&side, context));
    release(&side);
    return 0;
}

START_TEST(rounding_by_chance_is_fair_and_never_repeats)
{
    world_t world = {.n_ranks = 3, .nodes = {0, 1, 2}, .progress_thread = true, .seed = (uint64_t)_i};

    ck_assert_uint_eq(thread_ranks(3, chance_body, &world, DEADLINE_MS), 0);
}
END_TEST

/* ---- counted bytes ---------------------------------------------------------------------------------------------- */

static int bytes_body(rank_self_t *self)
{
    side_t side = {.self = self, .world = self->arg};
    lnt_codec_params_t cp = {.struct_size = sizeof(cp), .name = "sign1", .block = 128};
    lnt_coll_params_t params = {.struct_size = sizeof(params), .segment_bytes = 2000};
    lnt_comm_stats_t stats = {.struct_size = sizeof(stats)};
    lnt_context_t *context;
    lnt_codec_t *codec;
    uint64_t intra, inter;

    allocate(&side);
    RANK_PASS(open_world(&side, &context));
    RANK_OK(lnt_codec_create(&cp, &codec));
    for (int i = 0; i < 8; ++i) {
        lnt_request_t *request;

        params.codec = (i % 2 != 0) ? codec : NULL;
        RANK_OK((i / 2 == 0)   ? lnt_allreduce_init(side.comm, 2111, LNT_F32, &params, &request)
                : (i / 2 == 1) ? lnt_reduce_scatter_init(side.comm, 2111, LNT_F32, &params, &request)
                : (i / 2 == 2) ? lnt_allgather_init(side.comm, 2111, LNT_F32, &params, &request)
                               : lnt_broadcast_init(side.comm, 2111, LNT_F32, 0, &params, &request));
        RANK_OK(lnt_request_wire_bytes(request, &intra, &inter));
        RANK_OK(lnt_comm_get_stats(side.comm, &stats, true));
        RANK_OK(lnt_request_start(request, side.input, side.output));
        RANK_OK(lnt_request_wait(request));
        RANK_OK(lnt_comm_get_stats(side.comm, &stats, false));
        RANK_CHECK((stats.wire_bytes_intra == intra) && (stats.wire_bytes_inter == inter));
        RANK_OK(lnt_request_destroy(request));
    }
    lnt_codec_destroy(codec);
    RANK_PASS(close_world(&side, context));
    release(&side);
    return 0;
}

START_TEST(bytes_are_what_was_said)
{
    world_t world = worlds[5];

    world.progress_thread = true;
    ck_assert_uint_eq(thread_ranks(world.n_ranks, bytes_body, &world, DEADLINE_MS), 0);
}
END_TEST

/* ---- failing allocations ---------------------------------------------------------------------------------------- */

static lnt_status_t init_kind(side_t *side, int kind, const lnt_coll_params_t *params, lnt_request_t **request_p)
{
    const lnt_dtype_t dtype = (kind % 2 != 0) ? LNT_F16 : LNT_F32;

    return (kind / 2 == 0)   ? lnt_allreduce_init(side->comm, 999, dtype, params, request_p)
           : (kind / 2 == 1) ? lnt_reduce_scatter_init(side->comm, 999, dtype, params, request_p)
           : (kind / 2 == 2) ? lnt_allgather_init(side->comm, 999, dtype, params, request_p)
                             : lnt_broadcast_init(side->comm, 999, dtype, 0, params, request_p);
}

/* Every allocation of every kind of request in turn: a named error, nothing left, nothing written. */
static int memory_body(rank_self_t *self)
{
    side_t side = {.self = self, .world = self->arg};
    lnt_codec_params_t cp = {.struct_size = sizeof(cp), .name = "sign1", .block = 64};
    lnt_coll_params_t params = {.struct_size = sizeof(params), .segment_bytes = 1000};
    lnt_request_t *request = NULL;
    lnt_context_t *context;
    lnt_codec_t *codec;

    RANK_PASS(open_world(&side, &context));
    RANK_OK(lnt_codec_create(&cp, &codec));
    params.codec = codec;
    RANK_OK(init_kind(&side, 0, &params, &request)); /* what the communicator keeps is there from now on */
    RANK_OK(lnt_request_destroy(request));
    for (int kind = 0; kind < 8; ++kind) {
        const uint64_t live = lnt_memory_live();
        lnt_status_t status = LNT_ERR_NO_MEMORY;

        for (uint64_t k = 1; status == LNT_ERR_NO_MEMORY; ++k) {
            request = NULL;
            lnt_memory_fail_after(k);
            status = init_kind(&side, kind, &params, &request);
            lnt_memory_fail_after(0);
            RANK_CHECK((status == LNT_ERR_NO_MEMORY) ? (request == NULL) && (lnt_memory_live() == live)
                                                     : status == LNT_OK);
        }
        RANK_OK(lnt_request_destroy(request));
        RANK_CHECK(lnt_memory_live() == live);
    }
    lnt_codec_destroy(codec);
    return close_world(&side, context);
}

START_TEST(allocations_may_fail)
{
    world_t world = {.n_ranks = 1, .progress_thread = true};

    ck_assert_uint_eq(thread_ranks(1, memory_body, &world, DEADLINE_MS), 0);
}
END_TEST

/* ---- misuse and disagreement ------------------------------------------------------------------------------------ */

static int misuse_body(rank_self_t *self)
{
    side_t side = {.self = self, .world = self->arg};
    lnt_coll_params_t params = {.struct_size = sizeof(params)};
    lnt_context_t *context;
    lnt_request_t *request = NULL;
    float x[4] = {1, 2, 3, 4}, y[4];

    RANK_PASS(open_world(&side, &context));
    RANK_CHECK(lnt_allreduce(side.comm, x, y, 4, (lnt_dtype_t)LNT_DTYPE_COUNT, NULL) == LNT_ERR_INVALID_ARG);
    RANK_CHECK(lnt_allreduce(side.comm, NULL, y, 4, LNT_F32, NULL) == LNT_ERR_INVALID_ARG);
    RANK_CHECK(lnt_broadcast(side.comm, y, 4, LNT_F32, 9, NULL) == LNT_ERR_INVALID_ARG);
    params.struct_size = 3;
    RANK_CHECK(lnt_allreduce(side.comm, x, y, 4, LNT_F32, &params) == LNT_ERR_VERSION);
    RANK_CHECK(lnt_allreduce_init(side.comm, UINT64_MAX, LNT_F32, NULL, &request) == LNT_ERR_OUT_OF_RANGE);
    RANK_CHECK(request == NULL);
    RANK_OK(lnt_allreduce_init(side.comm, 4, LNT_F32, NULL, &request));
    RANK_CHECK(lnt_request_test(request) == LNT_ERR_INVALID_USAGE);
    RANK_CHECK(lnt_comm_destroy(side.comm) == LNT_ERR_INVALID_USAGE);
    if (self->rank == 0) { /* rank 1 is not there yet */
        RANK_OK(lnt_request_start(request, x, y));
        RANK_CHECK(lnt_request_test(request) == LNT_IN_PROGRESS);
        RANK_CHECK(lnt_request_start(request, x, y) == LNT_ERR_INVALID_USAGE);
        RANK_CHECK(lnt_request_destroy(request) == LNT_ERR_INVALID_USAGE);
        atomic_store(&self->world->flags[0], 1);
    } else {
        while (atomic_load(&self->world->flags[0]) == 0) {
            rank_nap_us(1000);
        }
        RANK_OK(lnt_request_start(request, x, y));
    }
    RANK_OK(lnt_request_wait(request));
    RANK_CHECK((y[0] == 1.0f) && (y[3] == 4.0f));
    RANK_OK(lnt_request_start(request, x, x)); /* again, in place */
    RANK_OK(lnt_request_wait(request));
    RANK_OK(lnt_request_destroy(request));
    RANK_OK(lnt_request_destroy(NULL));
    return close_world(&side, context);
}

START_TEST(states_and_arguments)
{
    world_t world = {.n_ranks = 2, .nodes = {0, 1}, .progress_thread = true};

    ck_assert_uint_eq(thread_ranks(2, misuse_body, &world, DEADLINE_MS), 0);
}
END_TEST

/* Rank 1 differs from the others in one argument (the seed says which): both sides must say so. */
static int mismatch_body(rank_self_t *self)
{
    side_t side = {.self = self, .world = self->arg};
    const uint64_t kind = side.world->seed;
    const bool odd = self->rank == 1;
    lnt_codec_params_t cp = {.struct_size = sizeof(cp),
                             .name = (odd && (kind == 1)) ? "int8" : "sign1",
                             .block = (odd && kind == 2) ? 128 : 64};
    lnt_coll_params_t params = {.struct_size = sizeof(params), .op = (odd && (kind == 3)) ? LNT_SUM : LNT_MEAN};
    lnt_request_t *request = NULL;
    lnt_context_t *context;
    lnt_codec_t *codec;
    lnt_status_t status;

    allocate(&side);
    RANK_PASS(open_world(&side, &context));
    RANK_OK(lnt_codec_create(&cp, &codec));
    params.codec = codec;
    if (odd && (kind == 4)) {
        status = lnt_allgather_init(side.comm, 400, LNT_F32, &params, &request);
    } else {
        status = lnt_allreduce_init(side.comm, (odd && (kind == 0)) ? 401 : 400, LNT_F32, &params, &request);
    }
    if (status == LNT_OK) { /* others may have found the difference already */
        status = lnt_request_start(request, side.input, side.output);
    }
    if (status == LNT_OK) {
        status = lnt_request_wait(request);
    }
    RANK_CHECK(status == LNT_ERR_MISMATCH);
    RANK_CHECK(lnt_last_error()->status == LNT_ERR_MISMATCH);
    RANK_CHECK(strstr(lnt_last_error()->cause, "count") != NULL);
    RANK_CHECK(lnt_barrier(side.comm) == LNT_ERR_MISMATCH);
    RANK_OK(lnt_request_destroy(request));
    lnt_codec_destroy(codec);
    RANK_PASS(close_world(&side, context));
    release(&side);
    return 0;
}

START_TEST(differences_are_named)
{
    world_t world = {.n_ranks = 3, .nodes = {0, 1, 2}, .progress_thread = true, .seed = (uint64_t)_i};

    ck_assert_uint_eq(thread_ranks(3, mismatch_body, &world, DEADLINE_MS), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("collectives");
    TCase *tcase = tcase_create("collectives");

    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, random_calls, 0, (int)(sizeof(worlds) / sizeof(worlds[0])));
    tcase_add_loop_test(tcase, results_that_are_not_finite_are_voted_on, 0, 2 * LNT_DTYPE_COUNT);
    tcase_add_loop_test(tcase, rounding_by_chance_is_fair_and_never_repeats, 0, 2);
    tcase_add_test(tcase, bytes_are_what_was_said);
    tcase_add_test(tcase, allocations_may_fail);
    tcase_add_test(tcase, states_and_arguments);
    tcase_add_loop_test(tcase, differences_are_named, 0, 5);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
