/* Latches of blocks with late comers, their update, and how they join the sign program. */
#include "late.h"

#include <math.h>

#include "freeze.h"
#include "update.h"

enum { NOT_LATCHED = -1, TOLD = -2 }; /* TOLD: in this step; only inside a commit */

/* A block of a tensor that may have late comers, numbered through all of them. */
typedef struct block {
    lnt_optim_tensor_t *tensor;
    uint64_t number;
    uint64_t begin, end; /* elements, in the arrays */
} block_t;

static double *updates(const lnt_optim_t *optim)
{
    return optim->values[LNT_FREEZE_LATE_UPDATES];
}

static bool is_latched(const lnt_optim_t *optim, uint64_t block)
{
    return updates(optim)[block] >= 0;
}

static uint64_t blocks_of(const lnt_optim_t *optim, uint32_t tensor)
{
    uint64_t count = optim->tensors[tensor].count, block = optim->options.block;

    return lnt_freeze_is_plain(optim, tensor) ? 0 : count / block + (count % block != 0);
}

uint64_t lnt_late_n_blocks(const lnt_optim_t *optim)
{
    uint64_t n = 0;

    for (uint32_t t = 0; t < optim->n_tensors; t++)
        n += blocks_of(optim, t);
    return n;
}

void lnt_late_number_blocks(lnt_optim_t *optim)
{
    uint64_t n = 0;

    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        optim->tensors[t].first_block = n;
        n += blocks_of(optim, t);
    }
}

static block_t block_at(const lnt_optim_t *optim, uint32_t number, uint64_t offset)
{
    lnt_optim_tensor_t *tensor = &optim->tensors[number];
    uint64_t size = optim->options.block, begin = offset / size * size;

    return (block_t){.tensor = tensor,
                     .number = tensor->first_block + offset / size,
                     .begin = tensor->base + begin,
                     .end = tensor->base + (tensor->count - begin < size ? tensor->count : begin + size)};
}

/* Dead, and not by the user's mask. */
static bool may_come(const lnt_optim_t *optim, uint64_t i)
{
    return lnt_freeze_dead(optim)[i] != 0 && lnt_freeze_masked(optim)[i] == 0;
}

static bool any_may_come(const lnt_optim_t *optim, const block_t *block)
{
    for (uint64_t i = block->begin; i < block->end; i++) {
        if (may_come(optim, i)) return true;
    }
    return false;
}

/* ---- the update ---- */

/* What a moment with this power of beta is multiplied by. */
static float correction(const lnt_optim_t *optim, double power)
{
    return optim->row->bias_option && !optim->options.bias_correction ? 1 : (float)(1 / (1 - power));
}

bool lnt_late_consts(const lnt_optim_t *optim, const lnt_span_t *span, lnt_adam_consts_t *k)
{
    const lnt_optim_group_t *group = &optim->groups[optim->tensors[span->tensor].group];
    uint64_t block;

    if (lnt_freeze_is_plain(optim, span->tensor)) return false;
    block = block_at(optim, span->tensor, span->offset).number;
    *k = group->k;
    k->i1 = correction(optim, optim->values[LNT_FREEZE_LATE_POWER1][block] * group->values.beta1);
    k->i2 = correction(optim, optim->values[LNT_FREEZE_LATE_POWER2][block] * group->values.beta2);
    return true;
}

void lnt_late_consume(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live)
{
    lnt_optim_t *optim = arg;
    lnt_adam_consts_t k;
    uint64_t at;
    const lnt_optim_tensor_t *tensor = lnt_optim_span(optim, span, &at);

    if (!lnt_late_consts(optim, span, &k)) {
        lnt_adam_consume(arg, span, value, live);
        return;
    }
    lnt_updates()->adam(&k, value, NULL, span->count, lnt_optim_f32(optim, LNT_ADAM_M) + at,
                        lnt_optim_f32(optim, LNT_ADAM_V) + at, tensor->x + span->offset);
    lnt_plan_publish(optim->plan, span->tensor, span->offset, span->count);
}

/* ---- latches ---- */

