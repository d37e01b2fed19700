/* What a step's owner reads of it: this rank's gradients when they are ready, and decoded values after the vote. */
#include <string.h>

#include "plan_impl.h"

const float *lnt_plan_local(const lnt_plan_t *plan, uint32_t tensor, uint64_t offset, uint64_t count, float *out)
{
    const lnt_source_t *source = &plan->sources[tensor];
    const uint8_t *values = source->values;

    if (values != NULL) values += offset * lnt_dtype_size(source->dtype);
    if (values == NULL && source->accumulated != NULL) return source->accumulated + offset;
    if (source->accumulated == NULL && values != NULL && source->dtype == LNT_F32)
        return (const float *)(const void *)values;
    if (values == NULL) {
        memset(out, 0, count * sizeof(*out));
    } else {
        lnt_arrays()->widen[source->dtype](values, count, out);
    }
    if (source->accumulated != NULL) lnt_arrays()->add(out, source->accumulated + offset, count);
    return out;
}

/* The part of one extent of a bucket that lies in [offset, end) of its tensor. */
static void read_extent(const lnt_exchange_t *exchange, size_t i, uint64_t offset, uint64_t end, float *out)
{
    const lnt_grid_t *grid = lnt_exchange_grid(exchange);
    const lnt_extent_t *extent = &grid->extents[i];
    uint64_t begin = extent->offset > offset ? extent->offset : offset;
    uint64_t stop = extent->offset + extent->count < end ? extent->offset + extent->count : end;

    if (begin < stop) {
        (grid->packed ? lnt_exchange_read_part : lnt_exchange_read)(exchange, grid->pos[i] + (begin - extent->offset),
                                                                    stop - begin, out + (begin - offset));
    }
}

lnt_status_t lnt_plan_read(lnt_plan_t *plan, uint32_t program, uint32_t tensor, uint64_t offset, uint64_t count,
                           float *out)
{
    LNT_CHECK_ARG(plan != NULL && out != NULL);
    if (!plan->surveying) return lnt_error(LNT_ERR_INVALID_USAGE, NULL, "lnt_plan_read is legal inside survey only");
    LNT_CHECK_ARG(program < plan->n_programs && (plan->step_programs >> program & 1u) != 0);
    LNT_CHECK_ARG(tensor < plan->n_tensors);
    LNT_CHECK_ARG(offset <= plan->tensors[tensor].params.count && count <= plan->tensors[tensor].params.count - offset);
    for (uint32_t b = plan->tensors[tensor].first_bucket; b < plan->tensors[tensor].end_bucket; b++) {
        const lnt_exchange_t *exchange = plan->buckets[b].exchange[program];
        if (exchange == NULL) continue;
        for (size_t i = 0; i < lnt_exchange_grid(exchange)->n_extents; i++) {
            if (lnt_exchange_grid(exchange)->extents[i].tensor == tensor)
                read_extent(exchange, i, offset, offset + count, out);
        }
    }
    return LNT_OK;
}
