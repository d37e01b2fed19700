/* A team of pinned threads that all do one thing, and the time it took: of one member the time it had its core, of
 * several from the first start to the last end.
 *
 * Member 0 is the caller. Members sleep between runs, and begin one together if they all get a core soon enough. What
 * the scheduler did to a run can be asked: a core that somebody else wanted makes times that mean nothing.
 */
#ifndef PERF_CODEC_PERF_TEAM_H
#define PERF_CODEC_PERF_TEAM_H

#include <linnet/types.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { TEAM_MAX = 256 };

typedef void (*team_fn_t)(void *arg, uint32_t member);

typedef struct team_member {
    struct team *team;
    uint32_t number;
    int core;
    pthread_t thread;
    uint64_t start_ns, end_ns; /* of the last run */
    uint64_t on_core_ns;       /* likewise, without the time that others had the core */
    bool disturbed;
} team_member_t;

typedef struct team {
    uint32_t n;        /* members; 0: closed */
    cpu_set_t allowed; /* to the caller, before it was pinned */
    team_member_t members[TEAM_MAX];
    _Atomic uint32_t run;  /* number of runs begun */
    _Atomic uint32_t here; /* members that are about to begin it */
    _Atomic uint32_t busy; /* members that have not ended it; member 0 is not counted */
    team_fn_t work;        /* NULL: go home */
    void *arg;
} team_t;

/* At most one member per core this process may use: LNT_ERR_OUT_OF_RANGE. An open team is closed first. Closing unpins
 * the caller. */
lnt_status_t team_open(team_t *team, uint32_t n);
void team_close(team_t *team);

/* Seconds. */
double team_run(team_t *team, team_fn_t work, void *arg);

/* A member lost its core during the last run, or began late. */
bool team_disturbed(const team_t *team);

#endif
