/* LANS (Zheng et al. 2020, arXiv 2006.13484): the mean gradient of every tensor is brought to norm 1, and the step has
 * two parts, each scaled to the norm of the parameters: the momentum's direction with weight beta1 and the gradient's
 * own with 1 - beta1. One program, one phase; no clipping, since norms of gradients do not matter.
 *
 * As in lamb.c the survey takes the norms of what is going to be, in scratch, and consume forms it again.
 */
#include <math.h>
#include <string.h>

#include "lamb.h"
#include "pieces.h"
#include "plain_options.h"

enum { GRAD_NORM, MOMENTUM_RATIO, GRADIENT_RATIO, N_NUMBERS }; /* of a tensor in optim->work */
enum { COEFF_MOMENTUM, COEFF_GRADIENT };                       /* values */

static const lnt_cfg_row_t options[] = {LNT_OPTION_CODEC,
                                        LNT_OPTION_CODEC_BLOCK,
                                        LNT_SCALING_OPTIONS,
                                        LNT_OPTION_ERROR_FEEDBACK,
                                        {NULL, NULL, NULL, 0, LNT_CFG_U32, NULL, 0, 0}};

static double *number(const lnt_optim_t *optim, uint32_t what, uint32_t tensor)
{
    return &optim->work[(uint64_t)what * optim->n_tensors + tensor];
}

static uint64_t work_count(const lnt_optim_t *optim)
{
    return (uint64_t)N_NUMBERS * optim->n_tensors;
}

/* Constants of a tensor. */
typedef struct consts {
    lnt_adam_consts_t adam;
    float decay, divisor; /* of the gradient */
    float step1, step2;   /* (float)(lr * weight * ratio) */
} consts_t;

static consts_t consts_of(const lnt_optim_t *optim, uint32_t tensor)
{
    const lnt_optim_group_t *group = &optim->groups[optim->tensors[tensor].group];
    const lnt_group_t *values = &group->values;
    const double norm = *number(optim, GRAD_NORM, tensor);

    return (consts_t){.adam = group->k,
                      .decay = (float)values->weight_decay,
                      .divisor = norm > 0 ? (float)(norm + values->eps) : 1,
                      .step1 = (float)(values->lr * values->beta1 * *number(optim, MOMENTUM_RATIO, tensor)),
                      .step2 = (float)(values->lr * (1 - values->beta1) * *number(optim, GRADIENT_RATIO, tensor))};
}

/* The two directions of one element, with the moments as they will be. */
typedef struct ahead {
    float m, v, from_momentum, from_gradient;
} ahead_t;

static ahead_t look_ahead(const consts_t *k, float g, float m, float v, float x)
{
    ahead_t to;
    float root;

    g = g / k->divisor;
    to.m = lnt_adam_momentum(&k->adam, m, g);
    to.v = k->adam.b2 * v + k->adam.o2 * (g * g);
    root = lnt_adam_denominator(&k->adam, to.v);
    to.from_momentum = (to.m * k->adam.i1) / root + k->decay * x;
    to.from_gradient = g / root + k->decay * x;
    return to;
}

/* ---- the survey ---- */

static void add_gradient(lnt_optim_t *optim, const lnt_piece_t *piece, void *arg)
{
    lnt_pieces_add_squares(optim, piece->value, piece->count, arg);
}

typedef struct sums {
    double x, from_momentum, from_gradient;
} sums_t;

static void add_directions(lnt_optim_t *optim, const lnt_piece_t *piece, void *arg)
{
    const consts_t k = consts_of(optim, (uint32_t)(piece->tensor - optim->tensors));
    const float *m = lnt_optim_f32(optim, LNT_ADAM_M) + piece->at, *v = lnt_optim_f32(optim, LNT_ADAM_V) + piece->at;
    const float *x = piece->tensor->x + piece->offset;
    float *second = piece->value + LNT_SPAN_MAX;
    sums_t *sums = arg;

    for (uint64_t i = 0; i < piece->count; i++) {
        ahead_t to = look_ahead(&k, piece->value[i], m[i], v[i], x[i]);
        piece->value[i] = to.from_momentum;
        second[i] = to.from_gradient;
    }
    lnt_pieces_add_squares(optim, x, piece->count, &sums->x);
    lnt_pieces_add_squares(optim, piece->value, piece->count, &sums->from_momentum);
    lnt_pieces_add_squares(optim, second, piece->count, &sums->from_gradient);
}

