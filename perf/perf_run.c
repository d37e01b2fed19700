/* Sizes times operations: buffers, check, then rounds in which all lanes run in turn.
 *
 * Every decision (how many rounds, when the time is up) rests on numbers that are the same on all ranks.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../src/base/error.h"
#include "common_stats.h"
#include "perf_tool.h"

enum { MODES = 2 };

static lnt_status_t open_case(perf_world_t *world, perf_op_t op, uint64_t bytes, perf_case_t *test)
{
    const size_t elem = lnt_dtype_size(perf_dtype(world->config));
    const uint32_t n = world->info.n_ranks;

    *test = (perf_case_t){.world = world, .op = op, .count = perf_count(op, n, bytes, elem)};
    test->total = perf_total_count(op, n, test->count);
    test->bytes = test->total * elem;
    test->input_elems = (op == PERF_ALLGATHER) ? test->count : test->total;
    test->output_elems = (op == PERF_REDUCE_SCATTER) ? test->count : test->total;
    test->input = malloc(test->input_elems * elem + 1);
    test->output = malloc(test->output_elems * elem + 1);
    test->both = malloc(test->total * elem + 1);
    if (test->input == NULL || test->output == NULL || test->both == NULL) return perf_no_memory();
    perf_fill(world, test->input_elems, test->input);
    memset(test->output, 0, test->output_elems * elem);
    return perf_lanes_open(test);
}

static void close_case(perf_case_t *test)
{
    perf_lanes_close(test);
    free(test->input);
    free(test->output);
    free(test->both);
}

static perf_times_t summarize(double *us, uint32_t n)
{
    uint32_t p99 = (uint32_t)ceil(0.99 * n);

    if (n == 0) return (perf_times_t){0, 0, 0};
    stats_sort(us, n);
    return (perf_times_t){us[0], stats_quantile(us, n, 0.5), us[(p99 > 0) ? p99 - 1 : 0]};
}

/* All lanes once, out of place and in place. *seconds_p grows by the time measured. */
static lnt_status_t one_round(perf_case_t *test, bool timed, double *seconds_p)
{
    const int modes = test->world->config->in_place ? MODES : 1;

    for (uint32_t i = 0; i < test->n_lanes; i++) {
        perf_lane_t *lane = &test->lanes[i];

        for (int mode = 0; mode < modes; mode++) {
            double us;

            LNT_TRY(perf_lane_run(test, lane, mode == 1, &us));
            *seconds_p += us * 1e-6;
            if (timed) lane->us[mode][lane->n_us] = us;
        }
        lane->n_us += timed ? 1 : 0;
    }
    return LNT_OK;
}

static lnt_status_t measure(perf_case_t *test)
{
    const perf_config_t *config = test->world->config;
    const double budget = config->budget_ms * 1e-3;
    const uint32_t rounds = config->warmup + config->iters;
    double seconds = 0;

    for (uint32_t round = 0; round < rounds; round++) {
        bool timed = round >= config->warmup;

        perf_report_progress(test, round, rounds, seconds);
        LNT_TRY(one_round(test, timed, &seconds));
        if (seconds > budget && timed) break;
        if (seconds > budget) round = config->warmup - 1; /* one timed round at least */
    }
    for (uint32_t i = 0; i < test->n_lanes; i++) {
        perf_lane_t *lane = &test->lanes[i];

        for (int mode = 0; mode < MODES; mode++)
            lane->times[mode] = summarize(lane->us[mode], (mode == 0 || config->in_place) ? lane->n_us : 0);
        lane->speedup =
            (lane->times[0].median_us > 0) ? test->lanes[0].times[0].median_us / lane->times[0].median_us : 0;
    }
    return LNT_OK;
}

static lnt_status_t run_case(perf_world_t *world, perf_op_t op, uint64_t bytes, uint64_t *wrong_p)
{
    perf_case_t test;
    lnt_status_t status = open_case(world, op, bytes, &test);

    for (uint32_t i = 0; status >= 0 && world->config->check && i < test.n_lanes; i++) {
        perf_report_check(&test, &test.lanes[i]);
        status = perf_check_lane(&test, &test.lanes[i]);
        *wrong_p += test.lanes[i].wrong[0] + test.lanes[i].wrong[1];
    }
    if (status >= 0) status = measure(&test);
    if (status >= 0) perf_report_case(&test);
    close_case(&test);
    return status;
}

/* The size after `bytes`; 0 ends the list. */
static uint64_t next_size(const perf_config_t *config, uint64_t bytes)
{
    uint64_t next = (config->step_bytes > 0) ? bytes + config->step_bytes : bytes * config->factor;

    return (next > bytes && next <= config->end_bytes) ? next : 0;
}

static lnt_status_t run_op(perf_world_t *world, perf_op_t op, uint64_t *wrong_p)
{
    uint64_t bytes = world->config->begin_bytes;

    perf_report_op(world, op);
    do {
        LNT_TRY(run_case(world, op, bytes, wrong_p));
        bytes = next_size(world->config, bytes);
    } while (bytes != 0);
    return LNT_OK;
}

int perf_run(perf_world_t *world)
{
    lnt_status_t status = perf_report_open(world);
    uint64_t wrong = 0;

    for (int op = 0; status >= 0 && op < PERF_OPS; op++) {
        if (tool_listed(world->config->ops, perf_formulas[op].name)) status = run_op(world, (perf_op_t)op, &wrong);
    }
    if (status >= 0) status = perf_report_close(world, wrong);
    if (status < 0) return tool_complain(PERF_NAME);
    return (wrong == 0) ? TOOL_OK : TOOL_FAILED;
}
