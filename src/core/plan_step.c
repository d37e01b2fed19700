/* A step of a plan: begin, tensor_ready, veto, accumulate, end.
 *
 * begin arms one job whose graphs lie bucket by bucket in plan order; tensor_ready counts a bucket down and releases
 * its graphs at zero. The verdict is the OR of the flags of all frames, equal on all ranks. Nothing allocates. With
 * hooks the last bucket waits for `end`; if they hold the step, all do, and the job is armed there.
 *
 * A veto must still reach a frame. So one word holds the count of tensors that are not ready and the veto: who makes a
 * tensor ready takes itself off that word before it may release a bucket, and raises the job's flag if the veto was
 * there already. Then some bucket starts after the flag, whatever the threads do.
 */
#include <stdio.h>

#include "../base/fp_env.h"
#include "plan_impl.h"

static lnt_status_t check_step(const lnt_plan_t *plan, const lnt_step_params_t *params)
{
    LNT_CHECK_ARG(params != NULL);
    LNT_CHECK_STRUCT(params);
    LNT_CHECK_ARG(params->programs >> plan->n_programs == 0);
    LNT_CHECK_ARG(params->clip >= 0 && params->loss_scale >= 0);
    for (uint32_t p = 0; p < plan->n_programs; p++) { /* its tensors share one scale */
        if (params->left_out != NULL && (params->programs >> p & 1u) != 0 && plan->programs[p].unit != LNT_UNIT_NONE)
            return lnt_error(LNT_ERR_INVALID_ARG, NULL, "program %u has a unit: nothing can be left out of it", p);
    }
    if (plan->orphaned)
        return lnt_error(LNT_ERR_INVALID_USAGE, "make a new plan", "the optimizer of this plan is gone");
    for (uint32_t t = 0; t < plan->n_tensors; t++) {
        uint32_t users = 0;
        for (uint32_t p = 0; p < plan->n_programs; p++) {
            /* programs whose parts change share tensors: their owner keeps the elements apart */
            users += (params->programs >> p & 1u) != 0 && plan->programs[p].carries == NULL &&
                     lnt_plan_is_member(&plan->programs[p], t);
        }
        if (users > 1) return lnt_error(LNT_ERR_INVALID_ARG, NULL, "programs of one step share tensor %u", t);
    }
    return LNT_OK;
}

/* Its gradient travels in this step, so a frame leaves only after it is ready. */
static bool travels(const lnt_plan_t *plan, uint32_t tensor, uint32_t programs)
{
    if (plan->tensors[tensor].params.count == 0) return false;
    for (uint32_t p = 0; p < plan->n_programs; p++) {
        if ((programs >> p & 1u) != 0 && lnt_plan_carries(&plan->programs[p], tensor)) return true;
    }
    return false;
}

/* The one factor, evaluated from the left in f64, rounded once. */
static float scaled(double share, const lnt_step_params_t *params)
{
    double clip = params->clip != 0 ? params->clip : 1.0,
           loss_scale = params->loss_scale != 0 ? params->loss_scale : 1.0;
    double micro_steps = params->micro_steps != 0 ? params->micro_steps : 1;

    return (float)(share * clip / loss_scale / micro_steps);
}

static float step_factor(const lnt_plan_t *plan, uint32_t program, const lnt_step_params_t *params)
{
    double share = (double)lnt_plan_topo(plan, &plan->programs[program])->n_nodes / plan->comm->n_ranks;

    return plan->programs[program].unscaled || (params->unscaled >> program & 1u) != 0 ? (float)share
                                                                                       : scaled(share, params);
}

float lnt_plan_local_factor(const lnt_plan_t *plan)
{
    return scaled(1.0, &plan->step_params);
}

static uint32_t count_travelling(const lnt_plan_t *plan, const lnt_plan_bucket_t *bucket)
{
    uint32_t n = 0;

    for (size_t i = 0; i < bucket->n_extents; i++)
        n += plan->tensors[bucket->extents[i].tensor].travels;
    return n;
}

/* Buckets from first_held on are released by `end`: none, the last one that sends anything, or all. */
static void set_hooks(lnt_plan_t *plan, const lnt_step_hooks_t *hooks)
{
    plan->hooks = hooks != NULL ? *hooks : (lnt_step_hooks_t){.arg = NULL};
    plan->first_held = plan->hooks.hold ? 0 : plan->n_buckets;
    if (plan->hooks.hold || plan->hooks.all_ready == NULL) return;
    while (plan->first_held > 0) {
        const lnt_plan_bucket_t *bucket = &plan->buckets[--plan->first_held];
        if (bucket->end_graph != bucket->first_graph) break;
    }
}

