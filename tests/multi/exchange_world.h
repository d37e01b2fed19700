/* A world of exchanges for tests: the ranks of a random map, each with its executor, over a network in memory, one
 * exchange per rank and bucket, and the oracle beside them. Stage functions are elementwise; a spy on encoders notes
 * what they are told. Included by one program.
 */
#ifndef TESTS_MULTI_EXCHANGE_WORLD_H
#define TESTS_MULTI_EXCHANGE_WORLD_H

#include <check.h>
#include <stdio.h>

#include "../../src/base/memory.h"
#include "../../src/coll/exchange.h"
#include "../exchange_oracle.h"
#include "../fake_net.h"
enum { BUCKETS = 2, THREADS = 5 };

typedef struct bucket {
    oracle_t oracle;
    lnt_extent_t extents[ORACLE_EXTENTS];
    lnt_exchange_t *exchange[FAKE_RANKS];
    lnt_source_t sources[FAKE_RANKS][ORACLE_EXTENTS];
    float *values[FAKE_RANKS]; /* [N]; as 16-bit elements in its first half where the source says so */
    float *more[FAKE_RANKS];   /* accumulated */
    float *bias;
    uint8_t *live;
    struct world *world;
} bucket_t;

typedef struct world {
    fake_net_t net;
    fake_rank_t at[FAKE_RANKS];
    lnt_topo_t *topo;
    lnt_pool_t *pool;
    uint64_t min_elems; /* of a task for a helper */
    uint32_t n, n_buckets;
    bucket_t bucket[BUCKETS];
    lnt_graph_t *graphs[FAKE_RANKS][BUCKETS];
    _Atomic uint8_t ready[FAKE_RANKS][BUCKETS];
    lnt_job_t job[FAKE_RANKS];
    bool own_local; /* the stage has a produce_local */
    lnt_dtype_t dtype;
} world_t;

static world_t world;
static bool no_helpers;

static uint64_t draw(uint64_t n)
{
    return fake_random(&world.net) % n;
}

/* --- stage functions: elementwise, in place ------------------------------------------------------------------------
 */

static uint64_t pos_of(const bucket_t *bucket, const lnt_span_t *span)
{
    uint64_t pos = 0;

    for (uint32_t t = 0; t < span->tensor; t++) {
        pos += bucket->extents[t].count;
    }
    ck_assert_uint_le(span->offset + span->count,
                      bucket->extents[span->tensor].offset + bucket->extents[span->tensor].count);
    ck_assert_uint_le(span->count, LNT_SPAN_MAX);
    ck_assert(bucket->oracle.packed || span->offset % bucket->oracle.block == 0);
    return pos + span->offset - bucket->extents[span->tensor].offset;
}

static float widened(const void *grad, lnt_dtype_t dtype, uint64_t i)
{
    if (grad == NULL) {
        return 0;
    }
    if (dtype == LNT_F32) {
        return ((const float *)grad)[i];
    }
    return (dtype == LNT_F16 ? oracle_f16_value : oracle_bf16_value)(((const uint16_t *)grad)[i]);
}

static void half_of(void *arg, const lnt_span_t *span, const void *grad, lnt_dtype_t dtype, float *out)
{
    (void)arg;
    for (uint64_t i = 0; i < span->count; i++) {
        out[i] = 0.5f * widened(grad, dtype, i);
    }
}

/* Hides what is not finite: the node sum must be checked before. */
static void add_bias(void *arg, const lnt_span_t *span, float *value)
{
    const bucket_t *bucket = arg;
    const float *bias = bucket->bias + pos_of(bucket, span);

    for (uint64_t i = 0; i < span->count; i++) {
        value[i] = (isfinite(value[i]) ? value[i] : 0) + bias[i];
    }
}

/* --- what encoders are told ----------------------------------------------------------------------------------------
 */

enum { PLACES = 1 << 16, SEEDS_MAX = 64 };

/* Where `on`, values that are coded are their own places: tensor * PLACES + offset. */
static struct spy {
    bool on;
    uint64_t step;
    void (*encode)(const lnt_codec_cfg_t *cfg, const lnt_encode_in_t *in, lnt_encode_out_t *out);
    uint64_t seeds[SEEDS_MAX];
    uint32_t tensors[SEEDS_MAX], n_seeds;
} spy;

static void write_places(void *arg, const lnt_span_t *span, float *value)
{
    (void)arg;
    for (uint64_t i = 0; i < span->count; i++) {
        value[i] = (float)(span->tensor * (uint64_t)PLACES + span->offset + i);
    }
}

