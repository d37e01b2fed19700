/* Plans: creation, registration of tensors and programs, queries. Local; nothing here talks to other ranks. */
#include <string.h>

#include "../../kernels/dtype.h"
#include "../base/fp_env.h"
#include "plan_impl.h"

static const char *const call_names[LNT_PLAN_CALLS] = {[LNT_PLAN_ADD_TENSOR] = "lnt_plan_add_tensor",
                                                       [LNT_PLAN_ADD_PROGRAM] = "lnt_plan_add_program",
                                                       [LNT_PLAN_COMMIT] = "lnt_plan_commit",
                                                       [LNT_PLAN_BEGIN] = "lnt_plan_begin",
                                                       [LNT_PLAN_ACCUMULATE] = "lnt_plan_accumulate",
                                                       [LNT_PLAN_READY] = "lnt_plan_tensor_ready",
                                                       [LNT_PLAN_VETO] = "lnt_plan_veto",
                                                       [LNT_PLAN_END] = "lnt_plan_end",
                                                       [LNT_PLAN_SYNC] = "lnt_plan_sync_params",
                                                       [LNT_PLAN_CHECK] = "lnt_plan_check_params",
                                                       [LNT_PLAN_ERRORS] = "access to errors",
                                                       [LNT_PLAN_WIRE] = "lnt_plan_wire_bytes",
                                                       [LNT_PLAN_READ] = "lnt_plan_read"};

static const bool legal_calls[LNT_PLAN_CALLS][LNT_PLAN_STATES] = {
    /*                         open   idle   step */
    [LNT_PLAN_ADD_TENSOR] = {true, false, false}, [LNT_PLAN_ADD_PROGRAM] = {true, false, false},
    [LNT_PLAN_COMMIT] = {true, false, false},     [LNT_PLAN_BEGIN] = {false, true, false},
    [LNT_PLAN_ACCUMULATE] = {false, true, false}, [LNT_PLAN_READY] = {false, false, true},
    [LNT_PLAN_VETO] = {false, false, true},       [LNT_PLAN_END] = {false, false, true},
    [LNT_PLAN_SYNC] = {true, true, false},        [LNT_PLAN_CHECK] = {true, true, false},
    [LNT_PLAN_ERRORS] = {false, true, false},     [LNT_PLAN_WIRE] = {false, true, true},
    [LNT_PLAN_READ] = {false, false, true},
};

static const char *const state_names[LNT_PLAN_STATES] = {"open (not committed)", "idle (committed, no step running)",
                                                         "in a step (between begin and end)"};

lnt_status_t lnt_plan_check_state(const lnt_plan_t *plan, lnt_plan_call_t call)
{
    if (!legal_calls[call][plan->state]) {
        return lnt_error(LNT_ERR_INVALID_USAGE, "see the state table in linnet/plan.h", "%s: the plan is %s",
                         call_names[call], state_names[plan->state]);
    }
    return LNT_OK;
}

lnt_status_t lnt_plan_enter(const lnt_plan_t *plan, lnt_plan_call_t call)
{
    LNT_CHECK_ARG(plan != NULL);
    LNT_TRY(lnt_comm_enter(plan->comm));
    return lnt_plan_check_state(plan, call);
}

static const lnt_error_row_t *choose_errors(const lnt_plan_params_t *params, const lnt_core_config_t *config)
{
    lnt_error_dtype_t dtype = params->error_dtype;

    return lnt_error_row(dtype != LNT_ERROR_DEFAULT ? dtype : (lnt_error_dtype_t)(LNT_ERROR_F32 + config->error_dtype));
}

