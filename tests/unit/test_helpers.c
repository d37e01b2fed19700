/* Helper threads: the pool alone, and the executor with one. What runs where, what runs at the same time, that nothing
 * is lost or done twice, and that a failed executor has let go of all memory when its jobs end.
 *
 * Tasks that must overlap meet: each waits until the other has come, so a run one after the other is seen by the time
 * limit of the meeting, whatever the speed of the machine. */
#include <pthread.h>
#include <string.h>

#include "../../src/base/clock.h"
#include "../../src/base/error.h"
#include "../../src/base/memory.h"
#include "../../src/coll/exec.h"
#include "../testing.h"

enum {
    MEETING_MS = 20000,
    MANY = 20000,
    WIDE = 600,
    ROUNDS = 20,
    LONE_ROUNDS = 2000,
    LARGE = 1000,
    SMALL = 10,
    MIN_ELEMS = 100
};

static void nap_us(long us)
{
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

/* True when *count reached n in time. */
static bool wait_for(_Atomic uint32_t *count, uint32_t n)
{
    const uint64_t end_ns = lnt_now_ns() + MEETING_MS * UINT64_C(1000000);

    while (atomic_load(count) < n) {
        if (lnt_now_ns() > end_ns) return false;
        nap_us(100);
    }
    return true;
}

/* ---- the pool ---------------------------------------------------------------------------------------------------- */

static _Atomic uint32_t n_started, n_done;

static void count_started(void *arg)
{
    ck_assert_ptr_eq(arg, &n_started);
    atomic_fetch_add(&n_started, 1);
}

static void count_done(void *arg)
{
    ck_assert_ptr_eq(arg, &n_started);
    atomic_fetch_add(&n_done, 1);
}

static lnt_pool_t *make_pool(uint32_t n_threads)
{
    const lnt_pool_params_t params = {.arg = &n_started, .started = count_started, .done = count_done};
    lnt_pool_t *pool = NULL;

    atomic_store(&n_started, 0);
    atomic_store(&n_done, 0);
    ck_assert_int_eq(lnt_pool_create(&params, &pool), LNT_OK);
    if (n_threads > 1) ck_assert_int_eq(lnt_pool_set_threads(pool, n_threads), LNT_OK);
    return pool;
}

typedef struct job {
    lnt_work_t work; /* first */
    pthread_t here;
    _Atomic uint32_t runs, elsewhere;
} job_t;

static void run_job(lnt_work_t *work)
{
    job_t *job = (job_t *)(void *)work;

    atomic_store(&job->elsewhere, !pthread_equal(pthread_self(), job->here));
    atomic_fetch_add(&job->runs, 1);
}

START_TEST(every_work_runs_once)
{
    lnt_pool_t *pool = make_pool(1 + (uint32_t)_i);
    job_t *jobs = calloc(MANY, sizeof(*jobs));
    uint32_t elsewhere = 0;

    ck_assert_ptr_nonnull(jobs);
    for (uint32_t i = 0; i < MANY; i++) {
        jobs[i] = (job_t){.work = {.run = run_job}, .here = pthread_self()};
        while (!lnt_pool_push(pool, &jobs[i].work))
            (void)lnt_pool_run_one(pool);
        if (test_random_below(3) == 0) lnt_pool_call(pool);
        if (test_random_below(1000) == 0) nap_us(300); /* helpers fall asleep */
    }
    while (lnt_pool_run_one(pool)) {
    }
    for (uint32_t i = 0; i < MANY; i++) {
        ck_assert(wait_for(&jobs[i].runs, 1));
        elsewhere += atomic_load(&jobs[i].elsewhere);
    }
    lnt_pool_destroy(pool);
    for (uint32_t i = 0; i < MANY; i++)
        ck_assert_uint_eq(atomic_load(&jobs[i].runs), 1);
    ck_assert_uint_eq(atomic_load(&n_started), (uint32_t)_i);
    ck_assert_uint_eq(atomic_load(&n_done), elsewhere); /* told of everything helpers ran, and of nothing else */
    free(jobs);
    ck_assert_uint_eq(lnt_memory_live(), 0);
}
END_TEST

START_TEST(full_queue_refuses)
{
    static job_t jobs[1024];
    lnt_pool_t *pool = make_pool(1);
    uint32_t n = 0;

    memset(jobs, 0, sizeof(jobs));
    for (; n < 1024; n++) {
        jobs[n] = (job_t){.work = {.run = run_job}, .here = pthread_self()};
        if (!lnt_pool_push(pool, &jobs[n].work)) break;
    }
    ck_assert_uint_gt(n, 16);
    ck_assert_uint_lt(n, 1024);
    for (uint32_t i = 0; i < n; i++) {
        ck_assert(lnt_pool_run_one(pool));
        ck_assert_uint_eq(atomic_load(&jobs[i].runs), 1); /* oldest first */
    }
    ck_assert(!lnt_pool_run_one(pool));
    ck_assert_uint_eq(atomic_load(&jobs[n].runs), 0);
    lnt_pool_destroy(pool);
}
END_TEST

/* The first number starts helpers, later ones only lower how many are called. */
START_TEST(number_of_threads_only_falls)
{
    static const uint32_t asked[] = {4, 6, 2, 3, 1, 4}, got[] = {4, 4, 2, 2, 1, 1};
    lnt_pool_t *few = make_pool(1);

    ck_assert_uint_eq(lnt_pool_threads(few), 1);
    for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
        ck_assert_int_eq(lnt_pool_set_threads(few, asked[i]), LNT_OK);
        ck_assert_uint_eq(lnt_pool_threads(few), got[i]);
    }
    ck_assert(wait_for(&n_started, 3));
    lnt_pool_destroy(few);
    ck_assert_uint_eq(atomic_load(&n_started), 3);
}
END_TEST