static void encode_places(const lnt_codec_cfg_t *cfg, const lnt_encode_in_t *in, lnt_encode_out_t *out)
{
    const float *values = in->values;
    uint32_t tensor = (uint32_t)values[0] / PLACES, k = 0;

    for (uint64_t i = 0; i < in->n; i++) {
        ck_assert(values[i] == (float)(tensor * (uint64_t)PLACES + in->index + i));
    }
    while (k < spy.n_seeds && spy.seeds[k] != in->seed) {
        k++;
    }
    ck_assert_uint_lt(k, SEEDS_MAX);
    ck_assert(k == spy.n_seeds || spy.tensors[k] == tensor); /* no two tensors have the same */
    spy.n_seeds += k == spy.n_seeds;
    spy.seeds[k] = in->seed;
    spy.tensors[k] = tensor;
    spy.encode(cfg, in, out);
}

/* --- worlds --------------------------------------------------------------------------------------------------------
 */

static const char *const codec_names[] = {"f32", "bf16", "sign1", "int8", "int4", "int4_hadamard", "f16"};

typedef struct shape {
    uint32_t n;
    uint64_t label[FAKE_RANKS];
    int codec;
    uint32_t block, scale_block, n_extents;
    uint64_t count[ORACLE_EXTENTS], segment;
    bool packed, l1, feeds_v, feedback, sum;
} shape_t;

static void fill_oracle(bucket_t *bucket, const shape_t *shape)
{
    oracle_t *o = &bucket->oracle;

    oracle_map(o, shape->label, shape->n);
    o->n_extents = shape->n_extents;
    o->block = shape->block;
    o->scale_block = shape->scale_block;
    o->segment = shape->segment;
    o->codec = shape->codec;
    o->packed = shape->packed;
    o->l1 = shape->l1;
    o->feeds_v = shape->feeds_v;
    o->feedback = shape->feedback;
    memcpy(o->count, shape->count, sizeof(shape->count));
    o->factor = shape->sum ? 1.0f : (float)((double)o->M / o->n * 0.75 / 3.0);
    o->server_factor = shape->sum ? 1.0f : (float)(1.0 / o->M);
    oracle_start(o);
    bucket->bias = oracle_floats(o->N);
    bucket->live = malloc(o->N + 1);
    memset(bucket->live, 1, o->N + 1);
    o->live = bucket->live;
    o->bias = draw(3) == 0 ? NULL : bucket->bias;
}

static void fill_sources(bucket_t *bucket, uint32_t rank)
{
    uint64_t pos = 0;

    bucket->values[rank] = oracle_floats(bucket->oracle.N);
    bucket->more[rank] = oracle_floats(bucket->oracle.N);
    for (uint32_t t = 0; t < bucket->oracle.n_extents; t++) {
        lnt_source_t *source = &bucket->sources[rank][t];
        size_t size = world.dtype == LNT_F32 ? 4 : 2;
        uint64_t offset = bucket->extents[t].offset;

        /* The tensor begins `offset` elements before what belongs to this bucket; nobody may read there. */
        *source = (lnt_source_t){(const uint8_t *)bucket->values[rank] + pos * size - offset * size, world.dtype, NULL};
        source->values = draw(8) == 0 ? NULL : source->values;
        source->accumulated = draw(3) == 0 ? bucket->more[rank] + pos - offset : NULL;
        pos += bucket->extents[t].count;
    }
}

static void make_exchange(bucket_t *bucket, const shape_t *shape, uint32_t rank, uint32_t number)
{
    lnt_exchange_memory_t memory;
    lnt_exchange_params_t params = {.topo = world.topo,
                                    .rank = rank,
                                    .extents = bucket->extents,
                                    .n_extents = shape->n_extents,
                                    .packed = shape->packed,
                                    .scale_block = shape->scale_block,
                                    .segment_elems = shape->segment,
                                    .program = 3,
                                    .bucket = number,
                                    .feeds_v = shape->feeds_v,
                                    .feedback = shape->feedback,
                                    .sources = bucket->sources[rank]};
    lnt_owned_t worker, server;

    ck_assert_int_eq(
        lnt_codec_init(&params.codec, codec_names[shape->codec], 0, shape->l1 ? LNT_SCALE_L1 : LNT_SCALE_L2), LNT_OK);
    params.codec.cfg.block = shape->block;
    params.stage = (lnt_stage_t){sizeof(params.stage),
                                 bucket,
                                 world.own_local ? half_of : NULL,
                                 bucket->oracle.bias != NULL ? add_bias : NULL,
                                 NULL,
                                 NULL};
    if (spy.on) {
        spy.encode = params.codec.ops.encode;
        params.codec.ops.encode = encode_places;
        params.stage.produce_wire = write_places;
    }
    ck_assert_int_eq(lnt_exchange_predict(&params, &memory), LNT_OK);
    ck_assert_int_eq(lnt_exchange_create(&params, &bucket->exchange[rank]), LNT_OK);
    lnt_exchange_prepare(bucket->exchange[rank],
                         &(lnt_exchange_step_t){bucket->oracle.factor, bucket->oracle.server_factor, spy.step});
    world.graphs[rank][number] = lnt_exchange_graph(bucket->exchange[rank]);
    worker = lnt_exchange_worker_error(bucket->exchange[rank]);
    server = lnt_exchange_server_error(bucket->exchange[rank]);
    ck_assert_uint_eq(memory.errors, 4 * (worker.end - worker.begin + server.end - server.begin));
    ck_assert_uint_eq(memory.shadows, memory.errors);
    ck_assert_uint_ge(memory.frames, world.graphs[rank][number]->space.bytes);
    ck_assert_int_eq(lnt_exec_reserve(world.net.exec[rank], world.graphs[rank][number]->n_tasks), LNT_OK);
}

