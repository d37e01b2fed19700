/* Opening a save: every blob is sound, each rank's is there once, they are of one save, and the errors of every tensor
 * that has any cover it exactly once. Touches nothing. */
#include "state_save.h"

#include <stdlib.h>
#include <string.h>

static const char one_save[] = "give the files of one save, one of each rank";

/* The errors of the thread gets its rank. */
static lnt_status_t blame(lnt_status_t status, uint32_t rank)
{
    lnt_error_mutable()->peer = rank;
    return status;
}

static lnt_status_t mismatch(uint32_t rank, const char *what)
{
    return blame(lnt_error(LNT_ERR_STATE_MISMATCH, one_save, "the saved state of rank %u: %s", rank, what), rank);
}

static lnt_status_t corrupt(uint32_t rank, const char *what)
{
    return blame(
        lnt_error(LNT_ERR_CORRUPT, "use another copy of the file", "the saved state of rank %u: %s", rank, what), rank);
}

/* ---- blobs ---- */

static lnt_status_t place_blobs(lnt_state_save_t *save, const void *const *blobs, const uint64_t *bytes, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        lnt_state_blob_t blob;
        if (blobs[i] == NULL || (uintptr_t)blobs[i] % sizeof(float) != 0)
            return lnt_error(LNT_ERR_INVALID_ARG, one_save, "state number %u: no bytes, or not aligned", i);
        LNT_TRY(lnt_state_parse(blobs[i], bytes[i], &blob));
        LNT_TRY(lnt_state_check_errors(&blob));
        if (blob.header.world != n) {
            return lnt_error(LNT_ERR_STATE_MISMATCH, one_save, "%u states are given, the world that saved had %u ranks",
                             n, blob.header.world);
        }
        if (save->blobs[blob.header.rank].header.world != 0) return mismatch(blob.header.rank, "given twice");
        save->blobs[blob.header.rank] = blob;
    }
    return LNT_OK;
}

static bool same_header(const lnt_state_header_t *a, const lnt_state_header_t *b)
{
    const lnt_state_header_t x = lnt_state_common_header(a), y = lnt_state_common_header(b);

    return memcmp(&x, &y, sizeof(x)) == 0;
}

static bool is_same_part(const lnt_state_part_t *a, const lnt_state_part_t *b)
{
    return a != NULL && b != NULL && a->bytes == b->bytes && memcmp(a->payload, b->payload, a->bytes) == 0;
}

static bool is_common(const lnt_state_save_t *save, const char *section)
{
    return save->row != NULL ? lnt_state_is_common(save->row, section) : strcmp(section, LNT_STATE_ERRORS) != 0;
}

static lnt_status_t compare_blobs(const lnt_state_save_t *save)
{
    const lnt_state_blob_t *first = &save->blobs[0];

    for (uint32_t r = 1; r < save->world; r++) {
        const lnt_state_blob_t *blob = &save->blobs[r];
        if (!same_header(&blob->header, &first->header)) return mismatch(r, "of another save than that of rank 0");
        for (uint32_t i = 0; i < first->header.n_sections; i++) {
            const lnt_state_part_t *part = lnt_state_find(blob, first->parts[i].name);
            if (part == NULL) return corrupt(r, "a section is missing");
            if (is_common(save, part->name) && !is_same_part(part, &first->parts[i]))
                return mismatch(r, "of another save than that of rank 0");
            if (strcmp(part->name, LNT_STATE_ERRORS) != 0 && part->bytes != first->parts[i].bytes)
                return corrupt(r, "a section is too short or long");
        }
    }
    return LNT_OK;
}

/* Nodes are numbered by their smallest rank. */
static lnt_status_t check_nodes(const lnt_state_save_t *save)
{
    const lnt_state_part_t *part = lnt_state_find(&save->blobs[0], LNT_STATE_NODES);
    uint32_t n_nodes = 0;

    if (part->bytes != lnt_state_padded(save->world * sizeof(uint32_t))) return corrupt(0, "impossible list of nodes");
    for (uint32_t r = 0; r < save->world; r++) {
        uint32_t node;
        memcpy(&node, part->payload + r * sizeof(node), sizeof(node));
        if (node > n_nodes) return corrupt(0, "impossible list of nodes");
        n_nodes += node == n_nodes;
    }
    return n_nodes == save->blobs[0].header.n_nodes ? LNT_OK : corrupt(0, "impossible list of nodes");
}

