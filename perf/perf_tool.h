/* What the files of linnet-perf share: options, the world a rank lives in, and what is measured of a lane.
 *
 * A *lane* is one way to do the operation: plain, or with a codec. All lanes of a size are built first and then run in
 * turn, so that whatever disturbs the machine disturbs all of them; the plain lane always runs, as what the others are
 * compared with.
 */
#ifndef PERF_PERF_TOOL_H
#define PERF_PERF_TOOL_H

#include <linnet/linnet.h>

#include "common_machine.h"
#include "common_nodes.h"
#include "common_options.h"
#include "perf_formulas.h"

#define PERF_NAME "linnet-perf"

enum { PERF_LANES_MAX = 16, PERF_GATHER_MAX = 64 };

typedef struct perf_config {
    uint64_t begin_bytes, end_bytes, step_bytes, factor;
    uint32_t iters, warmup;
    bool check, residual, in_place;
    int dtype, redop; /* indices of words with aliases: see perf_dtype, perf_redop */
    char *ops, *codecs, *nodes, *node_map, *transports, *json;
    uint32_t ranks, threads, timeout_ms, budget_ms;
    uint64_t seed;
    double emulate_gbps;
} perf_config_t;

static inline lnt_dtype_t perf_dtype(const perf_config_t *config)
{
    return (lnt_dtype_t)(config->dtype % LNT_DTYPE_COUNT);
}

static inline lnt_redop_t perf_redop(const perf_config_t *config)
{
    return (config->redop % 2 == 0) ? LNT_MEAN : LNT_SUM;
}

typedef struct perf_world {
    const perf_config_t *config;
    lnt_context_t *context;
    lnt_comm_t *comm;
    lnt_comm_info_t info;
    node_map_t map; /* nodes as the communicator numbers them */
    machine_t machine;
    uint64_t seed;
} perf_world_t;

typedef struct perf_times {
    double min_us, median_us, p99_us;
} perf_times_t;

typedef struct perf_lane {
    const char *name;
    bool plain;               /* no codec */
    bool shown;               /* asked for */
    lnt_codec_t *codec;       /* NULL for plain */
    lnt_residual_t *residual; /* with --residual, where the operation has one */
    lnt_request_t *request;
    double *us[2]; /* [iteration], largest over ranks; out of place, in place */
    uint32_t n_us;
    uint64_t wire, wire_inter; /* of one run, largest over ranks */
    uint64_t wrong[2];
    double rel_err, max_err;
    perf_times_t times[2];
    double speedup;
} perf_lane_t;

typedef struct perf_case {
    perf_world_t *world;
    perf_op_t op;
    uint64_t count; /* argument of the call */
    uint64_t total; /* elements of the whole buffer */
    uint64_t bytes; /* S */
    uint64_t input_elems, output_elems;
    void *input, *output, *both; /* `both` is input and output of in-place runs */
    perf_lane_t lanes[PERF_LANES_MAX];
    uint32_t n_lanes;
} perf_case_t;

/* perf_launch.c: the ranks as processes. body is run in each; returns an exit code. */
typedef int (*perf_rank_fn_t)(const perf_config_t *config, lnt_bootstrap_t *bootstrap);
int perf_launch(const perf_config_t *config, uint32_t n_ranks, perf_rank_fn_t body);

/* perf_run.c: every size of every operation. */
int perf_run(perf_world_t *world);

/* perf_lane.c: the runs of one lane. */
lnt_status_t perf_lanes_open(perf_case_t *test);
void perf_lanes_close(perf_case_t *test);
/* One run between two barriers; *us_p is the time of the slowest rank. */
lnt_status_t perf_lane_run(perf_case_t *test, perf_lane_t *lane, bool in_place, double *us_p);

lnt_status_t perf_no_memory(void);

/* perf_data.c: inputs everybody can compute, and an all-gather of a few numbers. */
float perf_input(uint64_t seed, uint32_t rank, uint64_t index, lnt_dtype_t dtype);
void perf_fill(const perf_world_t *world, uint64_t n_elems, void *values);
float perf_value(const void *values, uint64_t index, lnt_dtype_t dtype);
lnt_status_t perf_gather(lnt_comm_t *comm, uint32_t n_ranks, const uint64_t *mine, uint32_t n, uint64_t *all);
lnt_status_t perf_gather_max(lnt_comm_t *comm, uint32_t n_ranks, uint64_t *values, uint32_t n);
lnt_status_t perf_gather_sum(lnt_comm_t *comm, uint32_t n_ranks, uint64_t *values, uint32_t n);

/* perf_check.c: runs the lane out of place and in place and compares with the oracle; fills wrong, rel_err, max_err,
 * wire bytes. */
lnt_status_t perf_check_lane(perf_case_t *test, perf_lane_t *lane);

/* perf_report.c: stdout and the JSON file; rank 0 alone. */
lnt_status_t perf_report_open(const perf_world_t *world);
void perf_report_op(const perf_world_t *world, perf_op_t op);
void perf_report_case(const perf_case_t *test);
void perf_report_check(const perf_case_t *test, const perf_lane_t *lane);
void perf_report_progress(const perf_case_t *test, uint32_t done, uint32_t of, double seconds);
lnt_status_t perf_report_close(const perf_world_t *world, uint64_t wrong);

#endif
