/* Algorithms that are optimizers: a world of ranks with a plan and an optimizer each takes the calls of the case one by
 * one; after each, rank 0 compares everything the case has of it while the others wait.
 */
#include "replay_optimizer.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static lnt_status_t no_memory(void)
{
    return lnt_error(LNT_ERR_NO_MEMORY, NULL, "no memory for a rank");
}

static lnt_status_t allocate(const replay_model_t *model, replay_rank_t *rank)
{
    rank->x = calloc(model->n_elems, sizeof(float));
    rank->grads = calloc(model->n_elems, sizeof(float));
    rank->grad_at = calloc(model->n_tensors, sizeof(*rank->grad_at));
    rank->last_scales = calloc(model->n_buffers + 1, sizeof(float));
    if ((rank->x == NULL) || (rank->grads == NULL) || (rank->grad_at == NULL) || (rank->last_scales == NULL)) {
        return no_memory();
    }
    memcpy(rank->x, model->init.data, model->n_elems * sizeof(float));
    for (uint32_t p = 0; p < model->n_tensors; ++p) {
        rank->grad_at[p] = rank->grads + model->tensors[model->tensor_at[p]].at.offset;
    }
    return LNT_OK;
}

static void release(replay_rank_t *rank)
{
    free(rank->x);
    free(rank->grads);
    free(rank->grad_at);
    free(rank->last_scales);
}

static lnt_status_t add_tensors(const replay_model_t *model, replay_rank_t *rank)
{
    for (uint32_t p = 0; p < model->n_tensors; ++p) {
        const replay_tensor_t *tensor = &model->tensors[model->tensor_at[p]];
        lnt_tensor_params_t params = {.struct_size = sizeof(params),
                                      .count = tensor->at.count,
                                      .param = rank->x + tensor->at.offset,
                                      .group = tensor->group,
                                      .rows = tensor->rows,
                                      .cols = tensor->cols};
        char name[32];
        uint32_t number;

        snprintf(name, sizeof(name), "t%u", model->tensor_at[p]);
        params.name = name;
        LNT_TRY(lnt_plan_add_tensor(rank->plan, &params, &number));
    }
    return LNT_OK;
}

static lnt_status_t create_optimizer(const replay_model_t *model, replay_rank_t *rank)
{
    lnt_group_t *groups = calloc(model->n_groups, sizeof(*groups));
    lnt_optim_params_t params = {.struct_size = sizeof(params),
                                 .algorithm = model->algorithm->optimizer,
                                 .options = model->options,
                                 .groups = groups,
                                 .n_groups = model->n_groups};
    lnt_status_t status;

    if (groups == NULL) {
        return no_memory();
    }
    for (uint32_t g = 0; g < model->n_groups; ++g) {
        groups[g] = model->groups[g].values;
    }
    status = lnt_optim_create(rank->plan, &params, &rank->optim);
    free(groups);
    return status;
}

static lnt_status_t set_masks(const replay_model_t *model, replay_rank_t *rank)
{
    for (uint32_t p = 0; p < model->n_tensors; ++p) {
        const replay_tensor_t *tensor = &model->tensors[model->tensor_at[p]];

        if (model->groups[tensor->group].masked) {
            LNT_TRY(lnt_optim_set_mask(rank->optim, p, (const uint8_t *)model->live.data + tensor->at.offset));
        }
    }
    return LNT_OK;
}

static lnt_status_t set_rates(const replay_model_t *model, replay_rank_t *rank, uint32_t step)
{
    const double *rates = (const double *)model->lr.data + (size_t)step * model->n_groups;

    for (uint32_t g = 0; g < model->n_groups; ++g) {
        lnt_group_t values = model->groups[g].values;

        values.lr = rates[g];
        LNT_TRY(lnt_optim_set_group(rank->optim, g, &values));
    }
    return LNT_OK;
}

/* Over shm the barrier's words are mapped more than once, and the thread sanitizer sees no order between ranks in them:
 * the counter shows it. */
static lnt_status_t meet(replay_run_t *run, lnt_comm_t *comm)
{
    lnt_status_t status;

    atomic_fetch_add(&run->meetings, 1);
    status = lnt_barrier(comm);
    atomic_fetch_add(&run->meetings, 1);
    return status;
}

static lnt_status_t run_calls(replay_run_t *run, lnt_comm_t *comm, replay_rank_t *rank)
{
    const replay_model_t *model = &run->model;

    for (uint32_t step = 0; step < model->n_steps; ++step) {
        lnt_status_t status;

        replay_gradient(model, step, comm->rank, rank->x, rank->grads);
        LNT_TRY(set_rates(model, rank, step));
        status = lnt_optim_step(rank->optim, rank->grad_at);
        LNT_TRY(status);
        if (status != LNT_OK) {
            return lnt_error(LNT_ERR_CORRUPT, NULL, "call %u: %s", step, lnt_status_string(status));
        }
        LNT_TRY(meet(run, comm));
        if (comm->rank == 0) {
            replay_compare(run, step);
        }
        LNT_TRY(meet(run, comm));
    }
    return LNT_OK;
}

/* After a failure frames may still be on their way: nothing is freed. */
static lnt_status_t rank_body(lnt_comm_t *comm, void *arg)
{
    replay_run_t *run = arg;
    replay_rank_t *rank = &run->ranks[comm->rank];
    const lnt_plan_params_t params = {.struct_size = sizeof(params),
                                      .error_dtype = LNT_ERROR_F32}; /* whatever the environment says */

    LNT_TRY(allocate(&run->model, rank));
    LNT_TRY(lnt_plan_create(comm, &params, &rank->plan));
    LNT_TRY(add_tensors(&run->model, rank));
    LNT_TRY(create_optimizer(&run->model, rank));
    LNT_TRY(set_masks(&run->model, rank));
    LNT_TRY(lnt_plan_commit(rank->plan));
    LNT_TRY(run_calls(run, comm, rank));
    LNT_TRY(lnt_optim_destroy(rank->optim));
    LNT_TRY(lnt_plan_destroy(rank->plan));
    release(rank);
    return LNT_OK;
}

/* Over shm all ranks sit on one node; the compat rows exchange flat all the same. */
static int run_world(replay_run_t *run, const char *transport)
{
    int64_t nodes[REPLAY_MAX_RANKS];
    bool flat = strcmp(transport, "loop") == 0;

    for (uint32_t r = 0; r < run->model.n_ranks; ++r) {
        nodes[r] = flat ? r : 0;
    }
    return (replay_world(run->model.n_ranks, nodes, transport, rank_body, run, run->report->problem,
                         sizeof(run->report->problem)) >= 0)
               ? REPLAY_OK
               : REPLAY_DEVIATES;
}

int replay_optimizer(const case_file_t *file, const replay_how_t *how, replay_report_t *report)
{
    replay_run_t *run = calloc(1, sizeof(*run));
    int code = REPLAY_USAGE;

    if (run == NULL) {
        snprintf(report->problem, sizeof(report->problem), "no memory");
        return code;
    }
    run->report = report;
    run->model.algorithm = replay_algorithm_named(how->algorithm);
    if (replay_model_read(&run->model, file, report->problem, sizeof(report->problem), &code) &&
        replay_compare_known(run, report->problem, sizeof(report->problem))) {
        run->room = calloc(run->model.n_elems, sizeof(float));
        code = (run->room != NULL) ? run_world(run, how->transport) : REPLAY_USAGE;
    }
    free(run->room);
    replay_model_release(&run->model);
    free(run);
    return code;
}
