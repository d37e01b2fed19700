/* What error feedback promises, in f64 from the formulas, sharing no code with the library (C1, C13, C14 of the
 * algorithms):
 *
 *   out + mean(e') + E' = mean(b) + mean(e) + E     per call, and summed over a thousand calls
 *
 * b: inputs of the ranks, e: worker errors (one per node), E: server error. A NaN on one rank skips the call on all and
 * changes nothing. Degenerate worlds give what they must, bit by bit.
 */
#include <math.h>
#include <string.h>

#include <linnet/linnet.h>

#include "testing.h"
#include "thread_ranks.h"

enum { N = 700, CALLS = 1000, DEADLINE_MS = 100000 };

/* Everything of one call, common to the threads of a world; a rank writes its own part between barriers. */
typedef struct shared {
    uint32_t n_ranks, n_nodes, nodes[RANKS_MAX];
    const char *codec;
    uint32_t block;
    uint64_t seed;
    int calls;
    bool equal_inputs; /* ranks of one node put in the same */
    bool poison;

    float in[RANKS_MAX][N], out[RANKS_MAX][N];
    float worker[RANKS_MAX][N], server[N];
    double before[N], sum_in[N], sum_out[N]; /* mean(e) + E; sums over committed calls */
    uint64_t hash[CALLS];                    /* of the output of every call */
} shared_t;

typedef struct side {
    rank_self_t *self;
    shared_t *shared;
    lnt_comm_t *comm;
    lnt_codec_t *codec;
    lnt_residual_t *residual;
    lnt_request_t *request;
    lnt_coll_params_t params;
} side_t;

static bool self_is_first(const side_t *side)
{
    return side->self->rank == 0;
}

/* A fixed direction, a common part of the call and a part of the rank's own; elements of very different size. */
static float input(const shared_t *shared, uint32_t rank, int call, uint32_t i)
{
    const uint64_t source = shared->equal_inputs ? shared->nodes[rank] : rank;
    double fixed = (double)(test_mix(shared->seed + i) >> 11) * 0x1p-53 - 0.5;
    double own =
        (double)(test_mix(shared->seed ^ test_mix((uint64_t)call << 40 | source << 20 | i)) >> 11) * 0x1p-53 - 0.5;

    return (float)ldexp(fixed + own, -(int)(i % 7));
}

static void fill_input(const side_t *side, int call)
{
    for (uint32_t i = 0; i < N; ++i) {
        side->shared->in[side->self->rank][i] = input(side->shared, side->self->rank, call, i);
    }
}

static const float *input_of(const side_t *side)
{
    return side->shared->in[side->self->rank];
}

static float *output_of(const side_t *side)
{
    return side->shared->out[side->self->rank];
}

/* This rank's errors, into the common arrays. */
static int collect_errors(const side_t *side)
{
    uint64_t worker_at, n_worker, server_at, n_server;
    static _Thread_local float worker[N], server[N];
    const uint32_t node = side->shared->nodes[side->self->rank];

    RANK_OK(lnt_residual_counts(side->residual, &worker_at, &n_worker, &server_at, &n_server));
    RANK_CHECK((worker_at + n_worker <= N) && (server_at + n_server <= N));
    RANK_OK(lnt_residual_read(side->residual, worker, server));
    memcpy(side->shared->worker[node] + worker_at, worker, n_worker * sizeof(float));
    memcpy(side->shared->server + server_at, server, n_server * sizeof(float));
    return 0;
}

static double norm(const double *x)
{
    double sum = 0;

    for (uint32_t i = 0; i < N; ++i) {
        sum += x[i] * x[i];
    }
    return sqrt(sum);
}

static void feedback(const shared_t *shared, double *e)
{
    for (uint32_t i = 0; i < N; ++i) {
        e[i] = (double)shared->server[i];
        for (uint32_t a = 0; a < shared->n_nodes; ++a) {
            e[i] += (double)shared->worker[a][i] / shared->n_nodes;
        }
    }
}

/* Rank 0, after everybody has written: one call's account. The bound is that of C1: every element passes some ten f32
 * operations on its way (sums inside a node, the factor, b + e, the difference from what was coded, mean, server
 * error), each off by 2^-24 of values of the size of the sums: 6e-7. */
