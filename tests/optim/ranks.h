/* Ranks as threads over `loop`, each with a plan and an optimizer: what the tests of optim/ share.
 *
 * A test describes a world (node of every rank), a model (tensor lengths) and calls ranks_run; its body runs once per
 * rank. Ranks meet at ranks_barrier where the test compares what they hold.
 */
#ifndef TESTS_OPTIM_RANKS_H
#define TESTS_OPTIM_RANKS_H

#include <pthread.h>
#include <string.h>

#include <linnet/linnet.h>
#include <linnet/stage.h>

#include "kernel/half_oracle.h"
#include "testing.h"

enum { MAX_RANKS = 16, MAX_TENSORS = 16 };

typedef struct world {
    uint32_t n_ranks;
    uint32_t nodes[MAX_RANKS];
    uint32_t timeout_ms;                                             /* 0: 20 s */
    bool quiet;                                                      /* errors are expected: no log */
    bool no_thread;                                                  /* no progress thread */
    void (*log)(void *arg, lnt_log_level_t level, const char *line); /* NULL: stderr */
} world_t;

typedef struct model {
    uint32_t n_tensors;
    uint64_t lengths[MAX_TENSORS];
    uint32_t group_of[MAX_TENSORS];
    uint64_t rows[MAX_TENSORS]; /* of a matrix; 0: a vector */
    const char *algorithm, *options;
    const lnt_group_t *groups;
    uint32_t n_groups;
    uint64_t bucket_bytes, segment_bytes;
    uint32_t max_skips;
    bool accumulate;
    lnt_error_dtype_t error_dtype;
    lnt_dtype_t dtype; /* of gradients and parameters */
    uint64_t start_seed;
} model_t;

typedef struct rank {
    const world_t *world;
    uint32_t rank;
    void *arg;
    lnt_context_t *context;
    lnt_comm_t *comm;

    const model_t *model;
    lnt_plan_t *plan;
    lnt_optim_t *optim;
    uint64_t n_elems;
    float *x;      /* f32 parameters of all tensors */
    uint16_t *x16; /* the same in the 16-bit type of the model */
    const void *grads[MAX_TENSORS];
} rank_t;

typedef void (*rank_fn_t)(rank_t *rank);

typedef struct rank_start {
    rank_t rank;
    lnt_bootstrap_t bootstrap;
    rank_fn_t body;
    pthread_t thread;
} rank_start_t;

static pthread_barrier_t ranks_meeting;

static inline void ranks_barrier(void)
{
    (void)pthread_barrier_wait(&ranks_meeting);
}

static inline void ranks_no_log(void *arg, lnt_log_level_t level, const char *line)
{
    (void)arg;
    (void)level;
    (void)line;
}

static inline void ranks_ok(lnt_status_t status)
{
    if (status != LNT_OK) {
        fprintf(stderr, "status %d: %s (%s)\n", (int)status, lnt_last_error()->cause, lnt_last_error()->cure);
    }
    ck_assert_int_eq(status, LNT_OK);
}

static inline void *ranks_main(void *arg)
{
    rank_start_t *start = arg;
    rank_t *rank = &start->rank;
    char node[16];
    lnt_context_params_t context = {.struct_size = sizeof(context)};
    lnt_comm_params_t comm = {.struct_size = sizeof(comm)};

    (void)snprintf(node, sizeof(node), "node%u", rank->world->nodes[rank->rank]);
    context.log = rank->world->quiet ? ranks_no_log : rank->world->log;
    context.progress_thread = rank->world->no_thread ? LNT_OFF : LNT_ON;
    ranks_ok(lnt_context_create(&context, &rank->context));
    comm.bootstrap = &start->bootstrap;
    comm.node = node;
    comm.timeout_ms = rank->world->timeout_ms != 0 ? rank->world->timeout_ms : 20000;
    ranks_ok(lnt_comm_create(rank->context, &comm, &rank->comm));
    start->body(rank);
    ranks_barrier();
    ranks_ok(lnt_comm_destroy(rank->comm));
    ranks_ok(lnt_context_destroy(rank->context));
    return NULL;
}

