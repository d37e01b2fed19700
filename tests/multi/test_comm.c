/* Communicators whose ranks are threads or processes: creation, topology, data, statistics, splits, every order of
 * destruction. */
#include "../fork_ranks.h"
#include "../swap_job.h"
#include "../testing.h"
#include "../thread_ranks.h"

enum { DEADLINE_MS = 60000, TIMEOUT_MS = 20000 };

/* What a body needs to know beyond its rank. */
typedef struct plan_of_test {
    const uint32_t *node_of; /* NULL: the host's */
    lnt_switch_t thread;
    const char *intra, *inter; /* transports expected */
    const char *transports;
    double gbps;
    uint32_t bytes, rounds;
    uint64_t seed; /* of what all ranks must draw alike */
} plan_of_test_t;

static _Atomic uint32_t complaints; /* lines at warn or worse: none is expected where nothing goes wrong */

static void count_complaint(void *arg, lnt_log_level_t level, const char *line)
{
    (void)arg;
    (void)line;
    if (level <= LNT_LOG_WARN) atomic_fetch_add(&complaints, 1);
}

static int open_comm(rank_self_t *self, const plan_of_test_t *plan, lnt_context_t **context_p, lnt_comm_t **comm_p)
{
    const lnt_context_params_t context_params = {
        .struct_size = sizeof(context_params), .log = count_complaint, .progress_thread = plan->thread};
    lnt_comm_params_t params = {.struct_size = sizeof(params),
                                .bootstrap = &self->bootstrap,
                                .timeout_ms = TIMEOUT_MS,
                                .transports = plan->transports,
                                .emulate_gbps = plan->gbps};
    char node[16];

    if (plan->node_of != NULL) {
        snprintf(node, sizeof(node), "node %u", plan->node_of[self->rank]);
        params.node = node;
    }
    RANK_OK(lnt_context_create(&context_params, context_p));
    RANK_OK(lnt_comm_create(*context_p, &params, comm_p));
    return 0;
}

static int check_info(lnt_comm_t *comm, const rank_self_t *self, const plan_of_test_t *plan)
{
    lnt_comm_info_t info = {.struct_size = sizeof(info)};
    uint32_t node_of[RANKS_MAX], local = 0, before = 0;

    RANK_OK(lnt_comm_get_info(comm, &info));
    RANK_OK(lnt_comm_get_nodes(comm, node_of));
    RANK_CHECK(info.rank == self->rank && info.n_ranks == self->n_ranks && info.node == node_of[self->rank]);
    for (uint32_t r = 0; r < self->n_ranks; r++) {
        RANK_CHECK(node_of[r] == (plan->node_of != NULL ? plan->node_of[r] : 0));
        local += (node_of[r] == info.node);
        before += (node_of[r] == info.node && r < self->rank);
    }
    RANK_CHECK(info.n_local == local && info.local_rank == before);
    RANK_CHECK(strcmp(info.intra_transport, local > 1 ? plan->intra : "-") == 0);
    RANK_CHECK(strcmp(info.inter_transport, local < self->n_ranks ? plan->inter : "-") == 0);
    return 0;
}

/* Bytes on the wire are frames with their headers, by level. */
static int check_stats(lnt_comm_t *comm, const plan_of_test_t *plan)
{
    const uint64_t frame = (uint64_t)plan->rounds * (plan->bytes + LNT_FRAME_HEADER_BYTES);
    lnt_comm_stats_t stats = {.struct_size = sizeof(stats)};
    lnt_comm_info_t info = {.struct_size = sizeof(info)};

    RANK_OK(lnt_comm_get_info(comm, &info));
    RANK_OK(lnt_comm_get_stats(comm, &stats, true));
    RANK_CHECK(stats.wire_bytes_intra == frame * (info.n_local - 1));
    RANK_CHECK(stats.wire_bytes_inter == frame * (info.n_ranks - info.n_local));
    RANK_CHECK(stats.frames_sent == (uint64_t)plan->rounds * (info.n_ranks - 1));
    RANK_OK(lnt_comm_get_stats(comm, &stats, false));
    RANK_CHECK(stats.wire_bytes_intra == 0 && stats.wire_bytes_inter == 0 && stats.frames_sent == 0);
    return 0;
}

