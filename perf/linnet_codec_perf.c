/* linnet-codec-perf: how fast codecs and update rules are, as fractions of what memory gives in the same run. Options
 * follow linnet-perf where it has them.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../src/base/error.h"
#include "codec_perf.h"

static const char *const rule_words[] = {"l2", "l1", NULL};
static const char *const stream_words[] = {"auto", "off", "on", NULL};
static const char *const device_words[] = {"host", "cuda", NULL};

#define OPTION(_letter, _name, _argument, _type, _default, _field, ...)                                                \
    {                                                                                                                  \
        _letter, _argument,                                                                                            \
        {                                                                                                              \
            .name = _name, .default_text = _default, .offset = offsetof(codec_config_t, _field), .type = _type,        \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }
#define LIST(_letter, _name, _argument, _default, _field, _help)                                                       \
    OPTION(_letter, _name, _argument, LNT_CFG_STRING, _default, _field, .help = _help)

static const tool_option_t options[] = {
    LIST(0, "codec", "A,B|all", "sign1", codecs, "codecs, and the update rules adam and onebit_step"),
    LIST(0, "op", "A,B|all", "all", ops, "operations, see below"),
    LIST(0, "impl", "A,B|auto|all", "all", impls, "implementations; auto: the fastest of this machine"),
    LIST('d', "dtype", "A,B|all", "f32", dtypes, "element types of what is coded: f32, bf16, f16"),
    LIST(0, "block", "N,M", "0", blocks, "elements per block; 0: the codec's default"),
    LIST('t', "threads", "N,M", "1", threads, "pinned threads that share a run in whole blocks"),
    LIST(0, "inputs", "N,M", "4", inputs, "runs that a server adds"),
    OPTION('b', "begin", "BYTES", LNT_CFG_BYTES, "128k", begin_bytes, .help = "smallest size of the uncompressed side"),
    OPTION('e', "end", "BYTES", LNT_CFG_BYTES, "128m", end_bytes, .help = "largest size"),
    OPTION('f', "factor", "N", LNT_CFG_U64, "32", factor, .min = 2, .max = 1e6, .help = "factor from size to size"),
    OPTION('i', "step", "BYTES", LNT_CFG_BYTES, "0", step_bytes,
           .help = "step from size to size instead of a factor; 0: factor"),
    OPTION('n', "iters", "N", LNT_CFG_U32, "7", iters, .min = 1, .max = 1e5, .help = "rounds that count"),
    OPTION('w', "warmup", "N", LNT_CFG_U32, "1", warmup, .min = 0, .max = 1e5, .help = "rounds before them"),
    OPTION(0, "scale-rule", "WORD", LNT_CFG_ENUM, "l2", scale_rule, .words = rule_words, .help = "of sign1: l2 or l1"),
    OPTION(0, "stream", "WORD", LNT_CFG_ENUM, "auto", stream, .words = stream_words,
           .help = "hint that errors may go around the caches: auto (large shadows), off, on"),
    OPTION('D', "device", "WORD", LNT_CFG_ENUM, "host", device, .words = device_words, .help = "host or cuda"),
    OPTION(0, "compare", NULL, LNT_CFG_BOOL, "off", compare,
           .help = "time ref too, whatever --impl says, and print the others over it"),
    OPTION(0, "bars", NULL, LNT_CFG_BOOL, "off", bars,
           .help = "measure what docs/perf.md sets bars for; exit code 1 where one is missed or could not be measured, "
                   "77 where none could"),
    OPTION(0, "markdown", NULL, LNT_CFG_BOOL, "off", markdown, .help = "print the table as Markdown"),
    OPTION(0, "memory", "BYTES", LNT_CFG_BYTES, "4g", memory_bytes, .help = "refuse to use more"),
    OPTION(0, "seed", "N", LNT_CFG_U64, "0", seed, .help = "of the data; 0: a new one, printed"),
    LIST('J', "json", "FILE", "", json, "also write JSON lines"),
    {0, NULL, {.name = NULL}},
};

static char notes[4096];

static const tool_t tool = {
    .name = CODEC_PERF_NAME,
    .purpose = "speed of linnet's codecs and update rules against a += b and memcpy of the same run",
    .options = options,
    .notes = notes,
};

/* ---- the text about operations, from their table ---- */

