/* The pinned threads: they sleep on the number of the run, do their share, and the last one wakes the caller. */
#include "codec_perf_team.h"

#include <sys/resource.h>
#include <time.h>

#include "../src/base/clock.h"
#include "../src/base/error.h"

enum { WAIT_NS = 1000000000, GATHER_NS = 2000000 };

static void pin(int core)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(core, &set);
    (void)pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

static uint64_t on_core_ns(void)
{
    struct timespec time = {0, 0};

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

/* How often this thread had to leave its core to another. */
static long times_preempted(void)
{
    struct rusage usage;

    return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

/* Spins, for a while, until all members are there. False: somebody is late. */
static bool gather(team_t *team)
{
    uint64_t limit_ns = lnt_now_ns() + GATHER_NS;

    atomic_fetch_add(&team->here, 1);
    while (atomic_load(&team->here) < team->n) {
        if (lnt_now_ns() > limit_ns) return false;
    }
    return true;
}

static void do_share(team_member_t *member)
{
    long preempted = times_preempted();
    bool together = gather(member->team);

    member->on_core_ns = on_core_ns();
    member->start_ns = lnt_now_ns();
    member->team->work(member->team->arg, member->number);
    member->end_ns = lnt_now_ns();
    member->on_core_ns = on_core_ns() - member->on_core_ns;
    member->disturbed = !together || times_preempted() != preempted;
}

static void *member_main(void *arg)
{
    team_member_t *member = arg;
    team_t *team = member->team;

    pin(member->core);
    for (uint32_t done = 0;; done++) {
        while (atomic_load(&team->run) == done)
            lnt_wait_word(&team->run, done, WAIT_NS);
        if (team->work == NULL) return NULL;
        do_share(member);
        if (atomic_fetch_sub(&team->busy, 1) == 1) lnt_wake_word(&team->busy);
    }
}

/* Member k gets the k-th of the cores that are allowed. */
static uint32_t find_cores(team_t *team)
{
    uint32_t n = 0;

    if (sched_getaffinity(0, sizeof(team->allowed), &team->allowed) != 0) return 0;
    for (int core = 0; core < CPU_SETSIZE && n < TEAM_MAX; core++) {
        if (CPU_ISSET(core, &team->allowed)) team->members[n++].core = core;
    }
    return n;
}

static lnt_status_t start_member(team_t *team, uint32_t number)
{
    team_member_t *member = &team->members[number];

    member->team = team;
    member->number = number;
    if (number == 0) {
        pin(member->core);
        return LNT_OK;
    }
    return pthread_create(&member->thread, NULL, member_main, member) == 0
               ? LNT_OK
               : lnt_error(LNT_ERR_SYSTEM, "allow more threads", "thread %u could not be started", number);
}

lnt_status_t team_open(team_t *team, uint32_t n)
{
    uint32_t n_cores;
    lnt_status_t status = LNT_OK;

    team_close(team);
    n_cores = find_cores(team);
    if (n == 0 || n > n_cores)
        return lnt_error(LNT_ERR_OUT_OF_RANGE, "use one thread per core at most", "%u threads on %u cores", n, n_cores);
    atomic_store(&team->run, 0);
    for (team->n = 0; status >= 0 && team->n < n; team->n += status >= 0)
        status = start_member(team, team->n);
    if (status < 0) team_close(team);
    return status;
}

static void begin(team_t *team, team_fn_t work, void *arg)
{
    team->work = work;
    team->arg = arg;
    atomic_store(&team->here, 0);
    atomic_store(&team->busy, team->n - 1);
    atomic_fetch_add(&team->run, 1);
    if (team->n > 1) lnt_wake_word(&team->run);
}

void team_close(team_t *team)
{
    if (team->n == 0) return;
    begin(team, NULL, NULL);
    for (uint32_t i = 1; i < team->n; i++)
        (void)pthread_join(team->members[i].thread, NULL);
    (void)pthread_setaffinity_np(pthread_self(), sizeof(team->allowed), &team->allowed);
    team->n = 0;
}

/* From the first start to the last end. */
static uint64_t span_ns(const team_t *team)
{
    uint64_t start_ns = team->members[0].start_ns, end_ns = team->members[0].end_ns;

    for (uint32_t i = 1; i < team->n; i++) {
        if (team->members[i].start_ns < start_ns) start_ns = team->members[i].start_ns;
        if (team->members[i].end_ns > end_ns) end_ns = team->members[i].end_ns;
    }
    return end_ns - start_ns;
}

double team_run(team_t *team, team_fn_t work, void *arg)
{
    uint32_t busy;

    begin(team, work, arg);
    do_share(&team->members[0]);
    while ((busy = atomic_load(&team->busy)) > 0)
        lnt_wait_word(&team->busy, busy, WAIT_NS);
    return (double)(team->n == 1 ? team->members[0].on_core_ns : span_ns(team)) * 1e-9;
}

bool team_disturbed(const team_t *team)
{
    for (uint32_t i = 0; i < team->n; i++) {
        if (team->members[i].disturbed) return true;
    }
    return false;
}
