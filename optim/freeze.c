/* The freeze: denominators, dead coordinates, masks, and what is said about them. */
#include "freeze.h"

#include <math.h>
#include <string.h>

#include "../kernels/float_bits.h"
#include "../src/base/log.h"

bool lnt_freeze_due(const lnt_phase_stats_t *stats, uint64_t freeze_step)
{
    return !stats->frozen && stats->committed >= freeze_step;
}

uint8_t *lnt_freeze_dead(const lnt_optim_t *optim)
{
    return optim->arrays[optim->row->freezing->dead];
}

const uint8_t *lnt_freeze_dead_span(const lnt_optim_t *optim, const lnt_optim_tensor_t *tensor, uint64_t at)
{
    return tensor->any_dead ? lnt_freeze_dead(optim) + at : NULL;
}

uint8_t *lnt_freeze_masked(const lnt_optim_t *optim)
{
    return optim->arrays[optim->row->freezing->masked];
}

/* One block: denominators, and who is dead: v = 0, or sqrt(v_hat) <= eps where the block's signs would be 10 times
 * larger. */
static void freeze_block(const lnt_adam_consts_t *k, const float *v, uint64_t n, float *denominator, uint8_t *dead)
{
    float rms;

    for (uint64_t i = 0; i < n; i++)
        denominator[i] = sqrtf(v[i] * k->i2);
    rms = (float)sqrt(lnt_arrays()->square_sum(denominator, n) / (double)n);
    for (uint64_t i = 0; i < n; i++) {
        float s = denominator[i];
        dead[i] = v[i] == 0 || (s <= k->eps && rms > 10 * (s + k->eps));
        denominator[i] = s + k->eps;
    }
}

void lnt_freeze_tensor(lnt_optim_t *optim, uint32_t number, const lnt_adam_consts_t *k)
{
    const lnt_optim_tensor_t *tensor = &optim->tensors[number];
    const uint32_t block = optim->options.block;
    const float *v = lnt_optim_f32(optim, LNT_ADAM_V);
    float *denominator = lnt_optim_f32(optim, optim->row->freezing->denominator);

    for (uint64_t i = 0; i < tensor->count; i += block) {
        uint64_t at = tensor->base + i, n = tensor->count - i < block ? tensor->count - i : block;
        freeze_block(k, v + at, n, denominator + at, lnt_freeze_dead(optim) + at);
    }
}

uint64_t lnt_freeze_count_dead(const lnt_optim_t *optim, uint32_t number)
{
    const uint64_t base = optim->tensors[number].base;
    const uint8_t *dead = lnt_freeze_dead(optim) + base, *masked = lnt_freeze_masked(optim) + base;
    uint64_t n = 0;

    for (uint64_t i = 0; i < optim->tensors[number].count; i++)
        n += dead[i] != 0 && masked[i] == 0;
    return n;
}

void lnt_freeze_add_masked(lnt_optim_t *optim, uint32_t number)
{
    const lnt_optim_tensor_t *tensor = &optim->tensors[number];

    for (uint64_t i = tensor->base; i < tensor->base + tensor->count; i++) {
        if (lnt_freeze_masked(optim)[i] != 0) lnt_freeze_dead(optim)[i] = 1;
    }
}

uint64_t lnt_freeze_find_dead(lnt_optim_t *optim)
{
    uint64_t n_dead = 0;

    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        const lnt_optim_tensor_t *tensor = &optim->tensors[t];
        if (!lnt_freeze_in_lane(optim, t)) {
            lnt_freeze_tensor(optim, t, &optim->groups[tensor->group].k);
            n_dead += lnt_freeze_count_dead(optim, t);
            lnt_freeze_add_masked(optim, t);
        } else if (tensor->count != 0) {
            memcpy(lnt_freeze_dead(optim) + tensor->base, lnt_freeze_masked(optim) + tensor->base, tensor->count);
        }
    }
    return n_dead;
}

lnt_status_t lnt_freeze_check_variance(const lnt_optim_t *optim)
{
    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        const float *v = lnt_optim_f32(optim, LNT_ADAM_V) + optim->tensors[t].base;
        if (lnt_arrays()->finite(v, optim->tensors[t].count)) continue;
        for (uint64_t i = 0; i < optim->tensors[t].count; i++) {
            if (lnt_f32_is_finite(v[i])) continue;
            (void)lnt_error(LNT_ERR_NONFINITE, "the run has diverged: go back to an earlier state",
                            "the freeze is refused: exp_avg_sq of tensor %u, element %llu is not finite", t,
                            (unsigned long long)i);
            lnt_error_mutable()->tensor = t;
            return LNT_FREEZE_REFUSED;
        }
    }
    return LNT_OK;
}

static bool find_dead(const lnt_optim_t *optim, const lnt_optim_tensor_t *tensor)
{
    return tensor->count != 0 && memchr(lnt_freeze_dead(optim) + tensor->base, 1, tensor->count) != NULL;
}

