/* Import of state: collective, and all or nothing. Bytes are checked, ranks vote, errors are gathered into buffers
 * beside the live ones, ranks vote again; only then is anything live written, and from there on nothing can fail.
 */
#include <string.h>

#include "../src/base/fp_env.h"
#include "../src/base/hash.h"
#include <linnet/coll.h>

#include "state_import.h"

lnt_status_t lnt_state_vote(lnt_optim_t *optim, lnt_state_vote_t mine)
{
    lnt_comm_info_t info = {.struct_size = sizeof(info)};

    LNT_TRY(lnt_comm_get_info(lnt_plan_comm(optim->plan), &info));
    LNT_TRY(
        lnt_allgather(lnt_plan_comm(optim->plan), &mine, optim->votes, sizeof(mine) / sizeof(float), LNT_F32, NULL));
    if (mine.status < 0) return (lnt_status_t)mine.status;
    for (uint32_t r = 0; r < info.n_ranks; r++) {
        lnt_status_t status = (lnt_status_t)optim->votes[r].status;
        if (status < 0) {
            (void)lnt_error(status, "see the error of that rank", "rank %u cannot load its state: %s", r,
                            lnt_status_string(status));
            lnt_error_mutable()->peer = r;
            return status;
        }
    }
    return LNT_OK;
}

typedef struct import {
    lnt_optim_t *optim;
    lnt_state_blob_t blob;
    uint32_t programs; /* whose errors the blob holds */
    uint32_t n_ranks, carry;
    lnt_state_errors_t errors;
} import_t;

uint32_t lnt_state_programs(const lnt_optim_t *optim, const lnt_state_header_t *header)
{
    const lnt_phase_stats_t stats = {
        .committed = header->step, .frozen = header->frozen != 0, .compression = optim->options.compression};

    return lnt_optim_keeps(optim->row, &stats);
}

/* Of what is the same on all ranks; sections in any order. */
static uint64_t hash_common(const lnt_optim_row_t *row, const lnt_state_blob_t *blob)
{
    const lnt_state_header_t header = lnt_state_common_header(&blob->header);
    uint64_t sum = 0;

    for (uint32_t i = 0; i < blob->header.n_sections; i++) {
        const lnt_state_part_t *part = &blob->parts[i];
        if (lnt_state_is_common(row, part->name))
            sum += lnt_hash64(lnt_hash64_text(0, part->name), part->payload, part->bytes);
    }
    return lnt_hash64_u64(lnt_hash64(0, &header, sizeof(header)), sum);
}

lnt_status_t lnt_state_compare_votes(const lnt_optim_t *optim)
{
    lnt_comm_info_t info = {.struct_size = sizeof(info)};

    LNT_TRY(lnt_comm_get_info(lnt_plan_comm(optim->plan), &info));
    for (uint32_t r = 1; r < info.n_ranks; r++) {
        if (optim->votes[r].common == optim->votes[0].common) continue;
        return lnt_error(LNT_ERR_STATE_MISMATCH, "give every rank its blob of one and the same save",
                         "the states of rank 0 and rank %u are not of one save", r);
    }
    return LNT_OK;
}

static lnt_status_t read_blob(import_t *import, const void *bytes, uint64_t n, lnt_state_vote_t *mine)
{
    if (bytes == NULL)
        return lnt_error(LNT_ERR_INVALID_ARG, "give every rank the blob it saved", "lnt_optim_state_import: no blob");
    LNT_TRY(lnt_state_parse(bytes, n, &import->blob));
    LNT_TRY(lnt_state_check(import->optim, &import->blob));
    LNT_TRY(lnt_state_check_world(import->optim, &import->blob));
    LNT_TRY(lnt_state_check_errors(&import->blob));
    import->programs = lnt_state_programs(import->optim, &import->blob.header);
    import->errors.sparse = (import->blob.header.flags & LNT_STATE_SPARSE) != 0;
    mine->common = hash_common(import->optim->row, &import->blob);
    mine->error_bytes = lnt_state_find(&import->blob, LNT_STATE_ERRORS)->bytes;
    return LNT_OK;
}

/* ---- from here on nothing fails ---- */

/* array NULL: the masters. */
static void load_array(const lnt_optim_t *optim, const lnt_state_part_t *part, void *array, size_t size)
{
    const uint8_t *from = part->payload;

    if (part->bytes == 0) return;
    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        const lnt_optim_tensor_t *tensor = &optim->tensors[t];
        void *to = array != NULL ? (void *)((uint8_t *)array + tensor->base * size) : (void *)tensor->x;
        if (tensor->count != 0) memcpy(to, from, tensor->count * size);
        from += tensor->count * size;
    }
}

static void load_arrays(const lnt_optim_t *optim, const lnt_state_blob_t *blob)
{
    load_array(optim, lnt_state_find(blob, LNT_STATE_MASTERS), NULL, sizeof(float));
    for (uint32_t i = 0; optim->row->arrays[i].name != NULL; i++) {
        const lnt_state_array_t *array = &optim->row->arrays[i];
        load_array(optim, lnt_state_find(blob, array->name), optim->arrays[i], array->elem_bytes);
    }
}

