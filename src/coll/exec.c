/* The executor: jobs from the inbox, ready tasks, ends of jobs. Frames are in exec_frames.c.
 *
 * The caller's threads touch the inbox, a job's ready bytes (both sequentially consistent: they take part in the
 * handshake with a thread that goes to sleep) and nothing else. After a job is published as done the executor holds no
 * pointer to it. Tasks share nothing but what the edges of their graph order, so large ones may run in helpers. */
#include "exec_internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "../base/clock.h"
#include "../base/error.h"
#include "../base/memory.h"

/* Transports move between calls: a paced link idles where calls are long. */
enum { TASKS_PER_CALL = 16, ELEMS_PER_CALL = 1 << 18, RING_MIN = 64 };

static lnt_ready_ring_t *ring_new(uint64_t n_tasks, uint64_t *capacity_p)
{
    uint64_t capacity = RING_MIN;
    lnt_ready_ring_t *ring;

    while (capacity < n_tasks) {
        capacity *= 2;
    }
    ring = lnt_calloc(1, sizeof(*ring) + capacity * sizeof(ring->entries[0]), "ready queue");
    if (ring != NULL) {
        ring->mask = capacity - 1;
        *capacity_p = capacity;
    }
    return ring;
}

lnt_status_t lnt_exec_create(const lnt_exec_params_t *params, lnt_exec_t **exec_p)
{
    lnt_exec_t *exec = lnt_calloc(1, sizeof(*exec), "executor");

    if (exec == NULL) {
        return LNT_ERR_NO_MEMORY;
    }
    exec->ring = ring_new(params->max_tasks, &exec->capacity);
    if (exec->ring == NULL) {
        lnt_free(exec);
        return LNT_ERR_NO_MEMORY;
    }
    exec->params = *params;
    lnt_exec_init_works(exec);
    exec->reserved = params->max_tasks;
    exec->moved_ns = lnt_now_ns();
    pthread_mutex_init(&exec->lock, NULL);
    *exec_p = exec;
    return LNT_OK;
}

void lnt_exec_destroy(lnt_exec_t *exec)
{
    if (exec == NULL) {
        return;
    }
    assert(exec->n_out == 0); /* all jobs have ended */
    pthread_mutex_destroy(&exec->lock);
    lnt_free(atomic_load(&exec->next_ring));
    lnt_free(exec->ring);
    lnt_free(exec);
}

lnt_status_t lnt_exec_reserve(lnt_exec_t *exec, uint64_t n_tasks)
{
    lnt_status_t status = LNT_OK;

    pthread_mutex_lock(&exec->lock);
    if (exec->reserved + n_tasks > exec->capacity) {
        lnt_ready_ring_t *ring = ring_new(exec->reserved + n_tasks, &exec->capacity);

        if (ring == NULL) {
            status = LNT_ERR_NO_MEMORY;
        } else {
            lnt_free(atomic_exchange(&exec->next_ring, ring));
        }
    }
    if (status == LNT_OK) {
        exec->reserved += n_tasks;
    }
    pthread_mutex_unlock(&exec->lock);
    return status;
}

void lnt_exec_unreserve(lnt_exec_t *exec, uint64_t n_tasks)
{
    pthread_mutex_lock(&exec->lock);
    assert(exec->reserved >= n_tasks);
    exec->reserved -= n_tasks;
    pthread_mutex_unlock(&exec->lock);
}

void lnt_exec_post(lnt_exec_t *exec, lnt_job_t *job)
{
    lnt_job_t *head;

    for (uint32_t i = 0; i < job->n_graphs; i++) {
        atomic_store_explicit(&job->ready[i], 0, memory_order_relaxed);
    }
    atomic_store(&job->state, LNT_JOB_RUNNING);
    head = atomic_load(&exec->inbox);
    do {
        job->next = head;
    } while (!atomic_compare_exchange_weak(&exec->inbox, &head, job));
    exec->params.wake(exec->params.arg);
}

void lnt_job_ready(lnt_exec_t *exec, lnt_job_t *job, uint32_t graph_index)
{
    atomic_store(&job->ready[graph_index], 1);
    exec->params.wake(exec->params.arg);
}

/* What moves frames goes before what computes: a frame that is made leaves while the next one is made. */
void lnt_exec_push(lnt_exec_t *exec, lnt_graph_t *graph, uint32_t task)
{
    lnt_ready_ring_t *ring = exec->ring;
    bool computes = graph->tasks[task].kind == LNT_TASK_RUN;

    assert(ring->tail - ring->head <= ring->mask);
    ring->entries[(computes ? ring->tail++ : --ring->head) & ring->mask] = (lnt_ready_t){graph, task};
}

