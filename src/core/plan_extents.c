/* Packed programs that carry other pieces of tensors from one step to the next, and what a step told about dead
 * coordinates.
 *
 * Exchanges of buckets whose pieces differ are built beside the old ones and then take their places, so that a failure
 * leaves the plan as it was. Between steps no task and no transport holds a frame.
 */
#include <stdio.h>
#include <string.h>

#include "plan_impl.h"

typedef struct replacement {
    bool changed;
    lnt_exchange_t *exchange;            /* NULL: nothing of the bucket travels */
    lnt_exchange_memory_t memory, freed; /* of this one, of the one whose place it takes */
} replacement_t;

static lnt_status_t check_parts(const lnt_plan_t *plan, const lnt_tensor_part_t *parts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const lnt_tensor_part_t *part = &parts[i], *before = i != 0 ? &parts[i - 1] : NULL;
        bool behind = before == NULL || before->tensor < part->tensor ||
                      (before->tensor == part->tensor && before->offset + before->count <= part->offset);
        if (part->tensor < plan->n_tensors && part->count != 0 && behind &&
            part->offset <= plan->tensors[part->tensor].params.count &&
            part->count <= plan->tensors[part->tensor].params.count - part->offset) {
            continue;
        }
        return lnt_error(LNT_ERR_INVALID_ARG, "sort parts by tensor and offset, without overlaps",
                         "part %llu: tensor %u, elements %llu + %llu", (unsigned long long)i, part->tensor,
                         (unsigned long long)part->offset, (unsigned long long)part->count);
    }
    return LNT_OK;
}

/* The parts that lie in a bucket. *first_p moves on to the first that may lie in the next one. */
static size_t parts_of_bucket(const lnt_plan_bucket_t *bucket, const lnt_tensor_part_t *parts, size_t n,
                              size_t *first_p, lnt_extent_t *out)
{
    size_t n_out = 0;

    for (size_t e = 0; e < bucket->n_extents; e++) {
        const lnt_extent_t *extent = &bucket->extents[e];
        uint64_t limit = extent->offset + extent->count;
        while (*first_p < n && (parts[*first_p].tensor < extent->tensor ||
                                (parts[*first_p].tensor == extent->tensor &&
                                 parts[*first_p].offset + parts[*first_p].count <= extent->offset))) {
            ++*first_p;
        }
        for (size_t i = *first_p; i < n && parts[i].tensor == extent->tensor && parts[i].offset < limit; i++) {
            uint64_t begin = parts[i].offset > extent->offset ? parts[i].offset : extent->offset;
            uint64_t end = parts[i].offset + parts[i].count < limit ? parts[i].offset + parts[i].count : limit;
            out[n_out++] = (lnt_extent_t){extent->tensor, begin, end - begin};
        }
    }
    return n_out;
}

static bool same_extents(const lnt_exchange_t *exchange, const lnt_extent_t *extents, size_t n)
{
    const lnt_grid_t *grid;

    if (exchange == NULL || n == 0) return exchange == NULL && n == 0;
    grid = lnt_exchange_grid(exchange);
    if (grid->n_extents != n) return false;
    for (size_t i = 0; i < n; i++) {
        const lnt_extent_t *old = &grid->extents[i];
        if (old->tensor != extents[i].tensor || old->offset != extents[i].offset || old->count != extents[i].count)
            return false;
    }
    return true;
}

/* What the exchange in place was built from. */
static lnt_status_t measure_old(const lnt_plan_t *plan, uint32_t program, uint32_t bucket, replacement_t *replacement)
{
    lnt_exchange_params_t params = lnt_plan_exchange_params(plan, program, bucket);
    const lnt_exchange_t *exchange = plan->buckets[bucket].exchange[program];

    if (exchange == NULL) return LNT_OK;
    params.extents = lnt_exchange_grid(exchange)->extents;
    params.n_extents = lnt_exchange_grid(exchange)->n_extents;
    return lnt_exchange_predict(&params, &replacement->freed);
}

static lnt_status_t build_replacement(lnt_plan_t *plan, const lnt_exchange_params_t *params, replacement_t *replacement)
{
    lnt_exchange_t *exchange = NULL;
    lnt_status_t status;
    uint64_t n_tasks;

    if (params->n_extents == 0) return LNT_OK;
    LNT_TRY(lnt_exchange_predict(params, &replacement->memory));
    LNT_TRY(lnt_exchange_create(params, &exchange));
    n_tasks = lnt_exchange_graph(exchange)->n_tasks;
    status = lnt_exec_reserve(plan->comm->exec, n_tasks);
    if (status < 0) {
        lnt_exchange_destroy(exchange);
        return status;
    }
    plan->reserved_tasks += n_tasks;
    replacement->exchange = exchange;
    return LNT_OK;
}

static lnt_status_t prepare(lnt_plan_t *plan, uint32_t program, const lnt_tensor_part_t *parts, size_t n,
                            lnt_extent_t *extents, replacement_t *replacements)
{
    size_t first = 0;

    for (uint32_t b = 0; b < plan->n_buckets; b++) {
        lnt_exchange_params_t params = lnt_plan_exchange_params(plan, program, b);
        params.extents = extents;
        params.n_extents = parts_of_bucket(&plan->buckets[b], parts, n, &first, extents);
        replacements[b].changed = !same_extents(plan->buckets[b].exchange[program], extents, params.n_extents);
        if (!replacements[b].changed) continue;
        LNT_TRY(measure_old(plan, program, b, &replacements[b]));
        LNT_TRY(build_replacement(plan, &params, &replacements[b]));
    }
    return LNT_OK;
}

