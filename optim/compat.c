/* What the rows of compat=deepspeed share: programs, phases, the mask. */
#include "compat.h"

#include <string.h>

/* In the order of lnt_unit_t; the first is no choice of users. */
const char *const lnt_unit_words[] = {"none", "tensor", "group", "model", NULL};

bool lnt_compat_is_dry(const lnt_phase_stats_t *stats)
{
    return stats->committed == 0;
}

lnt_status_t lnt_compat_check(const lnt_optim_options_t *options)
{
    if (options->unit != LNT_UNIT_NONE) return LNT_OK;
    return lnt_error(LNT_ERR_INVALID_ARG, "use tensor, group or model", "option unit=none");
}

static lnt_program_params_t mean_program(const char *name, const lnt_stage_t *stage, const uint8_t *members)
{
    return (lnt_program_params_t){
        .name = name, .codec = {.name = "f32"}, .member = members, .feeds_v = true, .flat = true, .stage = *stage};
}

/* Norms are f64 sums over blocks of what carries the mean. */
static lnt_status_t choose_norm_block(lnt_optim_t *optim)
{
    lnt_codec_t codec;

    LNT_TRY(lnt_codec_init(&codec, "f32", 0, LNT_SCALE_L2));
    optim->norm_block = optim->read_block = codec.cfg.block;
    return LNT_OK;
}

lnt_status_t lnt_compat_add_programs(lnt_optim_t *optim, lnt_unit_t unit, const lnt_stage_t *warm,
                                     const lnt_stage_t *sign, const lnt_stage_t *lane)
{
    lnt_program_params_t coded = {.name = "sign", .codec = {.name = "sign1"}, .unit = unit, .stage = *sign};
    uint8_t *members = lnt_plan_alloc(optim->n_tensors, "members of programs");
    lnt_status_t status;

    if (members == NULL) return LNT_ERR_NO_MEMORY;
    LNT_TRY_GOTO(status, choose_norm_block(optim), out);
    LNT_TRY_GOTO(status, lnt_freeze_add_program(optim, mean_program("warm", warm, NULL), LNT_COMPAT_WARM), out);
    for (uint32_t t = 0; t < optim->n_tensors; t++)
        members[t] = lane == NULL || !optim->groups[optim->tensors[t].group].values.non_freeze;
    coded.member = members;
    LNT_TRY_GOTO(status, lnt_freeze_add_program(optim, coded, LNT_COMPAT_SIGN), out);
    if (lane == NULL) goto out;
    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        members[t] = !members[t];
        if (members[t]) optim->lane_elems += optim->tensors[t].count;
    }
    LNT_TRY_GOTO(status, lnt_freeze_add_program(optim, mean_program("lane", lane, members), LNT_COMPAT_LANE), out);

out:
    lnt_plan_free(members);
    return status;
}

bool lnt_compat_freezes(const lnt_optim_t *optim)
{
    return optim->frozen || (optim->step >= 2 && optim->step >= optim->options.freeze_step);
}

uint64_t lnt_compat_pads(const lnt_optim_t *optim, uint64_t count)
{
    lnt_comm_info_t info = {.struct_size = sizeof(info)};

    (void)lnt_comm_get_info(lnt_plan_comm(optim->plan), &info);
    return lnt_unit_padded(count, info.n_ranks) - count;
}

lnt_status_t lnt_compat_set_mask(lnt_optim_t *optim, uint32_t number, const uint8_t *mask)
{
    const lnt_optim_tensor_t *tensor = &optim->tensors[number];

    for (uint64_t i = 0; i < tensor->count; i++)
        lnt_compat_masked(optim)[tensor->base + i] = mask != NULL && mask[i] == 0;
    return LNT_OK;
}
