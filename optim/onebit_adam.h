/* What tests see of 1-bit Adam without ranks: when the freeze is due. The table of phases is in its row. */
#ifndef LNT_ONEBIT_ADAM_H
#define LNT_ONEBIT_ADAM_H

#include "optim_impl.h"

/* After a commit: is it time to freeze? A refused freeze stays due. */
bool lnt_onebit_freeze_due(const lnt_phase_stats_t *stats, uint64_t freeze_step);

#endif
