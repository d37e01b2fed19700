/* Insides of the executor that exec.c (jobs, queue), exec_frames.c (frames in and out) and exec_work.c (tasks in
 * helpers) share.
 *
 * Everything here is touched by the progressing thread alone, except `inbox`, `next_ring`, what `lock` guards, and
 * `done` and `cancelled`, which helpers use. */
#ifndef LNT_COLL_EXEC_INTERNAL_H
#define LNT_COLL_EXEC_INTERNAL_H

#include <pthread.h>

#include "exec.h"

/* A RECV waits for its dependencies and, as one more, for its frame. This bit says that the frame was not announced
 * yet: it is cleared by locate, so a second frame with the same key is noticed. */
#define LNT_RECV_EXPECTED 0x80000000u

typedef struct lnt_ready {
    lnt_graph_t *graph;
    uint32_t task;
} lnt_ready_t;

/* Ready tasks, first in first out. A task is in it at most once, so room for all armed tasks is enough. */
typedef struct lnt_ready_ring {
    uint64_t mask; /* capacity - 1 */
    uint64_t head, tail;
    lnt_ready_t entries[];
} lnt_ready_ring_t;

/* A task in the pool. Lent from `idle`, comes back through `done`. */
typedef struct lnt_exec_work {
    lnt_work_t work; /* first */
    lnt_exec_t *exec;
    lnt_ready_t ready;
} lnt_exec_work_t;

enum { LNT_EXEC_WORKS = 64 };

struct lnt_exec {
    lnt_exec_params_t params;

    _Atomic(lnt_job_t *) inbox;            /* posted, not yet armed; newest first */
    _Atomic(lnt_ready_ring_t *) next_ring; /* a larger queue, to be taken over before the next job is armed */
    pthread_mutex_t lock;                  /* set-up only: the two fields below */
    uint64_t reserved;                     /* tasks of all jobs that exist */
    uint64_t capacity;                     /* of the newest ring */

    lnt_ready_ring_t *ring;
    lnt_job_t *active; /* armed and not done, oldest first */
    uint64_t newest;   /* highest sequence ever armed */
    bool any;          /* one was armed */
    bool failed;
    lnt_status_t failure;
    uint64_t moved_ns; /* time of the last progress */

    lnt_exec_work_t works[LNT_EXEC_WORKS];
    lnt_work_t *idle;
    uint32_t n_out;             /* handed to the pool, not collected */
    _Atomic(lnt_work_t *) done; /* run, not collected */
    _Atomic bool cancelled;     /* what has not begun is not run */
};

void lnt_exec_push(lnt_exec_t *exec, lnt_graph_t *graph, uint32_t task);
void lnt_exec_complete(lnt_exec_t *exec, lnt_graph_t *graph, uint32_t task);
void lnt_exec_send(lnt_exec_t *exec, lnt_graph_t *graph, uint32_t task);
void lnt_exec_init_works(lnt_exec_t *exec);
bool lnt_exec_is_large(const lnt_exec_t *exec, const lnt_ready_t *ready); /* worth a helper, and there are helpers */
bool lnt_exec_hand_out(lnt_exec_t *exec, const lnt_ready_t *ready);       /* false: no room in the pool */
bool lnt_exec_collect(lnt_exec_t *exec);                                  /* completes what helpers have run */
void lnt_exec_recall(lnt_exec_t *exec); /* after a failure: when it returns, no task runs and none will */
bool lnt_exec_missing(const lnt_graph_t *graph, uint32_t task); /* a RECV whose frame has not arrived */

#endif
