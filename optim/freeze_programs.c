/* Phases, options' words and exchange programs of optimizers with a freeze. */
#include "freeze.h"

#include <string.h>

const char *const lnt_scale_words[] = {"l2", "l1", NULL};
const char *const lnt_feedback_words[] = {"full", "worker", "none", NULL};
const char *const lnt_criterion_words[] = {"fixed", "variance", NULL};
const char *const lnt_late_idle_words[] = {"leave", "stay", NULL};

const lnt_freezing_t lnt_freezing_default = {.denominator = LNT_FREEZE_DENOMINATOR,
                                             .dead = LNT_FREEZE_DEAD,
                                             .masked = LNT_FREEZE_MASKED,
                                             .warm = LNT_FREEZE_WARM,
                                             .sign = LNT_FREEZE_SIGN,
                                             .lane = LNT_FREEZE_LANE,
                                             .late_comers = true};

/* ---- phases: pure functions of counters ---- */

static bool may_compress(const lnt_phase_stats_t *stats)
{
    return stats->frozen && stats->compression;
}

const lnt_phase_row_t lnt_freeze_phases[] = {
    {LNT_PHASE_COMPRESSED, may_compress, 1u << LNT_FREEZE_SIGN | 1u << LNT_FREEZE_LANE},
    {LNT_PHASE_FROZEN, lnt_phase_frozen, 1u << LNT_FREEZE_SIGN | 1u << LNT_FREEZE_LANE},
    {LNT_PHASE_WARMUP, lnt_phase_always, 1u << LNT_FREEZE_WARM},
};

/* ---- programs ---- */

bool lnt_freeze_in_lane(const lnt_optim_t *optim, uint32_t tensor)
{
    return optim->tensors[tensor].count < LNT_LANE_MIN || optim->groups[optim->tensors[tensor].group].values.non_freeze;
}

bool lnt_freeze_is_plain(const lnt_optim_t *optim, uint32_t tensor)
{
    return optim->row->freezing->short_too ? optim->groups[optim->tensors[tensor].group].values.non_freeze
                                           : lnt_freeze_in_lane(optim, tensor);
}

lnt_status_t lnt_freeze_check(const lnt_optim_options_t *o)
{
    if (strcmp(lnt_exchange_codec_words[o->codec], "sign1") == 0) {
        return lnt_error(
            LNT_ERR_INVALID_ARG, "use another warmup_codec, f32 or int8",
            "warmup_codec=sign1: gradients sent as signs and fed to Adam from the first step do not converge");
    }
    return LNT_OK;
}

lnt_program_params_t lnt_freeze_warm_program(const lnt_optim_t *optim)
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
    };
}

lnt_program_params_t lnt_freeze_sign_program(const lnt_optim_t *optim, const uint8_t *members)
{
    const lnt_optim_options_t *o = &optim->options;

    return (lnt_program_params_t){
        .name = o->compression ? "sign" : "frozen",
        .codec = {.name = o->compression ? "sign1" : "f32",
                  .block = o->block,
                  .scale_rule = o->compression ? (lnt_scale_rule_t)o->scale_rule : LNT_SCALE_L2},
        .member = members,
    };
}

lnt_program_params_t lnt_freeze_lane_program(const lnt_optim_t *optim, const uint8_t *members)
{
    return (lnt_program_params_t){
        .name = "lane",
        .codec = {.name = "f32", .block = optim->options.block},
        .member = members,
        .packed = true,
        .changeable = true,
        .feeds_v = true,
    };
}

lnt_status_t lnt_freeze_add_program(lnt_optim_t *optim, lnt_program_params_t params, uint32_t expected)
{
    uint32_t program;

    params.struct_size = sizeof(params);
    params.codec.struct_size = sizeof(params.codec);
    params.stage.struct_size = sizeof(params.stage);
    params.stage.arg = optim;
    lnt_clip_program(optim, &params);
    LNT_TRY(lnt_plan_add_program(optim->plan, &params, &program));
    return program == expected ? LNT_OK : lnt_error(LNT_ERR_INTERNAL, NULL, "program %u is not %u", program, expected);
}

static lnt_status_t choose_grids(lnt_optim_t *optim, const lnt_codec_params_t *warm)
{
    lnt_codec_t codec;

    LNT_TRY(lnt_codec_init(&codec, warm->name, warm->block, warm->scale_rule));
    optim->norm_block = optim->options.block;
    optim->read_block = codec.cfg.block > optim->norm_block ? codec.cfg.block : optim->norm_block;
    return LNT_OK;
}

static void choose_members(lnt_optim_t *optim, bool lane, uint8_t *members)
{
    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        members[t] = lnt_freeze_in_lane(optim, t) == lane;
        if (lane && members[t]) optim->lane_elems += optim->tensors[t].count;
    }
}

lnt_status_t lnt_freeze_add_programs(lnt_optim_t *optim, const lnt_stage_t *warm, const lnt_stage_t *sign,
                                     const lnt_stage_t *lane)
{
    const lnt_freezing_t *freezing = optim->row->freezing;
    uint8_t *members = lnt_plan_alloc(optim->n_tensors, "members of programs");
    lnt_program_params_t params = lnt_freeze_warm_program(optim);
    lnt_status_t status;

    if (members == NULL) return LNT_ERR_NO_MEMORY;
    lnt_late_number_blocks(optim);
    lnt_freeze_warn(optim);
    params.stage = *warm;
    LNT_TRY_GOTO(status, choose_grids(optim, &params.codec), out);
    LNT_TRY_GOTO(status, lnt_freeze_add_program(optim, params, freezing->warm), out);
    choose_members(optim, false, members);
    params = lnt_freeze_sign_program(optim, members);
    params.stage = *sign;
    LNT_TRY_GOTO(status, lnt_freeze_add_program(optim, params, freezing->sign), out);
    choose_members(optim, true, members);
    params = lnt_freeze_lane_program(optim, members);
    params.stage = *lane;
    LNT_TRY_GOTO(status, lnt_freeze_add_program(optim, params, freezing->lane), out);

out:
    lnt_plan_free(members);
    return status;
}
