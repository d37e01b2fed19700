/* Optimizers over a plan.
 *
 * Algorithms (lnt_optim_list; docs/optimizers.md has their formulas, options and sources):
 *   "adam", "adamw"    L2 decay; decoupled decay
 *   "lamb", "lambc"    AdamW with a trust ratio per tensor; the ratio limited to 1
 *   "lans"             LAMB with gradients of norm 1 and two ratios
 *   "came"             Adam's second moments kept as means of rows and columns, with confidence
 *   "onebit_adam"      1-bit Adam (Tang et al., ICML 2021, arXiv 2102.02888): AdamW until the freeze, then v is frozen
 *                      and the momentum travels as signs
 *   "onebit_lamb"      1-bit LAMB (Li et al., arXiv 2104.06069): the same from LAMB, with frozen, scaled ratios
 *   "zero_one_adam"    0/1 Adam (Lu et al., ICLR 2023, arXiv 2202.06009): variance steps at growing intervals, signs
 *                      between them, then local steps; the parameter buffer is a model copy that differs between ranks
 *                      from one sync to the next
 * AdamW's update, all in f32, bias corrections as running f64 products of beta rounded once per step
 * (docs/numerics.md):
 *
 *   m = b1 m + (1-b1) g      v = b2 v + (1-b2) g^2      x -= lr * (m / (1-b1^t)) / (sqrt(v / (1-b2^t)) + eps) + decay
 *
 * Life:   plan_create, add tensors, optim_create, plan_commit, steps, optim_destroy, plan_destroy.
 * Step:   lnt_optim_begin; lnt_optim_tensor_ready for each tensor; lnt_optim_end.   Or lnt_optim_step for all at once.
 * Threads: as plans.
 */
#ifndef LINNET_OPTIM_H
#define LINNET_OPTIM_H

#include <linnet/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lnt_group {
    size_t struct_size;
    double lr;           /* default 1e-3 */
    double beta1, beta2; /* default 0.9, 0.999; must lie in [0, 1) */
    double eps;          /* default 1e-8, added outside the root */
    double weight_decay; /* default 0 */
    bool non_freeze;     /* this group stays in the f32 lane: plain Adam in all phases. Fixed at creation */
} lnt_group_t;

/* Fills the defaults above. */
LNT_API void lnt_group_defaults(lnt_group_t *group);

typedef struct lnt_optim_params {
    size_t struct_size;
    const char *algorithm;
    /* "key=value,key=value"; names and defaults in docs/optimizers.md and lnt_optim_option_get. An unknown key is
     * LNT_ERR_INVALID_ARG naming the nearest one; of one that comes twice the last value counts. NULL: all defaults. */
    const char *options;
    const lnt_group_t *groups; /* n_groups entries, copied; every tensor's group must exist. NULL: one default group */
    uint32_t n_groups;
} lnt_optim_params_t;

/* Adds the algorithm's exchange programs to the plan, which must still be open. One optimizer per plan. Local. */
LNT_API lnt_status_t lnt_optim_create(lnt_plan_t *plan, const lnt_optim_params_t *params, lnt_optim_t **optim_p);
LNT_API lnt_status_t lnt_optim_destroy(lnt_optim_t *optim); /* NULL is legal; before the plan */

LNT_API const char *const *lnt_optim_list(void); /* NULL-terminated, static */

typedef struct lnt_optim_option {
    const char *name, *default_text, *help;
} lnt_optim_option_t;
LNT_API lnt_status_t lnt_optim_option_get(const char *algorithm, size_t index, lnt_optim_option_t *option_p);

/* Between steps: new hyper-parameters of a group (learning-rate schedules live outside). Must be equal on all ranks. */
LNT_API lnt_status_t lnt_optim_set_group(lnt_optim_t *optim, uint32_t group, const lnt_group_t *values);
LNT_API lnt_status_t lnt_optim_get_group(const lnt_optim_t *optim, uint32_t group, lnt_group_t *values_p);