static void unlatch(lnt_optim_t *optim, uint64_t block)
{
    updates(optim)[block] = NOT_LATCHED;
    optim->values[LNT_FREEZE_LATE_POWER1][block] = 1;
    optim->values[LNT_FREEZE_LATE_POWER2][block] = 1;
    optim->n_latched--;
    optim->lane_stale = true;
}

/* The block is in the lane from the next step on; this step's gradient is lost. */
void lnt_late_tell(lnt_optim_t *optim, uint32_t tensor, uint64_t offset)
{
    block_t block = block_at(optim, tensor, offset);

    if (is_latched(optim, block.number) || !any_may_come(optim, &block)) return;
    updates(optim)[block.number] = TOLD;
    optim->values[LNT_FREEZE_LATE_TOUCHED][0] += 1;
    optim->n_latched++;
    optim->lane_stale = true;
}

static void latch(void *arg, uint32_t tensor, uint64_t offset)
{
    lnt_late_tell(arg, tensor, offset);
}

/* What is left in a block after others have joined. */
typedef struct rest {
    bool any, moving; /* some are dead; some of them have a variance */
} rest_t;

/* Coordinates with a variance of their own get their denominators; m stays, errors are zero already. */
static rest_t join_some(lnt_optim_t *optim, const block_t *block)
{
    const lnt_optim_group_t *group = &optim->groups[block->tensor->group];
    const float i2 = correction(optim, optim->values[LNT_FREEZE_LATE_POWER2][block->number]);
    const float *v = lnt_optim_f32(optim, LNT_ADAM_V);
    float *denominator = lnt_optim_f32(optim, optim->row->freezing->denominator);
    rest_t rest = {false, false};

    for (uint64_t i = block->begin; i < block->end; i++) {
        float s;
        if (!may_come(optim, i)) continue;
        s = sqrtf(v[i] * i2);
        if (s > group->k.eps) {
            lnt_freeze_dead(optim)[i] = 0;
            denominator[i] = s + group->k.eps;
            block->tensor->mask_stale = optim->lane_stale = true;
        } else {
            rest.any = true;
            rest.moving |= v[i] != 0;
        }
    }
    return rest;
}

/* Dead coordinates that leave the lane stand still again. */
static void leave(lnt_optim_t *optim, const block_t *block)
{
    for (uint64_t i = block->begin; i < block->end; i++) {
        if (may_come(optim, i)) lnt_optim_f32(optim, LNT_ADAM_M)[i] = 0;
    }
}

static void join(lnt_optim_t *optim, const block_t *block)
{
    rest_t rest = join_some(optim, block);

    if (rest.moving || (rest.any && optim->options.late_idle == LNT_LATE_STAY)) return;
    if (rest.any) leave(optim, block);
    unlatch(optim, block->number);
}

static void update(lnt_optim_t *optim, const block_t *block, const lnt_group_t *values)
{
    updates(optim)[block->number] += 1;
    optim->values[LNT_FREEZE_LATE_POWER1][block->number] *= values->beta1;
    optim->values[LNT_FREEZE_LATE_POWER2][block->number] *= values->beta2;
    if (updates(optim)[block->number] >= (double)optim->options.lane_updates) join(optim, block);
}

/* The step was an update of every latched block: what follows from it. Those that told in this step begin. */
static void advance(lnt_optim_t *optim, const uint8_t *left_out)
{
    for (uint32_t t = 0; t < optim->n_tensors && optim->n_latched != 0; t++) {
        const lnt_group_t *values = &optim->groups[optim->tensors[t].group].values;
        if (left_out != NULL && left_out[t] != 0) continue;
        for (uint64_t k = 0; k < blocks_of(optim, t); k++) {
            block_t block = block_at(optim, t, k * optim->options.block);
            if (updates(optim)[block.number] == TOLD) {
                updates(optim)[block.number] = 0;
            } else if (is_latched(optim, block.number)) {
                update(optim, &block, values);
            }
        }
    }
}

