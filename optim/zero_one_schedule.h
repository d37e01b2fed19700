/* The schedule of 0/1 Adam (Lu et al., ICLR 2023, arXiv 2202.06009) as pure functions of step number and counters.
 *
 * Steps are numbered from 1. First phase: a step whose number is a multiple of var_interval updates the variance, the
 * others send signs; after var_update_scaler variance steps the interval doubles. Second phase: a step whose number is
 * a multiple of local_interval ends a window of local steps with a sync; after local_step_scaler steps the interval
 * doubles, up to local_step_clipper. The steps of the second phase are counted from var_freeze_step + 2 on, where the
 * published implementation begins it: its phase has one more step (first_steps), the one that it spends on a dry run.
 */
#ifndef LNT_ZERO_ONE_SCHEDULE_H
#define LNT_ZERO_ONE_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct lnt_zero_one_plan {
    uint64_t var_freeze_step;
    uint64_t first_steps; /* steps of the first phase: var_freeze_step, or one more where the reference is followed */
    uint64_t var_update_scaler, local_step_scaler, local_step_clipper; /* all at least 1 */
} lnt_zero_one_plan_t;

typedef struct lnt_zero_one_counters {
    uint64_t var_interval, var_counter;     /* variance steps with this interval so far */
    uint64_t local_interval, local_counter; /* steps with this interval so far */
} lnt_zero_one_counters_t;

typedef enum lnt_zero_one_kind {
    LNT_ZERO_ONE_VARIANCE, /* full exchange, m and v */
    LNT_ZERO_ONE_SIGN,     /* the gradient as signs, m alone */
    LNT_ZERO_ONE_LOCAL,    /* no exchange */
    LNT_ZERO_ONE_SYNC      /* a local step, then the exchange of what the window has accumulated */
} lnt_zero_one_kind_t;

static inline lnt_zero_one_counters_t lnt_zero_one_start(void)
{
    return (lnt_zero_one_counters_t){.var_interval = 1, .local_interval = 1};
}

/* After the commit of step number `step`: is the first phase over? (A row may put it off.) */
static inline bool lnt_zero_one_freeze_due(const lnt_zero_one_plan_t *plan, uint64_t step)
{
    return step >= plan->first_steps;
}

/* What step number `step` is; counters: as they are before it; frozen: the first phase is over. */
static inline lnt_zero_one_kind_t lnt_zero_one_kind(const lnt_zero_one_counters_t *counters, bool frozen, uint64_t step)
{
    if (!frozen) return step % counters->var_interval == 0 ? LNT_ZERO_ONE_VARIANCE : LNT_ZERO_ONE_SIGN;
    return step % counters->local_interval == 0 ? LNT_ZERO_ONE_SYNC : LNT_ZERO_ONE_LOCAL;
}

/* The counter of one interval goes on by one; true when the interval is over. */
static inline bool lnt_zero_one_count(uint64_t *counter, uint64_t limit)
{
    *counter = *counter + 1 < limit ? *counter + 1 : 0;
    return *counter == 0;
}

static inline uint64_t lnt_zero_one_doubled(uint64_t interval, uint64_t limit)
{
    return interval <= limit / 2 ? 2 * interval : limit;
}

/* The counters after step number `step`; frozen: as it was in that step. */
static inline lnt_zero_one_counters_t lnt_zero_one_next(const lnt_zero_one_plan_t *plan,
                                                        lnt_zero_one_counters_t counters, bool frozen, uint64_t step)
{
    if (lnt_zero_one_kind(&counters, frozen, step) == LNT_ZERO_ONE_VARIANCE &&
        lnt_zero_one_count(&counters.var_counter, plan->var_update_scaler)) {
        counters.var_interval = lnt_zero_one_doubled(counters.var_interval, UINT64_C(1) << 52);
    }
    if (frozen && step > plan->var_freeze_step + 1 &&
        lnt_zero_one_count(&counters.local_counter, plan->local_step_scaler)) {
        counters.local_interval = lnt_zero_one_doubled(counters.local_interval, plan->local_step_clipper);
    }
    return counters;
}

#endif
