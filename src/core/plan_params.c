/* Parameters of a plan: broadcast from a root, comparison between ranks, masters and model copies. */
#include <stdio.h>

#include "../../kernels/dtype.h"
#include "../base/fp_env.h"
#include "plan_impl.h"

enum { SYNC_PIECE = 1 << 20 }; /* elements per broadcast: bounds its workspace */

float *lnt_plan_master(lnt_plan_t *plan, uint32_t tensor)
{
    return plan->tensors[tensor].master;
}

void lnt_plan_publish(lnt_plan_t *plan, uint32_t tensor, uint64_t offset, uint64_t count)
{
    LNT_FP_SCOPE();
    const lnt_plan_tensor_t *source = &plan->tensors[tensor];
    const lnt_dtype_t dtype = source->params.param_dtype;

    if (source->master == source->params.param) return;
    lnt_arrays()->narrow[dtype](source->master + offset, count,
                                (uint8_t *)source->params.param + offset * lnt_dtype_size(dtype));
}

lnt_status_t lnt_plan_sync_params(lnt_plan_t *plan, uint32_t root)
{
    LNT_TRY(lnt_plan_enter(plan, LNT_PLAN_SYNC));
    LNT_CHECK_ARG(root < plan->comm->n_ranks);
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
        size_t size = lnt_dtype_size(tensor->params.param_dtype);
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
