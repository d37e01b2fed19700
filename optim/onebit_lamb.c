/* 1-bit LAMB (Li et al., arXiv 2104.06069): LAMB until the freeze, then the momentum travels as signs, the trust ratio
 * is the average of the warm-up's, and a factor follows how far a variance that goes on (exp_avg_sq_fresh, formed from
 * the momentum alone) has moved away from the frozen one.
 *
 * Programs and phases as 1-bit Adam (freeze.h). Tensors of the lane stay plain LAMB. A late comer moves as in 1-bit
 * Adam, times its tensor's coefficient; while a coordinate is dead its fresh variance is NO_VARIANCE, and when it joins
 * the signs it starts from the denominator it joins with.
 */
#include <string.h>

#include "compat.h"
#include "freeze.h"
#include "lamb.h"
#include "pieces.h"

static const float NO_VARIANCE = -1;

enum { FRESH = LNT_FREEZE_ARRAYS, N_ARRAYS };
enum { AVERAGE = LNT_FREEZE_VALUES, POWER, SCALING, FACTOR, COEFF, N_VALUES };

static const lnt_state_array_t arrays[] = {
    LNT_FREEZE_ARRAY_ROWS,
    [FRESH] = {.name = "exp_avg_sq_fresh", .elem_bytes = sizeof(float), .from_freeze = true},
    [N_ARRAYS] = {.name = NULL},
};

/* All per tensor: running mean of the warm-up's ratios, which starts at 0; coeff_beta to the number of its updates;
 * what the momentum is multiplied by on the wire; the factor and the whole coefficient of the last step. */
static const lnt_state_values_t values[] = {
    LNT_FREEZE_VALUE_ROWS,
    [AVERAGE] = {.name = "lamb_coeff_freeze", .count = lnt_values_per_tensor, .low = 0, .high = 1e300},
    [POWER] = {.name = "lamb_coeff_power", .count = lnt_values_per_tensor, .initial = 1, .low = 0, .high = 1},
    [SCALING] = {.name = "scaling_coeff",
                 .count = lnt_values_per_tensor,
                 .initial = 1,
                 .low = 1e-12,
                 .high = 1e12,
                 .from_freeze = true},
    [FACTOR] = {.name = "last_factor", .count = lnt_values_per_tensor, .initial = 1, .low = 0, .high = 1e300},
    [COEFF] = {.name = "lamb_coeff", .count = lnt_values_per_tensor, .low = 0, .high = 1e300},
    [N_VALUES] = {.name = NULL},
};

static const lnt_cfg_row_t options[] = {LNT_FREEZE_OPTIONS,
                                        LNT_OPTION_COMPAT,
                                        LNT_OPTION_MAX_COEFF("10"),
                                        LNT_OPTION_MIN_COEFF,
                                        LNT_OPTION_BIAS_CORRECTION,
                                        LNT_OPTION_COEFF_BETA,
                                        LNT_OPTION_FACTOR_MAX,
                                        LNT_OPTION_FACTOR_MIN,
                                        LNT_OPTION_FACTOR_THRESHOLD,
                                        LNT_OPTION_MOMENTUM_SCALING,
                                        LNT_OPTIONS_END};
static const lnt_optim_variant_t variants[] = {{"compat", "deepspeed", &lnt_compat_lamb_row}, {NULL, NULL, NULL}};

/* ---- numbers of the running step ---- */

static double *coeffs(const lnt_optim_t *optim)
{
    return optim->work; /* where LAMB's consume looks for them */
}

static double *factors(const lnt_optim_t *optim)
{
    return optim->work + optim->n_tensors;
}

/* 1: the tensor has a ratio in this step. */
static double *has_ratio(const lnt_optim_t *optim)
{
    return optim->work + 2 * (uint64_t)optim->n_tensors;
}

static uint64_t work_count(const lnt_optim_t *optim)
{
    return 3 * (uint64_t)optim->n_tensors;
}

