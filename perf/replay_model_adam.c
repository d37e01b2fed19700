/* Algorithm "onebit_adam" of the executable model (corrected mode): a whole run of the optimizer, warm-up, freeze, late
 * comers, skipped steps. After every step every rank compares all it holds with the case, byte by byte.
 */
#include "replay_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../optim/freeze.h"
#include "../src/core/plan_impl.h"

typedef struct rank_state {
    replay_oracle_t *set;
    uint32_t rank;
    float *x;
    lnt_plan_t *plan;
    lnt_optim_t *optim;
    int32_t wire[2]; /* payload bytes of the running step: inside the node, between nodes */
} rank_state_t;

static void note(const rank_state_t *state, uint32_t step, replay_oracle_array_t array, double n)
{
    (void)atomic_fetch_add(&state->set->differ[(size_t)array * state->set->n_steps + step], (uint64_t)n);
}

/* Compares `bytes` of a row with what this rank holds; at: byte in the row. */
static void compare(const rank_state_t *state, uint32_t step, replay_oracle_array_t array, const void *got, size_t at,
                    size_t bytes)
{
    const replay_oracle_t *set = state->set;

    note(state, step, array, replay_bytes_differ(got, set->wanted[array] + step * set->row_bytes[array] + at, bytes));
}

/* ---- a step ---- */

static void count_sends(rank_state_t *state, const lnt_graph_t *graph)
{
    const lnt_topo_t *topo = state->plan->comm->topo;

    for (uint32_t t = 0; t < graph->n_tasks; t++) {
        const lnt_task_t *task = &graph->tasks[t];
        if (task->kind == LNT_TASK_SEND)
            state->wire[topo->node_of[task->peer] != topo->node_of[state->rank]] +=
                (int32_t)graph->frames[task->frame].payload_bytes;
    }
}

/* Payloads that the running step sends; the lane may be another after it. */
static void count_wire(rank_state_t *state)
{
    const lnt_plan_t *plan = state->plan;

    state->wire[0] = state->wire[1] = 0;
    for (uint32_t b = 0; b < plan->n_buckets; b++) {
        for (uint32_t p = 0; p < plan->n_programs; p++) {
            lnt_exchange_t *exchange = plan->buckets[b].exchange[p];
            if ((plan->step_programs >> p & 1u) != 0 && exchange != NULL)
                count_sends(state, lnt_exchange_graph(exchange));
        }
    }
}

static lnt_status_t run_step(rank_state_t *state, uint32_t step)
{
    const replay_oracle_t *set = state->set;
    const float *grads = set->grads + ((size_t)step * set->n_ranks + state->rank) * set->n_elems;

    LNT_TRY(lnt_optim_begin(state->optim));
    count_wire(state);
    for (uint32_t t = 0; t < set->n_tensors; t++)
        LNT_TRY(lnt_optim_tensor_ready(state->optim, t, grads + replay_oracle_offset(set, t), NULL));
    return lnt_optim_end(state->optim);
}

/* ---- comparisons ---- */

/* Denominators of elements that are in the lane or dead mean nothing. */
static void compare_denominators(const rank_state_t *state, uint32_t step, uint32_t t)
{
    const float *denominator = lnt_optim_view(state->optim, "denominator", t);
    const uint8_t *dead = lnt_optim_view(state->optim, "dead", t);
    const uint64_t offset = replay_oracle_offset(state->set, t);
    const float zero = 0;

    for (uint64_t i = 0; i < replay_oracle_count(state->set, t); i++) {
        if (dead != NULL && (lnt_freeze_in_lane(state->optim, t) || dead[i] != 0)) continue;
        compare(state, step, MODEL_DENOMINATOR, denominator != NULL ? &denominator[i] : &zero,
                (offset + i) * sizeof(float), sizeof(float));
    }
}

