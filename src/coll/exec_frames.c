/* Frames of the executor: which task an incoming one belongs to, the refusal of those that belong to none, and sends.
 *
 * A frame of a sequence this rank has not armed yet stays in its channel. Everything else that does not fit the armed
 * graphs is a disagreement between ranks: the communicator fails, with both sides in the text. */
#include "exec_internal.h"

#include <stdio.h>
#include <string.h>

#include "../base/clock.h"
#include "../base/error.h"

enum { KNOWN_FLAGS = LNT_FRAME_POISONED | LNT_FRAME_VETO, SIDE_TEXT = 150 };

static lnt_job_t *job_of(const lnt_exec_t *exec, uint64_t sequence)
{
    lnt_job_t *job = exec->active;

    while (job != NULL && job->sequence != sequence) {
        job = job->next_active;
    }
    return job;
}

static bool is_graph_of(const lnt_graph_t *graph, const lnt_frame_header_t *header)
{
    return graph->bucket == header->bucket && graph->program == header->program;
}

/* Neighbouring frames belong to the same or to neighbouring graphs: look around the last one. */
static lnt_graph_t *graph_of(lnt_job_t *job, const lnt_frame_header_t *header)
{
    for (uint32_t d = 0; d < job->n_graphs; d++) {
        uint32_t up = job->hint + d, down = job->hint - d;

        if (up < job->n_graphs && is_graph_of(job->graphs[up], header)) {
            job->hint = up;
            return job->graphs[up];
        }
        if (d <= job->hint && is_graph_of(job->graphs[down], header)) {
            job->hint = down;
            return job->graphs[down];
        }
    }
    return NULL;
}

/* The RECV task with that key, or n_tasks. */
static uint32_t task_of(const lnt_graph_t *graph, const lnt_frame_header_t *header)
{
    uint64_t key = lnt_graph_key(header->phase, header->shard, header->chunk, header->source, header->segment);
    uint32_t low = 0, high = graph->n_recvs;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (graph->recv_keys[middle] < key) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < graph->n_recvs && graph->recv_keys[low] == key ? graph->recv_tasks[low] : graph->n_tasks;
}

static void describe(char *text, const lnt_frame_header_t *header)
{
    snprintf(
        text, SIDE_TEXT,
        "program %u bucket %u phase %u shard %u chunk %u segment %u source %u codec %u block %u count %u bytes %u+%u",
        header->program, header->bucket, header->phase, header->shard, header->chunk, header->segment, header->source,
        header->codec, header->block, header->count, header->payload_bytes, header->section_bytes);
}

static lnt_status_t failed(lnt_exec_t *exec, uint32_t src, const lnt_frame_header_t *header, lnt_status_t status)
{
    lnt_error_info_t *record = lnt_error_mutable();

    record->rank = exec->params.rank;
    record->peer = src;
    record->step = (int64_t)header->sequence;
    exec->params.fail(exec->params.arg, record);
    return status;
}

/* What a step depends on beside its layout; a hash cannot say which of it. */
static bool values_differ(const lnt_job_t *job, const lnt_frame_header_t *header)
{
    return job != NULL && job->layout_hash == header->layout_hash && job->hyper_hash != header->hyper_hash;
}

static lnt_status_t mismatch(lnt_exec_t *exec, uint32_t src, const lnt_frame_header_t *header, const lnt_job_t *job,
                             const char *why)
{
    static const char same_calls[] = "make the same calls with the same arguments in the same order on all ranks";
    static const char same_values[] =
        "set groups, loss scale, micro-steps and masks alike before a step, and load the same saved step on all ranks";
    char theirs[SIDE_TEXT];

    describe(theirs, header);
    lnt_error(LNT_ERR_MISMATCH, values_differ(job, header) ? same_values : same_calls,
              "%s: rank %u runs %s; rank %u sent sequence %llu %s", why, exec->params.rank,
              job != NULL ? job->what : "nothing with that sequence", src, (unsigned long long)header->sequence,
              theirs);
    return failed(exec, src, header, LNT_ERR_MISMATCH);
}

static lnt_status_t wrong_shape(lnt_exec_t *exec, uint32_t src, const lnt_frame_header_t *header, const lnt_job_t *job,
                                const lnt_frame_header_t *mine)
{
    lnt_error(LNT_ERR_MISMATCH, "use the same codec, block, counts and masks on all ranks",
              "frames differ: rank %u runs %s and expects codec %u block %u count %u bytes %u+%u of rank %u; rank %u "
              "sent codec %u "
              "block %u count %u bytes %u+%u of rank %u",
              exec->params.rank, job->what, mine->codec, mine->block, mine->count, mine->payload_bytes,
              mine->section_bytes, mine->source, src, header->codec, header->block, header->count,
              header->payload_bytes, header->section_bytes, header->source);
    return failed(exec, src, header, LNT_ERR_MISMATCH);
}

static bool same_shape(const lnt_frame_header_t *mine, const lnt_frame_header_t *theirs)
{
    return mine->codec == theirs->codec && mine->block == theirs->block && mine->count == theirs->count &&
           mine->payload_bytes == theirs->payload_bytes && mine->section_bytes == theirs->section_bytes &&
           mine->source == theirs->source;
}

