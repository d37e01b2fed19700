/* Adam and AdamW: one program, one phase. The mean gradient may travel coded (option codec), but not as signs: fed to
 * Adam from the first step they never leave the plateau (docs/optimizers.md).
 */
#include <math.h>

#include "plain_options.h"
#include "update.h"

enum { LARGEST_V = LNT_ADAM_ARRAYS, AMSGRAD_ARRAYS };

static const lnt_cfg_row_t adam_options[] = {
    LNT_OPTION_CODEC,
    LNT_OPTION_CODEC_BLOCK,
    LNT_OPTION_CLIP,
    LNT_OPTION_CLIP_MODE,
    LNT_SCALING_OPTIONS,
    LNT_OPTION_ERROR_FEEDBACK,
    {"amsgrad", "off", "on: the step divides by the root of the largest v so far (before bias correction)",
     offsetof(lnt_optim_options_t, amsgrad), LNT_CFG_ENUM, lnt_amsgrad_words, 0, 0},
    {NULL, NULL, NULL, 0, LNT_CFG_U32, NULL, 0, 0}};

void lnt_adam_consume(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live)
{
    lnt_optim_t *optim = arg;
    uint64_t at;
    const lnt_optim_tensor_t *tensor = lnt_optim_span(optim, span, &at);

    (void)live;
    lnt_updates()->adam(&optim->groups[tensor->group].k, value, optim->clipped ? &optim->clip_scale : NULL, span->count,
                        lnt_optim_f32(optim, LNT_ADAM_M) + at, lnt_optim_f32(optim, LNT_ADAM_V) + at,
                        tensor->x + span->offset);
    lnt_plan_publish(optim->plan, span->tensor, span->offset, span->count);
}

static void consume_amsgrad(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live)
{
    lnt_optim_t *optim = arg;
    uint64_t at;
    const lnt_optim_tensor_t *tensor = lnt_optim_span(optim, span, &at);
    const lnt_adam_consts_t *k = &optim->groups[tensor->group].k;
    float *m = lnt_optim_f32(optim, LNT_ADAM_M) + at, *v = lnt_optim_f32(optim, LNT_ADAM_V) + at;
    float *most = lnt_optim_f32(optim, LARGEST_V) + at, *x = tensor->x + span->offset;

    (void)live;
    for (uint64_t i = 0; i < span->count; i++)
        lnt_adam_update_amsgrad(k, optim->clipped ? value[i] * optim->clip_scale : value[i], &m[i], &v[i], &most[i],
                                &x[i]);
    lnt_plan_publish(optim->plan, span->tensor, span->offset, span->count);
}

lnt_status_t lnt_adam_check(const lnt_optim_options_t *options)
{
    static const char sign1[] = "sign1";

    if (lnt_codec_row_by_name(lnt_exchange_codec_words[options->codec]) == lnt_codec_row_by_name(sign1)) {
        return lnt_error(LNT_ERR_INVALID_ARG,
                         "use algorithm=onebit_adam, which sends the momentum as signs after a warm-up",
                         "codec=sign1: gradients sent as signs and fed to Adam from the first step do not converge");
    }
    return LNT_OK;
}

lnt_status_t lnt_adam_add_program(lnt_optim_t *optim, lnt_stage_t stage)
{
    lnt_program_params_t params = {.struct_size = sizeof(params), .name = "gradient", .feeds_v = true};
    lnt_codec_t codec;
    uint32_t program;

    params.codec = (lnt_codec_params_t){.struct_size = sizeof(params.codec),
                                        .name = lnt_exchange_codec_words[optim->options.codec],
                                        .block = optim->options.block};
    params.stage = stage;
    params.stage.struct_size = sizeof(params.stage);
    params.stage.arg = optim;
    LNT_TRY(lnt_codec_init(&codec, params.codec.name, params.codec.block, params.codec.scale_rule));
    optim->norm_block = optim->read_block = codec.cfg.block;
    lnt_clip_program(optim, &params);
    return lnt_plan_add_program(optim->plan, &params, &program);
}

static lnt_status_t add_programs(lnt_optim_t *optim)
{
    return lnt_adam_add_program(optim, (lnt_stage_t){.survey = lnt_clip_survey, .consume = lnt_adam_consume});
}

static lnt_status_t add_programs_amsgrad(lnt_optim_t *optim)
{
    return lnt_adam_add_program(optim, (lnt_stage_t){.survey = lnt_clip_survey, .consume = consume_amsgrad});
}

const lnt_phase_row_t lnt_adam_phases[] = {{LNT_PHASE_PLAIN, lnt_phase_always, 1}};

static const lnt_state_array_t arrays[] = {
    [LNT_ADAM_M] = {.name = "exp_avg", .elem_bytes = sizeof(float)},
    [LNT_ADAM_V] = {.name = "exp_avg_sq", .elem_bytes = sizeof(float), .never_negative = true},
    [LNT_ADAM_ARRAYS] = {.name = NULL},
};

static const lnt_state_array_t amsgrad_arrays[] = {
    [LNT_ADAM_M] = {.name = "exp_avg", .elem_bytes = sizeof(float)},
    [LNT_ADAM_V] = {.name = "exp_avg_sq", .elem_bytes = sizeof(float), .never_negative = true},
    [LARGEST_V] = {.name = "max_exp_avg_sq", .elem_bytes = sizeof(float), .never_negative = true},
    [AMSGRAD_ARRAYS] = {.name = NULL},
};

static const lnt_optim_row_t adam_amsgrad_row = {.name = "adam/amsgrad",
                                                 .doc = "AMSGrad with L2 decay",
                                                 .options = adam_options,
                                                 .phases = lnt_adam_phases,
                                                 .arrays = amsgrad_arrays,
                                                 .l2_decay = true,
                                                 .check = lnt_adam_check,
                                                 .add_programs = add_programs_amsgrad};

static const lnt_optim_row_t adamw_amsgrad_row = {.name = "adamw/amsgrad",
                                                  .doc = "AMSGrad with decoupled decay",
                                                  .options = adam_options,
                                                  .phases = lnt_adam_phases,
                                                  .arrays = amsgrad_arrays,
                                                  .check = lnt_adam_check,
                                                  .add_programs = add_programs_amsgrad};

static const lnt_optim_variant_t adam_variants[] = {{"amsgrad", "on", &adam_amsgrad_row}, {NULL, NULL, NULL}};
static const lnt_optim_variant_t adamw_variants[] = {{"amsgrad", "on", &adamw_amsgrad_row}, {NULL, NULL, NULL}};

const lnt_optim_row_t lnt_adam_row = {.name = "adam",
                                      .doc = "Adam with exact bias correction; decay enters the gradient (L2)",
                                      .options = adam_options,
                                      .phases = lnt_adam_phases,
                                      .arrays = arrays,
                                      .l2_decay = true,
                                      .check = lnt_adam_check,
                                      .add_programs = add_programs,
                                      .variants = adam_variants};

const lnt_optim_row_t lnt_adamw_row = {.name = "adamw",
                                       .doc = "Adam with exact bias correction and decoupled decay",
                                       .options = adam_options,
                                       .phases = lnt_adam_phases,
                                       .arrays = arrays,
                                       .check = lnt_adam_check,
                                       .add_programs = add_programs,
                                       .variants = adamw_variants};
