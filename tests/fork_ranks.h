/* Ranks as processes: fork n children, run a function in each, collect exit codes within a deadline.
 *
 *     int codes[3];
 *     fork_ranks(3, body, &arg, 5000, codes);   // body(rank_self_t *) returns 0 when all is well
 *
 * codes[r] is the exit code, 128 + signal for a child that was killed, FORK_RANKS_HANGS for one that had to be
 * killed at the deadline. The world is memory common to all ranks (pids, flags, all-gather).
 */
#ifndef TESTS_FORK_RANKS_H
#define TESTS_FORK_RANKS_H

#include <signal.h>
#include <sys/wait.h>

#include "rank_common.h"

enum { FORK_RANKS_HANGS = 1000 };

static inline void fork_ranks_collect(rank_world_t *world, uint32_t deadline_ms, int *codes)
{
    uint64_t deadline = rank_now_ms() + deadline_ms;
    uint32_t left = world->n_ranks;

    for (uint32_t i = 0; i < world->n_ranks; i++) {
        codes[i] = -1;
    }
    while (left > 0) {
        bool late = rank_now_ms() > deadline;

        for (uint32_t i = 0; i < world->n_ranks; i++) {
            int status;

            if (codes[i] >= 0) {
                continue;
            }
            if (waitpid(world->pids[i], &status, WNOHANG) == world->pids[i]) {
                codes[i] = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
                left--;
            } else if (late) {
                kill(world->pids[i], SIGKILL);
                waitpid(world->pids[i], &status, 0);
                codes[i] = FORK_RANKS_HANGS;
                left--;
            }
        }
        rank_nap_us(1000);
    }
}

/* codes may be NULL. Returns the number of ranks that did not end with 0. */
static inline uint32_t fork_ranks(uint32_t n_ranks, rank_fn_t body, void *arg, uint32_t deadline_ms, int *codes)
{
    rank_world_t *world = rank_world_create(n_ranks, deadline_ms);
    int own_codes[RANKS_MAX];
    uint32_t bad = 0;

    codes = (codes != NULL) ? codes : own_codes;
    fflush(NULL);
    for (uint32_t i = 0; i < n_ranks; i++) {
        pid_t pid = fork();

        if (pid == 0) {
            rank_self_t self;

            rank_self_init(&self, world, i, arg);
            world->pids[i] = getpid(); /* the parent may not have noted it yet */
            _exit(body(&self));
        }
        world->pids[i] = pid;
    }
    fork_ranks_collect(world, deadline_ms, codes);
    for (uint32_t i = 0; i < n_ranks; i++) {
        bad += (codes[i] != 0);
    }
    munmap(world, sizeof(*world));
    return bad;
}

#endif
