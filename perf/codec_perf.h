/* What the files of linnet-codec-perf share: options, operations, cases and lanes.
 *
 * A *case* is an operation on runs of one codec, size, element type and number of threads. Its *lanes* are the
 * implementations of it and yardsticks: a += b and memcpy over a working set of the same size, and a bare loop over the
 * same arrays. All lanes of a case run in turn, round by round, so that whatever disturbs the machine disturbs all of
 * them; fractions are formed inside a round. A lane whose bytes differ from the reference's is reported and never
 * timed.
 */
#ifndef PERF_CODEC_PERF_H
#define PERF_CODEC_PERF_H

#include <linnet/linnet.h>

#include "../kernels/impl.h"
#include "codec_perf_team.h"
#include "common_machine.h"
#include "common_options.h"

#define CODEC_PERF_NAME "linnet-codec-perf"

typedef struct codec_config {
    uint64_t begin_bytes, end_bytes, step_bytes, factor, memory_bytes, seed;
    uint32_t iters, warmup;
    bool compare, markdown, bars;
    int scale_rule, device, stream;
    char *codecs, *ops, *impls, *dtypes, *blocks, *threads, *inputs, *json;
} codec_config_t;

typedef struct codec_world {
    const codec_config_t *config;
    const struct codec_space *space;
    machine_t machine;
    team_t team;
    uint64_t seed;
    uint64_t n_wrong, n_rows;        /* lanes */
    uint64_t n_left_out;             /* cases that no implementation asked for has code for */
    uint64_t n_samples, n_disturbed; /* disturbed: another process had a core whenever they were taken */
} codec_world_t;

/* ---- arrays: codec_perf_arrays.c ---- */

typedef enum codec_array {
    ARRAY_INPUT,
    ARRAY_ERROR,
    ARRAY_SHADOW,
    ARRAY_SCALES,
    ARRAY_CODES,
    ARRAY_RUN_SCALES, /* of coded runs that are input */
    ARRAY_RUN_CODES,
    ARRAY_OUTPUT,
    ARRAY_G,
    ARRAY_M,
    ARRAY_V,
    ARRAY_X,
    ARRAY_DENOMINATOR,
    ARRAY_DEAD,
    ARRAYS
} codec_array_t;

/* The part of a case that one thread does: whole blocks. */
typedef struct codec_part {
    uint64_t first, n;
    uint32_t thread;
} codec_part_t;

/* Share number `member` of n elements that are dealt out in whole units. */
codec_part_t codec_part_of(uint64_t n, uint64_t unit, uint32_t member, uint32_t n_members);

typedef struct codec_case codec_case_t;
typedef struct codec_lane codec_lane_t;
typedef void (*codec_run_fn_t)(const codec_case_t *test, const codec_lane_t *lane, const codec_part_t *part);

/* ---- operations: codec_perf_ops.c ---- */

#define CODEC_FACTOR 0.25f  /* what sums are multiplied by */
#define CODEC_CHANCE_SEED 1 /* for codecs that round by chance */

typedef struct codec_op {
    const char *name, *doc;
    const char *rule; /* of an update rule, which stands where codecs have their name; NULL: an operation of codecs */
    uint32_t reads, writes; /* sets of arrays, 1 << id: what counts as its traffic */
    bool feedback;          /* for codecs that keep an error */
    bool several;           /* takes --inputs runs */
    bool elementwise;       /* calls the ops of arrays and update rules besides the codec's */
    bool streams;           /* writes what it does not read: large arrays may go around the caches */
    codec_run_fn_t run;
} codec_op_t;

const codec_op_t *codec_ops(size_t *n_ops_p);
bool codec_op_fits(const codec_op_t *op, const char *codec); /* name of a codec or of an update rule */
bool codec_op_has_dtype(const codec_op_t *op);               /* works on any element type; else f32 alone */

/* ---- cases and lanes ---- */

enum { CODEC_RUNS_MAX = 64 };
enum {
    CODEC_YARD_APART = 208
}; /* elements between the halves of the second arena, so that they differ in their page */
enum { CODEC_LANES_MAX = 11, LANE_ADD = 0, LANE_COPY = 1, LANE_STREAMS = 2, LANE_REF = 3 };

struct codec_lane {
    const char *name;
    const lnt_kernel_impl_t *impl; /* NULL: a yardstick, or not on the host */
    lnt_codec_ops_t ops;
    codec_run_fn_t run;
    uint64_t n, unit;     /* elements, and the unit they are dealt out in */
    double counted_bytes; /* of one run */
    uint64_t repeats;     /* runs of a sample */
    double *seconds;      /* [round], of one run */
    bool timed, wrong;
    double median_seconds, speedup; /* speedup over ref, 0: unknown */
    double frac_add, frac_copy;     /* medians over rounds */
    double frac_streams;            /* the same; 0: not measured */
    double spread;                  /* of frac_add: distance of the quartiles over the median */
};

