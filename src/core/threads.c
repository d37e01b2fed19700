/* Threads of a rank that run tasks: the one that makes progress, and helpers beside it (src/coll/pool.h).
 *
 * By default cores are shared out among the ranks of a host, as for spinning; a few threads reach the memory bandwidth
 * that a rank gets. Without a progress thread a caller expects that nothing runs outside its calls: helpers only when
 * asked for by number. Helpers are started late, since the ranks of the host are known with the first communicator. */
#include "threads.h"

#include "progress.h"

enum { AUTO_MAX = 4 };

uint32_t lnt_threads_choose(uint32_t asked, bool progress_thread, uint32_t n_cores, uint32_t n_local)
{
    const uint32_t share = n_cores / n_local;

    if (asked != 0) return asked;
    if (!progress_thread || share <= 1) return 1;
    return (share < AUTO_MAX) ? share : AUTO_MAX;
}

static void started(void *arg)
{
    lnt_progress_place(arg, "linnet-work");
}

static void done(void *arg)
{
    lnt_progress_wake(arg);
}

lnt_status_t lnt_threads_create(lnt_context_t *context)
{
    const lnt_pool_params_t params = {
        .logger = context->logger, .arg = context->progress, .started = started, .done = done};

    return lnt_pool_create(&params, &context->pool);
}

lnt_status_t lnt_threads_start(lnt_context_t *context, uint32_t n_local)
{
    const lnt_progress_t *progress = context->progress;

    return lnt_pool_set_threads(context->pool,
                                lnt_threads_choose(context->config.threads, lnt_progress_has_thread(progress),
                                                   lnt_progress_cpu_count(progress), n_local));
}
