/* The blob of one rank of another world, from the blobs of all ranks of the old one: a pure function. Sections that are
 * the same on all ranks are copied; every rank's file holds its share of the residual, as server errors, wherever they
 * will belong: which rank owns what depends on bucket bytes, and importing brings it there.
 */
#include <string.h>

#include "state_save.h"
#include "state_writer.h"

typedef struct target {
    const lnt_state_save_t *save;
    lnt_state_writer_t writer;
    uint32_t n_ranks, n_nodes, rank;
    const uint32_t *nodes;
    double *sums;
    float *residual;
    lnt_status_t status; /* of the first sum that is not finite */
} target_t;

bool lnt_state_same_nodes(const lnt_state_save_t *save, uint32_t n_ranks, const uint32_t *nodes)
{
    return save->world == n_ranks &&
           memcmp(lnt_state_find(&save->blobs[0], LNT_STATE_NODES)->payload, nodes, n_ranks * sizeof(*nodes)) == 0;
}

/* This rank's share of a tensor. */
static void write_residual(target_t *target, uint32_t program, uint32_t tensor)
{
    const uint64_t count = target->save->counts[tensor];
    const uint64_t begin = count / target->n_ranks * target->rank, last = target->rank + 1 == target->n_ranks;
    const uint64_t end = last ? count : begin + count / target->n_ranks;
    const lnt_state_extent_t extent = {.program = program,
                                       .server = 1,
                                       .n_workers = target->save->workers[program],
                                       .tensor = tensor,
                                       .offset = begin,
                                       .count = end - begin};
    lnt_state_mass_t mass = {.before = 0};
    size_t first, stop;

    lnt_state_pieces_of(target->save, program, tensor, &first, &stop);
    if (first == stop || begin == end) return;
    if (target->writer.out != NULL) {
        lnt_state_residual(target->save, program, tensor, target->sums, target->residual, &mass);
        if (target->status == LNT_OK)
            target->status =
                lnt_state_sums_check(target->residual + begin, extent.count, program, tensor, extent.offset);
    }
    lnt_state_put(&target->writer, &extent, sizeof(extent));
    lnt_state_put(&target->writer, target->residual + begin, extent.count * sizeof(float));
    lnt_state_pad(&target->writer);
}

static void write_errors(target_t *target)
{
    lnt_state_open(&target->writer);
    for (uint32_t p = 0; p < LNT_PROGRAMS_MAX; p++) {
        for (uint32_t t = 0; t < target->save->n_tensors && (target->save->programs >> p & 1u) != 0; t++)
            write_residual(target, p, t);
    }
    lnt_state_close(&target->writer, LNT_STATE_ERRORS);
}

/* bytes are whole elements and padding. */
static void write_mean(target_t *target, const lnt_state_part_t *part, size_t size)
{
    lnt_state_open(&target->writer);
    if (target->writer.out != NULL)
        lnt_state_mean(target->save, part->name, size, 0, part->bytes / size, target->writer.out + target->writer.pos);
    target->writer.pos += part->bytes;
    lnt_state_close(&target->writer, part->name);
}

static void write_section(target_t *target, const lnt_state_part_t *part)
{
    const size_t local = lnt_state_local_size(target->save, part->name);

    if (strcmp(part->name, LNT_STATE_NODES) == 0) {
        lnt_state_put_section(&target->writer, part->name, target->nodes, target->n_ranks * sizeof(*target->nodes));
    } else if (strcmp(part->name, LNT_STATE_ERRORS) == 0) {
        write_errors(target);
    } else if (local != 0) {
        write_mean(target, part, local);
    } else {
        lnt_state_put_section(&target->writer, part->name, part->payload, part->bytes);
    }
}

static void write_blob(target_t *target)
{
    const lnt_state_blob_t *from = &target->save->blobs[0];
    lnt_state_header_t header = from->header;

    header.world = target->n_ranks;
    header.rank = target->rank;
    header.n_nodes = target->n_nodes;
    header.flags = LNT_STATE_SPARSE;
    lnt_state_put(&target->writer, &header, sizeof(header));
    for (uint32_t i = 0; i < header.n_sections; i++)
        write_section(target, &from->parts[i]);
    lnt_state_put_header(&target->writer, header);
}

static uint32_t count_nodes(uint32_t n_ranks, const uint32_t *nodes)
{
    uint32_t n_nodes = 0;

    for (uint32_t r = 0; r < n_ranks; r++) {
        if (nodes[r] > n_nodes) return 0;
        n_nodes += nodes[r] == n_nodes;
    }
    return n_nodes;
}

lnt_status_t lnt_state_repartition(const lnt_state_save_t *save, uint32_t n_ranks, const uint32_t *nodes, uint32_t rank,
                                   void *blob, uint64_t *bytes_p)
{
    target_t target = {.save = save, .writer = {.out = blob}, .n_ranks = n_ranks, .nodes = nodes, .rank = rank};
    lnt_status_t status = LNT_OK;

    if (save->row != NULL && save->row->one_world) {
        return lnt_error(LNT_ERR_UNSUPPORTED, "resume in the world that saved",
                         "states of \"%s\" hold pads and errors of their world", save->row->name);
    }
    target.n_nodes = count_nodes(n_ranks, nodes);
    if (target.n_nodes == 0 || rank >= n_ranks)
        return lnt_error(LNT_ERR_INVALID_ARG, "number nodes by their smallest rank, from 0",
                         "impossible list of nodes");
    target.sums = lnt_plan_alloc(lnt_state_longest(save) * sizeof(*target.sums), "sums of residuals");
    target.residual = lnt_plan_alloc(lnt_state_longest(save) * sizeof(*target.residual), "residuals of a tensor");
    if (target.sums != NULL && target.residual != NULL) {
        write_blob(&target);
        *bytes_p = target.writer.pos;
        status = target.status;
    } else {
        status = LNT_ERR_NO_MEMORY;
    }
    lnt_plan_free(target.sums);
    lnt_plan_free(target.residual);
    return status;
}
