/* The second phase of 0/1 Adam: local steps that end in a sync. The f32 master is the anchor and moves in syncs alone;
 * the model copy is the anchor less what this rank's steps have taken off it.
 *
 * A local step is taken after its commit, when nothing can fail any more. The step that ends a window is taken inside
 * the exchange (produce) and nowhere stored, so that a failure leaves u and m as they were. A sync therefore waits for
 * all gradients of the step: whether this rank takes the step at all depends on every one of them.
 *
 * A dead coordinate takes no local steps. A window sums up its gradients, in u. At the sync they tell that it has come
 * alive; once its block is latched they travel in f32 and are its update for the whole window.
 */
#include <math.h>
#include <string.h>

#include "zero_one.h"

/* The gradient of a span as a mean over micro-batches, loss scale divided out; true: all are finite. */
static bool local_gradient(const lnt_optim_t *optim, uint32_t tensor, uint64_t offset, uint64_t count, float *out)
{
    const float *gradient = lnt_plan_local(optim->plan, tensor, offset, count, out);

    if (gradient != out) memcpy(out, gradient, count * sizeof(*out));
    return lnt_arrays()->scale(out, count, lnt_plan_local_factor(optim->plan));
}

/* Calls visit for the spans of a tensor, or of all of them, that have local steps, until it returns false. */
typedef bool (*visit_fn_t)(lnt_optim_t *optim, uint32_t tensor, uint64_t offset, uint64_t count);

static bool visit_tensor(lnt_optim_t *optim, uint32_t number, visit_fn_t visit)
{
    const uint64_t count = lnt_freeze_is_plain(optim, number) ? 0 : optim->tensors[number].count;

    for (uint64_t at = 0; at < count; at += LNT_SPAN_MAX) {
        if (!visit(optim, number, at, count - at < LNT_SPAN_MAX ? count - at : LNT_SPAN_MAX)) return false;
    }
    return true;
}

static bool visit_spans(lnt_optim_t *optim, visit_fn_t visit)
{
    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        if (!visit_tensor(optim, t, visit)) return false;
    }
    return true;
}

static bool is_dead(const uint8_t *dead, uint64_t i)
{
    return dead != NULL && dead[i] != 0;
}

static bool is_finite(lnt_optim_t *optim, uint32_t tensor, uint64_t offset, uint64_t count)
{
    return local_gradient(optim, tensor, offset, count, optim->zero_one->scratch);
}

static lnt_status_t look_at_gradients(void *arg, double *clip_p)
{
    lnt_optim_t *optim = arg;

    (void)clip_p;
    optim->zero_one->gap = !visit_spans(optim, is_finite);
    return LNT_OK;
}

/* ---- before the step ---- */

static void prepare_windows(lnt_optim_t *optim)
{
    lnt_zero_one_t *zero_one = optim->zero_one;
    const float root = sqrtf((float)(lnt_zero_one_value(optim, LNT_ZERO_ONE_STEPS)[0] + 1));

    for (uint32_t g = 0; g < optim->n_groups; g++) {
        const lnt_group_t *values = &optim->groups[g].values;
        const double step = values->lr * (double)optim->groups[g].k.i1;
        zero_one->sums[g] = lnt_zero_one_value(optim, LNT_ZERO_ONE_SUM_LR)[g] + step;
        zero_one->products[g] =
            lnt_zero_one_value(optim, LNT_ZERO_ONE_PRODUCT)[g] * (1 - values->lr * values->weight_decay);
        zero_one->windows[g] =
            (lnt_zero_one_window_t){(float)step, (float)zero_one->sums[g], (float)zero_one->products[g], root};
    }
}

/* True: some tensor has something to exchange. */
static bool find_idle(lnt_optim_t *optim)
{
    lnt_zero_one_t *zero_one = optim->zero_one;
    bool busy = false;

    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        zero_one->idle[t] = !lnt_freeze_is_plain(optim, t) && zero_one->windows[optim->tensors[t].group].sum == 0;
        busy |= !lnt_freeze_is_plain(optim, t) && zero_one->idle[t] == 0;
    }
    return busy;
}

void lnt_zero_one_window_prepare(lnt_optim_t *optim, lnt_step_params_t *params)
{
    const uint32_t windows = 1u << LNT_ZERO_ONE_SIGNS | 1u << LNT_ZERO_ONE_SHORT | 1u << LNT_ZERO_ONE_LATE;
    lnt_zero_one_t *zero_one = optim->zero_one;
    bool sync = zero_one->kind == LNT_ZERO_ONE_SYNC;

    prepare_windows(optim);
    sync = find_idle(optim) && sync;
    zero_one->exchanged = sync;
    memset(zero_one->told, 0, optim->n_tensors);
    zero_one->hooks = (lnt_step_hooks_t){.arg = optim, .all_ready = look_at_gradients, .hold = sync};
    params->programs = 1u << LNT_ZERO_ONE_LANE | (sync ? windows : 0);
    params->unscaled = windows;
    params->left_out = sync ? zero_one->idle : NULL;
    params->hooks = &zero_one->hooks;
}

