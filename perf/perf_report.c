/* The table on stdout, in the manner of nccl-tests, and JSON lines. Comment lines begin with #. Rank 0 alone writes. */
#include <stdio.h>
#include <string.h>

#include "../src/base/clock.h"
#include "../src/base/error.h"
#include "common_json.h"
#include "perf_tool.h"

enum { PROGRESS_EVERY_NS = 2000000000 };

static FILE *json_file;
static uint64_t last_progress_ns;
static double busbw_sum;
static uint32_t n_cases;

static const char *transport_of(const perf_world_t *world)
{
    return (world->info.n_nodes > 1) ? world->info.inter_transport : world->info.intra_transport;
}

static bool emulated(const perf_world_t *world)
{
    return world->info.emulate_gbps > 0 && world->info.n_nodes > 1;
}

static void print_header(const perf_world_t *world)
{
    const perf_config_t *config = world->config;
    char map[256];

    node_map_text(&world->map, map, sizeof(map));
    printf("# " PERF_NAME ": %s\n", lnt_build_info());
    printf("# cpu %s, L1d %llu KiB, %u cores, core to core %.0f ns before\n", world->machine.cpu,
           (unsigned long long)(world->machine.l1d_bytes / 1024), world->machine.n_cores, world->machine.c2c_ns);
    printf("# ranks %u, nodes %u (%s), %s; transports: %s inside a node, %s between nodes\n", world->info.n_ranks,
           world->info.n_nodes, map, node_map_algo(&world->map), world->info.intra_transport,
           world->info.inter_transport);
    printf("# threads of a rank that code: %u; the caller sleeps meanwhile\n", world->info.n_threads);
    if (emulated(world)) {
        printf("# EMULATED link: what a node sends to others is limited to %g Gbit/s by the library\n",
               world->info.emulate_gbps);
    }
    printf("# sizes %llu to %llu bytes, %u iterations after %u, check %s, residual %s, seed %llu\n",
           (unsigned long long)config->begin_bytes, (unsigned long long)config->end_bytes, config->iters,
           config->warmup, config->check ? "on" : "off", config->residual ? "on" : "off",
           (unsigned long long)world->seed);
    printf("# time: median of the slowest rank; algbw = S/t, busbw by the formulas of docs/perf.md, GB = 1e9; wire: "
           "bytes sent, largest rank\n");
}

lnt_status_t perf_report_open(const perf_world_t *world)
{
    if (world->info.rank != 0) return LNT_OK;
    print_header(world);
    if (world->config->json == NULL) return LNT_OK;
    json_file = fopen(world->config->json, "we");
    if (json_file == NULL) {
        return lnt_error(LNT_ERR_SYSTEM, "give a file that can be written", "cannot write %s", world->config->json);
    }
    (void)setvbuf(json_file, NULL, _IOLBF, 0);
    return LNT_OK;
}