static lnt_status_t take_ratio(lnt_optim_t *optim, uint32_t program, uint32_t tensor)
{
    const lnt_lamb_limits_t limits = lnt_lamb_limits(&optim->options);
    lnt_lamb_norms_t norms;

    LNT_TRY(lnt_lamb_measure(optim, program, tensor, &norms));
    has_ratio(optim)[tensor] = lnt_lamb_ratio(&limits, sqrt(norms.x), sqrt(norms.u), &coeffs(optim)[tensor]);
    return LNT_OK;
}

/* ---- warm-up ---- */

static lnt_status_t survey_warm(void *arg, lnt_plan_t *plan, uint32_t program)
{
    lnt_optim_t *optim = arg;

    LNT_TRY(lnt_clip_survey(optim, plan, program));
    for (uint32_t t = 0; t < optim->n_tensors; t++)
        LNT_TRY(take_ratio(optim, program, t));
    return LNT_OK;
}

/* A mean that starts at 0 is corrected by the power; without any ratio the coefficient was 1 all along. */
static double frozen_coeff(const lnt_optim_t *optim, uint32_t tensor)
{
    double power = optim->values[POWER][tensor];

    return power < 1 ? optim->values[AVERAGE][tensor] / (1 - power) : 1;
}

static void average_ratios(lnt_optim_t *optim)
{
    const double beta = optim->options.coeff_beta;

    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        if (has_ratio(optim)[t] == 0) continue;
        optim->values[AVERAGE][t] = beta * optim->values[AVERAGE][t] + (1 - beta) * coeffs(optim)[t];
        optim->values[POWER][t] *= beta;
    }
}

/* ---- the freeze ---- */

static void start_fresh(lnt_optim_t *optim)
{
    const uint8_t *dead = lnt_freeze_dead(optim);
    float *fresh = lnt_optim_f32(optim, FRESH);
    const float *v = lnt_optim_f32(optim, LNT_ADAM_V);

    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        const lnt_optim_tensor_t *tensor = &optim->tensors[t];
        for (uint64_t i = tensor->base; i < tensor->base + tensor->count; i++)
            fresh[i] = dead[i] != 0 ? NO_VARIANCE : v[i];
    }
}

/* 0 for what is not sent as signs. */
static double momentum_rms(const lnt_optim_t *optim, uint32_t number)
{
    const double rms = lnt_freeze_in_lane(optim, number) ? 0 : lnt_lamb_momentum_rms(optim, &optim->tensors[number]);

    return isfinite(rms) ? rms : 0;
}

/* Every tensor's momentum is sent with the same root mean square; one that is exactly zero as it is. */
static void choose_scaling(lnt_optim_t *optim)
{
    double *scaling = optim->values[SCALING], mean = 0;
    uint32_t n = 0;

    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        scaling[t] = momentum_rms(optim, t);
        mean += scaling[t];
        n += scaling[t] > 0;
    }
    mean /= n != 0 ? n : 1;
    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        bool scaled = scaling[t] > 0 && optim->options.momentum_scaling;
        scaling[t] = scaled ? lnt_lamb_between(mean / scaling[t], values[SCALING].low, values[SCALING].high) : 1;
    }
}

/* ---- after the freeze ---- */

/* Constants of a tensor. */
typedef struct consts {
    lnt_lamb_consts_t lamb;
    float scaling;
} consts_t;

static consts_t consts_of(const lnt_optim_t *optim, const lnt_optim_tensor_t *tensor, double coeff)
{
    return (consts_t){.lamb = lnt_lamb_consts(optim, tensor, coeff),
                      .scaling = (float)optim->values[SCALING][tensor - optim->tensors]};
}

static void produce_momentum(void *arg, const lnt_span_t *span, float *value)
{
    const lnt_optim_t *optim = arg;
    uint64_t at;
    const lnt_optim_tensor_t *tensor = lnt_optim_span(optim, span, &at);
    const consts_t k = consts_of(optim, tensor, 1);
    const float *m = lnt_optim_f32(optim, LNT_ADAM_M) + at;

    for (uint64_t i = 0; i < span->count; i++)
        value[i] = lnt_adam_momentum(&k.lamb.adam, m[i], value[i]) * k.scaling;
}

