/* Writing state. One routine serves both calls: without a buffer it only counts. Local; nothing changes. */
#include <string.h>

#include "state_writer.h"

static lnt_status_t write_nodes(const lnt_optim_t *optim, lnt_state_writer_t *writer)
{
    lnt_comm_t *comm = lnt_plan_comm(optim->plan);
    lnt_comm_info_t info = {.struct_size = sizeof(info)};
    uint32_t *nodes;
    lnt_status_t status;

    LNT_TRY(lnt_comm_get_info(comm, &info));
    nodes = lnt_plan_alloc(info.n_ranks * sizeof(*nodes), "nodes of ranks");
    if (nodes == NULL) return LNT_ERR_NO_MEMORY;
    status = lnt_comm_get_nodes(comm, nodes);
    lnt_state_open(writer);
    lnt_state_put(writer, nodes, info.n_ranks * sizeof(*nodes));
    lnt_state_close(writer, LNT_STATE_NODES);
    lnt_plan_free(nodes);
    return status;
}

static lnt_status_t write_tensors(const lnt_optim_t *optim, lnt_state_writer_t *writer)
{
    lnt_state_open(writer);
    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        lnt_tensor_params_t params;
        lnt_state_tensor_t row;
        LNT_TRY(lnt_plan_get_tensor(optim->plan, t, &params));
        row = (lnt_state_tensor_t){params.count, (uint32_t)params.grad_dtype, (uint32_t)params.param_dtype,
                                   params.group, (uint32_t)strlen(params.name)};
        lnt_state_put(writer, &row, sizeof(row));
        lnt_state_put(writer, params.name, row.name_bytes);
        lnt_state_pad(writer);
    }
    lnt_state_close(writer, LNT_STATE_TENSORS);
    return LNT_OK;
}

static void write_groups(const lnt_optim_t *optim, lnt_state_writer_t *writer)
{
    lnt_state_open(writer);
    for (uint32_t g = 0; g < optim->n_groups; g++) {
        double powers[2] = {optim->groups[g].power1, optim->groups[g].power2};
        lnt_state_put(writer, powers, sizeof(powers));
    }
    lnt_state_close(writer, LNT_STATE_GROUPS);
}

/* array has one element of `size` bytes per element, laid out like the moments; NULL: the masters. */
static void write_array(const lnt_optim_t *optim, lnt_state_writer_t *writer, const char *name, const void *array,
                        size_t size, bool present)
{
    lnt_state_open(writer);
    for (uint32_t t = 0; present && t < optim->n_tensors; t++) {
        const lnt_optim_tensor_t *tensor = &optim->tensors[t];
        lnt_state_put(writer, array != NULL ? (const uint8_t *)array + tensor->base * size : (const void *)tensor->x,
                      tensor->count * size);
    }
    lnt_state_close(writer, name);
}

static void write_values(const lnt_optim_t *optim, lnt_state_writer_t *writer)
{
    for (uint32_t i = 0; i < lnt_optim_n_values(optim->row); i++) {
        const lnt_state_values_t *values = lnt_optim_values_row(optim->row, i);
        lnt_state_open(writer);
        if (lnt_optim_holds_values(optim, values))
            lnt_state_put(writer, optim->values[i], optim->n_values[i] * sizeof(double));
        lnt_state_close(writer, values->name);
    }
}

/* 32-bit words of a blob are aligned. */
static void put_error(lnt_state_writer_t *writer, const lnt_error_extent_t *extent)
{
    if (writer->out != NULL) lnt_plan_read_error(extent, (float *)(void *)(writer->out + writer->pos));
    writer->pos += extent->count * sizeof(float);
}

static lnt_status_t write_errors(const lnt_optim_t *optim, lnt_state_writer_t *writer)
{
    const lnt_phase_stats_t stats = {optim->step, optim->frozen, optim->options.compression};
    const uint32_t programs = lnt_optim_keeps(optim->row, &stats);
    lnt_error_extent_t extent;
    lnt_status_t status;

    lnt_state_open(writer);
    for (size_t i = 0; (status = lnt_plan_error_extent(optim->plan, i, &extent)) == LNT_OK; i++) {
        lnt_state_extent_t row = {extent.program,       extent.server, extent.codec_worker,
                                  extent.codec_workers, extent.tensor, 0,
                                  extent.offset,        extent.count};
        if ((programs >> extent.program & 1u) == 0) continue; /* zero outside its phase */
        lnt_state_put(writer, &row, sizeof(row));
        put_error(writer, &extent);
        lnt_state_pad(writer);
    }
    lnt_state_close(writer, LNT_STATE_ERRORS);
    return status == LNT_ERR_OUT_OF_RANGE ? LNT_OK : status;
}

