/* What the numerics of a plan depend on: tensors, programs, the type of errors, sizes of buckets and segments.
 *
 * Each is a list with a hash of its first n items, so that the first difference between ranks is found and described;
 * the same hashes are the identity that saved state carries. Builds nothing.
 */
#include <stdio.h>

#include "plan_impl.h"

static uint64_t hash_tensors(const lnt_plan_t *plan, uint64_t n)
{
    uint64_t hash = lnt_hash64_text(0, "tensors");

    for (uint64_t t = 0; t < n && t < plan->n_tensors; t++) {
        const lnt_tensor_params_t *params = &plan->tensors[t].params;
        hash = lnt_hash64_text(hash, params->name);
        hash = lnt_hash64_u64(hash, params->count);
        hash = lnt_hash64_u64(hash, (uint64_t)params->grad_dtype << 32 | (uint64_t)params->param_dtype);
        hash = lnt_hash64_u64(hash, params->group);
        if (params->rows != 0) hash = lnt_hash64_u64(lnt_hash64_text(hash, "matrix"), params->rows);
    }
    return n > plan->n_tensors ? lnt_hash64_text(hash, "end") : hash;
}

static void describe_tensor(const lnt_plan_t *plan, uint64_t item, char *text, size_t size)
{
    const lnt_tensor_params_t *params;

    if (item >= plan->n_tensors) {
        (void)snprintf(text, size, "none (%u tensors)", plan->n_tensors);
        return;
    }
    params = &plan->tensors[item].params;
    (void)snprintf(text, size, "\"%.64s\" %llu in %llu rows %s/%s group %u", params->name,
                   (unsigned long long)params->count, (unsigned long long)params->rows,
                   lnt_dtype_name(params->grad_dtype), lnt_dtype_name(params->param_dtype), params->group);
}

static uint64_t hash_programs(const lnt_plan_t *plan, uint64_t n)
{
    uint64_t hash = lnt_hash64_text(0, "programs");

    for (uint64_t p = 0; p < n && p < plan->n_programs; p++) {
        const lnt_plan_program_t *program = &plan->programs[p];
        hash = lnt_hash64_text(hash, program->name);
        hash = lnt_hash64_text(hash, program->codec.row->name);
        hash = lnt_hash64_u64(hash, (uint64_t)program->codec.cfg.block << 8 | (uint64_t)program->codec.cfg.scale_rule);
        hash = lnt_hash64_u64(hash, (uint64_t)program->flat << 6 | (uint64_t)program->unit << 4 |
                                        (uint64_t)(program->carries != NULL) << 3 | (uint64_t)program->unscaled << 2 |
                                        (uint64_t)program->packed << 1 | (uint64_t)program->feeds_v);
        if (program->no_feedback) hash = lnt_hash64_text(hash, "no feedback");
        if (program->by_bucket) hash = lnt_hash64_u64(hash, plan->bucket_elems);
        for (uint32_t t = 0; t < plan->n_tensors; t++)
            hash = lnt_hash64_u64(hash, lnt_plan_is_member(program, t));
    }
    return n > plan->n_programs ? lnt_hash64_text(hash, "end") : hash;
}

static void describe_program(const lnt_plan_t *plan, uint64_t item, char *text, size_t size)
{
    const lnt_plan_program_t *program;

    if (item >= plan->n_programs) {
        (void)snprintf(text, size, "none (%u programs)", plan->n_programs);
        return;
    }
    program = &plan->programs[item];
    (void)snprintf(text, size, "\"%.60s\" codec %s block %u rule %d unit %d", program->name, program->codec.row->name,
                   program->codec.cfg.block, (int)program->codec.cfg.scale_rule, (int)program->unit);
}

static uint64_t hash_errors(const lnt_plan_t *plan, uint64_t n)
{
    return n == 0 ? 0 : lnt_hash64_text(0, plan->errors->name);
}

static void describe_errors(const lnt_plan_t *plan, uint64_t item, char *text, size_t size)
{
    (void)item;
    (void)snprintf(text, size, "errors in %s", plan->errors->name);
}

static uint64_t hash_sizes(const lnt_plan_t *plan, uint64_t n)
{
    uint64_t sizes[2] = {plan->bucket_elems, plan->segment_elems}, hash = 0;

    for (uint64_t i = 0; i < n; i++)
        hash = lnt_hash64_u64(hash, sizes[i]);
    return hash;
}

static void describe_size(const lnt_plan_t *plan, uint64_t item, char *text, size_t size)
{
    (void)snprintf(text, size, "%s of %llu elements", item == 0 ? "bucket" : "segment",
                   (unsigned long long)(item == 0 ? plan->bucket_elems : plan->segment_elems));
}

lnt_status_t lnt_plan_compare_layout(lnt_plan_t *plan)
{
    const lnt_plan_list_t lists[] = {
        {"tensor", "register the same tensors in the same order on every rank", plan->n_tensors, hash_tensors,
         describe_tensor},
        {"program", "create the optimizer with the same options on every rank", plan->n_programs, hash_programs,
         describe_program},
        {"error_dtype", "keep errors in the same type on every rank", 1, hash_errors, describe_errors},
        {"plan parameter", "use equal bucket and segment bytes on every rank", 2, hash_sizes, describe_size},
    };

    LNT_TRY(lnt_plan_compare(plan, &lists[0]));
    LNT_TRY(lnt_plan_compare_settings(plan)); /* before what follows from them */
    for (size_t i = 1; i < sizeof(lists) / sizeof(lists[0]); i++)
        LNT_TRY(lnt_plan_compare(plan, &lists[i]));
    return LNT_OK;
}

void lnt_plan_set_hashes(lnt_plan_t *plan)
{
    const lnt_topo_t *topo = plan->comm->topo;
    uint64_t hash;

    plan->model_hash = hash_tensors(plan, plan->n_tensors);
    plan->layout_hash = lnt_hash64_u64(plan->model_hash, hash_programs(plan, plan->n_programs));
    hash = lnt_hash64_u64(plan->layout_hash, topo->n_ranks);
    for (uint32_t r = 0; r < topo->n_ranks; r++)
        hash = lnt_hash64_u64(hash, topo->node_of[r]);
    hash = lnt_hash64_u64(hash, hash_errors(plan, 1)); /* saved state may go from one type to the other */
    plan->plan_hash = lnt_hash64_u64(hash, hash_sizes(plan, 2));
}
