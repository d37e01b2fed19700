/* Ranks as forked children of this process. */
#ifndef BERT_LOCAL_RANKS_H
#define BERT_LOCAL_RANKS_H

#include "team.h"

int local_ranks_run(uint32_t n_ranks, bert_rank_fn_t work, void *arg);

#endif
