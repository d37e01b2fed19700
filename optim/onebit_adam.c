/* 1-bit Adam (Tang et al., ICML 2021): Adam until the freeze, then v stands and the momentum travels as signs.
 *
 * Programs: `warm` carries the gradient before the freeze; after it `sign` carries beta1 m + (1 - beta1) g of long
 * tensors and `lane` the plain f32 gradient of the others: tensors shorter than 64, and groups marked non_freeze. With
 * compression=off `sign` is an f32 exchange of the same momentum: the uncompressed twin. Dead coordinates
 * (docs/optimizers.md) stand still from the freeze on; coordinates that come alive later are not yet taken back.
 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "../kernels/float_bits.h"
#include "../src/base/log.h"
#include "onebit_adam.h"
#include "update.h"

enum { WARM, SIGN, LANE };
enum { LANE_MIN = 64 };
enum { DENOMINATOR = LNT_ADAM_ARRAYS, DEAD, N_ARRAYS };

static const lnt_state_array_t arrays[] = {
    [LNT_ADAM_M] = {"exp_avg", sizeof(float), false},
    [LNT_ADAM_V] = {"exp_avg_sq", sizeof(float), false},
    [DENOMINATOR] = {"denominator", sizeof(float), true}, /* sqrt(v_hat) + eps of the freeze */
    [DEAD] = {"dead", 1, true},                           /* 1 = dead */
    [N_ARRAYS] = {NULL, 0, false},
};

static const char *const scale_words[] = {"l2", "l1", NULL};
static const char *const feedback_words[] = {"full", "worker", "none", NULL};

static const lnt_cfg_row_t options[] = {
    {"freeze_step", "100000", "the freeze follows the commit with this number; v has had that many updates",
     offsetof(lnt_optim_options_t, freeze_step), LNT_CFG_U64, NULL, 1, 1e18},
    {"warmup_codec", "f32",
     "what the mean gradient travels in before the freeze: f32, bf16, f16, bf16_sr, f16_sr, int8, int4 or "
     "int4_hadamard",
     offsetof(lnt_optim_options_t, codec), LNT_CFG_ENUM, lnt_exchange_codec_words, 0, 0},
    {"warmup_block", "0",
     "elements per scale of warmup_codec; 0: the codec's default where it has scales, else `block`",
     offsetof(lnt_optim_options_t, codec_block), LNT_CFG_U32, NULL, 0, LNT_SPAN_MAX},
    {"block", "1024",
     "elements per scale of the signs, per partial sum of norms, and of the test for dead coordinates; a multiple of "
     "64",
     offsetof(lnt_optim_options_t, block), LNT_CFG_U32, NULL, 64, LNT_SPAN_MAX},
    {"clip", "0",
     "largest norm of the mean gradient before the freeze, all tensors together; 0: no clipping. Not applied after the "
     "freeze",
     offsetof(lnt_optim_options_t, clip), LNT_CFG_F64, NULL, 0, 1e300},
    {"scale_rule", "l2", "scale of a block of signs: l2 = root of the mean square, l1 = mean magnitude",
     offsetof(lnt_optim_options_t, scale_rule), LNT_CFG_ENUM, scale_words, 0, 0},
    {"compression", "on", "off: after the freeze the momentum travels in f32, the uncompressed twin",
     offsetof(lnt_optim_options_t, compression), LNT_CFG_BOOL, NULL, 0, 0},
    {"max_dead_share", "0.1", "the freeze is refused while a larger share of all elements is dead",
     offsetof(lnt_optim_options_t, max_dead_share), LNT_CFG_F64, NULL, 0, 1},
    {"error_feedback", "full", "for experiments: full, worker (drop the server's error), none",
     offsetof(lnt_optim_options_t, error_feedback), LNT_CFG_ENUM, feedback_words, 0, 0},
    {NULL, NULL, NULL, 0, LNT_CFG_U32, NULL, 0, 0}};

static uint8_t *dead_mask(const lnt_optim_t *optim)
{
    return optim->arrays[DEAD];
}

/* ---- phases: pure functions of counters ---- */

static bool may_compress(const lnt_phase_stats_t *stats)
{
    return stats->frozen && stats->compression;
}

static bool may_freeze(const lnt_phase_stats_t *stats)
{
    return stats->frozen;
}

static bool always(const lnt_phase_stats_t *stats)
{
    (void)stats;
    return true;
}