/* ---- the executor with a pool ------------------------------------------------------------------------------------ */

static lnt_pool_t *pool;
static lnt_exec_t *exec;
static lnt_graph_t graph, *list[1] = {&graph};
static _Atomic uint8_t ready[1];
static lnt_job_t job;
static pthread_t progressing;

static _Atomic uint32_t n_came, n_here, n_there, n_ended, released, order[WIDE + 1];

static void no_send(void *arg, lnt_send_t *send)
{
    (void)arg;
    (void)send;
}

static void no_wake(void *arg)
{
    (void)arg;
}

static void open_exec(uint32_t n_threads)
{
    lnt_exec_params_t params = {.n_ranks = 1, .send = no_send, .wake = no_wake, .min_elems = MIN_ELEMS};

    params.pool = pool = make_pool(n_threads);
    ck_assert_int_eq(lnt_exec_create(&params, &exec), LNT_OK);
    progressing = pthread_self();
    n_came = n_here = n_there = n_ended = released = 0;
}

/* n tasks that wait for nothing, and one behind them all that counts. */
static void build(uint32_t n, lnt_task_fn_t run, uint64_t elems, lnt_task_fn_t last)
{
    lnt_graph_builder_t *builder;
    uint32_t end;

    ck_assert_int_eq(lnt_graph_begin(&builder), LNT_OK);
    end = lnt_graph_add_run(builder, last, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t task = lnt_graph_add_run(builder, run, i);

        lnt_graph_set_elems(builder, task, elems);
        lnt_graph_add_edge(builder, task, end);
    }
    memset(&graph, 0, sizeof(graph));
    ck_assert_int_eq(lnt_graph_finish(builder, &graph, NULL), LNT_OK);
    ck_assert_int_eq(lnt_exec_reserve(exec, n + 1), LNT_OK);
    job = (lnt_job_t){.graphs = list, .n_graphs = 1, .ready = ready};
}

static void post(uint64_t sequence)
{
    job.sequence = sequence;
    lnt_exec_post(exec, &job);
    lnt_job_ready(exec, &job, 0);
}

static void progress_to_the_end(void)
{
    const uint64_t end_ns = lnt_now_ns() + 2 * MEETING_MS * UINT64_C(1000000);

    while (atomic_load(&job.state) != LNT_JOB_DONE) {
        if (!lnt_exec_progress(exec)) nap_us(50);
        ck_assert_uint_lt(lnt_now_ns(), end_ns);
    }
    ck_assert_int_eq(job.status, LNT_OK);
}

static void close_exec(void)
{
    lnt_graph_release(&graph);
    lnt_exec_destroy(exec);
    lnt_pool_destroy(pool);
    ck_assert_uint_eq(lnt_memory_live(), 0);
}

static void count_place(lnt_graph_t *of, uint32_t task, uint64_t arg)
{
    (void)of;
    (void)task;
    atomic_fetch_add(pthread_equal(pthread_self(), progressing) ? &n_here : &n_there, 1);
    atomic_fetch_add(&order[arg], 1);
}

/* Runs behind all others, on the progressing thread, since it has no elements. */
static void check_all(lnt_graph_t *of, uint32_t task, uint64_t arg)
{
    (void)of;
    (void)task;
    ck_assert(pthread_equal(pthread_self(), progressing));
    for (uint64_t i = 0; i < arg; i++)
        ck_assert_uint_eq(atomic_exchange(&order[i], 0), 1);
    atomic_fetch_add(&n_ended, 1);
}

START_TEST(every_task_runs_once_before_its_successors)
{
    open_exec(1 + (uint32_t)_i);
    build(WIDE, count_place, LARGE, check_all);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        post(round);
        progress_to_the_end();
        ck_assert_uint_eq(atomic_load(&n_ended), round + 1);
        ck_assert_uint_eq(atomic_load(&n_here) + atomic_load(&n_there), WIDE * (round + 1));
    }
    ck_assert(_i > 0 || atomic_load(&n_there) == 0);
    close_exec();
}
END_TEST

/* Long enough that helpers would get their share. */
static void count_place_slowly(lnt_graph_t *of, uint32_t task, uint64_t arg)
{
    nap_us(20);
    count_place(of, task, arg);
}

