/* Reading state: are the bytes a sound blob, and is it one of this optimizer, plan and world? Touches nothing. */
#include <math.h>
#include <string.h>

#include "../src/base/hash.h"
#include "state_format.h"

static const uint64_t largest_count = UINT64_C(1) << 53; /* counters are kept as f64 too */

lnt_status_t lnt_state_corrupt(const char *what)
{
    return lnt_error(LNT_ERR_CORRUPT, "use another copy of the blob", "saved state: %s", what);
}

static lnt_status_t parse_header(const uint8_t *bytes, uint64_t n, lnt_state_header_t *header)
{
    if (n < sizeof(*header)) return lnt_state_corrupt("shorter than its header");
    memcpy(header, bytes, sizeof(*header));
    if (memcmp(header->magic, LNT_STATE_MAGIC, sizeof(header->magic)) != 0)
        return lnt_state_corrupt("not a linnet state");
    if (header->crc != lnt_crc32c(0, header, offsetof(lnt_state_header_t, crc)))
        return lnt_state_corrupt("wrong checksum of the header");
    if (header->version != LNT_STATE_VERSION) {
        return lnt_error(LNT_ERR_VERSION, "load it with the library that wrote it",
                         "saved state: format %u, this library reads %d", header->version, LNT_STATE_VERSION);
    }
    if (header->bytes != n) return lnt_state_corrupt("wrong length");
    if (header->n_sections > LNT_STATE_SECTIONS_MAX || header->frozen > 1 || header->world == 0 ||
        header->rank >= header->world || (header->flags & ~(uint32_t)LNT_STATE_SPARSE) != 0 ||
        header->algorithm[sizeof(header->algorithm) - 1] != '\0' || !isfinite(header->loss_scale) ||
        header->loss_scale <= 0 || header->micro_steps == 0 || !(header->step < largest_count) ||
        !(header->skipped < largest_count)) {
        return lnt_state_corrupt("impossible header");
    }
    return LNT_OK;
}

lnt_state_header_t lnt_state_common_header(const lnt_state_header_t *header)
{
    lnt_state_header_t common = *header;

    common.bytes = 0;
    common.rank = 0;
    common.skipped = 0;
    common.grad_norm = 0;
    common.dropped_norm = 0;
    common.crc = 0;
    return common;
}

const lnt_state_part_t *lnt_state_find(const lnt_state_blob_t *blob, const char *name)
{
    for (uint32_t i = 0; i < blob->header.n_sections; i++) {
        if (strcmp(blob->parts[i].name, name) == 0) return &blob->parts[i];
    }
    return NULL;
}

/* The section at *pos, moving it behind. */
static lnt_status_t parse_section(const uint8_t *bytes, uint64_t n, uint64_t *pos, lnt_state_part_t *part)
{
    lnt_state_section_t section;

    if (n - *pos < sizeof(section)) return lnt_state_corrupt("a section is missing");
    memcpy(&section, bytes + *pos, sizeof(section));
    *pos += sizeof(section);
    if (section.name[0] == '\0' || section.name[sizeof(section.name) - 1] != '\0' || section.bytes % 8 != 0 ||
        section.bytes > n - *pos) {
        return lnt_state_corrupt("impossible section");
    }
    if (section.crc != lnt_state_section_crc(&section, bytes + *pos))
        return lnt_state_corrupt("wrong checksum of a section");
    memcpy(part->name, section.name, sizeof(part->name));
    part->payload = bytes + *pos;
    part->bytes = section.bytes;
    *pos += section.bytes;
    return LNT_OK;
}