/* What is wrong with the frame as far as its job is concerned, or NULL. */
static const char *job_differs(const lnt_job_t *job, const lnt_frame_header_t *header)
{
    if (job->layout_hash != header->layout_hash) {
        return "layouts differ";
    }
    return values_differ(job, header) ? "hyper-parameters differ" : NULL;
}

/* Finds the task of a frame of an armed job; an error was reported if it has none. */
static lnt_status_t match(lnt_exec_t *exec, uint32_t src, const lnt_frame_header_t *header, lnt_job_t *job,
                          lnt_graph_t **graph_p, uint32_t *task_p)
{
    const char *why = job_differs(job, header);
    const lnt_frame_header_t *mine;
    lnt_graph_t *graph;
    uint32_t task;

    if (why != NULL) {
        return mismatch(exec, src, header, job, why);
    }
    graph = graph_of(job, header);
    if (graph == NULL) {
        return mismatch(exec, src, header, job, "unknown bucket");
    }
    task = task_of(graph, header);
    if (task == graph->n_tasks || graph->tasks[task].peer != src) {
        return mismatch(exec, src, header, job, "unexpected frame");
    }
    if ((graph->pending[task] & LNT_RECV_EXPECTED) == 0) {
        return mismatch(exec, src, header, job, "frame sent twice");
    }
    mine = lnt_graph_header(graph, graph->tasks[task].frame);
    if (!same_shape(mine, header)) {
        return wrong_shape(exec, src, header, job, mine);
    }
    *graph_p = graph;
    *task_p = task;
    return LNT_OK;
}

static lnt_status_t locate(void *arg, uint32_t src, const lnt_frame_header_t *header, void **body_p)
{
    lnt_exec_t *exec = arg;
    lnt_graph_t *graph = NULL;
    uint32_t task = 0;
    lnt_job_t *job;

    if (exec->failed) {
        return LNT_IN_PROGRESS; /* graphs are not ours any more; the transports are about to be closed */
    }
    if ((header->flags & ~KNOWN_FLAGS) != 0) {
        lnt_error(LNT_ERR_CORRUPT, "run the same library version on all ranks",
                  "rank %u sent a frame with unknown flags 0x%02x", src, (unsigned)header->flags);
        return failed(exec, src, header, LNT_ERR_CORRUPT);
    }
    if (!exec->any || header->sequence > exec->newest) {
        return LNT_IN_PROGRESS;
    }
    job = job_of(exec, header->sequence);
    if (job == NULL) {
        return mismatch(exec, src, header, exec->active, "sequence is not running");
    }
    LNT_TRY(match(exec, src, header, job, &graph, &task));
    graph->pending[task] &= ~LNT_RECV_EXPECTED;
    *body_p = lnt_graph_payload(graph, graph->tasks[task].frame);
    return LNT_OK;
}

static void arrived(void *arg, uint32_t src, const lnt_frame_header_t *header, void *body)
{
    lnt_exec_t *exec = arg;
    lnt_graph_t *graph;
    uint32_t task;

    (void)src;
    (void)body;
    if (exec->failed) {
        return;
    }
    graph = graph_of(job_of(exec, header->sequence), header);
    task = task_of(graph, header);
    memcpy(lnt_graph_header(graph, graph->tasks[task].frame), header,
           sizeof(*header)); /* it may be forwarded as it is */
    exec->moved_ns = lnt_now_ns();
    if (--graph->pending[task] == 0 && graph->started) {
        lnt_exec_push(exec, graph, task);
    }
}

bool lnt_exec_missing(const lnt_graph_t *graph, uint32_t task)
{
    return graph->pending[task] > graph->tasks[task].n_deps;
}

void lnt_exec_send(lnt_exec_t *exec, lnt_graph_t *graph, uint32_t task)
{
    const lnt_task_t *what = &graph->tasks[task];
    const lnt_frame_t *frame = &graph->frames[what->frame];
    lnt_frame_header_t *header = lnt_graph_header(graph, what->frame);
    lnt_send_t *send = &graph->sends[task];

    header->sequence = graph->job->sequence;
    header->layout_hash = graph->job->layout_hash;
    header->hyper_hash = graph->job->hyper_hash;
    *send = (lnt_send_t){.frame = header,
                         .bytes = LNT_FRAME_HEADER_BYTES + (uint64_t)frame->payload_bytes + frame->section_bytes,
                         .peer = what->peer,
                         .owner = graph};
    exec->params.send(exec->params.arg, send);
}

static void sent(void *arg, lnt_send_t *send)
{
    lnt_exec_t *exec = arg;
    lnt_graph_t *graph = send->owner;

    if (exec->failed) {
        return;
    }
    send->owner = NULL;
    exec->moved_ns = lnt_now_ns();
    lnt_exec_complete(exec, graph, (uint32_t)(send - graph->sends));
}

void lnt_exec_sink(lnt_exec_t *exec, lnt_sink_t *sink_p)
{
    *sink_p = (lnt_sink_t){.arg = exec, .locate = locate, .arrived = arrived, .sent = sent};
}
