/* Dry run of a plan: buckets, bytes per step and rank for every phase, memory and a lower bound of the time, for a
 * world that need not exist. Numbers are exact: they come from the functions that lay out the real exchange.
 *
 * The world is played by a communicator that has a topology and a rank and nothing else: nothing here may wait or send.
 * There is no public way to ask for bytes without ranks, hence the internal headers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <linnet/linnet.h>

#include "../optim/optim_impl.h"
#include "../src/core/comm_net.h"
#include "../src/core/plan_impl.h"
#include "common_nodes.h"
#include "info_tool.h"

enum { LINE_BYTES = 512, WHY_BYTES = 256, FIELDS_MAX = 8, RANK_LINES_MAX = 16 };

typedef struct tensor_line {
    char name[LINE_BYTES];
    uint64_t count;
    uint32_t group; /* of the file */
    bool non_freeze;
    lnt_dtype_t dtype;
} tensor_line_t;

typedef struct dry_run {
    const info_plan_options_t *options;
    node_map_t map;
    lnt_context_t *context;
    lnt_comm_t comm; /* topology and rank only */
    lnt_plan_t *plan;
    lnt_optim_t *optim;
    uint32_t n_groups; /* groups of the file; twice as many are made, the second half non_freeze */
} dry_run_t;

/* ---- the file ---- */

static int split_fields(char *line, char **fields)
{
    int n = 0;
    char *rest = NULL;

    line[strcspn(line, "#\n\r")] = '\0';
    for (char *field = strtok_r(line, " \t", &rest); field != NULL && n < FIELDS_MAX;
         field = strtok_r(NULL, " \t", &rest))
        fields[n++] = field;
    return n;
}

static bool read_number(const char *text, uint64_t max, uint64_t *out)
{
    char *end;

    if (text[0] < '0' || text[0] > '9') return false;
    *out = strtoull(text, &end, 10);
    return *end == '\0' && *out <= max;
}

static bool read_dtype(const char *field, lnt_dtype_t *dtype)
{
    for (int d = 0; d < LNT_DTYPE_COUNT; d++) {
        if (strcmp(field, lnt_dtype_name((lnt_dtype_t)d)) != 0) continue;
        *dtype = (lnt_dtype_t)d;
        return true;
    }
    return false;
}

static bool read_extra(const char *field, tensor_line_t *tensor)
{
    uint64_t group;

    if (strcmp(field, "non_freeze") == 0) {
        tensor->non_freeze = true;
    } else if (read_dtype(field, &tensor->dtype)) {
        return true;
    } else if (read_number(field, 65535, &group)) {
        tensor->group = (uint32_t)group;
    } else {
        return false;
    }
    return true;
}

static bool read_tensor(char **fields, int n, tensor_line_t *tensor)
{
    *tensor = (tensor_line_t){.dtype = LNT_F32};
    (void)snprintf(tensor->name, sizeof(tensor->name), "%s", fields[0]);
    if (n < 2 || !read_number(fields[1], UINT64_C(1) << 48, &tensor->count)) return false;
    for (int i = 2; i < n; i++) {
        if (!read_extra(fields[i], tensor)) return false;
    }
    return true;
}

/* Calls take for every tensor of the file. */
static int read_file(dry_run_t *run, int (*take)(dry_run_t *run, const tensor_line_t *tensor))
{
    FILE *file = fopen(run->options->file, "re");
    char line[LINE_BYTES], *fields[FIELDS_MAX];
    int code = TOOL_OK;

    if (file == NULL) {
        (void)fprintf(stderr, INFO_NAME ": cannot read %s\n", run->options->file);
        return TOOL_USAGE;
    }
    for (unsigned number = 1; code == TOOL_OK && fgets(line, sizeof(line), file) != NULL; number++) {
        tensor_line_t tensor;
        int n = split_fields(line, fields);

        if (n == 0) continue;
        if (read_tensor(fields, n, &tensor)) {
            code = take(run, &tensor);
        } else {
            (void)fprintf(stderr, INFO_NAME ": %s line %u: write: name count [group] [f32|bf16|f16] [non_freeze]\n",
                          run->options->file, number);
            code = TOOL_USAGE;
        }
    }
    (void)fclose(file);
    return code;
}

