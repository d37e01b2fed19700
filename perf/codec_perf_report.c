/* The table on stdout, as text or Markdown, and JSON lines. Comment lines of the text begin with #. */
#include <stdio.h>
#include <string.h>

#include "../src/base/error.h"
#include "codec_perf.h"
#include "common_json.h"

static FILE *json_file;

static const char *rule_word(const codec_case_t *test)
{
    return test->row == NULL || !test->row->has_scale_rule ? "none"
           : test->cfg.scale_rule == LNT_SCALE_L1          ? "l1"
                                                           : "l2";
}

static uint32_t shown_block(const codec_case_t *test)
{
    return test->row == NULL ? 0 : test->cfg.block;
}

static double lane_gbs(const codec_case_t *test, const codec_lane_t *lane)
{
    return codec_rate_gbs((double)test->bytes, lane->median_seconds);
}

/* GB/s of the bytes a yardstick counts. */
static double yard_gbs(const codec_lane_t *lane)
{
    return codec_rate_gbs(lane->counted_bytes, lane->median_seconds);
}

/* ---- head ---- */

void codec_report_machine(const codec_world_t *world)
{
    const machine_t *machine = &world->machine;
    size_t n_impls;
    const lnt_kernel_impl_t *impls = lnt_kernel_impls(&n_impls);

    printf("# " CODEC_PERF_NAME ": %s\n", lnt_build_info());
    printf("# cpu %s, L1d %llu KiB, %u cores, governor %s, core to core %.0f ns before\n", machine->cpu,
           (unsigned long long)(machine->l1d_bytes / 1024), machine->n_cores,
           machine->governor[0] != '\0' ? machine->governor : "unknown", machine->c2c_ns);
    if (strcmp(world->space->describe(), "host") != 0) printf("# device %s\n", world->space->describe());
    printf("# implementations:");
    for (size_t i = 0; i < n_impls; i++)
        printf(" %s%s", impls[i].name, impls[i].usable() ? "" : " (not on this machine)");
    printf("\n");
}

static void print_columns(const codec_world_t *world)
{
    if (world->config->markdown) {
        printf("\n| codec | operation | input | block | size | threads | kernels | GB/s | ns/element | a+=b GB/s | of "
               "a+=b "
               "| memcpy GB/s | of memcpy | of streams | over ref "
               "|\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
        return;
    }
    printf("#\n#%12s %-16s %-5s %8s %6s %12s %7s %-7s %10s %8s %8s %8s %8s %8s %8s %8s %7s %8s\n", "codec", "op",
           "dtype", "block", "inputs", "bytes", "threads", "impl", "time(us)", "GB/s", "ns/elem", "a+=b", "frac",
           "memcpy", "frac", "streams", "spread", "over_ref");
}

lnt_status_t codec_report_open_json(const codec_world_t *world)
{
    const char *name = world->config->json;

    if (name == NULL) return LNT_OK;
    json_file = fopen(name, "we");
    if (json_file == NULL) return lnt_error(LNT_ERR_SYSTEM, "give a file that can be written", "cannot write %s", name);
    (void)setvbuf(json_file, NULL, _IOLBF, 0);
    return LNT_OK;
}

lnt_status_t codec_report_open(const codec_world_t *world, uint64_t memory_bytes, uint64_t n_cases)
{
    const codec_config_t *config = world->config;

    codec_report_machine(world);
    printf("# %llu cases, memory at most %llu MiB; median of %u rounds after %u, seed %llu\n",
           (unsigned long long)n_cases, (unsigned long long)((memory_bytes + (1 << 20) - 1) >> 20), config->iters,
           config->warmup, (unsigned long long)world->seed);
    printf("# GB/s: uncompressed side; fractions: rate per counted byte (--help) over that of a+=b and memcpy, same "
           "round; GB = 1e9\n");
    print_columns(world);
    return codec_report_open_json(world);
}

/* ---- rows ---- */

static void print_text(const codec_case_t *test, const codec_lane_t *lane)
{
    char over_ref[16] = "-", streams[16] = "-";

    if (lane->frac_streams > 0) (void)snprintf(streams, sizeof(streams), "%.3f", lane->frac_streams);
    if (lane->speedup > 0) (void)snprintf(over_ref, sizeof(over_ref), "%.2f", lane->speedup);
    printf("%13s %-16s %-5s %8u %6u %12llu %7u %-7s %10.2f %8.2f %8.4f %8.2f %8.3f %8.2f %8.3f %8s %7.3f %8s\n",
           test->codec, test->op->name, lnt_dtype_name(test->dtype), shown_block(test), test->n_runs,
           (unsigned long long)test->bytes, test->n_threads, lane->name, lane->median_seconds * 1e6,
           lane_gbs(test, lane), lane->median_seconds * 1e9 / (double)test->n, yard_gbs(&test->lanes[LANE_ADD]),
           lane->frac_add, yard_gbs(&test->lanes[LANE_COPY]), lane->frac_copy, streams, lane->spread, over_ref);
}

/* 4 MiB, 64 KiB, 100 B */
static const char *size_text(uint64_t bytes, char *text, size_t room)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
    uint32_t unit = 0;

    for (; bytes % 1024 == 0 && bytes > 0 && unit < 3; unit++)
        bytes /= 1024;
    (void)snprintf(text, room, "%llu %s", (unsigned long long)bytes, units[unit]);
    return text;
}

