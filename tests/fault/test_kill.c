/* kill -9 of a random rank at a random moment: every survivor gets PEER_LOST naming the dead rank, within seconds, can
 * destroy everything, and keeps nothing. LNT_KILL_ROUNDS sets the number of moments while running, as many in start-up
 * and a tenth over UCX. */
#include <pthread.h>

#include "../fork_ranks.h"
#include "../process_state.h"
#include "../swap_job.h"
#include "../testing.h"
#include "../transport_probe.h"

enum { DEADLINE_MS = 60000, TOLD_WITHIN_MS = 5000, DEFAULT_ROUNDS = TEST_SANITIZED ? 20 : 100, KILLED = 128 + SIGKILL };

/* What runs when the moment comes. */
typedef enum kill_work { SWAPS, SUMS, SIGNS, KINDS_OF_WORK } kill_work_t;

typedef struct kill_plan {
    kill_work_t work;
    uint32_t victim, delay_us, bytes;
    const char *transports; /* NULL: what the library takes by itself */
    bool in_creation;       /* the clock starts when the bootstrap is through, else when the communicator stands */
    uint32_t nodes, threads;
    lnt_switch_t thread;
} kill_plan_t;

static void *killer_main(void *arg)
{
    const rank_self_t *self = arg;

    rank_nap_us(((const kill_plan_t *)self->arg)->delay_us);
    atomic_store(&self->world->flags[0], (uint32_t)rank_now_ms() | 1u);
    kill(getpid(), SIGKILL);
    return NULL;
}

static void start_clock(rank_self_t *self)
{
    pthread_t killer;

    if (pthread_create(&killer, NULL, killer_main, self) != 0) abort();
}

static int gather_then_clock(void *arg, const void *input, void *output, size_t bytes)
{
    rank_self_t *self = arg;
    const int code = rank_allgather(self, input, output, bytes);

    if (self->rank == ((const kill_plan_t *)self->arg)->victim) start_clock(self);
    return code;
}

static lnt_status_t open_comm(rank_self_t *self, lnt_context_t *context, lnt_comm_t **comm_p)
{
    const kill_plan_t *plan = self->arg;
    lnt_bootstrap_t bootstrap = self->bootstrap;
    lnt_comm_params_t params = {.struct_size = sizeof(params), .bootstrap = &bootstrap, .timeout_ms = DEADLINE_MS};
    char node[16];

    snprintf(node, sizeof(node), "%u", self->rank % plan->nodes);
    params.node = node;
    params.transports = plan->transports;
    if (plan->in_creation) bootstrap.allgather = gather_then_clock;
    return lnt_comm_create(context, &params, comm_p);
}

static int check_loss(const rank_self_t *self, lnt_status_t status)
{
    const kill_plan_t *plan = self->arg;
    const uint32_t death_ms = atomic_load(&self->world->flags[0]);

    RANK_CHECK(status == LNT_ERR_PEER_LOST);
    RANK_CHECK(lnt_last_error()->status == LNT_ERR_PEER_LOST);
    RANK_CHECK(lnt_last_error()->peer == plan->victim);
    RANK_CHECK(death_ms != 0 && (int32_t)((uint32_t)rank_now_ms() - death_ms) < TOLD_WITHIN_MS);
    return 0;
}

/* Collectives of the public interface, until one fails; the value is the same on all ranks, so the mean is known. */
static int reduce_until_loss(const kill_plan_t *plan, lnt_comm_t *comm, lnt_status_t *status_p)
{
    const lnt_codec_params_t codec_params = {.struct_size = sizeof(codec_params), .name = "sign1"};
    const uint64_t count = plan->bytes / sizeof(float) + 1;
    lnt_coll_params_t params = {.struct_size = sizeof(params)};
    lnt_codec_t *codec = NULL;
    float *values = calloc(count, sizeof(*values));

    RANK_CHECK(values != NULL);
    RANK_OK(lnt_codec_create(&codec_params, &codec));
    if (plan->work == SIGNS) params.codec = codec;
    do {
        for (uint64_t i = 0; i < count; i++)
            values[i] = 3;
        *status_p = lnt_allreduce(comm, values, values, count, LNT_F32, &params);
        for (uint64_t i = 0; i < count && *status_p >= 0; i++)
            RANK_CHECK(values[i] == 3); /* also through one sign and one scale per block */
    } while (*status_p >= 0);
    lnt_codec_destroy(codec);
    free(values);
    return 0;
}

static int swap_until_loss(const kill_plan_t *plan, lnt_comm_t *comm, lnt_status_t *status_p)
{
    swap_job_t swap;

    RANK_PASS(swap_init(&swap, comm, plan->bytes));
    while ((*status_p = swap_run(&swap)) == LNT_OK) {
    }
    swap_destroy(&swap);
    return 0;
}

