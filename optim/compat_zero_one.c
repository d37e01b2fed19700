/* 0/1 Adam as the published implementation has it: compat=deepspeed of zero_one_adam.
 *
 * First phase: variance steps with the mean gradient, the gradient as signs between them. Second phase: every rank
 * moves its own parameters by its own gradients; a sync takes the window's steps back, sends their sum times the
 * denominator as signs, and moves all ranks by what comes out. Parameters are restored by subtraction, so they drift
 * apart by rounding, and weight decay leaks into the momentum: that is how it is there. One rank has no coder, and
 * skips the momentum too in steps that would send signs.
 *
 * There a gradient that is not finite skips a step on all ranks. A local step asks nobody, so here it is left out on
 * this rank alone; with a dynamic loss scale the sync of that window fails, so that the scale falls on all ranks.
 */
#include "compat.h"
#include "zero_one_schedule.h"

enum { U = LNT_COMPAT_ARRAYS, N_ARRAYS };
enum { VAR_INTERVAL, VAR_COUNTER, LOCAL_INTERVAL, LOCAL_COUNTER, SUM_LR, LEFT_OUT, WINDOW_GAPS, N_VALUES };

static const lnt_state_array_t arrays[] = {
    [LNT_ADAM_M] = {.name = "exp_avg", .elem_bytes = sizeof(float), .local = true},
    [LNT_ADAM_V] = {.name = "exp_avg_sq", .elem_bytes = sizeof(float), .never_negative = true},
    [LNT_COMPAT_MASKED] = {.name = "masked", .elem_bytes = 1},
    [U] = {.name = "accumulator", .elem_bytes = sizeof(float), .local = true},
    [N_ARRAYS] = {.name = NULL},
};

static const lnt_state_values_t values[] = {
    [VAR_INTERVAL] =
        {.name = "var_interval", .count = lnt_values_one, .n_counters = 1, .initial = 1, .low = 1, .high = 1e18},
    [VAR_COUNTER] = {.name = "var_counter", .count = lnt_values_one, .n_counters = 1, .high = 1e18},
    [LOCAL_INTERVAL] =
        {.name = "local_interval", .count = lnt_values_one, .n_counters = 1, .initial = 1, .low = 1, .high = 1e18},
    [LOCAL_COUNTER] = {.name = "local_counter", .count = lnt_values_one, .n_counters = 1, .high = 1e18},
    [SUM_LR] = {.name = "lr_sum", .count = lnt_values_per_group},
    [LEFT_OUT] = {.name = "skipped_local", .count = lnt_values_one, .high = 0x1p52, .local = true},
    [WINDOW_GAPS] = {.name = "window_gaps", .count = lnt_values_one, .high = 0x1p52, .local = true},
    [N_VALUES] = {.name = NULL},
};

static const lnt_cfg_row_t options[] = {
    LNT_OPTION_COMPAT,
    {"var_freeze_step", "100000", "the first local step is number var_freeze_step + 1, counted from 0",
     offsetof(lnt_optim_options_t, freeze_step), LNT_CFG_U64, NULL, 0, 1e15},
    {"var_update_scaler", "16", "variance steps after which the interval between them doubles",
     offsetof(lnt_optim_options_t, var_update_scaler), LNT_CFG_U64, NULL, 1, 1e15},
    {"local_step_scaler", "32678", "steps of the local phase after which the interval between syncs doubles",
     offsetof(lnt_optim_options_t, local_step_scaler), LNT_CFG_U64, NULL, 1, 1e15},
    {"local_step_clipper", "16", "largest interval between syncs", offsetof(lnt_optim_options_t, local_step_clipper),
     LNT_CFG_U64, NULL, 1, 1e15},
    LNT_OPTION_UNIT,
    LNT_SCALING_OPTIONS,
    LNT_OPTIONS_END};

/* ---- the schedule ---- */

static lnt_zero_one_counters_t counters(const lnt_optim_t *optim)
{
    return (lnt_zero_one_counters_t){.var_interval = (uint64_t)optim->values[VAR_INTERVAL][0],
                                     .var_counter = (uint64_t)optim->values[VAR_COUNTER][0],
                                     .local_interval = (uint64_t)optim->values[LOCAL_INTERVAL][0],
                                     .local_counter = (uint64_t)optim->values[LOCAL_COUNTER][0]};
}

