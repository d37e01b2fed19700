/* Error feedback on import. Which rank owns an error depends on bucket bytes, so every rank's section goes to all, one
 * rank at a time, and each picks what it owns now. Every owned element must be found exactly once, or the import is
 * refused.
 */
#include <stdlib.h>
#include <string.h>

#include <linnet/coll.h>

#include "state_save.h"

enum { PIECE_FLOATS = 1 << 20 };

/* < 0, 0 or > 0. Errors of one program, role, node and tensor follow each other by offset. */
static int compare_extents(const void *a, const void *b)
{
    const lnt_error_extent_t *x = a, *y = b;
    const uint64_t left[] = {x->program, x->server, x->codec_worker, x->tensor, x->offset};
    const uint64_t right[] = {y->program, y->server, y->codec_worker, y->tensor, y->offset};

    for (size_t i = 0; i < sizeof(left) / sizeof(left[0]); i++) {
        if (left[i] != right[i]) return left[i] < right[i] ? -1 : 1;
    }
    return 0;
}

static lnt_status_t list_own(lnt_optim_t *optim, lnt_state_errors_t *errors)
{
    lnt_error_extent_t extent;
    lnt_status_t status;
    size_t n = 0;

    while ((status = lnt_plan_error_extent(optim->plan, n, &extent)) == LNT_OK)
        n++;
    if (status != LNT_ERR_OUT_OF_RANGE) return status;
    errors->own = lnt_plan_alloc(n * sizeof(*errors->own), "owned error extents");
    if (errors->own == NULL) return LNT_ERR_NO_MEMORY;
    for (errors->n_own = 0; errors->n_own < n; errors->n_own++) {
        LNT_TRY(lnt_plan_error_extent(optim->plan, errors->n_own, &errors->own[errors->n_own]));
    }
    if (n != 0) qsort(errors->own, n, sizeof(*errors->own), compare_extents);
    return LNT_OK;
}

lnt_status_t lnt_state_errors_measure(lnt_optim_t *optim, lnt_state_errors_t *errors, uint64_t longest_section)
{
    uint64_t n_floats = 0;

    LNT_TRY(list_own(optim, errors));
    errors->first = lnt_plan_alloc(errors->n_own * sizeof(*errors->first), "places of owned errors");
    if (errors->first == NULL) return LNT_ERR_NO_MEMORY;
    for (size_t i = 0; i < errors->n_own; i++) {
        errors->first[i] = n_floats;
        n_floats += errors->own[i].count;
    }
    errors->values = lnt_plan_alloc(n_floats * sizeof(float), "imported errors");
    if (errors->values == NULL) return LNT_ERR_NO_MEMORY;
    errors->seen = lnt_plan_alloc(n_floats, "imported errors, seen");
    if (errors->seen == NULL) return LNT_ERR_NO_MEMORY;
    errors->stream = lnt_plan_alloc(longest_section, "errors of one rank");
    return errors->stream != NULL ? LNT_OK : LNT_ERR_NO_MEMORY;
}

void lnt_state_errors_release(lnt_state_errors_t *errors)
{
    lnt_plan_free(errors->own);
    lnt_plan_free(errors->first);
    lnt_plan_free(errors->values);
    lnt_plan_free(errors->seen);
    lnt_plan_free(errors->stream);
}

/* The part of a saved extent that lies in one owned extent. `at`: first element of the owned one in errors->values. */
static bool take_part(lnt_state_errors_t *errors, uint64_t at, const lnt_error_extent_t *own,
                      const lnt_state_extent_t *saved, const uint8_t *data)
{
    uint64_t begin = own->offset > saved->offset ? own->offset : saved->offset;
    uint64_t own_end = own->offset + own->count, saved_end = saved->offset + saved->count;
    uint64_t end = own_end < saved_end ? own_end : saved_end;

    if (begin >= end) return true;
    at += begin - own->offset;
    for (uint64_t i = 0; i < end - begin; i++) {
        if (errors->seen[at + i]++ != 0) return false;
    }
    memcpy(errors->values + at, data + (begin - saved->offset) * sizeof(float), (end - begin) * sizeof(float));
    return true;
}

static bool is_of(const lnt_error_extent_t *own, const lnt_state_extent_t *saved)
{
    return own->program == saved->program && own->server == (saved->server != 0) &&
           own->codec_worker == saved->codec_worker && own->tensor == saved->tensor;
}

/* The first owned extent that may share elements with a saved one. */
static size_t find_first(const lnt_state_errors_t *errors, const lnt_state_extent_t *saved)
{
    const lnt_error_extent_t wanted = {.program = saved->program,
                                       .server = saved->server != 0,
                                       .codec_worker = saved->codec_worker,
                                       .tensor = saved->tensor,
                                       .offset = saved->offset};
    size_t low = 0, high = errors->n_own;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_extents(&errors->own[middle], &wanted) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low != 0 && is_of(&errors->own[low - 1], saved) ? low - 1
                                                           : low; /* one that begins before may reach into it */
}