static void append(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void append(const char *format, ...)
{
    size_t used = strlen(notes);
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(notes + used, sizeof(notes) - used, format, arguments);
    va_end(arguments);
}

static void append_set(const char *verb, uint32_t set)
{
    const char *comma = "";

    append("%s", verb);
    for (codec_array_t id = 0; id < ARRAYS; id++) {
        if ((set >> id & 1u) == 0) continue;
        append("%s %s", comma, codec_array_name(id));
        comma = ",";
    }
}

static void write_notes(void)
{
    size_t n_ops;
    const codec_op_t *ops = codec_ops(&n_ops);

    append("Operations, and what is counted as their traffic (a += b counts 12 bytes per element, memcpy 8):\n");
    for (size_t i = 0; i < n_ops; i++) {
        append("  %-17s %s%s%s\n%20s", ops[i].name, ops[i].rule != NULL ? ops[i].rule : "",
               ops[i].rule != NULL ? ": " : "", ops[i].doc, "");
        append_set("reads", ops[i].reads);
        append_set("; writes", ops[i].writes);
        append("\n");
    }
    append(
        "Memory that is written only is counted once, though the machine may read it first. Update rules stand where\n"
        "codecs do. Every case is compared with the reference before it is timed.\n"
        "Exit code: 0; 1 when bytes are wrong, or a bar is missed; 2 for a wrong command line; 77 when the device or\n"
        "the implementation is not there. docs/perf.md says more.");
}

/* ---- running ---- */

typedef struct survey {
    uint64_t n_cases, memory_bytes;
} survey_t;

static lnt_status_t survey_case(codec_case_t *test, void *arg)
{
    survey_t *survey = arg;
    uint64_t bytes = codec_case_memory(test);

    survey->n_cases++;
    if (bytes > survey->memory_bytes) survey->memory_bytes = bytes;
    return LNT_OK;
}

static lnt_status_t run_case(codec_case_t *test, void *arg)
{
    lnt_status_t status = codec_case_run(test);

    (void)arg;
    if (status >= 0) codec_report_case(test);
    codec_case_close(test);
    return status;
}

static int run_cases(codec_world_t *world)
{
    survey_t survey = {0, 0};

    (void)codec_each_case(world, survey_case, &survey);
    if (survey.n_cases == 0) {
        (void)fprintf(stderr, CODEC_PERF_NAME ": none of these operations belongs to any of these codecs\n");
        return TOOL_USAGE;
    }
    if (survey.memory_bytes > world->config->memory_bytes) {
        (void)fprintf(stderr, CODEC_PERF_NAME ": these sizes need %llu MiB; smaller ones, or a larger --memory\n",
                      (unsigned long long)(survey.memory_bytes >> 20));
        return TOOL_USAGE;
    }
    if (codec_report_open(world, survey.memory_bytes, survey.n_cases) < 0 ||
        codec_each_case(world, run_case, NULL) < 0 || codec_report_close(world) < 0)
        return tool_complain(CODEC_PERF_NAME);
    return world->n_wrong == 0 ? TOOL_OK : TOOL_FAILED;
}

/* Names of the list that this machine cannot run: nobody should take another implementation's numbers for theirs. */
static bool all_usable(const codec_config_t *config)
{
    size_t n_impls;
    const lnt_kernel_impl_t *impls = lnt_kernel_impls(&n_impls);

    for (size_t i = 0; i < n_impls && strcmp(config->impls, "all") != 0; i++) {
        if (!tool_listed(config->impls, impls[i].name) || impls[i].usable()) continue;
        (void)fprintf(stderr, CODEC_PERF_NAME ": skipped: this machine cannot run %s (%s)\n", impls[i].name,
                      impls[i].doc);
        return false;
    }
    return true;
}

static int run_tool(const codec_config_t *config)
{
    static codec_world_t world;
    int code;

    world.config = config;
    world.space = codec_space(config->device);
    world.seed = config->seed != 0 ? config->seed : (uint64_t)time(NULL) * 1000003 + (uint64_t)getpid();
    machine_look(&world.machine);
    code = codec_check_options(&tool, config, world.machine.n_cores);
    if (code != TOOL_OK) return code;
    if (world.space->absent() != NULL) {
        (void)fprintf(stderr, CODEC_PERF_NAME ": skipped: %s: %s\n", world.space->name, world.space->absent());
        return CODEC_PERF_ABSENT;
    }
    if (!all_usable(config)) return CODEC_PERF_ABSENT;
    world.machine.c2c_ns = machine_core_to_core_ns();
    return config->bars ? codec_bars(&world) : run_cases(&world);
}

int main(int argc, char **argv)
{
    codec_config_t config;
    bool help;
    int code;

    write_notes();
    code = tool_read_options(&tool, argc, argv, &config, &help);
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (code == TOOL_OK && !help) code = run_tool(&config);
    tool_release(&tool, &config);
    return tool_finish(CODEC_PERF_NAME, code);
}