static lnt_status_t count_tensors(lnt_state_save_t *save)
{
    const lnt_state_part_t *part = lnt_state_find(&save->blobs[0], LNT_STATE_TENSORS);
    const lnt_state_part_t *masters = lnt_state_find(&save->blobs[0], LNT_STATE_MASTERS);
    uint64_t pos = 0, total = 0;

    for (uint32_t t = 0; t < save->n_tensors; t++) {
        lnt_state_tensor_t row;
        if (part->bytes - pos < sizeof(row)) return corrupt(0, "short list of tensors");
        memcpy(&row, part->payload + pos, sizeof(row));
        pos += sizeof(row);
        if (part->bytes - pos < lnt_state_padded(row.name_bytes) || row.count > masters->bytes / sizeof(float) - total)
            return corrupt(0, "impossible list of tensors");
        pos += lnt_state_padded(row.name_bytes);
        total += row.count;
        save->counts[t] = row.count;
    }
    if (pos != part->bytes || lnt_state_padded(total * sizeof(float)) != masters->bytes)
        return corrupt(0, "impossible list of tensors");
    return LNT_OK;
}

/* ---- errors ---- */

/* The piece at *pos of a rank's errors, moving it behind. */
static lnt_status_t next_piece(const lnt_state_save_t *save, uint32_t rank, uint64_t *pos, lnt_state_piece_t *piece)
{
    const lnt_state_part_t *part = lnt_state_find(&save->blobs[rank], LNT_STATE_ERRORS);
    const lnt_state_extent_t *extent = &piece->extent;
    uint64_t count;

    if (!lnt_state_next_extent(part->payload, part->bytes, pos, &piece->extent, &piece->values) ||
        (extent->tensor >= save->n_tensors && extent->tensor != LNT_TENSOR_PAD))
        return corrupt(rank, "impossible list of errors");
    count = extent->tensor == LNT_TENSOR_PAD ? UINT32_MAX : save->counts[extent->tensor];
    if (extent->count > count || (extent->tensor != LNT_TENSOR_PAD && extent->offset > count - extent->count))
        return corrupt(rank, "impossible list of errors");
    return LNT_OK;
}

/* Pads of units hold no parameter: their errors stay behind when the world changes. pieces NULL: only counts. */
static lnt_status_t list_pieces(const lnt_state_save_t *save, lnt_state_piece_t *pieces, size_t *n_p)
{
    *n_p = 0;
    for (uint32_t r = 0; r < save->world; r++) {
        const lnt_state_part_t *part = lnt_state_find(&save->blobs[r], LNT_STATE_ERRORS);
        for (uint64_t pos = 0; pos < part->bytes;) {
            lnt_state_piece_t piece;
            LNT_TRY(next_piece(save, r, &pos, &piece));
            if (piece.extent.tensor == LNT_TENSOR_PAD || piece.extent.count == 0) continue;
            if (pieces != NULL) pieces[*n_p] = piece;
            ++*n_p;
        }
    }
    return LNT_OK;
}

static int compare_pieces(const void *a, const void *b)
{
    const lnt_state_extent_t *x = &((const lnt_state_piece_t *)a)->extent, *y = &((const lnt_state_piece_t *)b)->extent;
    const uint64_t left[] = {x->program, x->tensor, x->server, x->codec_worker, x->offset};
    const uint64_t right[] = {y->program, y->tensor, y->server, y->codec_worker, y->offset};

    for (size_t i = 0; i < sizeof(left) / sizeof(left[0]); i++) {
        if (left[i] != right[i]) return left[i] < right[i] ? -1 : 1;
    }
    return 0;
}

static bool same_owner(const lnt_state_extent_t *a, const lnt_state_extent_t *b)
{
    return a->program == b->program && a->tensor == b->tensor && a->server == b->server &&
           a->codec_worker == b->codec_worker;
}

static lnt_status_t uncovered(const lnt_state_extent_t *extent, const char *what)
{
    return lnt_error(LNT_ERR_CORRUPT, one_save, "saved errors of tensor %u in program %u %s", extent->tensor,
                     extent->program, what);
}