static void compare_tensor(const rank_state_t *state, uint32_t step, uint32_t t)
{
    const uint64_t offset = replay_oracle_offset(state->set, t), count = replay_oracle_count(state->set, t);
    const uint8_t *dead = lnt_optim_view(state->optim, "dead", t), zero = 0;
    const size_t at = offset * sizeof(float), bytes = count * sizeof(float);

    if (count == 0) return;
    compare(state, step, MODEL_PARAM, state->x + offset, at, bytes);
    compare(state, step, MODEL_M, lnt_optim_view(state->optim, "exp_avg", t), at, bytes);
    compare(state, step, MODEL_V, lnt_optim_view(state->optim, "exp_avg_sq", t), at, bytes);
    for (uint64_t i = 0; i < count; i++)
        compare(state, step, MODEL_DEAD, dead != NULL ? &dead[i] : &zero, offset + i, 1);
    compare_denominators(state, step, t);
}

static void compare_latches(const rank_state_t *state, uint32_t step)
{
    const double *updates = lnt_optim_values(state->optim, "late_updates", NULL);
    uint64_t block = 0;

    for (uint32_t t = 0; updates != NULL && t < state->set->n_tensors; t++) {
        uint64_t count = lnt_freeze_in_lane(state->optim, t) ? 0 : replay_oracle_count(state->set, t);
        for (uint64_t offset = 0; offset < count; offset += state->set->block, block++) {
            int64_t wanted = replay_oracle_updates(state->set, step, t, offset);
            note(state, step, MODEL_LATCHES, (int64_t)updates[block] != wanted);
        }
    }
}

/* Errors of the programs of the next step. */
static void compare_errors(const rank_state_t *state, uint32_t step)
{
    const replay_oracle_t *set = state->set;
    const uint32_t programs = lnt_optim_current_phase(state->optim)->programs;
    const bool warm = !state->optim->frozen;
    lnt_error_extent_t extent;
    uint64_t n_owned = 0;

    for (size_t i = 0; lnt_plan_error_extent(state->plan, i, &extent) == LNT_OK; i++) {
        size_t at = replay_oracle_offset(set, extent.tensor) + extent.offset;
        if ((programs >> extent.program & 1u) == 0) continue;
        if (!extent.server) at += extent.codec_worker * set->n_elems;
        compare(state, step, extent.server ? MODEL_SERVER_ERROR : MODEL_WORKER_ERROR, extent.data, at * sizeof(float),
                extent.count * sizeof(float));
        for (uint64_t k = 0; k < extent.count; k++) {
            int64_t owner = replay_oracle_owner(set, warm, &extent, extent.offset + k);
            note(state, step, MODEL_OWNERS, owner != (int64_t)state->rank);
        }
        n_owned += extent.count;
    }
    note(state, step, MODEL_OWNERS, n_owned != replay_oracle_owned(set, warm, state->rank));
}

static lnt_status_t compare_step(const rank_state_t *state, uint32_t step, bool skipped)
{
    const lnt_optim_group_t *group = &state->optim->groups[0];
    const double powers[2] = {group->power1, group->power2};
    const double *clip = lnt_optim_values(state->optim, "clip_state", NULL);
    lnt_optim_info_t info = {.struct_size = sizeof(info)};
    double ratio = 0;

    LNT_TRY(lnt_optim_get_info(state->optim, &info));
    if (state->optim->options.clip != 0 && state->optim->frozen) ratio = clip[LNT_CLIP_R];
    for (uint32_t t = 0; t < state->set->n_tensors; t++)
        compare_tensor(state, step, t);
    compare_latches(state, step);
    compare_errors(state, step);
    compare(state, step, MODEL_COUNTERS,
            (int32_t[]){(int32_t)info.step, info.phase == LNT_PHASE_COMPRESSED, skipped, (int32_t)info.late_touched,
                        (int32_t)info.lane_elems},
            0, 5 * sizeof(int32_t));
    compare(state, step, MODEL_POWERS, powers, 0, sizeof(powers));
    compare(state, step, MODEL_CLIP_RATIO, &ratio, 0, sizeof(ratio));
    compare(state, step, MODEL_WIRE, &state->wire[0], state->rank * sizeof(int32_t), sizeof(int32_t));
    compare(state, step, MODEL_WIRE, &state->wire[1], (state->set->n_ranks + state->rank) * sizeof(int32_t),
            sizeof(int32_t));
    return LNT_OK;
}

