/* LAMB (You et al., ICLR 2020, arXiv 1904.00962) and LAMBC (Fong et al. 2020, arXiv 2011.13584), which limits the trust
 * ratio to 1. One program, one phase.
 *
 * A step has two passes: the survey forms every tensor's update in scratch and takes its norm and that of the
 * parameters; consume forms it again and applies it. The state changes in the second alone.
 */
#include "lamb.h"

#include <string.h>

#include "freeze.h"
#include "pieces.h"
#include "plain_options.h"

enum { COEFF }; /* values */

// clang-format off
#define OPTIONS(_max_coeff)                                                                                            \
    LNT_OPTION_CODEC, LNT_OPTION_CODEC_BLOCK, LNT_OPTION_CLIP, LNT_OPTION_CLIP_MODE, LNT_SCALING_OPTIONS,              \
    {"max_grad_norm", "0", "another name of clip", offsetof(lnt_optim_options_t, clip), LNT_CFG_F64, NULL, 0, 1e300},  \
    LNT_OPTION_MAX_COEFF(_max_coeff), LNT_OPTION_MIN_COEFF,                                                            \
    {"trust_clip", "off", "on: no trust ratio above 1", offsetof(lnt_optim_options_t, trust_clip), LNT_CFG_BOOL, NULL, \
     0, 0},                                                                                                            \
    {"always_adapt", "on", "off: tensors of groups without weight decay have no trust ratio",                          \
     offsetof(lnt_optim_options_t, always_adapt), LNT_CFG_BOOL, NULL, 0, 0},                                           \
    {"clamp_value", "0", "largest norm of a tensor that counts in its trust ratio; 0: no limit",                       \
     offsetof(lnt_optim_options_t, clamp_value), LNT_CFG_F64, NULL, 0, 1e300},                                         \
    LNT_OPTION_BIAS_CORRECTION,                                                                                        \
    {"debias", "off", "on: the bias correction multiplies the step and not the trust ratio; needs bias_correction=off",\
     offsetof(lnt_optim_options_t, debias), LNT_CFG_BOOL, NULL, 0, 0},                                                 \
    {"grad_averaging", "on", "off: the gradient enters the momentum with factor 1 instead of 1 - beta1",               \
     offsetof(lnt_optim_options_t, grad_averaging), LNT_CFG_BOOL, NULL, 0, 0},                                         \
    LNT_OPTION_ERROR_FEEDBACK,                                                                                         \
    {NULL, NULL, NULL, 0, LNT_CFG_U32, NULL, 0, 0}
// clang-format on

static const lnt_cfg_row_t lamb_options[] = {OPTIONS("10")};
static const lnt_cfg_row_t lambc_options[] = {OPTIONS("1")};

/* ---- what 1-bit LAMB uses too ---- */

lnt_lamb_limits_t lnt_lamb_limits(const lnt_optim_options_t *o)
{
    bool above_one = o->max_coeff == 0 || o->max_coeff > 1;

    return (lnt_lamb_limits_t){
        .least = o->min_coeff, .most = o->trust_clip && above_one ? 1 : o->max_coeff, .longest = o->clamp_value};
}

lnt_status_t lnt_lamb_check_limits(const lnt_optim_options_t *options)
{
    const lnt_lamb_limits_t limits = lnt_lamb_limits(options);

    if (limits.most == 0 || limits.least <= limits.most) return LNT_OK;
    return lnt_error(LNT_ERR_INVALID_ARG, "min_coeff is at most max_coeff", "trust ratios of %g to %g", limits.least,
                     limits.most);
}

void lnt_lamb_begin(lnt_optim_t *optim)
{
    for (uint32_t g = 0; g < optim->n_groups && !optim->options.bias_correction; g++)
        optim->groups[g].k.i1 = optim->groups[g].k.i2 = 1;
}

lnt_lamb_consts_t lnt_lamb_consts(const lnt_optim_t *optim, const lnt_optim_tensor_t *tensor, double coeff)
{
    const lnt_optim_group_t *group = &optim->groups[tensor->group];

    return (lnt_lamb_consts_t){
        .adam = group->k, .decay = (float)group->values.weight_decay, .step = (float)(group->values.lr * coeff)};
}

/* The direction to come, in the place of the gradient. */
static void add_norms(lnt_optim_t *optim, const lnt_piece_t *piece, void *arg)
{
    const lnt_lamb_consts_t k = lnt_lamb_consts(optim, piece->tensor, 1);
    const float clip = lnt_pieces_clip(optim);
    const float *m = lnt_optim_f32(optim, LNT_ADAM_M) + piece->at, *v = lnt_optim_f32(optim, LNT_ADAM_V) + piece->at;
    const float *x = piece->tensor->x + piece->offset;
    const uint8_t *dead = optim->row->freezing != NULL ? lnt_freeze_dead_span(optim, piece->tensor, piece->at) : NULL;
    float *value = piece->value;
    lnt_lamb_norms_t *norms = arg;

    for (uint64_t i = 0; i < piece->count; i++)
        value[i] = dead != NULL && dead[i] != 0 ? 0 : lnt_lamb_ahead(&k, value[i] * clip, m[i], v[i], x[i]);
    lnt_pieces_add_squares(optim, value, piece->count, &norms->u);
    for (uint64_t i = 0; i < piece->count && dead != NULL; i++)
        value[i] = dead[i] != 0 ? 0 : x[i];
    lnt_pieces_add_squares(optim, dead != NULL ? value : x, piece->count, &norms->x);
}