static const lnt_phase_row_t phases[] = {
    {LNT_PHASE_COMPRESSED, may_compress, 1u << SIGN | 1u << LANE},
    {LNT_PHASE_FROZEN, may_freeze, 1u << SIGN | 1u << LANE},
    {LNT_PHASE_WARMUP, always, 1u << WARM},
};

bool lnt_onebit_freeze_due(const lnt_phase_stats_t *stats, uint64_t freeze_step)
{
    return !stats->frozen && stats->committed >= freeze_step;
}

/* ---- the stages of the compressed phase ---- */

static void produce_momentum(void *arg, const lnt_span_t *span, float *value)
{
    const lnt_optim_t *optim = arg;
    uint64_t at;
    const lnt_optim_tensor_t *tensor = lnt_optim_span(optim, span, &at);

    lnt_updates()->momentum(&optim->groups[tensor->group].k, lnt_optim_f32(optim, LNT_ADAM_M) + at, span->count, value);
}

static void consume_momentum(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live)
{
    lnt_optim_t *optim = arg;
    uint64_t at;
    const lnt_optim_tensor_t *tensor = lnt_optim_span(optim, span, &at);
    const uint8_t *dead = tensor->any_dead ? dead_mask(optim) + at : NULL; /* the twin's program has no live mask */

    (void)live;
    lnt_updates()->frozen(&optim->groups[tensor->group].k, value, lnt_optim_f32(optim, DENOMINATOR) + at, dead,
                          optim->n_elems >= LNT_STREAM_ELEMS, span->count, lnt_optim_f32(optim, LNT_ADAM_M) + at,
                          tensor->x + span->offset);
    lnt_plan_publish(optim->plan, span->tensor, span->offset, span->count);
}

/* ---- programs ---- */

static bool in_lane(const lnt_optim_t *optim, uint32_t tensor)
{
    return optim->tensors[tensor].count < LANE_MIN || optim->groups[optim->tensors[tensor].group].values.non_freeze;
}

static lnt_program_params_t warm_program(const lnt_optim_t *optim)
{
    const lnt_optim_options_t *o = &optim->options;
    const char *codec = lnt_exchange_codec_words[o->codec];
    bool scaled = lnt_codec_row_by_name(codec)->has_scales;

    return (lnt_program_params_t){
        .name = "warm",
        .codec = {.name = codec,
                  .block = o->codec_block != 0 ? o->codec_block
                           : scaled            ? 0
                                               : o->block},
        .feeds_v = true,
        .stage = {.survey = lnt_adam_survey, .consume = lnt_adam_consume},
    };
}

static lnt_program_params_t sign_program(const lnt_optim_t *optim, const uint8_t *members)
{
    const lnt_optim_options_t *o = &optim->options;

    return (lnt_program_params_t){
        .name = o->compression ? "sign" : "frozen",
        .codec = {.name = o->compression ? "sign1" : "f32",
                  .block = o->block,
                  .scale_rule = o->compression ? (lnt_scale_rule_t)o->scale_rule : LNT_SCALE_L2},
        .member = members,
        .stage = {.produce_wire = produce_momentum, .consume = consume_momentum},
    };
}

static lnt_program_params_t lane_program(const lnt_optim_t *optim, const uint8_t *members)
{
    return (lnt_program_params_t){
        .name = "lane",
        .codec = {.name = "f32", .block = optim->options.block},
        .member = members,
        .packed = true,
        .feeds_v = true,
        .stage = {.consume = lnt_adam_consume},
    };
}

static lnt_status_t add_program(lnt_optim_t *optim, lnt_program_params_t params, uint32_t expected)
{
    uint32_t program;

    params.struct_size = sizeof(params);
    params.codec.struct_size = sizeof(params.codec);
    params.stage.struct_size = sizeof(params.stage);
    params.stage.arg = optim;
    LNT_TRY(lnt_plan_add_program(optim->plan, &params, &program));
    return program == expected ? LNT_OK : lnt_error(LNT_ERR_INTERNAL, NULL, "program %u is not %u", program, expected);
}

