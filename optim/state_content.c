/* Is what a sound blob holds a state that the algorithm can be in? Lengths, ranges, whole counters, masks and
 * denominators that go together. A run that would divide by zero or count beyond what f64 counts exactly is refused
 * here, before anything live is touched.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "freeze.h"
#include "state_format.h"

static lnt_status_t check_size(const lnt_state_blob_t *blob, const char *name, uint64_t bytes)
{
    const lnt_state_part_t *part = lnt_state_find(blob, name);

    return part != NULL && part->bytes == lnt_state_padded(bytes)
               ? LNT_OK
               : lnt_state_corrupt("a section is missing or too short or long");
}

static lnt_status_t bad_content(const char *name, const char *what, uint64_t at)
{
    return lnt_error(LNT_ERR_CORRUPT, "use an earlier state: the run that saved this one has gone wrong",
                     "saved state: %s, number %llu: %s", name, (unsigned long long)at, what);
}

static lnt_status_t check_groups(const lnt_optim_t *optim, const lnt_state_blob_t *blob)
{
    LNT_TRY(check_size(blob, LNT_STATE_GROUPS, optim->n_groups * 2 * sizeof(double)));
    for (uint32_t g = 0; g < 2 * optim->n_groups; g++) {
        double power;
        memcpy(&power, lnt_state_find(blob, LNT_STATE_GROUPS)->payload + g * sizeof(power), sizeof(power));
        if (!(power >= 0 && power <= 1)) return lnt_state_corrupt("impossible power of beta");
    }
    return LNT_OK;
}

/* ---- arrays ---- */

static lnt_status_t check_bytes(const lnt_state_part_t *part)
{
    for (uint64_t i = 0; i < part->bytes; i++) {
        if (part->payload[i] > 1) return lnt_state_corrupt("impossible mask");
    }
    return LNT_OK;
}

static float float_at(const lnt_state_part_t *part, uint64_t i)
{
    float value;

    memcpy(&value, part->payload + i * sizeof(value), sizeof(value));
    return value;
}

static lnt_status_t check_floats(const lnt_state_part_t *part, bool never_negative)
{
    for (uint64_t i = 0; i < part->bytes / sizeof(float); i++) {
        const float value = float_at(part, i);
        if (!isfinite(value)) return bad_content(part->name, "not finite", i);
        if (never_negative && value < 0) return bad_content(part->name, "negative", i);
    }
    return LNT_OK;
}

static lnt_status_t check_arrays(const lnt_optim_t *optim, const lnt_state_blob_t *blob)
{
    LNT_TRY(check_size(blob, LNT_STATE_MASTERS, optim->n_elems * sizeof(float)));
    LNT_TRY(check_floats(lnt_state_find(blob, LNT_STATE_MASTERS), false));
    for (const lnt_state_array_t *array = optim->row->arrays; array->name != NULL; array++) {
        const lnt_state_part_t *part = lnt_state_find(blob, array->name);
        bool present = !array->from_freeze || blob->header.frozen;
        LNT_TRY(check_size(blob, array->name, present ? optim->n_elems * array->elem_bytes : 0));
        LNT_TRY(array->elem_bytes == 1 ? check_bytes(part) : check_floats(part, array->never_negative));
    }
    return blob->header.n_sections == lnt_state_sections(optim->row) ? LNT_OK : lnt_state_corrupt("unknown sections");
}

/* ---- errors ---- */

static lnt_status_t bad_error(const lnt_state_blob_t *blob, const lnt_state_extent_t *extent, uint64_t at)
{
    char owner[32] = "server";
    lnt_error_info_t *info;

    if (extent->server == 0) (void)snprintf(owner, sizeof(owner), "worker %u", extent->codec_worker);
    (void)lnt_error(LNT_ERR_CORRUPT, "use an earlier state: the run that saved this one has gone wrong",
                    "the saved state of rank %u: %s, program %u, %s, tensor %u, element %llu: not finite",
                    blob->header.rank, LNT_STATE_ERRORS, extent->program, owner, extent->tensor,
                    (unsigned long long)(extent->offset + at));
    info = lnt_error_mutable();
    info->peer = blob->header.rank;
    if (extent->tensor != LNT_TENSOR_PAD) info->tensor = extent->tensor;
    return LNT_ERR_CORRUPT;
}

