/* Algorithm "compressed_allreduce": the reference's compressed all-reduce alone, with carried errors
 * (tests/golden/README.md).
 *
 * It has two grids: one worker scale for the whole padded vector, one server scale per chunk. Here that is one tensor
 * of N' elements in blocks of N'/n with a worker scale over all of it; pads are ordinary elements. Bits must be equal
 * (the reference stores the first element in the most significant bit, which is turned here and nowhere else); values
 * lie within the tolerances given there.
 */
#include "replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_TOLERANCE 2e-5
#define SCALE_TOLERANCE 1e-5

typedef struct setting {
    const case_file_t *file;
    uint32_t n_ranks, n_steps;
    size_t n_elems, n_padded, n_chunk;
    lnt_codec_t codec;
    case_array_t input, worker_scale, worker_bits, worker_error, server_scale, server_bits, server_error, output;

    /* results, laid out as the arrays of the case; outputs of all ranks */
    float *got_worker_scale, *got_server_scale, *got_worker_error, *got_server_error, *got_output;
    uint8_t *got_worker_bits, *got_server_bits;
    _Atomic uint32_t split_scales; /* frames of one worker with different scales */
} setting_t;

static bool read_case(setting_t *set)
{
    const case_file_t *file = set->file;
    size_t rows;

    set->n_ranks = (uint32_t)case_integer(file, "world_size", 0);
    set->n_steps = (uint32_t)case_integer(file, "steps", 0);
    set->n_elems = (size_t)case_integer(file, "param_count", 0);
    set->n_padded = (size_t)case_integer(file, "error_count", 0);
    set->n_chunk = (size_t)case_integer(file, "server_error_count", 0);
    rows = (size_t)set->n_steps * set->n_ranks;
    return (set->n_ranks > 0) && (set->n_ranks <= REPLAY_MAX_RANKS) && (set->n_steps > 0) &&
           (set->n_elems <= set->n_padded) && (set->n_chunk * set->n_ranks == set->n_padded) && (set->n_chunk > 0) &&
           (set->n_chunk % 8 == 0) && case_array(file, "input", "f32", &set->input) &&
           (set->input.count == rows * set->n_elems) && case_array(file, "worker_scale", "f32", &set->worker_scale) &&
           (set->worker_scale.count == rows) && case_array(file, "worker_bits", "u8", &set->worker_bits) &&
           (set->worker_bits.count == rows * set->n_padded / 8) &&
           case_array(file, "worker_error", "f32", &set->worker_error) &&
           (set->worker_error.count == rows * set->n_padded) &&
           case_array(file, "server_scale", "f32", &set->server_scale) && (set->server_scale.count == rows) &&
           case_array(file, "server_bits", "u8", &set->server_bits) &&
           (set->server_bits.count == rows * set->n_chunk / 8) &&
           case_array(file, "server_error", "f32", &set->server_error) &&
           (set->server_error.count == rows * set->n_chunk) && case_array(file, "output", "f32", &set->output) &&
           (set->output.count == set->n_steps * set->n_elems);
}

static bool allocate_results(setting_t *set)
{
    const size_t rows = (size_t)set->n_steps * set->n_ranks;

    set->got_worker_scale = calloc(rows, sizeof(float));
    set->got_server_scale = calloc(rows, sizeof(float));
    set->got_worker_error = calloc(rows * set->n_padded, sizeof(float));
    set->got_server_error = calloc(rows * set->n_chunk, sizeof(float));
    set->got_output = calloc(rows * set->n_padded, sizeof(float));
    set->got_worker_bits = calloc(rows * set->n_padded / 8, 1);
    set->got_server_bits = calloc(rows * set->n_chunk / 8, 1);
    return (set->got_worker_scale != NULL) && (set->got_server_scale != NULL) && (set->got_worker_error != NULL) &&
           (set->got_server_error != NULL) && (set->got_output != NULL) && (set->got_worker_bits != NULL) &&
           (set->got_server_bits != NULL);
}

static void release(setting_t *set)
{
    free(set->got_worker_scale);
    free(set->got_server_scale);
    free(set->got_worker_error);
    free(set->got_server_error);
    free(set->got_output);
    free(set->got_worker_bits);
    free(set->got_server_bits);
}

/* ---- a rank --------------------------------------------------------------------------------------------------- */