/* ---- the exchange ---- */

/* With a dynamic loss scale a gap must make the scale fall on all ranks, so it fails the sync. */
static bool fails_sync(const lnt_optim_t *optim)
{
    return lnt_scaler_is_dynamic(optim) &&
           (optim->zero_one->gap || lnt_zero_one_value(optim, LNT_ZERO_ONE_WINDOW_GAPS)[0] != 0);
}

/* The gradient of the step that ends the window, zeros in a gap. False: the tensor has nothing to exchange, zeros. */
static bool step_gradient(const lnt_optim_t *optim, const lnt_span_t *span, float *out)
{
    const bool idle = optim->zero_one->idle[span->tensor] != 0;

    if (idle || optim->zero_one->gap) {
        memset(out, 0, span->count * sizeof(*out));
    } else {
        (void)local_gradient(optim, span->tensor, span->offset, span->count, out);
    }
    return !idle;
}

/* What the window has accumulated, this step included. */
void lnt_zero_one_produce_window(lnt_optim_t *optim, const lnt_span_t *span, float *out)
{
    const lnt_zero_one_t *zero_one = optim->zero_one;
    uint64_t at;
    const lnt_optim_tensor_t *tensor = lnt_optim_span(optim, span, &at);
    const lnt_adam_consts_t k = optim->groups[tensor->group].k;
    const lnt_zero_one_window_t w = zero_one->windows[tensor->group];
    const uint8_t *dead = lnt_freeze_dead_span(optim, tensor, at), *masked = lnt_freeze_masked(optim) + at;
    const float *ms = lnt_zero_one_array(optim, LNT_ZERO_ONE_M, at),
                *us = lnt_zero_one_array(optim, LNT_ZERO_ONE_U, at);
    const float *ds = lnt_zero_one_array(optim, LNT_ZERO_ONE_D, at);

    if (!step_gradient(optim, span, out)) return;
    for (uint64_t i = 0; i < span->count; i++) {
        float m = ms[i], u = us[i];
        if (is_dead(dead, i)) {
            out[i] = masked[i] != 0 ? 0 : u + out[i];
            continue;
        }
        if (!zero_one->gap) lnt_zero_one_local(&k, w.step, out[i], ds[i], &m, &u);
        out[i] = lnt_zero_one_coded(&w, u, ds[i]);
    }
    if (fails_sync(optim)) out[0] = NAN;
}

void lnt_zero_one_produce_late(lnt_optim_t *optim, const lnt_span_t *span, float *out)
{
    uint64_t at;
    const lnt_optim_tensor_t *tensor = lnt_optim_span(optim, span, &at);
    const float root = optim->zero_one->windows[tensor->group].root, *u = lnt_zero_one_array(optim, LNT_ZERO_ONE_U, at);

    if (!step_gradient(optim, span, out)) return;
    for (uint64_t i = 0; i < span->count; i++)
        out[i] = (u[i] + out[i]) / root;
}

void lnt_zero_one_consume_window(lnt_optim_t *optim, const lnt_span_t *span, const float *value)
{
    uint64_t at;
    const lnt_optim_tensor_t *tensor = lnt_optim_span(optim, span, &at);
    const lnt_zero_one_window_t w = optim->zero_one->windows[tensor->group];
    const uint8_t *dead = lnt_freeze_dead_span(optim, tensor, at);
    const float *d = lnt_zero_one_array(optim, LNT_ZERO_ONE_D, at);
    float *m = lnt_zero_one_array(optim, LNT_ADAM_M, at), *x = tensor->x + span->offset;

    for (uint64_t i = 0; i < span->count; i++) {
        if (is_dead(dead, i)) {
            optim->zero_one->told[span->tensor] |= value[i] != 0;
            continue;
        }
        m[i] = value[i];
        x[i] = lnt_zero_one_anchor(&w, x[i], value[i], d[i]);
    }
}

void lnt_zero_one_consume_late(lnt_optim_t *optim, const lnt_span_t *span, const float *value)
{
    uint64_t at;
    const lnt_optim_tensor_t *tensor = lnt_optim_span(optim, span, &at);
    const lnt_zero_one_window_t w = optim->zero_one->windows[tensor->group];
    float *m = lnt_zero_one_array(optim, LNT_ADAM_M, at), *v = lnt_zero_one_array(optim, LNT_ADAM_V, at);
    lnt_adam_consts_t k;

    if (!lnt_late_consts(optim, span, &k)) return; /* the program carries nothing else */
    for (uint64_t i = 0; i < span->count; i++)
        lnt_zero_one_late(&k, &w, value[i], &m[i], &v[i], &tensor->x[span->offset + i]);
}

/* ---- after the step ---- */

