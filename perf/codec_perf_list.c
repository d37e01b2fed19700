/* From options to cases: lists of names and numbers, and the walk over codec x block x operation x element type x
 * number of inputs x threads x size.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "../src/base/error.h"
#include "codec_perf.h"

enum { NUMBERS_MAX = 16, NAMES_MAX = 32, RULE_UNIT = 1024 };

typedef struct numbers {
    uint32_t n, values[NUMBERS_MAX];
} numbers_t;

/* ---- names ---- */

/* Codecs, and update rules, which stand among the operations. Returns how many. */
static size_t codec_names(const char **names)
{
    size_t n = 0, n_ops;
    const codec_op_t *ops = codec_ops(&n_ops);

    for (const char *const *name = lnt_codec_list(); *name != NULL; name++)
        names[n++] = *name;
    for (size_t i = 0; i < n_ops; i++) {
        if (ops[i].rule != NULL) names[n++] = ops[i].rule;
    }
    return n;
}

static int check_names(const tool_t *tool, const codec_config_t *config)
{
    const char *names[NAMES_MAX] = {"all"};
    size_t n_ops, n_impls, n = 1;
    const codec_op_t *ops = codec_ops(&n_ops);
    const lnt_kernel_impl_t *impls = lnt_kernel_impls(&n_impls);
    int code = tool_check_list(tool, "codec", config->codecs, names, 1 + codec_names(names + 1));

    for (size_t i = 0; i < n_ops; i++)
        names[n++] = ops[i].name;
    if (code == TOOL_OK) code = tool_check_list(tool, "operation", config->ops, names, n);
    names[1] = "auto";
    n = 2;
    for (size_t i = 0; i < n_impls; i++)
        names[n++] = impls[i].name;
    if (code == TOOL_OK) code = tool_check_list(tool, "implementation", config->impls, names, n);
    n = 1;
    for (int dtype = 0; dtype < LNT_DTYPE_COUNT; dtype++)
        names[n++] = lnt_dtype_name((lnt_dtype_t)dtype);
    return code == TOOL_OK ? tool_check_list(tool, "element type", config->dtypes, names, n) : code;
}

/* ---- numbers ---- */

/* False: something in the list is no number, or outside [min, max]. */
static bool read_numbers(const char *list, uint32_t min, uint32_t max, numbers_t *numbers)
{
    numbers->n = 0;
    for (const char *at = list; numbers->n < NUMBERS_MAX; at++) {
        char *end;
        unsigned long value;

        errno = 0;
        value = strtoul(at, &end, 10);
        if (*at < '0' || *at > '9' || errno != 0 || value < min || value > max) return false;
        numbers->values[numbers->n++] = (uint32_t)value;
        at = end;
        if (*at == '\0') return true;
        if (*at != ',') return false;
    }
    return false;
}

static int refuse_numbers(const tool_t *tool, const char *option, const char *list, const char *want)
{
    (void)fprintf(stderr, "%s: --%s %s: %s\n", tool->name, option, list, want);
    return TOOL_USAGE;
}

static bool are_blocks(const numbers_t *blocks)
{
    for (uint32_t i = 0; i < blocks->n; i++) {
        if (blocks->values[i] % 64 != 0) return false;
    }
    return true;
}

static int check_numbers(const tool_t *tool, const codec_config_t *config, uint32_t n_cores)
{
    numbers_t numbers;

    if (!read_numbers(config->blocks, 0, 1 << 24, &numbers) || !are_blocks(&numbers))
        return refuse_numbers(tool, "block", config->blocks, "multiples of 64 up to 16777216; 0: the codec's default");
    if (!read_numbers(config->threads, 1, n_cores, &numbers))
        return refuse_numbers(tool, "threads", config->threads, "from 1 to the number of cores this process may use");
    if (!read_numbers(config->inputs, 1, CODEC_RUNS_MAX, &numbers))
        return refuse_numbers(tool, "inputs", config->inputs, "from 1 to 64");
    if (config->begin_bytes > config->end_bytes || config->begin_bytes == 0) {
        (void)fprintf(stderr, "%s: --begin is 0 or above --end\n", tool->name);
        return TOOL_USAGE;
    }
    return TOOL_OK;
}

int codec_check_options(const tool_t *tool, const codec_config_t *config, uint32_t n_cores)
{
    int code;

    if (config->codecs == NULL || config->ops == NULL || config->impls == NULL || config->dtypes == NULL ||
        config->blocks == NULL || config->threads == NULL || config->inputs == NULL) {
        (void)fprintf(stderr, "%s: a list needs at least one element\n", tool->name);
        return TOOL_USAGE;
    }
    code = check_names(tool, config);
    return code == TOOL_OK ? check_numbers(tool, config, n_cores) : code;
}

