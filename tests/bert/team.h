/* Where the ranks come from: forked here, mpirun, or the usual environment variables. */
#ifndef BERT_TEAM_H
#define BERT_TEAM_H

#include <linnet/linnet.h>

enum { BERT_RANKS_MAX = 256 };

/* One rank's work; the result is the exit status. */
typedef int (*bert_rank_fn_t)(void *arg, const lnt_bootstrap_t *bootstrap);

/* Runs `work` as this process's rank, or as n_ranks forked ones. Returns the exit status: not 0 if any rank failed. */
int bert_team_run(uint32_t n_ranks, bert_rank_fn_t work, void *arg);

/* Prints the library's last error and returns false. */
bool bert_lnt_fail(const char *doing);

/* Collective: n values of every rank, in rank order, exact. */
bool bert_team_gather(lnt_comm_t *comm, uint32_t n_ranks, const uint64_t *mine, size_t n, uint64_t *all);

#endif