lnt_status_t lnt_plan_create(lnt_comm_t *comm, const lnt_plan_params_t *params, lnt_plan_t **plan_p)
{
    static const lnt_plan_params_t defaults = {.struct_size = sizeof(defaults)};
    const lnt_core_config_t *config;
    lnt_plan_t *plan;

    LNT_CHECK_ARG(comm != NULL && plan_p != NULL);
    LNT_TRY(lnt_comm_enter(comm));
    if (params == NULL) params = &defaults;
    LNT_CHECK_STRUCT(params);
    LNT_CHECK_ARG(params->error_dtype == LNT_ERROR_DEFAULT || lnt_error_row(params->error_dtype) != NULL);
    config = &comm->context->config;
    plan = lnt_calloc(1, sizeof(*plan), "plan");
    if (plan == NULL) return LNT_ERR_NO_MEMORY;
    plan->notes = lnt_calloc(comm->n_ranks, LNT_PLAN_NOTE_BYTES, "notes of all ranks");
    if (plan->notes == NULL) {
        lnt_free(plan);
        return LNT_ERR_NO_MEMORY;
    }
    plan->comm = comm;
    plan->bucket_elems = (params->bucket_bytes != 0 ? params->bucket_bytes : config->bucket_bytes) / sizeof(float);
    plan->segment_elems = (params->segment_bytes != 0 ? params->segment_bytes : config->segment_bytes) / sizeof(float);
    plan->max_skips = params->max_skips != 0 ? params->max_skips : config->max_skips;
    plan->accumulate = params->accumulate;
    plan->errors = choose_errors(params, config);
    if (plan->bucket_elems == 0) plan->bucket_elems = 1;
    if (plan->segment_elems == 0) plan->segment_elems = 1;
    comm->n_objects++;
    *plan_p = plan;
    return LNT_OK;
}

static void free_programs(lnt_plan_t *plan)
{
    for (uint32_t p = 0; p < plan->n_programs; p++) {
        lnt_free(plan->programs[p].name);
        lnt_free(plan->programs[p].member);
        lnt_free(plan->programs[p].carries);
    }
    plan->n_programs = 0;
}

static void free_tensors(lnt_plan_t *plan)
{
    for (uint32_t t = 0; t < plan->n_tensors; t++) {
        lnt_plan_tensor_t *tensor = &plan->tensors[t];
        if (tensor->master != tensor->params.param) lnt_free(tensor->master);
        lnt_free((void *)(uintptr_t)tensor->params.name);
    }
    lnt_free(plan->tensors);
}

/* The step that a failed communicator interrupted is over when its job is: until then a task may still read gradients
 * and the memory of stages on the progress side. Failed communicators end every job, between two tasks. */
static void end_failed_step(lnt_plan_t *plan)
{
    if (plan->state != LNT_PLAN_STEP || atomic_load(&plan->comm->failed) == 0) return;
    if (plan->job.n_graphs != 0) (void)lnt_comm_wait_job(plan->comm, &plan->job);
    plan->state = LNT_PLAN_IDLE;
}

lnt_status_t lnt_plan_destroy(lnt_plan_t *plan)
{
    if (plan == NULL) return LNT_OK;
    LNT_TRY(lnt_context_enter(plan->comm->context));
    if (plan->attached) {
        return lnt_error(LNT_ERR_INVALID_USAGE, "call lnt_optim_destroy first", "the plan still has an optimizer");
    }
    if (plan->state == LNT_PLAN_STEP && lnt_comm_async_error(plan->comm, NULL) == LNT_OK) {
        return lnt_error(LNT_ERR_INVALID_USAGE, "call lnt_plan_end first", "the plan is in a step");
    }
    end_failed_step(plan);
    lnt_plan_unbuild(plan);
    free_programs(plan);
    free_tensors(plan);
    plan->comm->n_objects--;
    lnt_free(plan->notes);
    lnt_free(plan);
    return LNT_OK;
}

static lnt_status_t check_shape(const lnt_tensor_params_t *params)
{
    size_t count;

    if (params->rows == 0 && params->cols == 0) return LNT_OK;
    if (params->rows != 0 && params->cols != 0 && lnt_size_mul(params->rows, params->cols, &count) &&
        count == params->count) {
        return LNT_OK;
    }
    return lnt_error(LNT_ERR_INVALID_ARG, "rows * cols is count, or both are 0",
                     "tensor \"%s\": %llu rows, %llu columns, %llu elements", params->name,
                     (unsigned long long)params->rows, (unsigned long long)params->cols,
                     (unsigned long long)params->count);
}