static int swap_rounds(lnt_comm_t *comm, uint32_t bytes, uint32_t rounds)
{
    swap_job_t swap;

    RANK_PASS(swap_init(&swap, comm, bytes));
    for (uint32_t i = 0; i < rounds; i++)
        RANK_OK(swap_run(&swap));
    swap_destroy(&swap);
    return 0;
}

static int run_body(rank_self_t *self)
{
    const plan_of_test_t *plan = self->arg;
    lnt_context_t *context;
    lnt_comm_t *comm;

    RANK_PASS(open_comm(self, plan, &context, &comm));
    RANK_PASS(check_info(comm, self, plan));
    RANK_PASS(swap_rounds(comm, plan->bytes, plan->rounds));
    RANK_PASS(check_stats(comm, plan));
    RANK_OK(lnt_comm_destroy(comm));
    RANK_OK(lnt_context_destroy(context));
    RANK_CHECK(atomic_load(&complaints) == 0);
    return 0;
}

static plan_of_test_t thread_plan(void)
{
    return (plan_of_test_t){
        .intra = "loop", .inter = "loop", .bytes = 1 + (uint32_t)test_random_below(20000), .rounds = 10};
}

static plan_of_test_t process_plan(void)
{
    return (plan_of_test_t){
        .intra = "shm", .inter = "shm", .bytes = 1 + (uint32_t)test_random_below(20000), .rounds = 10};
}

START_TEST(threads_of_every_number)
{
    plan_of_test_t plan = thread_plan();

    for (uint32_t n = 1; n <= 8; n++)
        ck_assert_uint_eq(thread_ranks(n, run_body, &plan, DEADLINE_MS), 0);
    ck_assert_uint_eq(thread_ranks(16, run_body, &plan, DEADLINE_MS), 0);
}
END_TEST

START_TEST(processes_of_every_number)
{
    plan_of_test_t plan = process_plan();

    for (uint32_t n = 1; n <= 8; n++)
        ck_assert_uint_eq(fork_ranks(n, run_body, &plan, DEADLINE_MS, NULL), 0);
}
END_TEST

START_TEST(threads_over_shared_memory)
{
    plan_of_test_t plan = thread_plan();

    plan.intra = plan.inter = "shm";
    plan.transports = "^loop";
    ck_assert_uint_eq(thread_ranks(3, run_body, &plan, DEADLINE_MS), 0);
}
END_TEST

static const struct {
    uint32_t n_ranks, node_of[5];
} maps[] = {{5, {0, 0, 0, 1, 1}}, {4, {0, 1, 0, 1}}, {3, {0, 1, 2}}, {4, {0, 0, 0, 1}}};

START_TEST(node_maps)
{
    plan_of_test_t threads = thread_plan(), processes = process_plan();

    threads.node_of = processes.node_of = maps[_i].node_of;
    ck_assert_uint_eq(thread_ranks(maps[_i].n_ranks, run_body, &threads, DEADLINE_MS), 0);
    ck_assert_uint_eq(fork_ranks(maps[_i].n_ranks, run_body, &processes, DEADLINE_MS, NULL), 0);
}
END_TEST

START_TEST(without_a_progress_thread)
{
    plan_of_test_t threads = thread_plan(), processes = process_plan();

    threads.thread = processes.thread = LNT_OFF;
    ck_assert_uint_eq(thread_ranks(4, run_body, &threads, DEADLINE_MS), 0);
    ck_assert_uint_eq(fork_ranks(3, run_body, &processes, DEADLINE_MS, NULL), 0);
}
END_TEST

/* Frames far larger than the rings. */
START_TEST(large_frames)
{
    plan_of_test_t threads = thread_plan(), processes = process_plan();

    threads.bytes = processes.bytes = 2500000 + (uint32_t)test_random_below(64);
    threads.rounds = processes.rounds = 2;
    ck_assert_uint_eq(thread_ranks(3, run_body, &threads, DEADLINE_MS), 0);
    ck_assert_uint_eq(fork_ranks(3, run_body, &processes, DEADLINE_MS, NULL), 0);
}
END_TEST

