/* What the rows of compat=deepspeed share: programs, phases, the mask. */
#include "compat.h"

#include <string.h>

/* In the order of lnt_unit_t; the first is no choice of users. */
const char *const lnt_unit_words[] = {"none", "tensor", "group", "model", NULL};

bool lnt_compat_is_dry(const lnt_phase_stats_t *stats)
{
    return stats->committed == 0;
}

bool lnt_compat_is_frozen(const lnt_phase_stats_t *stats)
{
    return stats->frozen;
}

bool lnt_compat_always(const lnt_phase_stats_t *stats)
{
    (void)stats;
    return true;
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

lnt_status_t lnt_compat_add_programs(lnt_optim_t *optim, lnt_unit_t unit, const lnt_stage_t *warm,
                                     const lnt_stage_t *sign, const lnt_stage_t *lane)
{
    lnt_program_params_t coded = {.name = "sign", .codec = {.name = "sign1"}, .unit = unit, .stage = *sign};
    uint8_t *members = lnt_plan_alloc(optim->n_tensors, "members of programs");
    lnt_status_t status;

    if (members == NULL) return LNT_ERR_NO_MEMORY;
    LNT_TRY_GOTO(status, lnt_freeze_add_program(optim, mean_program("warm", warm, NULL), LNT_COMPAT_WARM), out);
    for (uint32_t t = 0; t < optim->n_tensors; t++)
        members[t] = !optim->groups[optim->tensors[t].group].values.non_freeze;
    coded.member = members;
    LNT_TRY_GOTO(status, lnt_freeze_add_program(optim, coded, LNT_COMPAT_SIGN), out);
    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        members[t] = !members[t];
        if (members[t]) optim->lane_elems += optim->tensors[t].count;
    }
    LNT_TRY_GOTO(status, lnt_freeze_add_program(optim, mean_program("lane", lane, members), LNT_COMPAT_LANE), out);

out:
    lnt_plan_free(members);
    return status;
}

lnt_status_t lnt_compat_set_mask(lnt_optim_t *optim, uint32_t number, const uint8_t *mask)
{
    const lnt_optim_tensor_t *tensor = &optim->tensors[number];

    for (uint64_t i = 0; i < tensor->count; i++)
        lnt_compat_masked(optim)[tensor->base + i] = mask != NULL && mask[i] == 0;
    return LNT_OK;
}
