/* What travelled in a call: scales and bits as they lie in the frames of the exchanges of units, and these exchanges'
 * error buffers, compared with the case's. Rank 0 reads those of all ranks while they wait.
 */
#include "replay_optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../src/core/plan_impl.h"

static uint32_t unit_program(const lnt_plan_t *plan)
{
    uint32_t p = 0;

    while ((p < plan->n_programs) && (plan->programs[p].unit == LNT_UNIT_NONE)) {
        ++p;
    }
    return p;
}

static bool ran(const lnt_plan_t *plan, uint32_t program)
{
    return (program < plan->n_programs) && ((plan->step_programs >> program & 1u) != 0);
}

static lnt_exchange_t *exchange_of(const replay_run_t *run, uint32_t rank, size_t buffer, bool *ran_p)
{
    const lnt_plan_t *plan = run->ranks[rank].plan;
    const uint32_t program = unit_program(plan);

    *ran_p = false;
    for (uint32_t b = 0; (program < plan->n_programs) && (b < plan->n_buckets); ++b) {
        lnt_exchange_t *exchange = plan->buckets[b].exchange[program];

        if ((exchange != NULL) && (run->model.fused || (lnt_exchange_grid(exchange)->extents[0].tensor ==
                                                        run->model.tensors[buffer].place))) {
            *ran_p = ran(plan, program);
            return exchange;
        }
    }
    return NULL;
}

uint32_t replay_coded_exchanges(const replay_run_t *run)
{
    const lnt_plan_t *plan = run->ranks[0].plan;
    const uint32_t program = unit_program(plan);
    uint32_t n = 0;

    for (uint32_t b = 0; ran(plan, program) && (run->model.n_ranks > 1) && (b < plan->n_buckets); ++b) {
        n += plan->buckets[b].exchange[program] != NULL;
    }
    return n;
}

/* Frame number f if this rank coded it: a chunk is one block, so a scale and its bits. */
static const uint8_t *own_frame(const lnt_graph_t *graph, uint32_t f, uint32_t rank, uint32_t phase)
{
    const lnt_frame_header_t *header = lnt_graph_header(graph, f);

    return ((header->source == rank) && (header->phase == phase)) ? lnt_graph_payload(graph, f) : NULL;
}

static void scales_of(const replay_run_t *run, uint32_t rank, size_t buffer, float *worker_p, float *server_p)
{
    bool coded;
    lnt_exchange_t *exchange = exchange_of(run, rank, buffer, &coded);
    const lnt_graph_t *graph;

    *worker_p = *server_p = 0;
    if ((exchange == NULL) || !coded) {
        return;
    }
    graph = lnt_exchange_graph(exchange);
    for (uint32_t f = 0; f < graph->n_frames; ++f) {
        const uint8_t *first = own_frame(graph, f, rank, 1), *second = own_frame(graph, f, rank, 2);

        if (first != NULL) {
            memcpy(worker_p, first, sizeof(*worker_p));
        }
        if (second != NULL) {
            memcpy(server_p, second, sizeof(*server_p));
        }
    }
}

static replay_piece_t buffer_piece(const replay_model_t *model, size_t buffer, bool server)
{
    if (model->fused) {
        return (replay_piece_t){0, server ? model->n_server : model->n_worker};
    }
    return server ? model->tensors[buffer].server : model->tensors[buffer].worker;
}

/* False: the exchange codes another number of elements than the case's buffer has. */
static bool bits_of(const replay_run_t *run, uint32_t rank, size_t buffer, bool server, uint8_t *bits)
{
    const replay_piece_t piece = buffer_piece(&run->model, buffer, server);
    bool coded;
    lnt_exchange_t *exchange = exchange_of(run, rank, buffer, &coded);
    const lnt_graph_t *graph;
    size_t bytes;

    if ((exchange == NULL) || !coded) {
        return true;
    }
    graph = lnt_exchange_graph(exchange);
    bytes = lnt_exchange_grid(exchange)->block / 8;
    if (bytes * 8 * (server ? 1 : run->model.n_ranks) != piece.count) {
        return false;
    }
    for (uint32_t f = 0; f < graph->n_frames; ++f) {
        const uint8_t *payload = own_frame(graph, f, rank, server ? 2 : 1);

        if (payload != NULL) {
            replay_turn_bits(bits + piece.offset / 8 + (server ? 0 : lnt_graph_header(graph, f)->chunk * bytes),
                             payload + sizeof(float), bytes);
        }
    }
    return true;
}

void replay_note_scales(replay_run_t *run)
{
    for (uint32_t r = 0; r < run->model.n_ranks; ++r) {
        for (size_t b = 0; b < run->model.n_buffers; ++b) {
            float worker, server;
            scales_of(run, r, b, &worker, &server);
            run->ranks[r].last_scales[b] = (worker != 0) ? worker : run->ranks[r].last_scales[b];
        }
    }
}

