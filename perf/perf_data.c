/* Inputs that every rank can compute for every other, and small all-gathers through the library itself.
 *
 * Numbers travel as 16-bit pieces, each an exact f32: nothing is assumed about how the library moves the bits of a
 * float.
 */
#include <stdlib.h>
#include <string.h>

#include "../src/base/error.h"
#include "perf_half.h"
#include "perf_tool.h"

enum { PIECES = 4, PIECE_BITS = 16 };

/* Uniform in [-1, 1), from a hash of all three. */
static float uniform(uint64_t seed, uint32_t rank, uint64_t index)
{
    uint64_t z = seed + rank * UINT64_C(0xd1342543de82ef95) + index * UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (float)((int32_t)(z >> 40) - (1 << 23)) * 0x1p-23f;
}

float perf_input(uint64_t seed, uint32_t rank, uint64_t index, lnt_dtype_t dtype)
{
    float x = uniform(seed, rank, index);

    return (float)half_round(half_of(dtype), x);
}

void perf_fill(const perf_world_t *world, uint64_t n_elems, void *values)
{
    const half_t *half = half_of(perf_dtype(world->config));

    for (uint64_t i = 0; i < n_elems; i++) {
        float x = uniform(world->seed, world->info.rank, i);
        if (half != NULL) {
            ((uint16_t *)values)[i] = half_code(half, half_round(half, x));
        } else {
            ((float *)values)[i] = x;
        }
    }
}

float perf_value(const void *values, uint64_t index, lnt_dtype_t dtype)
{
    const half_t *half = half_of(dtype);

    return (half != NULL) ? (float)half_value(half, ((const uint16_t *)values)[index]) : ((const float *)values)[index];
}

lnt_status_t perf_gather(lnt_comm_t *comm, uint32_t n_ranks, const uint64_t *mine, uint32_t n, uint64_t *all)
{
    float out[PERF_GATHER_MAX * PIECES];
    float *in = malloc((size_t)n_ranks * n * PIECES * sizeof(*in));
    lnt_status_t status;

    if (in == NULL) return perf_no_memory();
    for (uint32_t i = 0; i < n * PIECES; i++)
        out[i] = (float)(mine[i / PIECES] >> (i % PIECES * PIECE_BITS) & 0xffff);
    status = lnt_allgather(comm, out, in, (uint64_t)n * PIECES, LNT_F32, NULL);
    for (uint64_t i = 0; status >= 0 && i < (uint64_t)n_ranks * n; i++) {
        all[i] = 0;
        for (uint32_t p = 0; p < PIECES; p++)
            all[i] |= (uint64_t)in[i * PIECES + p] << (p * PIECE_BITS);
    }
    free(in);
    return status;
}

lnt_status_t perf_no_memory(void)
{
    return lnt_error(LNT_ERR_NO_MEMORY, "use smaller sizes or fewer ranks", "no memory for the measurement itself");
}

static lnt_status_t gather_fold(lnt_comm_t *comm, uint32_t n_ranks, uint64_t *values, uint32_t n, bool sum)
{
    uint64_t *all = malloc((size_t)n_ranks * n * sizeof(*all));
    lnt_status_t status = (all != NULL) ? perf_gather(comm, n_ranks, values, n, all) : perf_no_memory();

    for (uint32_t i = 0; status >= 0 && i < n; i++) {
        values[i] = 0;
        for (uint32_t r = 0; r < n_ranks; r++) {
            uint64_t x = all[(size_t)r * n + i];
            values[i] = sum ? values[i] + x : ((x > values[i]) ? x : values[i]);
        }
    }
    free(all);
    return status;
}

lnt_status_t perf_gather_max(lnt_comm_t *comm, uint32_t n_ranks, uint64_t *values, uint32_t n)
{
    return gather_fold(comm, n_ranks, values, n, false);
}

lnt_status_t perf_gather_sum(lnt_comm_t *comm, uint32_t n_ranks, uint64_t *values, uint32_t n)
{
    return gather_fold(comm, n_ranks, values, n, true);
}
