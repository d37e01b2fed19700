/* The pool of helpers: a queue with one producer at a time and many consumers, and helpers that sleep until called.
 *
 * No call is lost: a helper sets `sleeping`, looks at the queue once more, and sleeps on that word; who has queued work
 * exchanges the word to 0 afterwards. Operations of both are sequentially consistent: either the helper's last look
 * sees the work, or the caller reads the 1 and wakes it.
 *
 * A slot of the queue is read before its place is taken by moving `head`. It is written again only after head has moved
 * beyond it, so a value read from a slot that was reused belongs to a head that has moved, and the exchange fails. */
#include "pool.h"

#include <assert.h>
#include <errno.h>

#include "../base/clock.h"
#include "../base/error.h"
#include "../base/memory.h"
#include "../base/thread.h"

enum { QUEUE = 256, WAIT_SLICE_NS = 100000000 };

typedef struct helper {
    lnt_pool_t *pool;
    pthread_t thread;
    _Atomic uint32_t sleeping; /* futex word */
} helper_t;

struct lnt_pool {
    lnt_pool_params_t params;
    pthread_mutex_t lock; /* set-up only: the next three */
    helper_t *helpers;
    uint32_t n_started;
    bool decided;              /* how many */
    _Atomic uint32_t n_called; /* of the helpers, the first so many */
    _Atomic uint32_t stop;
    _Atomic uint32_t finished, n_waiting; /* finished: futex word */
    _Atomic uint64_t head, tail;
    _Atomic(lnt_work_t *) queue[QUEUE];
};

/* ---- the queue ---- */

bool lnt_pool_push(lnt_pool_t *pool, lnt_work_t *work)
{
    const uint64_t tail = atomic_load_explicit(&pool->tail, memory_order_relaxed);

    if (tail - atomic_load_explicit(&pool->head, memory_order_acquire) == QUEUE) return false;
    atomic_store_explicit(&pool->queue[tail % QUEUE], work, memory_order_relaxed);
    atomic_store(&pool->tail, tail + 1);
    return true;
}

static lnt_work_t *take(lnt_pool_t *pool)
{
    uint64_t head = atomic_load(&pool->head);

    while (head != atomic_load(&pool->tail)) {
        lnt_work_t *work = atomic_load_explicit(&pool->queue[head % QUEUE], memory_order_relaxed);

        if (atomic_compare_exchange_weak(&pool->head, &head, head + 1)) return work;
    }
    return NULL;
}

bool lnt_pool_run_one(lnt_pool_t *pool)
{
    lnt_work_t *work = take(pool);

    if (work == NULL) return false;
    work->run(work);
    return true;
}

void lnt_pool_call(lnt_pool_t *pool)
{
    const uint32_t n = atomic_load(&pool->n_called);
    uint64_t wanted = atomic_load(&pool->tail) - atomic_load(&pool->head);

    for (uint32_t i = 0; i < n && wanted > 0; i++) {
        helper_t *helper = &pool->helpers[i];

        if (atomic_load(&helper->sleeping) == 0 || atomic_exchange(&helper->sleeping, 0) == 0) continue;
        lnt_wake_word(&helper->sleeping);
        wanted--;
    }
}

/* ---- a helper ---- */

static void run_here(lnt_pool_t *pool, lnt_work_t *work)
{
    (void)lnt_log_set_current(pool->params.logger); /* any logger's end makes all threads forget theirs */
    work->run(work);
    atomic_fetch_add(&pool->finished, 1);
    if (atomic_load(&pool->n_waiting) != 0) lnt_wake_word(&pool->finished);
    pool->params.done(pool->params.arg);
}

static void sleep_until_called(helper_t *helper)
{
    lnt_pool_t *pool = helper->pool;

    (void)atomic_exchange(&helper->sleeping, 1);
    if (atomic_load(&pool->head) == atomic_load(&pool->tail) && atomic_load(&pool->stop) == 0)
        lnt_wait_word(&helper->sleeping, 1, UINT64_MAX);
    atomic_store(&helper->sleeping, 0);
}