/* ---- deviations ------------------------------------------------------------------------------------------------- */

/* The worker's scale of the last exchange of this rank; of all ranks the largest. */
static double unit_of(const replay_run_t *run, uint32_t rank, size_t buffer)
{
    return (double)run->ranks[rank].last_scales[buffer];
}

static double largest_unit(const replay_run_t *run, size_t buffer)
{
    double unit = 0;

    for (uint32_t r = 0; r < run->model.n_ranks; ++r) {
        unit = replay_larger(unit, unit_of(run, r, buffer));
    }
    return unit;
}

static double deviation_scales(replay_run_t *run, const replay_recorded_t *recorded, bool server)
{
    const replay_model_t *model = &run->model;
    const float *want = replay_recorded_row(recorded, sizeof(*want));
    double worst = 0;

    if (recorded->width != model->n_ranks * model->n_buffers) {
        return INFINITY;
    }
    for (uint32_t r = 0; r < model->n_ranks; ++r) {
        for (size_t b = 0; b < model->n_buffers; ++b, ++want) {
            float got[2];
            scales_of(run, r, b, &got[0], &got[1]);
            worst = replay_larger(worst, replay_largest(&got[server], want, 1, server ? largest_unit(run, b) : 0));
        }
    }
    return worst;
}

double replay_deviation_worker_scale(replay_run_t *run, const replay_recorded_t *recorded)
{
    return deviation_scales(run, recorded, false);
}

double replay_deviation_server_scale(replay_run_t *run, const replay_recorded_t *recorded)
{
    return deviation_scales(run, recorded, true);
}

/* In call 0 the reference codes zeros to set up its buffers: bits without a scale, which here nobody sends. */
static double deviation_bits(replay_run_t *run, const replay_recorded_t *recorded, bool server)
{
    const replay_model_t *model = &run->model;
    const size_t bytes = (server ? model->n_server : model->n_worker) / 8;
    const uint8_t *want = replay_recorded_row(recorded, 1);
    uint8_t *got = calloc(model->n_ranks, bytes + 1);
    bool fits = true;
    double differ;

    if ((got == NULL) || (recorded->width != model->n_ranks * bytes)) {
        free(got);
        return INFINITY;
    }
    for (uint32_t r = 0; r < model->n_ranks; ++r) {
        for (size_t b = 0; b < model->n_buffers; ++b) {
            fits = bits_of(run, r, b, server, got + r * bytes) && fits;
        }
    }
    differ = !fits ? INFINITY : (recorded->step == 0) ? 0 : replay_bits_differ(got, want, model->n_ranks * bytes);
    free(got);
    return differ;
}

double replay_deviation_worker_bits(replay_run_t *run, const replay_recorded_t *recorded)
{
    return deviation_bits(run, recorded, false);
}

double replay_deviation_server_bits(replay_run_t *run, const replay_recorded_t *recorded)
{
    return deviation_bits(run, recorded, true);
}

/* Buffers nobody has yet are zeros. */
static double deviation_error(const replay_run_t *run, uint32_t rank, size_t buffer, bool server, const float *want)
{
    const replay_piece_t piece = buffer_piece(&run->model, buffer, server);
    bool coded;
    lnt_exchange_t *exchange = exchange_of(run, rank, buffer, &coded);
    lnt_owned_t owned = {0};
    double unit = server ? largest_unit(run, buffer) : unit_of(run, rank, buffer), worst = 0;

    if (exchange != NULL) {
        owned = server ? lnt_exchange_server_error(exchange) : lnt_exchange_worker_error(exchange);
    }
    if ((owned.values != NULL) && (owned.end - owned.begin != piece.count)) {
        return INFINITY;
    }
    for (size_t i = 0; i < piece.count; ++i) {
        const float got = (owned.values != NULL) ? owned.values[i] : 0;
        worst = replay_larger(worst, replay_largest(&got, want + piece.offset + i, 1, unit));
    }
    return worst;
}

static double deviation_errors(replay_run_t *run, const replay_recorded_t *recorded, bool server)
{
    const replay_model_t *model = &run->model;
    const size_t n = server ? model->n_server : model->n_worker;
    const float *want = replay_recorded_row(recorded, sizeof(*want));
    double worst = 0;

    if (recorded->width != model->n_ranks * n) {
        return INFINITY;
    }
    for (uint32_t r = 0; r < model->n_ranks; ++r) {
        for (size_t b = 0; b < model->n_buffers; ++b) {
            worst = replay_larger(worst, deviation_error(run, r, b, server, want + r * n));
        }
    }
    return worst;
}

double replay_deviation_worker_error(replay_run_t *run, const replay_recorded_t *recorded)
{
    return deviation_errors(run, recorded, false);
}

double replay_deviation_server_error(replay_run_t *run, const replay_recorded_t *recorded)
{
    return deviation_errors(run, recorded, true);
}