lnt_status_t lnt_state_check_errors(const lnt_state_blob_t *blob)
{
    const lnt_state_part_t *part = lnt_state_find(blob, LNT_STATE_ERRORS);

    for (uint64_t pos = 0; pos < part->bytes;) {
        lnt_state_extent_t extent;
        lnt_state_part_t values = {.bytes = 0};
        if (!lnt_state_next_extent(part->payload, part->bytes, &pos, &extent, &values.payload))
            return lnt_state_corrupt("impossible list of errors");
        for (uint64_t i = 0; i < extent.count; i++) {
            if (!isfinite(float_at(&values, i))) return bad_error(blob, &extent, i);
        }
    }
    return LNT_OK;
}

/* ---- masks and denominators of a frozen state ---- */

typedef struct frozen {
    const lnt_state_part_t *denominator, *dead, *masked;
} frozen_t;

static lnt_status_t check_frozen_tensor(const lnt_optim_t *optim, const frozen_t *frozen, uint32_t number,
                                        uint64_t first)
{
    const lnt_optim_tensor_t *tensor = &optim->tensors[number];
    const bool divides = !lnt_freeze_is_plain(optim, number);

    for (uint64_t i = first; i < first + tensor->count; i++) {
        const bool dead = frozen->dead->payload[i] != 0;
        if (frozen->masked->payload[i] != 0 && !dead) return bad_content(frozen->masked->name, "masked, not dead", i);
        if (divides && !dead && !(float_at(frozen->denominator, i) > 0))
            return bad_content(frozen->denominator->name, "not above 0", i);
    }
    return LNT_OK;
}

static lnt_status_t check_frozen(const lnt_optim_t *optim, const lnt_state_blob_t *blob)
{
    const lnt_freezing_t *freezing = optim->row->freezing;
    frozen_t frozen;
    uint64_t first = 0;

    if (freezing == NULL || !blob->header.frozen) return LNT_OK;
    frozen = (frozen_t){lnt_state_find(blob, optim->row->arrays[freezing->denominator].name),
                        lnt_state_find(blob, optim->row->arrays[freezing->dead].name),
                        lnt_state_find(blob, optim->row->arrays[freezing->masked].name)};
    for (uint32_t t = 0; t < optim->n_tensors; first += optim->tensors[t++].count)
        LNT_TRY(check_frozen_tensor(optim, &frozen, t, first));
    return LNT_OK;
}

/* ---- values ---- */

static lnt_status_t check_value(const lnt_state_values_t *values, uint64_t k, double value)
{
    if (!isfinite(value)) return bad_content(values->name, "not finite", k);
    if (values->low < values->high && (value < values->low || value > values->high))
        return bad_content(values->name, "out of its range", k);
    if (k < values->n_counters && (value != floor(value) || value >= 0x1p53))
        return bad_content(values->name, "not a count", k);
    return LNT_OK;
}

static lnt_status_t check_count(const lnt_state_blob_t *blob, const lnt_state_values_t *values, uint64_t n)
{
    const lnt_state_part_t *part = lnt_state_find(blob, values->name);

    if (part == NULL || values->sized_by == NULL || part->bytes == n * sizeof(double))
        return check_size(blob, values->name, n * sizeof(double));
    return lnt_error(LNT_ERR_STATE_MISMATCH, "use the options of the run that saved the state",
                     "the state has %llu numbers in %s, here are %llu: another %s",
                     (unsigned long long)(part->bytes / sizeof(double)), values->name, (unsigned long long)n,
                     values->sized_by);
}

static lnt_status_t check_values(const lnt_optim_t *optim, const lnt_state_blob_t *blob)
{
    for (uint32_t i = 0; i < lnt_optim_n_values(optim->row); i++) {
        const lnt_state_values_t *values = lnt_optim_values_row(optim->row, i);
        uint64_t n = !values->from_freeze || blob->header.frozen ? optim->n_values[i] : 0;
        LNT_TRY(check_count(blob, values, n));
        for (uint64_t k = 0; k < n; k++) {
            double value;
            memcpy(&value, lnt_state_find(blob, values->name)->payload + k * sizeof(value), sizeof(value));
            LNT_TRY(check_value(values, k, value));
        }
    }
    return LNT_OK;
}

static lnt_status_t check_scale(const lnt_optim_t *optim, const lnt_state_blob_t *blob)
{
    double counters[LNT_SCALER_STATE];

    memcpy(counters, lnt_state_find(blob, "loss_scaler")->payload, sizeof(counters));
    return lnt_scaler_check(optim, blob->header.loss_scale, counters);
}

lnt_status_t lnt_state_check_content(const lnt_optim_t *optim, const lnt_state_blob_t *blob)
{
    LNT_TRY(check_groups(optim, blob));
    LNT_TRY(check_values(optim, blob));
    LNT_TRY(check_scale(optim, blob));
    LNT_TRY(check_arrays(optim, blob));
    return check_frozen(optim, blob);
}
