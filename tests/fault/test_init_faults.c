/* Creation that cannot succeed: a rank that never starts or starts twice, another world size, other settings, another
 * library, no common transport, a rank with a malformed variable. Every rank gets an error that names the rank to
 * blame, and keeps nothing. */
#include "../../src/transport/mesh.h"
#include "../fork_ranks.h"
#include "../process_state.h"
#include "../swap_job.h"
#include "../testing.h"
#include "../thread_ranks.h"

#include <linnet/version.h>

enum { DEADLINE_MS = 30000, SHORT_MS = 300 };

/* What the odd rank does, and what every rank must say. */
typedef struct odd_plan {
    uint32_t odd; /* the rank that differs */
    void (*make_odd)(lnt_comm_params_t *params, lnt_bootstrap_t *bootstrap, bool odd);
    lnt_status_t expected;
    const char *says; /* in every rank's text */
} odd_plan_t;

static int try_create(const lnt_comm_params_t *params, lnt_status_t *status_p)
{
    const lnt_context_params_t quiet = {.struct_size = sizeof(quiet)};
    const process_state_t before = process_state();
    lnt_context_t *context;
    lnt_comm_t *comm = NULL;

    RANK_OK(lnt_context_create(&quiet, &context));
    *status_p = lnt_comm_create(context, params, &comm);
    RANK_CHECK(*status_p < 0 && comm == NULL);
    RANK_CHECK(lnt_last_error()->status == *status_p && lnt_last_error()->cause[0] != '\0');
    RANK_OK(lnt_context_destroy(context));
    RANK_CHECK(same_state(&before));
    return 0;
}

static int odd_body(rank_self_t *self)
{
    const odd_plan_t *plan = self->arg;
    lnt_bootstrap_t bootstrap = self->bootstrap;
    lnt_comm_params_t params = {.struct_size = sizeof(params), .bootstrap = &bootstrap};
    lnt_status_t status = LNT_OK;

    plan->make_odd(&params, &bootstrap, self->rank == plan->odd);
    RANK_PASS(try_create(&params, &status));
    RANK_CHECK(status == plan->expected);
    RANK_CHECK(strstr(lnt_last_error()->cause, plan->says) != NULL);
    return 0;
}

static void odd_timeout(lnt_comm_params_t *params, lnt_bootstrap_t *bootstrap, bool odd)
{
    (void)bootstrap;
    params->timeout_ms = odd ? 7777 : 8888;
}

static void odd_emulation(lnt_comm_params_t *params, lnt_bootstrap_t *bootstrap, bool odd)
{
    (void)bootstrap;
    params->emulate_gbps = odd ? 0.25 : 0.5;
}

static void odd_transports(lnt_comm_params_t *params, lnt_bootstrap_t *bootstrap, bool odd)
{
    (void)bootstrap;
    params->transports = odd ? "loop" : NULL;
}

static void odd_variable(lnt_comm_params_t *params, lnt_bootstrap_t *bootstrap, bool odd)
{
    (void)bootstrap;
    params->transports = odd ? "shm,teleport" : NULL;
}

static void odd_world(lnt_comm_params_t *params, lnt_bootstrap_t *bootstrap, bool odd)
{
    (void)params;
    if (odd) bootstrap->n_ranks++;
}

static void odd_number(lnt_comm_params_t *params, lnt_bootstrap_t *bootstrap, bool odd)
{
    (void)params;
    if (odd) bootstrap->rank--;
}

/* The greeting begins with the peer's identity: another library's has another version there. */
static int gather_other_version(void *arg, const void *input, void *output, size_t bytes)
{
    lnt_peer_id_t *altered = malloc(bytes);
    int code;

    if (altered == NULL) return 1;
    memcpy(altered, input, bytes);
    altered->library_version = LINNET_VERSION + 100;
    code = rank_allgather(arg, altered, output, bytes);
    free(altered);
    return code;
}

static void odd_version(lnt_comm_params_t *params, lnt_bootstrap_t *bootstrap, bool odd)
{
    (void)params;
    if (odd) bootstrap->allgather = gather_other_version;
}

