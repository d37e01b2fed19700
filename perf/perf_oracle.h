/* What an operation must give, from its definition in float64: an oracle that shares no code with the library.
 *
 * Values are intervals: a middle and how far the library may be from it, because it computes in f32. Codecs are
 * monotone, so an interval goes through them by its ends; it stays narrow except where the input lies on a rounding
 * border, and there both answers are accepted. This is the bound that `#wrong` counts against.
 */
#ifndef PERF_PERF_ORACLE_H
#define PERF_PERF_ORACLE_H

#include "perf_tool.h"

enum { ORACLE_BLOCK_MAX = 4096 };

typedef struct oracle {
    const perf_world_t *world;
    perf_op_t op;
    uint64_t count;
    lnt_dtype_t dtype;
    lnt_redop_t redop;
    const char *codec; /* name of what travels, NULL: nothing is coded */
    uint32_t block;
    /* of one block */
    double exact[ORACLE_BLOCK_MAX];  /* without any codec */
    double value[ORACLE_BLOCK_MAX];  /* middle of what the library may give */
    double spread[ORACLE_BLOCK_MAX]; /* and how far from it */
    double v[ORACLE_BLOCK_MAX], dv[ORACLE_BLOCK_MAX], coded[ORACLE_BLOCK_MAX], dcoded[ORACLE_BLOCK_MAX]; /* scratch */
} oracle_t;

/* Does the lane's codec round by chance, so that every run gives other bytes? */
bool oracle_by_chance(const perf_lane_t *lane);

void oracle_init(oracle_t *oracle, const perf_case_t *test, const perf_lane_t *lane);

/* Blocks of the whole result of an operation: of all ranks' parts for reduce-scatter, and of every rank's run for
 * all-gather. */
uint64_t oracle_n_blocks(const oracle_t *oracle);
/* Fills the arrays for block k; *first_p is its first element in the whole result, the return its number of elements.
 */
uint32_t oracle_block(oracle_t *oracle, uint64_t k, uint64_t *first_p);

#endif
