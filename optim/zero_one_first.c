/* The first phase of 0/1 Adam: variance steps are plain Adam; in sign steps v stands and m follows a gradient of signs.
 *
 * Every variance step finds the dead coordinates anew, whatever the user has masked; until the next one they stand
 * still. A tensor with more of them than max_dead_share is held back: it goes on with plain Adam, its gradient carried
 * by the warm-up codec in sign steps too. So the variance of a tensor has an update count of its own. The freeze ends
 * the phase: as in 1-bit Adam.
 */
#include <math.h>
#include <string.h>

#include "update.h"
#include "zero_one.h"

lnt_adam_consts_t lnt_zero_one_consts(const lnt_optim_t *optim, uint32_t tensor, uint32_t updates)
{
    const lnt_optim_group_t *group = &optim->groups[optim->tensors[tensor].group];
    double power = lnt_zero_one_value(optim, LNT_ZERO_ONE_VAR_POWER)[tensor];
    lnt_adam_consts_t k = group->k;

    if (updates != 0) power *= group->values.beta2;
    k.i2 = (float)(1 / (1 - power));
    return k;
}

/* ---- updates ---- */

void lnt_zero_one_consume_adam(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live)
{
    lnt_optim_t *optim = arg;
    uint64_t at;
    const lnt_optim_tensor_t *tensor = lnt_optim_span(optim, span, &at);
    const lnt_adam_consts_t k = lnt_zero_one_consts(optim, span->tensor, 1);
    const uint8_t *masked = optim->frozen ? lnt_freeze_dead_span(optim, tensor, at) : NULL;
    float *m = lnt_optim_f32(optim, LNT_ADAM_M) + at, *v = lnt_optim_f32(optim, LNT_ADAM_V) + at;
    float *x = tensor->x + span->offset;

    (void)live;
    if (masked == NULL) {
        lnt_updates()->adam(&k, value, NULL, span->count, m, v, x);
    } else {
        for (uint64_t i = 0; i < span->count; i++)
            if (masked[i] == 0) lnt_adam_update(&k, value[i], &m[i], &v[i], &x[i]);
    }
    lnt_plan_publish(optim->plan, span->tensor, span->offset, span->count);
}

void lnt_zero_one_consume_signs(lnt_optim_t *optim, const lnt_span_t *span, const float *value)
{
    uint64_t at;
    const lnt_optim_tensor_t *tensor = lnt_optim_span(optim, span, &at);
    const lnt_adam_consts_t *k = &optim->groups[tensor->group].k;
    float *momentum = optim->zero_one->scratch, *m = lnt_optim_f32(optim, LNT_ADAM_M) + at;

    if (optim->zero_one->held[span->tensor] != 0) return;
    memcpy(momentum, value, span->count * sizeof(*momentum));
    lnt_updates()->momentum(k, m, span->count, momentum);
    lnt_updates()->frozen(k, momentum, lnt_zero_one_array(optim, LNT_ZERO_ONE_D, at),
                          lnt_freeze_dead_span(optim, tensor, at), optim->n_elems >= LNT_STREAM_ELEMS, span->count, m,
                          tensor->x + span->offset);
    lnt_plan_publish(optim->plan, span->tensor, span->offset, span->count);
}

/* ---- dead coordinates ---- */

/* Masked ones too: masks do nothing in the first phase. */
static uint64_t count_dead(const lnt_optim_t *optim, uint32_t number)
{
    const uint64_t base = optim->tensors[number].base;
    const uint8_t *dead = lnt_freeze_dead(optim) + base;
    uint64_t n = 0;

    for (uint64_t i = 0; i < optim->tensors[number].count; i++)
        n += dead[i] != 0;
    return n;
}

/* Short tensors need no holding back: their gradients are exact as they are. */
static bool has_signs(const lnt_optim_t *optim, uint32_t tensor)
{
    return !lnt_freeze_in_lane(optim, tensor);
}

/* Of a tensor that is held back no coordinate is live in the sign program. This rank's window is empty before the
 * freeze: zeros. */
static lnt_status_t tell_signs(lnt_optim_t *optim, uint32_t number)
{
    const float *zeros = lnt_zero_one_array(optim, LNT_ZERO_ONE_U, optim->tensors[number].base);

    if (!has_signs(optim, number)) return LNT_OK;
    if (optim->zero_one->held[number] == 0) return lnt_freeze_set_mask(optim, number);
    return lnt_plan_set_live(optim->plan, LNT_ZERO_ONE_SIGNS, number, (const uint8_t *)zeros);
}

/* What a tensor with these dead coordinates is from now on. */
static lnt_status_t sort_tensor(lnt_optim_t *optim, uint32_t number)
{
    lnt_optim_tensor_t *tensor = &optim->tensors[number];
    lnt_zero_one_t *zero_one = optim->zero_one;
    const bool had_dead = tensor->any_dead;
    const uint64_t n_dead = count_dead(optim, number);
    const bool held = !optim->frozen && has_signs(optim, number) &&
                      (double)n_dead > optim->options.max_dead_share * (double)tensor->count;

    tensor->any_dead = n_dead != 0;
    zero_one->held_due |= zero_one->held[number] != held;
    zero_one->held[number] = held;
    return had_dead || tensor->any_dead ? tell_signs(optim, number) : LNT_OK;
}

