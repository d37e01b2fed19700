/* A step of an optimizer over a step of its plan, and what can be asked about it. */
#include <math.h>
#include <string.h>

#include "../src/base/fp_env.h"
#include "../src/base/hash.h"
#include "freeze.h"
#include "optim_impl.h"

/* Constants of every group as they will be if this step commits. Nothing else changes before the verdict. */
static void prepare_groups(lnt_optim_t *optim)
{
    for (uint32_t g = 0; g < optim->n_groups; g++) {
        lnt_optim_group_t *group = &optim->groups[g];
        const lnt_group_t *values = &group->values;
        group->next_power1 = group->power1 * values->beta1;
        group->next_power2 = group->power2 * values->beta2;
        group->k = (lnt_adam_consts_t){
            .b1 = (float)values->beta1,
            .o1 = (float)(1 - values->beta1),
            .b2 = (float)values->beta2,
            .o2 = (float)(1 - values->beta2),
            .i1 = (float)(1 / (1 - group->next_power1)),
            .i2 = (float)(1 / (1 - group->next_power2)),
            .lr = (float)values->lr,
            .eps = (float)values->eps,
            .w = optim->row->l2_decay ? 0 : (float)(values->lr * values->weight_decay),
            .l2 = optim->row->l2_decay ? (float)values->weight_decay : 0,
        };
    }
}

static uint64_t hash_f64(uint64_t hash, double value)
{
    return lnt_hash64(hash, &value, sizeof(value));
}

/* Every option the algorithm has. */
static uint64_t hash_options(uint64_t hash, const lnt_optim_t *optim)
{
    static const size_t sizes[] = {
        [LNT_CFG_U32] = sizeof(uint32_t), [LNT_CFG_U64] = sizeof(uint64_t), [LNT_CFG_F64] = sizeof(double),
        [LNT_CFG_BOOL] = sizeof(bool),    [LNT_CFG_ENUM] = sizeof(int),     [LNT_CFG_BYTES] = sizeof(uint64_t)};

    for (const lnt_cfg_row_t *row = optim->row->options; row->name != NULL; row++)
        hash = lnt_hash64(hash, (const uint8_t *)&optim->options + row->offset, sizes[row->type]);
    return hash;
}

/* All that must be equal on all ranks in this step; it travels in every frame. */
static uint32_t hyper_hash(const lnt_optim_t *optim)
{
    uint64_t hash = lnt_hash64_text(0, optim->row->name);

    hash = hash_options(hash, optim);
    for (uint32_t g = 0; g < optim->n_groups; g++) {
        const lnt_group_t *values = &optim->groups[g].values;
        hash = hash_f64(hash_f64(hash_f64(hash, values->lr), values->beta1), values->beta2);
        hash = hash_f64(hash_f64(hash, values->eps), values->weight_decay);
    }
    hash = lnt_hash64_u64(hash_f64(hash, optim->loss_scale), optim->micro_steps);
    hash = lnt_hash64_u64(lnt_hash64_u64(hash, optim->step), optim->frozen);
    hash = lnt_hash64_u64(hash, optim->mask_hash);
    return (uint32_t)(hash ^ hash >> 32);
}

/* What the last commit may have failed to build, and the row's own preparations. The others may wait for this rank's
 * frames already: who lacks memory tells them. */
static lnt_status_t prepare(lnt_optim_t *optim, lnt_step_params_t *params)
{
    lnt_status_t status = lnt_late_apply(optim);

    if (status == LNT_OK && optim->row->prepare != NULL) status = optim->row->prepare(optim, params);
    return status == LNT_ERR_NO_MEMORY ? lnt_plan_give_up(optim->plan, status) : status;
}

lnt_status_t lnt_optim_begin(lnt_optim_t *optim)
{
    LNT_FP_SCOPE();
    lnt_step_params_t params = {.struct_size = sizeof(params)};

    LNT_CHECK_ARG(optim != NULL);
    params.programs = lnt_optim_current_phase(optim)->programs;
    params.loss_scale = optim->loss_scale;
    params.micro_steps = optim->micro_steps;
    params.hyper_hash = hyper_hash(optim);
    params.step = optim->step;
    params.local = true;   /* rows may read gradients that do not travel; accumulated ones are for this step alone */
    if (!optim->in_step) { /* a step inside a step is refused below, and the constants are in use */
        prepare_groups(optim);
        if (optim->row->begin != NULL) optim->row->begin(optim);
        params.hooks = lnt_clip_hooks(optim);
        LNT_TRY(prepare(optim, &params));
    }
    LNT_TRY(lnt_plan_begin(optim->plan, &params));
    optim->clipped = false;
    optim->next_norm = 0;
    optim->in_step = true;
    return LNT_OK;
}