static void make_bucket(const shape_t *shape, uint32_t number)
{
    bucket_t *bucket = &world.bucket[number];

    bucket->world = &world;
    for (uint32_t t = 0; t < shape->n_extents; t++) {
        uint64_t unit = shape->scale_block > shape->block ? shape->scale_block : shape->block;
        uint64_t offset = shape->packed ? draw(100) : draw(3) * unit;

        bucket->extents[t] = (lnt_extent_t){t, offset, shape->count[t]};
    }
    fill_oracle(bucket, shape);
    for (uint32_t r = 0; r < shape->n; r++) {
        fill_sources(bucket, r);
        make_exchange(bucket, shape, r, number);
    }
}

static void nothing(void *arg)
{
    (void)arg;
}

/* Every world has another number of threads than the one before. The spy is not made for several. */
static void make_pool(uint64_t random)
{
    static uint64_t n_worlds;
    const lnt_pool_params_t params = {.started = nothing, .done = nothing};
    const uint32_t n_threads = spy.on || no_helpers ? 1 : 1 + (uint32_t)((random + n_worlds++) % THREADS);

    world.min_elems = 1 + random / THREADS % 2 * 200;
    ck_assert_int_eq(lnt_pool_create(&params, &world.pool), LNT_OK);
    ck_assert_int_eq(lnt_pool_set_threads(world.pool, n_threads), LNT_OK);
}

static void make_world(const shape_t *shapes, uint32_t n_buckets, uint64_t random)
{
    memset(&world, 0, sizeof(world));
    make_pool(random);
    world.net.random = random | 1;
    world.n = shapes[0].n;
    world.n_buckets = n_buckets;
    world.net.n_ranks = world.n;
    world.own_local = draw(2);
    world.dtype = draw(2) == 0 ? LNT_F32 : draw(2) == 0 ? LNT_BF16 : LNT_F16;
    ck_assert_int_eq(lnt_topo_create(shapes[0].label, world.n, &world.topo), LNT_OK);
    for (uint32_t r = 0; r < world.n; r++) {
        lnt_exec_params_t params = {.rank = r,
                                    .n_ranks = world.n,
                                    .arg = &world.at[r],
                                    .send = fake_send,
                                    .wake = fake_wake,
                                    .fail = fake_fail,
                                    .pool = world.pool,
                                    .min_elems = world.min_elems};

        world.at[r] = (fake_rank_t){&world.net, r};
        world.net.node[r] = world.topo->node_of[r];
        ck_assert_int_eq(lnt_exec_create(&params, &world.net.exec[r]), LNT_OK);
        lnt_exec_sink(world.net.exec[r], &world.net.sink[r]);
    }
    for (uint32_t b = 0; b < n_buckets; b++) {
        make_bucket(&shapes[b], b);
    }
}

static void end_world(void)
{
    for (uint32_t b = 0; b < world.n_buckets; b++) {
        bucket_t *bucket = &world.bucket[b];

        for (uint32_t r = 0; r < world.n; r++) {
            lnt_exchange_destroy(bucket->exchange[r]);
            free(bucket->values[r]);
            free(bucket->more[r]);
        }
        free(bucket->bias);
        free(bucket->live);
        oracle_end(&bucket->oracle);
    }
    for (uint32_t r = 0; r < world.n; r++) {
        lnt_exec_destroy(world.net.exec[r]);
    }
    lnt_pool_destroy(world.pool);
    lnt_topo_destroy(world.topo);
    ck_assert_uint_eq(lnt_memory_live(), 0);
}

#endif