static void *helper_main(void *arg)
{
    helper_t *helper = arg;
    lnt_pool_t *pool = helper->pool;

    pool->params.started(pool->params.arg);
    while (atomic_load(&pool->stop) == 0) {
        lnt_work_t *work = take(pool);

        if (work != NULL) {
            run_here(pool, work);
        } else {
            sleep_until_called(helper);
        }
    }
    return NULL;
}

uint32_t lnt_pool_finished(const lnt_pool_t *pool)
{
    return atomic_load(&pool->finished);
}

void lnt_pool_wait(lnt_pool_t *pool, uint32_t seen)
{
    atomic_fetch_add(&pool->n_waiting, 1);
    lnt_wait_word(&pool->finished, seen, WAIT_SLICE_NS);
    atomic_fetch_sub(&pool->n_waiting, 1);
}

/* ---- life ---- */

static lnt_status_t start_helper(lnt_pool_t *pool)
{
    helper_t *helper = &pool->helpers[pool->n_started];
    int error;

    helper->pool = pool;
    error = lnt_thread_start(&helper->thread, helper_main, helper);
    if (error != 0) {
        errno = error;
        return lnt_error(LNT_ERR_SYSTEM, "raise the limit of threads, or set LINNET_THREADS=1",
                         "cannot start a helper thread: %m");
    }
    pool->n_started++;
    return LNT_OK;
}

static void stop_helpers(lnt_pool_t *pool)
{
    atomic_store(&pool->stop, 1);
    for (uint32_t i = 0; i < pool->n_started; i++) {
        helper_t *helper = &pool->helpers[i];

        if (atomic_exchange(&helper->sleeping, 0) != 0) lnt_wake_word(&helper->sleeping);
        (void)pthread_join(helper->thread, NULL);
    }
    lnt_free(pool->helpers);
    pool->helpers = NULL;
    pool->n_started = 0;
    atomic_store(&pool->stop, 0);
}

/* Lock held. */
static lnt_status_t start_helpers(lnt_pool_t *pool, uint32_t n)
{
    lnt_status_t status = LNT_OK;

    if (n == 0) return LNT_OK;
    pool->helpers = lnt_calloc(n, sizeof(*pool->helpers), "helper threads");
    if (pool->helpers == NULL) return LNT_ERR_NO_MEMORY;
    while (status >= 0 && pool->n_started < n)
        status = start_helper(pool);
    if (status < 0) stop_helpers(pool);
    return status;
}

lnt_status_t lnt_pool_set_threads(lnt_pool_t *pool, uint32_t n_threads)
{
    const uint32_t n = n_threads - 1;
    lnt_status_t status = LNT_OK;

    assert(n_threads >= 1 && n_threads <= LNT_POOL_THREADS_MAX);
    (void)pthread_mutex_lock(&pool->lock);
    if (!pool->decided) {
        status = start_helpers(pool, n);
        pool->decided = (status >= 0);
        if (status >= 0) atomic_store(&pool->n_called, n);
    } else if (n < atomic_load(&pool->n_called)) {
        atomic_store(&pool->n_called, n);
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return status;
}

uint32_t lnt_pool_threads(const lnt_pool_t *pool)
{
    return 1 + atomic_load(&pool->n_called);
}

lnt_status_t lnt_pool_create(const lnt_pool_params_t *params, lnt_pool_t **pool_p)
{
    lnt_pool_t *pool = lnt_calloc(1, sizeof(*pool), "pool of helper threads");

    if (pool == NULL) return LNT_ERR_NO_MEMORY;
    pool->params = *params;
    (void)pthread_mutex_init(&pool->lock, NULL);
    *pool_p = pool;
    return LNT_OK;
}

void lnt_pool_destroy(lnt_pool_t *pool)
{
    if (pool == NULL) return;
    assert(atomic_load(&pool->head) == atomic_load(&pool->tail));
    stop_helpers(pool);
    (void)pthread_mutex_destroy(&pool->lock);
    lnt_free(pool);
}