static void take_over_ring(lnt_exec_t *exec)
{
    lnt_ready_ring_t *larger = atomic_exchange(&exec->next_ring, NULL);

    if (larger == NULL) {
        return;
    }
    while (exec->ring->head != exec->ring->tail) {
        larger->entries[larger->tail++] = exec->ring->entries[exec->ring->head++ & exec->ring->mask];
    }
    lnt_free(exec->ring);
    exec->ring = larger;
}

/* Hands the job back. The owner may free it as soon as the state is stored; the futex call only uses the address. */
static void publish(lnt_job_t *job, lnt_status_t status)
{
    job->status = status;
    atomic_store_explicit(&job->state, LNT_JOB_DONE, memory_order_release);
    lnt_wake_word(&job->state);
}

static void job_done(lnt_exec_t *exec, lnt_job_t *job)
{
    lnt_job_t **link = &exec->active;

    while (*link != job) {
        link = &(*link)->next_active;
    }
    *link = job->next_active;
    publish(job, LNT_OK);
}

/* A frame's flags are the OR of all that entered it, so the flags of a graph are those of its frames, made or received.
 * What this rank raised counts only if a frame carried it: then all ranks come to one verdict. */
static void graph_done(lnt_exec_t *exec, lnt_graph_t *graph)
{
    lnt_job_t *job = graph->job;

    graph->flags = 0;
    for (uint32_t i = 0; i < graph->n_frames; i++) {
        graph->flags |= lnt_graph_header(graph, i)->flags;
    }
    job->flags |= graph->flags;
    if (--job->graphs_left == 0) {
        job_done(exec, job);
    }
}

void lnt_exec_complete(lnt_exec_t *exec, lnt_graph_t *graph, uint32_t task)
{
    const lnt_task_t *done = &graph->tasks[task];

    for (uint32_t i = 0; i < done->n_next; i++) {
        uint32_t next = graph->next[done->first_next + i];

        if (--graph->pending[next] == 0) {
            lnt_exec_push(exec, graph, next);
        }
    }
    if (--graph->left == 0) {
        graph_done(exec, graph);
    }
}

static void start_graph(lnt_exec_t *exec, lnt_graph_t *graph)
{
    graph->started = true;
    graph->flags = atomic_load_explicit(&graph->job->raised, memory_order_relaxed);
    for (uint32_t i = 0; i < graph->n_tasks; i++) {
        if (graph->pending[i] == 0) {
            lnt_exec_push(exec, graph, i);
        }
    }
    if (graph->n_tasks == 0) {
        graph_done(exec, graph);
    }
}

/* Starts what may start, in list order. The job may be done, and gone, afterwards. */
static bool start_ready(lnt_exec_t *exec, lnt_job_t *job)
{
    uint32_t first = job->next_start, end = first;

    while (end < job->n_graphs && atomic_load(&job->ready[end]) != 0) {
        end++;
    }
    job->next_start = end;
    for (uint32_t i = first; i < end; i++) {
        start_graph(exec, job->graphs[i]); /* only the last one can end the job */
    }
    return end != first;
}

static void arm_graph(lnt_graph_t *graph, lnt_job_t *job)
{
    graph->job = job;
    graph->left = graph->n_tasks;
    graph->flags = 0;
    graph->started = false;
    for (uint32_t i = 0; i < graph->n_tasks; i++) {
        bool is_recv = graph->tasks[i].kind == LNT_TASK_RECV;

        graph->pending[i] = graph->tasks[i].n_deps + (is_recv ? 1 + LNT_RECV_EXPECTED : 0);
    }
}

static void arm_job(lnt_exec_t *exec, lnt_job_t *job)
{
    lnt_job_t **link = &exec->active;

    job->flags = 0;
    job->next_start = 0;
    job->hint = 0;
    job->graphs_left = job->n_graphs;
    for (uint32_t i = 0; i < job->n_graphs; i++) {
        arm_graph(job->graphs[i], job);
    }
    while (*link != NULL && (*link)->sequence < job->sequence) {
        link = &(*link)->next_active;
    }
    job->next_active = *link;
    *link = job;
    if (!exec->any || job->sequence > exec->newest) {
        exec->newest = job->sequence;
        exec->any = true;
    }
    if (job->n_graphs == 0) {
        job_done(exec, job);
    }
}

static bool empty_inbox(lnt_exec_t *exec)
{
    lnt_job_t *newest = atomic_exchange(&exec->inbox, NULL), *oldest = NULL;

    if (newest == NULL) {
        return false;
    }
    take_over_ring(exec); /* reserved before the job was posted */
    while (newest != NULL) {
        lnt_job_t *job = newest;

        newest = job->next;
        job->next = oldest;
        oldest = job;
    }
    while (oldest != NULL) {
        lnt_job_t *job = oldest;

        oldest = job->next;
        if (exec->failed) {
            publish(job, exec->failure);
        } else {
            arm_job(exec, job);
        }
    }
    return true;
}