lnt_status_t lnt_lamb_measure(lnt_optim_t *optim, uint32_t program, uint32_t tensor, lnt_lamb_norms_t *norms_p)
{
    *norms_p = (lnt_lamb_norms_t){0, 0};
    return lnt_pieces_each(optim, program, tensor, add_norms, norms_p);
}

double lnt_lamb_momentum_rms(const lnt_optim_t *optim, const lnt_optim_tensor_t *tensor)
{
    double sum = 0;

    if (tensor->count == 0) return 0;
    lnt_pieces_add_squares(optim, lnt_optim_f32(optim, LNT_ADAM_M) + tensor->base, tensor->count, &sum);
    return sqrt(sum / (double)tensor->count);
}

static double debias(const lnt_optim_t *optim, const lnt_optim_tensor_t *tensor)
{
    const lnt_optim_group_t *group = &optim->groups[tensor->group];

    return optim->options.debias ? sqrt(1 - group->next_power2) / (1 - group->next_power1) : 1;
}

void lnt_lamb_consume(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live)
{
    lnt_optim_t *optim = arg;
    uint64_t at;
    const lnt_optim_tensor_t *tensor = lnt_optim_span(optim, span, &at);
    const lnt_lamb_consts_t k = lnt_lamb_consts(optim, tensor, optim->work[span->tensor] * debias(optim, tensor));
    const float clip = lnt_pieces_clip(optim);
    float *m = lnt_optim_f32(optim, LNT_ADAM_M) + at, *v = lnt_optim_f32(optim, LNT_ADAM_V) + at;
    float *x = tensor->x + span->offset;

    (void)live;
    for (uint64_t i = 0; i < span->count; i++)
        lnt_lamb_update(&k, value[i] * clip, &m[i], &v[i], &x[i]);
    lnt_plan_publish(optim->plan, span->tensor, span->offset, span->count);
}

/* ---- the rows ---- */

static void begin(lnt_optim_t *optim)
{
    lnt_lamb_begin(optim);
    for (uint32_t g = 0; g < optim->n_groups && !optim->options.grad_averaging; g++)
        optim->groups[g].k.o1 = 1;
}

static lnt_status_t survey(void *arg, lnt_plan_t *plan, uint32_t program)
{
    lnt_optim_t *optim = arg;
    const lnt_lamb_limits_t limits = lnt_lamb_limits(&optim->options);

    LNT_TRY(lnt_clip_survey(optim, plan, program));
    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        const lnt_group_t *values = &optim->groups[optim->tensors[t].group].values;
        lnt_lamb_norms_t norms;
        optim->work[t] = 1;
        if (!optim->options.always_adapt && values->weight_decay == 0) continue;
        LNT_TRY(lnt_lamb_measure(optim, program, t, &norms));
        (void)lnt_lamb_ratio(&limits, sqrt(norms.x), sqrt(norms.u), &optim->work[t]);
    }
    return LNT_OK;
}

static lnt_status_t committed(lnt_optim_t *optim)
{
    memcpy(optim->values[COEFF], optim->work, optim->n_tensors * sizeof(double));
    return LNT_OK;
}

static lnt_status_t check(const lnt_optim_options_t *options)
{
    if (options->debias && options->bias_correction) {
        return lnt_error(LNT_ERR_INVALID_ARG, "add bias_correction=off",
                         "debias=on: the moments are corrected already");
    }
    LNT_TRY(lnt_lamb_check_limits(options));
    return lnt_adam_check(options);
}

static lnt_status_t add_programs(lnt_optim_t *optim)
{
    return lnt_adam_add_program(optim, (lnt_stage_t){.survey = survey, .consume = lnt_lamb_consume});
}

static const lnt_state_array_t arrays[] = {
    [LNT_ADAM_M] = {.name = "exp_avg", .elem_bytes = sizeof(float)},
    [LNT_ADAM_V] = {.name = "exp_avg_sq", .elem_bytes = sizeof(float), .never_negative = true},
    [LNT_ADAM_ARRAYS] = {.name = NULL},
};

static const lnt_state_values_t values[] = {
    [COEFF] = {.name = "lamb_coeff", .count = lnt_values_per_tensor},
    {.name = NULL},
};

const lnt_optim_row_t lnt_lamb_row = {.name = "lamb",
                                      .doc = "Adam's direction, scaled per tensor to the norm of the parameters",
                                      .options = lamb_options,
                                      .phases = lnt_adam_phases,
                                      .arrays = arrays,
                                      .values = values,
                                      .check = check,
                                      .add_programs = add_programs,
                                      .begin = begin,
                                      .work_count = lnt_values_per_tensor,
                                      .n_scratch = 1,
                                      .committed = committed};

const lnt_optim_row_t lnt_lambc_row = {.name = "lambc",
                                       .doc = "LAMB with a trust ratio of at most 1",
                                       .options = lambc_options,
                                       .phases = lnt_adam_phases,
                                       .arrays = arrays,
                                       .values = values,
                                       .check = check,
                                       .add_programs = add_programs,
                                       .begin = begin,
                                       .work_count = lnt_values_per_tensor,
                                       .n_scratch = 1,
                                       .committed = committed};