struct codec_case {
    codec_world_t *world;
    const codec_op_t *op;
    const char *codec;          /* or update rule */
    const lnt_codec_row_t *row; /* NULL: update rule */
    lnt_codec_cfg_t cfg;
    lnt_dtype_t dtype;
    uint64_t n, bytes; /* of the uncompressed side */
    uint32_t n_runs, n_threads;
    bool stream;

    uint8_t *arena, *yard; /* the arrays; as much again, for the yardsticks and the expected bytes */
    uint64_t arena_bytes, working_set;
    uint8_t *array[ARRAYS]; /* NULL: not used */
    uint64_t array_bytes[ARRAYS];
    float *values; /* a piece per thread, which stays in cache */
    uint64_t piece;

    void *device; /* what the space keeps for the case */

    codec_lane_t lanes[CODEC_LANES_MAX];
    uint32_t n_lanes;
};

/* Elements a task of the exchange handles at a time. */
uint64_t codec_piece(const codec_case_t *test);

void codec_arrays_plan(codec_case_t *test); /* sizes; allocates nothing */
uint64_t codec_case_memory(const codec_case_t *test);
lnt_status_t codec_arrays_open(codec_case_t *test);
void codec_arrays_close(codec_case_t *test);
void codec_arrays_fill(codec_case_t *test); /* the same data every time */
uint8_t *codec_at(const codec_case_t *test, codec_array_t id, uint64_t first);
double codec_counted_bytes(const codec_case_t *test);
const char *codec_array_name(codec_array_t id);

/* codec_perf_yard.c: a += b and memcpy, as wide as the machine has them, over the second arena. */
void codec_yard_lanes(codec_case_t *test);
void codec_yard_fill(codec_case_t *test);
codec_lane_t codec_streams_lane(const codec_case_t *test); /* codec_perf_streams.c; run NULL: cannot be measured */

static inline double codec_rate_gbs(double bytes, double seconds)
{
    return bytes / seconds * 1e-9;
}

/* codec_perf_case.c: opens, checks, measures; the results stay in the lanes. To be closed in any case. */
lnt_status_t codec_case_run(codec_case_t *test);
void codec_case_close(codec_case_t *test);

/* Where the arrays live that lanes work on, and who runs the lanes. */
typedef struct codec_space {
    const char *name;
    const char *(*absent)(void); /* why it cannot be used here; NULL: it can. The others are called only then */
    const char *(*describe)(void);
    lnt_status_t (*open)(codec_case_t *test); /* adds lanes and says which are timed */
    void (*close)(codec_case_t *test);        /* also after open failed, or was not reached */
    lnt_status_t (*put)(codec_case_t *test);  /* the arrays of the case go to where lanes see them */
    lnt_status_t (*get)(codec_case_t *test);  /* what the operation wrote comes back */
    lnt_status_t (*time)(codec_case_t *test, const codec_lane_t *lane, uint64_t repeats, double *seconds_p);
    bool (*disturbed)(const codec_case_t *test); /* the last time is worthless: somebody else had the core */
} codec_space_t;

extern const codec_space_t codec_space_host; /* codec_perf_host.c */

/* codec_perf_space.c */
const codec_space_t *codec_space(int device);
void codec_lanes_begin(codec_case_t *test); /* the yardsticks and the reference */
codec_lane_t *codec_lane_add(codec_case_t *test, const char *name, const lnt_kernel_impl_t *impl);

/* codec_perf_list.c: every case that the options name, and cases one by one. */
typedef struct codec_params {
    const char *codec;
    const codec_op_t *op;
    lnt_dtype_t dtype;
    lnt_scale_rule_t scale_rule;
    uint32_t block, inputs, threads; /* block 0: the codec's default */
    uint64_t bytes;
} codec_params_t;

/* Hint that what is written and never read may go around the caches. auto: from LNT_STREAM_ELEMS on. */
enum { CODEC_STREAM_AUTO, CODEC_STREAM_OFF, CODEC_STREAM_ON };

void codec_case_init(codec_case_t *test, codec_world_t *world, const codec_params_t *params); /* allocates nothing */
typedef lnt_status_t (*codec_visit_fn_t)(codec_case_t *test, void *arg);
int codec_check_options(const tool_t *tool, const codec_config_t *config, uint32_t n_cores);
lnt_status_t codec_each_case(codec_world_t *world, codec_visit_fn_t visit, void *arg);

/* codec_perf_report.c */
void codec_report_machine(const codec_world_t *world);
lnt_status_t codec_report_open(const codec_world_t *world, uint64_t memory_bytes, uint64_t n_cases);
lnt_status_t codec_report_open_json(const codec_world_t *world); /* part of codec_report_open */
void codec_report_case(const codec_case_t *test);
void codec_report_json(const codec_case_t *test); /* part of codec_report_case */
void codec_report_wrong(const codec_case_t *test, const codec_lane_t *lane, codec_array_t id, const uint8_t *expected);
lnt_status_t codec_report_close(const codec_world_t *world);

/* codec_perf_bars.c: the bars of docs/perf.md; returns an exit code. */
enum { CODEC_PERF_ABSENT = 77 }; /* exit code: this machine cannot measure what was asked for */

int codec_bars(codec_world_t *world);

#endif
