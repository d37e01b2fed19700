/* 1-bit Adam as the published implementation has it: compat=deepspeed of onebit_adam.
 *
 * Dry run, warm-up without bias correction, then the momentum of every unit as signs under one scale; groups marked
 * non_freeze stay on the mean gradient, which they take into m and v in the dry run already. The mask acts in the
 * compressed phase alone.
 */
#include "compat.h"

static const lnt_state_array_t arrays[] = {LNT_COMPAT_ARRAY_ROWS, [LNT_COMPAT_ARRAYS] = {.name = NULL}};

static const lnt_cfg_row_t options[] = {LNT_OPTION_COMPAT, LNT_OPTION_COMPAT_FREEZE_STEP, LNT_OPTION_UNIT,
                                        LNT_SCALING_OPTIONS, LNT_OPTIONS_END};

static const lnt_phase_row_t phases[] = {
    {LNT_PHASE_COMPRESSED, lnt_phase_frozen, 1u << LNT_COMPAT_SIGN | 1u << LNT_COMPAT_LANE},
    {LNT_PHASE_WARMUP, lnt_compat_is_dry, 1u << LNT_COMPAT_LANE},
    {LNT_PHASE_WARMUP, lnt_phase_always, 1u << LNT_COMPAT_WARM},
};

static void move_span(lnt_optim_t *optim, const lnt_span_t *span, const lnt_optim_group_t *group, const float *m,
                      const float *v, float *x)
{
    const lnt_adam_consts_t *k = &group->k;
    const float decay = lnt_compat_decay(group);

    if (optim->step == 0) return; /* the dry run */
    for (uint64_t i = 0; i < span->count; i++)
        x[i] = lnt_compat_move(-k->lr, lnt_compat_direction(k, decay, m[i], v[i], x[i]), x[i]);
    lnt_plan_publish(optim->plan, span->tensor, span->offset, span->count);
}

static void consume_mean(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live)
{
    lnt_optim_t *optim = arg;
    uint64_t at;
    const lnt_optim_tensor_t *tensor = lnt_optim_span(optim, span, &at);
    const lnt_optim_group_t *group = &optim->groups[tensor->group];
    float *m = lnt_optim_f32(optim, LNT_ADAM_M) + at, *v = lnt_optim_f32(optim, LNT_ADAM_V) + at;

    (void)live;
    for (uint64_t i = 0; i < span->count; i++)
        lnt_compat_moments(&group->k, value[i], &m[i], &v[i]);
    move_span(optim, span, group, m, v, tensor->x + span->offset);
}

static void produce_momentum(void *arg, const lnt_span_t *span, float *value)
{
    const lnt_optim_t *optim = arg;
    const lnt_optim_tensor_t *tensor;
    uint64_t at;

    if (span->tensor == LNT_TENSOR_PAD) return;
    tensor = lnt_optim_span(optim, span, &at);
    for (uint64_t i = 0; i < span->count; i++)
        value[i] =
            lnt_adam_momentum(&optim->groups[tensor->group].k, lnt_optim_f32(optim, LNT_ADAM_M)[at + i], value[i]);
}

static void consume_momentum(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live)
{
    lnt_optim_t *optim = arg;
    const lnt_optim_tensor_t *tensor;
    uint64_t at;
    float *m;

    (void)live;
    if (span->tensor == LNT_TENSOR_PAD) return;
    tensor = lnt_optim_span(optim, span, &at);
    m = lnt_optim_f32(optim, LNT_ADAM_M) + at;
    for (uint64_t i = 0; i < span->count; i++)
        m[i] = lnt_compat_masked(optim)[at + i] ? 0 : value[i];
    move_span(optim, span, &optim->groups[tensor->group], m, lnt_optim_f32(optim, LNT_ADAM_V) + at,
              tensor->x + span->offset);
}

static lnt_status_t add_programs(lnt_optim_t *optim)
{
    const lnt_stage_t mean = {.consume = consume_mean};
    const lnt_stage_t sign = {.produce_wire = produce_momentum, .consume = consume_momentum};

    return lnt_compat_add_programs(optim, (lnt_unit_t)optim->options.unit, &mean, &sign, &mean);
}

static lnt_status_t committed(lnt_optim_t *optim)
{
    optim->frozen = lnt_compat_freezes(optim);
    return LNT_OK;
}

const lnt_optim_row_t lnt_compat_adam_row = {.name = "onebit_adam/deepspeed",
                                             .doc = "1-bit Adam as the published implementation has it",
                                             .options = options,
                                             .phases = phases,
                                             .freezes_itself = true,
                                             .one_world = true,
                                             .arrays = arrays,
                                             .check = lnt_compat_check,
                                             .add_programs = add_programs,
                                             .committed = committed,
                                             .set_mask = lnt_compat_set_mask};