static lnt_status_t check_tensor(const lnt_plan_t *plan, const lnt_tensor_params_t *params)
{
    LNT_CHECK_ARG(params->name != NULL && params->name[0] != '\0');
    LNT_CHECK_ARG(params->param != NULL || params->count == 0);
    LNT_CHECK_ARG(params->count < UINT64_MAX / 8 - plan->n_elems);
    LNT_TRY(check_shape(params));
    if (params->memtype != LNT_HOST || !lnt_dtype_supported(params->grad_dtype) ||
        !lnt_dtype_supported(params->param_dtype)) {
        return lnt_error(LNT_ERR_UNSUPPORTED, "use host memory, f32, bf16 or f16",
                         "tensor \"%s\": memory type %d, gradient %s, parameter %s", params->name, (int)params->memtype,
                         lnt_dtype_name(params->grad_dtype), lnt_dtype_name(params->param_dtype));
    }
    for (uint32_t t = 0; t < plan->n_tensors; t++) {
        if (strcmp(plan->tensors[t].params.name, params->name) == 0) {
            return lnt_error(LNT_ERR_INVALID_ARG, "give every tensor a name of its own",
                             "tensor \"%s\" is registered already (number %u)", params->name, t);
        }
    }
    return LNT_OK;
}

static lnt_status_t grow_tensors(lnt_plan_t *plan)
{
    lnt_plan_tensor_t *larger;
    uint32_t room = plan->room != 0 ? 2 * plan->room : 16;

    if (plan->n_tensors < plan->room) return LNT_OK;
    if (plan->n_tensors >= UINT32_MAX / 4) return lnt_error(LNT_ERR_OUT_OF_RANGE, NULL, "too many tensors");
    larger = lnt_calloc(room, sizeof(*larger), "tensors");
    if (larger == NULL) return LNT_ERR_NO_MEMORY;
    if (plan->n_tensors != 0) memcpy(larger, plan->tensors, plan->n_tensors * sizeof(*larger));
    lnt_free(plan->tensors);
    plan->tensors = larger;
    plan->room = room;
    return LNT_OK;
}

static lnt_status_t make_master(lnt_plan_tensor_t *tensor)
{
    size_t bytes;

    if (tensor->params.param_dtype == LNT_F32) {
        tensor->master = tensor->params.param;
        return LNT_OK;
    }
    if (!lnt_size_mul(tensor->params.count, sizeof(float), &bytes))
        return lnt_error(LNT_ERR_OUT_OF_RANGE, NULL, "tensor too large");
    tensor->master = lnt_alloc_aligned(bytes, "f32 master");
    if (tensor->master == NULL) return LNT_ERR_NO_MEMORY;
    lnt_arrays()->widen[tensor->params.param_dtype](tensor->params.param, tensor->params.count, tensor->master);
    return LNT_OK;
}

lnt_status_t lnt_plan_add_tensor(lnt_plan_t *plan, const lnt_tensor_params_t *params, uint32_t *tensor_p)
{
    LNT_FP_SCOPE();
    lnt_plan_tensor_t tensor = {.ready = 0};
    char *name;
    lnt_status_t status;

    LNT_TRY(lnt_plan_enter(plan, LNT_PLAN_ADD_TENSOR));
    LNT_CHECK_ARG(params != NULL && tensor_p != NULL);
    LNT_CHECK_STRUCT(params);
    if (plan->n_programs != 0) {
        return lnt_error(LNT_ERR_INVALID_USAGE, "add all tensors before creating the optimizer",
                         "lnt_plan_add_tensor: the plan has programs already");
    }
    LNT_TRY(check_tensor(plan, params));
    LNT_TRY(grow_tensors(plan));
    name = lnt_strdup(params->name, "tensor name");
    if (name == NULL) return LNT_ERR_NO_MEMORY;
    tensor.params = *params;
    tensor.params.name = name;
    tensor.base = plan->n_elems;
    LNT_TRY_GOTO(status, make_master(&tensor), err_free_name);
    plan->tensors[plan->n_tensors] = tensor;
    plan->n_elems += params->count;
    *tensor_p = plan->n_tensors++;
    return LNT_OK;

err_free_name:
    lnt_free(name);
    return status;
}