uint32_t lnt_state_sections(const lnt_optim_row_t *row)
{
    uint32_t n = LNT_STATE_COMMON_SECTIONS;

    for (const lnt_state_array_t *array = row->arrays; array->name != NULL; array++)
        n++;
    return n + lnt_optim_n_values(row);
}

static lnt_status_t make_header(const lnt_optim_t *optim, lnt_state_header_t *header)
{
    lnt_comm_info_t comm = {.struct_size = sizeof(comm)};
    lnt_plan_info_t plan = {.struct_size = sizeof(plan)};

    LNT_TRY(lnt_comm_get_info(lnt_plan_comm(optim->plan), &comm));
    LNT_TRY(lnt_plan_get_info(optim->plan, &plan));
    *header = (lnt_state_header_t){.library_version = lnt_version(),
                                   .n_sections = lnt_state_sections(optim->row),
                                   .world = comm.n_ranks,
                                   .rank = comm.rank,
                                   .n_nodes = comm.n_nodes,
                                   .flags = comm.n_nodes == 1 ? LNT_STATE_SPARSE : 0,
                                   .model_hash = plan.model_hash,
                                   .layout_hash = plan.layout_hash,
                                   .step = optim->step,
                                   .skipped = optim->skipped,
                                   .phase = (uint32_t)lnt_optim_current_phase(optim)->phase,
                                   .frozen = optim->frozen,
                                   .n_tensors = optim->n_tensors,
                                   .n_groups = optim->n_groups,
                                   .loss_scale = optim->loss_scale,
                                   .grad_norm = optim->grad_norm,
                                   .dead_share = optim->dead_share,
                                   .dropped_norm = optim->dropped_norm,
                                   .micro_steps = optim->micro_steps};
    memcpy(header->algorithm, optim->row->name, strlen(optim->row->name));
    return LNT_OK;
}

static lnt_status_t write_state(const lnt_optim_t *optim, lnt_state_writer_t *writer)
{
    lnt_state_header_t header;

    if (optim->in_step)
        return lnt_error(LNT_ERR_INVALID_USAGE, "call lnt_optim_end first", "state is saved between steps");
    LNT_TRY(make_header(optim, &header));
    lnt_state_put(writer, &header, sizeof(header));
    LNT_TRY(write_nodes(optim, writer));
    LNT_TRY(write_tensors(optim, writer));
    write_groups(optim, writer);
    write_array(optim, writer, LNT_STATE_MASTERS, NULL, sizeof(float), true);
    for (uint32_t i = 0; optim->row->arrays[i].name != NULL; i++) {
        const lnt_state_array_t *array = &optim->row->arrays[i];
        write_array(optim, writer, array->name, optim->arrays[i], array->elem_bytes, lnt_optim_holds(optim, array));
    }
    write_values(optim, writer);
    LNT_TRY(write_errors(optim, writer));
    lnt_state_put_header(writer, header);
    return LNT_OK;
}

lnt_status_t lnt_optim_state_size(lnt_optim_t *optim, uint64_t *bytes_p)
{
    lnt_state_writer_t writer = {.out = NULL};

    LNT_CHECK_ARG(optim != NULL && bytes_p != NULL);
    LNT_TRY(write_state(optim, &writer));
    *bytes_p = writer.pos;
    return LNT_OK;
}

lnt_status_t lnt_optim_state_export(lnt_optim_t *optim, void *blob, uint64_t bytes)
{
    lnt_state_writer_t writer = {.out = blob};
    uint64_t needed;

    LNT_CHECK_ARG(optim != NULL && blob != NULL && (uintptr_t)blob % sizeof(float) == 0);
    LNT_TRY(lnt_optim_state_size(optim, &needed));
    if (bytes != needed) {
        return lnt_error(LNT_ERR_INVALID_ARG, "ask lnt_optim_state_size just before",
                         "the state takes %llu bytes, the buffer has %llu", (unsigned long long)needed,
                         (unsigned long long)bytes);
    }
    return write_state(optim, &writer);
}
