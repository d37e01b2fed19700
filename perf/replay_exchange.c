/* Algorithm "exchange" of the executable model (tests/model): one program in several buckets, several rounds, errors
 * carried, some rounds poisoned. Everything is compared byte by byte; in skipped rounds a NaN of an f32 payload equals
 * any other NaN.
 *
 * Each rank of the world fills its own part of common results, laid out as the arrays of the case; the comparison
 * (replay_exchange_compare.c) follows when all have ended.
 */
#include "replay_exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct rank_state {
    replay_exchange_t *set;
    lnt_comm_t *comm;
    lnt_exchange_t **exchanges; /* per bucket */
    lnt_source_t *sources;      /* per tensor */
    replay_round_t round;
} rank_state_t;

/* ---- reading the case ---------------------------------------------------------------------------------------- */

static bool read_codec(replay_exchange_t *set, replay_report_t *report, int *code_p)
{
    char name[32];
    int64_t block = case_integer(set->file, "block", 0);

    *code_p = REPLAY_USAGE;
    if (!case_text(set->file, "codec", name, sizeof(name))) {
        snprintf(report->problem, sizeof(report->problem), "the case names no codec");
        return false;
    }
    if (lnt_codec_row_by_name(name) == NULL) {
        *code_p = REPLAY_UNSUPPORTED;
        snprintf(report->problem, sizeof(report->problem), "codec %.20s is not there yet", name);
        return false;
    }
    if ((block <= 0) || (block > INT32_MAX) || (lnt_codec_init(&set->codec, name, (uint32_t)block, LNT_SCALE_L2) < 0)) {
        snprintf(report->problem, sizeof(report->problem), "block %lld is no block of %.20s", (long long)block, name);
        return false;
    }
    return true;
}

static bool read_numbers(replay_exchange_t *set)
{
    const case_file_t *file = set->file;
    double clip = 1, loss_scale = 1, segment = 0;
    case_array_t input, live;

    set->n_ranks = (uint32_t)case_integer(file, "world_size", 0);
    set->n_nodes = (uint32_t)case_integer(file, "node_count", 0);
    set->n_steps = (uint32_t)case_integer(file, "steps", 0);
    set->n_elems = (uint64_t)case_integer(file, "param_count", 0);
    set->n_buckets = (uint32_t)case_list_size(file, "buckets");
    set->n_tensors = (uint32_t)case_list_size(file, "tensors");
    if ((set->n_ranks == 0) || (set->n_ranks > REPLAY_MAX_RANKS) || (set->n_nodes == 0) || (set->n_steps == 0) ||
        (case_integers(file, "nodes", set->nodes, REPLAY_MAX_RANKS) != set->n_ranks) ||
        !case_number(file, "clip", &clip) || !case_number(file, "loss_scale", &loss_scale) ||
        !case_number(file, "segment", &segment) || !case_array(file, "input", "f32", &input) ||
        !case_array(file, "live", "u8", &live) || (live.count != set->n_elems) ||
        (input.count != set->n_steps * set->n_ranks * set->n_elems)) {
        return false;
    }
    set->segment = (uint64_t)segment;
    set->factor = (float)((double)set->n_nodes / set->n_ranks * clip / loss_scale);
    set->server_factor = (float)(1.0 / set->n_nodes);
    set->input = input.data;
    set->live = live.data;
    return true;
}

/* The list `frames` gives the order of payloads inside a row. */
static bool read_frames(replay_exchange_t *set)
{
    set->n_frames = case_list_size(set->file, "frames");
    set->frames = calloc(set->n_frames + 1, sizeof(*set->frames));
    for (size_t i = 0; (set->frames != NULL) && (i < set->n_frames); ++i) {
        const char *line = case_element(set->file, "frames", i);
        replay_frame_t *frame = &set->frames[i];

        *frame = (replay_frame_t){.phase = field_integer(line, "phase", 0),
                                  .bucket = field_integer(line, "bucket", 0),
                                  .shard = field_integer(line, "shard", 0),
                                  .node = field_integer(line, "node", 0),
                                  .chunk = field_integer(line, "chunk", 0),
                                  .segment = field_integer(line, "segment", 0),
                                  .bytes = (size_t)field_integer(line, "bytes", 0)};
        if ((frame->phase != 1) && (frame->phase != 2)) {
            return false;
        }
        frame->at = set->phase_bytes[frame->phase];
        set->phase_bytes[frame->phase] += frame->bytes;
    }
    return set->frames != NULL;
}