static void list_graphs(lnt_plan_t *plan, const lnt_step_params_t *params)
{
    lnt_exchange_step_t step = {.step = params->step};
    uint32_t n_graphs = 0;

    for (uint32_t b = 0; b < plan->n_buckets; b++) {
        lnt_plan_bucket_t *bucket = &plan->buckets[b];
        bucket->first_graph = n_graphs;
        for (uint32_t p = 0; p < plan->n_programs; p++) {
            lnt_exchange_t *exchange = bucket->exchange[p];
            if ((params->programs >> p & 1u) == 0 || exchange == NULL) continue;
            step.factor = step_factor(plan, p, params);
            step.server_factor = (float)(1.0 / lnt_plan_topo(plan, &plan->programs[p])->n_nodes);
            lnt_exchange_prepare(exchange, &step);
            plan->graphs[n_graphs++] = lnt_exchange_graph(exchange);
        }
        bucket->end_graph = n_graphs;
        atomic_store_explicit(&bucket->waiting, count_travelling(plan, bucket), memory_order_relaxed);
    }
    plan->job.n_graphs = n_graphs;
}

/* All of a step that must be equal on all ranks and is not in the plan hash. */
static uint32_t hash_step(const lnt_plan_t *plan, const lnt_step_params_t *params)
{
    const double factors[2] = {params->clip != 0 ? params->clip : 1, params->loss_scale != 0 ? params->loss_scale : 1};
    uint64_t hash = lnt_hash64_u64(plan->live_hash, (uint64_t)params->hyper_hash << 32 | params->programs);

    hash =
        lnt_hash64_u64(lnt_hash64(hash, factors, sizeof(factors)), params->micro_steps != 0 ? params->micro_steps : 1);
    hash = lnt_hash64_u64(hash, params->step);
    hash = lnt_hash64_u64(hash, (uint64_t)params->unscaled << 1 | (uint64_t)params->local);
    if (params->left_out != NULL) hash = lnt_hash64(hash, params->left_out, plan->n_tensors);
    return (uint32_t)(hash ^ hash >> 32);
}

/* LINNET_CHECK_EVERY: before a step, since after it a refusal would come too late. Counts commits, so all ranks do it
 * together. */
static lnt_status_t check_replicas(lnt_plan_t *plan)
{
    const uint32_t check_every = plan->comm->context->config.check_every;

    if (check_every == 0 || plan->unchecked < check_every) return LNT_OK;
    plan->unchecked = 0;
    return lnt_plan_compare_params(plan);
}

/* From here on the step is on its way. */
static void post_job(lnt_plan_t *plan)
{
    lnt_job_t *job = &plan->job;

    job->graphs = plan->graphs;
    job->ready = plan->ready;
    job->sequence = plan->comm->sequence++;
    job->layout_hash = plan->plan_hash;
    job->hyper_hash = hash_step(plan, &plan->step_params);
    job->flags = 0;
    job->status = LNT_OK;
    if (job->n_graphs != 0) lnt_exec_post(plan->comm->exec, job);
}

lnt_status_t lnt_plan_begin(lnt_plan_t *plan, const lnt_step_params_t *params)
{
    LNT_FP_SCOPE();
    uint64_t unready = 0;

    LNT_TRY(lnt_plan_enter(plan, LNT_PLAN_BEGIN));
    LNT_TRY(check_step(plan, params));
    LNT_TRY(check_replicas(plan));
    for (uint32_t t = 0; t < plan->n_tensors; t++) {
        lnt_plan_tensor_t *tensor = &plan->tensors[t];
        plan->sources[t] = (lnt_source_t){.values = NULL, .dtype = tensor->params.grad_dtype};
        if (tensor->accumulated) plan->sources[t].accumulated = plan->accumulator + tensor->base;
        tensor->travels = travels(plan, t, params->programs);
        unready += tensor->travels;
        atomic_store_explicit(&tensor->ready, 0, memory_order_relaxed);
    }
    atomic_store_explicit(&plan->unready, unready, memory_order_relaxed);
    plan->step_programs = params->programs;
    plan->step_params = *params;
    list_graphs(plan, params);
    set_hooks(plan, params->hooks);
    (void)snprintf(plan->job.what, sizeof(plan->job.what), "step %llu of plan", (unsigned long long)plan->n_steps++);
    atomic_store_explicit(&plan->job.raised, 0, memory_order_relaxed);
    plan->state = LNT_PLAN_STEP;
    if (plan->hooks.hold) {
        plan->job.n_graphs = 0; /* not armed before `end` */
    } else {
        post_job(plan);
    }
    return LNT_OK;
}