/* Between steps: which coordinates of a tensor take part; one byte per element, 0 = masked, NULL: all do. Masked
 * coordinates stand still from the freeze on (m = v = 0, no decay) and are in neither the signs nor the f32 lane; in
 * the warm-up they are like all others. Must be equal on all ranks (a hash is in every frame); part of saved state.
 * Algorithms with a freeze only: LNT_ERR_UNSUPPORTED. Unmasked after the freeze, a coordinate of a long tensor is dead
 * until a gradient comes. After LNT_ERR_NO_MEMORY the mask holds, and lnt_optim_begin tries again. */
LNT_API lnt_status_t lnt_optim_set_mask(lnt_optim_t *optim, uint32_t tensor, const uint8_t *mask);

/* Gradients of the next steps are multiplied by `loss_scale` and are sums over `micro_steps` micro-batches: both are
 * divided out. loss_scale 0 keeps the scale there is; with the option loss_scale=0 it changes by itself and must be 0.
 */
LNT_API lnt_status_t lnt_optim_set_scaling(lnt_optim_t *optim, double loss_scale, uint32_t micro_steps);

/* What the loss of the next step must be multiplied by: with the option loss_scale=0 it falls after overflows and grows
 * after steps without, otherwise it is what was set. The same on all ranks. */
LNT_API double lnt_optim_loss_scale(const lnt_optim_t *optim);

/* lnt_plan_accumulate and lnt_plan_veto of the plan below. */
LNT_API lnt_status_t lnt_optim_accumulate(lnt_optim_t *optim, uint32_t tensor, const void *grad);
LNT_API lnt_status_t lnt_optim_veto(lnt_optim_t *optim);

/* A bucket leaves as soon as its last tensor is ready, so the exchange overlaps with what the caller does until `end`;
 * but with the options clip > 0 and clip_mode=global a step after a freeze leaves in `end`, when all norms are known.
 */
LNT_API lnt_status_t lnt_optim_begin(lnt_optim_t *optim);
LNT_API lnt_status_t lnt_optim_tensor_ready(lnt_optim_t *optim, uint32_t tensor, const void *grad, void *stream);
/* LNT_OK: parameters and state have advanced, identically on all ranks. LNT_SKIPPED_NONFINITE, LNT_SKIPPED_VETO:
 * nothing changed but the skip counters and a dynamic loss scale; a skipped sync of zero_one_adam also starts its
 * window again, on every rank, whose local steps are lost (with compat=deepspeed the window stands). LNT_ERR_DIVERGED
 * after max_skips skips in a row, or at an overflow when a dynamic loss scale is at its minimum: skipped like the
 * others. LNT_SKIPPED_LOCAL: committed, but this rank took no local step, as its gradient was not finite
 * (zero_one_adam). LNT_FREEZE_REFUSED: the step is committed, but the freeze that was due is refused, now and after
 * every step until it succeeds; lnt_last_error()->status says why: LNT_ERR_DEAD_SHARE or LNT_ERR_NONFINITE
 * (docs/optimizers.md). Group -40: the communicator failed; a rank that returns such an error has not committed the
 * step. */
LNT_API lnt_status_t lnt_optim_end(lnt_optim_t *optim);
/* All three at once; grads has one pointer per tensor, NULL entries are zeros. */
LNT_API lnt_status_t lnt_optim_step(lnt_optim_t *optim, const void *const *grads);

typedef enum lnt_phase {
    LNT_PHASE_WARMUP = 0,
    LNT_PHASE_COMPRESSED = 1,
    LNT_PHASE_PLAIN = 2,
    LNT_PHASE_FROZEN = 3,
    LNT_PHASE_LOCAL = 4 /* local steps between exchanges (zero_one_adam) */
} lnt_phase_t;
LNT_API const char *lnt_phase_name(lnt_phase_t phase);