static bool allocate_results(replay_exchange_t *set)
{
    const size_t steps = set->n_steps, n = set->n_elems, nodes = set->n_nodes, ranks = set->n_ranks;

    set->phases[1] = calloc(steps * set->phase_bytes[1] + 1, 1);
    set->phases[2] = calloc(steps * set->phase_bytes[2] + 1, 1);
    set->times = calloc(steps * set->n_frames + 1, sizeof(*set->times));
    set->output = calloc(steps * ranks * n + 1, sizeof(float));
    set->worker_error = calloc(steps * nodes * n + 1, sizeof(float));
    set->server_error = calloc(steps * n + 1, sizeof(float));
    set->owned = calloc((nodes + 1) * n + 1, 1);
    set->wire = calloc(steps * 2 * ranks, sizeof(int32_t));
    set->verdict = calloc(steps * ranks, sizeof(int32_t));
    return (set->phases[1] != NULL) && (set->phases[2] != NULL) && (set->times != NULL) && (set->output != NULL) &&
           (set->worker_error != NULL) && (set->server_error != NULL) && (set->owned != NULL) && (set->wire != NULL) &&
           (set->verdict != NULL);
}

static void release(replay_exchange_t *set)
{
    free(set->frames);
    free(set->phases[1]);
    free(set->phases[2]);
    free(set->times);
    free(set->output);
    free(set->worker_error);
    free(set->server_error);
    free(set->owned);
    free(set->wire);
    free(set->verdict);
}

/* ---- a rank --------------------------------------------------------------------------------------------------- */

static uint64_t bucket_begin(const replay_exchange_t *set, uint32_t bucket)
{
    return (uint64_t)field_integer(case_element(set->file, "buckets", bucket), "begin", 0);
}

/* The pieces of tensors inside a bucket. */
static size_t bucket_extents(const replay_exchange_t *set, uint32_t bucket, lnt_extent_t *extents)
{
    const uint64_t begin = bucket_begin(set, bucket);
    const uint64_t end = begin + (uint64_t)field_integer(case_element(set->file, "buckets", bucket), "count", 0);
    size_t n = 0;

    for (uint32_t t = 0; t < set->n_tensors; ++t) {
        const char *line = case_element(set->file, "tensors", t);
        const uint64_t first = (uint64_t)field_integer(line, "offset", 0),
                       last = first + (uint64_t)field_integer(line, "count", 0);
        const uint64_t low = (first > begin) ? first : begin, high = (last < end) ? last : end;

        if (low < high) {
            extents[n++] = (lnt_extent_t){t, low - first, high - low};
        }
    }
    return n;
}

static lnt_status_t create_exchange(rank_state_t *state, uint32_t bucket)
{
    const replay_exchange_t *set = state->set;
    lnt_extent_t *extents = calloc(set->n_tensors + 1, sizeof(*extents));
    uint64_t at = bucket_begin(set, bucket);
    lnt_status_t status;

    const lnt_exchange_params_t params = {
        .topo = state->comm->topo,
        .rank = state->comm->rank,
        .extents = extents,
        .n_extents = (extents != NULL) ? bucket_extents(set, bucket, extents) : 0,
        .codec = set->codec,
        .segment_elems = set->segment,
        .bucket = bucket,
        .feedback = true,
        .stage = {.struct_size = sizeof(lnt_stage_t)},
        .sources = state->sources,
    };

    status = lnt_exchange_create(&params, &state->exchanges[bucket]);
    for (size_t e = 0; (status >= 0) && (e < params.n_extents); ++e) {
        if (memchr(set->live + at, 0, extents[e].count) != NULL) {
            status = lnt_exchange_set_live(state->exchanges[bucket], extents[e].tensor, extents[e].offset,
                                           extents[e].count, set->live + at);
        }
        at += extents[e].count;
    }
    free(extents);
    return status;
}

