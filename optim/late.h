/* Late comers: coordinates that are dead at the freeze and get gradients afterwards (docs/optimizers.md).
 *
 * A step tells in which blocks a dead coordinate had a gradient. At its commit such a block is
 * *latched*: from the next step on its dead coordinates travel in the f32 lane and run Adam with powers of beta of
 * their own. After lane_updates updates those with a variance above eps join the sign program. Latches and powers are
 * part of the state, as values per block; everything is a function of it and of the exchanged values, so all ranks do
 * the same.
 */
#ifndef LNT_LATE_H
#define LNT_LATE_H

#include "optim_impl.h"

typedef enum lnt_late_idle { LNT_LATE_LEAVE, LNT_LATE_STAY } lnt_late_idle_t;

/* Blocks of `options.block` elements of all tensors that are not plain Adam for ever; numbers them
 * (lnt_optim_tensor_t.first_block). */
uint64_t lnt_late_n_blocks(const lnt_optim_t *optim);
void lnt_late_number_blocks(lnt_optim_t *optim);

/* Consume of the lane: plain Adam, late comers with powers of their own. */
void lnt_late_consume(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live);
/* Constants of a span of the lane. False: they are the group's, it is no late comer. */
bool lnt_late_consts(const lnt_optim_t *optim, const lnt_span_t *span, lnt_adam_consts_t *k);

/* A dead coordinate of the block at `offset` of a tensor had a gradient: for tensors outside the sign program, before
 * lnt_late_committed of the step. */
void lnt_late_tell(lnt_optim_t *optim, uint32_t tensor, uint64_t offset);
/* After the commit of a step of a phase with a frozen variance in which the sign program and the lane ran. left_out: as
 * in lnt_step_params_t, tensors that had no part in it. */
lnt_status_t lnt_late_committed(lnt_optim_t *optim, const uint8_t *left_out);
/* Masks or state have changed from outside: counts anew. The lane follows with the next lnt_late_apply. */
void lnt_late_recount(lnt_optim_t *optim);
/* Makes the lane carry what it must; does nothing where it does. Local; after an error it is to be tried again before
 * the next step. */
lnt_status_t lnt_late_apply(lnt_optim_t *optim);

#endif
