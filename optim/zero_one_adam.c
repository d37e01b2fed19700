/* 0/1 Adam (Lu et al., ICLR 2023, arXiv 2202.06009): the variance is updated at growing intervals, between them the
 * gradient travels as signs; after the freeze ranks take local steps and exchange what they have accumulated.
 *
 * zero_one_first.c has the first phase, zero_one_window.c the second, zero_one_schedule.h says which step is what.
 * Coordinates that come alive after the freeze (late.c) take part in windows, but not in their local steps.
 * exp_avg is equal on all ranks at all times; a rank's momentum inside a window has an array of its own.
 */
#include "zero_one.h"

#include <string.h>

#include "compat.h"

static const lnt_state_array_t arrays[] = {
    [LNT_ADAM_M] = {.name = "exp_avg", .elem_bytes = sizeof(float)},
    [LNT_ADAM_V] = {.name = "exp_avg_sq", .elem_bytes = sizeof(float), .never_negative = true},
    [LNT_ZERO_ONE_D] = {.name = "denominator", .elem_bytes = sizeof(float), .never_negative = true},
    [LNT_ZERO_ONE_DEAD] = {.name = "dead", .elem_bytes = 1},
    [LNT_ZERO_ONE_MASKED] = {.name = "masked", .elem_bytes = 1},
    [LNT_ZERO_ONE_M] = {.name = "exp_avg_local", .elem_bytes = sizeof(float), .from_freeze = true, .local = true},
    [LNT_ZERO_ONE_U] = {.name = "accumulator", .elem_bytes = sizeof(float), .from_freeze = true, .local = true},
    [LNT_ZERO_ONE_ARRAYS] = {.name = NULL},
};

static const lnt_state_values_t values[] = {
    LNT_LATE_VALUE_ROWS,
    [LNT_ZERO_ONE_VAR_INTERVAL] =
        {.name = "var_interval", .count = lnt_values_one, .n_counters = 1, .initial = 1, .low = 1, .high = 0x1p52},
    [LNT_ZERO_ONE_VAR_COUNTER] = {.name = "var_counter", .count = lnt_values_one, .n_counters = 1, .high = 0x1p52},
    [LNT_ZERO_ONE_LOCAL_INTERVAL] =
        {.name = "local_interval", .count = lnt_values_one, .n_counters = 1, .initial = 1, .low = 1, .high = 0x1p52},
    [LNT_ZERO_ONE_LOCAL_COUNTER] = {.name = "local_counter", .count = lnt_values_one, .n_counters = 1, .high = 0x1p52},
    [LNT_ZERO_ONE_VAR_POWER] = {.name = "var_power", .count = lnt_values_per_tensor, .initial = 1, .high = 1},
    [LNT_ZERO_ONE_SUM_LR] = {.name = "sum_lr", .count = lnt_values_per_group, .from_freeze = true},
    [LNT_ZERO_ONE_PRODUCT] = {.name = "decay_product",
                              .count = lnt_values_per_group,
                              .initial = 1,
                              .from_freeze = true},
    [LNT_ZERO_ONE_STEPS] =
        {.name = "window_steps", .count = lnt_values_one, .n_counters = 1, .high = 0x1p52, .from_freeze = true},
    [LNT_ZERO_ONE_LEFT_OUT] = {.name = "skipped_local", .count = lnt_values_one, .high = 0x1p52, .local = true},
    [LNT_ZERO_ONE_WINDOW_GAPS] = {.name = "window_gaps", .count = lnt_values_one, .high = 0x1p52, .local = true},
    [LNT_ZERO_ONE_VALUES] = {.name = NULL},
};

