/* The formulas of docs/perf.md, one row per operation. Header only, so that a test can read the same table.
 *
 * S is the size of the whole uncompressed buffer in bytes: count elements for all-reduce and broadcast, n * count for
 * all-gather and reduce-scatter. GB = 1e9 bytes. The bus factor turns S/t into what a link carries in the ideal
 * uncompressed algorithm, as nccl-tests does; the bytes of that algorithm per rank (a ring) are what `ratio` compares
 * wire bytes with.
 */
#ifndef PERF_PERF_FORMULAS_H
#define PERF_PERF_FORMULAS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum perf_op { PERF_ALLREDUCE, PERF_REDUCE_SCATTER, PERF_ALLGATHER, PERF_BROADCAST, PERF_OPS } perf_op_t;

typedef struct perf_formula {
    const char *name;
    bool per_rank; /* S holds count elements per rank */
    bool reduces;
    double steps; /* bus factor: steps * (n - 1) / n ... */
    bool whole;   /* ... or 1 */
} perf_formula_t;

static const perf_formula_t perf_formulas[PERF_OPS] = {
    [PERF_ALLREDUCE] = {.name = "allreduce", .reduces = true, .steps = 2},
    [PERF_REDUCE_SCATTER] = {.name = "reduce_scatter", .per_rank = true, .reduces = true, .steps = 1},
    [PERF_ALLGATHER] = {.name = "allgather", .per_rank = true, .steps = 1},
    [PERF_BROADCAST] = {.name = "broadcast", .whole = true},
};

static inline double perf_bus_factor(perf_op_t op, uint32_t n_ranks)
{
    return perf_formulas[op].whole ? 1.0 : perf_formulas[op].steps * (n_ranks - 1.0) / n_ranks;
}

/* GB/s; 0 for a time of 0. */
static inline double perf_algbw(double bytes, double seconds)
{
    return (seconds > 0) ? bytes / seconds / 1e9 : 0;
}

static inline double perf_busbw(perf_op_t op, uint32_t n_ranks, double bytes, double seconds)
{
    return perf_algbw(bytes, seconds) * perf_bus_factor(op, n_ranks);
}

/* Bytes a rank sends in an uncompressed ring. */
static inline double perf_ring_bytes(perf_op_t op, uint32_t n_ranks, double bytes)
{
    return (n_ranks > 1) ? bytes * perf_bus_factor(op, n_ranks) : 0;
}

/* 0 where nothing is sent. */
static inline double perf_ratio(perf_op_t op, uint32_t n_ranks, double bytes, uint64_t wire_bytes)
{
    return (wire_bytes > 0) ? perf_ring_bytes(op, n_ranks, bytes) / (double)wire_bytes : 0;
}

/* Elements per call for a buffer of at most `bytes`. */
static inline uint64_t perf_count(perf_op_t op, uint32_t n_ranks, uint64_t bytes, uint64_t elem_bytes)
{
    return bytes / elem_bytes / (perf_formulas[op].per_rank ? n_ranks : 1);
}

/* S of a call. */
static inline uint64_t perf_total_count(perf_op_t op, uint32_t n_ranks, uint64_t count)
{
    return count * (perf_formulas[op].per_rank ? n_ranks : 1);
}

#endif
