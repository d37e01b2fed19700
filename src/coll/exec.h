/* The executor: runs jobs of one communicator, in one thread at a time; large tasks may run in helpers beside it.
 *
 * A *job* is a list of graphs that share a sequence number and a verdict: the buckets of a step, or one collective.
 * Life of a job: idle --lnt_exec_post(ARM)--> armed: frames may come in; --lnt_job_ready(i)--> graph i may start, in
 * list order (a ready graph waits for its predecessors, so that all ranks start them in one order) --> done: the caller
 * owns it again.
 *
 * The caller's threads only post to a lock-free inbox and sleep on job->state; everything else is touched by the
 * thread that calls lnt_exec_progress. Helpers (pool.h) run the functions of tasks and nothing else: what they finished
 * comes back to that thread. Nothing here allocates after lnt_exec_create.
 */
#ifndef LNT_COLL_EXEC_H
#define LNT_COLL_EXEC_H

#include <stdatomic.h>

#include "graph.h"
#include "pool.h"

typedef struct lnt_exec lnt_exec_t;

enum { LNT_JOB_IDLE = 0, LNT_JOB_RUNNING = 1, LNT_JOB_DONE = 2 };

typedef struct lnt_job {
    /* Filled by the owner before arming. */
    lnt_graph_t **graphs; /* in start order */
    uint32_t n_graphs;
    uint64_t sequence;
    uint64_t layout_hash;
    uint32_t hyper_hash;
    _Atomic uint8_t
        raised;    /* LNT_FRAME_VETO or 0, set by the owner at any time: a graph that starts after that begins with
                    * these flags, so that every frame it makes carries them. The owner clears it before arming */
    char what[96]; /* for messages: "allreduce count 1000 f32", "step 12 of plan" */

    _Atomic uint32_t state; /* LNT_JOB_*; futex word */
    _Atomic uint8_t *ready; /* [n_graphs], owner's memory; cleared by lnt_exec_post */
    uint8_t flags;          /* result: OR over graphs */
    lnt_status_t status;    /* result: LNT_OK or the communicator's error */

    /* The executor's. */
    struct lnt_job *next; /* inbox */
    struct lnt_job *next_active;
    uint32_t next_start;
    uint32_t graphs_left;
    uint32_t hint; /* graph of the last frame */
} lnt_job_t;

typedef struct lnt_exec_params {
    uint32_t rank, n_ranks;
    void *arg;
    void (*send)(void *arg, lnt_send_t *send);               /* route to a transport */
    void (*wake)(void *arg);                                 /* make sure the progressing thread looks at the inbox */
    void (*fail)(void *arg, const lnt_error_info_t *record); /* the communicator must fail with this; called inside the
                                                              * sink's locate, which then returns the error */
    uint32_t max_tasks;                                      /* 0: grows are done by lnt_exec_reserve */
    lnt_pool_t *pool;                                        /* outlives the executor; NULL: no helpers */
    uint64_t min_elems;                                      /* smaller tasks are not worth a helper */
} lnt_exec_params_t;

lnt_status_t lnt_exec_create(const lnt_exec_params_t *params, lnt_exec_t **exec_p);
void lnt_exec_destroy(lnt_exec_t *exec);

/* Make room in the ready queue for a job with that many tasks in all; by owners when they build. Not while jobs run on
 * another thread (the caller posts and waits; the progress thread applies it): thread-safe. */
lnt_status_t lnt_exec_reserve(lnt_exec_t *exec, uint64_t n_tasks);
void lnt_exec_unreserve(lnt_exec_t *exec, uint64_t n_tasks);

/* Caller side, any thread. */
void lnt_exec_post(lnt_exec_t *exec, lnt_job_t *job);                       /* arm */
void lnt_job_ready(lnt_exec_t *exec, lnt_job_t *job, uint32_t graph_index); /* graph may start */

/* Progress side. */
bool lnt_exec_progress(lnt_exec_t *exec); /* inbox, then ready tasks up to a budget; true when something was done */
void lnt_exec_sink(lnt_exec_t *exec, lnt_sink_t *sink_p); /* functions for the transports (broken excepted) */
/* Every job ends with this, now and later (later: by lnt_exec_progress). Waits for the tasks that run in helpers at
 * this moment: memory is the owners' again when their jobs end. Transports may still read and write the frames of those
 * jobs, so their owners destroy graphs only after the transports are closed. The sink holds what comes in and ignores
 * the rest. */
void lnt_exec_fail(lnt_exec_t *exec, const lnt_error_info_t *record);

/* For stall messages and time-outs: time of the last progress, and the first missing frame of the oldest running job.
 */
typedef struct lnt_stall {
    bool running; /* some job is armed and not done */
    bool own;     /* it waits for this rank's own caller */
    int64_t peer; /* else: for this rank */
    uint64_t sequence;
    uint64_t since_ns; /* last progress */
    char what[160];    /* "bucket 3, phase 1, step 812" */
} lnt_stall_t;
void lnt_exec_stall(lnt_exec_t *exec, lnt_stall_t *stall_p);

#endif