/* Of the running step, or after its commit with its number. */
static lnt_zero_one_kind_t kind_of(const lnt_optim_t *optim, uint64_t step)
{
    const lnt_zero_one_counters_t now = counters(optim);

    return lnt_zero_one_kind(&now, optim->frozen, step);
}

static lnt_zero_one_plan_t plan_of(const lnt_optim_t *optim)
{
    const lnt_optim_options_t *o = &optim->options;

    return (lnt_zero_one_plan_t){.var_freeze_step = o->freeze_step,
                                 .first_steps = o->freeze_step + 1,
                                 .var_update_scaler = o->var_update_scaler,
                                 .local_step_scaler = o->local_step_scaler,
                                 .local_step_clipper = o->local_step_clipper};
}

static void advance_counters(lnt_optim_t *optim)
{
    const lnt_zero_one_plan_t plan = plan_of(optim);
    const lnt_zero_one_counters_t next = lnt_zero_one_next(&plan, counters(optim), optim->frozen, optim->step);

    optim->values[VAR_INTERVAL][0] = (double)next.var_interval;
    optim->values[VAR_COUNTER][0] = (double)next.var_counter;
    optim->values[LOCAL_INTERVAL][0] = (double)next.local_interval;
    optim->values[LOCAL_COUNTER][0] = (double)next.local_counter;
}

/* ---- elements ---- */

typedef struct span_state {
    const lnt_optim_group_t *group;
    float *m, *v, *u, *x;
    const uint8_t *masked;
    float decay;
} span_state_t;

static span_state_t state_of(const lnt_optim_t *optim, uint32_t tensor, uint64_t offset)
{
    const lnt_optim_tensor_t *of = &optim->tensors[tensor];
    const uint64_t at = of->base + offset;
    const lnt_optim_group_t *group = &optim->groups[of->group];

    return (span_state_t){.group = group,
                          .m = lnt_optim_f32(optim, LNT_ADAM_M) + at,
                          .v = lnt_optim_f32(optim, LNT_ADAM_V) + at,
                          .u = lnt_optim_f32(optim, U) + at,
                          .x = of->x + offset,
                          .masked = lnt_compat_masked(optim) + at,
                          .decay = lnt_compat_decay(group)};
}

static void move(const span_state_t *s, uint64_t i)
{
    const lnt_adam_consts_t *k = &s->group->k;

    s->x[i] = lnt_compat_move(-k->lr, lnt_compat_direction(k, s->decay, s->m[i], s->v[i], s->x[i]), s->x[i]);
}

/* A local step of one element, as it will be. */
typedef struct local {
    float m, u, x;
} local_t;

static local_t local_step(const span_state_t *s, uint64_t i, float g)
{
    const lnt_adam_consts_t *k = &s->group->k;
    const float m = lnt_adam_momentum(k, s->m[i], g);
    const float direction = lnt_compat_direction(k, s->decay, m, s->v[i], s->x[i]);

    return (local_t){m, lnt_compat_move(-k->lr, direction, s->u[i]), lnt_compat_move(-k->lr, direction, s->x[i])};
}

/* ---- stages ---- */

static void consume_warm(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live)
{
    lnt_optim_t *optim = arg;
    const span_state_t s = state_of(optim, span->tensor, span->offset);

    (void)live;
    for (uint64_t i = 0; i < span->count; i++) {
        lnt_compat_moments(&s.group->k, value[i], &s.m[i], &s.v[i]);
        move(&s, i);
    }
    lnt_plan_publish(optim->plan, span->tensor, span->offset, span->count);
}

/* The gradient itself, or the window's sum times the denominator. */
static void produce(void *arg, const lnt_span_t *span, float *value)
{
    const lnt_optim_t *optim = arg;
    span_state_t s;

    if (span->tensor == LNT_TENSOR_PAD || !optim->frozen) return;
    s = state_of(optim, span->tensor, span->offset);
    for (uint64_t i = 0; i < span->count; i++)
        value[i] = local_step(&s, i, value[i]).u * lnt_compat_root(&s.group->k, s.v[i]);
    if (lnt_scaler_is_dynamic(optim) && optim->values[WINDOW_GAPS][0] != 0) value[0] = NAN;
}

static void consume_signs(const span_state_t *s, const float *value, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        s->m[i] = lnt_adam_momentum(&s->group->k, s->m[i], s->masked[i] ? 0 : value[i]);
        move(s, i);
    }
}

