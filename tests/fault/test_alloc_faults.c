/* The k-th allocation of a rank fails, for every k: creating a context and a communicator then ends in an error on all
 * ranks, writes no output, keeps nothing and never hangs. */
#include "../fork_ranks.h"
#include "../process_state.h"
#include "../swap_job.h"
#include "../testing.h"
#include "../thread_ranks.h"

enum {
    DEADLINE_MS = 30000,
    GATHER_MS = 2000,
    MAX_SITES = 2000,
    FLAG_READY = 0,
    FLAG_ARMED = 1,
    N_RANKS = 3,
    FAILED_WELL = 10,
    FAILED_UNTOLD = 11,     /* the others know who, and not why */
    SITES_BEFORE_MESH = 2,  /* the mesh's own tables: nothing is there yet to tell them with */
    SITES_BEFORE_GATHER = 3 /* per rank */
};

typedef struct fault_plan {
    uint32_t k, victim;
    double gbps;
} fault_plan_t;

START_TEST(context_create)
{
    const process_state_t before = process_state();
    uint64_t k;

    for (k = 1; k < MAX_SITES; k++) {
        lnt_context_t *context = NULL;
        lnt_status_t status;
        bool fired;

        lnt_memory_fail_after(k);
        status = lnt_context_create(NULL, &context);
        fired = lnt_memory_fault_fired();
        lnt_memory_fail_after(0);
        ck_assert_int_eq(status, fired ? LNT_ERR_NO_MEMORY : LNT_OK);
        ck_assert((context == NULL) == fired);
        ck_assert_int_eq(lnt_context_destroy(context), LNT_OK);
        ck_assert(same_state(&before));
        if (!fired) break;
    }
    ck_assert(k > 3 && k < MAX_SITES);
}
END_TEST

START_TEST(thread_bootstrap)
{
    const process_state_t before = process_state();
    lnt_bootstrap_t bootstraps[3];
    bool fired = true;

    for (uint64_t k = 1; fired && k < MAX_SITES; k++) {
        lnt_status_t status;

        lnt_memory_fail_after(k);
        status = lnt_bootstrap_threads(3, GATHER_MS, bootstraps);
        fired = lnt_memory_fault_fired();
        lnt_memory_fail_after(0);
        ck_assert_int_eq(status, fired ? LNT_ERR_NO_MEMORY : LNT_OK);
    }
    for (int r = 0; r < 3; r++)
        lnt_bootstrap_destroy(&bootstraps[r]);
    ck_assert(same_state(&before));
}
END_TEST

static void meet(rank_self_t *self, int flag)
{
    atomic_fetch_add(&self->world->flags[flag], 1);
    while (atomic_load(&self->world->flags[flag]) < self->n_ranks)
        rank_nap_us(100);
}

static int create_and_destroy(rank_self_t *self, lnt_context_t *context)
{
    const fault_plan_t *plan = self->arg;
    const lnt_comm_params_t params = {
        .struct_size = sizeof(params), .bootstrap = &self->bootstrap, .emulate_gbps = plan->gbps};
    lnt_comm_t *comm = NULL;
    const lnt_status_t status = lnt_comm_create(context, &params, &comm);

    RANK_CHECK((status < 0) == (comm == NULL));
    RANK_CHECK(status >= 0 || (lnt_last_error()->status == status && lnt_last_error()->cause[0] != '\0'));
    RANK_OK(lnt_comm_destroy(comm));
    return (status < 0) ? FAILED_WELL : 0;
}