/* The link is emulated per node, not per rank: bytes over the limit cannot come faster than the limit, whatever the
 * machine does. */
static int emulated_body(rank_self_t *self)
{
    const plan_of_test_t *plan = self->arg;
    const double frames = 4.0 * (plan->rounds - 1) + 2; /* 2 ranks to 2 ranks; of the last round only what comes here */
    const double bits = 8.0 * frames * (plan->bytes + LNT_FRAME_HEADER_BYTES);
    const double burst = 8.0 * 65536;
    const uint64_t start = rank_now_ms();
    lnt_comm_info_t info = {.struct_size = sizeof(info)};
    lnt_context_t *context;
    lnt_comm_t *comm;

    RANK_PASS(open_comm(self, plan, &context, &comm));
    RANK_PASS(swap_rounds(comm, plan->bytes, plan->rounds));
    RANK_OK(lnt_comm_get_info(comm, &info));
    RANK_CHECK(info.emulate_gbps == plan->gbps);
    RANK_CHECK((double)(rank_now_ms() - start + 1) * 1e-3 >= (bits - burst) / (plan->gbps * 1e9));
    RANK_OK(lnt_comm_destroy(comm));
    RANK_OK(lnt_context_destroy(context));
    return 0;
}

START_TEST(emulated_link)
{
    static const uint32_t node_of[] = {0, 1, 0, 1};
    plan_of_test_t plan = {.node_of = node_of, .gbps = 0.1, .bytes = 100000, .rounds = 5};

    ck_assert_uint_eq(thread_ranks(4, emulated_body, &plan, DEADLINE_MS), 0);
    ck_assert_uint_eq(fork_ranks(4, emulated_body, &plan, DEADLINE_MS, NULL), 0);
}
END_TEST

/* Two communicators of one context run at once, and end in either order. */
static int pair_body(rank_self_t *self)
{
    const plan_of_test_t *plan = self->arg;
    const lnt_comm_params_t params = {
        .struct_size = sizeof(params), .bootstrap = &self->bootstrap, .timeout_ms = TIMEOUT_MS};
    lnt_context_t *context;
    lnt_comm_t *comms[2];
    swap_job_t swaps[2];

    RANK_PASS(open_comm(self, plan, &context, &comms[0]));
    RANK_OK(lnt_comm_create(context, &params, &comms[1]));
    for (int i = 0; i < 2; i++)
        RANK_PASS(swap_init(&swaps[i], comms[i], plan->bytes));
    for (uint32_t round = 0; round < plan->rounds; round++) {
        swap_post(&swaps[0]);
        swap_post(&swaps[1]);
        RANK_OK(lnt_comm_wait_job(comms[1], &swaps[1].job));
        while (!lnt_comm_test_job(comms[0], &swaps[0].job))
            rank_nap_us(50);
        RANK_CHECK(swaps[0].job.status == LNT_OK && swaps[0].wrong == 0 && swaps[1].wrong == 0);
    }
    for (int i = 0; i < 2; i++)
        swap_destroy(&swaps[i]);
    RANK_OK(lnt_comm_destroy(comms[self->rank % 2]));
    RANK_OK(lnt_comm_destroy(comms[1 - self->rank % 2]));
    RANK_OK(lnt_context_destroy(context));
    return 0;
}

START_TEST(two_communicators)
{
    plan_of_test_t threads = thread_plan(), processes = process_plan();

    threads.thread = processes.thread = (_i == 0) ? LNT_ON : LNT_OFF;
    ck_assert_uint_eq(thread_ranks(3, pair_body, &threads, DEADLINE_MS), 0);
    ck_assert_uint_eq(fork_ranks(3, pair_body, &processes, DEADLINE_MS, NULL), 0);
}
END_TEST

/* ---- splits ---- */