static int audit(shared_t *shared)
{
    double after[N], left[N], mean[N], difference[N];

    feedback(shared, after);
    for (uint32_t i = 0; i < N; ++i) {
        mean[i] = 0;
        for (uint32_t r = 0; r < shared->n_ranks; ++r) {
            mean[i] += (double)shared->in[r][i] / shared->n_ranks;
        }
        left[i] = (double)shared->out[0][i] + after[i];
        difference[i] = left[i] - (mean[i] + shared->before[i]);
        shared->sum_in[i] += mean[i];
        shared->sum_out[i] += (double)shared->out[0][i];
    }
    RANK_CHECK(norm(difference) <= 1e-6 * (norm(mean) + norm(shared->before)));
    memcpy(shared->before, after, sizeof(after));
    return 0;
}

static int audit_sum(const shared_t *shared)
{
    double difference[N];

    for (uint32_t i = 0; i < N; ++i) {
        difference[i] = shared->sum_out[i] + shared->before[i] - shared->sum_in[i];
    }
    RANK_CHECK(norm(shared->before) > 0);
    RANK_CHECK(norm(difference) <= 1e-6 * (norm(shared->sum_in) + norm(shared->before)));
    return 0;
}

/* Persistent and one-shot calls share the residual. */
static lnt_status_t reduce(side_t *side, int call)
{
    lnt_status_t status;

    if (call % 3 == 0) {
        return lnt_allreduce(side->comm, input_of(side), output_of(side), N, LNT_F32, &side->params);
    }
    status = lnt_request_start(side->request, input_of(side), output_of(side));
    return (status < 0) ? status : lnt_request_wait(side->request);
}

/* A residual written from what was read goes on as the old one would. */
static int replace_residual(side_t *side)
{
    static _Thread_local float worker[N], server[N];
    lnt_residual_t *fresh;

    RANK_OK(lnt_residual_create(side->comm, N, side->codec, &fresh));
    RANK_OK(lnt_residual_read(side->residual, worker, server));
    RANK_OK(lnt_residual_write(fresh, worker, server));
    lnt_residual_destroy(side->residual);
    RANK_OK(lnt_request_destroy(side->request));
    side->residual = fresh;
    side->params.residual = fresh;
    RANK_OK(lnt_allreduce_init(side->comm, N, LNT_F32, &side->params, &side->request));
    return 0;
}

/* A NaN on one rank: all skip, output and errors stay as they were. */
static int poisoned_call(side_t *side, int call)
{
    shared_t *shared = side->shared;
    static _Thread_local float worker[2][N], server[2][N], output[N];
    const bool mine = side->self->rank == (uint32_t)call % shared->n_ranks;

    fill_input(side, call);
    if (mine) {
        shared->in[side->self->rank][(uint32_t)call % N] = (call % 2 != 0) ? NAN : -INFINITY;
    }
    memcpy(output, shared->out[side->self->rank], sizeof(output));
    RANK_OK(lnt_residual_read(side->residual, worker[0], server[0]));
    RANK_CHECK(reduce(side, call) == LNT_SKIPPED_NONFINITE);
    RANK_OK(lnt_residual_read(side->residual, worker[1], server[1]));
    RANK_CHECK(memcmp(worker[0], worker[1], sizeof(worker[0])) == 0);
    RANK_CHECK(memcmp(server[0], server[1], sizeof(server[0])) == 0);
    RANK_CHECK(memcmp(output, shared->out[side->self->rank], sizeof(output)) == 0);
    return 0;
}

static int clean_call(side_t *side, int call)
{
    shared_t *shared = side->shared;

    fill_input(side, call);
    RANK_OK(reduce(side, call));
    RANK_PASS(collect_errors(side));
    RANK_OK(lnt_barrier(side->comm));
    RANK_CHECK(memcmp(shared->out[side->self->rank], shared->out[0], sizeof(shared->out[0])) == 0);
    if (self_is_first(side)) {
        RANK_PASS(audit(shared));
        shared->hash[call] = 0;
        for (uint32_t i = 0; i < N; ++i) {
            uint32_t bits;

            memcpy(&bits, &shared->out[0][i], sizeof(bits));
            shared->hash[call] = test_mix(shared->hash[call] + bits);
        }
    }
    RANK_OK(lnt_barrier(side->comm));
    return 0;
}