static void set_sources(rank_state_t *state, uint32_t step)
{
    const replay_exchange_t *set = state->set;
    const float *input = set->input + ((size_t)step * set->n_ranks + state->comm->rank) * set->n_elems;

    for (uint32_t t = 0; t < set->n_tensors; ++t) {
        const int64_t offset = field_integer(case_element(set->file, "tensors", t), "offset", 0);

        state->sources[t] = (lnt_source_t){.values = input + offset, .dtype = LNT_F32};
    }
}

/* Copies the payload of a frame this rank made to where the case has it. */
static void tap_frame(rank_state_t *state, uint32_t step, uint32_t bucket, int64_t phase,
                      const lnt_frame_header_t *header, const uint8_t *payload)
{
    replay_exchange_t *set = state->set;
    const int64_t node = state->comm->topo->node_of[state->comm->rank];

    for (size_t i = 0; i < set->n_frames; ++i) {
        const replay_frame_t *frame = &set->frames[i];

        if ((frame->phase == phase) && (frame->bucket == bucket) && (frame->shard == header->shard) &&
            (frame->node == node) && (frame->chunk == header->chunk) && (frame->segment == (int64_t)header->segment) &&
            (frame->bytes == header->payload_bytes)) {
            memcpy(set->phases[phase] + step * set->phase_bytes[phase] + frame->at, payload, frame->bytes);
            ++set->times[step * set->n_frames + i];
            return;
        }
    }
    atomic_fetch_add(&set->unknown_frames, 1);
}

/* With one node there is no phase 1: what was coded for the server is what it serves. */
static void tap(rank_state_t *state, uint32_t step, uint32_t bucket)
{
    const lnt_graph_t *graph = lnt_exchange_graph(state->exchanges[bucket]);

    for (uint32_t f = 0; f < graph->n_frames; ++f) {
        const lnt_frame_header_t *header = lnt_graph_header(graph, f);

        if ((header->phase == 0) || (header->source != state->comm->rank)) {
            continue;
        }
        tap_frame(state, step, bucket, header->phase, header, lnt_graph_payload(graph, f));
        if (state->set->n_nodes == 1) {
            tap_frame(state, step, bucket, 1, header, lnt_graph_payload(graph, f));
        }
    }
}

/* Payload bytes of the round's sends. */
static void count_wire(rank_state_t *state, uint32_t step)
{
    replay_exchange_t *set = state->set;
    const lnt_topo_t *topo = state->comm->topo;
    const uint32_t me = state->comm->rank;
    int32_t *wire = set->wire + (size_t)step * 2 * set->n_ranks;

    for (uint32_t b = 0; b < set->n_buckets; ++b) {
        const lnt_graph_t *graph = lnt_exchange_graph(state->exchanges[b]);

        for (uint32_t t = 0; t < graph->n_tasks; ++t) {
            if (graph->tasks[t].kind == LNT_TASK_SEND) {
                bool near = topo->node_of[graph->tasks[t].peer] == topo->node_of[me];

                wire[(near ? 0 : set->n_ranks) + me] += (int32_t)graph->frames[graph->tasks[t].frame].payload_bytes;
            }
        }
    }
}

/* What really left this rank, headers included, against the layout's formula. */
static lnt_status_t check_counters(rank_state_t *state, const lnt_comm_stats_t *stats)
{
    lnt_bytes_t sum = {0, 0}, one;

    for (uint32_t b = 0; b < state->set->n_buckets; ++b) {
        LNT_TRY(lnt_exchange_bytes(state->exchanges[b], &one));
        sum.intra += one.intra;
        sum.inter += one.inter;
    }
    if ((sum.intra != stats->wire_bytes_intra) || (sum.inter != stats->wire_bytes_inter)) {
        atomic_fetch_add(&state->set->miscounted, 1);
    }
    return LNT_OK;
}

static void count_owner(replay_exchange_t *set, uint32_t step, size_t at)
{
    if (step == 0) {
        ++set->owned[at];
    }
}

