/* Internals of zero_one_adam, shared by zero_one_*.c.
 *
 * Programs: `warm` carries the gradients of variance steps. In sign steps `sign` carries the gradients of long tensors,
 * `short` (f32) those of tensors under LNT_LANE_MIN, and `held` (warm-up codec, no errors) those of tensors with too
 * many dead coordinates. After the freeze `sign` and `short` carry what the windows have accumulated, and `late` (f32)
 * the gradients that they have summed up for late comers. `lane` (f32) carries groups marked non_freeze in every step
 * but variance steps.
 */
#ifndef LNT_ZERO_ONE_H
#define LNT_ZERO_ONE_H

#include "freeze.h"
#include "zero_one_math.h"
#include "zero_one_schedule.h"

enum {
    LNT_ZERO_ONE_WARM_PROGRAM,
    LNT_ZERO_ONE_SIGNS,
    LNT_ZERO_ONE_SHORT,
    LNT_ZERO_ONE_LANE,
    LNT_ZERO_ONE_HELD,
    LNT_ZERO_ONE_LATE
};

enum {
    LNT_ZERO_ONE_D = LNT_ADAM_ARRAYS, /* sqrt(v_hat) + eps of the last variance step */
    LNT_ZERO_ONE_DEAD,
    LNT_ZERO_ONE_MASKED,
    LNT_ZERO_ONE_M, /* this rank's momentum in a window; exp_avg is that of the last sync */
    LNT_ZERO_ONE_U, /* what its steps have taken off; of a dead coordinate the sum of its gradients */
    LNT_ZERO_ONE_ARRAYS
};

enum {
    LNT_ZERO_ONE_VAR_INTERVAL = LNT_LATE_VALUES,
    LNT_ZERO_ONE_VAR_COUNTER,
    LNT_ZERO_ONE_LOCAL_INTERVAL,
    LNT_ZERO_ONE_LOCAL_COUNTER,
    LNT_ZERO_ONE_VAR_POWER,   /* per tensor: beta2 to the number of its variance updates */
    LNT_ZERO_ONE_SUM_LR,      /* per group, since the last sync */
    LNT_ZERO_ONE_PRODUCT,     /* per group: of (1 - lr * decay) since then */
    LNT_ZERO_ONE_STEPS,       /* since then */
    LNT_ZERO_ONE_LEFT_OUT,    /* local: steps this rank has left out */
    LNT_ZERO_ONE_WINDOW_GAPS, /* local: those of this window */
    LNT_ZERO_ONE_VALUES
};

/* One block of memory. Nothing in it is state. */
typedef struct lnt_zero_one {
    lnt_zero_one_kind_t kind; /* of the running step, or the last one */
    bool gap;                 /* this rank's gradient of it is not finite: no local step here */
    bool held_due;            /* `held` has changed since the program was told */
    bool exchanged;           /* the running or last step is a sync that exchanges windows */
    lnt_step_hooks_t hooks;
    lnt_zero_one_window_t *windows; /* [n_groups] of the running step */
    double *sums, *products;        /* [n_groups] the same as f64: state if it commits */
    uint8_t *idle;                  /* [n_tensors] the sum of its learning rates is 0: no sync */
    uint8_t *held;                  /* [n_tensors] 1 = warm-up codec in sign steps */
    uint8_t *told;                  /* [n_tensors] 1 = of this short tensor a dead coordinate had a gradient */
    float *scratch;                 /* [LNT_SPAN_MAX] of the caller's thread */
    lnt_tensor_part_t *parts;       /* [n_tensors] */
} lnt_zero_one_t;

static inline double *lnt_zero_one_value(const lnt_optim_t *optim, uint32_t number)
{
    return optim->values[number];
}

static inline float *lnt_zero_one_array(const lnt_optim_t *optim, uint32_t array, uint64_t at)
{
    return (float *)optim->arrays[array] + at;
}

lnt_zero_one_plan_t lnt_zero_one_plan(const lnt_optim_t *optim);

/* Constants of a tensor's group with the bias correction of its own variance, `updates` (0 or 1) more than so far. */
lnt_adam_consts_t lnt_zero_one_consts(const lnt_optim_t *optim, uint32_t tensor, uint32_t updates);

/* ---- zero_one_first.c: the first phase, its dead coordinates, and the freeze ---- */

void lnt_zero_one_consume_adam(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live);
void lnt_zero_one_consume_signs(lnt_optim_t *optim, const lnt_span_t *span, const float *value);
/* After a committed step of the first phase. */
lnt_status_t lnt_zero_one_first_committed(lnt_optim_t *optim);
lnt_status_t lnt_zero_one_remask(lnt_optim_t *optim, uint32_t tensor);
/* Who is dead and held, and what the programs are told of it: from the mask, after an import. */
lnt_status_t lnt_zero_one_first_restored(lnt_optim_t *optim);

/* ---- zero_one_window.c: local steps and syncs ---- */

/* Before a step of the second phase. */
void lnt_zero_one_window_prepare(lnt_optim_t *optim, lnt_step_params_t *params);
void lnt_zero_one_produce_window(lnt_optim_t *optim, const lnt_span_t *span, float *out);
void lnt_zero_one_consume_window(lnt_optim_t *optim, const lnt_span_t *span, const float *value);
/* Late comers: what their windows have summed up, and their update by it. */
void lnt_zero_one_produce_late(lnt_optim_t *optim, const lnt_span_t *span, float *out);
void lnt_zero_one_consume_late(lnt_optim_t *optim, const lnt_span_t *span, const float *value);
/* LNT_SKIPPED_LOCAL, or LNT_OK. */
lnt_status_t lnt_zero_one_window_committed(lnt_optim_t *optim);
/* m and the copies of the last sync, u = 0, sums and products as at the start of a window. */
void lnt_zero_one_window_restart(lnt_optim_t *optim);
void lnt_zero_one_publish_copies(lnt_optim_t *optim);
void lnt_zero_one_publish_copy(lnt_optim_t *optim, uint32_t tensor); /* of one tensor */

#endif