static const lnt_cfg_row_t options[] = {
    {"var_freeze_step", "100000", "the first phase ends with this commit", offsetof(lnt_optim_options_t, freeze_step),
     LNT_CFG_U64, NULL, 1, 0x1p52},
    {"var_update_scaler", "16", "the interval between variance steps doubles after so many of them",
     offsetof(lnt_optim_options_t, var_update_scaler), LNT_CFG_U64, NULL, 1, 0x1p52},
    {"local_step_scaler", "32678", "the interval between syncs doubles after so many steps of the second phase",
     offsetof(lnt_optim_options_t, local_step_scaler), LNT_CFG_U64, NULL, 1, 0x1p52},
    {"local_step_clipper", "16", "the largest interval between syncs",
     offsetof(lnt_optim_options_t, local_step_clipper), LNT_CFG_U64, NULL, 1, 0x1p52},
    LNT_OPTION_WARMUP_CODEC,
    LNT_OPTION_WARMUP_BLOCK,
    LNT_OPTION_BLOCK,
    LNT_OPTION_SCALE_RULE,
    LNT_OPTION_COMPRESSION,
    {"max_dead_share", "0.1",
     "in the first phase a tensor with a larger share of dead elements goes by warmup_codec in every step; the end of "
     "the phase is refused while a larger share of all elements is dead",
     offsetof(lnt_optim_options_t, max_dead_share), LNT_CFG_F64, NULL, 0, 1},
    LNT_OPTION_ERROR_FEEDBACK,
    LNT_OPTION_LANE_UPDATES,
    LNT_OPTION_LATE_IDLE,
    LNT_SCALING_OPTIONS,
    LNT_OPTION_COMPAT,
    LNT_OPTIONS_END};

/* ---- the schedule ---- */

static lnt_zero_one_counters_t counters(const lnt_optim_t *optim)
{
    return (lnt_zero_one_counters_t){
        .var_interval = (uint64_t)lnt_zero_one_value(optim, LNT_ZERO_ONE_VAR_INTERVAL)[0],
        .var_counter = (uint64_t)lnt_zero_one_value(optim, LNT_ZERO_ONE_VAR_COUNTER)[0],
        .local_interval = (uint64_t)lnt_zero_one_value(optim, LNT_ZERO_ONE_LOCAL_INTERVAL)[0],
        .local_counter = (uint64_t)lnt_zero_one_value(optim, LNT_ZERO_ONE_LOCAL_COUNTER)[0]};
}

lnt_zero_one_plan_t lnt_zero_one_plan(const lnt_optim_t *optim)
{
    const lnt_optim_options_t *o = &optim->options;

    return (lnt_zero_one_plan_t){o->freeze_step, o->freeze_step, o->var_update_scaler, o->local_step_scaler,
                                 o->local_step_clipper};
}

/* optim->step is the number of the step that has been committed. */
static void advance_counters(lnt_optim_t *optim)
{
    const lnt_zero_one_plan_t plan = lnt_zero_one_plan(optim);
    const lnt_zero_one_counters_t next = lnt_zero_one_next(&plan, counters(optim), optim->frozen, optim->step);

    lnt_zero_one_value(optim, LNT_ZERO_ONE_VAR_INTERVAL)[0] = (double)next.var_interval;
    lnt_zero_one_value(optim, LNT_ZERO_ONE_VAR_COUNTER)[0] = (double)next.var_counter;
    lnt_zero_one_value(optim, LNT_ZERO_ONE_LOCAL_INTERVAL)[0] = (double)next.local_interval;
    lnt_zero_one_value(optim, LNT_ZERO_ONE_LOCAL_COUNTER)[0] = (double)next.local_counter;
}

/* ---- stages ---- */

/* The gradient itself, before the freeze; the executor scales it. */
static void produce(void *arg, const lnt_span_t *span, const void *grad, lnt_dtype_t dtype, float *out)
{
    lnt_optim_t *optim = arg;
    const float *gradient;

    (void)grad;
    (void)dtype;
    if (optim->frozen) {
        lnt_zero_one_produce_window(optim, span, out);
        return;
    }
    gradient = lnt_plan_local(optim->plan, span->tensor, span->offset, span->count, out);
    if (gradient != out) memcpy(out, gradient, span->count * sizeof(*out));
}

static void consume_signs(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live)
{
    lnt_optim_t *optim = arg;

    (void)live; /* the mask knows it too, also where the program has none */
    if (optim->frozen) {
        lnt_zero_one_consume_window(optim, span, value);
    } else {
        lnt_zero_one_consume_signs(optim, span, value);
    }
}

static void consume_short(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live)
{
    lnt_optim_t *optim = arg;

    if (optim->frozen) {
        lnt_zero_one_consume_window(optim, span, value);
    } else {
        lnt_zero_one_consume_adam(optim, span, value, live);
    }
}

static void produce_late(void *arg, const lnt_span_t *span, const void *grad, lnt_dtype_t dtype, float *out)
{
    (void)grad;
    (void)dtype;
    lnt_zero_one_produce_late(arg, span, out);
}

static void consume_late(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live)
{
    (void)live;
    lnt_zero_one_consume_late(arg, span, value);
}