static int open_world(side_t *side, lnt_context_t **context_p)
{
    lnt_comm_params_t comm = {.struct_size = sizeof(comm), .bootstrap = &side->self->bootstrap, .timeout_ms = 20000};
    lnt_codec_params_t cp = {.struct_size = sizeof(cp), .name = side->shared->codec, .block = side->shared->block};
    char node[16];

    snprintf(node, sizeof(node), "node%u", side->shared->nodes[side->self->rank]);
    comm.node = node;
    RANK_OK(lnt_context_create(NULL, context_p));
    RANK_OK(lnt_comm_create(*context_p, &comm, &side->comm));
    RANK_OK(lnt_codec_create(&cp, &side->codec));
    RANK_OK(lnt_residual_create(side->comm, N, side->codec, &side->residual));
    side->params = (lnt_coll_params_t){
        .struct_size = sizeof(side->params), .codec = side->codec, .residual = side->residual, .segment_bytes = 1000};
    RANK_OK(lnt_allreduce_init(side->comm, N, LNT_F32, &side->params, &side->request));
    return 0;
}

static int close_world(side_t *side, lnt_context_t *context)
{
    RANK_OK(lnt_request_destroy(side->request));
    lnt_residual_destroy(side->residual);
    lnt_codec_destroy(side->codec);
    RANK_OK(lnt_comm_destroy(side->comm));
    RANK_OK(lnt_context_destroy(context));
    return 0;
}

static int body(rank_self_t *self)
{
    side_t side = {.self = self, .shared = self->arg};
    lnt_context_t *context;

    RANK_PASS(open_world(&side, &context));
    for (int call = 0; call < side.shared->calls; ++call) {
        if (side.shared->poison && (call % 97 == 13)) {
            RANK_PASS(poisoned_call(&side, call));
        } else {
            RANK_PASS(clean_call(&side, call));
        }
        if (call == side.shared->calls / 2) {
            RANK_PASS(replace_residual(&side));
        }
    }
    if (self_is_first(&side)) {
        RANK_PASS(audit_sum(side.shared));
    }
    return close_world(&side, context);
}

static const shared_t accounts[] = {
    {.n_ranks = 3, .n_nodes = 3, .nodes = {0, 1, 2}, .codec = "sign1", .block = 128},
    {.n_ranks = 5, .n_nodes = 2, .nodes = {0, 0, 0, 1, 1}, .codec = "sign1", .block = 64},
    {.n_ranks = 4, .n_nodes = 2, .nodes = {0, 1, 0, 1}, .codec = "int8", .block = 192},
    {.n_ranks = 2, .n_nodes = 2, .nodes = {0, 1}, .codec = "bf16", .block = 64},
};

START_TEST(nothing_is_lost)
{
    shared_t *shared = malloc(sizeof(*shared));

    *shared = accounts[_i];
    shared->seed = test_random();
    shared->calls = CALLS;
    shared->poison = true;
    ck_assert_uint_eq(thread_ranks(shared->n_ranks, body, shared, DEADLINE_MS), 0);
    free(shared);
}
END_TEST

/* Two nodes whose ranks put in the same, 2 and 4 of them: sums of equal values times 1/2 or 1/4 are exact, so all
 * worlds must give the bits of the flat world of two ranks, whoever owns what. */
START_TEST(hierarchy_degenerates_to_the_flat_form)
{
    static const shared_t worlds[] = {
        {.n_ranks = 2, .n_nodes = 2, .nodes = {0, 1}},
        {.n_ranks = 4, .n_nodes = 2, .nodes = {0, 1, 0, 1}},
        {.n_ranks = 8, .n_nodes = 2, .nodes = {0, 0, 1, 1, 1, 0, 1, 0}},
    };
    const uint64_t seed = test_random();
    shared_t *flat = NULL;

    for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); ++w) {
        shared_t *shared = malloc(sizeof(*shared));

        *shared = worlds[w];
        shared->codec = (_i == 0) ? "sign1" : "int8";
        shared->block = 64;
        shared->seed = seed;
        shared->calls = 20;
        shared->equal_inputs = true;
        ck_assert_uint_eq(thread_ranks(shared->n_ranks, body, shared, DEADLINE_MS), 0);
        if (w == 0) {
            flat = shared;
            continue;
        }
        ck_assert_mem_eq(shared->hash, flat->hash, 20 * sizeof(shared->hash[0]));
        free(shared);
    }
    free(flat);
}
END_TEST