static const odd_plan_t odd_plans[] = {
    {.make_odd = odd_timeout, .expected = LNT_ERR_MISMATCH, .says = "7777"},
    {.make_odd = odd_timeout, .expected = LNT_ERR_MISMATCH, .says = "8888"},
    {.make_odd = odd_emulation, .expected = LNT_ERR_MISMATCH, .says = "0.25"},
    {.make_odd = odd_transports, .expected = LNT_ERR_UNSUPPORTED, .says = "no transport between rank 0 "},
    {.make_odd = odd_variable, .expected = LNT_ERR_CONFIG, .says = "teleport"},
    {.make_odd = odd_world, .expected = LNT_ERR_MISMATCH, .says = "believes in"},
    {.make_odd = odd_number, .expected = LNT_ERR_MISMATCH, .says = "greeting of rank 1"},
    {.make_odd = odd_version, .expected = LNT_ERR_MISMATCH, .says = "library version"},
};

START_TEST(odd_rank)
{
    odd_plan_t plan = odd_plans[_i];

    plan.odd = 2; /* the largest number: then a world that is too large for it lies beyond what the others gather */
    ck_assert_uint_eq(fork_ranks(3, odd_body, &plan, DEADLINE_MS, NULL), 0);
}
END_TEST

/* ---- threads: who does not come, who comes twice ---- */

static lnt_bootstrap_t shared_bootstraps[RANKS_MAX];

/* arg: the rank every thread comes as, or NULL: its own. */
static int blame_body(rank_self_t *self)
{
    const uint32_t *as = self->arg;
    const lnt_comm_params_t params = {.struct_size = sizeof(params),
                                      .bootstrap = &shared_bootstraps[(as != NULL) ? *as : self->rank]};
    lnt_status_t status = LNT_OK;
    lnt_context_t *context;
    lnt_comm_t *comm = NULL;

    RANK_OK(lnt_context_create(NULL, &context));
    status = lnt_comm_create(context, &params, &comm);
    RANK_CHECK(status == LNT_ERR_BOOTSTRAP && comm == NULL);
    RANK_CHECK(lnt_last_error()->peer == 2);
    RANK_CHECK(strstr(lnt_last_error()->cause, "rank 2") != NULL);
    RANK_OK(lnt_context_destroy(context));
    return 0;
}

START_TEST(never_starts)
{
    ck_assert_int_eq(lnt_bootstrap_threads(3, SHORT_MS, shared_bootstraps), LNT_OK);
    ck_assert_uint_eq(thread_ranks(2, blame_body, NULL, DEADLINE_MS), 0);
    for (int r = 0; r < 3; r++)
        lnt_bootstrap_destroy(&shared_bootstraps[r]);
}
END_TEST

START_TEST(starts_twice)
{
    uint32_t as = 2;

    ck_assert_int_eq(lnt_bootstrap_threads(3, DEADLINE_MS, shared_bootstraps), LNT_OK);
    ck_assert_uint_eq(thread_ranks(2, blame_body, &as, DEADLINE_MS), 0);
    for (int r = 0; r < 3; r++)
        lnt_bootstrap_destroy(&shared_bootstraps[r]);
}
END_TEST

/* ---- a caller's all-gather that fails ---- */

static int gather_fails(void *arg, const void *input, void *output, size_t bytes)
{
    (void)arg;
    (void)input;
    (void)output;
    (void)bytes;
    return 42;
}

static int failing_gather_body(rank_self_t *self)
{
    lnt_bootstrap_t bootstrap = self->bootstrap;
    const lnt_comm_params_t params = {.struct_size = sizeof(params), .bootstrap = &bootstrap};
    lnt_status_t status = LNT_OK;

    bootstrap.allgather = gather_fails;
    RANK_PASS(try_create(&params, &status));
    RANK_CHECK(status == LNT_ERR_BOOTSTRAP && strstr(lnt_last_error()->cause, "42") != NULL);
    return 0;
}

START_TEST(failing_gather)
{
    ck_assert_uint_eq(thread_ranks(1, failing_gather_body, NULL, DEADLINE_MS), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("init faults");
    TCase *tcase = tcase_create("init faults");

    setenv("LINNET_LOG_FILE", "/dev/null", 1); /* errors are what this test wants */
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, odd_rank, 0, (int)(sizeof(odd_plans) / sizeof(odd_plans[0])));
    tcase_add_test(tcase, never_starts);
    tcase_add_test(tcase, starts_twice);
    tcase_add_test(tcase, failing_gather);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