static lnt_status_t survey(void *arg, lnt_plan_t *plan, uint32_t program)
{
    static const lnt_lamb_limits_t none = {0, 0, 0};
    lnt_optim_t *optim = arg;

    (void)plan;
    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        double square = 0;
        sums_t sums = {0, 0, 0};
        LNT_TRY(lnt_pieces_each(optim, program, t, add_gradient, &square));
        *number(optim, GRAD_NORM, t) = sqrt(square);
        LNT_TRY(lnt_pieces_each(optim, program, t, add_directions, &sums));
        (void)lnt_lamb_ratio(&none, sqrt(sums.x), sqrt(sums.from_momentum), number(optim, MOMENTUM_RATIO, t));
        (void)lnt_lamb_ratio(&none, sqrt(sums.x), sqrt(sums.from_gradient), number(optim, GRADIENT_RATIO, t));
    }
    return LNT_OK;
}

static void consume(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live)
{
    lnt_optim_t *optim = arg;
    uint64_t at;
    const lnt_optim_tensor_t *tensor = lnt_optim_span(optim, span, &at);
    const consts_t k = consts_of(optim, span->tensor);
    float *m = lnt_optim_f32(optim, LNT_ADAM_M) + at, *v = lnt_optim_f32(optim, LNT_ADAM_V) + at;
    float *x = tensor->x + span->offset;

    (void)live;
    for (uint64_t i = 0; i < span->count; i++) {
        ahead_t to = look_ahead(&k, value[i], m[i], v[i], x[i]);
        m[i] = to.m;
        v[i] = to.v;
        x[i] = (x[i] - k.step1 * to.from_momentum) - k.step2 * to.from_gradient;
    }
    lnt_plan_publish(optim->plan, span->tensor, span->offset, span->count);
}

/* ---- the row ---- */

static lnt_status_t committed(lnt_optim_t *optim)
{
    memcpy(optim->values[COEFF_MOMENTUM], number(optim, MOMENTUM_RATIO, 0), optim->n_tensors * sizeof(double));
    memcpy(optim->values[COEFF_GRADIENT], number(optim, GRADIENT_RATIO, 0), optim->n_tensors * sizeof(double));
    return LNT_OK;
}

static lnt_status_t add_programs(lnt_optim_t *optim)
{
    return lnt_adam_add_program(optim, (lnt_stage_t){.survey = survey, .consume = consume});
}

static const lnt_state_array_t arrays[] = {
    [LNT_ADAM_M] = {.name = "exp_avg", .elem_bytes = sizeof(float)},
    [LNT_ADAM_V] = {.name = "exp_avg_sq", .elem_bytes = sizeof(float), .never_negative = true},
    [LNT_ADAM_ARRAYS] = {.name = NULL},
};

static const lnt_state_values_t values[] = {
    [COEFF_MOMENTUM] = {.name = "lans_coeff", .count = lnt_values_per_tensor},
    [COEFF_GRADIENT] = {.name = "lans_coeff_gradient", .count = lnt_values_per_tensor},
    {.name = NULL},
};

const lnt_optim_row_t lnt_lans_row = {.name = "lans",
                                      .doc = "LAMB on gradients of norm 1, with a second part along the gradient",
                                      .options = options,
                                      .phases = lnt_adam_phases,
                                      .arrays = arrays,
                                      .values = values,
                                      .check = lnt_adam_check,
                                      .add_programs = add_programs,
                                      .work_count = work_count,
                                      .n_scratch = 2,
                                      .committed = committed};