/* Members of a color by (key, rank), found the slow way. */
static uint32_t expected_members(const rank_self_t *self, const int64_t *color, const int64_t *key, uint32_t *members)
{
    uint32_t n = 0;

    for (uint32_t r = 0; r < self->n_ranks; r++) {
        uint32_t at = n;

        if (color[r] != color[self->rank]) continue;
        while (at > 0 && key[members[at - 1]] > key[r]) {
            members[at] = members[at - 1];
            at--;
        }
        members[at] = r;
        n++;
    }
    return n;
}

static int check_child(lnt_comm_t *parent, lnt_comm_t *child, const uint32_t *members, uint32_t n_members)
{
    lnt_comm_info_t info = {.struct_size = sizeof(info)}, parent_info = {.struct_size = sizeof(info)};
    uint32_t nodes[RANKS_MAX], parent_nodes[RANKS_MAX];

    RANK_OK(lnt_comm_get_info(parent, &parent_info));
    RANK_OK(lnt_comm_get_info(child, &info));
    RANK_OK(lnt_comm_get_nodes(parent, parent_nodes));
    RANK_OK(lnt_comm_get_nodes(child, nodes));
    RANK_CHECK(info.n_ranks == n_members && members[info.rank] == parent_info.rank);
    RANK_CHECK(info.emulate_gbps == parent_info.emulate_gbps);
    for (uint32_t i = 0; i < n_members; i++) { /* numbers may differ, who shares a node may not */
        for (uint32_t j = 0; j < i; j++) {
            RANK_CHECK((nodes[i] == nodes[j]) == (parent_nodes[members[i]] == parent_nodes[members[j]]));
        }
    }
    return 0;
}

static int split_body(rank_self_t *self)
{
    const plan_of_test_t *plan = self->arg;
    int64_t color[RANKS_MAX], key[RANKS_MAX];
    uint32_t members[RANKS_MAX];
    uint64_t random = plan->seed;
    lnt_context_t *context;
    lnt_comm_t *parent, *child = (lnt_comm_t *)(void *)&random;

    for (uint32_t r = 0; r < self->n_ranks; r++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        color[r] = (int64_t)(random >> 33) % 4 - 1;
        key[r] = (int64_t)(random >> 40) % 3 - 1;
    }
    RANK_PASS(open_comm(self, plan, &context, &parent));
    RANK_OK(lnt_comm_split(parent, color[self->rank], key[self->rank], &child));
    RANK_CHECK((child == NULL) == (color[self->rank] < 0));
    if (child != NULL) {
        RANK_PASS(check_child(parent, child, members, expected_members(self, color, key, members)));
        RANK_PASS(swap_rounds(child, plan->bytes, plan->rounds));
    }
    RANK_PASS(swap_rounds(parent, plan->bytes, plan->rounds)); /* the parent's sequence did not run apart */
    if (self->rank % 2 == 0) RANK_OK(lnt_comm_destroy(child));
    RANK_OK(lnt_comm_destroy(parent));
    if (self->rank % 2 != 0) RANK_OK(lnt_comm_destroy(child));
    RANK_OK(lnt_context_destroy(context));
    RANK_CHECK(atomic_load(&complaints) == 0);
    return 0;
}

START_TEST(splits)
{
    static const uint32_t node_of[] = {0, 1, 0, 1, 2, 2, 0, 1};
    plan_of_test_t threads = thread_plan(), processes = process_plan();

    threads.node_of = processes.node_of = node_of;
    threads.gbps = processes.gbps = (_i == 0) ? 0 : 50;
    for (uint32_t n = 1; n <= 8; n += 2) {
        threads.seed = processes.seed = test_random();
        ck_assert_uint_eq(thread_ranks(n, split_body, &threads, DEADLINE_MS), 0);
        ck_assert_uint_eq(fork_ranks(n, split_body, &processes, DEADLINE_MS, NULL), 0);
    }
}
END_TEST

/* ---- aborting ---- */