static void keep_errors(rank_state_t *state, uint32_t step, uint32_t bucket)
{
    replay_exchange_t *set = state->set;
    const uint64_t begin = bucket_begin(set, bucket);
    const size_t node = state->comm->topo->node_of[state->comm->rank];
    const lnt_owned_t worker = lnt_exchange_worker_error(state->exchanges[bucket]);
    const lnt_owned_t server = lnt_exchange_server_error(state->exchanges[bucket]);

    for (uint64_t i = worker.begin; i < worker.end; ++i) {
        set->worker_error[((size_t)step * set->n_nodes + node) * set->n_elems + begin + i] =
            worker.values[i - worker.begin];
        count_owner(set, step, node * set->n_elems + begin + i);
    }
    for (uint64_t i = server.begin; i < server.end; ++i) {
        set->server_error[(size_t)step * set->n_elems + begin + i] = server.values[i - server.begin];
        count_owner(set, step, set->n_nodes * set->n_elems + begin + i);
    }
}

static void end_round(rank_state_t *state, uint32_t step, bool skipped)
{
    replay_exchange_t *set = state->set;
    float *output = set->output + ((size_t)step * set->n_ranks + state->comm->rank) * set->n_elems;

    set->verdict[step * set->n_ranks + state->comm->rank] = skipped;
    for (uint32_t b = 0; b < set->n_buckets; ++b) {
        tap(state, step, b);
        if (!skipped) {
            lnt_exchange_read(state->exchanges[b], 0, lnt_exchange_grid(state->exchanges[b])->n_elems,
                              output + bucket_begin(set, b));
            lnt_exchange_commit(state->exchanges[b]);
        }
        keep_errors(state, step, b);
    }
}

static lnt_status_t run_round(rank_state_t *state, uint32_t step)
{
    lnt_comm_stats_t stats = {.struct_size = sizeof(stats)};
    uint8_t flags;

    set_sources(state, step);
    for (uint32_t b = 0; b < state->set->n_buckets; ++b) {
        lnt_exchange_prepare(state->exchanges[b],
                             &(lnt_exchange_step_t){state->set->factor, state->set->server_factor, 0});
    }
    LNT_TRY(lnt_comm_get_stats(state->comm, &stats, true));
    LNT_TRY(replay_round_run(&state->round, &flags));
    LNT_TRY(lnt_comm_get_stats(state->comm, &stats, false));
    LNT_TRY(check_counters(state, &stats));
    count_wire(state, step);
    end_round(state, step, flags != 0);
    return LNT_OK;
}

static lnt_status_t rank_body(lnt_comm_t *comm, void *arg)
{
    replay_exchange_t *set = arg;
    rank_state_t state = {.set = set, .comm = comm};

    state.exchanges = calloc(set->n_buckets + 1, sizeof(lnt_exchange_t *));
    state.sources = calloc(set->n_tensors + 1, sizeof(lnt_source_t));
    if ((state.exchanges == NULL) || (state.sources == NULL)) {
        return lnt_error(LNT_ERR_NO_MEMORY, NULL, "no memory for a rank");
    }
    for (uint32_t b = 0; b < set->n_buckets; ++b) {
        LNT_TRY(create_exchange(&state, b));
    }
    LNT_TRY(replay_round_init(&state.round, comm, state.exchanges, set->n_buckets));
    for (uint32_t step = 0; step < set->n_steps; ++step) {
        LNT_TRY(run_round(&state, step)); /* after a failure frames may still be on their way: nothing is freed */
    }
    for (uint32_t b = 0; b < set->n_buckets; ++b) {
        lnt_exchange_destroy(state.exchanges[b]);
    }
    replay_round_release(&state.round);
    free(state.exchanges);
    free(state.sources);
    return LNT_OK;
}

int replay_exchange(const case_file_t *file, const replay_how_t *how, replay_report_t *report)
{
    replay_exchange_t set = {.file = file};
    int code = REPLAY_USAGE;

    if (!read_codec(&set, report, &code)) {
        return code;
    }
    if (!read_numbers(&set) || !read_frames(&set) || !allocate_results(&set)) {
        snprintf(report->problem, sizeof(report->problem), "the case is not complete, or too large");
    } else if (replay_world(set.n_ranks, set.nodes, how->transport, rank_body, &set, report->problem,
                            sizeof(report->problem)) >= 0) {
        code = replay_exchange_compare(&set, report);
    } else {
        code = REPLAY_DEVIATES;
    }
    release(&set);
    return code;
}
