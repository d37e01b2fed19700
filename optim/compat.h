/* compat=deepspeed: rows that follow the published implementation step by step, its quirks included (docs/optimizers.md
 * has the list). They share programs, the mask and the arithmetic of a step; default rows know nothing of them.
 *
 * The first step is the reference's dry run: it counts and does nothing else. No bias correction, the whole vector of a
 * unit under one scale, pads coded as data, and the variance frozen after freeze_step - 1 updates.
 */
#ifndef LNT_COMPAT_H
#define LNT_COMPAT_H

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "freeze.h"
#include "loss_scale.h"

/* Programs: `warm` carries the mean gradient in f32, `sign` is coded, `lane` is the mean gradient of non_freeze groups.
 */
enum { LNT_COMPAT_WARM, LNT_COMPAT_SIGN, LNT_COMPAT_LANE, LNT_COMPAT_PROGRAMS };
enum { LNT_COMPAT_MASKED = LNT_ADAM_ARRAYS, LNT_COMPAT_ARRAYS };

#define LNT_COMPAT_ARRAY_ROWS                                                                                          \
    [LNT_ADAM_M] = {.name = "exp_avg", .elem_bytes = sizeof(float)},                                                   \
    [LNT_ADAM_V] = {.name = "exp_avg_sq", .elem_bytes = sizeof(float), .never_negative = true},                        \
    [LNT_COMPAT_MASKED] = {.name = "masked", .elem_bytes = 1} /* 1: the decoded value is dropped */

extern const char *const lnt_unit_words[];

// clang-format off
#define LNT_OPTION_COMPAT \
    {"compat", "off", \
     "deepspeed: another algorithm of this name, which follows the published implementation step by step", \
     offsetof(lnt_optim_options_t, compat), LNT_CFG_ENUM, lnt_compat_words, 0, 0}
#define LNT_OPTION_COMPAT_FREEZE_STEP \
    {"freeze_step", "100000", "v has freeze_step - 1 updates: the first step is a dry run; below 2 counts as 2", \
     offsetof(lnt_optim_options_t, freeze_step), LNT_CFG_U64, NULL, 0, 1e18}
#define LNT_OPTION_UNIT \
    {"unit", "tensor", \
     "what has one worker scale: tensor (the reference in f32), group (the reference in f16: one flat buffer per group) " \
     "or model", \
     offsetof(lnt_optim_options_t, unit), LNT_CFG_ENUM, lnt_unit_words, 0, 0}
#define LNT_OPTIONS_END {NULL, NULL, NULL, 0, LNT_CFG_U32, NULL, 0, 0}
// clang-format on

/* Adds all three in the order of their numbers; tensors of non_freeze groups are in the lane instead of `sign`. No lane
 * (NULL): there are no such groups. */
lnt_status_t lnt_compat_add_programs(lnt_optim_t *optim, lnt_unit_t unit, const lnt_stage_t *warm,
                                     const lnt_stage_t *sign, const lnt_stage_t *lane);
lnt_status_t lnt_compat_check(const lnt_optim_options_t *options); /* the unit */
lnt_status_t lnt_compat_set_mask(lnt_optim_t *optim, uint32_t tensor, const uint8_t *mask);

bool lnt_compat_freezes(const lnt_optim_t *optim);                  /* after a commit: it is frozen from here on */
uint64_t lnt_compat_pads(const lnt_optim_t *optim, uint64_t count); /* of a unit of `count` elements */

/* Of a phase. */
bool lnt_compat_is_dry(const lnt_phase_stats_t *stats);

/* ---- the arithmetic: each operation rounds to f32 ---- */

static inline void lnt_compat_moments(const lnt_adam_consts_t *k, float g, float *m, float *v)
{
    *m = lnt_adam_momentum(k, *m, g);
    *v = k->b2 * *v + k->o2 * (g * g);
}

static inline float lnt_compat_root(const lnt_adam_consts_t *k, float v)
{
    return sqrtf(v) + k->eps;
}

/* Decay that is not above 0 does nothing, as there. */
static inline float lnt_compat_decay(const lnt_optim_group_t *group)
{
    return group->values.weight_decay > 0 ? (float)group->values.weight_decay : 0;
}

static inline float lnt_compat_direction(const lnt_adam_consts_t *k, float decay, float m, float v, float x)
{
    float u = m / lnt_compat_root(k, v);

    return decay != 0 ? u + decay * x : u;
}

/* rate: minus the learning rate, with its coefficient if it has one, a product of f64 rounded once. */
static inline float lnt_compat_move(float rate, float u, float x)
{
    return x + rate * u;
}

static inline uint8_t *lnt_compat_masked(const lnt_optim_t *optim)
{
    return optim->arrays[LNT_COMPAT_MASKED];
}

extern const lnt_optim_row_t lnt_compat_adam_row, lnt_compat_lamb_row, lnt_compat_zero_one_row;

#endif