static void release(lnt_plan_t *plan, uint32_t number)
{
    const lnt_plan_bucket_t *bucket = &plan->buckets[number];

    for (uint32_t g = bucket->first_graph; g < bucket->end_graph; g++)
        lnt_job_ready(plan->comm->exec, &plan->job, g);
}

static void bucket_is_ready(lnt_plan_t *plan, uint32_t bucket)
{
    LNT_FP_SCOPE(); /* the hook computes on the caller's thread */

    plan->hooks.bucket_ready(plan->hooks.arg, bucket);
}

/* The bucket's graphs may start once all its tensors are ready. */
static void count_down(lnt_plan_t *plan, const lnt_plan_tensor_t *tensor)
{
    for (uint32_t b = tensor->first_bucket; b < tensor->end_bucket; b++) {
        if (atomic_fetch_sub_explicit(&plan->buckets[b].waiting, 1, memory_order_acq_rel) != 1) continue;
        if (plan->hooks.bucket_ready != NULL) bucket_is_ready(plan, b);
        if (b < plan->first_held) release(plan, b);
    }
}

static void make_ready(lnt_plan_t *plan, uint32_t number, const void *grad)
{
    const lnt_plan_tensor_t *tensor = &plan->tensors[number];

    if (tensor->travels || plan->step_params.local) plan->sources[number].values = grad;
    if (!tensor->travels) return;
    if ((atomic_fetch_sub_explicit(&plan->unready, 1, memory_order_acq_rel) & LNT_PLAN_VETOED) != 0) {
        atomic_store_explicit(&plan->job.raised, LNT_FRAME_VETO, memory_order_release);
    }
    count_down(plan, tensor);
}

lnt_status_t lnt_plan_tensor_ready(lnt_plan_t *plan, uint32_t tensor, const void *grad, void *stream)
{
    LNT_TRY(lnt_plan_enter(plan, LNT_PLAN_READY));
    LNT_CHECK_ARG(stream == NULL); /* host memory */
    if (tensor >= plan->n_tensors) {
        return lnt_error(LNT_ERR_OUT_OF_RANGE, NULL, "tensor %u of %u", tensor, plan->n_tensors);
    }
    if (atomic_exchange_explicit(&plan->tensors[tensor].ready, 1, memory_order_relaxed) != 0) {
        (void)lnt_error(LNT_ERR_INVALID_USAGE, "call it once per tensor and step", "tensor \"%s\" is ready already",
                        plan->tensors[tensor].params.name);
        lnt_error_mutable()->tensor = tensor;
        return LNT_ERR_INVALID_USAGE;
    }
    make_ready(plan, tensor, grad);
    return LNT_OK;
}

lnt_status_t lnt_plan_veto(lnt_plan_t *plan)
{
    uint64_t unready;

    LNT_TRY(lnt_plan_enter(plan, LNT_PLAN_VETO));
    unready = atomic_load_explicit(&plan->unready, memory_order_relaxed);
    do {
        if ((unready & ~LNT_PLAN_VETOED) == 0) {
            return lnt_error(LNT_ERR_INVALID_USAGE, "veto before the last lnt_plan_tensor_ready of the step",
                             "all gradients are on their way: no frame could carry the veto");
        }
    } while (!atomic_compare_exchange_weak_explicit(&plan->unready, &unready, unready | LNT_PLAN_VETOED,
                                                    memory_order_acq_rel, memory_order_relaxed));
    return LNT_OK;
}

