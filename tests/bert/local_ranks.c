/* Forked ranks. The bootstrap's all-gather is a star of socket pairs around rank 0, with a deadline.
 *
 * The parent waits for all children. When one fails the others get some seconds to report what they saw (the library
 * tells them), then they are ended. Children die with their parent. Nothing is left behind in any case. */
#include "local_ranks.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "say.h"

enum { START_DEADLINE_MS = 60000, FAREWELL_S = 15, POLL_US = 50000 };

/* A rank's view of the star: rank 0 holds one end per other rank, the others hold one. */
typedef struct star {
    uint32_t rank, n_ranks;
    int end[BERT_RANKS_MAX]; /* rank 0: of rank r; others: end[0] */
} star_t;

/* Moves exactly n bytes or fails at the deadline. */
static bool move_bytes(int end, void *data, size_t n, bool sending)
{
    struct pollfd poller = {.fd = end, .events = sending ? POLLOUT : POLLIN};
    char *at = data;

    while (n > 0) {
        ssize_t moved;

        if (poll(&poller, 1, START_DEADLINE_MS) <= 0) {
            return false;
        }
        moved = sending ? send(end, at, n, MSG_NOSIGNAL | MSG_DONTWAIT) : recv(end, at, n, MSG_DONTWAIT);
        if (moved == 0 || ((moved < 0) && (errno != EAGAIN) && (errno != EINTR))) {
            return false;
        }
        at += (moved > 0) ? moved : 0;
        n -= (moved > 0) ? (size_t)moved : 0;
    }
    return true;
}

static int star_allgather(void *arg, const void *input, void *output, size_t bytes)
{
    star_t *star = arg;
    char *all = output;
    bool good = true;

    memcpy(all + star->rank * bytes, input, bytes);
    if (star->rank > 0) {
        good = move_bytes(star->end[0], all + star->rank * bytes, bytes, true) &&
               move_bytes(star->end[0], all, bytes * star->n_ranks, false);
        return good ? 0 : -1;
    }
    for (uint32_t r = 1; good && (r < star->n_ranks); r++) {
        good = move_bytes(star->end[r], all + r * bytes, bytes, false);
    }
    for (uint32_t r = 1; good && (r < star->n_ranks); r++) {
        good = move_bytes(star->end[r], all, bytes * star->n_ranks, true);
    }
    return good ? 0 : -1;
}

typedef struct crew {
    uint32_t n_ranks;
    int pair[BERT_RANKS_MAX][2];
    pid_t child[BERT_RANKS_MAX];
    uint32_t n_alive;
    int result;
} crew_t;

static void close_pairs(crew_t *crew, uint32_t keep_rank, bool keep_any)
{
    for (uint32_t r = 1; r < crew->n_ranks; r++) {
        for (int side = 0; side < 2; side++) {
            bool mine = keep_any && (((side == 0) && (keep_rank == 0)) || ((side == 1) && (keep_rank == r)));
            if (!mine) {
                close(crew->pair[r][side]);
            }
        }
    }
}

static void child_main(crew_t *crew, uint32_t rank, pid_t parent, bert_rank_fn_t work, void *arg)
{
    star_t star = {.rank = rank, .n_ranks = crew->n_ranks};
    lnt_bootstrap_t bootstrap = {.struct_size = sizeof(bootstrap),
                                 .rank = rank,
                                 .n_ranks = crew->n_ranks,
                                 .allgather = star_allgather,
                                 .arg = &star};

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
    close_pairs(crew, rank, true);
    for (uint32_t r = 1; (rank == 0) && (r < crew->n_ranks); r++) {
        star.end[r] = crew->pair[r][0];
    }
    if (rank > 0) {
        star.end[0] = crew->pair[rank][1];
    }
    exit(work(arg, &bootstrap));
}

static bool start_children(crew_t *crew, bert_rank_fn_t work, void *arg)
{
    pid_t parent = getpid();

    for (uint32_t r = 1; r < crew->n_ranks; r++) {
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, crew->pair[r]) != 0) {
            return bert_fail("no sockets for %u ranks: %s", crew->n_ranks, strerror(errno));
        }
    }
    for (uint32_t r = 0; r < crew->n_ranks; r++) {
        crew->child[r] = fork();
        if (crew->child[r] == 0) {
            child_main(crew, r, parent, work, arg);
        }
        if (crew->child[r] < 0) {
            return bert_fail("cannot start rank %u: %s", r, strerror(errno));
        }
        crew->n_alive++;
    }
    close_pairs(crew, 0, false);
    return true;
}

static void end_children(const crew_t *crew, int signal_number)
{
    for (uint32_t r = 0; r < crew->n_ranks; r++) {
        if (crew->child[r] > 0) {
            kill(crew->child[r], signal_number);
        }
    }
}

static void note_end(crew_t *crew, uint32_t rank, int state)
{
    crew->child[rank] = 0;
    crew->n_alive--;
    if (WIFSIGNALED(state)) {
        bert_say("rank %u was ended by signal %d", rank, WTERMSIG(state));
        crew->result = (crew->result == 0) ? 1 : crew->result;
    } else if (WEXITSTATUS(state) != 0) {
        bert_say("rank %u failed with status %d", rank, WEXITSTATUS(state));
        crew->result = (crew->result == 0) ? WEXITSTATUS(state) : crew->result;
    }
}

static void reap(crew_t *crew)
{
    for (uint32_t r = 0; r < crew->n_ranks; r++) {
        int state;
        if ((crew->child[r] > 0) && (waitpid(crew->child[r], &state, WNOHANG) == crew->child[r])) {
            note_end(crew, r, state);
        }
    }
}

static void wait_for_all(crew_t *crew)
{
    time_t failed_at = 0;

    while (crew->n_alive > 0) {
        reap(crew);
        if ((crew->result != 0) && (failed_at == 0)) {
            failed_at = time(NULL);
        }
        if ((failed_at != 0) && (time(NULL) - failed_at > FAREWELL_S)) {
            end_children(crew, SIGKILL);
        }
        usleep(POLL_US);
    }
}

int local_ranks_run(uint32_t n_ranks, bert_rank_fn_t work, void *arg)
{
    static crew_t crew; /* one per process */

    crew = (crew_t){.n_ranks = n_ranks};
    if (!start_children(&crew, work, arg)) {
        crew.result = 1;
        end_children(&crew, SIGKILL);
    }
    wait_for_all(&crew);
    return crew.result;
}
