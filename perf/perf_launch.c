/* The ranks as processes of this machine: fork, start through common memory, watch, and leave nothing behind.
 *
 * A child dies with its parent. When one rank is lost the library tells the others, which end by themselves; whoever
 * has not after a grace is killed. Nothing of the library is used before the fork.
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../src/base/clock.h"
#include "../src/base/error.h"
#include "perf_tool.h"

enum { SLOT_BYTES = 16 * 1024, NAP_US = 500, WATCH_US = 10000, START_LIMIT_MS = 60000, GRACE_MS = 20000 };

typedef struct start_slot {
    _Atomic uint32_t round; /* all-gathers this rank has published */
    unsigned char bytes[2][SLOT_BYTES];
} start_slot_t;

typedef struct start_world {
    uint32_t n_ranks;
    _Atomic uint32_t lost; /* somebody ended: do not wait for the others */
    start_slot_t slots[];
} start_world_t;

typedef struct start_self {
    start_world_t *world;
    uint32_t rank;
} start_self_t;

static void nap(long us)
{
    (void)nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

/* lnt_allgather_fn_t. Two sets of bytes suffice: nobody writes round r + 2 before all have read round r. */
static int start_allgather(void *arg, const void *input, void *output, size_t bytes)
{
    const start_self_t *self = arg;
    start_world_t *world = self->world;
    start_slot_t *mine = &world->slots[self->rank];
    const uint32_t round = atomic_load(&mine->round);
    const uint64_t deadline_ns = lnt_now_ns() + START_LIMIT_MS * UINT64_C(1000000);

    if (bytes > SLOT_BYTES) return 1;
    memcpy(mine->bytes[round % 2], input, bytes);
    atomic_store(&mine->round, round + 1);
    for (uint32_t r = 0; r < world->n_ranks; r++) {
        for (;;) { /* `lost` first, also where all have come: those who waited then have given up already */
            if (atomic_load(&world->lost) != 0) {
                return lnt_error(LNT_ERR_PEER_LOST, "see what became of it above",
                                 "a rank ended before all had started");
            }
            if ((int32_t)(atomic_load(&world->slots[r].round) - (round + 1)) >= 0) break;
            if (lnt_now_ns() > deadline_ns) {
                return lnt_error(LNT_ERR_TIMED_OUT, NULL, "rank %u did not start within %d ms", r, START_LIMIT_MS);
            }
            nap(NAP_US);
        }
        memcpy((unsigned char *)output + r * bytes, world->slots[r].bytes[round % 2], bytes);
    }
    return 0;
}

static int child(start_world_t *world, uint32_t rank, pid_t parent, const perf_config_t *config, perf_rank_fn_t body)
{
    start_self_t self = {.world = world, .rank = rank};
    lnt_bootstrap_t bootstrap = {.struct_size = sizeof(bootstrap),
                                 .rank = rank,
                                 .n_ranks = world->n_ranks,
                                 .allgather = start_allgather,
                                 .arg = &self};

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) return TOOL_FAILED;
    return tool_finish(PERF_NAME, body(config, &bootstrap));
}

static const char *describe_end(int status, char *text, size_t bytes)
{
    if (WIFSIGNALED(status)) {
        (void)snprintf(text, bytes, "was lost: killed by signal %d (%s)", WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
    } else {
        (void)snprintf(text, bytes, "ended with code %d", WEXITSTATUS(status));
    }
    return text;
}

/* One look at a child; true when it has ended. */
static bool reap(start_world_t *world, pid_t *pids, uint32_t rank, int *failed_p)
{
    int status;
    char text[128];

    if (waitpid(pids[rank], &status, WNOHANG) != pids[rank]) return false;
    pids[rank] = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
    if (WIFSIGNALED(status) || WEXITSTATUS(status) != TOOL_FAILED) { /* a rank that failed has said why */
        (void)fprintf(stderr, PERF_NAME ": rank %u %s\n", rank, describe_end(status, text, sizeof(text)));
    }
    *failed_p = TOOL_FAILED;
    atomic_store(&world->lost, 1);
    return true;
}

static int watch(start_world_t *world, pid_t *pids)
{
    uint32_t left = world->n_ranks;
    uint64_t deadline_ns = UINT64_MAX;
    int failed = 0;

    while (left > 0) {
        for (uint32_t r = 0; r < world->n_ranks; r++) {
            if (pids[r] == 0) continue;
            if (reap(world, pids, r, &failed)) {
                left--;
            } else if (lnt_now_ns() > deadline_ns) {
                (void)fprintf(stderr, PERF_NAME ": rank %u did not end by itself, killed\n", r);
                (void)kill(pids[r], SIGKILL);
            }
        }
        if (failed != 0 && deadline_ns == UINT64_MAX) deadline_ns = lnt_now_ns() + GRACE_MS * UINT64_C(1000000);
        nap(WATCH_US);
    }
    return failed;
}

static void kill_started(const pid_t *pids, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++) {
        (void)kill(pids[r], SIGKILL);
        (void)waitpid(pids[r], NULL, 0);
    }
}

static int launch_in(start_world_t *world, pid_t *pids, const perf_config_t *config, perf_rank_fn_t body)
{
    const pid_t parent = getpid();

    (void)fflush(NULL);
    for (uint32_t r = 0; r < world->n_ranks; r++) {
        pids[r] = fork();
        if (pids[r] == 0) _exit(child(world, r, parent, config, body));
        if (pids[r] < 0) {
            (void)fprintf(stderr, PERF_NAME ": cannot start rank %u: %s\n", r, strerror(errno));
            kill_started(pids, r);
            return TOOL_FAILED;
        }
    }
    return watch(world, pids);
}

int perf_launch(const perf_config_t *config, uint32_t n_ranks, perf_rank_fn_t body)
{
    const size_t bytes = sizeof(start_world_t) + n_ranks * sizeof(start_slot_t);
    start_world_t *world = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t *pids = calloc(n_ranks, sizeof(*pids));
    int code = TOOL_FAILED;

    if (world != MAP_FAILED && pids != NULL) {
        world->n_ranks = n_ranks;
        code = launch_in(world, pids, config, body);
    }
    free(pids);
    if (world != MAP_FAILED) (void)munmap(world, bytes);
    return code;
}