lnt_status_t lnt_optim_tensor_ready(lnt_optim_t *optim, uint32_t tensor, const void *grad, void *stream)
{
    LNT_CHECK_ARG(optim != NULL);
    return lnt_plan_tensor_ready(optim->plan, tensor, grad, stream);
}

lnt_status_t lnt_optim_accumulate(lnt_optim_t *optim, uint32_t tensor, const void *grad)
{
    LNT_CHECK_ARG(optim != NULL);
    return lnt_plan_accumulate(optim->plan, tensor, grad);
}

lnt_status_t lnt_optim_veto(lnt_optim_t *optim)
{
    LNT_CHECK_ARG(optim != NULL);
    return lnt_plan_veto(optim->plan);
}

/* For experiments: forget errors after the commit. */
static lnt_status_t limit_feedback(lnt_optim_t *optim)
{
    lnt_error_extent_t extent;
    lnt_status_t status = LNT_OK;

    if (optim->options.error_feedback == LNT_FEEDBACK_FULL) return LNT_OK;
    for (size_t i = 0; (status = lnt_plan_error_extent(optim->plan, i, &extent)) == LNT_OK; i++) {
        if (extent.server || optim->options.error_feedback == LNT_FEEDBACK_NONE) {
            lnt_plan_write_error(&extent, NULL);
        }
    }
    return status == LNT_ERR_OUT_OF_RANGE ? LNT_OK : status;
}

static void advance(lnt_optim_t *optim)
{
    optim->step++;
    for (uint32_t g = 0; g < optim->n_groups; g++) {
        optim->groups[g].power1 = optim->groups[g].next_power1;
        optim->groups[g].power2 = optim->groups[g].next_power2;
    }
    optim->grad_norm = optim->next_norm;
    optim->clip_factor = optim->clip.factor;
}

lnt_status_t lnt_optim_end(lnt_optim_t *optim)
{
    LNT_FP_SCOPE();
    lnt_status_t status;

    LNT_CHECK_ARG(optim != NULL);
    status = lnt_plan_end(optim->plan);
    if (status == LNT_ERR_INVALID_USAGE) return status; /* no step was running */
    optim->in_step = false;
    if (status > 0 || status == LNT_ERR_DIVERGED) {
        optim->skipped++;
        if (optim->row->skipped != NULL) optim->row->skipped(optim);
    }
    status = lnt_scaler_after(optim, status);
    if (status != LNT_OK) return status;
    advance(optim);
    lnt_clip_committed(optim);
    LNT_TRY(limit_feedback(optim));
    return optim->row->committed != NULL ? optim->row->committed(optim) : LNT_OK;
}

lnt_status_t lnt_optim_step(lnt_optim_t *optim, const void *const *grads)
{
    lnt_status_t ready = LNT_OK, end;

    LNT_CHECK_ARG(optim != NULL && (grads != NULL || optim->n_tensors == 0));
    LNT_TRY(lnt_optim_begin(optim));
    for (uint32_t t = 0; t < optim->n_tensors && ready == LNT_OK; t++)
        ready = lnt_optim_tensor_ready(optim, t, grads[t], NULL);
    end = lnt_optim_end(optim); /* always, so that the step is over whatever happened */
    return ready < 0 ? ready : end;
}

/* ---- queries ---- */

static uint64_t memory_bytes(const lnt_optim_t *optim)
{
    uint64_t bytes = optim->n_scratch * LNT_SPAN_MAX * sizeof(float) + optim->n_work * sizeof(double);

    bytes += lnt_clip_memory(optim) + optim->zero_one_bytes;

    for (const lnt_state_array_t *array = optim->row->arrays; array->name != NULL; array++)
        bytes += optim->room * array->elem_bytes;
    for (uint32_t i = 0; i < lnt_optim_n_values(optim->row); i++)
        bytes += optim->n_values[i] * sizeof(double);
    return bytes;
}

