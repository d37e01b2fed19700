/* Requests: a collective, its job, and the rules of who may call what when (linnet/coll.h).
 *
 * new --start--> running --test or wait--> done --start--> running ... A request is its caller's; only the job is
 * shared with the progressing thread. Sequence numbers are taken at start, so the order of starts is what must agree
 * between ranks.
 */
#include "request.h"

#include <string.h>

#include "../base/fp_env.h"

#define MAX_COUNT (UINT64_C(1) << 56)
#define MAX_SEGMENT_ELEMS (UINT64_C(1) << 28) /* a frame stays below 2^31 bytes */

/* ---- arguments ------------------------------------------------------------------------------------------------- */

static lnt_status_t check_sizes(const lnt_comm_t *comm, uint64_t count, uint64_t segment_elems)
{
    if ((count > MAX_COUNT / comm->n_ranks) || (count / segment_elems > INT32_MAX / comm->n_ranks)) {
        return lnt_error(LNT_ERR_OUT_OF_RANGE, "use larger segments or smaller buffers",
                         "count %llu in segments of %llu elements", (unsigned long long)count,
                         (unsigned long long)segment_elems);
    }
    return LNT_OK;
}

static lnt_status_t check_residual(lnt_coll_op_t op, const lnt_coll_params_t *params)
{
    if ((params->residual != NULL) && ((op != LNT_COLL_ALLREDUCE) || (params->codec == NULL))) {
        return lnt_error(LNT_ERR_INVALID_ARG, "error feedback is for all-reduce with a codec; pass residual NULL",
                         "a residual was given to %s %s", lnt_coll_row(op)->name,
                         (params->codec == NULL) ? "without a codec" : "");
    }
    return LNT_OK;
}

static uint64_t segment_elems_of(const lnt_comm_t *comm, uint64_t segment_bytes)
{
    uint64_t elems = ((segment_bytes != 0) ? segment_bytes : comm->context->config.segment_bytes) / sizeof(float);

    elems = (elems == 0) ? 1 : elems;
    return (elems < MAX_SEGMENT_ELEMS) ? elems : MAX_SEGMENT_ELEMS;
}

lnt_status_t lnt_request_args(lnt_comm_t *comm, lnt_coll_op_t op, uint64_t count, lnt_dtype_t dtype, uint32_t root,
                              const lnt_coll_params_t *params, lnt_coll_args_t *args_p)
{
    const lnt_coll_params_t none = {.struct_size = sizeof(none)};
    lnt_coll_args_t args = {.rank = comm->rank, .root = root, .count = count, .dtype = dtype};

    params = (params != NULL) ? params : &none;
    LNT_CHECK_STRUCT(params);
    LNT_CHECK_ARG((params->op == LNT_MEAN) || (params->op == LNT_SUM));
    LNT_CHECK_ARG(root < comm->n_ranks);
    LNT_CHECK_ARG((unsigned)dtype < LNT_DTYPE_COUNT);
    LNT_TRY(check_residual(op, params));
    args.topo = (op == LNT_COLL_ALLREDUCE) ? comm->topo : comm->flat;
    args.coded = (params->codec != NULL);
    args.feedback = (params->residual != NULL);
    args.redop = params->op;
    args.segment_elems = segment_elems_of(comm, params->segment_bytes);
    LNT_TRY(check_sizes(comm, count, args.segment_elems));
    if (args.coded) {
        args.codec = *params->codec;
    } else {
        LNT_TRY(lnt_codec_init(&args.codec, lnt_dtype_name(dtype), 0, LNT_SCALE_L2));
    }
    if (args.feedback) {
        LNT_TRY(lnt_residual_check(params->residual, comm, &args));
    }
    *args_p = args;
    return LNT_OK;
}

/* ---- life ------------------------------------------------------------------------------------------------------ */