static lnt_status_t take_extent(lnt_state_errors_t *errors, const lnt_state_extent_t *saved, const uint8_t *data)
{
    for (size_t i = find_first(errors, saved); i < errors->n_own && is_of(&errors->own[i], saved); i++) {
        if (errors->own[i].offset >= saved->offset + saved->count) break;
        if (!take_part(errors, errors->first[i], &errors->own[i], saved, data)) {
            return lnt_error(LNT_ERR_CORRUPT, "use the blobs of one save", "saved errors of tensor %u overlap",
                             saved->tensor);
        }
    }
    return LNT_OK;
}

/* Inside its tensor. Pads of units belong to none; whoever owns them takes what fits. */
static bool lies_inside(const lnt_optim_t *optim, const lnt_state_extent_t *saved)
{
    if (saved->tensor == LNT_TENSOR_PAD)
        return saved->count <= UINT32_MAX && saved->offset <= UINT64_MAX - saved->count;
    return saved->tensor < optim->n_tensors && saved->offset <= optim->tensors[saved->tensor].count &&
           saved->count <= optim->tensors[saved->tensor].count - saved->offset;
}

lnt_status_t lnt_state_errors_take(lnt_optim_t *optim, lnt_state_errors_t *errors, uint32_t programs,
                                   const uint8_t *section, uint64_t bytes)
{
    for (uint64_t pos = 0; pos < bytes;) {
        lnt_state_extent_t saved;
        const uint8_t *values;
        if (!lnt_state_next_extent(section, bytes, &pos, &saved, &values) || (programs >> saved.program & 1u) == 0 ||
            !lies_inside(optim, &saved))
            return lnt_state_corrupt("impossible list of errors");
        errors->present |= 1u << saved.program;
        LNT_TRY(take_extent(errors, &saved, values));
    }
    return LNT_OK;
}

/* A section from its rank to all, into errors->stream. */
static lnt_status_t spread(lnt_comm_t *comm, const lnt_state_errors_t *errors, uint32_t root, uint64_t bytes)
{
    float *words = (float *)(void *)errors->stream;
    uint64_t n = bytes / sizeof(float);

    for (uint64_t i = 0; i < n; i += PIECE_FLOATS) {
        LNT_TRY(lnt_broadcast(comm, words + i, n - i < PIECE_FLOATS ? n - i : PIECE_FLOATS, LNT_F32, root, NULL));
    }
    return LNT_OK;
}

lnt_status_t lnt_state_errors_collect(lnt_optim_t *optim, lnt_state_errors_t *errors, uint32_t programs,
                                      const uint8_t *mine, const uint64_t *section_bytes)
{
    lnt_comm_t *comm = lnt_plan_comm(optim->plan);
    lnt_comm_info_t info = {.struct_size = sizeof(info)};
    lnt_status_t status = LNT_OK;

    LNT_TRY(lnt_comm_get_info(comm, &info));
    for (uint32_t r = 0; r < info.n_ranks; r++) {
        if (r == info.rank && section_bytes[r] != 0) memcpy(errors->stream, mine, section_bytes[r]);
        LNT_TRY(spread(comm, errors, r, section_bytes[r]));
        if (status == LNT_OK)
            status = lnt_state_errors_take(optim, errors, programs, errors->stream,
                                           section_bytes[r]); /* go on: others wait */
    }
    return status;
}

lnt_status_t lnt_state_errors_check(const lnt_state_errors_t *errors, uint32_t programs)
{
    uint64_t at = 0;

    for (size_t i = 0; i < errors->n_own; at += errors->own[i++].count) {
        const lnt_error_extent_t *own = &errors->own[i];
        uint8_t expected = (programs >> own->program & 1u) != 0;
        LNT_TRY(lnt_state_sums_check(errors->values + at, own->count, own->program, own->tensor, own->offset));
        for (uint64_t k = 0; k < own->count; k++) {
            if (errors->seen[at + k] == expected || errors->sparse) continue;
            return lnt_error(LNT_ERR_CORRUPT, "use the blobs of one save, from all ranks",
                             "no rank has the saved error of tensor %u, element %llu", own->tensor,
                             (unsigned long long)(own->offset + k));
        }
    }
    return LNT_OK;
}

void lnt_state_errors_apply(const lnt_state_errors_t *errors, uint32_t programs)
{
    uint64_t at = 0;

    for (size_t i = 0; i < errors->n_own; at += errors->own[i++].count) {
        const lnt_error_extent_t *own = &errors->own[i];
        if ((programs >> own->program & 1u) != 0) {
            lnt_plan_write_error(own, errors->values + at);
        } else {
            lnt_plan_write_error(own, NULL);
        }
    }
}
