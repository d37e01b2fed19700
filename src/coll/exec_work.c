/* Tasks in helpers: handed to the pool, run there, completed here.
 *
 * A helper runs the task's function and puts the work on `done`, which is its last touch of the executor; successors,
 * frames and jobs stay with the progressing thread. What the function reads was written before the work was queued, and
 * what it wrote is read after the work was collected: both lists order memory. */
#include "exec_internal.h"

#include "../base/error.h"

static void run_work(lnt_work_t *work)
{
    lnt_exec_work_t *mine = (lnt_exec_work_t *)(void *)work;
    lnt_exec_t *exec = mine->exec;
    const lnt_task_t *task = &mine->ready.graph->tasks[mine->ready.task];

    if (!atomic_load(&exec->cancelled)) {
        task->run(mine->ready.graph, mine->ready.task, task->arg);
    }
    work->next = atomic_load(&exec->done);
    while (!atomic_compare_exchange_weak(&exec->done, &work->next, work)) {
    }
}

void lnt_exec_init_works(lnt_exec_t *exec)
{
    for (uint32_t i = 0; i < LNT_EXEC_WORKS; i++) {
        exec->works[i] = (lnt_exec_work_t){.work = {.run = run_work, .next = exec->idle}, .exec = exec};
        exec->idle = &exec->works[i].work;
    }
}

bool lnt_exec_is_large(const lnt_exec_t *exec, const lnt_ready_t *ready)
{
    const uint32_t elems = ready->graph->tasks[ready->task].elems;

    return elems != 0 && elems >= exec->params.min_elems && exec->params.pool != NULL &&
           lnt_pool_threads(exec->params.pool) > 1;
}

bool lnt_exec_hand_out(lnt_exec_t *exec, const lnt_ready_t *ready)
{
    lnt_exec_work_t *mine = (lnt_exec_work_t *)(void *)exec->idle;
    lnt_work_t *next;

    if (mine == NULL) {
        return false;
    }
    next = mine->work.next;
    mine->ready = *ready;
    if (!lnt_pool_push(exec->params.pool, &mine->work)) {
        return false;
    }
    exec->idle = next;
    exec->n_out++;
    return true;
}

/* The finished works, each of them idle again; `end` is called with every task. */
static bool take_back(lnt_exec_t *exec, void (*end)(lnt_exec_t *exec, lnt_graph_t *graph, uint32_t task))
{
    lnt_work_t *work = (exec->n_out == 0) ? NULL : atomic_exchange(&exec->done, NULL), *next;
    const bool any = work != NULL;

    for (; work != NULL; work = next) {
        const lnt_ready_t ready = ((lnt_exec_work_t *)(void *)work)->ready;

        next = work->next;
        work->next = exec->idle;
        exec->idle = work;
        exec->n_out--;
        end(exec, ready.graph, ready.task);
    }
    return any;
}

bool lnt_exec_collect(lnt_exec_t *exec)
{
    return take_back(exec, lnt_exec_complete);
}

static void forget(lnt_exec_t *exec, lnt_graph_t *graph, uint32_t task)
{
    (void)exec;
    (void)graph;
    (void)task;
}

/* Works still in the queue are run here, which for those of this executor means that they are given back at once. */
void lnt_exec_recall(lnt_exec_t *exec)
{
    atomic_store(&exec->cancelled, true);
    while (exec->n_out != 0) {
        const uint32_t seen = lnt_pool_finished(exec->params.pool);

        if (!take_back(exec, forget) && !lnt_pool_run_one(exec->params.pool)) {
            lnt_pool_wait(exec->params.pool, seen);
        }
    }
}