lnt_status_t lnt_state_parse(const void *data, uint64_t n, lnt_state_blob_t *blob_p)
{
    static const char *const common[LNT_STATE_COMMON_SECTIONS] = {LNT_STATE_NODES, LNT_STATE_TENSORS, LNT_STATE_GROUPS,
                                                                  LNT_STATE_MASTERS, LNT_STATE_ERRORS};
    lnt_state_blob_t blob = {.header = {.n_sections = 0}};
    uint64_t pos = sizeof(blob.header);

    LNT_TRY(parse_header(data, n, &blob.header));
    for (uint32_t i = 0; i < blob.header.n_sections; i++) {
        LNT_TRY(parse_section(data, n, &pos, &blob.parts[i]));
        if (lnt_state_find(&blob, blob.parts[i].name) != &blob.parts[i])
            return lnt_state_corrupt("two sections of one name");
    }
    if (pos != n) return lnt_state_corrupt("bytes behind the last section");
    for (uint32_t i = 0; i < LNT_STATE_COMMON_SECTIONS; i++) {
        if (lnt_state_find(&blob, common[i]) == NULL) return lnt_state_corrupt("a section is missing");
    }
    *blob_p = blob;
    return LNT_OK;
}

bool lnt_state_next_extent(const uint8_t *payload, uint64_t bytes, uint64_t *pos, lnt_state_extent_t *extent,
                           const uint8_t **values_p)
{
    if (bytes - *pos < sizeof(*extent)) return false;
    memcpy(extent, payload + *pos, sizeof(*extent));
    *pos += sizeof(*extent);
    if (extent->program >= LNT_PROGRAMS_MAX || extent->server > 1 || extent->codec_worker >= extent->n_workers ||
        (extent->server != 0 && extent->codec_worker != 0) || extent->count > (bytes - *pos) / sizeof(float) ||
        lnt_state_padded(extent->count * sizeof(float)) > bytes - *pos)
        return false;
    *values_p = payload + *pos;
    *pos += lnt_state_padded(extent->count * sizeof(float));
    return true;
}

static lnt_status_t check_tensor(const lnt_optim_t *optim, uint32_t number, const lnt_state_tensor_t *row,
                                 const char *name)
{
    lnt_tensor_params_t params;

    LNT_TRY(lnt_plan_get_tensor(optim->plan, number, &params));
    if (row->name_bytes == strlen(params.name) && memcmp(name, params.name, row->name_bytes) == 0 &&
        row->count == params.count && row->grad_dtype == (uint32_t)params.grad_dtype &&
        row->param_dtype == (uint32_t)params.param_dtype && row->group == params.group) {
        return LNT_OK;
    }
    (void)lnt_error(LNT_ERR_STATE_MISMATCH, "register the tensors of the run that saved the state, in its order",
                    "tensor %u: saved \"%.*s\" with %llu elements in group %u, the plan has \"%s\" with %llu in group "
                    "%u (or the types differ)",
                    number, row->name_bytes < 80 ? (int)row->name_bytes : 80, name, (unsigned long long)row->count,
                    row->group, params.name, (unsigned long long)params.count, params.group);
    lnt_error_mutable()->tensor = number;
    return LNT_ERR_STATE_MISMATCH;
}

static lnt_status_t check_tensors(const lnt_optim_t *optim, const lnt_state_blob_t *blob)
{
    const lnt_state_part_t *part = lnt_state_find(blob, LNT_STATE_TENSORS);
    const uint8_t *at = part->payload;
    uint64_t left = part->bytes;

    for (uint32_t t = 0; t < optim->n_tensors && t < blob->header.n_tensors; t++) {
        lnt_state_tensor_t row;
        if (left < sizeof(row)) return lnt_state_corrupt("short list of tensors");
        memcpy(&row, at, sizeof(row));
        at += sizeof(row);
        left -= sizeof(row);
        if (left < lnt_state_padded(row.name_bytes)) return lnt_state_corrupt("short list of tensors");
        LNT_TRY(check_tensor(optim, t, &row, (const char *)at));
        at += lnt_state_padded(row.name_bytes);
        left -= lnt_state_padded(row.name_bytes);
    }
    if (optim->n_tensors != blob->header.n_tensors) {
        return lnt_error(LNT_ERR_STATE_MISMATCH, "register the tensors of the run that saved the state",
                         "the state has %u tensors, the plan %u", blob->header.n_tensors, optim->n_tensors);
    }
    return left == 0 ? LNT_OK : lnt_state_corrupt("long list of tensors");
}

