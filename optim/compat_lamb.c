/* 1-bit LAMB as the published implementation has it: compat=deepspeed of onebit_lamb.
 *
 * One worker scale for the whole model. The pads behind it are never cleared: what enters an exchange there is what
 * came out of the last one (fused_tail). Momenta are multiplied by a coefficient per tensor before they are coded,
 * fixed at the first compressed step; the variance that follows the reconstructed gradient moves the frozen trust
 * ratio.
 */
#include "compat.h"
#include "lamb.h"
#include "pieces.h"

enum { FRESH = LNT_COMPAT_ARRAYS, N_ARRAYS };
enum { FROZEN_COEFF, LAST_FACTOR, SCALING, COEFF, TAIL, N_VALUES };
enum { WORK_COEFF, WORK_FACTOR, WORK_SCALING, N_WORK }; /* of the running step, n_tensors numbers each */

static const lnt_state_array_t arrays[] = {
    LNT_COMPAT_ARRAY_ROWS, [FRESH] = {.name = "exp_avg_sq_fresh", .elem_bytes = sizeof(float)},
    [N_ARRAYS] = {.name = NULL}};

static const lnt_cfg_row_t options[] = {LNT_OPTION_COMPAT,
                                        LNT_OPTION_COMPAT_FREEZE_STEP,
                                        LNT_OPTION_MAX_COEFF("10"),
                                        LNT_OPTION_MIN_COEFF,
                                        LNT_OPTION_COEFF_BETA,
                                        LNT_OPTION_FACTOR_MAX,
                                        LNT_OPTION_FACTOR_MIN,
                                        LNT_OPTION_FACTOR_THRESHOLD,
                                        LNT_OPTION_MOMENTUM_SCALING,
                                        LNT_SCALING_OPTIONS,
                                        LNT_OPTIONS_END};

static const lnt_phase_row_t phases[] = {
    {LNT_PHASE_COMPRESSED, lnt_phase_frozen, 1u << LNT_COMPAT_SIGN},
    {LNT_PHASE_WARMUP, lnt_compat_is_dry, 0},
    {LNT_PHASE_WARMUP, lnt_phase_always, 1u << LNT_COMPAT_WARM},
};

static double *work_of(const lnt_optim_t *optim, uint32_t what, uint32_t tensor)
{
    return &optim->work[what * optim->n_tensors + tensor];
}

static uint64_t count_work(const lnt_optim_t *optim)
{
    return (uint64_t)N_WORK * optim->n_tensors;
}

/* ---- warm-up ---- */

typedef struct norms {
    double x, u, prelim; /* squares */
    double factor;       /* largest quotient of the two denominators */
} norms_t;

static void measure_warm(lnt_optim_t *optim, const lnt_piece_t *piece, void *arg)
{
    const lnt_optim_group_t *group = &optim->groups[piece->tensor->group];
    const float decay = lnt_compat_decay(group), *x = piece->tensor->x + piece->offset;
    norms_t *norms = arg;

    for (uint64_t i = 0; i < piece->count; i++) {
        float m = lnt_optim_f32(optim, LNT_ADAM_M)[piece->at + i], v = lnt_optim_f32(optim, LNT_ADAM_V)[piece->at + i];
        lnt_compat_moments(&group->k, piece->value[i], &m, &v);
        piece->value[i] = lnt_compat_direction(&group->k, decay, m, v, x[i]);
    }
    lnt_pieces_add_squares(optim, piece->value, piece->count, &norms->u);
    lnt_pieces_add_squares(optim, x, piece->count, &norms->x);
}

static lnt_status_t survey_warm(void *arg, lnt_plan_t *plan, uint32_t program)
{
    lnt_optim_t *optim = arg;
    const lnt_lamb_limits_t limits = {.least = optim->options.min_coeff, .most = optim->options.max_coeff};

    (void)plan;
    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        norms_t norms = {0};
        LNT_TRY(lnt_pieces_each(optim, program, t, measure_warm, &norms));
        (void)lnt_lamb_ratio(&limits, sqrt(norms.x), sqrt(norms.u), work_of(optim, WORK_COEFF, t));
    }
    return LNT_OK;
}

static float rate_of(const lnt_optim_t *optim, uint32_t tensor)
{
    const lnt_optim_group_t *group = &optim->groups[optim->tensors[tensor].group];

    return (float)(-group->values.lr * *work_of(optim, WORK_COEFF, tensor));
}

static void consume_warm(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live)
{
    lnt_optim_t *optim = arg;
    uint64_t at;
    const lnt_optim_tensor_t *tensor = lnt_optim_span(optim, span, &at);
    const lnt_optim_group_t *group = &optim->groups[tensor->group];
    const float decay = lnt_compat_decay(group), rate = rate_of(optim, span->tensor);
    float *m = lnt_optim_f32(optim, LNT_ADAM_M) + at, *v = lnt_optim_f32(optim, LNT_ADAM_V) + at;
    float *x = tensor->x + span->offset;

    (void)live;
    for (uint64_t i = 0; i < span->count; i++) {
        lnt_compat_moments(&group->k, value[i], &m[i], &v[i]);
        x[i] = lnt_compat_move(rate, lnt_compat_direction(&group->k, decay, m[i], v[i], x[i]), x[i]);
    }
    lnt_plan_publish(optim->plan, span->tensor, span->offset, span->count);
}

