/* The yardsticks: a += b with the widest vectors of this machine, and memcpy of the C library. They work on the second
 * arena, over as many bytes as the operation's arrays have together.
 */
#include <string.h>

#include "codec_perf.h"

enum { UNIT = 1024, ADD_BYTES = 12, COPY_BYTES = 8 }; /* counted per element: two read and one written; one and one */

static float *half(const codec_case_t *test, const codec_lane_t *lane, uint32_t which)
{
    return (float *)(void *)test->yard + which * (lane->n + CODEC_YARD_APART);
}

/* A loop over vectors of _bytes bytes, compiled for one instruction set. */
#define ADD_LOOP(_name, _bytes, _target)                                                                               \
    typedef float _name##_t __attribute__((vector_size(_bytes), aligned(4), may_alias));                               \
    _target static void _name(float *restrict a, const float *restrict b, uint64_t n)                                  \
    {                                                                                                                  \
        enum { LANES = _bytes / 4 };                                                                                   \
        uint64_t i = 0;                                                                                                \
        for (; i + 4 * LANES <= n; i += 4 * LANES) {                                                                   \
            for (int k = 0; k < 4; k++)                                                                                \
                *(_name##_t *)(void *)(a + i + k * LANES) += *(const _name##_t *)(const void *)(b + i + k * LANES);    \
        }                                                                                                              \
        for (; i < n; i++)                                                                                             \
            a[i] += b[i];                                                                                              \
    }

ADD_LOOP(add_16, 16, )
#if defined(__x86_64__)
ADD_LOOP(add_32, 32, __attribute__((target("avx2"))))
ADD_LOOP(add_64, 64, __attribute__((target("avx512f"))))
#endif

typedef void (*add_fn_t)(float *restrict a, const float *restrict b, uint64_t n);

static add_fn_t widest_add(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return add_64;
    if (__builtin_cpu_supports("avx2")) return add_32;
#endif
    return add_16;
}

static void run_add(const codec_case_t *test, const codec_lane_t *lane, const codec_part_t *part)
{
    widest_add()(half(test, lane, 0) + part->first, half(test, lane, 1) + part->first, part->n);
}

static void run_copy(const codec_case_t *test, const codec_lane_t *lane, const codec_part_t *part)
{
    memcpy(half(test, lane, 0) + part->first, half(test, lane, 1) + part->first, part->n * sizeof(float));
}

void codec_yard_lanes(codec_case_t *test)
{
    uint64_t n = test->working_set / (2 * sizeof(float));

    n = n >= 16 ? n / 16 * 16 : 1;
    test->lanes[LANE_ADD] =
        (codec_lane_t){.name = "a+=b", .run = run_add, .n = n, .unit = UNIT, .counted_bytes = ADD_BYTES * (double)n};
    test->lanes[LANE_COPY] = (codec_lane_t){
        .name = "memcpy", .run = run_copy, .n = n, .unit = UNIT, .counted_bytes = COPY_BYTES * (double)n};
}

static void fill_share(void *arg, uint32_t member)
{
    codec_case_t *test = arg;
    const codec_lane_t *lane = &test->lanes[LANE_ADD];
    codec_part_t part = codec_part_of(lane->n, lane->unit, member, test->n_threads);

    for (uint64_t i = part.first; i < part.first + part.n; i++) {
        half(test, lane, 0)[i] = (float)(i % 1009);
        half(test, lane, 1)[i] = (float)(i % 997) * 0.01f;
    }
}

void codec_yard_fill(codec_case_t *test)
{
    (void)team_run(&test->world->team, fill_share, test);
}
