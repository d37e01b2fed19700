/* Adam and AdamW: one program, one phase. The mean gradient may travel coded (option codec), but not as signs: fed to
 * Adam from the first step they never leave the plateau (docs/optimizers.md).
 */
#include <math.h>
#include <stddef.h>

#include "optim_impl.h"
#include "update.h"

static const char *const feedback_words[] = {"full", "worker", "none", NULL};

static const lnt_cfg_row_t adam_options[] = {
    {"codec", "f32", "what the mean gradient travels in: f32, bf16, f16, bf16_sr, f16_sr, int8, int4 or int4_hadamard",
     offsetof(lnt_optim_options_t, codec), LNT_CFG_ENUM, lnt_exchange_codec_words, 0, 0},
    {"block", "0", "elements per scale and per partial sum of norms, a multiple of 64; 0: the codec's default",
     offsetof(lnt_optim_options_t, block), LNT_CFG_U32, NULL, 0, LNT_SPAN_MAX},
    LNT_OPTION_CLIP,
    LNT_OPTION_CLIP_MODE,
    LNT_SCALING_OPTIONS,
    {"error_feedback", "full", "for experiments: full, worker (drop the server's error), none",
     offsetof(lnt_optim_options_t, error_feedback), LNT_CFG_ENUM, feedback_words, 0, 0},
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

static lnt_status_t check(const lnt_optim_options_t *options)
{
    static const char sign1[] = "sign1";

    if (lnt_codec_row_by_name(lnt_exchange_codec_words[options->codec]) == lnt_codec_row_by_name(sign1)) {
        return lnt_error(LNT_ERR_INVALID_ARG,
                         "use algorithm=onebit_adam, which sends the momentum as signs after a warm-up",
                         "codec=sign1: gradients sent as signs and fed to Adam from the first step do not converge");
    }
    return LNT_OK;
}

static lnt_status_t add_programs(lnt_optim_t *optim)
{
    lnt_program_params_t params = {.struct_size = sizeof(params), .name = "gradient", .feeds_v = true};
    lnt_codec_t codec;
    uint32_t program;

    params.codec = (lnt_codec_params_t){.struct_size = sizeof(params.codec),
                                        .name = lnt_exchange_codec_words[optim->options.codec],
                                        .block = optim->options.block};
    params.stage = (lnt_stage_t){
        .struct_size = sizeof(params.stage), .arg = optim, .survey = lnt_clip_survey, .consume = lnt_adam_consume};
    LNT_TRY(lnt_codec_init(&codec, params.codec.name, params.codec.block, params.codec.scale_rule));
    optim->norm_block = optim->read_block = codec.cfg.block;
    lnt_clip_program(optim, &params);
    return lnt_plan_add_program(optim->plan, &params, &program);
}

static bool always(const lnt_phase_stats_t *stats)
{
    (void)stats;
    return true;
}

static const lnt_phase_row_t phases[] = {{LNT_PHASE_PLAIN, always, 1}};

static const lnt_state_array_t arrays[] = {
    [LNT_ADAM_M] = {"exp_avg", sizeof(float), false},
    [LNT_ADAM_V] = {"exp_avg_sq", sizeof(float), false},
    [LNT_ADAM_ARRAYS] = {NULL, 0, false},
};

const lnt_optim_row_t lnt_adam_row = {.name = "adam",
                                      .doc = "Adam with exact bias correction; decay enters the gradient (L2)",
                                      .options = adam_options,
                                      .phases = phases,
                                      .arrays = arrays,
                                      .l2_decay = true,
                                      .check = check,
                                      .add_programs = add_programs};

const lnt_optim_row_t lnt_adamw_row = {.name = "adamw",
                                       .doc = "Adam with exact bias correction and decoupled decay",
                                       .options = adam_options,
                                       .phases = phases,
                                       .arrays = arrays,
                                       .check = check,
                                       .add_programs = add_programs};