/* ---- compressed ---- */

/* Mean of all tensors' root mean squares over the tensor's own; 1 for a momentum of zeros, which ends the reference. */
static void choose_scaling(lnt_optim_t *optim)
{
    double mean = 0;

    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        double rms = lnt_lamb_momentum_rms(optim, &optim->tensors[t]);
        *work_of(optim, WORK_SCALING, t) = rms;
        mean += rms / optim->n_tensors;
    }
    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        double *scaling = work_of(optim, WORK_SCALING, t);
        *scaling = *scaling > 0 && optim->options.momentum_scaling ? mean / *scaling : 1;
    }
}

static void begin(lnt_optim_t *optim)
{
    if (!optim->frozen) return;
    if (optim->n_tensors != 0 && optim->values[SCALING][0] == 0) {
        choose_scaling(optim);
        return;
    }
    for (uint32_t t = 0; t < optim->n_tensors; t++)
        *work_of(optim, WORK_SCALING, t) = optim->values[SCALING][t];
}

static void produce_momentum(void *arg, const lnt_span_t *span, float *value)
{
    const lnt_optim_t *optim = arg;
    const lnt_optim_tensor_t *tensor;
    uint64_t at;
    float scaling;

    for (uint64_t i = 0; span->tensor == LNT_TENSOR_PAD && i < span->count; i++)
        value[i] = (float)optim->values[TAIL][LNT_PAD_PLACE(span->offset) + i];
    if (span->tensor == LNT_TENSOR_PAD) return;
    tensor = lnt_optim_span(optim, span, &at);
    scaling = (float)*work_of(optim, WORK_SCALING, span->tensor);
    for (uint64_t i = 0; i < span->count; i++)
        value[i] =
            lnt_adam_momentum(&optim->groups[tensor->group].k, lnt_optim_f32(optim, LNT_ADAM_M)[at + i], value[i]) *
            scaling;
}

/* What the decoded value makes of one element. */
typedef struct decoded {
    float m, fresh;
} decoded_t;

static decoded_t decode(const lnt_optim_t *optim, const lnt_adam_consts_t *k, uint64_t at, float value, float scaling)
{
    float m = lnt_compat_masked(optim)[at] ? 0 : value / scaling, fresh = lnt_optim_f32(optim, FRESH)[at];
    float g = (m - lnt_optim_f32(optim, LNT_ADAM_M)[at] * k->b1) / k->o1;

    return (decoded_t){m, k->b2 * fresh + k->o2 * (g * g)};
}

static void measure_compressed(lnt_optim_t *optim, const lnt_piece_t *piece, void *arg)
{
    const lnt_optim_group_t *group = &optim->groups[piece->tensor->group];
    const float decay = lnt_compat_decay(group), *x = piece->tensor->x + piece->offset;
    const float scaling = (float)*work_of(optim, WORK_SCALING, (uint32_t)(piece->tensor - optim->tensors));
    float *prelim = optim->scratch + LNT_SPAN_MAX;
    norms_t *norms = arg;

    for (uint64_t i = 0; i < piece->count; i++) {
        decoded_t now = decode(optim, &group->k, piece->at + i, piece->value[i], scaling);
        float root = lnt_compat_root(&group->k, lnt_optim_f32(optim, LNT_ADAM_V)[piece->at + i]);
        float quotient = root / lnt_compat_root(&group->k, now.fresh);
        prelim[i] = now.m / root;
        piece->value[i] = decay != 0 ? prelim[i] + decay * x[i] : prelim[i];
        norms->factor = (double)quotient > norms->factor ? (double)quotient : norms->factor;
    }
    lnt_pieces_add_squares(optim, prelim, piece->count, &norms->prelim);
    lnt_pieces_add_squares(optim, piece->value, piece->count, &norms->u);
}

static double factor_of(const lnt_optim_t *optim, uint32_t tensor, const norms_t *norms)
{
    const lnt_optim_options_t *o = &optim->options;
    const lnt_lamb_factor_limits_t limits = {o->factor_min, o->factor_max, o->factor_threshold};

    return lnt_lamb_factor(&limits, norms->factor, sqrt(norms->prelim), sqrt(norms->u),
                           optim->values[LAST_FACTOR][tensor]);
}

static lnt_status_t survey_compressed(void *arg, lnt_plan_t *plan, uint32_t program)
{
    lnt_optim_t *optim = arg;

    (void)plan;
    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        norms_t norms = {0};
        double *factor = work_of(optim, WORK_FACTOR, t);
        LNT_TRY(lnt_pieces_each(optim, program, t, measure_compressed, &norms));
        *factor = factor_of(optim, t, &norms);
        *work_of(optim, WORK_COEFF, t) = optim->values[FROZEN_COEFF][t] * *factor;
    }
    return LNT_OK;
}