START_TEST(small_tasks_stay)
{
    open_exec(4);
    build(WIDE, count_place_slowly, _i == 0 ? SMALL : 0, check_all);
    post(1);
    progress_to_the_end();
    ck_assert_uint_eq(atomic_load(&n_here), WIDE);
    ck_assert_uint_eq(atomic_load(&n_done), 0);
    close_exec();
}
END_TEST

START_TEST(a_lone_task_stays)
{
    open_exec(4);
    build(1, count_place, LARGE, check_all);
    for (uint64_t round = 0; round < LONE_ROUNDS; round++) {
        post(round);
        progress_to_the_end();
    }
    ck_assert_uint_eq(atomic_load(&n_here), LONE_ROUNDS);
    close_exec();
}
END_TEST

static void meet(lnt_graph_t *of, uint32_t task, uint64_t arg)
{
    (void)of;
    (void)task;
    (void)arg;
    atomic_fetch_add(&n_came, 1);
    if (wait_for(&n_came, (uint32_t)of->n_tasks - 1)) atomic_fetch_add(&n_ended, 1);
}

static void nothing(lnt_graph_t *of, uint32_t task, uint64_t arg)
{
    (void)of;
    (void)task;
    (void)arg;
}

START_TEST(as_many_run_at_once_as_there_are_threads)
{
    const uint32_t n = 2 + (uint32_t)_i;

    open_exec(n);
    build(n, meet, LARGE, nothing);
    post(1);
    progress_to_the_end();
    ck_assert_uint_eq(atomic_load(&n_ended), n); /* all met */
    close_exec();
}
END_TEST

/* ---- failure ----------------------------------------------------------------------------------------------------- */

/* In a helper: stays until it is released, then touches memory of the graph. */
static void linger(lnt_graph_t *of, uint32_t task, uint64_t arg)
{
    (void)arg;
    if (pthread_equal(pthread_self(), progressing)) {
        atomic_fetch_add(&n_here, 1);
        return;
    }
    atomic_fetch_add(&n_came, 1);
    (void)wait_for(&released, 1);
    nap_us(2000);
    of->tasks[task].frame = 1; /* memory that the executor gives back; a RUN task has no use for it */
    atomic_fetch_add(&n_ended, 1);
}

static void *release_soon(void *arg)
{
    (void)arg;
    nap_us(50000);
    atomic_store(&released, 1);
    return NULL;
}

START_TEST(failure_waits_for_running_tasks_and_drops_the_others)
{
    const uint32_t n_helpers = 1 + (uint32_t)_i;
    lnt_error_info_t record;
    pthread_t thread;
    uint32_t touched = 0;

    open_exec(1 + n_helpers);
    build(12, linger, LARGE, nothing);
    post(1);
    (void)lnt_exec_progress(exec); /* one here, as many as possible in helpers, the others queued */
    ck_assert(wait_for(&n_came, n_helpers));
    ck_assert_uint_eq(atomic_load(&n_here), 1);
    lnt_error_fill(&record, LNT_ERR_PEER_LOST, NULL, "rank 1 is gone");
    ck_assert_int_eq(pthread_create(&thread, NULL, release_soon, NULL), 0);
    lnt_exec_fail(exec, &record);
    ck_assert_uint_eq(atomic_load(&n_ended), n_helpers); /* all that ran are over */
    ck_assert_uint_eq(atomic_load(&n_came), n_helpers);  /* and none began since */
    ck_assert_uint_eq(atomic_load(&n_here), 1);
    ck_assert_uint_eq(atomic_load(&job.state), LNT_JOB_DONE);
    ck_assert_int_eq(job.status, LNT_ERR_PEER_LOST);
    pthread_join(thread, NULL);
    for (uint32_t i = 0; i < graph.n_tasks; i++)
        touched += graph.tasks[i].frame;
    ck_assert_uint_eq(touched, n_helpers);
    close_exec();
}
END_TEST

/* A helper that is at it is progress: nobody is blamed for it. */
START_TEST(a_busy_helper_is_no_stall)
{
    lnt_stall_t stall;
    uint64_t before;

    open_exec(2);
    build(2, linger, LARGE, nothing);
    post(1);
    (void)lnt_exec_progress(exec);
    ck_assert(wait_for(&n_came, 1));
    nap_us(2000);
    before = lnt_now_ns();
    lnt_exec_stall(exec, &stall);
    ck_assert(stall.running && stall.since_ns >= before);
    atomic_store(&released, 1);
    progress_to_the_end();
    close_exec();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("helpers");
    TCase *tcase = tcase_create("helpers");

    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, every_work_runs_once, 0, 5);
    tcase_add_test(tcase, full_queue_refuses);
    tcase_add_test(tcase, number_of_threads_only_falls);
    tcase_add_loop_test(tcase, every_task_runs_once_before_its_successors, 0, 5);
    tcase_add_loop_test(tcase, small_tasks_stay, 0, 2);
    tcase_add_test(tcase, a_lone_task_stays);
    tcase_add_loop_test(tcase, as_many_run_at_once_as_there_are_threads, 0, 4);
    tcase_add_loop_test(tcase, failure_waits_for_running_tasks_and_drops_the_others, 0, 3);
    tcase_add_test(tcase, a_busy_helper_is_no_stall);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
