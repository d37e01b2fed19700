/* Ranks that stand still: stopped or busy for less than the progress timeout harms nobody; for longer it is TIMED_OUT
 * with the name of that rank, on all others and, once it wakes, on itself. */
#include <pthread.h>

#include "../fork_ranks.h"
#include "../swap_job.h"
#include "../testing.h"

/* The time-out is long beside what a loaded machine takes from a rank that is not the sleeper, and short beside
 * TOO_LONG. */
enum { DEADLINE_MS = 60000, TIMEOUT_MS = 2000, MOMENT_MS = 600, TOO_LONG_MS = 4000 };
enum { N_RANKS = 4, FLAG_STANDING = 0, FLAG_ROUNDS = 1 };

typedef struct stop_plan {
    uint32_t sleeper, timeout_ms, still_ms, bytes;
    bool stopped; /* by SIGSTOP; else its caller is busy elsewhere */
    bool fatal;
    lnt_switch_t thread;
} stop_plan_t;

static _Atomic uint32_t stall_lines;

static void count_stalls(void *arg, lnt_log_level_t level, const char *line)
{
    const stop_plan_t *plan = arg;
    char text[64];

    snprintf(text, sizeof(text), "for rank %u: ", plan->sleeper);
    if (level == LNT_LOG_WARN && strstr(line, "waiting ") != NULL && strstr(line, text) != NULL)
        atomic_fetch_add(&stall_lines, 1);
}

/* In the rank before the sleeper: stops it for a while, once all have run for some time. */
static void *stopper_main(void *arg)
{
    const rank_self_t *self = arg;
    const stop_plan_t *plan = self->arg;

    rank_nap_us(30000);
    kill(self->world->pids[plan->sleeper], SIGSTOP);
    rank_nap_us(plan->still_ms * 1000L);
    kill(self->world->pids[plan->sleeper], SIGCONT);
    atomic_store(&self->world->flags[FLAG_STANDING], 1);
    return NULL;
}

static int open_comm(rank_self_t *self, lnt_context_t **context_p, lnt_comm_t **comm_p)
{
    const stop_plan_t *plan = self->arg;
    const lnt_context_params_t context_params = {.struct_size = sizeof(context_params),
                                                 .log = count_stalls,
                                                 .log_arg = self->arg,
                                                 .progress_thread = plan->thread};
    const lnt_comm_params_t params = {
        .struct_size = sizeof(params), .bootstrap = &self->bootstrap, .timeout_ms = plan->timeout_ms};

    RANK_OK(lnt_context_create(&context_params, context_p));
    RANK_OK(lnt_comm_create(*context_p, &params, comm_p));
    return 0;
}

/* Swaps until everybody has heard that the standstill is over, or until it fails. Rank 0 says how many rounds all run.
 */
static lnt_status_t swap_on(rank_self_t *self, swap_job_t *swap)
{
    const stop_plan_t *plan = self->arg;
    _Atomic uint32_t *flags = self->world->flags;
    lnt_status_t status = LNT_OK;

    for (uint32_t round = 1; status == LNT_OK; round++) {
        if (self->rank == 0 && atomic_load(&flags[FLAG_STANDING]) != 0 && atomic_load(&flags[FLAG_ROUNDS]) == 0) {
            atomic_store(&flags[FLAG_ROUNDS],
                         round + 20); /* before this rank's frames of the round: all others see it in time */
        }
        status = swap_run(swap);
        if (atomic_load(&flags[FLAG_ROUNDS]) == round) break;
        if (!plan->stopped && self->rank == plan->sleeper && round == 20) {
            rank_nap_us(plan->still_ms * 1000L);
            atomic_store(&flags[FLAG_STANDING], 1);
        }
    }
    return status;
}

static int stop_body(rank_self_t *self)
{
    const stop_plan_t *plan = self->arg;
    lnt_context_t *context;
    lnt_comm_t *comm;
    lnt_status_t status;
    swap_job_t swap;
    pthread_t stopper;
    const bool stops = plan->stopped && self->rank == (plan->sleeper + 1) % N_RANKS;

    RANK_PASS(open_comm(self, &context, &comm));
    RANK_PASS(swap_init(&swap, comm, plan->bytes));
    if (stops) RANK_CHECK(pthread_create(&stopper, NULL, stopper_main, self) == 0);
    status = swap_on(self, &swap);
    if (plan->fatal) {
        RANK_CHECK(status == LNT_ERR_TIMED_OUT);
        RANK_CHECK(lnt_last_error()->peer == plan->sleeper);
    } else {
        RANK_CHECK(status == LNT_OK);
    }
    if (stops) pthread_join(stopper, NULL);
    swap_destroy(&swap);
    RANK_OK(lnt_comm_destroy(comm));
    RANK_OK(lnt_context_destroy(context));
    return 0;
}