static bool take_step(lnt_optim_t *optim, uint32_t number, uint64_t offset, uint64_t count)
{
    const lnt_optim_tensor_t *tensor = &optim->tensors[number];
    const uint64_t at = tensor->base + offset;
    const lnt_adam_consts_t k = optim->groups[tensor->group].k;
    const float step = optim->zero_one->windows[tensor->group].step, *g = optim->zero_one->scratch;
    const uint8_t *dead = lnt_freeze_dead_span(optim, tensor, at), *masked = lnt_freeze_masked(optim) + at;
    const float *d = lnt_zero_one_array(optim, LNT_ZERO_ONE_D, at);
    float *m = lnt_zero_one_array(optim, LNT_ZERO_ONE_M, at), *u = lnt_zero_one_array(optim, LNT_ZERO_ONE_U, at);

    (void)local_gradient(optim, number, offset, count, optim->zero_one->scratch);
    for (uint64_t i = 0; i < count; i++) {
        if (!is_dead(dead, i)) {
            lnt_zero_one_local(&k, step, g[i], d[i], &m[i], &u[i]);
        } else if (masked[i] == 0) {
            u[i] = u[i] + g[i];
        }
    }
    return true;
}

static bool publish_span(lnt_optim_t *optim, uint32_t number, uint64_t offset, uint64_t count)
{
    const lnt_optim_tensor_t *tensor = &optim->tensors[number];
    const uint64_t at = tensor->base + offset;
    const lnt_zero_one_window_t w = {.product = (float)lnt_zero_one_value(optim, LNT_ZERO_ONE_PRODUCT)[tensor->group]};
    const uint8_t *dead = lnt_freeze_dead_span(optim, tensor, at);
    const float *x = tensor->x + offset, *u = lnt_zero_one_array(optim, LNT_ZERO_ONE_U, at);
    float *copy = optim->zero_one->scratch;

    for (uint64_t i = 0; i < count; i++)
        copy[i] = is_dead(dead, i) ? x[i] : lnt_zero_one_copy(&w, x[i], u[i]);
    lnt_plan_publish_values(optim->plan, number, offset, count, copy);
    return true;
}

void lnt_zero_one_publish_copies(lnt_optim_t *optim)
{
    (void)visit_spans(optim, publish_span);
}

void lnt_zero_one_publish_copy(lnt_optim_t *optim, uint32_t tensor)
{
    (void)visit_tensor(optim, tensor, publish_span);
}

static bool restart_span(lnt_optim_t *optim, uint32_t number, uint64_t offset, uint64_t count)
{
    const uint64_t at = optim->tensors[number].base + offset;

    memset(lnt_zero_one_array(optim, LNT_ZERO_ONE_U, at), 0, count * sizeof(float));
    memcpy(lnt_zero_one_array(optim, LNT_ZERO_ONE_M, at), lnt_zero_one_array(optim, LNT_ADAM_M, at),
           count * sizeof(float));
    return true;
}

void lnt_zero_one_window_restart(lnt_optim_t *optim)
{
    for (uint32_t g = 0; g < optim->n_groups; g++) {
        lnt_zero_one_value(optim, LNT_ZERO_ONE_SUM_LR)[g] = 0;
        lnt_zero_one_value(optim, LNT_ZERO_ONE_PRODUCT)[g] = 1;
    }
    lnt_zero_one_value(optim, LNT_ZERO_ONE_STEPS)[0] = 0;
    lnt_zero_one_value(optim, LNT_ZERO_ONE_WINDOW_GAPS)[0] = 0;
    (void)visit_spans(optim, restart_span);
    lnt_zero_one_publish_copies(optim);
}

static void advance_window(lnt_optim_t *optim)
{
    const lnt_zero_one_t *zero_one = optim->zero_one;

    memcpy(lnt_zero_one_value(optim, LNT_ZERO_ONE_SUM_LR), zero_one->sums, optim->n_groups * sizeof(double));
    memcpy(lnt_zero_one_value(optim, LNT_ZERO_ONE_PRODUCT), zero_one->products, optim->n_groups * sizeof(double));
    lnt_zero_one_value(optim, LNT_ZERO_ONE_STEPS)[0] += 1;
    lnt_zero_one_value(optim, LNT_ZERO_ONE_WINDOW_GAPS)[0] += zero_one->gap;
    if (!zero_one->gap) (void)visit_spans(optim, take_step);
    lnt_zero_one_publish_copies(optim);
}

/* Who has come alive, and who may join: their first window begins with the next step. */
static lnt_status_t advance_late(lnt_optim_t *optim)
{
    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        if (optim->zero_one->told[t] != 0 && lnt_freeze_in_lane(optim, t)) lnt_late_tell(optim, t, 0);
    }
    return lnt_late_committed(optim, optim->zero_one->idle);
}

lnt_status_t lnt_zero_one_window_committed(lnt_optim_t *optim)
{
    const lnt_zero_one_t *zero_one = optim->zero_one;

    lnt_zero_one_value(optim, LNT_ZERO_ONE_LEFT_OUT)[0] += zero_one->gap;
    if (zero_one->exchanged) LNT_TRY(advance_late(optim));
    if (zero_one->kind == LNT_ZERO_ONE_SYNC) {
        lnt_zero_one_window_restart(optim);
    } else {
        advance_window(optim);
    }
    return zero_one->gap ? LNT_SKIPPED_LOCAL : LNT_OK;
}
