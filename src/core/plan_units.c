/* Programs with one scale per tensor, group or model (lnt_unit_t): a unit is a bucket of its own, padded as the
 * published implementation pads it, with one worker scale over all of it and one server scale per chunk.
 */
#include "plan_impl.h"

lnt_unit_t lnt_plan_unit(const lnt_plan_t *plan)
{
    lnt_unit_t unit = LNT_UNIT_NONE;

    for (uint32_t p = 0; p < plan->n_programs && unit == LNT_UNIT_NONE; p++)
        unit = plan->programs[p].unit;
    return unit;
}

lnt_status_t lnt_plan_check_units(const lnt_plan_t *plan)
{
    const lnt_unit_t unit = lnt_plan_unit(plan);

    for (uint32_t p = 0; p < plan->n_programs; p++) {
        if (plan->programs[p].unit == LNT_UNIT_NONE || plan->programs[p].unit == unit) continue;
        return lnt_error(LNT_ERR_INVALID_ARG, "give all programs of a plan the same unit",
                         "program \"%s\" has another unit than those before it", plan->programs[p].name);
    }
    return LNT_OK;
}

/* Of units larger than a tensor. */
static bool in_unit(const lnt_plan_t *plan, lnt_unit_t unit, uint32_t tensor, uint32_t first)
{
    return unit == LNT_UNIT_MODEL || plan->tensors[tensor].params.group == plan->tensors[first].params.group;
}

static uint32_t count_groups(const lnt_plan_t *plan)
{
    uint32_t n = 0;

    for (uint32_t t = 0; t < plan->n_tensors; t++)
        n = plan->tensors[t].params.group < n ? n : plan->tensors[t].params.group + 1;
    return n;
}

/* The unit of tensor `first`: by group, then in order of registration. */
static size_t list_unit(const lnt_plan_t *plan, lnt_unit_t unit, uint32_t first, lnt_extent_t *extents)
{
    const uint32_t n_groups = unit != LNT_UNIT_TENSOR ? count_groups(plan) : 0;
    size_t n = 0;

    if (unit == LNT_UNIT_TENSOR && plan->tensors[first].params.count != 0)
        extents[n++] = (lnt_extent_t){first, 0, plan->tensors[first].params.count};
    for (uint32_t g = 0; g < n_groups; g++) {
        for (uint32_t t = 0; t < plan->n_tensors; t++) {
            const lnt_tensor_params_t *params = &plan->tensors[t].params;
            if (params->group == g && params->count != 0 && in_unit(plan, unit, t, first))
                extents[n++] = (lnt_extent_t){t, 0, params->count};
        }
    }
    return n;
}

/* A tensor opens a unit if none before it is in the same one. */
static bool opens_unit(const lnt_plan_t *plan, lnt_unit_t unit, uint32_t tensor)
{
    for (uint32_t t = 0; unit != LNT_UNIT_TENSOR && t < tensor; t++) {
        if (in_unit(plan, unit, tensor, t)) return false;
    }
    return true;
}

lnt_status_t lnt_plan_cut_units(const lnt_plan_t *plan, lnt_bucket_fn_t emit, void *arg)
{
    const lnt_unit_t unit = lnt_plan_unit(plan);
    lnt_extent_t *extents = lnt_calloc(plan->n_tensors + 1, sizeof(*extents), "extents of a unit");
    lnt_status_t status = LNT_OK;

    if (extents == NULL) return LNT_ERR_NO_MEMORY;
    for (uint32_t t = 0; t < plan->n_tensors && status >= 0; t++) {
        size_t n = opens_unit(plan, unit, t) ? list_unit(plan, unit, t, extents) : 0;
        if (n != 0) status = emit(arg, extents, n);
    }
    lnt_free(extents);
    return status;
}

lnt_status_t lnt_plan_fit_unit(const lnt_plan_t *plan, lnt_extent_t *extents, lnt_exchange_params_t *params)
{
    const uint64_t n_ranks = plan->comm->n_ranks;
    uint64_t count = 0, padded;

    for (size_t i = 0; i < params->n_extents; i++)
        count += extents[i].count;
    padded = lnt_unit_padded(count, n_ranks);
    if (padded > UINT32_MAX) {
        return lnt_error(LNT_ERR_UNSUPPORTED, "use smaller units: unit=tensor",
                         "a unit of %llu elements: one scale is for less than 2^32", (unsigned long long)count);
    }
    if (padded != count) {
        extents[params->n_extents++] =
            (lnt_extent_t){LNT_TENSOR_PAD, extents[0].tensor * (LNT_PAD_PLACE(UINT64_MAX) + 1), padded - count};
    }
    params->packed = true;
    params->codec.cfg.block = (uint32_t)(padded / n_ranks);
    params->scale_block = (uint32_t)padded;
    return LNT_OK;
}
