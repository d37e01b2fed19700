/* Parameters of a plan: broadcast from a root, comparison between ranks, masters and model copies. */
#include <stdio.h>
#include <string.h>

#include "../../kernels/dtype.h"
#include "../base/fp_env.h"
#include "plan_impl.h"

enum { SYNC_PIECE = 1 << 20 }; /* elements per broadcast: bounds its workspace */

float *lnt_plan_master(lnt_plan_t *plan, uint32_t tensor)
{
    return plan->tensors[tensor].master;
}

lnt_status_t lnt_plan_own_masters(lnt_plan_t *plan)
{
    LNT_TRY(lnt_plan_enter(plan, LNT_PLAN_ADD_PROGRAM));
    if (plan->own_masters) return LNT_OK;
    plan->own_masters = true;
    for (uint32_t t = 0; t < plan->n_tensors; t++) {
        lnt_plan_tensor_t *tensor = &plan->tensors[t];
        float *master;
        size_t bytes;
        if (tensor->params.param_dtype != LNT_F32 || tensor->params.count == 0) continue;
        master =
            lnt_size_mul(tensor->params.count, sizeof(float), &bytes) ? lnt_alloc_aligned(bytes, "f32 master") : NULL;
        if (master == NULL) {
            lnt_plan_release_masters(plan);
            return LNT_ERR_NO_MEMORY;
        }
        tensor->master = master;
    }
    lnt_plan_refresh_masters(plan);
    return LNT_OK;
}

void lnt_plan_refresh_masters(lnt_plan_t *plan)
{
    LNT_FP_SCOPE();

    for (uint32_t t = 0; t < plan->n_tensors; t++) {
        const lnt_plan_tensor_t *tensor = &plan->tensors[t];
        if (lnt_plan_owns_master(plan, t))
            lnt_arrays()->widen[tensor->params.param_dtype](tensor->params.param, tensor->params.count, tensor->master);
    }
}

void lnt_plan_release_masters(lnt_plan_t *plan)
{
    for (uint32_t t = 0; t < plan->n_tensors; t++) {
        lnt_plan_tensor_t *tensor = &plan->tensors[t];
        if (tensor->params.param_dtype != LNT_F32 || tensor->master == tensor->params.param) continue;
        lnt_free(tensor->master);
        tensor->master = tensor->params.param;
    }
    plan->own_masters = false;
}

static void narrow(lnt_plan_t *plan, uint32_t tensor, uint64_t offset, uint64_t count, const float *values)
{
    const lnt_tensor_params_t *params = &plan->tensors[tensor].params;

    lnt_arrays()->narrow[params->param_dtype](values, count,
                                              (uint8_t *)params->param + offset * lnt_dtype_size(params->param_dtype));
}

void lnt_plan_publish(lnt_plan_t *plan, uint32_t tensor, uint64_t offset, uint64_t count)
{
    LNT_FP_SCOPE();
    const lnt_plan_tensor_t *source = &plan->tensors[tensor];

    if (source->master != source->params.param) narrow(plan, tensor, offset, count, source->master + offset);
}

void lnt_plan_publish_values(lnt_plan_t *plan, uint32_t tensor, uint64_t offset, uint64_t count, const float *values)
{
    LNT_FP_SCOPE();

    if (lnt_plan_owns_master(plan, tensor)) narrow(plan, tensor, offset, count, values);
}

lnt_status_t lnt_plan_sync_params(lnt_plan_t *plan, uint32_t root)
{
    LNT_TRY(lnt_plan_enter(plan, LNT_PLAN_SYNC));
    LNT_CHECK_ARG(root < plan->comm->n_ranks);
    if (plan->state == LNT_PLAN_OPEN) lnt_plan_refresh_masters(plan);
    for (uint32_t t = 0; t < plan->n_tensors; t++) {
        uint64_t count = plan->tensors[t].params.count;
        for (uint64_t at = 0; at < count; at += SYNC_PIECE) {
            uint64_t piece = count - at < SYNC_PIECE ? count - at : SYNC_PIECE;
            LNT_TRY(lnt_broadcast(plan->comm, plan->tensors[t].master + at, piece, LNT_F32, root, NULL));
        }
        lnt_plan_publish(plan, t, 0, count);
    }
    return LNT_OK;
}

static uint64_t hash_params(const lnt_plan_t *plan, uint64_t n)
{
    uint64_t hash = lnt_hash64_text(0, "parameters");

    for (uint64_t t = 0; t < n && t < plan->n_tensors; t++)
        hash = lnt_hash64_u64(hash, plan->tensors[t].hash);
    return hash;
}

static void describe_param(const lnt_plan_t *plan, uint64_t item, char *text, size_t size)
{
    (void)snprintf(text, size, "\"%.60s\" %016llx", plan->tensors[item].params.name,
                   (unsigned long long)plan->tensors[item].hash);
}

lnt_status_t lnt_plan_compare_params(lnt_plan_t *plan)
{
    const lnt_plan_list_t list = {"parameter tensor", "call lnt_plan_sync_params, or start from equal values",
                                  plan->n_tensors, hash_params, describe_param};

    for (uint32_t t = 0; t < plan->n_tensors; t++) {
        const lnt_plan_tensor_t *tensor = &plan->tensors[t];
        /* Where the library owns masters, model copies may differ while ranks take steps of their own. */
        size_t size = plan->own_masters ? 0 : lnt_dtype_size(tensor->params.param_dtype);
        plan->tensors[t].hash = lnt_hash64(lnt_hash64(0, tensor->params.param, tensor->params.count * size),
                                           tensor->master, tensor->params.count * sizeof(float));
    }
    return lnt_plan_compare(plan, &list);
}

lnt_status_t lnt_plan_check_params(lnt_plan_t *plan)
{
    LNT_TRY(lnt_plan_enter(plan, LNT_PLAN_CHECK));
    return lnt_plan_compare_params(plan);
}