/* With one node the codec is not used: bits of the plain mean, and no errors are kept. With one rank: the input itself.
 */
static int one_node_body(rank_self_t *self)
{
    side_t side = {.self = self, .shared = self->arg};
    static _Thread_local float plain[N];
    lnt_context_t *context;
    uint64_t worker_at, n_worker, server_at, n_server;

    RANK_PASS(open_world(&side, &context));
    RANK_OK(lnt_residual_counts(side.residual, &worker_at, &n_worker, &server_at, &n_server));
    RANK_CHECK((n_worker == 0) && (n_server == 0));
    for (int call = 0; call < 4; ++call) {
        fill_input(&side, call);
        RANK_OK(reduce(&side, call));
        RANK_OK(lnt_allreduce(side.comm, input_of(&side), plain, N, LNT_F32, NULL));
        RANK_CHECK(memcmp(plain, output_of(&side), sizeof(plain)) == 0);
        RANK_CHECK((self->n_ranks != 1) || (memcmp(plain, input_of(&side), sizeof(plain)) == 0));
    }
    return close_world(&side, context);
}

START_TEST(one_node_uses_no_codec)
{
    shared_t *shared = calloc(1, sizeof(*shared));

    *shared =
        (shared_t){.n_ranks = (_i == 0) ? 1 : 3, .n_nodes = 1, .codec = "sign1", .block = 64, .seed = test_random()};
    ck_assert_uint_eq(thread_ranks(shared->n_ranks, one_node_body, shared, DEADLINE_MS), 0);
    free(shared);
}
END_TEST

/* A residual of another count, codec or communicator is refused. */
static int wrong_residual_body(rank_self_t *self)
{
    side_t side = {.self = self, .shared = self->arg};
    lnt_codec_params_t cp = {.struct_size = sizeof(cp), .name = "int8", .block = 64};
    lnt_codec_t *other = NULL;
    lnt_context_t *context;

    RANK_PASS(open_world(&side, &context));
    RANK_OK(lnt_codec_create(&cp, &other));
    RANK_CHECK(lnt_allreduce(side.comm, input_of(&side), output_of(&side), N - 1, LNT_F32, &side.params) ==
               LNT_ERR_INVALID_ARG);
    side.params.codec = other;
    RANK_CHECK(lnt_allreduce(side.comm, input_of(&side), output_of(&side), N, LNT_F32, &side.params) ==
               LNT_ERR_INVALID_ARG);
    side.params.codec = NULL;
    RANK_CHECK(lnt_allreduce(side.comm, input_of(&side), output_of(&side), N, LNT_F32, &side.params) ==
               LNT_ERR_INVALID_ARG);
    side.params.codec = side.codec;
    RANK_CHECK(lnt_allgather(side.comm, input_of(&side), output_of(&side), 8, LNT_F32, &side.params) ==
               LNT_ERR_INVALID_ARG);
    RANK_CHECK(lnt_residual_read(side.residual, NULL, NULL) == LNT_ERR_INVALID_ARG);
    lnt_codec_destroy(other);
    return close_world(&side, context);
}

START_TEST(residuals_that_do_not_fit)
{
    shared_t *shared = calloc(1, sizeof(*shared));

    *shared = accounts[3];
    shared->codec = "sign1";
    ck_assert_uint_eq(thread_ranks(shared->n_ranks, wrong_residual_body, shared, DEADLINE_MS), 0);
    free(shared);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("accounting");
    TCase *tcase = tcase_create("accounting");

    tcase_set_timeout(tcase, 200);
    tcase_add_loop_test(tcase, nothing_is_lost, 0, (int)(sizeof(accounts) / sizeof(accounts[0])));
    tcase_add_loop_test(tcase, hierarchy_degenerates_to_the_flat_form, 0, 2);
    tcase_add_loop_test(tcase, one_node_uses_no_codec, 0, 2);
    tcase_add_test(tcase, residuals_that_do_not_fit);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