static inline void ranks_run(const world_t *world, rank_fn_t body, void *arg)
{
    lnt_bootstrap_t bootstraps[MAX_RANKS];
    rank_start_t starts[MAX_RANKS];

    ranks_ok(lnt_bootstrap_threads(world->n_ranks, 20000, bootstraps));
    (void)pthread_barrier_init(&ranks_meeting, NULL, world->n_ranks);
    for (uint32_t r = 0; r < world->n_ranks; r++) {
        starts[r] =
            (rank_start_t){.rank = {.world = world, .rank = r, .arg = arg}, .bootstrap = bootstraps[r], .body = body};
        ck_assert_int_eq(pthread_create(&starts[r].thread, NULL, ranks_main, &starts[r]), 0);
    }
    for (uint32_t r = 0; r < world->n_ranks; r++) {
        (void)pthread_join(starts[r].thread, NULL);
        lnt_bootstrap_destroy(&bootstraps[r]);
    }
    (void)pthread_barrier_destroy(&ranks_meeting);
}

static inline double unit_at(uint64_t seed, uint64_t i)
{
    return (double)(test_mix_pair(seed, i) >> 11) * 0x1p-53;
}

/* Sum of 4 uniforms, variance 1, good enough as a normal number. */
static inline double normal_at(uint64_t seed, uint64_t i)
{
    return (unit_at(seed, 4 * i) + unit_at(seed, 4 * i + 1) + unit_at(seed, 4 * i + 2) + unit_at(seed, 4 * i + 3) -
            2.0) *
           1.7320508075688772;
}

static inline uint64_t model_elems(const model_t *model)
{
    uint64_t n = 0;

    for (uint32_t t = 0; t < model->n_tensors; t++)
        n += model->lengths[t];
    return n;
}

static inline uint16_t half_of(lnt_dtype_t dtype, float value)
{
    return dtype == LNT_F16 ? oracle_f16(value) : oracle_bf16(value);
}

static inline float float_of_half(lnt_dtype_t dtype, uint16_t code)
{
    return dtype == LNT_F16 ? oracle_f16_value(code) : oracle_bf16_value(code);
}

/* The value as an element of the type. */
static inline float float_as(lnt_dtype_t dtype, float value)
{
    return dtype == LNT_F32 ? value : float_of_half(dtype, half_of(dtype, value));
}

/* Plan with its tensors; not committed. */
static inline lnt_status_t rank_plan(rank_t *rank, const model_t *model)
{
    lnt_plan_params_t params = {.struct_size = sizeof(params),
                                .bucket_bytes = model->bucket_bytes,
                                .segment_bytes = model->segment_bytes,
                                .max_skips = model->max_skips,
                                .accumulate = model->accumulate,
                                .error_dtype = model->error_dtype};
    uint64_t at = 0;
    lnt_status_t status = lnt_plan_create(rank->comm, &params, &rank->plan);

    rank->model = model;
    rank->n_elems = model_elems(model);
    rank->x = calloc(rank->n_elems + 1, sizeof(*rank->x));
    rank->x16 = calloc(rank->n_elems + 1, sizeof(*rank->x16));
    for (uint64_t i = 0; i < rank->n_elems; i++) {
        rank->x[i] = (float)normal_at(model->start_seed, i);
        rank->x16[i] = half_of(model->dtype, rank->x[i]);
    }
    for (uint32_t t = 0; t < model->n_tensors && status == LNT_OK; t++) {
        char name[16];
        uint32_t number;
        lnt_tensor_params_t tensor = {.struct_size = sizeof(tensor),
                                      .name = name,
                                      .count = model->lengths[t],
                                      .grad_dtype = model->dtype,
                                      .param_dtype = model->dtype,
                                      .param =
                                          model->dtype == LNT_F32 ? (void *)(rank->x + at) : (void *)(rank->x16 + at),
                                      .group = model->group_of[t],
                                      .rows = model->rows[t],
                                      .cols = model->rows[t] != 0 ? model->lengths[t] / model->rows[t] : 0};
        (void)snprintf(name, sizeof(name), "t%u", t);
        status = lnt_plan_add_tensor(rank->plan, &tensor, &number);
        at += model->lengths[t];
    }
    return status;
}

