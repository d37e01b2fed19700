/* What tests with several ranks share, be they processes (fork_ranks.h) or threads (thread_ranks.h): the identity of a
 * rank, an all-gather through common memory with a deadline, and checks that end a rank's function.
 */
#ifndef TESTS_RANK_COMMON_H
#define TESTS_RANK_COMMON_H

#include <linnet/comm.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { RANKS_MAX = 16, RANK_GATHER_BYTES = 16 * 1024 };

typedef struct rank_world {
    uint32_t n_ranks, deadline_ms;
    _Atomic uint32_t round[RANKS_MAX]; /* all-gathers this rank has published */
    _Atomic uint32_t flags[RANKS_MAX]; /* free use by tests */
    pid_t pids[RANKS_MAX];
    unsigned char slots[2][RANKS_MAX][RANK_GATHER_BYTES];
} rank_world_t;

typedef struct rank_self {
    uint32_t rank, n_ranks;
    rank_world_t *world;
    lnt_bootstrap_t bootstrap; /* for lnt_comm_create, or call its allgather */
    void *arg;
} rank_self_t;

/* A rank's body; 0 is success. */
typedef int (*rank_fn_t)(rank_self_t *self);

static inline uint64_t rank_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static inline void rank_nap_us(long us)
{
    nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

/* lnt_allgather_fn_t. Two sets of slots suffice: nobody writes round r + 2 before all have read round r. */
static inline int rank_allgather(void *arg, const void *input, void *output, size_t bytes)
{
    rank_self_t *self = arg;
    rank_world_t *world = self->world;
    uint32_t round = atomic_load(&world->round[self->rank]);
    uint64_t deadline = rank_now_ms() + world->deadline_ms;

    if (bytes > RANK_GATHER_BYTES) {
        return 1;
    }
    memcpy(world->slots[round % 2][self->rank], input, bytes);
    atomic_store(&world->round[self->rank], round + 1);
    for (uint32_t i = 0; i < self->n_ranks; i++) {
        while ((int32_t)(atomic_load(&world->round[i]) - (round + 1)) < 0) {
            if (rank_now_ms() > deadline) {
                return 1;
            }
            rank_nap_us(200);
        }
        memcpy((unsigned char *)output + i * bytes, world->slots[round % 2][i], bytes);
    }
    return 0;
}

static inline rank_world_t *rank_world_create(uint32_t n_ranks, uint32_t deadline_ms)
{
    rank_world_t *world = mmap(NULL, sizeof(*world), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if ((world == MAP_FAILED) || (n_ranks > RANKS_MAX)) {
        fprintf(stderr, "no memory for a world of %u ranks\n", n_ranks);
        abort();
    }
    world->n_ranks = n_ranks;
    world->deadline_ms = deadline_ms;
    return world;
}

static inline void rank_self_init(rank_self_t *self, rank_world_t *world, uint32_t rank, void *arg)
{
    *self = (rank_self_t){.rank = rank, .n_ranks = world->n_ranks, .world = world, .arg = arg};
    self->bootstrap = (lnt_bootstrap_t){.struct_size = sizeof(lnt_bootstrap_t),
                                        .rank = rank,
                                        .n_ranks = world->n_ranks,
                                        .allgather = rank_allgather,
                                        .arg = self};
}

/* Inside functions that return int: libcheck's own asserts work in the main process and thread only. */
#define RANK_CHECK(_condition)                                                                                         \
    do {                                                                                                               \
        if (!(_condition)) {                                                                                           \
            fprintf(stderr, "%s:%d: not true: %s (last error: %s)\n", __FILE__, __LINE__, #_condition,                 \
                    lnt_last_error()->cause);                                                                          \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

#define RANK_OK(_call) RANK_CHECK((_call) == LNT_OK)
#define RANK_PASS(_call)                                                                                               \
    do {                                                                                                               \
        int rank_code_ = (_call);                                                                                      \
        if (rank_code_ != 0) {                                                                                         \
            return rank_code_;                                                                                         \
        }                                                                                                              \
    } while (0)

#endif