/* ---- a rank ---- */

static lnt_status_t open_optim(rank_state_t *state, lnt_comm_t *comm)
{
    const replay_oracle_t *set = state->set;
    const lnt_plan_params_t params = {.struct_size = sizeof(params),
                                      .bucket_bytes = set->bucket_elems * sizeof(float),
                                      .segment_bytes = set->segment * sizeof(float),
                                      .max_skips = UINT32_MAX,
                                      .error_dtype = LNT_ERROR_F32}; /* whatever the environment says */
    const lnt_optim_params_t optim = {.struct_size = sizeof(optim),
                                      .algorithm = "onebit_adam",
                                      .options = set->options,
                                      .groups = &set->group,
                                      .n_groups = 1};

    LNT_TRY(lnt_plan_create(comm, &params, &state->plan));
    for (uint32_t t = 0; t < set->n_tensors; t++) {
        char name[16];
        uint32_t number;
        const lnt_tensor_params_t tensor = {.struct_size = sizeof(tensor),
                                            .name = name,
                                            .count = replay_oracle_count(set, t),
                                            .param = state->x + replay_oracle_offset(set, t)};
        (void)snprintf(name, sizeof(name), "t%u", t);
        LNT_TRY(lnt_plan_add_tensor(state->plan, &tensor, &number));
    }
    LNT_TRY(lnt_optim_create(state->plan, &optim, &state->optim));
    LNT_TRY(lnt_plan_commit(state->plan));
    return lnt_optim_set_scaling(state->optim, set->loss_scale, 1);
}

static lnt_status_t rank_body(lnt_comm_t *comm, void *arg)
{
    rank_state_t state = {.set = arg, .rank = comm->rank};

    state.x = calloc(state.set->n_elems + 1, sizeof(*state.x));
    if (state.x == NULL) return lnt_error(LNT_ERR_NO_MEMORY, NULL, "no memory for a rank");
    memcpy(state.x, state.set->start, state.set->n_elems * sizeof(*state.x));
    LNT_TRY(open_optim(&state, comm));
    for (uint32_t step = 0; step < state.set->n_steps; step++) {
        lnt_status_t status = run_step(&state, step);
        if (status < 0) return status; /* frames may still be on their way: nothing is freed */
        LNT_TRY(compare_step(&state, step, status == LNT_SKIPPED_NONFINITE));
    }
    LNT_TRY(lnt_optim_destroy(state.optim));
    LNT_TRY(lnt_plan_destroy(state.plan));
    free(state.x);
    return LNT_OK;
}

static void report_all(const replay_oracle_t *set, replay_report_t *report)
{
    for (uint32_t step = 0; step < set->n_steps; step++) {
        for (size_t a = 0; a < MODEL_ARRAYS; a++) {
            replay_report_add(report, replay_oracle_names[a], step, (double)set->differ[a * set->n_steps + step], 0);
        }
    }
}

int replay_model_adam(const case_file_t *file, const replay_how_t *how, replay_report_t *report)
{
    replay_oracle_t set = {.n_ranks = 0};
    int code = REPLAY_USAGE;

    if (!replay_oracle_read(&set, file, report, &code)) return code;
    set.differ = calloc((size_t)MODEL_ARRAYS * set.n_steps, sizeof(*set.differ));
    if (set.differ == NULL) {
        (void)snprintf(report->problem, sizeof(report->problem), "the case is too large");
        return REPLAY_USAGE;
    }
    code = REPLAY_DEVIATES;
    if (replay_world(set.n_ranks, set.nodes, how->transport, rank_body, &set, report->problem,
                     sizeof(report->problem)) >= 0) {
        report_all(&set, report);
        code = REPLAY_OK;
    }
    free((void *)set.differ);
    return code;
}
