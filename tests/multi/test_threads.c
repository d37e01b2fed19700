/* Threads of a rank: how many there are, and that no number of them changes a byte. Large collectives in many segments,
 * coded and plain, with error feedback and with values that are not finite, flat and hierarchical, over loop and shm,
 * for 1, 2, 3 and 5 threads and for ranks that differ: every output, every status, every error kept must be the same.
 */
#include <math.h>

#include <linnet/linnet.h>

#include "../../src/core/core.h"
#include "../../src/core/threads.h"
#include "../fork_ranks.h"
#include "../process_state.h"
#include "../testing.h"
#include "../thread_ranks.h"

enum { DEADLINE_MS = 100000, MAX_COUNT = 60000, RUNS = 3, MIXED = 0 };

typedef struct trial {
    uint32_t n_ranks, nodes[RANKS_MAX];
    const char *transport;
    bool processes;
    lnt_switch_t progress_thread;
    uint32_t threads; /* MIXED: rank + 1 */
    uint64_t seed;
    uint64_t hash[RANKS_MAX];   /* result: of all outputs and statuses */
    uint64_t helped[RANKS_MAX]; /* result: tasks that helpers ran */
} trial_t;

typedef struct side {
    rank_self_t *self;
    trial_t *trial;
    lnt_context_t *context;
    lnt_comm_t *comm;
    float *input, *output;
    uint64_t hash;
} side_t;

/* ---- one rank ---------------------------------------------------------------------------------------------------- */

static int open_world(side_t *side)
{
    const trial_t *trial = side->trial;
    lnt_context_params_t context = {.struct_size = sizeof(context), .progress_thread = trial->progress_thread};
    lnt_comm_params_t comm = {.struct_size = sizeof(comm),
                              .bootstrap = &side->self->bootstrap,
                              .timeout_ms = DEADLINE_MS,
                              .transports = trial->transport};
    lnt_comm_info_t info = {.struct_size = sizeof(info)};
    char node[16];

    context.threads = (trial->threads != MIXED) ? trial->threads : side->self->rank + 1;
    snprintf(node, sizeof(node), "node%u", trial->nodes[side->self->rank]);
    comm.node = node;
    RANK_OK(lnt_context_create(&context, &side->context));
    RANK_OK(lnt_comm_create(side->context, &comm, &side->comm));
    RANK_OK(lnt_comm_get_info(side->comm, &info));
    RANK_CHECK(info.n_threads == context.threads);
    return 0;
}

static float number_at(uint64_t seed, uint64_t i)
{
    return (float)((double)(test_mix_pair(seed, i) >> 11) * 0x1p-53 - 0.5);
}

typedef enum op { ALLREDUCE, REDUCE_SCATTER, ALLGATHER, BROADCAST, N_OPS } op_t;

typedef struct call {
    op_t op;
    const char *codec;
    uint32_t block;
    uint64_t count;
    bool residual;
} call_t;

/* 4608: blocks that do not fit the stack share scratch. */
static const call_t calls[] = {
    {ALLREDUCE, "sign1", 128, MAX_COUNT, true},     {ALLREDUCE, "sign1", 4608, MAX_COUNT, true},
    {ALLREDUCE, "int4_hadamard", 128, 33333, true}, {ALLREDUCE, "f16_sr", 64, 33333, false},
    {ALLREDUCE, "int8", 64, 33333, true},           {ALLREDUCE, NULL, 0, 41000, false},
    {REDUCE_SCATTER, "int8", 256, 9001, false},     {REDUCE_SCATTER, NULL, 0, 9001, false},
    {ALLGATHER, "sign1", 192, 10001, false},        {BROADCAST, "bf16", 64, MAX_COUNT, false},
};
enum { N_CALLS = sizeof(calls) / sizeof(calls[0]) };

/* Same choices on all ranks, other values; rarely something that is not finite, on one rank. */
static void draw_input(side_t *side, uint64_t n, uint64_t number)
{
    const uint64_t common = test_mix_pair(side->trial->seed, number), own = test_mix_pair(common, side->self->rank);

    for (uint64_t i = 0; i < n; i++)
        side->input[i] = number_at(own, i);
    if (common % 4 == 0 && common / 4 % side->self->n_ranks == side->self->rank && n > 0)
        side->input[own % n] = (common % 8 == 0) ? NAN : INFINITY;
}

static lnt_status_t run_call(side_t *side, const call_t *call, const lnt_coll_params_t *params)
{
    lnt_comm_t *comm = side->comm;

    switch (call->op) {
    case ALLREDUCE:
        return lnt_allreduce(comm, side->input, side->output, call->count, LNT_F32, params);
    case REDUCE_SCATTER:
        return lnt_reduce_scatter(comm, side->input, side->output, call->count, LNT_F32, params);
    case ALLGATHER:
        return lnt_allgather(comm, side->input, side->output, call->count, LNT_F32, params);
    default:
        memcpy(side->output, side->input, call->count * sizeof(float));
        return lnt_broadcast(comm, side->output, call->count, LNT_F32, 1 % side->self->n_ranks, params);
    }
}