/* Back to the anchor by subtraction, then on by what was decoded. */
static void consume_sync(const span_state_t *s, const float *gradient, const float *value, bool alone, float sum,
                         uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        local_t now = local_step(s, i, gradient[i]);
        float decoded = s->masked[i] && !alone ? 0 : value[i], root = lnt_compat_root(&s->group->k, s->v[i]);
        s->m[i] = -(decoded / sum);
        s->x[i] = (now.x - now.u) + decoded / root;
        s->u[i] = 0;
    }
}

static const float *local_gradient(lnt_optim_t *optim, uint32_t tensor, uint64_t offset, uint64_t count)
{
    const float *gradient = lnt_plan_local(optim->plan, tensor, offset, count, optim->scratch);
    const float factor = lnt_plan_local_factor(optim->plan);

    if (factor == 1) return gradient;
    for (uint64_t i = 0; i < count; i++)
        optim->scratch[i] = gradient[i] * factor;
    return optim->scratch;
}

static bool is_alone(const lnt_optim_t *optim)
{
    lnt_comm_info_t info = {.struct_size = sizeof(info)};

    return lnt_comm_get_info(lnt_plan_comm(optim->plan), &info) == LNT_OK && info.n_ranks == 1;
}

static void consume_coded(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live)
{
    lnt_optim_t *optim = arg;
    span_state_t s;

    (void)live;
    if (span->tensor == LNT_TENSOR_PAD) return;
    s = state_of(optim, span->tensor, span->offset);
    if (optim->frozen) {
        const uint32_t group = optim->tensors[span->tensor].group;
        const double sum = optim->values[SUM_LR][group] + s.group->values.lr;
        consume_sync(&s, local_gradient(optim, span->tensor, span->offset, span->count), value, is_alone(optim),
                     (float)sum, span->count);
    } else {
        consume_signs(&s, value, span->count);
    }
    lnt_plan_publish(optim->plan, span->tensor, span->offset, span->count);
}

/* ---- steps ---- */

/* The dry run, local steps, and one rank's sign steps exchange nothing. */
static lnt_status_t prepare(lnt_optim_t *optim, lnt_step_params_t *params)
{
    const lnt_zero_one_kind_t kind = kind_of(optim, optim->step + 1);

    params->programs = kind == LNT_ZERO_ONE_VARIANCE ? 1u << LNT_COMPAT_WARM : 1u << LNT_COMPAT_SIGN;
    if (optim->step == 0 || kind == LNT_ZERO_ONE_LOCAL || (kind == LNT_ZERO_ONE_SIGN && is_alone(optim)))
        params->programs = 0;
    return LNT_OK;
}

/* Without an exchange: a local step, or one rank's step with the momentum it has. */
static void step_alone(lnt_optim_t *optim, uint32_t tensor)
{
    const uint64_t count = optim->tensors[tensor].count;

    for (uint64_t offset = 0; offset < count; offset += LNT_SPAN_MAX) {
        const uint64_t n = count - offset < LNT_SPAN_MAX ? count - offset : LNT_SPAN_MAX;
        const span_state_t s = state_of(optim, tensor, offset);
        const float *gradient = optim->frozen ? local_gradient(optim, tensor, offset, n) : NULL;
        for (uint64_t i = 0; i < n && gradient == NULL; i++)
            move(&s, i);
        for (uint64_t i = 0; i < n && gradient != NULL; i++) {
            local_t now = local_step(&s, i, gradient[i]);
            s.m[i] = now.m;
            s.u[i] = now.u;
            s.x[i] = now.x;
        }
        lnt_plan_publish(optim->plan, tensor, offset, n);
    }
}

/* Of this rank, as a local step would use it. */
static bool gradient_is_finite(lnt_optim_t *optim)
{
    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        const uint64_t count = optim->tensors[t].count;
        for (uint64_t at = 0, n; at < count; at += n) {
            n = count - at < LNT_SPAN_MAX ? count - at : LNT_SPAN_MAX;
            if (!lnt_arrays()->finite(local_gradient(optim, t, at, n), n)) return false;
        }
    }
    return true;
}

