/* A case of an optimizer, read, and the ranks that replay it (tests/golden/README.md).
 *
 * Tensors are registered in *plan order*, group after group as the reference fuses them; flat vectors of the case keep
 * the case's own order. Tensor numbers below are the case's unless they are called places.
 */
#ifndef PERF_REPLAY_OPTIMIZER_H
#define PERF_REPLAY_OPTIMIZER_H

#include <linnet/optim.h>

#include "replay.h"

typedef struct replay_option {
    const char *key;  /* in "hyper" */
    const char *name; /* of the option; NULL: the reference accepts it without any effect */
    uint32_t element; /* of a list, from 1; 0: the value itself */
} replay_option_t;

typedef struct replay_algorithm {
    const char *name; /* of the case */
    const char *optimizer;
    const char *fixed; /* options every case starts with: defaults of the published class */
    double eps;        /* its default, too */
    const replay_option_t *options;
} replay_algorithm_t;

typedef struct replay_piece {
    size_t offset, count;
} replay_piece_t;

typedef struct replay_tensor {
    replay_piece_t at;             /* in flat vectors */
    replay_piece_t worker, server; /* in error buffers, of one rank */
    int exponent;                  /* of gradients */
    uint32_t group, place;
    uint64_t rows, cols; /* 0: not a matrix */
} replay_tensor_t;

typedef struct replay_group {
    lnt_group_t values;
    bool masked;
} replay_group_t;

typedef struct replay_model {
    const case_file_t *file;
    const replay_algorithm_t *algorithm;
    const char *transport;
    uint32_t n_ranks, n_steps, n_tensors, n_groups;
    size_t n_elems, n_worker, n_server, n_buffers; /* elements of error buffers of one rank */
    bool closed, fused;
    replay_tensor_t *tensors;
    uint32_t *tensor_at; /* [n_tensors] by place */
    double tolerance;    /* of parameters and moments */
    replay_group_t *groups;
    case_array_t init, live, quad_h, quad_c, drawn, lr;
    char options[512];
} replay_model_t;

/* False with a problem. Release in any case. */
bool replay_model_read(replay_model_t *model, const case_file_t *file, char *problem, size_t size, int *code_p);
void replay_model_release(replay_model_t *model);
/* NULL if there is no such algorithm. */
const replay_algorithm_t *replay_algorithm_named(const char *name);
/* "hyper" as the options of the optimizer. */
bool replay_model_options(replay_model_t *model, char *problem, size_t size, int *code_p);

/* The local gradient of a rank with parameters x. */
void replay_gradient(const replay_model_t *model, uint32_t step, uint32_t rank, const float *x, float *out);

typedef struct replay_rank {
    lnt_plan_t *plan;
    lnt_optim_t *optim;
    float *x, *grads;     /* flat */
    const void **grad_at; /* [n_tensors] by place */
    float *last_scales;   /* [n_buffers] the worker's, of the last exchange */
} replay_rank_t;

typedef struct replay_run {
    replay_model_t model;
    replay_report_t *report;
    replay_rank_t ranks[REPLAY_MAX_RANKS];
    float *room; /* [n_elems] of the comparing rank */
    _Atomic uint32_t meetings;
} replay_run_t;

/* Compares every recorded array of this call; reads all ranks, which wait. Also once before the first call: names
 * arrays nobody knows. */
bool replay_compare_known(const replay_run_t *run, char *problem, size_t size);
void replay_compare(replay_run_t *run, uint32_t step);

/* One row of an array that the case recorded of this call. */
typedef struct replay_recorded {
    case_array_t array;
    size_t row, width; /* in elements */
    uint32_t step;
    const char *view; /* of the library */
} replay_recorded_t;

static inline const void *replay_recorded_row(const replay_recorded_t *recorded, size_t elem_bytes)
{
    return (const unsigned char *)recorded->array.data + recorded->row * recorded->width * elem_bytes;
}

static inline double replay_larger(double a, double b)
{
    return (a > b) ? a : b;
}

/* ---- the exchanges (replay_optimizer_frames.c) ----------------------------------------------------------------- */

void replay_note_scales(replay_run_t *run); /* before the deviations of a call */
uint32_t replay_coded_exchanges(const replay_run_t *run);

double replay_deviation_worker_scale(replay_run_t *run, const replay_recorded_t *recorded);
double replay_deviation_server_scale(replay_run_t *run, const replay_recorded_t *recorded);
double replay_deviation_worker_bits(replay_run_t *run, const replay_recorded_t *recorded);
double replay_deviation_server_bits(replay_run_t *run, const replay_recorded_t *recorded);
double replay_deviation_worker_error(replay_run_t *run, const replay_recorded_t *recorded);
double replay_deviation_server_error(replay_run_t *run, const replay_recorded_t *recorded);

#endif