static void print_markdown(const codec_case_t *test, const codec_lane_t *lane)
{
    char size[32], name[48];

    (void)snprintf(name, sizeof(name), test->op->several ? "%s of %u" : "%s", test->op->name, test->n_runs);
    printf("| %s | %s | %s | %u | %s | %u | %s | %.1f | %.3f | %.1f | %.0f %% | %.1f | %.0f %% | ", test->codec, name,
           lnt_dtype_name(test->dtype), shown_block(test), size_text(test->bytes, size, sizeof(size)), test->n_threads,
           lane->name, lane_gbs(test, lane), lane->median_seconds * 1e9 / (double)test->n,
           yard_gbs(&test->lanes[LANE_ADD]), lane->frac_add * 100, yard_gbs(&test->lanes[LANE_COPY]),
           lane->frac_copy * 100);
    printf(lane->frac_streams > 0 ? "%.0f %% | " : "| ", lane->frac_streams * 100);
    printf(lane->speedup > 0 ? "%.1f |\n" : "|\n", lane->speedup);
}

static void write_number(const char *key, double value)
{
    (void)fprintf(json_file, value > 0 ? "\"%s\": %.6g, " : "\"%s\": null, ", key, value);
}

static void write_json(const codec_case_t *test, const codec_lane_t *lane)
{
    const codec_world_t *world = test->world;
    const codec_lane_t *streams = &test->lanes[LANE_STREAMS];

    (void)fputc('{', json_file);
    json_text(json_file, "codec", test->codec);
    json_text(json_file, "impl", lane->name);
    json_text(json_file, "op", test->op->name);
    json_text(json_file, "dtype", lnt_dtype_name(test->dtype));
    (void)fprintf(json_file, "\"block\": %u, \"bytes\": %llu, \"threads\": %u, ", shown_block(test),
                  (unsigned long long)test->bytes, test->n_threads);
    (void)fprintf(json_file, "\"gbs\": %.6g, \"ns_per_elem\": %.6g, \"frac_triad\": %.6g, \"frac_memcpy\": %.6g, ",
                  lane_gbs(test, lane), lane->median_seconds * 1e9 / (double)test->n, lane->frac_add, lane->frac_copy);
    (void)fprintf(json_file, "\"inputs\": %u, \"counted_bytes\": %.0f, \"add_gbs\": %.6g, \"memcpy_gbs\": %.6g, ",
                  test->n_runs, lane->counted_bytes, yard_gbs(&test->lanes[LANE_ADD]),
                  yard_gbs(&test->lanes[LANE_COPY]));
    write_number("frac_streams", lane->frac_streams);
    write_number("streams_gbs", streams->timed ? yard_gbs(streams) : 0);
    (void)fprintf(json_file, "\"spread\": %.6g, ", lane->spread);
    write_number("over_ref", lane->speedup);
    json_text(json_file, "scale_rule", rule_word(test));
    json_text(json_file, "device", world->space->describe());
    json_text(json_file, "cpu", world->machine.cpu);
    (void)fprintf(json_file, "\"l1d\": %llu}\n", (unsigned long long)world->machine.l1d_bytes);
}

void codec_report_json(const codec_case_t *test)
{
    for (uint32_t i = LANE_REF; i < test->n_lanes && json_file != NULL; i++) {
        if (test->lanes[i].timed) write_json(test, &test->lanes[i]);
    }
}

void codec_report_case(const codec_case_t *test)
{
    for (uint32_t i = LANE_REF; i < test->n_lanes; i++) {
        const codec_lane_t *lane = &test->lanes[i];

        if (!lane->timed) continue;
        (test->world->config->markdown ? print_markdown : print_text)(test, lane);
        test->world->n_rows++;
    }
    (void)fflush(stdout);
    codec_report_json(test);
}

void codec_report_wrong(const codec_case_t *test, const codec_lane_t *lane, codec_array_t id, const uint8_t *expected)
{
    uint64_t i = 0;

    while (test->array[id][i] == expected[i])
        i++;
    (void)fprintf(stderr,
                  CODEC_PERF_NAME
                  ": WRONG: %s %s %s, block %u, %llu bytes, %u threads, %s: byte %llu of %s is %02x, the "
                  "reference has %02x; not timed (--seed %llu repeats it)\n",
                  test->codec, test->op->name, lnt_dtype_name(test->dtype), shown_block(test),
                  (unsigned long long)test->bytes, test->n_threads, lane->name, (unsigned long long)i,
                  codec_array_name(id), test->array[id][i], expected[i], (unsigned long long)test->world->seed);
}

/* ---- end ---- */

static lnt_status_t close_json(const codec_world_t *world)
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

lnt_status_t codec_report_close(const codec_world_t *world)
{
    printf("%s# core to core %.0f ns after; %llu of %llu samples disturbed by other processes\n",
           world->config->markdown ? "\n" : "", machine_core_to_core_ns(), (unsigned long long)world->n_disturbed,
           (unsigned long long)world->n_samples);
    if (world->n_left_out > 0)
        printf("# %llu cases left out: what was asked for has no code of its own for them\n",
               (unsigned long long)world->n_left_out);
    printf("# %llu rows; bytes that differ from the reference's: %llu lanes %s\n", (unsigned long long)world->n_rows,
           (unsigned long long)world->n_wrong, world->n_wrong == 0 ? "OK" : "FAILED");
    return close_json(world);
}