static int count_group(dry_run_t *run, const tensor_line_t *tensor)
{
    if (tensor->group >= run->n_groups) run->n_groups = tensor->group + 1;
    return TOOL_OK;
}

static int add_tensor(dry_run_t *run, const tensor_line_t *tensor)
{
    static float nowhere; /* a plan reads parameters at commit, which never comes */
    uint32_t number;
    lnt_tensor_params_t params = {.struct_size = sizeof(params),
                                  .name = tensor->name,
                                  .count = tensor->count,
                                  .grad_dtype = tensor->dtype,
                                  .param = &nowhere,
                                  .group = tensor->group + (tensor->non_freeze ? run->n_groups : 0)};

    return (lnt_plan_add_tensor(run->plan, &params, &number) < 0) ? tool_complain(INFO_NAME) : TOOL_OK;
}

/* ---- the world and the plan ---- */

static int make_world(dry_run_t *run)
{
    static lnt_comm_net_t no_channels;
    char why[WHY_BYTES];
    const char *nodes = run->options->nodes;
    char one_each[16];
    uint64_t *labels;
    lnt_status_t status;

    (void)snprintf(one_each, sizeof(one_each), "%u", run->options->ranks);
    if (!node_map_read(&run->map, run->options->ranks, (nodes != NULL) ? nodes : one_each, why, sizeof(why))) {
        (void)fprintf(stderr, INFO_NAME ": --nodes %s\n", why);
        return TOOL_USAGE;
    }
    if (tool_create_context(INFO_NAME, &run->context) < 0) return tool_complain(INFO_NAME);
    labels = calloc(run->map.n_ranks, sizeof(*labels));
    if (labels == NULL) return TOOL_FAILED;
    for (uint32_t r = 0; r < run->map.n_ranks; r++)
        labels[r] = run->map.node_of[r];
    status = lnt_topo_create(labels, run->map.n_ranks, &run->comm.topo);
    free(labels);
    run->comm.context = run->context;
    run->comm.net = &no_channels;
    run->comm.n_ranks = run->map.n_ranks;
    return (status < 0) ? tool_complain(INFO_NAME) : TOOL_OK;
}

static int make_optim(dry_run_t *run)
{
    lnt_optim_params_t params = {
        .struct_size = sizeof(params), .algorithm = run->options->optim, .options = run->options->options};
    lnt_group_t *groups = calloc(2 * (size_t)run->n_groups, sizeof(*groups));
    lnt_status_t status;

    if (groups == NULL) return TOOL_FAILED;
    for (uint32_t g = 0; g < 2 * run->n_groups; g++) {
        lnt_group_defaults(&groups[g]);
        groups[g].non_freeze = g >= run->n_groups;
    }
    params.groups = groups;
    params.n_groups = 2 * run->n_groups;
    status = lnt_optim_create(run->plan, &params, &run->optim);
    free(groups);
    return (status < 0) ? tool_complain(INFO_NAME) : TOOL_OK;
}

static int make_plan(dry_run_t *run)
{
    lnt_plan_params_t params = {.struct_size = sizeof(params),
                                .bucket_bytes = run->options->bucket_bytes,
                                .segment_bytes = run->options->segment_bytes};
    int code = read_file(run, count_group);

    if (code != TOOL_OK) return code;
    if (run->n_groups == 0) {
        (void)fprintf(stderr, INFO_NAME ": %s names no tensor\n", run->options->file);
        return TOOL_USAGE;
    }
    if (lnt_plan_create(&run->comm, &params, &run->plan) < 0) return tool_complain(INFO_NAME);
    code = read_file(run, add_tensor);
    return (code == TOOL_OK) ? make_optim(run) : code;
}