/* Pieces of one owner follow each other without a gap. */
static lnt_status_t check_owner(const lnt_state_save_t *save, size_t first, size_t end)
{
    const lnt_state_extent_t *of = &save->pieces[first].extent;
    uint64_t next = 0;

    for (size_t i = first; i < end; i++) {
        const lnt_state_extent_t *extent = &save->pieces[i].extent;
        if (extent->offset < next) return uncovered(of, "overlap");
        if (extent->offset > next && !save->sparse) return uncovered(of, "are missing in part");
        next = extent->offset + extent->count;
    }
    return next == save->counts[of->tensor] || save->sparse ? LNT_OK : uncovered(of, "are missing in part");
}

/* Of every tensor that has errors in a program, all workers and the server have them. */
static lnt_status_t check_cover(const lnt_state_save_t *save)
{
    for (size_t i = 0; i < save->n_pieces;) {
        const lnt_state_extent_t *of = &save->pieces[i].extent;
        uint32_t owners = 0;
        for (; i < save->n_pieces && save->pieces[i].extent.program == of->program &&
               save->pieces[i].extent.tensor == of->tensor;
             owners++) {
            size_t first = i;
            while (i < save->n_pieces && same_owner(&save->pieces[i].extent, &save->pieces[first].extent))
                i++;
            LNT_TRY(check_owner(save, first, i));
        }
        if (owners != save->workers[of->program] + 1 && !save->sparse) return uncovered(of, "are missing in part");
    }
    return LNT_OK;
}

static lnt_status_t index_errors(lnt_state_save_t *save)
{
    LNT_TRY(list_pieces(save, NULL, &save->n_pieces));
    save->pieces = lnt_plan_alloc(save->n_pieces * sizeof(*save->pieces), "saved errors");
    if (save->pieces == NULL) return LNT_ERR_NO_MEMORY;
    LNT_TRY(list_pieces(save, save->pieces, &save->n_pieces));
    if (save->n_pieces != 0) qsort(save->pieces, save->n_pieces, sizeof(*save->pieces), compare_pieces);
    for (size_t i = 0; i < save->n_pieces; i++) {
        const lnt_state_extent_t *extent = &save->pieces[i].extent;
        uint32_t *n_workers = &save->workers[extent->program];
        save->programs |= 1u << extent->program;
        if (*n_workers != 0 && *n_workers != extent->n_workers) return uncovered(extent, "contradict each other");
        *n_workers = extent->n_workers;
    }
    return check_cover(save);
}

static lnt_status_t fill(lnt_state_save_t *save, const void *const *blobs, const uint64_t *bytes, uint32_t n)
{
    save->blobs = lnt_plan_alloc(n * sizeof(*save->blobs), "blobs of a save");
    if (save->blobs == NULL) return LNT_ERR_NO_MEMORY;
    LNT_TRY(place_blobs(save, blobs, bytes, n));
    save->world = n;
    save->n_tensors = save->blobs[0].header.n_tensors;
    save->row = lnt_optim_row_by_name(save->blobs[0].header.algorithm);
    save->sparse = (save->blobs[0].header.flags & LNT_STATE_SPARSE) != 0;
    LNT_TRY(compare_blobs(save));
    LNT_TRY(check_nodes(save));
    if (save->n_tensors > lnt_state_find(&save->blobs[0], LNT_STATE_TENSORS)->bytes)
        return corrupt(0, "short list of tensors");
    save->counts = lnt_plan_alloc(save->n_tensors * sizeof(*save->counts), "lengths of saved tensors");
    if (save->counts == NULL) return LNT_ERR_NO_MEMORY;
    LNT_TRY(count_tensors(save));
    return index_errors(save);
}

lnt_status_t lnt_state_save_open(const void *const *blobs, const uint64_t *bytes, uint32_t n, lnt_state_save_t *save_p)
{
    lnt_state_save_t save = {.blobs = NULL};
    lnt_status_t status =
        n != 0 ? fill(&save, blobs, bytes, n) : lnt_error(LNT_ERR_INVALID_ARG, one_save, "no saved state is given");

    if (status < 0) {
        lnt_state_save_close(&save);
    } else {
        *save_p = save;
    }
    return status;
}

void lnt_state_save_close(lnt_state_save_t *save)
{
    lnt_plan_free(save->pieces);
    lnt_plan_free(save->counts);
    lnt_plan_free(save->blobs);
    *save = (lnt_state_save_t){.blobs = NULL};
}