/* ---- programs ---- */

static bool is_long(const lnt_optim_t *optim, uint32_t tensor)
{
    return !lnt_freeze_in_lane(optim, tensor);
}

static bool is_short(const lnt_optim_t *optim, uint32_t tensor)
{
    return lnt_freeze_in_lane(optim, tensor) && !lnt_freeze_is_plain(optim, tensor);
}

static bool is_none(const lnt_optim_t *optim, uint32_t tensor)
{
    (void)optim;
    (void)tensor;
    return false;
}

static lnt_status_t add_program(lnt_optim_t *optim, lnt_program_params_t params, lnt_stage_t stage,
                                bool (*takes)(const lnt_optim_t *optim, uint32_t tensor), uint32_t expected)
{
    uint8_t *members = optim->zero_one->idle; /* free until the first step */

    for (uint32_t t = 0; t < optim->n_tensors; t++)
        members[t] = takes(optim, t);
    params.member = members;
    params.stage = stage;
    return lnt_freeze_add_program(optim, params, expected);
}

static lnt_status_t add_all(lnt_optim_t *optim)
{
    const lnt_stage_t adam = {.consume = lnt_zero_one_consume_adam};
    const lnt_stage_t sign = {.produce_local = produce, .consume = consume_signs};
    const lnt_stage_t little = {.produce_local = produce, .consume = consume_short};
    const lnt_stage_t late = {.produce_local = produce_late, .consume = consume_late};
    lnt_program_params_t params = lnt_freeze_warm_program(optim);

    params.stage = adam;
    LNT_TRY(lnt_freeze_add_program(optim, params, LNT_ZERO_ONE_WARM_PROGRAM));
    LNT_TRY(add_program(optim, lnt_freeze_sign_program(optim, NULL), sign, is_long, LNT_ZERO_ONE_SIGNS));
    params = lnt_freeze_lane_program(optim, NULL);
    params.name = "short";
    LNT_TRY(add_program(optim, params, little, is_short, LNT_ZERO_ONE_SHORT));
    params.name = "lane";
    LNT_TRY(add_program(optim, params, adam, lnt_freeze_is_plain, LNT_ZERO_ONE_LANE));
    params = lnt_freeze_warm_program(optim);
    params.name = "held";
    params.changeable = params.no_feedback = true;
    LNT_TRY(add_program(optim, params, adam, is_none, LNT_ZERO_ONE_HELD));
    params = lnt_freeze_lane_program(optim, NULL);
    params.name = "late";
    return add_program(optim, params, late, is_none, LNT_ZERO_ONE_LATE);
}

/* Working memory in one block, largest elements first. */
static lnt_status_t allocate(lnt_optim_t *optim)
{
    const uint64_t floats = LNT_SPAN_MAX * sizeof(float), doubles = optim->n_groups * sizeof(double);
    const uint64_t windows = optim->n_groups * sizeof(lnt_zero_one_window_t);
    const uint64_t parts = optim->n_tensors * sizeof(lnt_tensor_part_t);
    const uint64_t head = (sizeof(lnt_zero_one_t) + 63) / 64 * 64;
    uint8_t *block;

    optim->zero_one_bytes = head + floats + 2 * doubles + parts + windows + 3 * (uint64_t)optim->n_tensors;
    block = lnt_plan_alloc(optim->zero_one_bytes, "working memory of 0/1 Adam");
    if (block == NULL) return LNT_ERR_NO_MEMORY;
    optim->zero_one = (lnt_zero_one_t *)(void *)block;
    block += head;
    optim->zero_one->scratch = (float *)(void *)block;
    optim->zero_one->sums = (double *)(void *)(block + floats);
    optim->zero_one->products = optim->zero_one->sums + optim->n_groups;
    block += floats + 2 * doubles;
    optim->zero_one->parts = (lnt_tensor_part_t *)(void *)block;
    optim->zero_one->windows = (lnt_zero_one_window_t *)(void *)(block + parts);
    optim->zero_one->idle = block + parts + windows;
    optim->zero_one->held = optim->zero_one->idle + optim->n_tensors;
    optim->zero_one->told = optim->zero_one->held + optim->n_tensors;
    return LNT_OK;
}

static lnt_status_t add_programs(lnt_optim_t *optim)
{
    LNT_TRY(allocate(optim));
    lnt_late_number_blocks(optim);
    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        if (!is_long(optim, t)) optim->lane_elems += optim->tensors[t].count;
    }
    return add_all(optim);
}

