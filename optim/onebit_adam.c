/* 1-bit Adam (Tang et al., ICML 2021): Adam until the freeze, then v stands and the momentum travels as signs.
 *
 * Programs (freeze.h): `warm` carries the gradient before the freeze; after it `sign` carries beta1 m + (1 - beta1) g
 * of long tensors and `lane` the plain f32 gradient of the others. With compression=off `sign` is an f32 exchange of
 * the same momentum: the uncompressed twin. Dead coordinates (docs/optimizers.md) stand still from the freeze on;
 * those that come alive later go by the f32 lane, block by block, until they may join the signs (late.c).
 */
#include "compat.h"
#include "freeze.h"
#include "update.h"

static const lnt_state_array_t arrays[] = {LNT_FREEZE_ARRAY_ROWS, [LNT_FREEZE_ARRAYS] = {.name = NULL}};

static const lnt_state_values_t values[] = {LNT_FREEZE_VALUE_ROWS, [LNT_FREEZE_VALUES] = {.name = NULL}};

static const lnt_cfg_row_t options[] = {LNT_FREEZE_OPTIONS, LNT_OPTION_COMPAT, LNT_OPTIONS_END};
static const lnt_optim_variant_t variants[] = {{"compat", "deepspeed", &lnt_compat_adam_row}, {NULL, NULL, NULL}};

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
    const uint8_t *dead = lnt_freeze_dead_span(optim, tensor, at); /* the twin's program has no live mask */

    (void)live;
    lnt_updates()->frozen(&optim->groups[tensor->group].k, value, lnt_optim_f32(optim, LNT_FREEZE_DENOMINATOR) + at,
                          dead, optim->n_elems >= LNT_STREAM_ELEMS, span->count, lnt_optim_f32(optim, LNT_ADAM_M) + at,
                          tensor->x + span->offset);
    lnt_plan_publish(optim->plan, span->tensor, span->offset, span->count);
}

static lnt_status_t add_programs(lnt_optim_t *optim)
{
    const lnt_stage_t warm = {.survey = lnt_clip_survey, .consume = lnt_adam_consume};
    const lnt_stage_t sign = {.produce_wire = produce_momentum, .consume = consume_momentum};
    const lnt_stage_t lane = {.consume = lnt_late_consume};

    return lnt_freeze_add_programs(optim, &warm, &sign, &lane);
}

const lnt_optim_row_t lnt_onebit_adam_row = {
    .name = "onebit_adam",
    .doc = "1-bit Adam: AdamW until the freeze, then the momentum travels as signs",
    .options = options,
    .phases = lnt_freeze_phases,
    .freezing = &lnt_freezing_default,
    .arrays = arrays,
    .values = values,
    .check = lnt_freeze_check,
    .add_programs = add_programs,
    .committed = lnt_freeze_committed,
    .restored = lnt_freeze_restored,
    .variants = variants};