lnt_status_t lnt_state_check_world(lnt_optim_t *optim, const lnt_state_blob_t *blob)
{
    static const char cure[] =
        "resume with as many ranks on the same nodes, each rank with the blob it saved; else give "
        "the blobs of all ranks to lnt_optim_state_import_world";
    lnt_comm_t *comm = lnt_plan_comm(optim->plan);
    const lnt_state_part_t *saved = lnt_state_find(blob, LNT_STATE_NODES);
    lnt_comm_info_t info = {.struct_size = sizeof(info)};
    uint32_t *nodes;
    bool equal = false;

    LNT_TRY(lnt_comm_get_info(comm, &info));
    if (blob->header.world != info.n_ranks || blob->header.n_nodes != info.n_nodes) {
        return lnt_error(LNT_ERR_STATE_MISMATCH, cure, "the state is of %u ranks on %u nodes, here are %u on %u",
                         blob->header.world, blob->header.n_nodes, info.n_ranks, info.n_nodes);
    }
    if (blob->header.rank != info.rank) {
        return lnt_error(LNT_ERR_STATE_MISMATCH, cure, "the state was saved by rank %u, this is rank %u",
                         blob->header.rank, info.rank);
    }
    nodes = lnt_plan_alloc(info.n_ranks * sizeof(*nodes), "nodes of ranks");
    if (nodes == NULL) return LNT_ERR_NO_MEMORY;
    if (lnt_comm_get_nodes(comm, nodes) == LNT_OK && saved->bytes == lnt_state_padded(info.n_ranks * sizeof(*nodes))) {
        equal = memcmp(nodes, saved->payload, info.n_ranks * sizeof(*nodes)) == 0;
    }
    lnt_plan_free(nodes);
    return equal ? LNT_OK
                 : lnt_error(LNT_ERR_STATE_MISMATCH, cure, "ranks sit on other nodes than when the state was saved");
}

bool lnt_state_is_common(const lnt_optim_row_t *row, const char *section)
{
    for (const lnt_state_array_t *array = row->arrays; array->name != NULL; array++) {
        if (strcmp(array->name, section) == 0) return !array->local;
    }
    for (uint32_t i = 0; i < lnt_optim_n_values(row); i++) {
        const lnt_state_values_t *values = lnt_optim_values_row(row, i);
        if (strcmp(values->name, section) == 0) return !values->local;
    }
    if (row->masters_differ && strcmp(section, LNT_STATE_MASTERS) == 0) return false;
    return strcmp(section, LNT_STATE_ERRORS) != 0;
}

lnt_status_t lnt_state_check(lnt_optim_t *optim, const lnt_state_blob_t *blob)
{
    lnt_plan_info_t plan = {.struct_size = sizeof(plan)};

    if (strcmp(blob->header.algorithm, optim->row->name) != 0) {
        return lnt_error(LNT_ERR_STATE_MISMATCH, "create the optimizer that saved the state",
                         "the state is of algorithm \"%s\", this is \"%s\"", blob->header.algorithm, optim->row->name);
    }
    LNT_TRY(check_tensors(optim, blob));
    LNT_TRY(lnt_plan_get_info(optim->plan, &plan));
    if (blob->header.n_groups != optim->n_groups) {
        return lnt_error(LNT_ERR_STATE_MISMATCH, "pass the groups of the run that saved the state",
                         "the state has %u groups, the optimizer %u", blob->header.n_groups, optim->n_groups);
    }
    if (blob->header.model_hash != plan.model_hash) {
        return lnt_error(LNT_ERR_STATE_MISMATCH, "register the tensors with the rows and cols of the run that saved",
                         "shapes of tensors differ from those of the saved state");
    }
    if (blob->header.layout_hash != plan.layout_hash) {
        return lnt_error(LNT_ERR_STATE_MISMATCH,
                         "use the options of the run that saved the state (codecs, blocks, scale rule, non_freeze of "
                         "groups; with clip_mode=bucket the bucket bytes too) and its version of the library",
                         "the exchange programs differ from those of the saved state");
    }
    if (blob->header.frozen && optim->row->freezing == NULL && !optim->row->freezes_itself)
        return lnt_state_corrupt("frozen state of an algorithm without a freeze");
    return lnt_state_check_content(optim, blob);
}
