/* Helper threads that run work beside the thread that makes progress; one pool serves all executors of a context.
 *
 * The progressing thread fills one bounded queue; helpers, and that thread itself, empty it. A helper sleeps on a word
 * of its own until it is called, so exactly as many wake as there is work for. The pool knows nothing of tasks: what
 * was run finds its way back through the work's owner. No lock and no allocation once the threads run.
 */
#ifndef LNT_COLL_POOL_H
#define LNT_COLL_POOL_H

#include <stdatomic.h>

#include "../base/log.h"

typedef struct lnt_pool lnt_pool_t;

typedef struct lnt_work {
    void (*run)(struct lnt_work *work); /* on any thread; ends by giving the work back, after which it may be gone */
    struct lnt_work *next;              /* the owner's */
} lnt_work_t;

typedef struct lnt_pool_params {
    lnt_logger_t *logger; /* the helpers' */
    void *arg;
    void (*started)(void *arg); /* in a new helper, first of all: name and cores */
    void (*done)(void *arg);    /* in a helper after every work: make sure the progressing thread looks */
} lnt_pool_params_t;

/* Makes a pool without helpers. */
lnt_status_t lnt_pool_create(const lnt_pool_params_t *params, lnt_pool_t **pool_p);
/* Joins the helpers. Nothing may be queued or running any more. NULL is legal. */
void lnt_pool_destroy(lnt_pool_t *pool);

enum { LNT_POOL_THREADS_MAX = 64 };

/* The first call starts n_threads - 1 helpers; later ones may only lower the number of those that are called. Any
 * thread. */
lnt_status_t lnt_pool_set_threads(lnt_pool_t *pool, uint32_t n_threads);
uint32_t lnt_pool_threads(const lnt_pool_t *pool); /* helpers that are called, and one: the progressing thread */

/* The progressing thread's calls. */
bool lnt_pool_push(lnt_pool_t *pool, lnt_work_t *work); /* false: no room. Calls nobody yet */
void lnt_pool_call(lnt_pool_t *pool);                   /* wakes as many helpers as there is work in the queue */
bool lnt_pool_run_one(lnt_pool_t *pool);                /* runs the oldest work here; false: the queue is empty */

/* Sleeps until a helper finishes something after `seen` was read (or for a while): who waits reads the count, looks
 * for what it wants, and sleeps on the count it read. */
uint32_t lnt_pool_finished(const lnt_pool_t *pool); /* works that helpers have run */
void lnt_pool_wait(lnt_pool_t *pool, uint32_t seen);

#endif
