/* Creation and destruction of communicators.
 *
 * Creation is one all-gather of greetings, then only the mesh: connect, vote, exchange of the transports' offers, vote,
 * and at last a first frame through every channel.
 * Between two votes a rank does its own part and carries its status to the next one, so that every rank learns of a
 * failure and who had it. Clean-up communicates with nobody: closing the sockets is what the others see.
 */
#include "comm_net.h"

#include <math.h>
#include <stdio.h>

#include "cpu_list.h"
#include "threads.h"

enum { LINGER_MS = 1000, MAX_RANKS = 65535 /* nodes are 16 bits in frames */ };

/* ---- the greeting ---- */

static void fill_greeting(lnt_comm_t *comm, const lnt_comm_settings_t *settings, lnt_greeting_t *greeting)
{
    lnt_status_t status = lnt_greeting_fill(settings, comm->rank, comm->n_ranks, greeting);

    if (status >= 0) status = lnt_mesh_open(&greeting->id, comm->context->config.socket_ifname, &comm->mesh);
    greeting->status = (int32_t)status;
    if (status < 0)
        snprintf(greeting->cause, sizeof(greeting->cause), "%.*s", LNT_GREETING_CAUSE_MAX - 1, lnt_last_error()->cause);
}

/* Suppliers of this library return their status and leave a record that says more. */
static lnt_status_t bootstrap_failed(int returned)
{
    const lnt_error_info_t last = *lnt_last_error();

    if (last.status >= 0 || returned != (int)last.status) {
        return lnt_error(LNT_ERR_BOOTSTRAP, "look at the all-gather the program supplied",
                         "the bootstrap's all-gather returned %d", returned);
    }
    (void)lnt_error(LNT_ERR_BOOTSTRAP, last.cure, "the bootstrap's all-gather failed: %.300s", last.cause);
    lnt_error_mutable()->peer = last.peer;
    return LNT_ERR_BOOTSTRAP;
}

static lnt_status_t gather_greetings(lnt_comm_t *comm, const lnt_bootstrap_t *bootstrap,
                                     const lnt_comm_settings_t *settings, lnt_greeting_t *greetings)
{
    lnt_greeting_t mine = {.status = LNT_OK};
    int returned;

    fill_greeting(comm, settings, &mine);
    returned = bootstrap->allgather(bootstrap->arg, &mine, greetings, sizeof(mine));
    if (returned != 0) return bootstrap_failed(returned);
    return lnt_greeting_check(greetings, comm->rank, comm->n_ranks);
}

static lnt_status_t greet(lnt_comm_t *comm, const lnt_bootstrap_t *bootstrap, const lnt_comm_settings_t *settings)
{
    lnt_status_t status = LNT_ERR_NO_MEMORY;
    lnt_greeting_t *greetings = lnt_calloc(comm->n_ranks, sizeof(*greetings), "greetings");

    comm->peers = lnt_calloc(comm->n_ranks, sizeof(*comm->peers), "peers");
    if (greetings != NULL && comm->peers != NULL) status = gather_greetings(comm, bootstrap, settings, greetings);
    for (uint32_t i = 0; status >= 0 && i < comm->n_ranks; i++)
        comm->peers[i] = greetings[i].id;
    lnt_free(greetings);
    return status;
}

/* ---- this rank's own preparation ---- */

static lnt_status_t create_topologies(lnt_comm_t *comm)
{
    lnt_status_t status;
    uint64_t *labels = lnt_calloc(comm->n_ranks, sizeof(*labels), "node labels");

    if (labels == NULL) return LNT_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < comm->n_ranks; i++)
        labels[i] = comm->peers[i].node_label;
    LNT_TRY_GOTO(status, lnt_topo_create(labels, comm->n_ranks, &comm->topo), out);
    for (uint32_t i = 0; i < comm->n_ranks; i++)
        labels[i] = i;
    status = lnt_topo_create(labels, comm->n_ranks, &comm->flat);
out:
    lnt_free(labels);
    return status;
}

static uint32_t ranks_on_host(const lnt_comm_t *comm)
{
    uint32_t local = 0;

    for (uint32_t i = 0; i < comm->n_ranks; i++)
        local += (comm->peers[i].host_hash == comm->peers[comm->rank].host_hash);
    return local;
}

static lnt_status_t prepare(lnt_comm_t *comm)
{
    LNT_TRY(create_topologies(comm));
    LNT_TRY(lnt_threads_start(comm->context, ranks_on_host(comm)));
    LNT_TRY(lnt_net_create(comm, comm->peers));
    return lnt_probe_create(comm);
}

/* A caller and a progress thread per rank: when they outnumber the cores, spinning takes time from who has work. */
static void avoid_crowding(const lnt_comm_t *comm)
{
    if (2 * ranks_on_host(comm) > lnt_cpu_count()) lnt_progress_crowded(comm->context->progress);
}

/* ---- together ---- */

static lnt_status_t open_pace(lnt_comm_t *comm, const lnt_comm_settings_t *settings, uint32_t timeout_ms)
{
    if (settings->pace != NULL) {
        comm->net->pace = lnt_pace_hold(settings->pace);
        return LNT_OK;
    }
    return (comm->emulate_gbps > 0) ? lnt_pace_create(comm, timeout_ms, &comm->net->pace) : LNT_OK;
}

/* Watched a little early, so that the vote covers it too: until the start the loop only wakes for nothing. */
static lnt_status_t exchange_and_watch(lnt_comm_t *comm, uint32_t timeout_ms)
{
    LNT_TRY(lnt_net_exchange(comm, timeout_ms));
    return lnt_net_watch(comm);
}