/* ---- the walk ---- */

typedef struct walk {
    codec_world_t *world;
    codec_visit_fn_t visit;
    void *arg;
    const char *codec;
    const codec_op_t *op;
    numbers_t blocks, threads, inputs;
} walk_t;

void codec_case_init(codec_case_t *test, codec_world_t *world, const codec_params_t *params)
{
    *test = (codec_case_t){.world = world,
                           .op = params->op,
                           .codec = params->codec,
                           .row = params->op->rule == NULL ? lnt_codec_row_by_name(params->codec) : NULL,
                           .dtype = params->dtype,
                           .n_runs = params->op->several ? params->inputs : 1,
                           .n_threads = params->threads};
    test->cfg.block = test->row == NULL ? RULE_UNIT : params->block != 0 ? params->block : test->row->default_block;
    test->cfg.scale_rule = test->row != NULL && test->row->has_scale_rule ? params->scale_rule : LNT_SCALE_L2;
    test->n = params->bytes / lnt_dtype_size(params->dtype);
    if (test->n == 0) test->n = 1;
    test->bytes = test->n * lnt_dtype_size(params->dtype);
    test->stream = world->config->stream == CODEC_STREAM_AUTO ? params->op->streams && test->n >= LNT_STREAM_ELEMS
                                                              : world->config->stream == CODEC_STREAM_ON;
    codec_arrays_plan(test);
}

/* The size after `bytes`; 0 ends the list. */
static uint64_t next_size(const codec_config_t *config, uint64_t bytes)
{
    uint64_t next = config->step_bytes > 0 ? bytes + config->step_bytes : bytes * config->factor;

    return next > bytes && next <= config->end_bytes ? next : 0;
}

static lnt_status_t walk_sizes(const walk_t *walk, codec_params_t params)
{
    const codec_config_t *config = walk->world->config;
    codec_case_t test;

    for (params.bytes = config->begin_bytes; params.bytes > 0; params.bytes = next_size(config, params.bytes)) {
        codec_case_init(&test, walk->world, &params);
        LNT_TRY(walk->visit(&test, walk->arg));
    }
    return LNT_OK;
}

/* Operations that take one run go once through the list of inputs, update rules once through that of blocks. */
static lnt_status_t walk_numbers(const walk_t *walk, codec_params_t params)
{
    uint32_t n_blocks = walk->op->rule == NULL ? walk->blocks.n : 1, n_inputs = walk->op->several ? walk->inputs.n : 1;

    for (uint32_t b = 0; b < n_blocks; b++) {
        for (uint32_t i = 0; i < n_inputs; i++) {
            for (uint32_t t = 0; t < walk->threads.n; t++) {
                params.block = walk->blocks.values[b];
                params.inputs = walk->inputs.values[i];
                params.threads = walk->threads.values[t];
                LNT_TRY(walk_sizes(walk, params));
            }
        }
    }
    return LNT_OK;
}

static lnt_status_t walk_dtypes(const walk_t *walk)
{
    const codec_config_t *config = walk->world->config;
    codec_params_t params = {.codec = walk->codec, .op = walk->op, .scale_rule = (lnt_scale_rule_t)config->scale_rule};

    for (int dtype = 0; dtype < LNT_DTYPE_COUNT; dtype++) {
        params.dtype = (lnt_dtype_t)dtype;
        if (codec_op_has_dtype(walk->op) ? tool_listed(config->dtypes, lnt_dtype_name(params.dtype)) : dtype == LNT_F32)
            LNT_TRY(walk_numbers(walk, params));
    }
    return LNT_OK;
}

lnt_status_t codec_each_case(codec_world_t *world, codec_visit_fn_t visit, void *arg)
{
    const codec_config_t *config = world->config;
    walk_t walk = {.world = world, .visit = visit, .arg = arg};
    const char *names[NAMES_MAX];
    size_t n_names = codec_names(names), n_ops;
    const codec_op_t *ops = codec_ops(&n_ops);

    (void)read_numbers(config->blocks, 0, UINT32_MAX, &walk.blocks);
    (void)read_numbers(config->threads, 0, UINT32_MAX, &walk.threads);
    (void)read_numbers(config->inputs, 0, UINT32_MAX, &walk.inputs);
    for (size_t c = 0; c < n_names; c++) {
        for (size_t o = 0; o < n_ops && tool_listed(config->codecs, names[c]); o++) {
            walk.codec = names[c];
            walk.op = &ops[o];
            if (codec_op_fits(walk.op, walk.codec) && tool_listed(config->ops, walk.op->name))
                LNT_TRY(walk_dtypes(&walk));
        }
    }
    return LNT_OK;
}