static lnt_status_t check_program(const lnt_program_params_t *params, const lnt_codec_t *codec)
{
    if (codec->cfg.block > LNT_SPAN_MAX) {
        return lnt_error(LNT_ERR_UNSUPPORTED, "choose a smaller block",
                         "program \"%s\": blocks of %u elements, spans hold %d", params->name, codec->cfg.block,
                         LNT_SPAN_MAX);
    }
    LNT_CHECK_ARG((unsigned)params->unit <= LNT_UNIT_MODEL);
    if (params->packed && codec->row->has_scales && params->unit == LNT_UNIT_NONE) {
        return lnt_error(LNT_ERR_UNSUPPORTED, "use a codec without scales, or do not pack",
                         "program \"%s\": blocks of packed %s would depend on the size of buckets", params->name,
                         codec->row->name);
    }
    LNT_CHECK_ARG(!params->changeable || ((params->packed || params->no_feedback) && params->unit == LNT_UNIT_NONE));
    return LNT_OK;
}

/* Name and tables of members. What is there after a failure is the caller's to free. */
static lnt_status_t copy_program(const lnt_plan_t *plan, const lnt_program_params_t *params,
                                 lnt_plan_program_t *program)
{
    program->name = lnt_strdup(params->name, "program name");
    if (program->name == NULL) return LNT_ERR_NO_MEMORY;
    if (params->member != NULL) {
        program->member = lnt_calloc(plan->n_tensors, 1, "members of a program");
        if (program->member == NULL) return LNT_ERR_NO_MEMORY;
        if (plan->n_tensors != 0) memcpy(program->member, params->member, plan->n_tensors);
    }
    if (!params->changeable) return LNT_OK;
    program->carries = lnt_calloc(plan->n_tensors, 1, "what a program carries");
    if (program->carries == NULL) return LNT_ERR_NO_MEMORY;
    for (uint32_t t = 0; t < plan->n_tensors; t++)
        program->carries[t] = lnt_plan_is_member(program, t);
    return LNT_OK;
}

lnt_status_t lnt_plan_add_program(lnt_plan_t *plan, const lnt_program_params_t *params, uint32_t *program_p)
{
    lnt_plan_program_t program = {.name = NULL};
    lnt_status_t status;

    LNT_TRY(lnt_plan_enter(plan, LNT_PLAN_ADD_PROGRAM));
    LNT_CHECK_ARG(params != NULL && program_p != NULL);
    LNT_CHECK_STRUCT(params);
    LNT_CHECK_STRUCT(&params->stage);
    LNT_CHECK_ARG(params->name != NULL && params->stage.consume != NULL);
    if (plan->n_programs == LNT_PROGRAMS_MAX) {
        return lnt_error(LNT_ERR_OUT_OF_RANGE, NULL, "a plan holds at most %d programs", LNT_PROGRAMS_MAX);
    }
    LNT_TRY(lnt_codec_init(&program.codec, params->codec.name, params->codec.block, params->codec.scale_rule));
    LNT_TRY(check_program(params, &program.codec));
    program.unit = params->unit;
    program.flat = params->flat || params->unit != LNT_UNIT_NONE;
    program.packed = params->packed || params->unit != LNT_UNIT_NONE;
    program.feeds_v = params->feeds_v;
    program.unscaled = params->unscaled;
    program.by_bucket = params->by_bucket;
    program.no_feedback = params->no_feedback;
    program.stage = params->stage;
    LNT_TRY_GOTO(status, copy_program(plan, params, &program), err_free);
    *program_p = plan->n_programs;
    plan->programs[plan->n_programs++] = program;
    return LNT_OK;

err_free:
    lnt_free(program.carries);
    lnt_free(program.member);
    lnt_free(program.name);
    return status;
}