static lnt_status_t connect_all(lnt_comm_t *comm, const lnt_comm_settings_t *settings)
{
    const uint32_t timeout_ms = comm->context->config.init_timeout_ms;
    lnt_status_t mine = prepare(comm);

    if (mine >= 0) {
        LNT_TRY(lnt_mesh_connect(comm->mesh, comm->peers, timeout_ms));
    } else {
        const lnt_error_info_t own = *lnt_last_error();

        LNT_TRY(lnt_mesh_connect(comm->mesh, comm->peers, timeout_ms));
        (void)lnt_error_restore(&own); /* the vote passes this text on */
    }
    LNT_TRY(lnt_mesh_vote(comm->mesh, mine, timeout_ms));
    LNT_TRY(open_pace(comm, settings, timeout_ms));
    LNT_TRY(lnt_mesh_vote(comm->mesh, lnt_net_open(comm), timeout_ms));
    LNT_TRY(lnt_mesh_vote(comm->mesh, exchange_and_watch(comm, timeout_ms), timeout_ms));
    lnt_mesh_on_failure(comm->mesh, lnt_comm_on_failure, comm);
    lnt_net_start(comm); /* from here on the mesh belongs to the progress side */
    return lnt_probe_run(comm);
}

static void release(lnt_comm_t *comm, uint32_t linger_ms)
{
    lnt_net_stop(comm);
    lnt_net_destroy(comm);
    lnt_mesh_close(comm->mesh, linger_ms);
    lnt_topo_destroy(comm->flat);
    lnt_topo_destroy(comm->topo);
    lnt_free(comm->peers);
    lnt_free(comm);
}

lnt_status_t lnt_comm_build(lnt_context_t *context, const lnt_bootstrap_t *bootstrap,
                            const lnt_comm_settings_t *settings, lnt_comm_t **comm_p)
{
    lnt_status_t status;
    lnt_comm_t *comm = lnt_calloc(1, sizeof(*comm), "communicator");

    if (comm == NULL) return LNT_ERR_NO_MEMORY;
    comm->context = context;
    comm->rank = bootstrap->rank;
    comm->n_ranks = bootstrap->n_ranks;
    comm->timeout_ms = settings->timeout_ms;
    comm->emulate_gbps = settings->emulate_gbps;
    if (lnt_logger_rank(context->logger) < 0) lnt_logger_set_rank(context->logger, comm->rank);
    LNT_TRY_GOTO(status, greet(comm, bootstrap, settings), err_release);
    LNT_TRY_GOTO(status, connect_all(comm, settings), err_release);

    avoid_crowding(comm);
    lnt_route_log(comm);
    atomic_fetch_add(&context->n_objects, 1);
    *comm_p = comm;
    return LNT_OK;

err_release:
    release(comm, LINGER_MS); /* who comes late must still hear what went wrong, or it blames this rank */
    return status;
}

/* ---- public ---- */

static lnt_status_t check_params(const lnt_comm_params_t *params)
{
    const lnt_bootstrap_t *bootstrap;

    LNT_CHECK_ARG(params != NULL);
    LNT_CHECK_STRUCT(params);
    bootstrap = params->bootstrap;
    LNT_CHECK_ARG(bootstrap != NULL);
    LNT_CHECK_STRUCT(bootstrap);
    LNT_CHECK_ARG(bootstrap->allgather != NULL);
    LNT_CHECK_ARG(bootstrap->n_ranks >= 1 && bootstrap->n_ranks <= MAX_RANKS && bootstrap->rank < bootstrap->n_ranks);
    LNT_CHECK_ARG(isfinite(params->emulate_gbps) && params->emulate_gbps >= 0);
    return LNT_OK;
}

lnt_status_t lnt_comm_create(lnt_context_t *context, const lnt_comm_params_t *params, lnt_comm_t **comm_p)
{
    const lnt_core_config_t *config;
    lnt_comm_settings_t settings;

    LNT_TRY(lnt_context_enter(context));
    LNT_CHECK_ARG(comm_p != NULL);
    LNT_TRY(check_params(params));
    config = &context->config;
    settings = (lnt_comm_settings_t){
        .node = (params->node != NULL) ? params->node : config->node,
        .transports = (params->transports != NULL) ? params->transports : config->transports,
        .timeout_ms = (params->timeout_ms != 0) ? params->timeout_ms : config->timeout_ms,
        .emulate_gbps = (params->emulate_gbps > 0) ? params->emulate_gbps : config->emulate_gbps,
    };
    return lnt_comm_build(context, params->bootstrap, &settings, comm_p);
}

lnt_status_t lnt_comm_check_owner(const lnt_comm_t *comm)
{
    LNT_CHECK_ARG(comm != NULL);
    return lnt_context_enter(comm->context);
}

lnt_status_t lnt_comm_enter(lnt_comm_t *comm)
{
    LNT_TRY(lnt_comm_check_owner(comm));
    if (atomic_load_explicit(&comm->failed, memory_order_acquire) != 0) return lnt_error_restore(&comm->record);
    return LNT_OK;
}

lnt_status_t lnt_comm_destroy(lnt_comm_t *comm)
{
    lnt_context_t *context;

    if (comm == NULL) return LNT_OK;
    LNT_TRY(lnt_comm_check_owner(comm));
    if (comm->n_objects != 0) {
        return lnt_error(LNT_ERR_INVALID_USAGE, "destroy them first",
                         "the communicator still has %u plans and requests", comm->n_objects);
    }
    context = comm->context;
    release(comm, LINGER_MS);
    atomic_fetch_sub(&context->n_objects, 1);
    return LNT_OK;
}