static bool start_jobs(lnt_exec_t *exec)
{
    lnt_job_t *next;
    bool started = false;

    for (lnt_job_t *job = exec->active; job != NULL; job = next) {
        next = job->next_active;
        started |= start_ready(exec, job);
    }
    return started;
}

static void run_task(lnt_exec_t *exec, lnt_graph_t *graph, uint32_t task)
{
    const lnt_task_t *what = &graph->tasks[task];

    if (what->kind == LNT_TASK_SEND) {
        lnt_exec_send(exec, graph, task);
        return;
    }
    if (what->kind == LNT_TASK_RUN) {
        what->run(graph, task, what->arg);
    }
    lnt_exec_complete(exec, graph, task);
}

/* Ready tasks, up to a budget. Of the large ones the first is kept for this thread, so a large task that is alone needs
 * no helper; it runs last, after everything that others wait for. */
static bool run_ready(lnt_exec_t *exec)
{
    lnt_ready_t own = {NULL, 0};
    uint64_t elems = 0;
    bool moved = false;

    for (int i = 0; i < TASKS_PER_CALL && elems < ELEMS_PER_CALL && exec->ring->head != exec->ring->tail; i++) {
        lnt_ready_t ready = exec->ring->entries[exec->ring->head++ & exec->ring->mask];

        moved = true;
        if (lnt_exec_is_large(exec, &ready) && own.graph == NULL) {
            own = ready;
        } else if (!lnt_exec_is_large(exec, &ready) || !lnt_exec_hand_out(exec, &ready)) {
            elems += ready.graph->tasks[ready.task].elems;
            run_task(exec, ready.graph, ready.task);
        }
    }
    if (exec->n_out == 0 && own.graph == NULL) {
        return moved;
    }
    lnt_pool_call(exec->params.pool);
    if (own.graph == NULL) {
        return lnt_pool_run_one(exec->params.pool) || moved;
    }
    run_task(exec, own.graph, own.task);
    return true;
}

bool lnt_exec_progress(lnt_exec_t *exec)
{
    bool moved = empty_inbox(exec);

    moved |= lnt_exec_collect(exec);
    moved |= start_jobs(exec);
    moved |= run_ready(exec);
    if (moved) {
        exec->moved_ns = lnt_now_ns();
    }
    return moved;
}

void lnt_exec_fail(lnt_exec_t *exec, const lnt_error_info_t *record)
{
    if (exec->failed) {
        return;
    }
    exec->failed = true;
    exec->failure = record->status;
    exec->ring->head = exec->ring->tail;
    lnt_exec_recall(exec);
    while (exec->active != NULL) {
        lnt_job_t *job = exec->active;

        exec->active = job->next_active;
        publish(job, exec->failure);
    }
    empty_inbox(exec);
}

/* The first task of the graph that waits for a peer: a frame that has not come, else one that has not left. */
static const lnt_task_t *waiting_task(const lnt_graph_t *graph)
{
    const lnt_task_t *leaving = NULL;

    for (uint32_t i = 0; i < graph->n_tasks; i++) {
        if (graph->tasks[i].kind == LNT_TASK_RECV && lnt_exec_missing(graph, i)) {
            return &graph->tasks[i];
        }
        if (graph->tasks[i].kind == LNT_TASK_SEND && graph->pending[i] == 0) {
            leaving = leaving == NULL && graph->sends[i].owner != NULL ? &graph->tasks[i] : leaving;
        }
    }
    return leaving;
}

static void stall_of_graph(const lnt_job_t *job, const lnt_graph_t *graph, lnt_stall_t *stall)
{
    const lnt_task_t *task = waiting_task(graph);

    if (task == NULL) {
        return;
    }
    stall->peer = task->peer;
    snprintf(stall->what, sizeof(stall->what), "%s bucket %u, phase %u, %s",
             task->kind == LNT_TASK_SEND ? "sending" : "waiting for", graph->bucket,
             (unsigned)lnt_graph_header(graph, task->frame)->phase, job->what);
}

void lnt_exec_stall(lnt_exec_t *exec, lnt_stall_t *stall_p)
{
    const lnt_job_t *job = exec->active;
    /* As long as a helper is at it, this rank moves. */
    lnt_stall_t stall = {.peer = -1, .since_ns = (exec->n_out != 0) ? lnt_now_ns() : exec->moved_ns};

    if (job != NULL) {
        stall.running = true;
        stall.sequence = job->sequence;
        stall.own = job->graphs_left == job->n_graphs - job->next_start;
        snprintf(stall.what, sizeof(stall.what), "%s", job->what);
        for (uint32_t i = 0; i < job->next_start && stall.peer < 0; i++) {
            if (job->graphs[i]->left != 0) {
                stall_of_graph(job, job->graphs[i], &stall);
            }
        }
    }
    *stall_p = stall;
}