/* ---- the answers ---- */

typedef struct totals {
    lnt_bytes_t max, sum;
    uint64_t node_inter; /* largest sum over the ranks of a node */
    uint32_t n_buckets;
} totals_t;

static uint64_t larger(uint64_t a, uint64_t b)
{
    return (a > b) ? a : b;
}

static lnt_status_t add_up(dry_run_t *run, uint32_t programs, const lnt_codec_t *instead, lnt_bytes_t *per_rank,
                           totals_t *totals)
{
    uint64_t node[NODES_RANKS_MAX] = {0};

    *totals = (totals_t){.n_buckets = 0};
    for (uint32_t r = 0; r < run->map.n_ranks; r++) {
        lnt_bytes_t bytes;

        run->comm.rank = r;
        LNT_TRY(lnt_plan_predict_wire(run->plan, programs, instead, &totals->n_buckets, &bytes));
        if (per_rank != NULL) per_rank[r] = bytes;
        totals->max.intra = larger(totals->max.intra, bytes.intra);
        totals->max.inter = larger(totals->max.inter, bytes.inter);
        totals->sum.intra += bytes.intra;
        totals->sum.inter += bytes.inter;
        node[run->map.node_of[r]] += bytes.inter;
        totals->node_inter = larger(totals->node_inter, node[run->map.node_of[r]]);
    }
    return LNT_OK;
}

static void print_line(const char *who, const char *node, uint64_t intra, uint64_t inter)
{
    printf("  %-8s %6s %16llu %16llu\n", who, node, (unsigned long long)intra, (unsigned long long)inter);
}

static void print_ranks(const dry_run_t *run, const lnt_bytes_t *per_rank)
{
    for (uint32_t r = 0; r < run->map.n_ranks && run->map.n_ranks <= RANK_LINES_MAX; r++) {
        char who[16], node[16];

        (void)snprintf(who, sizeof(who), "%u", r);
        (void)snprintf(node, sizeof(node), "%u", run->map.node_of[r]);
        print_line(who, node, per_rank[r].intra, per_rank[r].inter);
    }
}

static void print_programs(const dry_run_t *run, uint32_t programs)
{
    for (uint32_t p = 0; p < run->plan->n_programs; p++) {
        const lnt_plan_program_t *program = &run->plan->programs[p];
        uint64_t n_elems = 0;

        if ((programs >> p & 1) == 0) continue;
        for (uint32_t t = 0; t < run->plan->n_tensors; t++) {
            n_elems += lnt_plan_is_member(program, t) ? run->plan->tensors[t].params.count : 0;
        }
        printf("  program %s: codec %s, block %u, %llu elements\n", program->name, program->codec.row->name,
               program->codec.cfg.block, (unsigned long long)n_elems);
    }
}

static double wire_seconds(const dry_run_t *run, uint64_t node_bytes)
{
    return (double)node_bytes * 8 / (run->options->gbps * 1e9);
}

static double ratio(uint64_t a, uint64_t b)
{
    return (b > 0) ? (double)a / (double)b : 0;
}