static lnt_status_t find_dead(lnt_optim_t *optim)
{
    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        const lnt_adam_consts_t k = lnt_zero_one_consts(optim, t, 0);
        if (lnt_freeze_is_plain(optim, t)) continue;
        lnt_freeze_tensor(optim, t, &k);
        LNT_TRY(sort_tensor(optim, t));
    }
    return LNT_OK;
}

/* ---- the freeze ---- */

static lnt_status_t drop_errors(lnt_optim_t *optim)
{
    double warm = 0, signs = 0;

    LNT_TRY(lnt_plan_drop_errors(optim->plan, LNT_ZERO_ONE_WARM_PROGRAM, &warm));
    LNT_TRY(lnt_plan_drop_errors(optim->plan, LNT_ZERO_ONE_SIGNS, &signs));
    optim->dropped_norm = sqrt(warm + signs);
    return LNT_OK;
}

/* In the lane only what the user has masked stands still. */
static void take_mask(lnt_optim_t *optim, uint32_t number)
{
    const lnt_optim_tensor_t *tensor = &optim->tensors[number];

    for (uint64_t i = tensor->base; i < tensor->base + tensor->count; i++)
        lnt_freeze_dead(optim)[i] = lnt_freeze_masked(optim)[i];
}

/* Unmasked coordinates are dead until a gradient comes, but for those in the lane. */
lnt_status_t lnt_zero_one_remask(lnt_optim_t *optim, uint32_t number)
{
    static const uint32_t moving[] = {LNT_ADAM_M, LNT_ADAM_V, LNT_ZERO_ONE_M, LNT_ZERO_ONE_U};
    const lnt_optim_tensor_t *tensor = &optim->tensors[number];

    if (lnt_freeze_is_plain(optim, number)) take_mask(optim, number);
    lnt_freeze_add_masked(optim, number);
    for (uint64_t i = tensor->base; i < tensor->base + tensor->count; i++) {
        if (lnt_freeze_masked(optim)[i] == 0) continue;
        for (size_t a = 0; a < sizeof(moving) / sizeof(moving[0]); a++)
            *lnt_zero_one_array(optim, moving[a], i) = 0;
    }
    LNT_TRY(lnt_freeze_note_dead(optim, number));
    lnt_zero_one_publish_copy(optim, number); /* inside a window the masked go back to their anchor */
    lnt_late_recount(optim);
    return lnt_late_apply(optim);
}

static lnt_status_t freeze(lnt_optim_t *optim)
{
    lnt_zero_one_t *zero_one = optim->zero_one;
    uint64_t n_dead = 0;

    if (lnt_freeze_check_variance(optim) != LNT_OK) return LNT_FREEZE_REFUSED;
    LNT_TRY(find_dead(optim));
    for (uint32_t t = 0; t < optim->n_tensors; t++)
        n_dead += lnt_freeze_is_plain(optim, t) ? 0 : lnt_freeze_count_dead(optim, t);
    if (lnt_freeze_check_share(optim, n_dead) != LNT_OK) return LNT_FREEZE_REFUSED;
    optim->frozen = true;
    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        zero_one->held_due |= zero_one->held[t] != 0;
        zero_one->held[t] = 0;
        if (lnt_freeze_is_plain(optim, t)) take_mask(optim, t);
        lnt_freeze_add_masked(optim, t);
        LNT_TRY(lnt_freeze_retire_dead(optim, t));
    }
    LNT_TRY(drop_errors(optim));
    lnt_zero_one_window_restart(optim);
    lnt_late_recount(optim);
    (void)lnt_late_apply(optim); /* tried again before the next step */
    lnt_freeze_announce(optim);
    return LNT_OK;
}

static bool updates_variance(const lnt_optim_t *optim, uint32_t tensor)
{
    return optim->zero_one->kind == LNT_ZERO_ONE_VARIANCE || !has_signs(optim, tensor) ||
           optim->zero_one->held[tensor] != 0;
}

lnt_status_t lnt_zero_one_first_committed(lnt_optim_t *optim)
{
    const lnt_zero_one_plan_t plan = lnt_zero_one_plan(optim);

    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        if (updates_variance(optim, t))
            lnt_zero_one_value(optim, LNT_ZERO_ONE_VAR_POWER)[t] *= optim->groups[optim->tensors[t].group].values.beta2;
    }
    if (lnt_zero_one_freeze_due(&plan, optim->step)) return freeze(optim);
    return optim->zero_one->kind == LNT_ZERO_ONE_VARIANCE ? find_dead(optim) : LNT_OK;
}

lnt_status_t lnt_zero_one_first_restored(lnt_optim_t *optim)
{
    if (!optim->frozen) {
        memset(optim->arrays[LNT_ZERO_ONE_M], 0, optim->room * sizeof(float));
        memset(optim->arrays[LNT_ZERO_ONE_U], 0, optim->room * sizeof(float));
    }
    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        if (lnt_freeze_is_plain(optim, t)) LNT_TRY(lnt_freeze_note_dead(optim, t));
        if (lnt_freeze_is_plain(optim, t)) continue;
        optim->tensors[t].any_dead = true; /* whatever the programs were told before */
        LNT_TRY(sort_tensor(optim, t));
    }
    return LNT_OK;
}