lnt_status_t lnt_late_committed(lnt_optim_t *optim, const uint8_t *left_out)
{
    /* Activity first: a block that the joining leaves behind has not told anything of those that are left in it. */
    LNT_TRY(lnt_plan_active(optim->plan, optim->row->freezing->sign, latch, optim));
    advance(optim, left_out);
    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        if (!optim->tensors[t].mask_stale) continue;
        optim->tensors[t].mask_stale = false;
        LNT_TRY(lnt_freeze_set_mask(optim, t));
    }
    (void)lnt_late_apply(optim); /* the step is committed: what fails here is tried again before the next one */
    return LNT_OK;
}

/* Travels in the lane for ever. */
static bool takes_lane(const lnt_optim_t *optim, uint32_t tensor)
{
    return !optim->row->freezing->late_apart && lnt_freeze_is_plain(optim, tensor);
}

void lnt_late_recount(lnt_optim_t *optim)
{
    optim->n_latched = 0;
    optim->lane_stale |= optim->lane_parts;
    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        optim->lane_stale |= takes_lane(optim, t) && optim->tensors[t].any_dead;
        for (uint64_t k = 0; k < blocks_of(optim, t); k++) {
            block_t block = block_at(optim, t, k * optim->options.block);
            if (!is_latched(optim, block.number)) continue;
            optim->n_latched++;
            optim->lane_stale = true;
            if (!any_may_come(optim, &block)) unlatch(optim, block.number);
        }
    }
}

/* ---- what the lane carries ---- */

typedef struct parts {
    lnt_tensor_part_t *list; /* NULL: only counted */
    size_t n;
    uint64_t n_elems;
} parts_t;

static void add_part(parts_t *parts, uint32_t tensor, uint64_t offset, uint64_t count)
{
    if (parts->list != NULL) parts->list[parts->n] = (lnt_tensor_part_t){tensor, offset, count};
    parts->n++;
    parts->n_elems += count;
}

/* Adds the runs of [begin, end) whose elements belong: late comers, or in tensors of the lane what is not masked. */
static void add_runs(const lnt_optim_t *optim, parts_t *parts, uint32_t number, uint64_t begin, uint64_t end, bool late)
{
    uint64_t base = optim->tensors[number].base, first = begin;

    for (uint64_t i = begin; i <= end; i++) {
        bool belongs = i < end && (late ? may_come(optim, i) : lnt_freeze_dead(optim)[i] == 0);
        if (belongs) continue;
        if (i > first) add_part(parts, number, first - base, i - first);
        first = i + 1;
    }
}

static void list_parts(const lnt_optim_t *optim, parts_t *parts)
{
    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        const lnt_optim_tensor_t *tensor = &optim->tensors[t];
        if (takes_lane(optim, t) && tensor->any_dead) {
            add_runs(optim, parts, t, tensor->base, tensor->base + tensor->count, false);
        } else if (takes_lane(optim, t) && tensor->count != 0) {
            add_part(parts, t, 0, tensor->count);
        } else if (lnt_freeze_in_lane(optim, t)) {
            parts->n_elems += tensor->count; /* in f32 too, by another program */
        }
        for (uint64_t k = 0; k < blocks_of(optim, t) && optim->n_latched != 0; k++) {
            block_t block = block_at(optim, t, k * optim->options.block);
            if (is_latched(optim, block.number)) add_runs(optim, parts, t, block.begin, block.end, true);
        }
    }
}

lnt_status_t lnt_late_apply(lnt_optim_t *optim)
{
    parts_t parts = {.list = NULL};
    lnt_status_t status;

    if (!optim->lane_stale) return LNT_OK;
    list_parts(optim, &parts);
    parts.list = lnt_plan_alloc((parts.n + 1) * sizeof(*parts.list), "parts of the lane");
    if (parts.list == NULL) return LNT_ERR_NO_MEMORY;
    parts.n = 0;
    parts.n_elems = 0;
    list_parts(optim, &parts);
    status = lnt_plan_set_parts(optim->plan, optim->row->freezing->lane, parts.list, parts.n);
    if (status == LNT_OK) {
        optim->lane_elems = parts.n_elems;
        optim->lane_stale = false;
        optim->lane_parts = true;
    }
    lnt_plan_free(parts.list);
    return status;
}