static void release(lnt_plan_t *plan, lnt_exchange_t *exchange)
{
    uint64_t n_tasks;

    if (exchange == NULL) return;
    n_tasks = lnt_exchange_graph(exchange)->n_tasks;
    lnt_exec_unreserve(plan->comm->exec, n_tasks);
    plan->reserved_tasks -= n_tasks;
    lnt_exchange_destroy(exchange);
}

/* Unsigned arithmetic: the sum is right whatever is added first. */
static void count_memory(lnt_plan_memory_t *total, const replacement_t *replacement)
{
    const lnt_exchange_memory_t *more = &replacement->memory, *less = &replacement->freed;

    total->errors += more->errors - less->errors;
    total->shadows += more->shadows - less->shadows;
    total->frames += more->frames - less->frames;
    total->graphs += more->graphs - less->graphs;
    total->total = total->errors + total->shadows + total->frames + total->graphs + total->other;
}

static void replace(lnt_plan_t *plan, uint32_t program, replacement_t *replacements)
{
    for (uint32_t b = 0; b < plan->n_buckets; b++) {
        lnt_exchange_t **slot = &plan->buckets[b].exchange[program], *old = *slot;
        if (!replacements[b].changed) continue;
        count_memory(&plan->memory, &replacements[b]);
        *slot = replacements[b].exchange;
        release(plan, old);
    }
}

static void note_parts(lnt_plan_t *plan, uint32_t number, const lnt_tensor_part_t *parts, size_t n)
{
    lnt_plan_program_t *program = &plan->programs[number];
    uint64_t hash = lnt_hash64_u64(lnt_hash64_text(number, "parts"), n);

    memset(program->carries, 0, plan->n_tensors);
    for (size_t i = 0; i < n; i++) {
        program->carries[parts[i].tensor] = 1;
        hash = lnt_hash64_u64(hash, parts[i].tensor);
        hash = lnt_hash64_u64(lnt_hash64_u64(hash, parts[i].offset), parts[i].count);
    }
    plan->live_hash ^= program->parts_hash ^ hash;
    program->parts_hash = hash;
}

lnt_status_t lnt_plan_set_parts(lnt_plan_t *plan, uint32_t program, const lnt_tensor_part_t *parts, size_t n)
{
    replacement_t *replacements;
    lnt_extent_t *extents;
    lnt_status_t status = LNT_ERR_NO_MEMORY;

    LNT_TRY(lnt_plan_enter(plan, LNT_PLAN_ERRORS));
    LNT_CHECK_ARG(program < plan->n_programs && plan->programs[program].carries != NULL && (parts != NULL || n == 0));
    LNT_TRY(check_parts(plan, parts, n));
    replacements = lnt_calloc(plan->n_buckets, sizeof(*replacements), "exchanges to be replaced");
    extents = lnt_calloc(n, sizeof(*extents), "parts of a bucket");
    if (replacements != NULL && extents != NULL) status = prepare(plan, program, parts, n, extents, replacements);
    if (status == LNT_OK) {
        replace(plan, program, replacements);
        note_parts(plan, program, parts, n);
    }
    for (uint32_t b = 0; status != LNT_OK && replacements != NULL && b < plan->n_buckets; b++)
        release(plan, replacements[b].exchange);
    lnt_free(extents);
    lnt_free(replacements);
    return status;
}

lnt_status_t lnt_plan_give_up(lnt_plan_t *plan, lnt_status_t status)
{
    char cause[LNT_ERROR_TEXT_MAX];

    LNT_CHECK_ARG(plan != NULL && status < 0);
    if (plan->comm->n_ranks == 1) return status;
    (void)snprintf(cause, sizeof(cause), "%s",
                   lnt_last_error()->status == status ? lnt_last_error()->cause : lnt_status_string(status));
    lnt_comm_abort(plan->comm, cause);
    (void)lnt_comm_async_error(plan->comm, NULL); /* without a progress thread it leaves here */
    return lnt_error(LNT_ERR_ABORTED, "rebuild the communicator", "this step could not begin: %s", cause);
}

lnt_status_t lnt_plan_active(lnt_plan_t *plan, uint32_t program, lnt_block_fn_t found, void *arg)
{
    LNT_CHECK_ARG(plan != NULL && program < plan->n_programs && found != NULL);
    LNT_CHECK_ARG((plan->step_programs >> program & 1u) != 0 && !plan->programs[program].packed);
    LNT_TRY(lnt_plan_check_state(plan, LNT_PLAN_ERRORS));
    for (uint32_t b = 0; b < plan->n_buckets; b++) {
        const lnt_exchange_t *exchange = plan->buckets[b].exchange[program];
        const uint8_t *active = exchange != NULL ? lnt_exchange_active(exchange) : NULL;
        const lnt_grid_t *grid = exchange != NULL ? lnt_exchange_grid(exchange) : NULL;
        for (uint64_t block = 0; active != NULL && block < grid->n_blocks; block++) {
            uint64_t pos = lnt_grid_pos(grid, block);
            lnt_run_t run;
            if (active[block] == 0) continue;
            run = lnt_layout_run(grid, pos, lnt_grid_pos(grid, block + 1));
            found(arg, run.tensor, run.offset);
        }
    }
    return LNT_OK;
}