static lnt_status_t print_phase(dry_run_t *run, const lnt_phase_row_t *phase)
{
    static lnt_bytes_t per_rank[NODES_RANKS_MAX];
    const double n = run->map.n_ranks;
    double ring = 2 * (n - 1) / n * 4 * (double)run->plan->n_elems;
    totals_t own, plain;
    lnt_codec_t f32;

    LNT_TRY(lnt_codec_init(&f32, "f32", 0, LNT_SCALE_L2));
    LNT_TRY(add_up(run, phase->programs, NULL, per_rank, &own));
    LNT_TRY(add_up(run, phase->programs, &f32, NULL, &plain));
    printf("phase %s: %u buckets\n", lnt_phase_name(phase->phase), own.n_buckets);
    print_programs(run, phase->programs);
    printf("  %-8s %6s %16s %16s\n", "rank", "node", "bytes intra", "bytes inter");
    print_ranks(run, per_rank);
    print_line("largest", "", own.max.intra, own.max.inter);
    print_line("sum", "", own.sum.intra, own.sum.inter);
    printf("  ratio to the same exchange in f32: %.2f in all, %.2f between nodes; to an f32 ring (%.0f bytes per "
           "rank): %.2f\n",
           ratio(plain.sum.intra + plain.sum.inter, own.sum.intra + own.sum.inter),
           ratio(plain.sum.inter, own.sum.inter), ring, ratio((uint64_t)(ring * n), own.sum.intra + own.sum.inter));
    printf(
        "  wire time at %g Gbit/s out of every node: at least %.3f ms (f32: %.3f ms); coding and latency not counted\n",
        run->options->gbps, 1e3 * wire_seconds(run, own.node_inter), 1e3 * wire_seconds(run, plain.node_inter));
    return LNT_OK;
}

static lnt_status_t print_memory(dry_run_t *run)
{
    lnt_optim_info_t optim = {.struct_size = sizeof(optim)};

    LNT_TRY(lnt_optim_get_info(run->optim, &optim));
    printf("memory of a rank in bytes, beside parameters and gradients\n");
    printf("  %-8s %14s %14s %14s %14s %14s %14s %16s\n", "rank", "errors", "shadows", "frames", "graphs", "other",
           "optimizer", "total");
    for (uint32_t r = 0; r < run->map.n_ranks && r < RANK_LINES_MAX; r++) {
        lnt_plan_memory_t memory = {.struct_size = sizeof(memory)};

        run->comm.rank = r;
        LNT_TRY(lnt_plan_get_memory(run->plan, &memory));
        printf("  %-8u %14llu %14llu %14llu %14llu %14llu %14llu %16llu\n", r, (unsigned long long)memory.errors,
               (unsigned long long)memory.shadows, (unsigned long long)memory.frames, (unsigned long long)memory.graphs,
               (unsigned long long)memory.other, (unsigned long long)optim.memory_bytes,
               (unsigned long long)(memory.total + optim.memory_bytes));
    }
    return LNT_OK;
}

/* The phases a run goes through with these options: before the freeze, and after it if there is one. */
static lnt_status_t print_phases(dry_run_t *run)
{
    const lnt_phase_row_t *before = lnt_optim_current_phase(run->optim), *after;
    lnt_phase_stats_t frozen = {
        .committed = UINT64_MAX, .frozen = true, .compression = run->optim->options.compression};

    after = lnt_optim_phase_row(run->optim->row->phases, &frozen);
    LNT_TRY(print_phase(run, before));
    return (after != before) ? print_phase(run, after) : LNT_OK;
}

static int print_answers(dry_run_t *run)
{
    lnt_status_t status;
    char map[128];

    node_map_text(&run->map, map, sizeof(map));
    printf("dry run: %u tensors, %llu elements, %s(%s), %u ranks on %u nodes (%s), buckets of %llu bytes\n",
           run->plan->n_tensors, (unsigned long long)run->plan->n_elems, run->options->optim,
           (run->options->options != NULL) ? run->options->options : "", run->map.n_ranks, run->map.n_nodes, map,
           (unsigned long long)(run->plan->bucket_elems * sizeof(float)));
    status = print_phases(run);
    if (status >= 0) status = print_memory(run);
    return (status < 0) ? tool_complain(INFO_NAME) : TOOL_OK;
}

int info_plan(const info_plan_options_t *options)
{
    static dry_run_t run;
    int code;

    run = (dry_run_t){.options = options};
    code = make_world(&run);
    if (code == TOOL_OK) code = make_plan(&run);
    if (code == TOOL_OK) code = print_answers(&run);
    (void)lnt_optim_destroy(run.optim);
    (void)lnt_plan_destroy(run.plan);
    lnt_topo_destroy(run.comm.topo);
    (void)lnt_context_destroy(run.context);
    return code;
}
