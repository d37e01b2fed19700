/* Bootstrap of ranks that are threads of one process: an all-gather over shared memory with a deadline.
 *
 * A round has two halves: all put their bytes, then all take the result; the last to take opens the next round. A group
 * that failed once stays failed, with one text for all, so that nobody waits for somebody who gave up.
 */
#include "core.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { FAILURE_MAX = 256 };

typedef struct thread_group {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    uint32_t refs, n_ranks, timeout_ms;
    uint32_t n_put, n_take; /* ranks that put; ranks that still have to take */
    size_t bytes;           /* per rank, of this round */
    uint8_t *buffer;        /* n_ranks * bytes */
    bool *put;              /* [n_ranks] */
    lnt_status_t failure;   /* LNT_OK: sound */
    int64_t culprit;
    char cause[FAILURE_MAX];
} thread_group_t;

typedef struct thread_member {
    thread_group_t *group;
    uint32_t rank;
} thread_member_t;

/* ---- failing together; lock held ---- */

static void fail_group(thread_group_t *group, lnt_status_t status, int64_t culprit, const char *format, ...)
    LNT_PRINTF(4, 5);

static void fail_group(thread_group_t *group, lnt_status_t status, int64_t culprit, const char *format, ...)
{
    va_list args;

    group->failure = status;
    group->culprit = culprit;
    va_start(args, format);
    (void)vsnprintf(group->cause, sizeof(group->cause), format, args);
    va_end(args);
    (void)pthread_cond_broadcast(&group->moved);
}

static void fail_missing(thread_group_t *group)
{
    uint32_t missing = 0;

    while (missing + 1 < group->n_ranks && group->put[missing])
        missing++;
    fail_group(group, LNT_ERR_TIMED_OUT, missing, "rank %u did not come within %u ms", missing, group->timeout_ms);
}

static lnt_status_t report(const thread_group_t *group)
{
    (void)lnt_error(group->failure, "start every rank once, in a thread of its own, with the same number of ranks",
                    "%s", group->cause);
    lnt_error_mutable()->peer = group->culprit;
    return group->failure;
}

/* ---- one round; lock held ---- */

static void wait_until(thread_group_t *group, const struct timespec *deadline, const uint32_t *word, uint32_t value)
{
    while (*word != value && group->failure == LNT_OK) {
        if (pthread_cond_timedwait(&group->moved, &group->lock, deadline) != 0 && *word != value &&
            group->failure == LNT_OK) {
            fail_missing(group);
        }
    }
}

static void open_round(thread_group_t *group, size_t bytes)
{
    size_t total;

    lnt_free(group->buffer);
    group->buffer = lnt_size_mul(bytes, group->n_ranks, &total) ? lnt_calloc(1, total, "bootstrap round") : NULL;
    group->bytes = bytes;
    if (group->buffer == NULL)
        fail_group(group, LNT_ERR_NO_MEMORY, -1, "out of memory for the greetings of %u ranks", group->n_ranks);
}

static void put_bytes(thread_group_t *group, uint32_t rank, const void *input, size_t bytes)
{
    if (group->n_put == 0) open_round(group, bytes);
    if (group->failure != LNT_OK) return;
    if (group->put[rank]) {
        fail_group(group, LNT_ERR_MISMATCH, rank, "rank %u started twice among %u ranks", rank, group->n_ranks);
    } else if (bytes != group->bytes) {
        fail_group(group, LNT_ERR_MISMATCH, rank, "rank %u gathers %zu bytes, the first rank of the round %zu", rank,
                   bytes, group->bytes);
    } else {
        memcpy(group->buffer + rank * bytes, input, bytes);
        group->put[rank] = true;
        group->n_put++;
        (void)pthread_cond_broadcast(&group->moved);
    }
}

/* The last to put starts the second half. */
static void wait_for_all(thread_group_t *group, const struct timespec *deadline)
{
    if (group->n_put == group->n_ranks) {
        group->n_take = group->n_ranks;
        (void)pthread_cond_broadcast(&group->moved);
    }
    wait_until(group, deadline, &group->n_put, group->n_ranks);
}

static void take_bytes(thread_group_t *group, void *output)
{
    memcpy(output, group->buffer, group->bytes * group->n_ranks);
    if (--group->n_take > 0) return;
    group->n_put = 0;
    memset(group->put, 0, group->n_ranks * sizeof(*group->put));
    (void)pthread_cond_broadcast(&group->moved);
}