lnt_status_t lnt_request_create(lnt_comm_t *comm, lnt_coll_op_t op, const lnt_coll_args_t *args,
                                lnt_request_t **request_p)
{
    lnt_request_t *request;
    lnt_status_t status;

    LNT_TRY(lnt_request_cache_prepare(comm));
    request = lnt_calloc(1, sizeof(*request), "request");
    if (request == NULL) {
        return LNT_ERR_NO_MEMORY;
    }
    request->comm = comm;
    request->op = op;
    LNT_TRY_GOTO(status, lnt_coll_create(op, args, &request->coll), err_free);
    request->graph = request->coll->graph;
    request->job.graphs = &request->graph;
    request->job.n_graphs = 1;
    request->job.ready = &request->ready;
    request->job.layout_hash = lnt_coll_hash(op, args);
    lnt_coll_describe(op, args, request->job.what, sizeof(request->job.what));
    LNT_TRY_GOTO(status, lnt_exec_reserve(comm->exec, request->graph->n_tasks), err_destroy_coll);
    *request_p = request;
    return LNT_OK;

err_destroy_coll:
    lnt_coll_destroy(request->coll);
err_free:
    lnt_free(request);
    return status;
}

void lnt_request_free(lnt_request_t *request)
{
    lnt_exec_unreserve(request->comm->exec, request->graph->n_tasks);
    lnt_coll_destroy(request->coll);
    lnt_free(request);
}

static lnt_status_t init_request(lnt_comm_t *comm, lnt_coll_op_t op, uint64_t count, lnt_dtype_t dtype, uint32_t root,
                                 const lnt_coll_params_t *params, lnt_request_t **request_p)
{
    lnt_coll_args_t args;
    lnt_request_t *request;

    LNT_TRY(lnt_comm_enter(comm));
    LNT_CHECK_ARG(request_p != NULL);
    LNT_TRY(lnt_request_args(comm, op, count, dtype, root, params, &args));
    LNT_TRY(lnt_request_create(comm, op, &args, &request));
    request->residual = (params != NULL) ? params->residual : NULL;
    ++comm->n_objects;
    *request_p = request;
    return LNT_OK;
}

lnt_status_t lnt_allreduce_init(lnt_comm_t *comm, uint64_t count, lnt_dtype_t dtype, const lnt_coll_params_t *params,
                                lnt_request_t **request_p)
{
    return init_request(comm, LNT_COLL_ALLREDUCE, count, dtype, 0, params, request_p);
}

lnt_status_t lnt_reduce_scatter_init(lnt_comm_t *comm, uint64_t count, lnt_dtype_t dtype,
                                     const lnt_coll_params_t *params, lnt_request_t **request_p)
{
    return init_request(comm, LNT_COLL_REDUCE_SCATTER, count, dtype, 0, params, request_p);
}

lnt_status_t lnt_allgather_init(lnt_comm_t *comm, uint64_t count, lnt_dtype_t dtype, const lnt_coll_params_t *params,
                                lnt_request_t **request_p)
{
    return init_request(comm, LNT_COLL_ALLGATHER, count, dtype, 0, params, request_p);
}

lnt_status_t lnt_broadcast_init(lnt_comm_t *comm, uint64_t count, lnt_dtype_t dtype, uint32_t root,
                                const lnt_coll_params_t *params, lnt_request_t **request_p)
{
    return init_request(comm, LNT_COLL_BROADCAST, count, dtype, root, params, request_p);
}

lnt_status_t lnt_request_wire_bytes(const lnt_request_t *request, uint64_t *intra_p, uint64_t *inter_p)
{
    lnt_bytes_t bytes;

    LNT_CHECK_ARG((request != NULL) && (intra_p != NULL) && (inter_p != NULL));
    bytes = lnt_coll_bytes(request->coll, request->comm->topo);
    *intra_p = bytes.intra;
    *inter_p = bytes.inter;
    return LNT_OK;
}

/* ---- runs ------------------------------------------------------------------------------------------------------ */