/* Errors that are kept show in the outputs of the runs that follow. */
static int play(side_t *side, uint32_t number)
{
    const call_t *call = &calls[number];
    const uint64_t n_in = call->count * (call->op == REDUCE_SCATTER ? side->self->n_ranks : 1);
    const uint64_t n_out = call->count * (call->op == ALLGATHER ? side->self->n_ranks : 1);
    const lnt_codec_params_t cp = {.struct_size = sizeof(cp), .name = call->codec, .block = call->block};
    lnt_coll_params_t params = {.struct_size = sizeof(params), .segment_bytes = 4096};
    lnt_codec_t *codec = NULL;
    lnt_residual_t *residual = NULL;

    if (call->codec != NULL) RANK_OK(lnt_codec_create(&cp, &codec));
    if (call->residual) RANK_OK(lnt_residual_create(side->comm, call->count, codec, &residual));
    params.codec = codec;
    params.residual = residual;
    for (uint32_t run = 0; run < RUNS; run++) {
        lnt_status_t status;

        draw_input(side, n_in, number * 100 + run);
        memset(side->output, 0, n_out * sizeof(float));
        status = run_call(side, call, &params);
        RANK_CHECK(status == LNT_OK || status == LNT_SKIPPED_NONFINITE);
        side->hash = lnt_hash64(lnt_hash64_u64(side->hash, (uint64_t)status), side->output, n_out * sizeof(float));
    }
    lnt_residual_destroy(residual);
    lnt_codec_destroy(codec);
    return 0;
}

static int body(rank_self_t *self)
{
    side_t side = {.self = self, .trial = self->arg};

    side.input = calloc((size_t)MAX_COUNT * self->n_ranks, sizeof(float));
    side.output = calloc((size_t)MAX_COUNT * self->n_ranks, sizeof(float));
    RANK_CHECK(side.input != NULL && side.output != NULL);
    RANK_PASS(open_world(&side));
    for (uint32_t number = 0; number < N_CALLS; number++)
        RANK_PASS(play(&side, number));
    RANK_OK(lnt_barrier(side.comm));
    RANK_OK(lnt_comm_destroy(side.comm));
    side.trial->hash[self->rank] = side.hash;
    side.trial->helped[self->rank] = lnt_pool_finished(side.context->pool);
    RANK_OK(lnt_context_destroy(side.context));
    free(side.input);
    free(side.output);
    return 0;
}

/* ---- worlds ------------------------------------------------------------------------------------------------------ */

static const struct world {
    uint32_t n_ranks, nodes[RANKS_MAX];
} worlds[] = {
    {1, {0}}, {2, {0, 1}}, {3, {0, 1, 2}}, {4, {0, 0, 1, 1}}, {5, {0, 0, 0, 1, 1}}, {3, {0, 0, 0}},
};
enum { N_WORLDS = sizeof(worlds) / sizeof(worlds[0]) };

static void run(trial_t *trial, uint32_t threads)
{
    trial->threads = threads;
    if (trial->processes) {
        ck_assert_uint_eq(fork_ranks(trial->n_ranks, body, trial, DEADLINE_MS, NULL), 0);
    } else {
        ck_assert_uint_eq(thread_ranks(trial->n_ranks, body, trial, DEADLINE_MS), 0);
    }
}

static uint64_t sum_helped(const trial_t *trial)
{
    uint64_t sum = 0;

    for (uint32_t r = 0; r < trial->n_ranks; r++)
        sum += trial->helped[r];
    return sum;
}

START_TEST(no_number_of_threads_changes_a_byte)
{
    static const uint32_t numbers[] = {2, 3, 5, MIXED};
    const struct world *world = &worlds[_i % N_WORLDS];
    trial_t *trial = mmap(NULL, sizeof(*trial), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t want[RANKS_MAX], helped = 0;

    ck_assert(trial != MAP_FAILED);
    *trial = (trial_t){.n_ranks = world->n_ranks, .processes = _i >= N_WORLDS, .seed = test_random()};
    memcpy(trial->nodes, world->nodes, sizeof(trial->nodes));
    trial->transport = trial->processes ? "shm" : "loop";
    setenv("LINNET_THREAD_MIN_BYTES", "2k", 1);
    run(trial, 1);
    ck_assert_uint_eq(sum_helped(trial), 0);
    memcpy(want, trial->hash, sizeof(want));
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        trial->progress_thread = (test_random_below(4) == 0) ? LNT_OFF : LNT_ON;
        run(trial, numbers[i]);
        for (uint32_t r = 0; r < trial->n_ranks; r++)
            ck_assert_msg(trial->hash[r] == want[r], "rank %u of %u differs with %u threads over %s", r, trial->n_ranks,
                          numbers[i], trial->transport);
        helped += sum_helped(trial);
    }
    ck_assert_uint_gt(helped, 0); /* it was no comparison of one thread with itself */
    munmap(trial, sizeof(*trial));
}
END_TEST

/* ---- how many ---------------------------------------------------------------------------------------------------- */

