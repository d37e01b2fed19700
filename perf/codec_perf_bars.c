/* The bars: ratios that kernels have to reach on a quiet machine, one row each; docs/perf.md says where they come from.
 *
 * A bar is held against the fastest implementation of the machine, and against avx2 where that is not the fastest. Bars
 * that could not be measured are listed at the end: they are not met.
 */
#include <stdio.h>
#include <string.h>

#include "codec_perf.h"

/* What is compared. */
typedef enum bar_kind {
    BAR_ADD,   /* counted bytes per second over those of a += b */
    BAR_COPY,  /* uncompressed bytes per second over memcpy's bytes read and written */
    BAR_CYCLES /* elements per second over those of a += b: for sizes in cache, where instructions count */
} bar_kind_t;

typedef struct bar {
    const char *codec, *op;
    lnt_dtype_t dtype;
    uint32_t inputs;
    uint64_t elements;
    bar_kind_t kind;
    double need, need_avx2; /* need_avx2 0: the same */
} bar_t;

enum { CACHE_2 = 1 << 15, CACHE_3 = 1 << 20, DRAM = 1 << 26 };

/* Elements per second that figures of one machine mean, as a part of its a += b, and what is asked of others. */
#define CYCLES(_add_ns, _ns) ((_add_ns) / (_ns) / 1.5)
#define ADD_2 0.0524 /* 12 bytes at 229 GB/s */
#define ADD_3 0.0652 /* 12 bytes at 184 GB/s */
/* A rate where memcpy had another. */
#define SCALED(_gbs, _memcpy_gbs) ((_gbs) / (_memcpy_gbs))
#define COPY_DRAM 41.3
#define COPY_3 129.0

static const bar_t bars[] = {
    {"sign1", "encode_ef", LNT_F32, 1, DRAM, BAR_ADD, 0.85, 0.75},
    {"sign1", "encode_ef", LNT_BF16, 1, DRAM, BAR_ADD, 0.85, 0.75},
    {"sign1", "encode_ef", LNT_F16, 1, DRAM, BAR_ADD, 0.85, 0.75},
    {"sign1", "momentum_ef", LNT_F32, 1, DRAM, BAR_ADD, 0.80, 0.75},
    {"sign1", "decode_add", LNT_F32, 1, DRAM, BAR_ADD, 0.85, 0},
    {"sign1", "server", LNT_F32, 2, DRAM, BAR_ADD, 0.85, 0},
    {"sign1", "server", LNT_F32, 4, DRAM, BAR_ADD, 0.85, 0},
    {"sign1", "server", LNT_F32, 8, DRAM, BAR_ADD, 0.85, 0},
    {"onebit_step", "frozen", LNT_F32, 1, DRAM, BAR_ADD, 0.85, 0},
    {"int8", "encode", LNT_F32, 1, DRAM, BAR_COPY, SCALED(25, COPY_DRAM), 0},
    {"int8", "encode", LNT_F32, 1, CACHE_3, BAR_COPY, SCALED(55, COPY_3), 0},
    {"int4", "encode", LNT_F32, 1, DRAM, BAR_COPY, SCALED(1.2 * 21.2, COPY_DRAM), 0},
    {"int4", "encode", LNT_F32, 1, CACHE_3, BAR_COPY, SCALED(1.2 * 34.1, COPY_3), 0},
    {"sign1", "encode_ef", LNT_F32, 1, CACHE_2, BAR_CYCLES, CYCLES(ADD_2, 0.080), 0},
    {"sign1", "encode_ef", LNT_F32, 1, CACHE_3, BAR_CYCLES, CYCLES(ADD_3, 0.096), 0},
    {"int8", "encode", LNT_F32, 1, CACHE_2, BAR_CYCLES, CYCLES(ADD_2, 0.046), 0},
    {"int8", "encode", LNT_F32, 1, CACHE_3, BAR_CYCLES, CYCLES(ADD_3, 0.059), 0},
    {"int4", "encode", LNT_F32, 1, CACHE_2, BAR_CYCLES, CYCLES(ADD_2, 0.088), 0},
    {"int4", "encode", LNT_F32, 1, CACHE_3, BAR_CYCLES, CYCLES(ADD_3, 0.090), 0},
    {"adam", "step", LNT_F32, 1, CACHE_2, BAR_CYCLES, CYCLES(ADD_2, 0.125), 0},
    {"adam", "step", LNT_F32, 1, CACHE_3, BAR_CYCLES, CYCLES(ADD_3, 0.141), 0},
};

static const char *const kind_words[] = {"bytes/s of a+=b", "side over memcpy", "elements/s of a+=b"};

enum { N_BARS = sizeof(bars) / sizeof(bars[0]) };

typedef struct tally {
    uint32_t met, missed, absent;
    const char *why[N_BARS]; /* not measured; NULL: measured */
} tally_t;

static double measured(const codec_case_t *test, const codec_lane_t *lane, bar_kind_t kind)
{
    double per_elem = lane->counted_bytes / (double)test->n;

    if (kind == BAR_ADD) return lane->frac_add;
    if (kind == BAR_COPY) return lane->frac_copy * (double)test->bytes / lane->counted_bytes;
    return lane->frac_add * 12 / per_elem;
}

/* ---- lines ---- */