static void run_plan(stop_plan_t plan)
{
    plan.sleeper = (uint32_t)test_random_below(N_RANKS);
    plan.bytes = 1 + (uint32_t)test_random_below(100000);
    ck_assert_uint_eq(fork_ranks(N_RANKS, stop_body, &plan, DEADLINE_MS, NULL), 0);
}

START_TEST(stopped_for_a_moment)
{
    run_plan((stop_plan_t){
        .timeout_ms = TIMEOUT_MS, .still_ms = MOMENT_MS, .stopped = true, .thread = (_i == 0) ? LNT_ON : LNT_OFF});
}
END_TEST

START_TEST(stopped_for_too_long)
{
    run_plan((stop_plan_t){.timeout_ms = TIMEOUT_MS,
                           .still_ms = TOO_LONG_MS,
                           .stopped = true,
                           .fatal = true,
                           .thread = (_i == 0) ? LNT_ON : LNT_OFF});
}
END_TEST

START_TEST(busy_for_a_moment)
{
    run_plan((stop_plan_t){.timeout_ms = TIMEOUT_MS, .still_ms = MOMENT_MS, .thread = (_i == 0) ? LNT_ON : LNT_OFF});
}
END_TEST

START_TEST(busy_for_too_long)
{
    run_plan((stop_plan_t){
        .timeout_ms = TIMEOUT_MS, .still_ms = TOO_LONG_MS, .fatal = true, .thread = (_i == 0) ? LNT_ON : LNT_OFF});
}
END_TEST

/* A stall is told long before the time-out, with the rank and what is missing. */
static int stall_body(rank_self_t *self)
{
    const stop_plan_t *plan = self->arg;
    lnt_context_t *context;
    lnt_comm_t *comm;
    swap_job_t swap;

    setenv("LINNET_STALL_WARN", "1s", 1);
    RANK_PASS(open_comm(self, &context, &comm));
    RANK_PASS(swap_init(&swap, comm, 100));
    RANK_OK(swap_run(&swap));
    if (self->rank == plan->sleeper) rank_nap_us(3000000);
    RANK_OK(swap_run(&swap));
    RANK_CHECK(atomic_load(&stall_lines) == (self->rank == plan->sleeper ? 0 : 1));
    swap_destroy(&swap);
    RANK_OK(lnt_comm_destroy(comm));
    RANK_OK(lnt_context_destroy(context));
    return 0;
}

START_TEST(stall_is_told)
{
    stop_plan_t plan = {.timeout_ms = 20000, .sleeper = (uint32_t)test_random_below(2)};

    ck_assert_uint_eq(fork_ranks(2, stall_body, &plan, DEADLINE_MS, NULL), 0);
}
END_TEST

/* ---- a rank that destroys its communicator while the others still need it ---- */

static int leaver_body(rank_self_t *self)
{
    const stop_plan_t *plan = self->arg;
    lnt_context_t *context;
    lnt_comm_t *comm;
    swap_job_t swap;

    RANK_PASS(open_comm(self, &context, &comm));
    RANK_PASS(swap_init(&swap, comm, 1000));
    RANK_OK(swap_run(&swap));
    if (self->rank != plan->sleeper) {
        const uint64_t start_ms = rank_now_ms();

        RANK_CHECK(swap_run(&swap) == LNT_ERR_PEER_LOST && lnt_last_error()->peer == plan->sleeper);
        RANK_CHECK(rank_now_ms() - start_ms < plan->timeout_ms / 2);
    }
    swap_destroy(&swap);
    RANK_OK(lnt_comm_destroy(comm));
    RANK_OK(lnt_context_destroy(context));
    return 0;
}

START_TEST(leaves_too_early)
{
    stop_plan_t plan = {
        .timeout_ms = 20000, .sleeper = (uint32_t)test_random_below(N_RANKS), .thread = (_i == 0) ? LNT_ON : LNT_OFF};

    ck_assert_uint_eq(fork_ranks(N_RANKS, leaver_body, &plan, DEADLINE_MS, NULL), 0);
}
END_TEST

/* ---- a chain: rank r waits for r + 1, which waits in its turn ---- */

/* Frame 0 comes from the rank above and is sent on to the one below. */
static int build_relay(lnt_graph_t *graph, const rank_self_t *self)
{
    const bool first = self->rank == self->n_ranks - 1, last = self->rank == 0;
    lnt_frame_header_t header = {.magic = LNT_FRAME_MAGIC, .version = LNT_FRAME_VERSION, .phase = 3, .count = 64};
    lnt_graph_builder_t *builder;
    uint32_t in, out, came = 0, away;

    RANK_OK(lnt_graph_begin(&builder));
    in = lnt_graph_add_frame(builder, 64, 0);
    out = lnt_graph_add_frame(builder, 64, 0);
    header.source = self->rank;
    lnt_graph_set_header(builder, out, &header);
    header.source = self->rank + 1;
    lnt_graph_set_header(builder, in, &header);
    if (!first) came = lnt_graph_add_recv(builder, in, self->rank + 1, lnt_graph_key(3, 0, 0, self->rank + 1, 0));
    if (!last) {
        away = lnt_graph_add_send(builder, out, self->rank - 1);
        if (!first) lnt_graph_add_edge(builder, came, away);
    }
    RANK_OK(lnt_graph_finish(builder, graph, NULL));
    return 0;
}