static void run_round(thread_group_t *group, uint32_t rank, const void *input, void *output, size_t bytes)
{
    struct timespec deadline;

    (void)clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_sec += group->timeout_ms / 1000;
    deadline.tv_nsec += (long)(group->timeout_ms % 1000) * 1000000;
    if (deadline.tv_nsec >= 1000000000) {
        deadline.tv_sec++;
        deadline.tv_nsec -= 1000000000;
    }
    wait_until(group, &deadline, &group->n_take, 0); /* the round before has not ended yet */
    if (group->failure == LNT_OK) put_bytes(group, rank, input, bytes);
    if (group->failure == LNT_OK) wait_for_all(group, &deadline);
    if (group->failure == LNT_OK) take_bytes(group, output);
}

static int thread_allgather(void *arg, const void *input, void *output, size_t bytes)
{
    const thread_member_t *member = arg;
    thread_group_t *group = member->group;
    lnt_status_t status = LNT_OK;

    (void)pthread_mutex_lock(&group->lock);
    if (group->failure == LNT_OK) run_round(group, member->rank, input, output, bytes);
    if (group->failure != LNT_OK) status = report(group);
    (void)pthread_mutex_unlock(&group->lock);
    return (int)status;
}

/* ---- life ---- */

static void free_group(thread_group_t *group)
{
    (void)pthread_cond_destroy(&group->moved);
    (void)pthread_mutex_destroy(&group->lock);
    lnt_free(group->buffer);
    lnt_free(group->put);
    lnt_free(group);
}

static void thread_destroy(void *arg)
{
    thread_member_t *member = arg;
    thread_group_t *group = member->group;
    uint32_t left;

    (void)pthread_mutex_lock(&group->lock);
    left = --group->refs;
    (void)pthread_mutex_unlock(&group->lock);
    lnt_free(member);
    if (left == 0) free_group(group);
}

static lnt_status_t create_group(uint32_t n_ranks, uint32_t timeout_ms, thread_group_t **group_p)
{
    pthread_condattr_t attributes;
    thread_group_t *group = lnt_calloc(1, sizeof(*group), "thread bootstrap");

    if (group == NULL) return LNT_ERR_NO_MEMORY;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&group->moved, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    (void)pthread_mutex_init(&group->lock, NULL);
    group->n_ranks = group->refs = n_ranks;
    group->timeout_ms = timeout_ms;
    group->put = lnt_calloc(n_ranks, sizeof(*group->put), "thread bootstrap ranks");
    if (group->put == NULL) {
        free_group(group);
        return LNT_ERR_NO_MEMORY;
    }
    *group_p = group;
    return LNT_OK;
}

static lnt_status_t create_members(thread_group_t *group, thread_member_t **members)
{
    for (uint32_t rank = 0; rank < group->n_ranks; rank++) {
        members[rank] = lnt_calloc(1, sizeof(*members[rank]), "thread bootstrap member");
        if (members[rank] == NULL) return LNT_ERR_NO_MEMORY;
        *members[rank] = (thread_member_t){.group = group, .rank = rank};
    }
    return LNT_OK;
}

lnt_status_t lnt_bootstrap_threads(uint32_t n_ranks, uint32_t timeout_ms, lnt_bootstrap_t *bootstraps)
{
    lnt_status_t status;
    thread_group_t *group;
    thread_member_t **members;

    LNT_CHECK_ARG(n_ranks >= 1 && timeout_ms >= 1 && bootstraps != NULL);
    members = lnt_calloc(n_ranks, sizeof(*members), "thread bootstrap members");
    if (members == NULL) return LNT_ERR_NO_MEMORY;
    LNT_TRY_GOTO(status, create_group(n_ranks, timeout_ms, &group), out);
    LNT_TRY_GOTO(status, create_members(group, members), err_free);
    for (uint32_t rank = 0; rank < n_ranks; rank++) {
        bootstraps[rank] = (lnt_bootstrap_t){.struct_size = sizeof(*bootstraps),
                                             .rank = rank,
                                             .n_ranks = n_ranks,
                                             .allgather = thread_allgather,
                                             .arg = members[rank],
                                             .destroy = thread_destroy};
    }
    goto out;
err_free:
    for (uint32_t rank = 0; rank < n_ranks; rank++)
        lnt_free(members[rank]);
    free_group(group);
out:
    lnt_free(members);
    return status;
}

void lnt_bootstrap_destroy(lnt_bootstrap_t *bootstrap)
{
    if (bootstrap == NULL) return;
    if (bootstrap->destroy != NULL) bootstrap->destroy(bootstrap->arg);
    *bootstrap = (lnt_bootstrap_t){.struct_size = 0};
}