static lnt_status_t check_start(const lnt_request_t *request, const void *input, const void *output)
{
    const bool needs_input = (request->op != LNT_COLL_BROADCAST) && (request->coll->args.count != 0);

    if (request->state == LNT_REQUEST_RUNNING) {
        return lnt_error(LNT_ERR_INVALID_USAGE, "wait for the request first", "the request is running (%s)",
                         request->job.what);
    }
    if (request->coll->args.feedback && (request->residual == NULL)) {
        return lnt_error(LNT_ERR_INVALID_USAGE, "create the request anew, with a residual that exists",
                         "the residual of the request was destroyed (%s)", request->job.what);
    }
    if ((request->residual != NULL) && (request->residual->user != NULL)) {
        return lnt_error(LNT_ERR_INVALID_USAGE, "use one residual with one request at a time",
                         "the residual is in use by another request (%s)", request->residual->user->job.what);
    }
    LNT_CHECK_ARG((input != NULL) || !needs_input);
    LNT_CHECK_ARG((output != NULL) || (request->coll->args.count == 0));
    return LNT_OK;
}

lnt_status_t lnt_request_start(lnt_request_t *request, const void *input, void *output)
{
    LNT_FP_SCOPE();
    lnt_comm_t *comm;

    LNT_CHECK_ARG(request != NULL);
    comm = request->comm;
    LNT_TRY(lnt_comm_enter(comm));
    LNT_TRY(check_start(request, input, output));
    if (request->residual != NULL) {
        lnt_residual_lend(request->residual, request);
    }
    request->job.sequence = comm->sequence++;
    lnt_coll_prepare(request->coll, input, output, request->job.sequence);
    request->state = LNT_REQUEST_RUNNING;
    lnt_exec_post(comm->exec, &request->job);
    lnt_job_ready(comm->exec, &request->job, 0);
    return LNT_OK;
}

/* The job is done. Writes the output, takes the residual back. */
static lnt_status_t end_run(lnt_request_t *request, lnt_status_t status)
{
    if (status >= 0) {
        status = lnt_coll_finish(request->coll, request->job.flags);
    }
    if ((request->residual != NULL) && (request->residual->user == request)) {
        lnt_residual_take_back(request->residual);
    }
    request->state = LNT_REQUEST_DONE;
    request->status = status;
    return status;
}

static lnt_status_t check_started(const lnt_request_t *request)
{
    LNT_CHECK_ARG(request != NULL);
    LNT_TRY(lnt_context_enter(request->comm->context));
    if (request->state == LNT_REQUEST_NEW) {
        return lnt_error(LNT_ERR_INVALID_USAGE, "start the request first", "the request was never started (%s)",
                         request->job.what);
    }
    return LNT_OK;
}

lnt_status_t lnt_request_wait(lnt_request_t *request)
{
    LNT_FP_SCOPE();
    LNT_TRY(check_started(request));
    if (request->state == LNT_REQUEST_DONE) {
        return request->status;
    }
    return end_run(request, lnt_comm_wait_job(request->comm, &request->job));
}

lnt_status_t lnt_request_test(lnt_request_t *request)
{
    LNT_TRY(check_started(request));
    if ((request->state == LNT_REQUEST_RUNNING) && !lnt_comm_test_job(request->comm, &request->job)) {
        return LNT_IN_PROGRESS;
    }
    return lnt_request_wait(request);
}

lnt_status_t lnt_request_destroy(lnt_request_t *request)
{
    bool failed;

    if (request == NULL) {
        return LNT_OK;
    }
    LNT_TRY(lnt_context_enter(request->comm->context));
    failed = atomic_load(&request->comm->failed) != 0;
    if ((request->state == LNT_REQUEST_RUNNING) && !failed) {
        return lnt_error(LNT_ERR_INVALID_USAGE, "wait for the request first",
                         "a running request cannot be destroyed (%s)", request->job.what);
    }
    --request->comm->n_objects;
    if (failed) {
        if (request->state == LNT_REQUEST_RUNNING) {
            (void)lnt_request_wait(request); /* the executor ends every job of a failed communicator */
        }
        lnt_request_bury(request);
    } else {
        lnt_request_free(request);
    }
    return LNT_OK;
}
