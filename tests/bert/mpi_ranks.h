/* Ranks under mpirun. Compiled only where liblinnet_mpi is built. */
#ifndef BERT_MPI_RANKS_H
#define BERT_MPI_RANKS_H

#include "team.h"

bool mpi_ranks_apply(void);
int mpi_ranks_run(uint32_t n_ranks, bert_rank_fn_t work, void *arg);

#endif
