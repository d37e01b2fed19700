/* linnet-ckpt info: what one file says. Its own checksums are checked; other files are not needed. */
#include "ckpt_tool.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../kernels/dtype.h"
#include "common_json.h"

/* ---- header and sections ---- */

static void print_header(const char *name, const lnt_state_header_t *h)
{
    printf("%s\n", name);
    printf("  algorithm %s, phase %s, step %llu, skipped %llu%s\n", h->algorithm, lnt_phase_name((lnt_phase_t)h->phase),
           (unsigned long long)h->step, (unsigned long long)h->skipped, h->frozen != 0 ? ", frozen" : "");
    printf("  rank %u of %u on %u nodes, format %u, written by %u.%u.%u, %llu bytes\n", h->rank, h->world, h->n_nodes,
           h->version, h->library_version / 10000, h->library_version / 100 % 100, h->library_version % 100,
           (unsigned long long)h->bytes);
    printf("  loss scale %g, micro-steps %u, gradient norm %g, dead share %g, dropped norm %g\n", h->loss_scale,
           h->micro_steps, h->grad_norm, h->dead_share, h->dropped_norm);
    printf("  model hash %016llx, layout hash %016llx\n", (unsigned long long)h->model_hash,
           (unsigned long long)h->layout_hash);
}

static void print_header_json(const char *name, const lnt_state_header_t *h)
{
    printf("{");
    json_text(stdout, "file", name);
    json_text(stdout, "algorithm", h->algorithm);
    json_text(stdout, "phase", lnt_phase_name((lnt_phase_t)h->phase));
    printf("\"step\": %llu, \"skipped\": %llu, \"frozen\": %u, \"rank\": %u, \"world\": %u, \"n_nodes\": %u, ",
           (unsigned long long)h->step, (unsigned long long)h->skipped, h->frozen, h->rank, h->world, h->n_nodes);
    printf("\"format\": %u, \"bytes\": %llu, \"micro_steps\": %u, ", h->version, (unsigned long long)h->bytes,
           h->micro_steps);
    json_number(stdout, "loss_scale", h->loss_scale);
    json_number(stdout, "grad_norm", h->grad_norm);
    json_number(stdout, "dead_share", h->dead_share);
    json_number(stdout, "dropped_norm", h->dropped_norm);
    printf("\"model_hash\": \"%016llx\", \"layout_hash\": \"%016llx\"", (unsigned long long)h->model_hash,
           (unsigned long long)h->layout_hash);
}

static void print_sections(const lnt_state_blob_t *blob, bool json)
{
    printf(json ? ", \"sections\": {" : "  sections:");
    for (uint32_t i = 0; i < blob->header.n_sections; i++) {
        const lnt_state_part_t *part = &blob->parts[i];
        if (json) {
            printf("%s", i == 0 ? "" : ", ");
            json_string(stdout, part->name);
            printf(": %llu", (unsigned long long)part->bytes);
        } else {
            printf(" %s %llu%s", part->name, (unsigned long long)part->bytes,
                   i + 1 < blob->header.n_sections ? "," : " bytes\n");
        }
    }
    if (json) printf("}");
}

/* ---- tensors ---- */

static void print_tensor(const lnt_state_tensor_t *row, const char *name, bool json, bool first)
{
    char text[256];

    (void)snprintf(text, sizeof(text), "%.*s", (int)(row->name_bytes < 255 ? row->name_bytes : 255), name);
    if (!json) {
        printf("    %-32s %12llu  %s/%s  group %u\n", text, (unsigned long long)row->count,
               lnt_dtype_name((lnt_dtype_t)row->grad_dtype), lnt_dtype_name((lnt_dtype_t)row->param_dtype), row->group);
        return;
    }
    printf("%s{", first ? "" : ", ");
    json_text(stdout, "name", text);
    json_text(stdout, "grad_dtype", lnt_dtype_name((lnt_dtype_t)row->grad_dtype));
    json_text(stdout, "param_dtype", lnt_dtype_name((lnt_dtype_t)row->param_dtype));
    printf("\"count\": %llu, \"group\": %u}", (unsigned long long)row->count, row->group);
}