START_TEST(number_by_rule)
{
    static const struct {
        uint32_t asked, cores, local, want;
        bool progress;
    } rows[] = {
        {0, 1, 1, 1, true}, {0, 2, 1, 2, true},   {0, 2, 2, 1, true},  {0, 8, 2, 4, true},
        {0, 8, 3, 2, true}, {0, 96, 8, 4, true},  {0, 4, 8, 1, true},  {0, 96, 1, 1, false},
        {7, 1, 9, 7, true}, {3, 96, 1, 3, false}, {1, 96, 1, 1, true},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        ck_assert_uint_eq(lnt_threads_choose(rows[i].asked, rows[i].progress, rows[i].cores, rows[i].local),
                          rows[i].want);
}
END_TEST

/* Names of helpers as the system shows them, and their cores. */
static uint32_t count_helpers(const cpu_set_t *cpus)
{
    DIR *dir = opendir("/proc/self/task");
    struct dirent *entry;
    char path[300], name[32] = "";
    uint32_t count = 0;
    cpu_set_t mine;

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        FILE *comm;

        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
        comm = fopen(path, "r");
        if (comm == NULL) continue;
        if (fgets(name, sizeof(name), comm) != NULL && strcmp(name, "linnet-work\n") == 0 &&
            sched_getaffinity((pid_t)strtol(entry->d_name, NULL, 10), sizeof(mine), &mine) == 0)
            count += (CPU_EQUAL(&mine, cpus) != 0);
        fclose(comm);
    }
    if (dir != NULL) closedir(dir);
    return count;
}

static int open_alone(const lnt_context_params_t *params, lnt_context_t **context_p, lnt_comm_t **comm_p)
{
    lnt_bootstrap_t bootstrap;
    lnt_comm_params_t comm = {.struct_size = sizeof(comm), .bootstrap = &bootstrap};

    RANK_OK(lnt_context_create(params, context_p));
    RANK_OK(lnt_bootstrap_threads(1, 1000, &bootstrap));
    RANK_OK(lnt_comm_create(*context_p, &comm, comm_p));
    lnt_bootstrap_destroy(&bootstrap);
    return 0;
}

/* LINNET_THREADS, the field before it, the list of cores for all, and nothing left behind. */
START_TEST(helpers_have_names_and_cores_and_end)
{
    const process_state_t before = process_state();
    lnt_context_params_t params = {.struct_size = sizeof(params)};
    lnt_comm_info_t info = {.struct_size = sizeof(info)};
    char cpus[16];
    cpu_set_t mine, one;
    lnt_context_t *context;
    lnt_comm_t *comm;
    int cpu = 0;

    ck_assert_int_eq(sched_getaffinity(0, sizeof(mine), &mine), 0);
    while (!CPU_ISSET(cpu, &mine))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    snprintf(cpus, sizeof(cpus), "%d", cpu);
    params.cpus = cpus;
    setenv("LINNET_THREADS", "4", 1);
    params.threads = (_i == 0) ? 0 : 3;
    ck_assert_int_eq(open_alone(&params, &context, &comm), 0);
    ck_assert_int_eq(lnt_comm_get_info(comm, &info), LNT_OK);
    ck_assert_uint_eq(info.n_threads, (_i == 0) ? 4 : 3);
    for (int i = 0; i < 5000 && count_helpers(&one) != info.n_threads - 1; i++)
        rank_nap_us(1000);
    ck_assert_uint_eq(count_helpers(&one), info.n_threads - 1);
    ck_assert_int_eq(lnt_comm_destroy(comm), LNT_OK);
    ck_assert_int_eq(lnt_context_destroy(context), LNT_OK);
    unsetenv("LINNET_THREADS");
    ck_assert(same_state(&before));
}
END_TEST

START_TEST(auto_is_one_where_there_is_one_core_or_no_progress_thread)
{
    lnt_context_params_t params = {.struct_size = sizeof(params)};
    lnt_comm_info_t info = {.struct_size = sizeof(info)};
    lnt_context_t *context;
    lnt_comm_t *comm;

    if (_i == 0) params.progress_thread = LNT_OFF;
    if (_i == 1) params.cpus = "0";
    ck_assert_int_eq(open_alone(&params, &context, &comm), 0);
    ck_assert_int_eq(lnt_comm_get_info(comm, &info), LNT_OK);
    ck_assert_uint_eq(info.n_threads, 1);
    ck_assert_int_eq(lnt_comm_destroy(comm), LNT_OK);
    ck_assert_int_eq(lnt_context_destroy(context), LNT_OK);
    params.threads = LNT_POOL_THREADS_MAX + 1;
    ck_assert_int_eq(lnt_context_create(&params, &context), LNT_ERR_INVALID_ARG);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("threads");
    TCase *tcase = tcase_create("threads");

    tcase_set_timeout(tcase, 250);
    tcase_add_loop_test(tcase, no_number_of_threads_changes_a_byte, 0, 2 * N_WORLDS);
    tcase_add_test(tcase, number_by_rule);
    tcase_add_loop_test(tcase, helpers_have_names_and_cores_and_end, 0, 2);
    tcase_add_loop_test(tcase, auto_is_one_where_there_is_one_core_or_no_progress_thread, 0, 2);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