/* The fresh variance after this step. A late comer that has just joined begins with its denominator. */
static float fresh_after(const consts_t *k, float m, float m_before, float denominator, float fresh)
{
    const float root = denominator - k->lamb.adam.eps;

    return lnt_lamb_fresh(&k->lamb.adam, m, m_before, fresh < 0 ? root * root / k->lamb.adam.i2 : fresh);
}

/* What a survey of the signs finds out about a tensor. */
typedef struct findings {
    float ratio; /* largest of frozen over fresh denominators */
    double p, u; /* squares of the direction, without and with decay */
} findings_t;

static void find_ratio(lnt_optim_t *optim, const lnt_piece_t *piece, void *arg)
{
    const consts_t k = consts_of(optim, piece->tensor, 1);
    const float *m = lnt_optim_f32(optim, LNT_ADAM_M) + piece->at, *fresh = lnt_optim_f32(optim, FRESH) + piece->at;
    const float *denominator = lnt_optim_f32(optim, LNT_FREEZE_DENOMINATOR) + piece->at;
    const uint8_t *dead = lnt_freeze_dead_span(optim, piece->tensor, piece->at);
    findings_t *found = arg;

    for (uint64_t i = 0; i < piece->count; i++) {
        float now = piece->value[i] / k.scaling, ratio;
        piece->value[i] = 0;
        if (dead != NULL && dead[i] != 0) continue;
        ratio =
            denominator[i] / lnt_adam_denominator(&k.lamb.adam, fresh_after(&k, now, m[i], denominator[i], fresh[i]));
        if (ratio > found->ratio) found->ratio = ratio;
        piece->value[i] = (now * k.lamb.adam.i1) / denominator[i];
    }
}

static void find_norms(lnt_optim_t *optim, const lnt_piece_t *piece, void *arg)
{
    const float decay = lnt_lamb_consts(optim, piece->tensor, 1).decay, *x = piece->tensor->x + piece->offset;
    const uint8_t *dead = lnt_freeze_dead_span(optim, piece->tensor, piece->at);
    findings_t *found = arg;

    find_ratio(optim, piece, arg);
    if (decay == 0) return;
    lnt_pieces_add_squares(optim, piece->value, piece->count, &found->p);
    for (uint64_t i = 0; i < piece->count; i++) {
        if (dead == NULL || dead[i] == 0) piece->value[i] += decay * x[i];
    }
    lnt_pieces_add_squares(optim, piece->value, piece->count, &found->u);
}

static lnt_status_t survey_signs(void *arg, lnt_plan_t *plan, uint32_t program)
{
    lnt_optim_t *optim = arg;
    const lnt_optim_options_t *o = &optim->options;
    const lnt_lamb_factor_limits_t limits = {o->factor_min, o->factor_max, o->factor_threshold};

    (void)plan;
    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        findings_t found = {.ratio = 0};
        if (lnt_freeze_in_lane(optim, t)) continue;
        LNT_TRY(lnt_pieces_each(optim, program, t, find_norms, &found));
        factors(optim)[t] =
            lnt_lamb_factor(&limits, (double)found.ratio, sqrt(found.p), sqrt(found.u), optim->values[FACTOR][t]);
        coeffs(optim)[t] = frozen_coeff(optim, t) * factors(optim)[t];
    }
    return LNT_OK;
}

static void consume_momentum(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live)
{
    lnt_optim_t *optim = arg;
    uint64_t at;
    const lnt_optim_tensor_t *tensor = lnt_optim_span(optim, span, &at);
    const consts_t k = consts_of(optim, tensor, coeffs(optim)[span->tensor]);
    const float *denominator = lnt_optim_f32(optim, LNT_FREEZE_DENOMINATOR) + at;
    const uint8_t *dead = lnt_freeze_dead_span(optim, tensor, at); /* the twin's program has no live mask */
    float *m = lnt_optim_f32(optim, LNT_ADAM_M) + at, *fresh = lnt_optim_f32(optim, FRESH) + at;
    float *x = tensor->x + span->offset;

    (void)live;
    for (uint64_t i = 0; i < span->count; i++) {
        float now = value[i] / k.scaling;
        if (dead != NULL && dead[i] != 0) continue;
        fresh[i] = fresh_after(&k, now, m[i], denominator[i], fresh[i]);
        m[i] = now;
        x[i] = x[i] - k.lamb.step * ((now * k.lamb.adam.i1) / denominator[i] + k.lamb.decay * x[i]);
    }
    lnt_plan_publish(optim->plan, span->tensor, span->offset, span->count);
}