static void print_tensors(const lnt_state_blob_t *blob, bool json)
{
    const lnt_state_part_t *part = lnt_state_find(blob, LNT_STATE_TENSORS);
    uint64_t pos = 0;

    if (json) {
        printf(", \"tensors\": [");
    } else {
        printf("  %u tensors:\n", blob->header.n_tensors);
    }
    for (uint32_t t = 0; t < blob->header.n_tensors; t++) {
        lnt_state_tensor_t row;
        if (part->bytes - pos < sizeof(row)) break;
        memcpy(&row, part->payload + pos, sizeof(row));
        pos += sizeof(row);
        if (part->bytes - pos < lnt_state_padded(row.name_bytes)) break;
        print_tensor(&row, (const char *)part->payload + pos, json, t == 0);
        pos += lnt_state_padded(row.name_bytes);
    }
    if (json) printf("]");
}

/* ---- errors ---- */

typedef struct error_sum {
    uint64_t extents, elems;
    double squares, largest;
} error_sum_t;

static void add_extent(error_sum_t *sum, const uint8_t *values, uint64_t count)
{
    sum->extents++;
    sum->elems += count;
    for (uint64_t i = 0; i < count; i++) {
        float value;
        memcpy(&value, values + i * sizeof(value), sizeof(value));
        sum->squares += (double)value * (double)value;
        sum->largest = fabs((double)value) > sum->largest ? fabs((double)value) : sum->largest;
    }
}

/* By program, worker and server. False: the list is impossible. */
static bool sum_errors(const lnt_state_part_t *part, error_sum_t sums[LNT_PROGRAMS_MAX][2])
{
    for (uint64_t pos = 0; pos < part->bytes;) {
        lnt_state_extent_t extent;
        const uint8_t *values;
        if (!lnt_state_next_extent(part->payload, part->bytes, &pos, &extent, &values)) return false;
        add_extent(&sums[extent.program][extent.server], values, extent.count);
    }
    return true;
}

static void print_error(uint32_t program, const char *role, const error_sum_t *sum, bool json, bool first)
{
    if (json) {
        printf("%s{", first ? "" : ", ");
        json_text(stdout, "role", role);
        json_number(stdout, "norm", sqrt(sum->squares));
        json_number(stdout, "largest", sum->largest);
        printf("\"program\": %u, \"extents\": %llu, \"elements\": %llu}", program, (unsigned long long)sum->extents,
               (unsigned long long)sum->elems);
    } else {
        printf("  errors of program %u, %s: %llu elements in %llu pieces, norm %g, largest %g\n", program, role,
               (unsigned long long)sum->elems, (unsigned long long)sum->extents, sqrt(sum->squares), sum->largest);
    }
}

static bool print_errors(const lnt_state_blob_t *blob, bool json)
{
    static const char *const roles[] = {"worker", "server"};
    error_sum_t sums[LNT_PROGRAMS_MAX][2] = {{{.extents = 0}}};
    bool good = sum_errors(lnt_state_find(blob, LNT_STATE_ERRORS), sums), first = true;

    if (json) printf(", \"errors\": [");
    for (uint32_t p = 0; p < LNT_PROGRAMS_MAX; p++) {
        for (uint32_t role = 0; role < 2; role++) {
            if (sums[p][role].extents == 0) continue;
            print_error(p, roles[role], &sums[p][role], json, first);
            first = false;
        }
    }
    if (json) {
        printf("]}\n");
    } else if (first) {
        printf("  no errors\n");
    }
    return good;
}

static int print_file(const ckpt_config_t *config, const char *name, const void *bytes, uint64_t n)
{
    lnt_state_blob_t blob;

    if (lnt_state_parse(bytes, n, &blob) < 0) {
        (void)fprintf(stderr, "%s: in %s:\n", CKPT_NAME, name);
        return tool_complain(CKPT_NAME);
    }
    if (config->json) {
        print_header_json(name, &blob.header);
    } else {
        print_header(name, &blob.header);
    }
    print_sections(&blob, config->json);
    print_tensors(&blob, config->json);
    if (print_errors(&blob, config->json)) return TOOL_OK;
    (void)fprintf(stderr, "%s: %s: the list of errors is impossible\n", CKPT_NAME, name);
    return TOOL_FAILED;
}

int ckpt_info(const ckpt_config_t *config, const ckpt_files_t *files)
{
    int code = TOOL_OK;

    for (uint32_t i = 0; i < files->n; i++)
        code |= print_file(config, files->names[i], files->blobs[i], files->bytes[i]);
    return code;
}