/* Rank 1 aborts while rank 0 waits for it; both, and all later calls, say so. */
static int abort_body(rank_self_t *self)
{
    const plan_of_test_t *plan = self->arg;
    lnt_error_info_t record;
    lnt_context_t *context;
    lnt_comm_t *comm;
    swap_job_t swap;

    RANK_PASS(open_comm(self, plan, &context, &comm));
    RANK_PASS(swap_init(&swap, comm, plan->bytes));
    RANK_OK(swap_run(&swap));
    if (self->rank == 1) {
        rank_nap_us(20000);
        lnt_comm_abort(comm, "the test wants it so");
    }
    RANK_CHECK(swap_run(&swap) == LNT_ERR_ABORTED);
    RANK_CHECK(strstr(lnt_last_error()->cause, "the test wants it so") != NULL);
    RANK_CHECK(lnt_comm_async_error(comm, &record) == LNT_ERR_ABORTED && record.peer == 1);
    RANK_CHECK(lnt_barrier(comm) == LNT_ERR_ABORTED);
    swap_destroy(&swap);
    RANK_OK(lnt_comm_destroy(comm));
    RANK_OK(lnt_context_destroy(context));
    atomic_store(&complaints, 0);
    return 0;
}

START_TEST(aborts)
{
    plan_of_test_t plan = thread_plan();

    plan.thread = (_i == 0) ? LNT_ON : LNT_OFF;
    ck_assert_uint_eq(thread_ranks(3, abort_body, &plan, DEADLINE_MS), 0);
    ck_assert_uint_eq(fork_ranks(3, abort_body, &plan, DEADLINE_MS, NULL), 0);
}
END_TEST

/* What a user holds at the fork: a request that runs, and a plan with an optimizer. */
typedef struct held {
    lnt_context_t *context;
    lnt_comm_t *comm;
    lnt_request_t *request;
    lnt_plan_t *plan;
    lnt_optim_t *optim;
    float value, sum, param;
} held_t;

static int hold(held_t *held)
{
    const lnt_coll_params_t add = {.struct_size = sizeof(add), .op = LNT_SUM};
    const lnt_tensor_params_t tensor = {.struct_size = sizeof(tensor), .name = "x", .count = 1, .param = &held->param};
    const lnt_optim_params_t adam = {.struct_size = sizeof(adam), .algorithm = "adam"};
    uint32_t number;

    RANK_OK(lnt_allreduce_init(held->comm, 1, LNT_F32, &add, &held->request));
    RANK_OK(lnt_plan_create(held->comm, NULL, &held->plan));
    RANK_OK(lnt_plan_add_tensor(held->plan, &tensor, &number));
    RANK_OK(lnt_optim_create(held->plan, &adam, &held->optim));
    return 0;
}

/* In the child. 0: all was refused. */
static int try_all(held_t *held)
{
    (void)alarm(DEADLINE_MS / 1000 / 2); /* a call that waits fails the test */
    lnt_comm_abort(held->comm, "a child may not");
    RANK_CHECK(lnt_request_test(held->request) == LNT_ERR_INVALID_USAGE);
    RANK_CHECK(lnt_request_wait(held->request) == LNT_ERR_INVALID_USAGE);
    RANK_CHECK(lnt_request_destroy(held->request) == LNT_ERR_INVALID_USAGE);
    RANK_CHECK(lnt_plan_commit(held->plan) == LNT_ERR_INVALID_USAGE);
    RANK_CHECK(lnt_optim_destroy(held->optim) == LNT_ERR_INVALID_USAGE);
    RANK_CHECK(lnt_plan_destroy(held->plan) == LNT_ERR_INVALID_USAGE);
    RANK_CHECK(lnt_barrier(held->comm) == LNT_ERR_INVALID_USAGE);
    RANK_CHECK(lnt_comm_destroy(held->comm) == LNT_ERR_INVALID_USAGE);
    RANK_CHECK(lnt_context_destroy(held->context) == LNT_ERR_INVALID_USAGE);
    return 0;
}

/* A forked child must not use its parent's objects, and does no harm by trying: rank 0 forks while the others let its
 * request wait. */
