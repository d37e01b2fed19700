/* Lanes: their requests, and one timed run of one of them.
 *
 * Only what lies between two clock readings counts as time; copying inputs, barriers and the gathering of times lie
 * outside. The bytes a run sends are compared with what the request promised, every time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/base/clock.h"
#include "../src/base/error.h"
#include "perf_tool.h"

static lnt_status_t add_lane(perf_case_t *test, const char *name, bool plain)
{
    lnt_codec_params_t params = {.struct_size = sizeof(params), .name = name};
    perf_lane_t *lane = &test->lanes[test->n_lanes];

    if (test->n_lanes == PERF_LANES_MAX) return lnt_error(LNT_ERR_OUT_OF_RANGE, NULL, "too many codecs");
    *lane = (perf_lane_t){.name = name, .plain = plain};
    test->n_lanes++;
    return plain ? LNT_OK : lnt_codec_create(&params, &lane->codec);
}

static lnt_status_t list_lanes(perf_case_t *test)
{
    const perf_config_t *config = test->world->config;
    const char *plain = lnt_dtype_name(perf_dtype(config));

    LNT_TRY(add_lane(test, plain, true));
    test->lanes[0].shown = tool_listed(config->codecs, plain) || tool_listed(config->codecs, "none");
    for (const char *const *name = lnt_codec_list(); *name != NULL; name++) {
        if (strcmp(*name, plain) == 0 || !tool_listed(config->codecs, *name)) continue;
        LNT_TRY(add_lane(test, *name, false));
        test->lanes[test->n_lanes - 1].shown = true;
    }
    return LNT_OK;
}

static lnt_status_t init_request(perf_case_t *test, perf_lane_t *lane)
{
    const perf_config_t *config = test->world->config;
    lnt_comm_t *comm = test->world->comm;
    lnt_dtype_t dtype = perf_dtype(config);
    lnt_coll_params_t params = {.struct_size = sizeof(params), .codec = lane->codec, .op = perf_redop(config)};

    if (test->op == PERF_ALLREDUCE && config->residual && lane->codec != NULL) {
        LNT_TRY(lnt_residual_create(comm, test->count, lane->codec, &lane->residual));
        params.residual = lane->residual;
    }
    switch (test->op) {
    case PERF_ALLREDUCE:
        return lnt_allreduce_init(comm, test->count, dtype, &params, &lane->request);
    case PERF_REDUCE_SCATTER:
        return lnt_reduce_scatter_init(comm, test->count, dtype, &params, &lane->request);
    case PERF_ALLGATHER:
        return lnt_allgather_init(comm, test->count, dtype, &params, &lane->request);
    default:
        return lnt_broadcast_init(comm, test->count, dtype, 0, &params, &lane->request);
    }
}

lnt_status_t perf_lanes_open(perf_case_t *test)
{
    LNT_TRY(list_lanes(test));
    for (uint32_t i = 0; i < test->n_lanes; i++) {
        perf_lane_t *lane = &test->lanes[i];

        for (int mode = 0; mode < 2; mode++) {
            lane->us[mode] = calloc(test->world->config->iters, sizeof(double));
            if (lane->us[mode] == NULL) return perf_no_memory();
        }
        LNT_TRY(init_request(test, lane));
    }
    return LNT_OK;
}

void perf_lanes_close(perf_case_t *test)
{
    for (uint32_t i = 0; i < test->n_lanes; i++) {
        perf_lane_t *lane = &test->lanes[i];

        (void)lnt_request_destroy(lane->request);
        lnt_residual_destroy(lane->residual);
        lnt_codec_destroy(lane->codec);
        free(lane->us[0]);
        free(lane->us[1]);
    }
    test->n_lanes = 0;
}

/* In-place runs overwrite their input; a broadcast always works in place. */
static void place_input(const perf_case_t *test, void *buffer)
{
    const size_t elem = lnt_dtype_size(perf_dtype(test->world->config));

    if (test->op == PERF_BROADCAST && test->world->info.rank != 0) {
        memset(buffer, 0, test->output_elems * elem);
    } else {
        memcpy(buffer, test->input, test->input_elems * elem);
    }
}

static lnt_status_t check_bytes(const perf_lane_t *lane, const lnt_comm_stats_t *stats)
{
    uint64_t intra, inter;

    LNT_TRY(lnt_request_wire_bytes(lane->request, &intra, &inter));
    if (intra == stats->wire_bytes_intra && inter == stats->wire_bytes_inter) return LNT_OK;
    return lnt_error(LNT_ERR_INTERNAL, "report it with the command line",
                     "%s sent %llu + %llu bytes, the request promised %llu + %llu", lane->name,
                     (unsigned long long)stats->wire_bytes_intra, (unsigned long long)stats->wire_bytes_inter,
                     (unsigned long long)intra, (unsigned long long)inter);
}

static lnt_status_t run_request(const perf_lane_t *lane, const void *input, void *output)
{
    lnt_status_t status = lnt_request_start(lane->request, input, output);

    if (status >= 0) status = lnt_request_wait(lane->request);
    if (status <= 0) return status;
    return lnt_error(LNT_ERR_INTERNAL, "report it with the command line", "%s ended with: %s", lane->name,
                     lnt_status_string(status));
}

lnt_status_t perf_lane_run(perf_case_t *test, perf_lane_t *lane, bool in_place, double *us_p)
{
    lnt_comm_t *comm = test->world->comm;
    lnt_comm_stats_t stats = {.struct_size = sizeof(stats)};
    const void *input = in_place ? test->both : test->input;
    void *output = in_place ? test->both : test->output;
    uint64_t start_ns, found[3];

    if (in_place || test->op == PERF_BROADCAST) place_input(test, output);
    LNT_TRY(lnt_barrier(comm));
    LNT_TRY(lnt_comm_get_stats(comm, &stats, true));
    start_ns = lnt_now_ns();
    LNT_TRY(run_request(lane, (test->op == PERF_BROADCAST) ? NULL : input, output));
    found[0] = lnt_now_ns() - start_ns;
    LNT_TRY(lnt_comm_get_stats(comm, &stats, true));
    LNT_TRY(check_bytes(lane, &stats));
    found[1] = stats.wire_bytes_intra + stats.wire_bytes_inter;
    found[2] = stats.wire_bytes_inter;
    LNT_TRY(perf_gather_max(comm, test->world->info.n_ranks, found, 3));
    *us_p = (double)found[0] / 1e3;
    lane->wire = found[1];
    lane->wire_inter = found[2];
    return LNT_OK;
}