static int run_until_loss(rank_self_t *self, lnt_comm_t *comm)
{
    const kill_plan_t *plan = self->arg;
    lnt_status_t status = LNT_OK;
    lnt_error_info_t record;

    if (!plan->in_creation && self->rank == plan->victim) start_clock(self);
    if (plan->work == SWAPS) RANK_PASS(swap_until_loss(plan, comm, &status));
    if (plan->work != SWAPS) RANK_PASS(reduce_until_loss(plan, comm, &status));
    RANK_PASS(check_loss(self, status));
    RANK_CHECK(lnt_comm_async_error(comm, &record) == LNT_ERR_PEER_LOST && record.peer == plan->victim);
    RANK_PASS(check_loss(self, lnt_barrier(comm))); /* later calls say the same */
    return 0;
}

static int kill_body(rank_self_t *self)
{
    const lnt_context_params_t params = {.struct_size = sizeof(params),
                                         .progress_thread = ((const kill_plan_t *)self->arg)->thread,
                                         .threads = ((const kill_plan_t *)self->arg)->threads};
    const process_state_t before = process_state();
    lnt_context_t *context;
    lnt_comm_t *comm = NULL;
    lnt_status_t status;

    RANK_OK(lnt_context_create(&params, &context));
    status = open_comm(self, context, &comm);
    if (status == LNT_OK) {
        RANK_PASS(run_until_loss(self, comm));
        RANK_OK(lnt_comm_destroy(comm));
    } else {
        RANK_PASS(check_loss(self, status));
        RANK_CHECK(comm == NULL);
    }
    RANK_OK(lnt_context_destroy(context));
    RANK_CHECK(same_state(&before));
    return 0;
}

static void one_moment(bool in_creation, const char *transports)
{
    const uint32_t n_ranks = 2 + (uint32_t)test_random_below(4);
    kill_plan_t plan = {.work = (kill_work_t)test_random_below(KINDS_OF_WORK),
                        .victim = (uint32_t)test_random_below(n_ranks),
                        .delay_us = (uint32_t)test_random_below(in_creation ? 8000 : 30000),
                        .bytes = 1 + (uint32_t)test_random_below(1u << test_random_below(21)),
                        .transports = transports,
                        .in_creation = in_creation,
                        .nodes = 1 + (uint32_t)test_random_below(3),
                        .threads = 1 + (uint32_t)test_random_below(4),
                        .thread = (test_random_below(4) == 0) ? LNT_OFF : LNT_ON};
    int codes[RANKS_MAX];

    (void)fork_ranks(n_ranks, kill_body, &plan, DEADLINE_MS, codes);
    for (uint32_t r = 0; r < n_ranks; r++) {
        ck_assert_msg(codes[r] == (r == plan.victim ? KILLED : 0),
                      "rank %u of %u: code %d; work %d, victim %u after %u us, %s, %u bytes, %u nodes, thread %d, "
                      "%u threads",
                      r, n_ranks, codes[r], (int)plan.work, plan.victim, plan.delay_us,
                      in_creation ? "in creation" : "running", plan.bytes, plan.nodes, (int)plan.thread, plan.threads);
    }
}

static uint32_t rounds(void)
{
    const char *text = getenv("LNT_KILL_ROUNDS");

    return (text != NULL) ? (uint32_t)strtoul(text, NULL, 10) : DEFAULT_ROUNDS;
}

START_TEST(kill_while_running)
{
    for (uint32_t i = 0; i < rounds(); i++)
        one_moment(false, NULL);
}
END_TEST

START_TEST(kill_in_creation)
{
    for (uint32_t i = 0; i < rounds(); i++)
        one_moment(true, NULL);
}
END_TEST

START_TEST(kill_over_ucx)
{
    for (uint32_t i = 0; i < 1 + rounds() / 10; i++)
        one_moment(i % 2 == 0, "ucx");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kill");
    TCase *tcase = tcase_create("kill");

    setenv("LINNET_THREAD_MIN_BYTES", "4", 1); /* helpers are at it when the moment comes */
    setenv("LINNET_SEGMENT_BYTES", "16k", 1);
    setenv("LINNET_LOG_FILE", "/dev/null", 1); /* every loss is logged as an error, and is what this test wants */
    tcase_set_timeout(tcase, 3600);
    tcase_add_test(tcase, kill_while_running);
    tcase_add_test(tcase, kill_in_creation);
    if (transport_is_usable("ucx", "kills over ucx")) tcase_add_test(tcase, kill_over_ucx);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
