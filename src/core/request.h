/* Internals of requests and residuals (request.c, request_cache.c, residual.c). */
#ifndef LNT_CORE_REQUEST_H
#define LNT_CORE_REQUEST_H

#include "../coll/coll.h"
#include "core.h"

typedef enum lnt_request_state { LNT_REQUEST_NEW, LNT_REQUEST_RUNNING, LNT_REQUEST_DONE } lnt_request_state_t;

struct lnt_request {
    lnt_comm_t *comm;
    lnt_coll_op_t op;
    lnt_coll_t *coll;
    lnt_residual_t *residual; /* lent to the exchange while running */
    lnt_job_t job;
    lnt_graph_t *graph; /* the job's only one */
    _Atomic uint8_t ready;
    lnt_request_state_t state;
    lnt_status_t status; /* of the last run */
    uint64_t used;       /* cache: time stamp */
    lnt_request_t *next; /* released after the communicator failed */
};

struct lnt_residual {
    lnt_comm_t *comm;
    uint64_t count;
    lnt_codec_t codec;
    lnt_request_t *user; /* running with it, or NULL */
    bool orphaned;       /* destroyed while it was lent: freed when the run ends */
    uint64_t worker_offset, worker_count, server_offset, server_count;
    float *worker, *server;
};

/* Communicator's memory of one-shot requests, and of those that may not be freed before its transports are closed. */
typedef struct lnt_coll_cache lnt_coll_cache_t;

/* What a public call asked for, as arguments of the collective. params may be NULL. */
lnt_status_t lnt_request_args(lnt_comm_t *comm, lnt_coll_op_t op, uint64_t count, lnt_dtype_t dtype, uint32_t root,
                              const lnt_coll_params_t *params, lnt_coll_args_t *args_p);
/* Not counted as an object of the communicator. */
lnt_status_t lnt_request_create(lnt_comm_t *comm, lnt_coll_op_t op, const lnt_coll_args_t *args,
                                lnt_request_t **request_p);
/* Graph and all. Only when no transport can touch it any more. */
void lnt_request_free(lnt_request_t *request);

/* Init (or the cached request), start, wait. */
lnt_status_t lnt_request_once(lnt_comm_t *comm, lnt_coll_op_t op, const lnt_coll_args_t *args, lnt_residual_t *residual,
                              const void *input, void *output);
/* The communicator failed: transports may still read and write the request's frames, so it is freed with the
 * communicator. */
void lnt_request_bury(lnt_request_t *request);
lnt_status_t lnt_request_cache_prepare(lnt_comm_t *comm);

/* The residual fits these arguments? */
lnt_status_t lnt_residual_check(const lnt_residual_t *residual, const lnt_comm_t *comm, const lnt_coll_args_t *args);
/* Before and after a run: the exchange has the residual's memory in between. Taking back may free the residual. */
void lnt_residual_lend(lnt_residual_t *residual, lnt_request_t *user);
void lnt_residual_take_back(lnt_residual_t *residual);

#endif