/* What the blob does not hold yet is as at the start. */
static void load_values(const lnt_optim_t *optim, const lnt_state_blob_t *blob)
{
    for (uint32_t i = 0; i < lnt_optim_n_values(optim->row); i++) {
        const lnt_state_values_t *values = lnt_optim_values_row(optim->row, i);
        const lnt_state_part_t *part = lnt_state_find(blob, values->name);
        if (part->bytes != 0) memcpy(optim->values[i], part->payload, part->bytes);
        for (uint64_t k = part->bytes / sizeof(double); k < optim->n_values[i]; k++)
            optim->values[i][k] = values->initial;
    }
}

static void load_groups(lnt_optim_t *optim, const lnt_state_blob_t *blob)
{
    const uint8_t *powers = lnt_state_find(blob, LNT_STATE_GROUPS)->payload;

    for (uint32_t g = 0; g < optim->n_groups; g++, powers += 2 * sizeof(double)) {
        memcpy(&optim->groups[g].power1, powers, sizeof(double));
        memcpy(&optim->groups[g].power2, powers + sizeof(double), sizeof(double));
    }
}

static void load_counters(lnt_optim_t *optim, const lnt_state_header_t *header)
{
    optim->step = header->step;
    optim->skipped = header->skipped;
    optim->frozen = header->frozen != 0;
    optim->loss_scale = header->loss_scale;
    optim->micro_steps = header->micro_steps;
    optim->grad_norm = header->grad_norm;
    optim->dead_share = header->dead_share;
    optim->dropped_norm = header->dropped_norm;
}

void lnt_state_load(lnt_optim_t *optim, const lnt_state_blob_t *blob)
{
    load_arrays(optim, blob);
    load_values(optim, blob);
    load_groups(optim, blob);
    load_counters(optim, &blob->header);
}

lnt_status_t lnt_state_settle(lnt_optim_t *optim, const lnt_state_errors_t *errors, uint32_t programs)
{
    LNT_TRY(lnt_plan_set_carry(optim->plan, errors->present)); /* only removes */
    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        lnt_plan_publish(optim->plan, t, 0, optim->tensors[t].count);
        lnt_optim_note_mask(optim, t);
    }
    if (optim->row->restored != NULL) LNT_TRY(optim->row->restored(optim));
    lnt_state_errors_apply(errors, programs);
    return LNT_OK;
}

/* ---- one blob per rank ---- */

/* Room in a world of one node, if the blobs bring anything for it. */
static lnt_status_t make_room(import_t *import, uint64_t longest)
{
    if (longest != 0) LNT_TRY(lnt_plan_set_carry(import->optim->plan, import->carry | import->programs));
    return lnt_state_errors_measure(import->optim, &import->errors, longest);
}

static lnt_status_t gather_errors(import_t *import)
{
    lnt_optim_t *optim = import->optim;
    uint64_t longest = 0;
    lnt_status_t status;

    for (uint32_t r = 0; r < import->n_ranks; r++) {
        optim->error_bytes[r] = optim->votes[r].error_bytes;
        if (optim->error_bytes[r] > longest) longest = optim->error_bytes[r];
    }
    status = make_room(import, longest);
    LNT_TRY(lnt_state_vote(optim, (lnt_state_vote_t){.status = status}));
    status = lnt_state_errors_collect(optim, &import->errors, import->programs,
                                      lnt_state_find(&import->blob, LNT_STATE_ERRORS)->payload, optim->error_bytes);
    if (status == LNT_OK) status = lnt_state_errors_check(&import->errors, import->programs);
    return lnt_state_vote(optim, (lnt_state_vote_t){.status = status});
}

static lnt_status_t run_import(import_t *import, const void *blob, uint64_t bytes)
{
    lnt_state_vote_t mine = {.status = LNT_OK};
    lnt_status_t status;

    import->carry = lnt_plan_get_carry(import->optim->plan);
    mine.status = read_blob(import, blob, bytes, &mine);
    LNT_TRY(lnt_state_vote(import->optim, mine));
    LNT_TRY(lnt_state_compare_votes(import->optim));
    status = gather_errors(import);
    if (status < 0) {
        (void)lnt_plan_set_carry(import->optim->plan, import->carry);
        return status;
    }
    lnt_state_load(import->optim, &import->blob);
    import->optim->imported = (lnt_optim_imported_t){.before = 0};
    return lnt_state_settle(import->optim, &import->errors, import->programs);
}

lnt_status_t lnt_optim_state_import(lnt_optim_t *optim, const void *blob, uint64_t bytes)
{
    LNT_FP_SCOPE();
    import_t import = {.optim = optim};
    lnt_comm_info_t info = {.struct_size = sizeof(info)};
    lnt_status_t status;

    LNT_CHECK_ARG(optim != NULL);
    LNT_TRY(lnt_optim_check_idle(optim, "state is loaded")); /* others learn it from frames, whose sequences differ */
    LNT_TRY(lnt_comm_get_info(lnt_plan_comm(optim->plan), &info));
    import.n_ranks = info.n_ranks;
    status = run_import(&import, blob, bytes);
    lnt_state_errors_release(&import.errors);
    return status;
}