lnt_status_t lnt_plan_accumulate(lnt_plan_t *plan, uint32_t number, const void *grad)
{
    LNT_FP_SCOPE();
    const lnt_array_ops_t *arrays;
    lnt_plan_tensor_t *tensor;
    float *sum;

    LNT_TRY(lnt_plan_enter(plan, LNT_PLAN_ACCUMULATE));
    if (plan->accumulator == NULL) {
        return lnt_error(LNT_ERR_INVALID_USAGE, "set lnt_plan_params_t.accumulate", "the plan has no accumulator");
    }
    if (number >= plan->n_tensors)
        return lnt_error(LNT_ERR_OUT_OF_RANGE, NULL, "tensor %u of %u", number, plan->n_tensors);
    tensor = &plan->tensors[number];
    LNT_CHECK_ARG(grad != NULL || tensor->params.count == 0);
    sum = plan->accumulator + tensor->base;
    arrays = lnt_arrays();
    (tensor->accumulated ? arrays->widen_add : arrays->widen)[tensor->params.grad_dtype](grad, tensor->params.count,
                                                                                         sum);
    tensor->accumulated = true;
    return LNT_OK;
}

/* ---- end ---- */

/* Calls visit for every run of one exchange, with its decoded values in plan->scratch. */
static void consume_exchange(lnt_plan_t *plan, uint32_t number, uint32_t bucket, const lnt_exchange_t *exchange)
{
    const lnt_stage_t *stage = &plan->programs[number].stage;
    const lnt_grid_t *grid = lnt_exchange_grid(exchange);
    lnt_range_t all = {0, grid->n_blocks};

    for (uint64_t block = 0; block < all.end;) {
        lnt_range_t piece = lnt_layout_segment(grid, all, block, LNT_SPAN_MAX);
        uint64_t begin = lnt_grid_pos(grid, piece.begin), end = lnt_grid_pos(grid, piece.end);
        lnt_exchange_read(exchange, begin, end - begin, plan->scratch);
        for (uint64_t pos = begin; pos < end;) {
            lnt_run_t run = lnt_layout_run(grid, pos, end);
            lnt_span_t span = {.tensor = run.tensor, .bucket = bucket, .offset = run.offset, .count = run.count};
            if (plan->step_params.left_out == NULL || plan->step_params.left_out[run.tensor] == 0) {
                stage->consume(stage->arg, &span, plan->scratch + (pos - begin),
                               plan->programs[number].packed ? NULL : lnt_exchange_live(exchange, pos, run.count));
            }
            pos += run.count;
        }
        block = piece.end;
    }
}

/* A unit: chunks may be longer than a span, so pieces begin anywhere. */
static void consume_unit(lnt_plan_t *plan, uint32_t number, uint32_t bucket, const lnt_exchange_t *exchange)
{
    const lnt_stage_t *stage = &plan->programs[number].stage;
    const lnt_grid_t *grid = lnt_exchange_grid(exchange);

    for (uint64_t pos = 0; pos < grid->n_elems;) {
        lnt_run_t run = lnt_layout_run(grid, pos, grid->n_elems);
        uint64_t count = run.count < LNT_SPAN_MAX ? run.count : LNT_SPAN_MAX;
        lnt_span_t span = {.tensor = run.tensor, .bucket = bucket, .offset = run.offset, .count = count};
        lnt_exchange_read_part(exchange, pos, count, plan->scratch);
        stage->consume(stage->arg, &span, plan->scratch, NULL);
        pos += count;
    }
}

/* Errors after a commit; those of tensors that are left out go back to what they were. */
static void commit_errors(lnt_plan_t *plan, uint32_t program, uint32_t bucket, lnt_exchange_t *exchange)
{
    lnt_exchange_commit(exchange);
    if (lnt_plan_health_due(plan, program)) lnt_plan_watch(plan, bucket, program, exchange);
    for (uint32_t t = 0; plan->step_params.left_out != NULL && t < plan->n_tensors; t++) {
        if (plan->step_params.left_out[t] != 0) lnt_exchange_keep_errors(exchange, t);
    }
}

/* The next forward needs the tensors registered last first: buckets in reverse. */
static void commit_pass(lnt_plan_t *plan)
{
    uint64_t start = lnt_now_ns();

    for (uint32_t b = plan->n_buckets; b-- > 0;) {
        for (uint32_t p = 0; p < plan->n_programs; p++) {
            lnt_exchange_t *exchange = plan->buckets[b].exchange[p];
            if ((plan->step_programs >> p & 1u) == 0 || exchange == NULL) continue;
            (plan->programs[p].unit != LNT_UNIT_NONE ? consume_unit : consume_exchange)(plan, p, b, exchange);
            commit_errors(plan, p, b, exchange);
        }
    }
    for (uint32_t p = 0; p < plan->n_programs; p++)
        plan->programs[p].runs += plan->step_programs >> p & 1u;
    plan->stats.commit_ns += lnt_now_ns() - start;
}

