/* Error feedback of a plan seen from outside: extents for saving and loading, dropping, dead coordinates; and byte
 * counts. */
#include <string.h>

#include "../base/fp_env.h"
#include "plan_impl.h"

/* Piece `index` of one owned range; *index counts down over ranges. True when it lies here. */
static bool find_piece(lnt_exchange_t *exchange, lnt_owned_t owned, size_t *index, lnt_error_extent_t *extent)
{
    const lnt_grid_t *grid = lnt_exchange_grid(exchange);

    for (uint64_t pos = owned.begin; pos < owned.end;) {
        lnt_run_t run = lnt_layout_run(grid, pos, owned.end);
        if ((*index)-- == 0) {
            extent->tensor = run.tensor;
            extent->offset = run.offset;
            extent->count = run.count;
            extent->data = owned.values != NULL ? owned.values + (pos - owned.begin) : NULL;
            extent->place = exchange;
            extent->position = pos;
            return true;
        }
        pos += run.count;
    }
    return false;
}

/* This rank's node in the form of a program. */
static uint32_t node_of(const lnt_plan_t *plan, uint32_t program)
{
    return lnt_plan_topo(plan, &plan->programs[program])->node_of[plan->comm->rank];
}

lnt_status_t lnt_plan_error_extent(lnt_plan_t *plan, size_t index, lnt_error_extent_t *extent_p)
{
    lnt_error_extent_t extent;
    size_t left = index;

    LNT_CHECK_ARG(plan != NULL && extent_p != NULL);
    LNT_TRY(lnt_plan_check_state(plan, LNT_PLAN_ERRORS));
    for (uint32_t b = 0; b < plan->n_buckets; b++) {
        for (uint32_t p = 0; p < plan->n_programs; p++) {
            lnt_exchange_t *exchange = plan->buckets[b].exchange[p];
            if (exchange == NULL) continue;
            extent = (lnt_error_extent_t){.program = p, .codec_worker = node_of(plan, p)};
            if (find_piece(exchange, lnt_exchange_worker_error(exchange), &left, &extent)) goto found;
            extent = (lnt_error_extent_t){.program = p, .server = true};
            if (find_piece(exchange, lnt_exchange_server_error(exchange), &left, &extent)) goto found;
        }
    }
    return LNT_ERR_OUT_OF_RANGE; /* the end of the list, not a mistake: nothing to report */

found:
    extent.codec_workers = lnt_plan_topo(plan, &plan->programs[extent.program])->n_nodes;
    *extent_p = extent;
    return LNT_OK;
}

void lnt_plan_read_error(const lnt_error_extent_t *extent, float *out)
{
    lnt_exchange_read_error(extent->place, extent->server, extent->position, extent->count, out);
}

void lnt_plan_write_error(const lnt_error_extent_t *extent, const float *values)
{
    LNT_FP_SCOPE();
    lnt_exchange_write_error(extent->place, extent->server, extent->position, extent->count, values);
}

lnt_status_t lnt_plan_set_carry(lnt_plan_t *plan, uint32_t programs)
{
    LNT_CHECK_ARG(plan != NULL);
    LNT_TRY(lnt_plan_check_state(plan, LNT_PLAN_ERRORS));
    for (uint32_t b = 0; b < plan->n_buckets; b++) {
        for (uint32_t p = 0; p < plan->n_programs; p++) {
            lnt_exchange_t *exchange = plan->buckets[b].exchange[p];
            if (exchange != NULL) LNT_TRY(lnt_exchange_set_carry(exchange, (programs >> p & 1u) != 0));
        }
    }
    return LNT_OK;
}