static int chain_body(rank_self_t *self)
{
    const stop_plan_t *plan = self->arg;
    _Atomic uint8_t ready[1];
    lnt_graph_t graph = {0}, *list[1] = {&graph};
    lnt_job_t job = {.graphs = list, .n_graphs = 1, .ready = ready, .what = "relay"};
    lnt_context_t *context;
    lnt_comm_t *comm;

    RANK_PASS(open_comm(self, &context, &comm));
    RANK_PASS(build_relay(&graph, self));
    RANK_OK(lnt_exec_reserve(comm->exec, graph.n_tasks));
    if (self->rank == self->n_ranks - 1) rank_nap_us(plan->still_ms * 1000L);
    lnt_exec_post(comm->exec, &job);
    lnt_job_ready(comm->exec, &job, 0);
    RANK_CHECK(lnt_comm_wait_job(comm, &job) == LNT_ERR_TIMED_OUT);
    RANK_CHECK(lnt_last_error()->peer == self->n_ranks - 1);
    lnt_exec_unreserve(comm->exec, graph.n_tasks);
    lnt_graph_release(&graph);
    RANK_OK(lnt_comm_destroy(comm));
    RANK_OK(lnt_context_destroy(context));
    return 0;
}

START_TEST(chain_blames_its_end)
{
    stop_plan_t plan = {.timeout_ms = TIMEOUT_MS, .still_ms = TOO_LONG_MS};

    ck_assert_uint_eq(fork_ranks(N_RANKS, chain_body, &plan, DEADLINE_MS, NULL), 0);
}
END_TEST

/* ---- all ranks stopped at once, as when a machine is suspended: nobody may judge by the clock on the wall ---- */

static int suspender(rank_self_t *self)
{
    const stop_plan_t *plan = self->arg;

    while (atomic_load(&self->world->flags[FLAG_STANDING]) == 0)
        rank_nap_us(1000);
    rank_nap_us(plan->timeout_ms * 1000L / 3); /* the others have begun to wait for the sleeper */
    for (uint32_t r = 0; r < N_RANKS; r++)
        kill(self->world->pids[r], SIGSTOP);
    rank_nap_us(plan->still_ms * 1000L);
    for (uint32_t r = 0; r < N_RANKS; r++)
        kill(self->world->pids[r], SIGCONT);
    return 0;
}

/* The last process is no rank of the communicator: it stops the others. */
static int suspend_body(rank_self_t *self)
{
    const stop_plan_t *plan = self->arg;
    lnt_context_t *context;
    lnt_comm_t *comm;
    swap_job_t swap;

    if (self->rank == N_RANKS) return suspender(self);
    self->n_ranks = self->bootstrap.n_ranks = N_RANKS;
    RANK_PASS(open_comm(self, &context, &comm));
    RANK_PASS(swap_init(&swap, comm, 1000));
    RANK_OK(swap_run(&swap));
    if (self->rank == plan->sleeper) {
        atomic_store(&self->world->flags[FLAG_STANDING], 1);
        rank_nap_us(plan->timeout_ms * 2000L / 3);
    }
    RANK_OK(swap_run(&swap));
    RANK_OK(swap_run(&swap));
    swap_destroy(&swap);
    RANK_OK(lnt_comm_destroy(comm));
    RANK_OK(lnt_context_destroy(context));
    return 0;
}

START_TEST(all_suspended)
{
    stop_plan_t plan = {.timeout_ms = 3000, .still_ms = 4000, .sleeper = (uint32_t)test_random_below(N_RANKS)};

    ck_assert_uint_eq(fork_ranks(N_RANKS + 1, suspend_body, &plan, DEADLINE_MS, NULL), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("stop");
    TCase *tcase = tcase_create("stop");

    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, stopped_for_a_moment, 0, 2);
    tcase_add_loop_test(tcase, stopped_for_too_long, 0, 2);
    tcase_add_loop_test(tcase, busy_for_a_moment, 0, 2);
    tcase_add_loop_test(tcase, busy_for_too_long, 0, 2);
    tcase_add_test(tcase, stall_is_told);
    tcase_add_loop_test(tcase, leaves_too_early, 0, 2);
    tcase_add_test(tcase, chain_blames_its_end);
    tcase_add_test(tcase, all_suspended);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
