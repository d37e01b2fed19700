/* Reading state: are the bytes a sound blob, and is it one of this optimizer, plan and world? Touches nothing. */
#include <math.h>
#include <string.h>

#include "../src/base/hash.h"
#include "state_format.h"

static lnt_status_t corrupt(const char *what)
{
    return lnt_error(LNT_ERR_CORRUPT, "use another copy of the blob", "saved state: %s", what);
}

static lnt_status_t parse_header(const uint8_t *bytes, uint64_t n, lnt_state_header_t *header)
{
    if (n < sizeof(*header)) return corrupt("shorter than its header");
    memcpy(header, bytes, sizeof(*header));
    if (memcmp(header->magic, LNT_STATE_MAGIC, sizeof(header->magic)) != 0) return corrupt("not a linnet state");
    if (header->crc != lnt_crc32c(0, header, offsetof(lnt_state_header_t, crc)))
        return corrupt("wrong checksum of the header");
    if (header->version != LNT_STATE_VERSION) {
        return lnt_error(LNT_ERR_VERSION, "load it with the library that wrote it",
                         "saved state: format %u, this library reads %d", header->version, LNT_STATE_VERSION);
    }
    if (header->bytes != n) return corrupt("wrong length");
    if (header->n_sections != LNT_STATE_SECTIONS || header->frozen > 1 || header->world == 0 ||
        header->rank >= header->world || header->algorithm[sizeof(header->algorithm) - 1] != '\0' ||
        !isfinite(header->loss_scale) || header->loss_scale <= 0 || header->micro_steps == 0) {
        return corrupt("impossible header");
    }
    return LNT_OK;
}

lnt_status_t lnt_state_parse(const void *data, uint64_t n, lnt_state_blob_t *blob_p)
{
    const uint8_t *bytes = data;
    lnt_state_blob_t blob;
    uint64_t pos = sizeof(blob.header);

    LNT_TRY(parse_header(bytes, n, &blob.header));
    for (uint32_t id = 0; id < LNT_STATE_SECTIONS; id++) {
        lnt_state_section_t section;
        if (n - pos < sizeof(section)) return corrupt("a section is missing");
        memcpy(&section, bytes + pos, sizeof(section));
        pos += sizeof(section);
        if (section.id != id || section.bytes % 8 != 0 || section.bytes > n - pos) return corrupt("impossible section");
        if (section.crc != lnt_state_section_crc(&section, bytes + pos)) return corrupt("wrong checksum of a section");
        blob.payload[id] = bytes + pos;
        blob.bytes[id] = section.bytes;
        pos += section.bytes;
    }
    if (pos != n) return corrupt("bytes behind the last section");
    *blob_p = blob;
    return LNT_OK;
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
    const uint8_t *at = blob->payload[LNT_STATE_TENSORS];
    uint64_t left = blob->bytes[LNT_STATE_TENSORS];

    for (uint32_t t = 0; t < optim->n_tensors && t < blob->header.n_tensors; t++) {
        lnt_state_tensor_t row;
        if (left < sizeof(row)) return corrupt("short list of tensors");
        memcpy(&row, at, sizeof(row));
        at += sizeof(row);
        left -= sizeof(row);
        if (left < lnt_state_padded(row.name_bytes)) return corrupt("short list of tensors");
        LNT_TRY(check_tensor(optim, t, &row, (const char *)at));
        at += lnt_state_padded(row.name_bytes);
        left -= lnt_state_padded(row.name_bytes);
    }
    if (optim->n_tensors != blob->header.n_tensors) {
        return lnt_error(LNT_ERR_STATE_MISMATCH, "register the tensors of the run that saved the state",
                         "the state has %u tensors, the plan %u", blob->header.n_tensors, optim->n_tensors);
    }
    return left == 0 ? LNT_OK : corrupt("long list of tensors");
}

static lnt_status_t check_world(lnt_optim_t *optim, const lnt_state_blob_t *blob)
{
    static const char cure[] = "resume with as many ranks on the same nodes, each rank with the blob it saved";
    lnt_comm_t *comm = lnt_plan_comm(optim->plan);
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
    if (lnt_comm_get_nodes(comm, nodes) == LNT_OK &&
        blob->bytes[LNT_STATE_NODES] == lnt_state_padded(info.n_ranks * sizeof(*nodes))) {
        equal = memcmp(nodes, blob->payload[LNT_STATE_NODES], info.n_ranks * sizeof(*nodes)) == 0;
    }
    lnt_plan_free(nodes);
    return equal ? LNT_OK
                 : lnt_error(LNT_ERR_STATE_MISMATCH, cure, "ranks sit on other nodes than when the state was saved");
}

static lnt_status_t check_sizes(const lnt_optim_t *optim, const lnt_state_blob_t *blob)
{
    const uint64_t frozen_elems = blob->header.frozen ? optim->n_elems : 0;
    const struct {
        uint32_t id;
        uint64_t bytes;
    } expected[] = {{LNT_STATE_GROUPS, optim->n_groups * 2 * sizeof(double)},
                    {LNT_STATE_MASTERS, optim->n_elems * sizeof(float)},
                    {LNT_STATE_EXP_AVG, optim->n_elems * sizeof(float)},
                    {LNT_STATE_EXP_AVG_SQ, optim->n_elems * sizeof(float)},
                    {LNT_STATE_DENOMINATOR, frozen_elems * sizeof(float)},
                    {LNT_STATE_DEAD, frozen_elems}};

    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        if (blob->bytes[expected[i].id] != lnt_state_padded(expected[i].bytes))
            return corrupt("a section has the wrong length");
    }
    return LNT_OK;
}

static lnt_status_t check_values(const lnt_optim_t *optim, const lnt_state_blob_t *blob)
{
    const uint8_t *dead = blob->payload[LNT_STATE_DEAD];

    for (uint32_t g = 0; g < 2 * optim->n_groups; g++) {
        double power;
        memcpy(&power, blob->payload[LNT_STATE_GROUPS] + g * sizeof(power), sizeof(power));
        if (!(power >= 0 && power <= 1)) return corrupt("impossible power of beta");
    }
    for (uint64_t i = 0; i < blob->bytes[LNT_STATE_DEAD]; i++) {
        if (dead[i] > 1) return corrupt("impossible mask");
    }
    return LNT_OK;
}

lnt_status_t lnt_state_check(lnt_optim_t *optim, const lnt_state_blob_t *blob)
{
    lnt_plan_info_t plan = {.struct_size = sizeof(plan)};

    if (strcmp(blob->header.algorithm, optim->row->name) != 0) {
        return lnt_error(LNT_ERR_STATE_MISMATCH, "create the optimizer that saved the state",
                         "the state is of algorithm \"%s\", this is \"%s\"", blob->header.algorithm, optim->row->name);
    }
    LNT_TRY(check_tensors(optim, blob));
    LNT_TRY(check_world(optim, blob));
    LNT_TRY(lnt_plan_get_info(optim->plan, &plan));
    if (blob->header.layout_hash != plan.layout_hash || blob->header.n_groups != optim->n_groups) {
        return lnt_error(LNT_ERR_STATE_MISMATCH,
                         "use the options of the run that saved the state (codecs, blocks, scale rule, groups)",
                         "the exchange programs differ from those of the saved state");
    }
    if (blob->header.frozen && !optim->row->freezes) return corrupt("frozen state of an algorithm without a freeze");
    LNT_TRY(check_sizes(optim, blob));
    return check_values(optim, blob);
}