typedef struct lnt_optim_info {
    size_t struct_size;
    lnt_phase_t phase; /* of the next step */
    uint64_t step;     /* committed steps */
    uint64_t skipped;
    /* Both agreed by all ranks. Norm of the mean gradient of the last committed step before clipping; after a freeze
     * its estimate; with clip_mode=bucket the norm of the mean of what the ranks have clipped. 0 if not computed */
    double grad_norm;
    double clip_factor;    /* what all gradients of the last committed step were multiplied by */
    double dead_share;     /* of all elements, at the freeze */
    double dropped_norm;   /* norm of the residual this rank dropped at the freeze */
    uint64_t lane_elems;   /* elements in the f32 lane */
    uint64_t memory_bytes; /* moments, masks, denominators */
    uint64_t late_blocks;  /* blocks with late comers in the lane */
    uint64_t late_touched; /* gradients of blocks that were lost because a dead coordinate came alive */
    /* Of the last lnt_optim_state_import_world, the same on all ranks: sums over all elements of the residual
     * E + (1/K) sum of e (docs/state_format.md), as saved and as loaded, and of its magnitudes. 0 before one. */
    double residual_saved, residual_loaded, residual_magnitude;
} lnt_optim_info_t;
LNT_API lnt_status_t lnt_optim_get_info(const lnt_optim_t *optim, lnt_optim_info_t *info_p);

/* Read-only views for checks and tools: "exp_avg", "exp_avg_sq", "denominator", "dead" (uint8_t), "masked" (uint8_t) of
 * a tensor, in f32 unless said otherwise; NULL if the algorithm or phase has none. */
LNT_API const void *lnt_optim_view(const lnt_optim_t *optim, const char *name, uint32_t tensor);

/* Numbers of the algorithm's state, one per tensor, one per group or a few (docs/optimizers.md names them); *count_p
 * (may be NULL) receives how many. NULL if the algorithm or phase has none of that name. Valid until the next step. */
LNT_API const double *lnt_optim_values(const lnt_optim_t *optim, const char *name, uint64_t *count_p);

/* 64-bit hash of parameters, moments and counters: equal on all ranks after every step. Local. */
LNT_API uint64_t lnt_optim_hash(const lnt_optim_t *optim);

/* State. Every rank saves its own blob (little-endian, versioned, checksummed sections; docs/state_format.md):
 * parameters' masters, moments, masks, counters, running beta powers, and the error feedback this rank owns. Idle only.
 */
LNT_API lnt_status_t lnt_optim_state_size(lnt_optim_t *optim, uint64_t *bytes_p);
LNT_API lnt_status_t lnt_optim_state_export(lnt_optim_t *optim, void *blob, uint64_t bytes); /* aligned as floats */
/* Collective: every rank gives the blob it saved. Everything is validated on all ranks, and a vote taken, before
 * anything live is touched: LNT_ERR_CORRUPT (also of numbers that no run goes on from: not finite, denominators of 0),
 * LNT_ERR_STATE_MISMATCH (naming tensor or parameter, with the cure; a loss scale other than the saved one too).
 * Resuming is bit-exact for the same world and nodes, with any bucket and segment bytes and any transport. */
LNT_API lnt_status_t lnt_optim_state_import(lnt_optim_t *optim, const void *blob, uint64_t bytes);
/* Collective: every rank gives the blobs of all ranks that saved, in any order (and any number of them, from any
 * nodes). Bit-exact like lnt_optim_state_import where world and nodes are the same. Else what error feedback holds back
 * of every element is kept as E' = fl(E + (1/K) sum of e), e' = 0: conserved up to one f32 rounding, see
 * lnt_optim_info_t.residual_loaded; in a world of one node, which keeps no errors, it is added once to the value of the
 * next committed step. What differs between ranks (0/1 Adam between two syncs) becomes its mean. */
LNT_API lnt_status_t lnt_optim_state_import_world(lnt_optim_t *optim, const void *const *blobs, const uint64_t *bytes,
                                                  uint32_t n_blobs);

#ifdef __cplusplus
}
#endif
#endif