static int child_body(rank_self_t *self)
{
    const plan_of_test_t *plan = self->arg;
    held_t held = {.value = (float)(self->rank + 1)};
    int status = 0;
    pid_t pid = -1;

    RANK_PASS(open_comm(self, plan, &held.context, &held.comm));
    RANK_PASS(hold(&held));
    if (self->rank == 0) {
        RANK_OK(lnt_request_start(held.request, &held.value, &held.sum));
        pid = fork();
        if (pid == 0) _exit(try_all(&held));
        RANK_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
        atomic_store(&self->world->flags[0], 1);
    } else {
        while (atomic_load(&self->world->flags[0]) == 0)
            rank_nap_us(1000);
        RANK_OK(lnt_request_start(held.request, &held.value, &held.sum));
    }
    RANK_OK(lnt_request_wait(held.request));
    RANK_CHECK(held.sum == 3);
    RANK_PASS(swap_rounds(held.comm, plan->bytes, plan->rounds));
    RANK_OK(lnt_request_destroy(held.request));
    RANK_OK(lnt_optim_destroy(held.optim));
    RANK_OK(lnt_plan_destroy(held.plan));
    RANK_OK(lnt_comm_destroy(held.comm));
    RANK_OK(lnt_context_destroy(held.context));
    return 0;
}

START_TEST(forked_child)
{
    plan_of_test_t plan = process_plan();

    plan.thread = (_i == 0) ? LNT_ON : LNT_OFF;
    ck_assert_uint_eq(fork_ranks(2, child_body, &plan, DEADLINE_MS, NULL), 0);
}
END_TEST

/* Wrong arguments are refused with a word, and a second context of the process does not mind. */
static int usage_body(rank_self_t *self)
{
    const lnt_context_params_t context_params = {.struct_size = sizeof(context_params), .log = count_complaint};
    lnt_comm_params_t params = {.struct_size = sizeof(params), .bootstrap = &self->bootstrap};
    lnt_comm_info_t info = {.struct_size = 1};
    lnt_context_t *context;
    lnt_comm_t *comm = NULL;

    RANK_OK(lnt_context_create(&context_params, &context));
    RANK_CHECK(lnt_comm_create(NULL, &params, &comm) == LNT_ERR_INVALID_ARG);
    RANK_CHECK(lnt_comm_create(context, NULL, &comm) == LNT_ERR_INVALID_ARG);
    params.struct_size--;
    RANK_CHECK(lnt_comm_create(context, &params, &comm) == LNT_ERR_VERSION);
    params.struct_size++;
    params.emulate_gbps = -1;
    RANK_CHECK(lnt_comm_create(context, &params, &comm) == LNT_ERR_INVALID_ARG);
    params.emulate_gbps = 0;
    params.transports = "shm,lop";
    RANK_CHECK(lnt_comm_create(context, &params, &comm) == LNT_ERR_CONFIG);
    RANK_CHECK(strstr(lnt_last_error()->cause, "loop") != NULL);
    params.transports = NULL;
    RANK_CHECK(comm == NULL);
    RANK_OK(lnt_comm_create(context, &params, &comm));
    RANK_CHECK(lnt_comm_get_info(comm, &info) == LNT_ERR_VERSION);
    RANK_CHECK(lnt_comm_get_info(NULL, &info) == LNT_ERR_INVALID_ARG);
    RANK_CHECK(lnt_comm_async_error(comm, NULL) == LNT_OK);
    RANK_CHECK(lnt_context_destroy(context) == LNT_ERR_INVALID_USAGE);
    RANK_CHECK(atomic_exchange(&complaints, 0) > 0);
    RANK_OK(lnt_comm_destroy(comm));
    RANK_OK(lnt_comm_destroy(NULL));
    RANK_OK(lnt_context_destroy(context));
    return 0;
}

START_TEST(wrong_usage)
{
    ck_assert_uint_eq(thread_ranks(1, usage_body, NULL, DEADLINE_MS), 0);
}
END_TEST