/* The steps that nothing is exchanged for; LNT_SKIPPED_LOCAL: left out. */
static lnt_status_t step_without_exchange(lnt_optim_t *optim)
{
    if (optim->frozen && !gradient_is_finite(optim)) {
        optim->values[LEFT_OUT][0]++;
        optim->values[WINDOW_GAPS][0]++;
        return LNT_SKIPPED_LOCAL;
    }
    for (uint32_t t = 0; t < optim->n_tensors; t++)
        step_alone(optim, t);
    return LNT_OK;
}

static void sum_rates(lnt_optim_t *optim, lnt_zero_one_kind_t kind)
{
    for (uint32_t g = 0; g < optim->n_groups; g++) {
        double *sum = &optim->values[SUM_LR][g];
        *sum = kind == LNT_ZERO_ONE_SYNC ? 0 : *sum + optim->groups[g].values.lr;
    }
}

/* Before the sums of a sync are cleared: what it did to the momenta cannot be seen in this step, and the next is
 * skipped for a reason that nobody would look for here. */
static void warn_of_division(const lnt_optim_t *optim)
{
    for (uint32_t g = 0; g < optim->n_groups; g++) {
        if (optim->values[SUM_LR][g] + optim->groups[g].values.lr != 0) continue;
        lnt_log(lnt_freeze_logger(), LNT_LOG_WARN, LNT_SUB_OPT,
                "group %u: the sync of step %llu has divided by the sum of the window's learning rates, which is 0: "
                "its momenta are Inf or NaN, as in the published implementation; keep learning rates above 0 or leave "
                "compat=deepspeed",
                g, (unsigned long long)optim->step);
    }
}

static lnt_status_t committed(lnt_optim_t *optim)
{
    const lnt_zero_one_plan_t plan = plan_of(optim);
    const lnt_zero_one_kind_t kind = kind_of(optim, optim->step);
    lnt_status_t status = LNT_OK;

    if (optim->step == 1) return LNT_OK; /* the dry run */
    if (kind == LNT_ZERO_ONE_LOCAL || (kind == LNT_ZERO_ONE_SIGN && is_alone(optim)))
        status = step_without_exchange(optim);
    if (kind == LNT_ZERO_ONE_SYNC) optim->values[WINDOW_GAPS][0] = 0;
    if (kind == LNT_ZERO_ONE_SYNC) warn_of_division(optim);
    if (optim->frozen) sum_rates(optim, kind);
    advance_counters(optim);
    if (optim->frozen || !lnt_zero_one_freeze_due(&plan, optim->step)) return status;
    optim->frozen = true;
    return lnt_plan_drop_errors(optim->plan, LNT_COMPAT_SIGN, NULL); /* their unit changes */
}

/* A failed sync has told all ranks of the gaps. The window stands, and the next step is its sync. */
static void skipped(lnt_optim_t *optim)
{
    if (optim->frozen && kind_of(optim, optim->step + 1) == LNT_ZERO_ONE_SYNC) optim->values[WINDOW_GAPS][0] = 0;
}

/* ---- the row ---- */

static const lnt_phase_row_t phases[] = {
    {LNT_PHASE_LOCAL, lnt_phase_frozen, 1u << LNT_COMPAT_SIGN},
    {LNT_PHASE_WARMUP, lnt_phase_always, 1u << LNT_COMPAT_WARM},
};

static lnt_status_t add_programs(lnt_optim_t *optim)
{
    const lnt_stage_t warm = {.consume = consume_warm};
    const lnt_stage_t sign = {.produce_wire = produce, .consume = consume_coded};

    return lnt_compat_add_programs(optim, (lnt_unit_t)optim->options.unit, &warm, &sign, NULL);
}

const lnt_optim_row_t lnt_compat_zero_one_row = {.name = "zero_one_adam/deepspeed",
                                                 .doc = "0/1 Adam as the published implementation has it",
                                                 .options = options,
                                                 .phases = phases,
                                                 .keeps = {1u << LNT_COMPAT_SIGN, 1u << LNT_COMPAT_SIGN},
                                                 .freezes_itself = true,
                                                 .one_world = true,
                                                 .masters_differ = true,
                                                 .arrays = arrays,
                                                 .values = values,
                                                 .check = lnt_compat_check,
                                                 .add_programs = add_programs,
                                                 .prepare = prepare,
                                                 .n_scratch = 1,
                                                 .committed = committed,
                                                 .skipped = skipped,
                                                 .set_mask = lnt_compat_set_mask};
