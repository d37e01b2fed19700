/* Ranks as threads of this process: the counterpart of fork_ranks.h.
 *
 *     ck_assert_uint_eq(thread_ranks(4, body, &arg, 5000), 0);   // number of ranks that did not return 0
 *
 * A thread that does not end within the deadline cannot be stopped: the program aborts, saying so.
 */
#ifndef TESTS_THREAD_RANKS_H
#define TESTS_THREAD_RANKS_H

#include <pthread.h>

#include "rank_common.h"

typedef struct thread_rank {
    rank_self_t self;
    rank_fn_t body;
    pthread_t thread;
} thread_rank_t;

static inline void *thread_rank_main(void *arg)
{
    thread_rank_t *rank = arg;

    return (void *)(intptr_t)rank->body(&rank->self);
}

static inline uint32_t thread_ranks(uint32_t n_ranks, rank_fn_t body, void *arg, uint32_t deadline_ms)
{
    rank_world_t *world = rank_world_create(n_ranks, deadline_ms);
    thread_rank_t ranks[RANKS_MAX];
    struct timespec until;
    uint32_t bad = 0;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += deadline_ms / 1000 + 1;
    for (uint32_t i = 0; i < n_ranks; i++) {
        rank_self_init(&ranks[i].self, world, i, arg);
        ranks[i].body = body;
        if (pthread_create(&ranks[i].thread, NULL, thread_rank_main, &ranks[i]) != 0) {
            abort();
        }
    }
    for (uint32_t i = 0; i < n_ranks; i++) {
        void *code;

        if (pthread_timedjoin_np(ranks[i].thread, &code, &until) != 0) {
            fprintf(stderr, "rank %u of %u hangs\n", i, n_ranks);
            abort();
        }
        bad += (code != NULL);
    }
    munmap(world, sizeof(*world));
    return bad;
}

#endif