lnt_status_t lnt_freeze_set_mask(lnt_optim_t *optim, uint32_t number)
{
    const lnt_optim_tensor_t *tensor = &optim->tensors[number];
    uint8_t *mask = lnt_freeze_dead(optim) + tensor->base;
    lnt_status_t status;

    if (lnt_freeze_in_lane(optim, number)) return LNT_OK;
    if (!tensor->any_dead) return lnt_plan_set_live(optim->plan, optim->row->freezing->sign, number, NULL);
    for (uint64_t i = 0; i < tensor->count; i++)
        mask[i] = !mask[i]; /* dead -> live, in place: nothing is allocated in a step */
    status = lnt_plan_set_live(optim->plan, optim->row->freezing->sign, number, mask);
    for (uint64_t i = 0; i < tensor->count; i++)
        mask[i] = !mask[i];
    return status;
}

lnt_status_t lnt_freeze_note_dead(lnt_optim_t *optim, uint32_t number)
{
    lnt_optim_tensor_t *tensor = &optim->tensors[number];

    tensor->any_dead = find_dead(optim, tensor);
    return lnt_freeze_set_mask(optim, number);
}

lnt_status_t lnt_freeze_retire_dead(lnt_optim_t *optim, uint32_t number)
{
    const lnt_optim_tensor_t *tensor = &optim->tensors[number];
    float *m = lnt_optim_f32(optim, LNT_ADAM_M), *v = lnt_optim_f32(optim, LNT_ADAM_V);

    for (uint64_t i = tensor->base; i < tensor->base + tensor->count; i++) {
        if (lnt_freeze_dead(optim)[i] != 0) m[i] = v[i] = 0;
    }
    return lnt_freeze_note_dead(optim, number);
}

/* The calling thread's logger was set by the plan's entry check. */
lnt_logger_t *lnt_freeze_logger(void)
{
    lnt_logger_t *logger = lnt_log_set_current(NULL);

    (void)lnt_log_set_current(logger);
    return logger;
}

void lnt_freeze_announce(const lnt_optim_t *optim)
{
    lnt_logger_t *logger = lnt_freeze_logger();

    lnt_log(logger, LNT_LOG_INFO, LNT_SUB_OPT, "freeze after step %llu: %.3f %% dead, dropped residual %g",
            (unsigned long long)optim->step, 100 * optim->dead_share, optim->dropped_norm);
    if (optim->dead_share > 0.01) {
        lnt_log(logger, LNT_LOG_WARN, LNT_SUB_OPT,
                "%.1f %% of all elements are dead at the freeze: what comes alive later travels in f32, freeze later",
                100 * optim->dead_share);
    }
}

lnt_status_t lnt_freeze_check_share(lnt_optim_t *optim, uint64_t n_dead)
{
    optim->dead_share = optim->n_elems != 0 ? (double)n_dead / (double)optim->n_elems : 0;
    if (optim->dead_share <= optim->options.max_dead_share) return LNT_OK;
    (void)lnt_error(
        LNT_ERR_DEAD_SHARE, "freeze later, mark the group non_freeze, or raise max_dead_share",
        "the freeze after step %llu is refused: %.1f %% of all elements have no variance, %.1f %% are allowed",
        (unsigned long long)optim->step, 100 * optim->dead_share, 100 * optim->options.max_dead_share);
    return LNT_FREEZE_REFUSED;
}

lnt_status_t lnt_freeze(lnt_optim_t *optim)
{
    double dropped = 0;

    if (lnt_freeze_check_variance(optim) != LNT_OK) return LNT_FREEZE_REFUSED;
    if (lnt_freeze_check_share(optim, lnt_freeze_find_dead(optim)) != LNT_OK) return LNT_FREEZE_REFUSED;
    for (uint32_t t = 0; t < optim->n_tensors; t++)
        LNT_TRY(lnt_freeze_retire_dead(optim, t));
    LNT_TRY(lnt_plan_drop_errors(optim->plan, optim->row->freezing->warm, &dropped));
    optim->dropped_norm = sqrt(dropped);
    optim->frozen = true;
    lnt_late_recount(optim);
    (void)lnt_late_apply(optim); /* tried again before the next step */
    lnt_freeze_announce(optim);
    return LNT_OK;
}

static bool is_due(lnt_optim_t *optim)
{
    lnt_phase_stats_t stats = {optim->step, optim->frozen, optim->options.compression};
    const lnt_optim_options_t *o = &optim->options;
    uint64_t latest = o->freeze_step;

    if (o->freeze_criterion != LNT_FREEZE_ON_VARIANCE) return lnt_freeze_due(&stats, latest);
    if (latest < o->lr_warmup_steps) latest = o->lr_warmup_steps;
    return lnt_freeze_settled(optim) || lnt_freeze_due(&stats, latest);
}

lnt_status_t lnt_freeze_committed(lnt_optim_t *optim)
{
    if (optim->frozen) return lnt_late_committed(optim, NULL);
    return is_due(optim) ? lnt_freeze(optim) : LNT_OK;
}

lnt_status_t lnt_freeze_restored(lnt_optim_t *optim)
{
    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        optim->tensors[t].any_dead = optim->frozen && find_dead(optim, &optim->tensors[t]);
        LNT_TRY(lnt_freeze_set_mask(optim, t));
    }
    lnt_late_recount(optim);
    (void)lnt_late_apply(optim);
    return LNT_OK;
}
