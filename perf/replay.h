/* What the parts of linnet-replay share: the report, the world of threads, the rows of algorithms. */
#ifndef PERF_REPLAY_H
#define PERF_REPLAY_H

#include <stdatomic.h>

#include "../src/core/core.h"
#include "case_reader.h"

enum { REPLAY_OK = 0, REPLAY_DEVIATES = 1, REPLAY_USAGE = 2, REPLAY_UNSUPPORTED = 77, REPLAY_MAX_RANKS = 64 };

/* ---- report: one row per array and step --------------------------------------------------------------------- */

typedef struct replay_row {
    char array[32];
    size_t step;
    double deviation, tolerance;
} replay_row_t;

typedef struct replay_report {
    replay_row_t *rows;
    size_t n_rows, room;
    bool complete;     /* false: memory ran out */
    char problem[512]; /* what kept the case from being replayed, or "" */
} replay_report_t;

void replay_report_add(replay_report_t *report, const char *array, size_t step, double deviation, double tolerance);
/* Prints; writes JSON if path is not NULL. Returns an exit code. */
int replay_report_finish(const replay_report_t *report, const char *case_name, const char *json_path);

/* ---- comparisons: the deviation of one row of an array ------------------------------------------------------- */

/* Number of bytes that differ. */
double replay_bytes_differ(const void *got, const void *want, size_t bytes);
/* What is equal besides equal bits: nothing; NaN and NaN; anything where a non-finite value is wanted. */
typedef enum replay_equal { REPLAY_BITS_EQUAL, REPLAY_NANS_EQUAL, REPLAY_WILD_EQUAL } replay_equal_t;
double replay_bits_differ(const void *got, const void *want, size_t bytes);
/* Bits of signs between the library's order and the reference's, which has the first element in the most significant
 * bit. */
void replay_turn_bits(uint8_t *to, const uint8_t *from, size_t bytes);
/* Number of f32 that differ. `got` and `want` need no alignment. */
double replay_floats_differ(const void *got, const void *want, size_t count, replay_equal_t equal);
/* Largest |got - want| / max(|want|, unit); 0 / 0 counts as 0, a NaN as infinite. */
double replay_largest(const float *got, const float *want, size_t count, double unit);

/* ---- world: ranks as threads of this process ------------------------------------------------------------------ */

/* The body of a rank; arg is common to all. LNT_OK or an error whose record is the thread's last. */
typedef lnt_status_t (*replay_rank_fn_t)(lnt_comm_t *comm, void *arg);

/* Runs all ranks; on failure the first error's text goes to `problem`. */
lnt_status_t replay_world(uint32_t n_ranks, const int64_t *nodes, const char *transport, replay_rank_fn_t body,
                          void *arg, char *problem, size_t size);

/* One round of an exchange in several buckets: arms, starts, waits. *flags_p: the OR of all frames' flags. */
typedef struct replay_round {
    lnt_comm_t *comm;
    lnt_graph_t **graphs;
    _Atomic uint8_t *ready;
    lnt_job_t job;
} replay_round_t;

lnt_status_t replay_round_init(replay_round_t *round, lnt_comm_t *comm, lnt_exchange_t *const *exchanges, uint32_t n);
lnt_status_t replay_round_run(replay_round_t *round, uint8_t *flags_p);
void replay_round_release(replay_round_t *round);

/* ---- algorithms ----------------------------------------------------------------------------------------------- */

/* Replays and adds rows. REPLAY_OK (the report decides), REPLAY_USAGE or REPLAY_UNSUPPORTED with a problem. */
typedef struct replay_how {
    const char *algorithm; /* of the case */
    const char *transport; /* loop, or shm: all ranks on one node */
} replay_how_t;

typedef int (*replay_fn_t)(const case_file_t *file, const replay_how_t *how, replay_report_t *report);

int replay_exchange(const case_file_t *file, const replay_how_t *how, replay_report_t *report);
int replay_allreduce(const case_file_t *file, const replay_how_t *how, replay_report_t *report);
int replay_optimizer(const case_file_t *file, const replay_how_t *how, replay_report_t *report);
int replay_model_adam(const case_file_t *file, const replay_how_t *how, replay_report_t *report);

#endif
