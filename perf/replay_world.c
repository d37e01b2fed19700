/* A world of ranks as threads of this process, and rounds of exchanges in it. */
#include "replay.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TIMEOUT_MS = 60000 };

typedef struct rank_thread {
    pthread_t thread;
    lnt_bootstrap_t *bootstrap;
    int64_t node;
    const char *transport;
    replay_rank_fn_t body;
    void *arg;
    lnt_status_t status;
    char problem[LNT_ERROR_TEXT_MAX];
} rank_thread_t;

static lnt_status_t run_rank(rank_thread_t *rank, lnt_context_t *context)
{
    lnt_comm_params_t params = {.struct_size = sizeof(params),
                                .bootstrap = rank->bootstrap,
                                .timeout_ms = TIMEOUT_MS,
                                .transports = rank->transport};
    lnt_comm_t *comm;
    lnt_status_t status;
    char node[32];

    snprintf(node, sizeof(node), "replay-%lld", (long long)rank->node);
    params.node = node;
    LNT_TRY(lnt_comm_create(context, &params, &comm));
    status = rank->body(comm, rank->arg);
    if (status < 0) { /* the others must not wait for this rank */
        snprintf(rank->problem, sizeof(rank->problem), "%s", lnt_last_error()->cause);
        lnt_comm_abort(comm, "a rank could not go on");
    }
    (void)lnt_comm_destroy(comm);
    return status;
}

static void *thread_main(void *arg)
{
    rank_thread_t *rank = arg;
    lnt_context_t *context;

    rank->status = lnt_context_create(NULL, &context);
    if (rank->status >= 0) {
        rank->status = run_rank(rank, context);
        (void)lnt_context_destroy(context);
    }
    if ((rank->status < 0) && (rank->problem[0] == '\0')) {
        snprintf(rank->problem, sizeof(rank->problem), "%s", lnt_last_error()->cause);
    }
    return NULL;
}

lnt_status_t replay_world(uint32_t n_ranks, const int64_t *nodes, const char *transport, replay_rank_fn_t body,
                          void *arg, char *problem, size_t size)
{
    lnt_bootstrap_t bootstraps[REPLAY_MAX_RANKS];
    rank_thread_t ranks[REPLAY_MAX_RANKS];
    lnt_status_t status = lnt_bootstrap_threads(n_ranks, TIMEOUT_MS, bootstraps);

    if (status < 0) {
        snprintf(problem, size, "%s", lnt_last_error()->cause);
        return status;
    }
    for (uint32_t r = 0; r < n_ranks; ++r) {
        ranks[r] = (rank_thread_t){
            .bootstrap = &bootstraps[r], .node = nodes[r], .transport = transport, .body = body, .arg = arg};
        if (pthread_create(&ranks[r].thread, NULL, thread_main, &ranks[r]) != 0) {
            snprintf(problem, size, "rank %u of %u cannot be started", r, n_ranks);
            exit(REPLAY_DEVIATES); /* the threads before it wait for it */
        }
    }
    for (uint32_t r = 0; r < n_ranks; ++r) {
        pthread_join(ranks[r].thread, NULL);
        lnt_bootstrap_destroy(&bootstraps[r]);
        if ((ranks[r].status < 0) && ((status >= 0) || (status == LNT_ERR_ABORTED))) {
            status = ranks[r].status;
            snprintf(problem, size, "rank %u: %s", r, ranks[r].problem);
        }
    }
    return status;
}

lnt_status_t replay_round_init(replay_round_t *round, lnt_comm_t *comm, lnt_exchange_t *const *exchanges, uint32_t n)
{
    uint64_t n_tasks = 0;

    *round = (replay_round_t){.comm = comm};
    round->graphs = calloc((size_t)n + 1, sizeof(*round->graphs));
    round->ready = calloc((size_t)n + 1, sizeof(*round->ready));
    if ((round->graphs == NULL) || (round->ready == NULL)) {
        return lnt_error(LNT_ERR_NO_MEMORY, NULL, "no memory for a round");
    }
    for (uint32_t b = 0; b < n; ++b) {
        round->graphs[b] = lnt_exchange_graph(exchanges[b]);
        n_tasks += round->graphs[b]->n_tasks;
    }
    round->job.graphs = round->graphs;
    round->job.n_graphs = n;
    round->job.ready = round->ready;
    round->job.layout_hash = 1;
    snprintf(round->job.what, sizeof(round->job.what), "replay");
    return lnt_exec_reserve(comm->exec, n_tasks);
}

lnt_status_t replay_round_run(replay_round_t *round, uint8_t *flags_p)
{
    round->job.sequence = round->comm->sequence++;
    lnt_exec_post(round->comm->exec, &round->job);
    for (uint32_t b = 0; b < round->job.n_graphs; ++b) {
        lnt_job_ready(round->comm->exec, &round->job, b);
    }
    LNT_TRY(lnt_comm_wait_job(round->comm, &round->job));
    *flags_p = round->job.flags;
    return LNT_OK;
}

void replay_round_release(replay_round_t *round)
{
    free(round->graphs);
    free((void *)round->ready);
}