static uint64_t late_touched(const lnt_optim_t *optim)
{
    const bool counted = optim->frozen && optim->row->freezing != NULL && optim->row->freezing->late_comers;

    return counted ? (uint64_t)optim->values[LNT_FREEZE_LATE_TOUCHED][0] : 0;
}

lnt_status_t lnt_optim_get_info(const lnt_optim_t *optim, lnt_optim_info_t *info_p)
{
    LNT_CHECK_ARG(optim != NULL && info_p != NULL);
    LNT_CHECK_STRUCT(info_p);
    *info_p = (lnt_optim_info_t){.struct_size = sizeof(*info_p),
                                 .phase = lnt_optim_current_phase(optim)->phase,
                                 .step = optim->step,
                                 .skipped = optim->skipped,
                                 .grad_norm = optim->grad_norm,
                                 .clip_factor = optim->clip_factor,
                                 .dead_share = optim->dead_share,
                                 .dropped_norm = optim->dropped_norm,
                                 .lane_elems = optim->frozen ? optim->lane_elems : 0,
                                 .memory_bytes = memory_bytes(optim),
                                 .late_blocks = optim->n_latched,
                                 .residual_saved = optim->imported.before,
                                 .residual_loaded = optim->imported.after,
                                 .residual_magnitude = optim->imported.magnitude,
                                 .late_touched = late_touched(optim)};
    return LNT_OK;
}

/* First element of a tensor in an array. */
static const void *array_of(const lnt_optim_t *optim, uint32_t array, const lnt_optim_tensor_t *tensor)
{
    return (const uint8_t *)optim->arrays[array] + tensor->base * optim->row->arrays[array].elem_bytes;
}

const void *lnt_optim_view(const lnt_optim_t *optim, const char *name, uint32_t tensor)
{
    if (optim == NULL || name == NULL || tensor >= optim->n_tensors) return NULL;
    for (uint32_t i = 0; optim->row->arrays[i].name != NULL; i++) {
        const lnt_state_array_t *array = &optim->row->arrays[i];
        if (strcmp(array->name, name) != 0) continue;
        return lnt_optim_holds(optim, array) ? array_of(optim, i, &optim->tensors[tensor]) : NULL;
    }
    return NULL;
}

const double *lnt_optim_values(const lnt_optim_t *optim, const char *name, uint64_t *count_p)
{
    if (optim == NULL || name == NULL) return NULL;
    for (uint32_t i = 0; i < lnt_optim_n_values(optim->row); i++) {
        const lnt_state_values_t *values = lnt_optim_values_row(optim->row, i);
        if (strcmp(values->name, name) != 0) continue;
        if (!lnt_optim_holds_values(optim, values)) return NULL;
        if (count_p != NULL) *count_p = optim->n_values[i];
        return optim->values[i];
    }
    return NULL;
}

static uint64_t hash_values(uint64_t hash, const lnt_optim_t *optim)
{
    for (uint32_t i = 0; i < lnt_optim_n_values(optim->row); i++) {
        const lnt_state_values_t *values = lnt_optim_values_row(optim->row, i);
        if (!values->local && !values->skips_change && lnt_optim_holds_values(optim, values))
            hash = lnt_hash64(hash, optim->values[i], optim->n_values[i] * sizeof(double));
    }
    return hash;
}

uint64_t lnt_optim_hash(const lnt_optim_t *optim)
{
    uint64_t hash = lnt_hash64_u64(lnt_hash64_text(0, optim->row->name), optim->step);

    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        const lnt_optim_tensor_t *tensor = &optim->tensors[t];
        if (!optim->row->masters_differ) hash = lnt_hash64(hash, tensor->x, tensor->count * sizeof(float));
        for (uint32_t i = 0; optim->row->arrays[i].name != NULL; i++) {
            const lnt_state_array_t *array = &optim->row->arrays[i];
            if (!array->local && lnt_optim_holds(optim, array))
                hash = lnt_hash64(hash, array_of(optim, i, tensor), tensor->count * array->elem_bytes);
        }
    }
    for (uint32_t g = 0; g < optim->n_groups; g++)
        hash = hash_f64(hash_f64(hash, optim->groups[g].power1), optim->groups[g].power2);
    return lnt_hash64_u64(hash_values(hash, optim), optim->frozen);
}