/* A residual that is destroyed while a request runs with it lives until the run ends. */
static int orphan_body(rank_self_t *self)
{
    enum { COUNT = 5000 };
    static _Thread_local float input[COUNT], output[COUNT], loss[COUNT];
    const uint32_t node_of[2] = {0, 1};
    const plan_of_test_t plan = {.node_of = node_of};
    const lnt_codec_params_t cp = {.struct_size = sizeof(cp), .name = "sign1", .block = 64};
    lnt_coll_params_t params = {.struct_size = sizeof(params)};
    lnt_context_t *context;
    lnt_comm_t *comm;
    lnt_codec_t *codec;
    lnt_request_t *request;

    RANK_PASS(open_comm(self, &plan, &context, &comm));
    RANK_OK(lnt_codec_create(&cp, &codec));
    RANK_OK(lnt_residual_create(comm, COUNT, codec, &params.residual));
    params.codec = codec;
    RANK_OK(lnt_allreduce_init(comm, COUNT, LNT_F32, &params, &request));
    for (uint32_t i = 0; i < COUNT; i++)
        input[i] = (float)(i % 97) - 40;
    RANK_OK(lnt_request_start(request, input, output));
    RANK_CHECK(lnt_residual_read(params.residual, loss, loss) == LNT_ERR_INVALID_USAGE);
    lnt_residual_destroy(params.residual);
    RANK_OK(lnt_request_wait(request));
    RANK_CHECK(lnt_request_start(request, input, output) == LNT_ERR_INVALID_USAGE);
    RANK_OK(lnt_request_destroy(request));
    lnt_codec_destroy(codec);
    RANK_OK(lnt_comm_destroy(comm));
    RANK_OK(lnt_context_destroy(context));
    return 0;
}

START_TEST(residual_destroyed_during_a_run)
{
    ck_assert_uint_eq(thread_ranks(2, orphan_body, NULL, DEADLINE_MS), 0);
}
END_TEST

/* The progress thread takes no signals: what is sent to the process waits until an application's thread wants it. */
static int signal_body(rank_self_t *self)
{
    const struct timespec brief = {.tv_nsec = 50000000}, patient = {.tv_sec = 10};
    const lnt_context_params_t params = {.struct_size = sizeof(params), .progress_thread = LNT_ON};
    lnt_context_t *context;
    sigset_t set;

    (void)self;
    RANK_OK(lnt_context_create(&params, &context)); /* while this thread does not block the signal */
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGUSR1);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    (void)nanosleep(&brief, NULL); /* the thread has settled */
    (void)kill(getpid(), SIGUSR1); /* without a handler it would end the process on a thread that takes it */
    RANK_CHECK(sigtimedwait(&set, NULL, &patient) == SIGUSR1);
    RANK_OK(lnt_context_destroy(context));
    return 0;
}

START_TEST(progress_thread_takes_no_signals)
{
    int code;

    (void)fork_ranks(1, signal_body, NULL, DEADLINE_MS, &code);
    ck_assert_int_eq(code, 0);
}
END_TEST

static Suite *comm_suite(void)
{
    Suite *suite = suite_create("communicators");
    TCase *tcase = tcase_create("comm");

    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, wrong_usage);
    tcase_add_test(tcase, threads_of_every_number);
    tcase_add_test(tcase, processes_of_every_number);
    tcase_add_test(tcase, threads_over_shared_memory);
    tcase_add_loop_test(tcase, node_maps, 0, (int)(sizeof(maps) / sizeof(maps[0])));
    tcase_add_test(tcase, without_a_progress_thread);
    tcase_add_test(tcase, large_frames);
    tcase_add_test(tcase, emulated_link);
    tcase_add_loop_test(tcase, two_communicators, 0, 2);
    tcase_add_loop_test(tcase, splits, 0, 2);
    tcase_add_loop_test(tcase, aborts, 0, 2);
    tcase_add_loop_test(tcase, forked_child, 0, 2);
    tcase_add_test(tcase, residual_destroyed_during_a_run);
    tcase_add_test(tcase, progress_thread_takes_no_signals);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return test_main(comm_suite());
}
