/* Optimizer objects: creation, groups, scaling, destruction. The algorithm itself is behind the row. */
#include <math.h>
#include <string.h>

#include "../src/base/fp_env.h"
#include "optim_impl.h"

enum { ALIGN_ELEMS = 16 };

void lnt_group_defaults(lnt_group_t *group)
{
    *group = (lnt_group_t){.struct_size = sizeof(*group), .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
}

static lnt_status_t check_group(uint32_t number, const lnt_group_t *group)
{
    LNT_CHECK_STRUCT(group);
    /* The update is computed in f32: what overflows there would make parameters infinite. */
    if (isfinite((float)group->lr) && group->beta1 >= 0 && group->beta1 < 1 && group->beta2 >= 0 && group->beta2 < 1 &&
        isfinite((float)group->eps) && (float)group->eps > 0 && isfinite((float)group->weight_decay) &&
        isfinite((float)(group->lr * group->weight_decay))) {
        return LNT_OK;
    }
    return lnt_error(LNT_ERR_INVALID_ARG,
                     "betas lie in [0, 1), eps is above 0, all values and lr * weight_decay fit f32",
                     "group %u: lr %g, beta1 %g, beta2 %g, eps %g, weight_decay %g", number, group->lr, group->beta1,
                     group->beta2, group->eps, group->weight_decay);
}

static const lnt_optim_row_t *find_row(const char *name)
{
    const lnt_optim_row_t *row = lnt_optim_row_by_name(name);
    const char *nearest;
    size_t n = 0;

    if (row != NULL) return row;
    while (lnt_optim_list()[n] != NULL)
        n++;
    nearest = lnt_nearest_name(name, lnt_optim_list(), n);
    (void)lnt_error(LNT_ERR_INVALID_ARG, "lnt_optim_list, docs/optimizers.md and `linnet-bert --list` name them",
                    "there is no algorithm \"%s\"%s%s%s", name, nearest != NULL ? "; did you mean \"" : "",
                    nearest != NULL ? nearest : "", nearest != NULL ? "\"?" : "");
    return NULL;
}

/* The caller's header may have a larger lnt_group_t. */
static const lnt_group_t *group_at(const lnt_optim_params_t *params, uint32_t number)
{
    const uint8_t *first = (const uint8_t *)params->groups;

    return (const lnt_group_t *)(const void *)(first + number * params->groups->struct_size);
}

static lnt_status_t copy_groups(lnt_optim_t *optim, const lnt_optim_params_t *params)
{
    lnt_group_t defaults;

    lnt_group_defaults(&defaults);
    optim->n_groups = params->groups != NULL ? params->n_groups : 1;
    LNT_CHECK_ARG(optim->n_groups != 0);
    for (uint32_t g = 0; params->groups != NULL && g < params->n_groups; g++)
        LNT_TRY(check_group(g, group_at(params, g)));
    optim->groups = lnt_plan_alloc(optim->n_groups * sizeof(*optim->groups), "optimizer groups");
    if (optim->groups == NULL) return LNT_ERR_NO_MEMORY;
    for (uint32_t g = 0; g < optim->n_groups; g++) {
        optim->groups[g].values = params->groups != NULL ? *group_at(params, g) : defaults;
        optim->groups[g].values.struct_size = sizeof(lnt_group_t);
        optim->groups[g].power1 = optim->groups[g].power2 = 1.0;
    }
    return LNT_OK;
}

/* Where a tensor's statistics begin: behind those of the tensor before it. */
static void place_statistics(lnt_optim_t *optim, uint32_t number)
{
    lnt_optim_tensor_t *tensor = &optim->tensors[number];
    const lnt_optim_tensor_t *last = number != 0 ? tensor - 1 : NULL;

    if (last == NULL) return;
    tensor->row_at = last->row_at + last->rows;
    tensor->col_at = last->col_at + last->cols;
    tensor->whole_at = last->whole_at + (last->rows == 0 ? last->count : 0);
}

static lnt_status_t list_tensors(lnt_optim_t *optim)
{
    lnt_plan_info_t info = {.struct_size = sizeof(info)};

    LNT_TRY(lnt_plan_get_info(optim->plan, &info));
    optim->n_tensors = info.n_tensors;
    optim->n_elems = info.n_elems;
    optim->tensors = lnt_plan_alloc(info.n_tensors * sizeof(*optim->tensors), "optimizer tensors");
    if (optim->tensors == NULL) return LNT_ERR_NO_MEMORY;
    for (uint32_t t = 0; t < info.n_tensors; t++) {
        lnt_tensor_params_t params;
        LNT_TRY(lnt_plan_get_tensor(optim->plan, t, &params));
        if (params.group >= optim->n_groups) {
            return lnt_error(LNT_ERR_INVALID_ARG, "pass one lnt_group_t per group in lnt_optim_params_t.groups",
                             "tensor \"%s\" is in group %u, there are %u", params.name, params.group, optim->n_groups);
        }
        optim->tensors[t] = (lnt_optim_tensor_t){.base = optim->room,
                                                 .count = params.count,
                                                 .rows = params.rows,
                                                 .cols = params.cols,
                                                 .group = params.group,
                                                 .x = lnt_plan_master(optim->plan, t)};
        place_statistics(optim, t);
        optim->room += (params.count + ALIGN_ELEMS - 1) / ALIGN_ELEMS * ALIGN_ELEMS;
    }
    return LNT_OK;
}

static lnt_status_t allocate_votes(lnt_optim_t *optim)
{
    lnt_comm_info_t info = {.struct_size = sizeof(info)};

    LNT_TRY(lnt_comm_get_info(lnt_plan_comm(optim->plan), &info));
    optim->votes = lnt_plan_alloc(info.n_ranks * sizeof(*optim->votes), "votes of an import");
    optim->error_bytes = lnt_plan_alloc(info.n_ranks * sizeof(*optim->error_bytes), "lengths of saved errors");
    return optim->votes != NULL && optim->error_bytes != NULL ? LNT_OK : LNT_ERR_NO_MEMORY;
}

uint64_t lnt_values_one(const lnt_optim_t *optim)
{
    (void)optim;
    return 1;
}

uint64_t lnt_values_per_tensor(const lnt_optim_t *optim)
{
    return optim->n_tensors;
}

uint64_t lnt_values_per_group(const lnt_optim_t *optim)
{
    return optim->n_groups;
}

static lnt_status_t allocate_values(lnt_optim_t *optim)
{
    for (uint32_t i = 0; i < lnt_optim_n_values(optim->row); i++) {
        const lnt_state_values_t *values = lnt_optim_values_row(optim->row, i);
        optim->n_values[i] = values->count(optim);
        optim->values[i] = lnt_plan_alloc(optim->n_values[i] * sizeof(double), values->name);
        if (optim->values[i] == NULL) return LNT_ERR_NO_MEMORY;
        for (uint64_t k = 0; k < optim->n_values[i]; k++)
            optim->values[i][k] = values->initial;
    }
    return LNT_OK;
}

static lnt_status_t allocate_work(lnt_optim_t *optim)
{
    optim->n_scratch = optim->row->n_scratch;
    if (optim->n_scratch == 0 && optim->options.clip != 0) optim->n_scratch = 1;
    if (optim->n_scratch != 0) {
        optim->scratch = lnt_plan_alloc(optim->n_scratch * LNT_SPAN_MAX * sizeof(float), "scratch for norms");
        if (optim->scratch == NULL) return LNT_ERR_NO_MEMORY;
    }
    if (optim->row->work_count == NULL) return LNT_OK;
    optim->n_work = optim->row->work_count(optim);
    optim->work = lnt_plan_alloc(optim->n_work * sizeof(double), "numbers of a running step");
    return optim->work != NULL ? LNT_OK : LNT_ERR_NO_MEMORY;
}

static lnt_status_t allocate_state(lnt_optim_t *optim)
{
    for (uint32_t i = 0; optim->row->arrays[i].name != NULL; i++) {
        const lnt_state_array_t *array = &optim->row->arrays[i];
        optim->arrays[i] = lnt_plan_alloc(optim->room * array->elem_bytes, array->name);
        if (optim->arrays[i] == NULL) return LNT_ERR_NO_MEMORY;
    }
    LNT_TRY(allocate_values(optim));
    return allocate_work(optim);
}

static void free_optim(lnt_optim_t *optim)
{
    lnt_clip_destroy(optim);
    lnt_plan_free(optim->groups);
    lnt_plan_free(optim->tensors);
    for (uint32_t i = 0; i < LNT_ARRAYS_MAX; i++)
        lnt_plan_free(optim->arrays[i]);
    for (uint32_t i = 0; i < LNT_VALUES_MAX; i++)
        lnt_plan_free(optim->values[i]);
    lnt_plan_free(optim->scratch);
    lnt_plan_free(optim->work);
    lnt_plan_free(optim->zero_one);
    lnt_plan_free(optim->votes);
    lnt_plan_free(optim->error_bytes);
    lnt_plan_free(optim);
}

static lnt_status_t fill(lnt_optim_t *optim, const lnt_optim_params_t *params)
{
    const char *text = params->options != NULL ? params->options : "";

    optim->micro_steps = 1;
    optim->clip_factor = 1.0;
    LNT_TRY(lnt_config_defaults(optim->row->options, &optim->options));
    LNT_TRY(lnt_config_from_text(optim->row->options, optim->row->name, text, &optim->options));
    LNT_TRY(lnt_optim_check_names(optim->row, text));
    if (optim->row->check != NULL) LNT_TRY(optim->row->check(&optim->options));
    LNT_TRY(copy_groups(optim, params));
    if (optim->row->own_masters) LNT_TRY(lnt_plan_own_masters(optim->plan));
    LNT_TRY(list_tensors(optim));
    LNT_TRY(allocate_votes(optim));
    LNT_TRY(allocate_state(optim));
    LNT_TRY(lnt_scaler_start(optim));
    LNT_TRY(optim->row->add_programs(optim));
    LNT_TRY(lnt_clip_create(optim));
    return lnt_optim_set_settings(optim);
}

lnt_status_t lnt_optim_create_row(lnt_plan_t *plan, const lnt_optim_row_t *row, const lnt_optim_params_t *params,
                                  lnt_optim_t **optim_p)
{
    LNT_FP_SCOPE();
    lnt_optim_t *optim;
    lnt_status_t status;

    LNT_TRY(lnt_plan_attach(plan));
    optim = lnt_plan_alloc(sizeof(*optim), "optimizer");
    if (optim == NULL) {
        status = LNT_ERR_NO_MEMORY;
        goto err_detach;
    }
    optim->plan = plan;
    LNT_TRY_GOTO(status, lnt_optim_choose_row(row, params->options, &optim->row), err_free);
    LNT_TRY_GOTO(status, fill(optim, params), err_free);
    *optim_p = optim;
    return LNT_OK;

err_free:
    free_optim(optim);
err_detach:
    lnt_plan_detach(plan);
    return status;
}

lnt_status_t lnt_optim_create(lnt_plan_t *plan, const lnt_optim_params_t *params, lnt_optim_t **optim_p)
{
    const lnt_optim_row_t *row;

    LNT_CHECK_ARG(plan != NULL && params != NULL && optim_p != NULL);
    LNT_CHECK_STRUCT(params);
    LNT_CHECK_ARG(params->algorithm != NULL);
    row = find_row(params->algorithm);
    if (row == NULL) return LNT_ERR_INVALID_ARG;
    return lnt_optim_create_row(plan, row, params, optim_p);
}

lnt_status_t lnt_optim_destroy(lnt_optim_t *optim)
{
    lnt_status_t failure;

    if (optim == NULL) return LNT_OK;
    failure = lnt_comm_async_error(lnt_plan_comm(optim->plan), NULL);
    if (failure == LNT_ERR_INVALID_USAGE) return failure; /* a forked child */
    if (optim->in_step && failure == LNT_OK) {
        return lnt_error(LNT_ERR_INVALID_USAGE, "call lnt_optim_end first", "the optimizer is in a step");
    }
    lnt_plan_detach(optim->plan);
    free_optim(optim);
    return LNT_OK;
}

lnt_status_t lnt_optim_check_idle(const lnt_optim_t *optim, const char *call)
{
    if (!optim->in_step) return LNT_OK;
    return lnt_error(LNT_ERR_INVALID_USAGE, "call it between lnt_optim_end and lnt_optim_begin",
                     "%s: the optimizer is in a step", call);
}

lnt_status_t lnt_optim_set_group(lnt_optim_t *optim, uint32_t group, const lnt_group_t *values)
{
    LNT_FP_SCOPE();
    LNT_CHECK_ARG(optim != NULL && values != NULL && group < optim->n_groups);
    LNT_TRY(lnt_optim_check_idle(optim, "lnt_optim_set_group"));
    LNT_TRY(check_group(group, values));
    if (values->non_freeze != optim->groups[group].values.non_freeze) {
        return lnt_error(LNT_ERR_INVALID_ARG, "non_freeze is fixed at creation", "group %u: non_freeze cannot change",
                         group);
    }
    optim->groups[group].values = *values;
    optim->groups[group].values.struct_size = sizeof(*values);
    return LNT_OK;
}

lnt_status_t lnt_optim_get_group(const lnt_optim_t *optim, uint32_t group, lnt_group_t *values_p)
{
    LNT_CHECK_ARG(optim != NULL && values_p != NULL && group < optim->n_groups);
    *values_p = optim->groups[group].values;
    return LNT_OK;
}

lnt_status_t lnt_optim_set_scaling(lnt_optim_t *optim, double loss_scale, uint32_t micro_steps)
{
    LNT_FP_SCOPE();
    LNT_CHECK_ARG(optim != NULL && isfinite(loss_scale) && loss_scale >= 0 && micro_steps >= 1);
    LNT_TRY(lnt_optim_check_idle(optim, "lnt_optim_set_scaling"));
    if (loss_scale != 0 && loss_scale != optim->loss_scale && lnt_scaler_is_dynamic(optim)) {
        return lnt_error(LNT_ERR_INVALID_USAGE, "pass 0, and multiply the loss by lnt_optim_loss_scale",
                         "the loss scale is dynamic (option loss_scale=0)");
    }
    if (loss_scale != 0) {
        LNT_TRY(lnt_scaler_check_fixed(loss_scale));
        optim->loss_scale = loss_scale;
    }
    optim->micro_steps = micro_steps;
    return LNT_OK;
}