static void print_line(const codec_world_t *world, const bar_t *bar, const char *impl, const char *got,
                       const char *need, const char *streams, const char *verdict)
{
    char op[32], size[32];

    (void)snprintf(op, sizeof(op), bar->inputs > 1 ? "%s of %u" : "%s", bar->op, bar->inputs);
    (void)snprintf(size, sizeof(size), "%llu KiB",
                   (unsigned long long)(bar->elements * lnt_dtype_size(bar->dtype) >> 10));
    printf(world->config->markdown ? "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n"
                                   : "%-12s %-12s %-5s %11s %-7s %-18s %9s %9s %9s  %s\n",
           bar->codec, op, lnt_dtype_name(bar->dtype), size, impl, kind_words[bar->kind], got, need, streams, verdict);
}

static void print_head(const codec_world_t *world)
{
    codec_report_machine(world);
    printf("# median of %u rounds after %u, one thread, seed %llu\n", world->config->iters, world->config->warmup,
           (unsigned long long)world->seed);
    printf(world->config->markdown
               ? "\n| codec | operation | input | size | kernels | what | measured | bar | of streams | |\n"
                 "|---|---|---|---|---|---|---|---|---|---|\n"
               : "#\n#%11s %-12s %-5s %11s %-7s %-18s %9s %9s %9s\n",
           "codec", "op", "dtype", "size", "impl", "what", "measured", "bar", "streams");
}

static void judge_lane(const codec_case_t *test, const bar_t *bar, const codec_lane_t *lane, tally_t *tally)
{
    double need = bar->need_avx2 > 0 && strcmp(lane->name, "avx512") != 0 ? bar->need_avx2 : bar->need;
    double got = measured(test, lane, bar->kind);
    char got_text[16], need_text[16], streams_text[16] = "-";

    (void)snprintf(got_text, sizeof(got_text), "%.3f", got);
    (void)snprintf(need_text, sizeof(need_text), ">= %.3f", need);
    if (lane->frac_streams > 0) (void)snprintf(streams_text, sizeof(streams_text), "%.3f", lane->frac_streams);
    print_line(test->world, bar, lane->name, got_text, need_text, streams_text, got >= need ? "met" : "MISSED");
    *(got >= need ? &tally->met : &tally->missed) += 1;
    test->world->n_rows++;
}

/* ---- running ---- */

static const codec_op_t *find_op(const char *name)
{
    size_t n_ops;
    const codec_op_t *ops = codec_ops(&n_ops);

    for (size_t i = 0; i < n_ops; i++) {
        if (strcmp(ops[i].name, name) == 0) return &ops[i];
    }
    return NULL;
}

static lnt_status_t leave_out(const codec_world_t *world, const bar_t *bar, const char *why, tally_t *tally)
{
    print_line(world, bar, "-", "-", "-", "-", why);
    tally->why[bar - bars] = why;
    tally->absent++;
    return LNT_OK;
}

static lnt_status_t hold(codec_world_t *world, const bar_t *bar, tally_t *tally)
{
    const uint32_t judged = tally->met + tally->missed;
    codec_params_t params = {.codec = bar->codec,
                             .op = find_op(bar->op),
                             .dtype = bar->dtype,
                             .inputs = bar->inputs,
                             .threads = 1,
                             .bytes = bar->elements * lnt_dtype_size(bar->dtype)};
    codec_case_t test;
    lnt_status_t status;

    if (!codec_op_fits(params.op, bar->codec)) return leave_out(world, bar, "not there", tally);
    codec_case_init(&test, world, &params);
    if (codec_case_memory(&test) > world->config->memory_bytes)
        return leave_out(world, bar, "left out: needs more than --memory", tally);
    status = codec_case_run(&test);
    for (uint32_t i = LANE_REF; status >= 0 && i < test.n_lanes; i++) {
        if (test.lanes[i].timed) judge_lane(&test, bar, &test.lanes[i], tally);
    }
    if (status >= 0) codec_report_json(&test);
    codec_case_close(&test);
    if (status >= 0 && tally->met + tally->missed == judged)
        return leave_out(world, bar, "left out: nothing could be timed", tally);
    return status;
}

static void print_summary(const codec_world_t *world, const tally_t *tally)
{
    printf("%s# bars: %u met, %u missed, %u not measured\n", world->config->markdown ? "\n" : "", tally->met,
           tally->missed, tally->absent);
    for (size_t i = 0; i < N_BARS; i++) {
        if (tally->why[i] == NULL) continue;
        printf("# not measured: %s %s, %u inputs of %llu elements of %s: %s\n", bars[i].codec, bars[i].op,
               bars[i].inputs, (unsigned long long)bars[i].elements, lnt_dtype_name(bars[i].dtype), tally->why[i]);
    }
}

/* Success is every bar met. */
static int verdict(const codec_world_t *world, const tally_t *tally)
{
    if (tally->missed > 0 || world->n_wrong > 0) return TOOL_FAILED;
    if (tally->absent == 0) return TOOL_OK;
    return tally->met > 0 ? TOOL_FAILED : CODEC_PERF_ABSENT;
}

int codec_bars(codec_world_t *world)
{
    codec_config_t config = *world->config;
    tally_t tally = {.met = 0};
    lnt_status_t status;

    config.impls = "avx2,auto";
    world->config = &config;
    print_head(world);
    status = codec_report_open_json(world);
    for (size_t i = 0; status >= 0 && i < N_BARS; i++)
        status = hold(world, &bars[i], &tally);
    print_summary(world, &tally);
    if (status < 0 || codec_report_close(world) < 0) return tool_complain(CODEC_PERF_NAME);
    return verdict(world, &tally);
}