static lnt_status_t add_programs(lnt_optim_t *optim)
{
    lnt_program_params_t warm = warm_program(optim);
    uint8_t *members = lnt_plan_alloc(optim->n_tensors, "members of programs");
    lnt_codec_t codec;
    lnt_status_t status;

    if (members == NULL) return LNT_ERR_NO_MEMORY;
    LNT_TRY_GOTO(status, lnt_codec_init(&codec, warm.codec.name, warm.codec.block, warm.codec.scale_rule), out);
    optim->norm_block = optim->options.block;
    optim->read_block = codec.cfg.block > optim->norm_block ? codec.cfg.block : optim->norm_block;
    LNT_TRY_GOTO(status, add_program(optim, warm, WARM), out);
    for (uint32_t t = 0; t < optim->n_tensors; t++)
        members[t] = !in_lane(optim, t);
    LNT_TRY_GOTO(status, add_program(optim, sign_program(optim, members), SIGN), out);
    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        members[t] = in_lane(optim, t);
        if (members[t]) optim->lane_elems += optim->tensors[t].count;
    }
    LNT_TRY_GOTO(status, add_program(optim, lane_program(optim, members), LANE), out);

out:
    lnt_plan_free(members);
    return status;
}

/* ---- the freeze ---- */

/* One block: denominators, and who is dead: v = 0, or sqrt(v_hat) <= eps where the block's signs would be 10 times
 * larger. */
static uint64_t freeze_block(const lnt_adam_consts_t *k, const float *v, uint64_t n, float *denominator, uint8_t *dead)
{
    uint64_t n_dead = 0;
    float rms;

    for (uint64_t i = 0; i < n; i++)
        denominator[i] = sqrtf(v[i] * k->i2);
    rms = (float)sqrt(lnt_arrays()->square_sum(denominator, n) / (double)n);
    for (uint64_t i = 0; i < n; i++) {
        float s = denominator[i];
        dead[i] = v[i] == 0 || (s <= k->eps && rms > 10 * (s + k->eps));
        n_dead += dead[i];
        denominator[i] = s + k->eps;
    }
    return n_dead;
}

static uint64_t freeze_tensor(lnt_optim_t *optim, uint32_t number)
{
    const lnt_optim_tensor_t *tensor = &optim->tensors[number];
    const uint32_t block = optim->options.block;
    const float *v = lnt_optim_f32(optim, LNT_ADAM_V);
    float *denominator = lnt_optim_f32(optim, DENOMINATOR);
    uint64_t n_dead = 0;

    for (uint64_t i = 0; i < tensor->count; i += block) {
        uint64_t at = tensor->base + i, n = tensor->count - i < block ? tensor->count - i : block;
        n_dead += freeze_block(&optim->groups[tensor->group].k, v + at, n, denominator + at, dead_mask(optim) + at);
    }
    return n_dead;
}

/* The last error of the thread says why a freeze is refused. */
static lnt_status_t check_variance(const lnt_optim_t *optim)
{
    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        const float *v = lnt_optim_f32(optim, LNT_ADAM_V) + optim->tensors[t].base;
        if (lnt_arrays()->finite(v, optim->tensors[t].count)) continue;
        for (uint64_t i = 0; i < optim->tensors[t].count; i++) {
            if (lnt_f32_is_finite(v[i])) continue;
            (void)lnt_error(LNT_ERR_NONFINITE, "the run has diverged: go back to an earlier state",
                            "the freeze is refused: exp_avg_sq of tensor %u, element %llu is not finite", t,
                            (unsigned long long)i);
            lnt_error_mutable()->tensor = t;
            return LNT_FREEZE_REFUSED;
        }
    }
    return LNT_OK;
}

static bool find_dead(const lnt_optim_t *optim, const lnt_optim_tensor_t *tensor)
{
    return tensor->count != 0 && memchr(dead_mask(optim) + tensor->base, 1, tensor->count) != NULL;
}

/* Tells the sign program which coordinates take part. */
static lnt_status_t set_mask(lnt_optim_t *optim, uint32_t number)
{
    const lnt_optim_tensor_t *tensor = &optim->tensors[number];
    uint8_t *mask = dead_mask(optim) + tensor->base;
    lnt_status_t status;

    if (!optim->options.compression || in_lane(optim, number)) return LNT_OK;
    if (!tensor->any_dead) return lnt_plan_set_live(optim->plan, SIGN, number, NULL);
    for (uint64_t i = 0; i < tensor->count; i++)
        mask[i] = !mask[i]; /* dead -> live, in place: nothing is allocated in a step */
    status = lnt_plan_set_live(optim->plan, SIGN, number, mask);
    for (uint64_t i = 0; i < tensor->count; i++)
        mask[i] = !mask[i];
    return status;
}