static int process_body(rank_self_t *self)
{
    const fault_plan_t *plan = self->arg;
    const process_state_t before = process_state();
    lnt_context_t *context;
    int code;

    self->world->deadline_ms = GATHER_MS; /* what others wait for a rank that fails before the bootstrap */
    RANK_OK(lnt_context_create(NULL, &context));
    meet(self, FLAG_READY); /* so that the bootstrap's short patience is not for slow starts */
    if (self->rank == plan->victim) lnt_memory_fail_after(plan->k);
    code = create_and_destroy(self, context);
    if (self->rank == plan->victim) {
        RANK_CHECK(lnt_memory_fault_fired() == (code == FAILED_WELL));
        RANK_CHECK(code == 0 || lnt_last_error()->status == LNT_ERR_NO_MEMORY);
        lnt_memory_fail_after(0);
    } else if (code == FAILED_WELL && plan->k > SITES_BEFORE_GATHER) {
        RANK_CHECK(lnt_last_error()->peer == (int64_t)plan->victim);
        if (lnt_last_error()->status != LNT_ERR_NO_MEMORY) code = FAILED_UNTOLD;
    }
    RANK_OK(lnt_context_destroy(context));
    RANK_CHECK(same_state(&before));
    return code;
}

/* The hook belongs to the process: any of the ranks may be hit. */
static int thread_body(rank_self_t *self)
{
    const fault_plan_t *plan = self->arg;
    lnt_context_t *context;
    int code;

    RANK_OK(lnt_context_create(NULL, &context));
    if (self->rank == plan->victim) self->world->deadline_ms = GATHER_MS;
    meet(self, FLAG_READY); /* all have a context: from here on the hook counts what the communicator needs */
    if (self->rank == plan->victim) lnt_memory_fail_after(plan->k);
    meet(self, FLAG_ARMED);
    code = create_and_destroy(self, context);
    RANK_OK(lnt_context_destroy(context));
    return code;
}

/* Until no allocation is left to fail. The sites before the bootstrap, where the others must wait, are tried once only.
 */
START_TEST(processes)
{
    fault_plan_t plan = {.k = 1 + (uint32_t)_i * SITES_BEFORE_GATHER, .gbps = (_i == 0) ? 0 : 10};
    int codes[RANKS_MAX];
    uint32_t untold = 0;

    do {
        plan.victim = plan.k % N_RANKS;
        (void)fork_ranks(N_RANKS, process_body, &plan, DEADLINE_MS, codes);
        untold += (codes[(plan.victim + 1) % N_RANKS] == FAILED_UNTOLD);
        for (int r = 0; r < N_RANKS; r++) {
            if (codes[r] == FAILED_UNTOLD) codes[r] = FAILED_WELL;
            ck_assert_msg(codes[r] == codes[plan.victim] && (codes[r] == 0 || codes[r] == FAILED_WELL),
                          "allocation %u of rank %u: rank %d ended with %d, the victim with %d", plan.k, plan.victim, r,
                          codes[r], codes[plan.victim]);
        }
        plan.k++;
    } while (codes[plan.victim] != 0 && plan.k < MAX_SITES);
    ck_assert(plan.k > 10 && plan.k < MAX_SITES);
    ck_assert_uint_eq(untold, SITES_BEFORE_MESH);
}
END_TEST

START_TEST(threads)
{
    fault_plan_t plan = {.k = 1 + (uint32_t)_i * N_RANKS * SITES_BEFORE_GATHER, .gbps = (_i == 0) ? 0 : 10};
    uint32_t failed = N_RANKS;

    while (failed != 0 && plan.k < MAX_SITES) {
        const process_state_t before = process_state();

        failed = thread_ranks(N_RANKS, thread_body, &plan, DEADLINE_MS);
        ck_assert_msg(failed == (lnt_memory_fault_fired() ? N_RANKS : 0), "allocation %u: %u of %d ranks failed",
                      plan.k, failed, N_RANKS);
        lnt_memory_fail_after(0);
        ck_assert(same_state(&before));
        plan.k++;
    }
    ck_assert(plan.k > 10 && plan.k < MAX_SITES);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("allocation faults");
    TCase *tcase = tcase_create("allocation faults");

    setenv("LINNET_LOG_FILE", "/dev/null", 1); /* errors are what this test wants */
    tcase_set_timeout(tcase, 300);
    tcase_add_test(tcase, context_create);
    tcase_add_test(tcase, thread_bootstrap);
    tcase_add_loop_test(tcase, processes, 0, 2);
    tcase_add_loop_test(tcase, threads, 0, 2);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