/* ---- the lane ---- */

static lnt_status_t survey_lane(void *arg, lnt_plan_t *plan, uint32_t program)
{
    lnt_optim_t *optim = arg;

    (void)plan;
    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        if (!lnt_freeze_in_lane(optim, t)) continue;
        factors(optim)[t] = 1;
        LNT_TRY(take_ratio(optim, program, t));
    }
    return LNT_OK;
}

static void consume_lane(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live)
{
    lnt_optim_t *optim = arg;
    uint64_t at;
    const lnt_optim_tensor_t *tensor = lnt_optim_span(optim, span, &at);
    lnt_lamb_consts_t k = lnt_lamb_consts(optim, tensor, coeffs(optim)[span->tensor]);

    if (!lnt_late_consts(optim, span, &k.adam)) {
        lnt_lamb_consume(arg, span, value, live);
        return;
    }
    for (uint64_t i = 0; i < span->count; i++) {
        lnt_lamb_update(&k, value[i], lnt_optim_f32(optim, LNT_ADAM_M) + at + i,
                        lnt_optim_f32(optim, LNT_ADAM_V) + at + i, &tensor->x[span->offset + i]);
        lnt_optim_f32(optim, FRESH)[at + i] = NO_VARIANCE;
    }
    lnt_plan_publish(optim->plan, span->tensor, span->offset, span->count);
}

/* ---- the row ---- */

static lnt_status_t add_programs(lnt_optim_t *optim)
{
    const lnt_stage_t warm = {.survey = survey_warm, .consume = lnt_lamb_consume};
    const lnt_stage_t sign = {.produce_wire = produce_momentum, .survey = survey_signs, .consume = consume_momentum};
    const lnt_stage_t lane = {.survey = survey_lane, .consume = consume_lane};

    return lnt_freeze_add_programs(optim, &warm, &sign, &lane);
}

static lnt_status_t committed(lnt_optim_t *optim)
{
    const bool was_frozen = optim->frozen;
    lnt_status_t status;

    memcpy(optim->values[COEFF], coeffs(optim), optim->n_tensors * sizeof(double));
    if (was_frozen) {
        memcpy(optim->values[FACTOR], factors(optim), optim->n_tensors * sizeof(double));
    } else {
        average_ratios(optim);
    }
    status = lnt_freeze_committed(optim);
    if (optim->frozen && !was_frozen) {
        start_fresh(optim);
        choose_scaling(optim);
    }
    return status;
}

static lnt_status_t check(const lnt_optim_options_t *o)
{
    LNT_TRY(lnt_lamb_check_limits(o));
    if (o->factor_min > o->factor_max) {
        return lnt_error(LNT_ERR_INVALID_ARG, "factor_min is at most factor_max", "factors of %g to %g", o->factor_min,
                         o->factor_max);
    }
    return lnt_freeze_check(o);
}

const lnt_optim_row_t lnt_onebit_lamb_row = {
    .name = "onebit_lamb",
    .doc =
        "1-bit LAMB: LAMB until the freeze, then the momentum travels as signs under a frozen ratio that is corrected",
    .options = options,
    .phases = lnt_freeze_phases,
    .freezing = &lnt_freezing_default,
    .bias_option = true,
    .arrays = arrays,
    .values = values,
    .check = check,
    .add_programs = add_programs,
    .begin = lnt_lamb_begin,
    .work_count = work_count,
    .n_scratch = 1,
    .committed = committed,
    .restored = lnt_freeze_restored,
    .variants = variants};