static lnt_status_t create_exchange(const setting_t *set, lnt_comm_t *comm, const lnt_source_t *source,
                                    lnt_exchange_t **exchange_p)
{
    const lnt_extent_t extent = {0, 0, set->n_padded};
    const lnt_exchange_params_t params = {
        .topo = comm->flat,
        .rank = comm->rank,
        .extents = &extent,
        .n_extents = 1,
        .codec = set->codec,
        .scale_block = (uint32_t)set->n_padded,
        .segment_elems = set->n_padded,
        .feedback = true,
        .stage = {.struct_size = sizeof(lnt_stage_t)},
        .sources = source,
    };

    return lnt_exchange_create(&params, exchange_p);
}

/* Each chunk is one block in one frame: a scale and its bits. */
static void tap(setting_t *set, const lnt_comm_t *comm, const lnt_graph_t *graph, size_t row)
{
    const size_t bytes = set->n_chunk / 8;

    for (uint32_t f = 0; f < graph->n_frames; ++f) {
        const lnt_frame_header_t *header = lnt_graph_header(graph, f);
        const uint8_t *payload = lnt_graph_payload(graph, f);
        float scale;

        if ((header->source != comm->rank) || (header->payload_bytes != sizeof(scale) + bytes)) {
            continue;
        }
        memcpy(&scale, payload, sizeof(scale));
        if (header->phase == 1) {
            replay_turn_bits(set->got_worker_bits + row * set->n_padded / 8 + header->chunk * bytes,
                             payload + sizeof(scale), bytes);
            if ((header->chunk > 0) && (scale != set->got_worker_scale[row])) {
                atomic_fetch_add(&set->split_scales, 1);
            }
            set->got_worker_scale[row] = scale;
        } else if (header->phase == 2) {
            replay_turn_bits(set->got_server_bits + row * bytes, payload + sizeof(scale), bytes);
            set->got_server_scale[row] = scale;
        }
    }
}

static void keep_results(setting_t *set, const lnt_comm_t *comm, lnt_exchange_t *exchange, size_t row)
{
    const lnt_owned_t worker = lnt_exchange_worker_error(exchange), server = lnt_exchange_server_error(exchange);

    tap(set, comm, lnt_exchange_graph(exchange), row);
    lnt_exchange_read(exchange, 0, set->n_padded, set->got_output + row * set->n_padded);
    memcpy(set->got_worker_error + row * set->n_padded, worker.values, (worker.end - worker.begin) * sizeof(float));
    memcpy(set->got_server_error + row * set->n_chunk, server.values, (server.end - server.begin) * sizeof(float));
}

static lnt_status_t run_rounds(setting_t *set, lnt_comm_t *comm, lnt_exchange_t *exchange, float *padded)
{
    replay_round_t round;

    LNT_TRY(replay_round_init(&round, comm, &exchange, 1));
    for (uint32_t step = 0; step < set->n_steps; ++step) {
        const size_t row = (size_t)step * set->n_ranks + comm->rank;
        uint8_t flags;

        memcpy(padded, (const float *)set->input.data + row * set->n_elems, set->n_elems * sizeof(float));
        lnt_exchange_prepare(exchange, &(lnt_exchange_step_t){1.0f, (float)(1.0 / set->n_ranks), 0});
        LNT_TRY(replay_round_run(&round, &flags));
        if (flags != 0) {
            return lnt_error(LNT_ERR_CORRUPT, NULL, "step %u was skipped: an input of the case is not finite", step);
        }
        lnt_exchange_commit(exchange);
        keep_results(set, comm, exchange, row);
    }
    replay_round_release(&round);
    return LNT_OK;
}

static lnt_status_t rank_body(lnt_comm_t *comm, void *arg)
{
    setting_t *set = arg;
    float *padded = calloc(set->n_padded, sizeof(float)); /* pads stay 0 */
    lnt_source_t source = {.values = padded, .dtype = LNT_F32};
    lnt_exchange_t *exchange;

    if (padded == NULL) {
        return lnt_error(LNT_ERR_NO_MEMORY, NULL, "no memory for a rank");
    }
    LNT_TRY(create_exchange(set, comm, &source, &exchange));
    LNT_TRY(run_rounds(set, comm, exchange,
                       padded)); /* after a failure frames may still be on their way: nothing is freed */
    lnt_exchange_destroy(exchange);
    free(padded);
    return LNT_OK;
}

/* ---- comparison ----------------------------------------------------------------------------------------------- */