uint32_t lnt_plan_get_carry(const lnt_plan_t *plan)
{
    uint32_t programs = 0;

    for (uint32_t p = 0; p < plan->n_programs; p++) {
        if (lnt_plan_topo(plan, &plan->programs[p])->n_nodes > 1) continue;
        for (uint32_t b = 0; b < plan->n_buckets; b++) {
            const lnt_exchange_t *exchange = plan->buckets[b].exchange[p];
            lnt_owned_t owned = exchange != NULL ? lnt_exchange_server_error(exchange) : (lnt_owned_t){0};
            if (owned.begin < owned.end) programs |= 1u << p;
        }
    }
    return programs;
}

lnt_status_t lnt_plan_drop_errors(lnt_plan_t *plan, uint32_t program, double *dropped_p)
{
    LNT_FP_SCOPE();
    double total = 0;

    LNT_CHECK_ARG(plan != NULL && program < plan->n_programs);
    LNT_TRY(lnt_plan_check_state(plan, LNT_PLAN_ERRORS));
    for (uint32_t b = 0; b < plan->n_buckets; b++) {
        double sum = 0;
        if (plan->buckets[b].exchange[program] == NULL) continue;
        lnt_exchange_drop_errors(plan->buckets[b].exchange[program], &sum);
        total += sum;
    }
    if (dropped_p != NULL) *dropped_p = total;
    return LNT_OK;
}

/* Ranks whose masks differ would decode the same bytes differently, so the masks are part of every step's hash. */
static void note_live(lnt_plan_t *plan, uint32_t program, uint32_t number, const uint8_t *live)
{
    lnt_plan_tensor_t *tensor = &plan->tensors[number];
    uint64_t count = tensor->params.count, hash = 0;

    if (live != NULL && count != 0 && memchr(live, 0, count) != NULL)
        hash = lnt_hash64(lnt_hash64_u64(program, number), live, count);
    plan->live_hash ^= tensor->live_hash[program] ^ hash;
    tensor->live_hash[program] = hash;
}

lnt_status_t lnt_plan_set_live(lnt_plan_t *plan, uint32_t program, uint32_t tensor, const uint8_t *live)
{
    LNT_CHECK_ARG(plan != NULL && program < plan->n_programs && tensor < plan->n_tensors);
    LNT_CHECK_ARG(!plan->programs[program].packed);
    LNT_TRY(lnt_plan_check_state(plan, LNT_PLAN_ERRORS));
    note_live(plan, program, tensor, live);
    for (uint32_t b = plan->tensors[tensor].first_bucket; b < plan->tensors[tensor].end_bucket; b++) {
        const lnt_plan_bucket_t *bucket = &plan->buckets[b];
        if (bucket->exchange[program] == NULL) continue;
        for (size_t i = 0; i < bucket->n_extents; i++) {
            const lnt_extent_t *extent = &bucket->extents[i];
            if (extent->tensor != tensor) continue;
            LNT_TRY(lnt_exchange_set_live(bucket->exchange[program], tensor, extent->offset, extent->count,
                                          live != NULL ? live + extent->offset : NULL));
        }
    }
    return LNT_OK;
}

lnt_status_t lnt_plan_wire_bytes(const lnt_plan_t *plan, uint32_t programs, uint64_t *intra_p, uint64_t *inter_p)
{
    lnt_bytes_t total = {0, 0}, bytes;

    LNT_TRY(lnt_plan_enter(plan, LNT_PLAN_WIRE));
    LNT_CHECK_ARG(intra_p != NULL && inter_p != NULL && programs >> plan->n_programs == 0);
    for (uint32_t b = 0; b < plan->n_buckets; b++) {
        for (uint32_t p = 0; p < plan->n_programs; p++) {
            const lnt_exchange_t *exchange = plan->buckets[b].exchange[p];
            if ((programs >> p & 1u) == 0 || exchange == NULL) continue;
            LNT_TRY(lnt_exchange_bytes(exchange, &bytes));
            total.intra += bytes.intra;
            total.inter += bytes.inter;
        }
    }
    *intra_p = total.intra;
    *inter_p = total.inter;
    return LNT_OK;
}
