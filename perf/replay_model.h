/* Algorithm "onebit_adam" of the executable model: what reading (replay_model_case.c) and running (replay_model_adam.c)
 * share. */
#ifndef PERF_REPLAY_MODEL_H
#define PERF_REPLAY_MODEL_H

#include <linnet/optim.h>

#include "replay.h"

enum { REPLAY_MODEL_OPTIONS = 256 };

/* What is compared, every step, by every rank. */
typedef enum replay_oracle_array {
    MODEL_PARAM,
    MODEL_M,
    MODEL_V,
    MODEL_WORKER_ERROR,
    MODEL_SERVER_ERROR,
    MODEL_DEAD,
    MODEL_DENOMINATOR,
    MODEL_COUNTERS,
    MODEL_POWERS,
    MODEL_CLIP_RATIO,
    MODEL_WIRE,
    MODEL_CASE_ARRAYS, /* those before are arrays of the case */
    MODEL_LATCHES = MODEL_CASE_ARRAYS,
    MODEL_OWNERS,
    MODEL_ARRAYS
} replay_oracle_array_t;

extern const char *const replay_oracle_names[MODEL_ARRAYS];

typedef struct replay_oracle {
    const case_file_t *file;
    uint32_t n_ranks, n_nodes, n_steps, n_tensors, freeze_step, block;
    uint64_t n_elems, bucket_elems, segment;
    int64_t nodes[REPLAY_MAX_RANKS];
    double loss_scale;
    lnt_group_t group;
    char options[REPLAY_MODEL_OPTIONS];
    const float *start, *grads;               /* [N], [T][n][N] */
    const uint8_t *wanted[MODEL_CASE_ARRAYS]; /* one row per step */
    size_t row_bytes[MODEL_CASE_ARRAYS];
    _Atomic uint64_t *differ; /* [MODEL_ARRAYS][T]: bytes or items, summed over ranks */
} replay_oracle_t;

/* False with a problem and *code_p. */
bool replay_oracle_read(replay_oracle_t *set, const case_file_t *file, replay_report_t *report, int *code_p);

/* Of tensor t: first element, elements. */
uint64_t replay_oracle_offset(const replay_oracle_t *set, uint32_t t);
uint64_t replay_oracle_count(const replay_oracle_t *set, uint32_t t);
/* The rank that owns an error in a step, by the case's list; -1: nobody. */
int64_t replay_oracle_owner(const replay_oracle_t *set, bool warm, const lnt_error_extent_t *extent, uint64_t offset);
uint64_t replay_oracle_owned(const replay_oracle_t *set, bool warm, uint32_t rank); /* elements of errors */
/* Own updates of the block at `offset` after a step; -1: not latched. */
int64_t replay_oracle_updates(const replay_oracle_t *set, uint32_t step, uint32_t tensor, uint64_t offset);

#endif