static double bits_differ(const uint8_t *got, const void *want, size_t offset, size_t bytes)
{
    return replay_bits_differ(got + offset, (const uint8_t *)want + offset, bytes);
}

static double larger(double a, double b)
{
    return (a > b) ? a : b;
}

/* Deviations of values are in units of the worker's scale, those of sums in the largest one. */
static void compare_step(const setting_t *set, replay_report_t *report, uint32_t step)
{
    const size_t first = (size_t)step * set->n_ranks, n = set->n_padded, c = set->n_chunk;
    const float *scales = (const float *)set->worker_scale.data + first;
    double worker_scale = 0, worker_error = 0, server_error = 0, output = 0, unit = 0;

    for (uint32_t r = 0; r < set->n_ranks; ++r) {
        const size_t row = first + r;

        unit = larger(unit, (double)scales[r]);
        worker_scale = larger(worker_scale, replay_largest(set->got_worker_scale + row, scales + r, 1, 0));
        worker_error =
            larger(worker_error, replay_largest(set->got_worker_error + row * n,
                                                (const float *)set->worker_error.data + row * n, n, (double)scales[r]));
    }
    for (uint32_t r = 0; r < set->n_ranks; ++r) {
        const size_t row = first + r;

        server_error = larger(server_error, replay_largest(set->got_server_error + row * c,
                                                           (const float *)set->server_error.data + row * c, c, unit));
        output =
            larger(output, replay_largest(set->got_output + row * n,
                                          (const float *)set->output.data + step * set->n_elems, set->n_elems, unit));
    }
    replay_report_add(report, "worker_scale", step, worker_scale, SCALE_TOLERANCE);
    replay_report_add(report, "worker_bits", step,
                      bits_differ(set->got_worker_bits, set->worker_bits.data, first * n / 8, set->n_ranks * n / 8), 0);
    replay_report_add(report, "worker_error", step, worker_error, ERROR_TOLERANCE);
    replay_report_add(report, "server_scale", step,
                      replay_largest(set->got_server_scale + first, (const float *)set->server_scale.data + first,
                                     set->n_ranks, unit),
                      SCALE_TOLERANCE);
    replay_report_add(report, "server_bits", step,
                      bits_differ(set->got_server_bits, set->server_bits.data, first * c / 8, set->n_ranks * c / 8), 0);
    replay_report_add(report, "server_error", step, server_error, ERROR_TOLERANCE);
    replay_report_add(report, "output", step, output, SCALE_TOLERANCE);
}

/* All ranks hold the same bits. */
static double replicas_differ(const setting_t *set)
{
    double n = 0;

    for (uint32_t step = 0; step < set->n_steps; ++step) {
        const float *first = set->got_output + (size_t)step * set->n_ranks * set->n_padded;

        for (uint32_t r = 1; r < set->n_ranks; ++r) {
            n += replay_floats_differ(first + r * set->n_padded, first, set->n_padded, REPLAY_BITS_EQUAL);
        }
    }
    return n;
}

int replay_allreduce(const case_file_t *file, const replay_how_t *how, replay_report_t *report)
{
    setting_t set = {.file = file};
    int64_t nodes[REPLAY_MAX_RANKS];
    int code = REPLAY_USAGE;

    if (!read_case(&set) || !allocate_results(&set) || (lnt_codec_init(&set.codec, "sign1", 0, LNT_SCALE_L2) < 0)) {
        snprintf(report->problem, sizeof(report->problem), "the case is not complete, or too large");
        release(&set);
        return code;
    }
    set.codec.cfg.block = (uint32_t)set.n_chunk; /* a chunk of the reference; users' blocks are multiples of 64 */
    for (uint32_t r = 0; r < set.n_ranks; ++r) {
        nodes[r] = (strcmp(how->transport, "shm") == 0) ? 0 : r; /* the exchange itself is flat */
    }
    code = REPLAY_DEVIATES;
    if (replay_world(set.n_ranks, nodes, how->transport, rank_body, &set, report->problem, sizeof(report->problem)) >=
        0) {
        code = REPLAY_OK;
        replay_report_add(report, "split scales", 0, (double)atomic_load(&set.split_scales), 0);
        replay_report_add(report, "replicas", 0, replicas_differ(&set), 0);
        for (uint32_t step = 0; step < set.n_steps; ++step) {
            compare_step(&set, report, step);
        }
    }
    release(&set);
    return code;
}
