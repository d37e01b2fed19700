/* What both kinds of import share: one blob per rank of the same world, all blobs of another one. */
#ifndef LNT_STATE_IMPORT_H
#define LNT_STATE_IMPORT_H

#include "state_format.h"

/* Collective. The own status if it is an error, else that of the first rank with one. */
lnt_status_t lnt_state_vote(lnt_optim_t *optim, lnt_state_vote_t mine);
/* After a vote: LNT_ERR_STATE_MISMATCH unless all ranks told the same `common`. */
lnt_status_t lnt_state_compare_votes(const lnt_optim_t *optim);

uint32_t lnt_state_programs(const lnt_optim_t *optim, const lnt_state_header_t *header); /* of its phase: bits */

/* From here on nothing fails. Everything but errors, then masks, model copies and errors. */
void lnt_state_load(lnt_optim_t *optim, const lnt_state_blob_t *blob);
lnt_status_t lnt_state_settle(lnt_optim_t *optim, const lnt_state_errors_t *errors, uint32_t programs);

#endif