static inline lnt_status_t rank_optim(rank_t *rank)
{
    lnt_optim_params_t params = {.struct_size = sizeof(params),
                                 .algorithm = rank->model->algorithm,
                                 .options = rank->model->options,
                                 .groups = rank->model->groups,
                                 .n_groups = rank->model->n_groups};

    return lnt_optim_create(rank->plan, &params, &rank->optim);
}

static inline void rank_open(rank_t *rank, const model_t *model)
{
    ranks_ok(rank_plan(rank, model));
    ranks_ok(rank_optim(rank));
    ranks_ok(lnt_plan_commit(rank->plan));
}

static inline void rank_close(rank_t *rank)
{
    ranks_ok(lnt_optim_destroy(rank->optim));
    ranks_ok(lnt_plan_destroy(rank->plan));
    free(rank->x);
    free(rank->x16);
    rank->optim = NULL;
    rank->plan = NULL;
}

/* One pointer per tensor into a flat gradient. */
static inline const void *const *rank_grads(rank_t *rank, const float *flat)
{
    for (uint32_t t = 0; t < rank->model->n_tensors; t++) {
        rank->grads[t] = flat;
        flat += rank->model->lengths[t];
    }
    return rank->grads;
}

static inline lnt_optim_info_t rank_info(const rank_t *rank)
{
    lnt_optim_info_t info = {.struct_size = sizeof(info)};

    ranks_ok(lnt_optim_get_info(rank->optim, &info));
    return info;
}

/* A view of all tensors, flat. */
static inline void rank_view(const rank_t *rank, const char *name, size_t size, void *flat)
{
    uint8_t *to = flat;

    for (uint32_t t = 0; t < rank->model->n_tensors; t++) {
        const void *from = lnt_optim_view(rank->optim, name, t);
        ck_assert_ptr_nonnull(from);
        memcpy(to, from, rank->model->lengths[t] * size);
        to += rank->model->lengths[t] * size;
    }
}

/* Errors of this rank as one hash: (program, role, worker, tensor, offset) and values. */
static inline uint64_t rank_error_hash(const rank_t *rank)
{
    lnt_error_extent_t extent;
    uint64_t hash = 0;

    for (size_t i = 0; lnt_plan_error_extent(rank->plan, i, &extent) == LNT_OK; i++) {
        float *values = malloc(extent.count * sizeof(*values));
        lnt_plan_read_error(&extent, values);
        for (uint64_t k = 0; k < extent.count; k++) {
            uint32_t bits;
            memcpy(&bits, &values[k], sizeof(bits));
            hash =
                test_mix_pair(hash, ((uint64_t)extent.tensor << 32 | bits) ^ (extent.offset + k) << 16 ^ extent.server);
        }
        free(values);
    }
    return hash;
}

/* Steps with normal gradients of the rank's own. */
static inline void rank_train(rank_t *rank, uint64_t seed, uint32_t n_steps)
{
    float *grad = calloc(rank->n_elems + 1, sizeof(*grad));

    for (uint32_t step = 0; step < n_steps; step++) {
        for (uint64_t i = 0; i < rank->n_elems; i++)
            grad[i] = (float)normal_at(test_mix_pair(seed, step * 64u + rank->rank), i);
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
    }
    free(grad);
}

/* Elements [begin, end) have the bits they began with, and nearly all others do not: one may by chance come back. */
static inline void expect_only_still(const float *x, uint64_t n, uint64_t start_seed, uint64_t begin, uint64_t end)
{
    uint64_t came_back = 0;

    for (uint64_t i = 0; i < n; i++) {
        bool stands = x[i] == (float)normal_at(start_seed, i);
        if (i >= begin && i < end)
            ck_assert_msg(stands, "element %d moved", (int)i);
        else
            came_back += stands;
    }
    ck_assert_msg(came_back < 10, "%d elements with gradients stand still", (int)came_back);
}

/* All ranks hold the same parameters, moments and counters. */
static uint64_t shared_hashes[MAX_RANKS];

static inline void expect_equal_ranks(const rank_t *rank)
{
    shared_hashes[rank->rank] = lnt_optim_hash(rank->optim);
    ranks_barrier();
    for (uint32_t r = 1; r < rank->world->n_ranks; r++)
        ck_assert_uint_eq(shared_hashes[r], shared_hashes[0]);
    ranks_barrier();
}

#endif