lnt_status_t lnt_plan_attach(lnt_plan_t *plan)
{
    LNT_TRY(lnt_plan_enter(plan, LNT_PLAN_ADD_PROGRAM));
    if (plan->attached || plan->n_programs != 0) {
        return lnt_error(LNT_ERR_INVALID_USAGE, "one optimizer per plan",
                         "the plan has an optimizer or programs already");
    }
    plan->attached = true;
    return LNT_OK;
}

void lnt_plan_detach(lnt_plan_t *plan)
{
    end_failed_step(plan); /* no task may use the stages' memory after this */
    plan->attached = false;
    plan->settings = (lnt_plan_settings_t){.n_items = 0};
    if (plan->state == LNT_PLAN_OPEN) {
        free_programs(plan);
        lnt_plan_release_masters(plan);
    } else {
        plan->orphaned = true;
    }
}

lnt_status_t lnt_plan_get_tensor(const lnt_plan_t *plan, uint32_t tensor, lnt_tensor_params_t *params_p)
{
    LNT_CHECK_ARG(plan != NULL && params_p != NULL);
    if (tensor >= plan->n_tensors) {
        return lnt_error(LNT_ERR_OUT_OF_RANGE, NULL, "tensor %u of %u", tensor, plan->n_tensors);
    }
    *params_p = plan->tensors[tensor].params;
    return LNT_OK;
}

lnt_status_t lnt_plan_bucket_span(const lnt_plan_t *plan, uint32_t bucket, size_t index, lnt_span_t *span_p)
{
    const lnt_extent_t *extent;

    LNT_CHECK_ARG(plan != NULL && span_p != NULL);
    if (bucket >= plan->n_buckets || index >= plan->buckets[bucket].n_extents) return LNT_ERR_OUT_OF_RANGE;
    extent = &plan->buckets[bucket].extents[index];
    *span_p = (lnt_span_t){extent->tensor, bucket, extent->offset, extent->count};
    return LNT_OK;
}

lnt_status_t lnt_plan_get_info(const lnt_plan_t *plan, lnt_plan_info_t *info_p)
{
    LNT_CHECK_ARG(plan != NULL && info_p != NULL);
    LNT_CHECK_STRUCT(info_p);
    *info_p = (lnt_plan_info_t){.struct_size = sizeof(*info_p),
                                .n_elems = plan->n_elems,
                                .n_tensors = plan->n_tensors,
                                .n_buckets = plan->n_buckets,
                                .n_programs = plan->n_programs,
                                .model_hash = plan->model_hash,
                                .layout_hash = plan->layout_hash,
                                .plan_hash = plan->plan_hash};
    return LNT_OK;
}

lnt_status_t lnt_plan_get_stats(lnt_plan_t *plan, lnt_plan_stats_t *stats_p, bool reset)
{
    lnt_plan_stats_t kept = {.struct_size = 0};

    LNT_CHECK_ARG(plan != NULL && stats_p != NULL);
    LNT_CHECK_STRUCT(stats_p);
    kept.skipped_in_a_row = plan->stats.skipped_in_a_row; /* no statistics: they decide about LNT_ERR_DIVERGED */
    kept.verdict = plan->stats.verdict;
    *stats_p = plan->stats;
    stats_p->struct_size = sizeof(*stats_p);
    if (reset) plan->stats = kept;
    return LNT_OK;
}

lnt_comm_t *lnt_plan_comm(const lnt_plan_t *plan)
{
    return plan->comm;
}

uint64_t lnt_plan_sequence(const lnt_plan_t *plan)
{
    return plan->comm->sequence;
}

void *lnt_plan_alloc(size_t bytes, const char *name)
{
    return lnt_alloc_aligned(bytes, name);
}

void lnt_plan_free(void *memory)
{
    lnt_free(memory);
}