static lnt_status_t survey(lnt_plan_t *plan)
{
    lnt_status_t status = LNT_OK;

    plan->surveying = true;
    for (uint32_t p = 0; p < plan->n_programs && status >= 0; p++) {
        const lnt_stage_t *stage = &plan->programs[p].stage;
        if ((plan->step_programs >> p & 1u) != 0 && stage->survey != NULL) status = stage->survey(stage->arg, plan, p);
    }
    plan->surveying = false;
    return status;
}

static lnt_status_t skip(lnt_plan_t *plan, lnt_status_t why)
{
    plan->stats.verdict = why;
    plan->stats.skipped++;
    plan->stats.skipped_in_a_row++;
    if (plan->stats.skipped_in_a_row < plan->max_skips) return why;
    return lnt_error(LNT_ERR_DIVERGED,
                     "lower the learning rate or the loss scale, look for bad input; LINNET_MAX_SKIPS sets the limit",
                     "%llu steps in a row were skipped, the last one because of %s",
                     (unsigned long long)plan->stats.skipped_in_a_row,
                     why == LNT_SKIPPED_VETO ? "a veto" : "a non-finite value");
}

/* What waited for all gradients of the step. An error is the communicator's: nothing more is released. */
static lnt_status_t release_held(lnt_plan_t *plan)
{
    double clip = plan->step_params.clip != 0 ? plan->step_params.clip : 1;

    if (plan->hooks.all_ready != NULL) LNT_TRY(plan->hooks.all_ready(plan->hooks.arg, &clip));
    if (plan->hooks.hold) {
        plan->step_params.clip = clip;
        list_graphs(plan, &plan->step_params);
        post_job(plan);
    }
    for (uint32_t b = plan->first_held; b < plan->n_buckets; b++)
        release(plan, b);
    return LNT_OK;
}

/* Waits for the exchange. LNT_OK: all frames are here. */
static lnt_status_t wait_frames(lnt_plan_t *plan)
{
    uint64_t start = lnt_now_ns();
    lnt_status_t status;

    status = release_held(plan);
    if (plan->job.n_graphs == 0) return status; /* no job is armed */
    status = lnt_comm_wait_job(plan->comm, &plan->job);
    plan->stats.exposed_ns += lnt_now_ns() - start;
    return status;
}

lnt_status_t lnt_plan_end(lnt_plan_t *plan)
{
    LNT_FP_SCOPE();
    lnt_status_t status;

    LNT_CHECK_ARG(plan != NULL);
    LNT_TRY(lnt_plan_check_state(plan, LNT_PLAN_END));
    status = lnt_comm_enter(plan->comm);
    if (status == LNT_ERR_INVALID_USAGE) return status; /* a forked child */
    /* A failed communicator has ended its jobs, but who has all frames commits: others may have done so before. */
    for (uint32_t t = 0; t < plan->n_tensors; t++) {
        if (atomic_exchange_explicit(&plan->tensors[t].ready, 1, memory_order_relaxed) == 0) make_ready(plan, t, NULL);
    }
    status = wait_frames(plan);
    plan->state = LNT_PLAN_IDLE;
    if (status < 0) return status;
    for (uint32_t t = 0; t < plan->n_tensors; t++)
        plan->tensors[t].accumulated &= !plan->tensors[t].travels && !plan->step_params.local;
    plan->stats.transactions++;
    if ((plan->job.flags & LNT_FRAME_VETO) != 0) return skip(plan, LNT_SKIPPED_VETO);
    if ((plan->job.flags & LNT_FRAME_POISONED) != 0) return skip(plan, LNT_SKIPPED_NONFINITE);
    plan->state = LNT_PLAN_STEP; /* survey may read */
    status = survey(plan);
    plan->state = LNT_PLAN_IDLE;
    if (status < 0) return status;
    commit_pass(plan);
    plan->stats.verdict = LNT_OK;
    plan->stats.committed++;
    plan->commits++;
    plan->stats.skipped_in_a_row = 0;
    plan->unchecked++;
    return LNT_OK;
}