/* Dead coordinates stand still: m = v = 0, out of the sign exchange. */
static lnt_status_t retire_dead(lnt_optim_t *optim, uint32_t number)
{
    lnt_optim_tensor_t *tensor = &optim->tensors[number];
    float *m = lnt_optim_f32(optim, LNT_ADAM_M), *v = lnt_optim_f32(optim, LNT_ADAM_V);

    tensor->any_dead = find_dead(optim, tensor);
    if (!tensor->any_dead) return LNT_OK;
    for (uint64_t i = tensor->base; i < tensor->base + tensor->count; i++) {
        if (dead_mask(optim)[i] != 0) m[i] = v[i] = 0;
    }
    return set_mask(optim, number);
}

/* The calling thread's logger was set by the plan's entry check. */
static lnt_logger_t *current_logger(void)
{
    lnt_logger_t *logger = lnt_log_set_current(NULL);

    (void)lnt_log_set_current(logger);
    return logger;
}

static void announce(const lnt_optim_t *optim)
{
    lnt_logger_t *logger = current_logger();

    lnt_log(logger, LNT_LOG_INFO, LNT_SUB_OPT, "freeze after step %llu: %.3f %% dead, dropped residual %g",
            (unsigned long long)optim->step, 100 * optim->dead_share, optim->dropped_norm);
    if (optim->dead_share > 0.01) {
        lnt_log(logger, LNT_LOG_WARN, LNT_SUB_OPT,
                "%.1f %% of all elements are dead at the freeze and will not learn any more: freeze later",
                100 * optim->dead_share);
    }
    if (optim->options.clip != 0) {
        lnt_log(logger, LNT_LOG_WARN, LNT_SUB_OPT, "option clip is not applied from here on (docs/optimizers.md)");
    }
}

static lnt_status_t freeze(lnt_optim_t *optim)
{
    uint64_t n_dead = 0;
    double dropped = 0;

    if (check_variance(optim) != LNT_OK) return LNT_FREEZE_REFUSED;
    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        if (!in_lane(optim, t)) n_dead += freeze_tensor(optim, t);
    }
    optim->dead_share = optim->n_elems != 0 ? (double)n_dead / (double)optim->n_elems : 0;
    if (optim->dead_share > optim->options.max_dead_share) {
        (void)lnt_error(
            LNT_ERR_DEAD_SHARE, "freeze later, mark the group non_freeze, or raise max_dead_share",
            "the freeze after step %llu is refused: %.1f %% of all elements have no variance, %.1f %% are allowed",
            (unsigned long long)optim->step, 100 * optim->dead_share, 100 * optim->options.max_dead_share);
        return LNT_FREEZE_REFUSED;
    }
    for (uint32_t t = 0; t < optim->n_tensors; t++)
        LNT_TRY(retire_dead(optim, t));
    LNT_TRY(lnt_plan_drop_errors(optim->plan, WARM, &dropped));
    optim->dropped_norm = sqrt(dropped);
    optim->frozen = true;
    announce(optim);
    return LNT_OK;
}

static lnt_status_t committed(lnt_optim_t *optim)
{
    lnt_phase_stats_t stats = {optim->step, optim->frozen, optim->options.compression};

    return lnt_onebit_freeze_due(&stats, optim->options.freeze_step) ? freeze(optim) : LNT_OK;
}

static lnt_status_t restored(lnt_optim_t *optim)
{
    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        optim->tensors[t].any_dead = optim->frozen && find_dead(optim, &optim->tensors[t]);
        LNT_TRY(set_mask(optim, t));
    }
    return LNT_OK;
}

static lnt_status_t check(const lnt_optim_options_t *o)
{
    if (strcmp(lnt_exchange_codec_words[o->codec], "sign1") == 0) {
        return lnt_error(
            LNT_ERR_INVALID_ARG, "use another warmup_codec, f32 or int8",
            "warmup_codec=sign1: gradients sent as signs and fed to Adam from the first step do not converge");
    }
    return LNT_OK;
}

const lnt_optim_row_t lnt_onebit_adam_row = {
    .name = "onebit_adam",
    .doc = "1-bit Adam: AdamW until the freeze, then the momentum travels as signs",
    .options = options,
    .phases = phases,
    .freezes = true,
    .arrays = arrays,
    .check = check,
    .add_programs = add_programs,
    .committed = committed,
    .restored = restored};