/* ---- steps ---- */

static lnt_status_t tell_held(lnt_optim_t *optim)
{
    lnt_zero_one_t *zero_one = optim->zero_one;
    size_t n = 0;

    if (!zero_one->held_due) return LNT_OK;
    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        if (zero_one->held[t] != 0) zero_one->parts[n++] = (lnt_tensor_part_t){t, 0, optim->tensors[t].count};
    }
    LNT_TRY(lnt_plan_set_parts(optim->plan, LNT_ZERO_ONE_HELD, zero_one->parts, n));
    zero_one->held_due = false;
    return LNT_OK;
}

static lnt_status_t prepare(lnt_optim_t *optim, lnt_step_params_t *params)
{
    const lnt_zero_one_counters_t now = counters(optim);
    lnt_zero_one_t *zero_one = optim->zero_one;

    LNT_TRY(tell_held(optim));
    zero_one->kind = lnt_zero_one_kind(&now, optim->frozen, optim->step + 1);
    zero_one->gap = false;
    if (optim->frozen) {
        lnt_zero_one_window_prepare(optim, params);
    } else if (zero_one->kind == LNT_ZERO_ONE_SIGN) {
        params->programs =
            1u << LNT_ZERO_ONE_SIGNS | 1u << LNT_ZERO_ONE_SHORT | 1u << LNT_ZERO_ONE_LANE | 1u << LNT_ZERO_ONE_HELD;
    }
    return LNT_OK;
}

static lnt_status_t committed(lnt_optim_t *optim)
{
    const bool frozen = optim->frozen;

    advance_counters(optim);
    if (!frozen) return lnt_zero_one_first_committed(optim);
    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        if (lnt_freeze_is_plain(optim, t))
            lnt_zero_one_value(optim, LNT_ZERO_ONE_VAR_POWER)[t] *= optim->groups[optim->tensors[t].group].values.beta2;
    }
    return lnt_zero_one_window_committed(optim);
}

/* The window cannot be exchanged as it is, so it starts again. */
static void skipped(lnt_optim_t *optim)
{
    if (optim->frozen && optim->zero_one->kind == LNT_ZERO_ONE_SYNC) lnt_zero_one_window_restart(optim);
}

static lnt_status_t restored(lnt_optim_t *optim)
{
    LNT_TRY(lnt_zero_one_first_restored(optim));
    lnt_late_recount(optim);
    (void)lnt_late_apply(optim); /* tried again before the next step */
    if (optim->frozen) lnt_zero_one_publish_copies(optim);
    return LNT_OK;
}

/* ---- the row ---- */

static const lnt_phase_row_t phases[] = {
    {LNT_PHASE_LOCAL, lnt_phase_frozen, 1u << LNT_ZERO_ONE_LANE},
    {LNT_PHASE_WARMUP, lnt_phase_always, 1u << LNT_ZERO_ONE_WARM_PROGRAM},
};

static const lnt_freezing_t freezing = {.denominator = LNT_ZERO_ONE_D,
                                        .dead = LNT_ZERO_ONE_DEAD,
                                        .masked = LNT_ZERO_ONE_MASKED,
                                        .warm = LNT_ZERO_ONE_WARM_PROGRAM,
                                        .sign = LNT_ZERO_ONE_SIGNS,
                                        .lane = LNT_ZERO_ONE_LATE,
                                        .short_too = true,
                                        .late_comers = true,
                                        .late_apart = true};

static const lnt_optim_variant_t variants[] = {{"compat", "deepspeed", &lnt_compat_zero_one_row}, {NULL, NULL, NULL}};

const lnt_optim_row_t lnt_zero_one_adam_row = {
    .name = "zero_one_adam",
    .doc = "0/1 Adam: variance steps at growing intervals, signs between them, then local steps",
    .options = options,
    .phases = phases,
    .own_masters = true,
    .keeps = {1u << LNT_ZERO_ONE_WARM_PROGRAM | 1u << LNT_ZERO_ONE_SIGNS, 1u << LNT_ZERO_ONE_SIGNS},
    .freezing = &freezing,
    .arrays = arrays,
    .values = values,
    .check = lnt_freeze_check,
    .add_programs = add_programs,
    .prepare = prepare,
    .committed = committed,
    .skipped = skipped,
    .remask = lnt_zero_one_remask,
    .restored = restored,
    .variants = variants};