void perf_report_op(const perf_world_t *world, perf_op_t op)
{
    if (world->info.rank != 0) return;
    printf("#\n# %s\n", perf_formulas[op].name);
    printf("#%56s out-of-place %20s in-place\n", "", "");
    printf("#%11s %11s %6s %6s %5s %10s %8s %8s %7s %10s %8s %8s %7s  %-6s %11s %11s %6s %9s %9s %7s\n", "size",
           "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong",
           "codec", "wire(B)", "wire_inter", "ratio", "rel_err", "max_err", "speedup");
    printf("#%11s %11s %6s %6s %5s %10s %8s %8s %7s %10s %8s %8s %7s\n", "(B)", "(elements)", "", "", "", "(us)",
           "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "");
}

static void print_times(const perf_case_t *test, const perf_lane_t *lane, int mode)
{
    const double us = lane->times[mode].median_us;
    char wrong[24] = "N/A";

    if (test->world->config->check) (void)snprintf(wrong, sizeof(wrong), "%llu", (unsigned long long)lane->wrong[mode]);
    if (us > 0) {
        printf(" %10.2f %8.3f %8.3f %7s", us, perf_algbw((double)test->bytes, us * 1e-6),
               perf_busbw(test->op, test->world->info.n_ranks, (double)test->bytes, us * 1e-6), wrong);
    } else {
        printf(" %10s %8s %8s %7s", "-", "-", "-", wrong);
    }
}

static void print_row(const perf_case_t *test, const perf_lane_t *lane)
{
    const perf_world_t *world = test->world;
    const perf_formula_t *formula = &perf_formulas[test->op];

    printf("%12llu %11llu %6s %6s %5d", (unsigned long long)test->bytes, (unsigned long long)test->count,
           lnt_dtype_name(perf_dtype(world->config)),
           !formula->reduces                         ? "none"
           : (perf_redop(world->config) == LNT_MEAN) ? "mean"
                                                     : "sum",
           (test->op == PERF_BROADCAST) ? 0 : -1);
    print_times(test, lane, 0);
    print_times(test, lane, 1);
    printf("  %-6s %11llu %11llu %6.2f %9.2e %9.2e %7.2f%s\n", lane->name, (unsigned long long)lane->wire,
           (unsigned long long)lane->wire_inter,
           perf_ratio(test->op, world->info.n_ranks, (double)test->bytes, lane->wire), lane->rel_err, lane->max_err,
           lane->speedup, emulated(world) ? " emulated" : "");
}

static void write_json(const perf_case_t *test, const perf_lane_t *lane)
{
    const perf_world_t *world = test->world;
    const perf_times_t *times = &lane->times[0];
    const double seconds = times->median_us * 1e-6, bytes = (double)test->bytes;

    (void)fputc('{', json_file);
    json_text(json_file, "op", perf_formulas[test->op].name);
    json_text(json_file, "codec", lane->name);
    json_text(json_file, "algo", node_map_algo(&world->map));
    json_text(json_file, "dtype", lnt_dtype_name(perf_dtype(world->config)));
    (void)fprintf(json_file, "\"ranks\": %u, \"nodes\": %u, \"count\": %llu, \"bytes\": %llu, ", world->info.n_ranks,
                  world->info.n_nodes, (unsigned long long)test->count, (unsigned long long)test->bytes);
    (void)fprintf(json_file, "\"t_us_min\": %.3f, \"t_us_median\": %.3f, \"t_us_p99\": %.3f, ", times->min_us,
                  times->median_us, times->p99_us);
    (void)fprintf(json_file, "\"algbw_gbs\": %.6g, \"busbw_gbs\": %.6g, ", perf_algbw(bytes, seconds),
                  perf_busbw(test->op, world->info.n_ranks, bytes, seconds));
    (void)fprintf(json_file, "\"wire_bytes\": %llu, \"wire_bytes_inter\": %llu, \"ratio\": %.6g, ",
                  (unsigned long long)lane->wire, (unsigned long long)lane->wire_inter,
                  perf_ratio(test->op, world->info.n_ranks, bytes, lane->wire));
    if (world->config->check) {
        (void)fprintf(json_file, "\"rel_err\": %.6g, \"max_err\": %.6g, \"wrong\": %llu, ", lane->rel_err,
                      lane->max_err, (unsigned long long)(lane->wrong[0] + lane->wrong[1]));
    } else {
        (void)fprintf(json_file, "\"rel_err\": null, \"max_err\": null, \"wrong\": null, ");
    }
    (void)fprintf(json_file, "\"speedup\": %.6g, ", lane->speedup);
    json_text(json_file, "transport", transport_of(world));
    (void)fprintf(json_file, "\"emulated_gbps\": %.6g, ", emulated(world) ? world->info.emulate_gbps : 0);
    json_text(json_file, "cpu", world->machine.cpu);
    (void)fprintf(json_file, "\"l1d\": %llu}\n", (unsigned long long)world->machine.l1d_bytes);
}

void perf_report_case(const perf_case_t *test)
{
    if (test->world->info.rank != 0) return;
    for (uint32_t i = 0; i < test->n_lanes; i++) {
        const perf_lane_t *lane = &test->lanes[i];

        if (!lane->shown) continue;
        print_row(test, lane);
        if (json_file != NULL) write_json(test, lane);
        busbw_sum +=
            perf_busbw(test->op, test->world->info.n_ranks, (double)test->bytes, lane->times[0].median_us * 1e-6);
        n_cases++;
    }
    (void)fflush(stdout);
}

/* Time for a line again? The first one comes after a while only: short runs say nothing. */
static bool progress_due(const perf_case_t *test)
{
    const uint64_t now_ns = lnt_now_ns();

    if (last_progress_ns == 0) last_progress_ns = now_ns;
    if (test->world->info.rank != 0 || now_ns - last_progress_ns < PROGRESS_EVERY_NS) return false;
    last_progress_ns = now_ns;
    (void)fprintf(stderr, "# %s %llu B: ", perf_formulas[test->op].name, (unsigned long long)test->bytes);
    return true;
}

void perf_report_check(const perf_case_t *test, const perf_lane_t *lane)
{
    if (progress_due(test)) (void)fprintf(stderr, "checking %s\n", lane->name);
}

void perf_report_progress(const perf_case_t *test, uint32_t done, uint32_t of, double seconds)
{
    if (!progress_due(test)) return;
    (void)fprintf(stderr, "round %u of %u", done + 1, of);
    if (done > 0) (void)fprintf(stderr, ", about %.0f s to go", seconds / done * (of - done));
    (void)fprintf(stderr, "\n");
}

static lnt_status_t close_json(const perf_world_t *world)
{
    bool whole;

    if (json_file == NULL) return LNT_OK;
    whole = ferror(json_file) == 0;
    whole = fclose(json_file) == 0 && whole;
    json_file = NULL;
    return whole
               ? LNT_OK
               : lnt_error(LNT_ERR_SYSTEM, "look for space left", "%s could not be written whole", world->config->json);
}

lnt_status_t perf_report_close(const perf_world_t *world, uint64_t wrong)
{
    if (world->info.rank != 0) return LNT_OK;
    printf("# core to core %.0f ns after\n", machine_core_to_core_ns());
    if (world->config->check) {
        printf("# Out of bounds values : %llu %s\n", (unsigned long long)wrong, (wrong == 0) ? "OK" : "FAILED");
    } else {
        printf("# Out of bounds values : not checked\n");
    }
    printf("# Avg bus bandwidth    : %g\n", (n_cases > 0) ? busbw_sum / n_cases : 0);
    return close_json(world);
}