static void consume_compressed(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live)
{
    lnt_optim_t *optim = arg;
    const lnt_optim_tensor_t *tensor;
    const lnt_optim_group_t *group;
    uint64_t at;
    float *x, rate, scaling;

    (void)live;
    for (uint64_t i = 0; span->tensor == LNT_TENSOR_PAD && i < span->count; i++)
        optim->values[TAIL][LNT_PAD_PLACE(span->offset) + i] = (double)value[i];
    if (span->tensor == LNT_TENSOR_PAD) return;
    tensor = lnt_optim_span(optim, span, &at);
    group = &optim->groups[tensor->group];
    x = tensor->x + span->offset;
    rate = rate_of(optim, span->tensor);
    scaling = (float)*work_of(optim, WORK_SCALING, span->tensor);
    for (uint64_t i = 0; i < span->count; i++, at++) {
        decoded_t now = decode(optim, &group->k, at, value[i], scaling);
        float v = lnt_optim_f32(optim, LNT_ADAM_V)[at];
        lnt_optim_f32(optim, LNT_ADAM_M)[at] = now.m;
        lnt_optim_f32(optim, FRESH)[at] = now.fresh;
        x[i] = lnt_compat_move(rate, lnt_compat_direction(&group->k, lnt_compat_decay(group), now.m, v, x[i]), x[i]);
    }
    lnt_plan_publish(optim->plan, span->tensor, span->offset, span->count);
}

/* ---- the row ---- */

static void commit_warm(lnt_optim_t *optim)
{
    const double beta = optim->options.coeff_beta;

    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        double coeff = *work_of(optim, WORK_COEFF, t), *average = &optim->values[FROZEN_COEFF][t];
        optim->values[COEFF][t] = coeff;
        if (coeff != 1) *average = beta * *average + (1 - beta) * coeff;
    }
    if (optim->step == optim->options.freeze_step)
        memcpy(optim->arrays[FRESH], optim->arrays[LNT_ADAM_V], optim->room * sizeof(float));
}

static lnt_status_t committed(lnt_optim_t *optim)
{
    if (optim->frozen) {
        memcpy(optim->values[COEFF], work_of(optim, WORK_COEFF, 0), optim->n_tensors * sizeof(double));
        memcpy(optim->values[LAST_FACTOR], work_of(optim, WORK_FACTOR, 0), optim->n_tensors * sizeof(double));
        memcpy(optim->values[SCALING], work_of(optim, WORK_SCALING, 0), optim->n_tensors * sizeof(double));
    } else if (optim->step >= 2) {
        commit_warm(optim);
    }
    optim->frozen = lnt_compat_freezes(optim);
    return LNT_OK;
}

static uint64_t count_tail(const lnt_optim_t *optim)
{
    return lnt_compat_pads(optim, optim->n_elems);
}

static const lnt_state_values_t values[] = {
    [FROZEN_COEFF] = {.name = "lamb_coeff_freeze", .count = lnt_values_per_tensor},
    [LAST_FACTOR] = {.name = "last_factor", .count = lnt_values_per_tensor, .initial = 1},
    [SCALING] = {.name = "scaling_coeff", .count = lnt_values_per_tensor},
    [COEFF] = {.name = "lamb_coeff", .count = lnt_values_per_tensor},
    [TAIL] = {.name = "fused_tail", .count = count_tail},
    [N_VALUES] = {.name = NULL},
};

static lnt_status_t check(const lnt_optim_options_t *o)
{
    return o->factor_min <= o->factor_max ? lnt_lamb_check_limits(o)
                                          : lnt_error(LNT_ERR_INVALID_ARG, "factor_min is at most factor_max",
                                                      "factors of %g to %g", o->factor_min, o->factor_max);
}

static lnt_status_t add_programs(lnt_optim_t *optim)
{
    const lnt_stage_t warm = {.survey = survey_warm, .consume = consume_warm};
    const lnt_stage_t sign = {
        .produce_wire = produce_momentum, .survey = survey_compressed, .consume = consume_compressed};

    return lnt_compat_add_programs(optim, LNT_UNIT_MODEL, &warm, &sign, NULL);
}

const lnt_optim_row_t lnt_compat_lamb_row = {.name = "onebit_lamb/deepspeed",
                                             .doc = "1-bit LAMB as the published implementation has it",
                                             .options = options,
                                             .phases = phases,
                                             .freezes_itself = true,
                                             .one_world = true,
                                             .arrays = arrays,
                                             .values = values,
                                             .check = check,
                                             .add_programs = add_programs,
                                             .begin = begin,
                                             .work_count = count_work,
                                             .n_scratch = 2,
                                             .committed = committed,
                                             .set_mask = lnt_compat_set_mask};
