/* Shared by the kernel tests: seeded random numbers, kinds of data, and memory that ends at an inaccessible page.
 *
 * The seed is printed; LNT_TEST_SEED repeats a run.
 */
#ifndef KERNEL_TESTING_H
#define KERNEL_TESTING_H

#include <check.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "../../kernels/codec.h"
#include "../../kernels/impl.h"

static uint64_t rng_state;

static inline uint64_t rng_next(void)
{
    uint64_t z = (rng_state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline void rng_start(void)
{
    const char *text = getenv("LNT_TEST_SEED");
    rng_state = text ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);
    printf("seed %" PRIu64 "\n", rng_state);
}

static inline uint64_t rng_below(uint64_t n)
{
    return rng_next() % n;
}

/* Roughly normal: the sum of four uniforms. */
static inline double rng_normal(void)
{
    double sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (double)(rng_next() >> 11) * 0x1p-53 - 0.5;
    return sum * 1.7320508;
}

typedef enum data_kind {
    DATA_ZERO,
    DATA_MINUS_ZERO,
    DATA_CONSTANT,
    DATA_PLUS_MINUS_MAX,
    DATA_FLT_MAX,
    DATA_SUBNORMAL,
    DATA_NAN,
    DATA_INF,
    DATA_SPIKE,
    DATA_SPARSE,
    DATA_TINY,
    DATA_NORMAL,
    DATA_HUGE,
    DATA_TIES,
    DATA_COUNT
} data_kind_t;

static inline float data_value(data_kind_t kind, uint64_t i, uint64_t odd_one)
{
    float sign = rng_next() & 1 ? 1.0f : -1.0f;
    switch (kind) {
    case DATA_ZERO:
        return 0.0f;
    case DATA_MINUS_ZERO:
        return i % 3 ? -0.0f : 0.0f;
    case DATA_CONSTANT:
        return 0.1f;
    case DATA_PLUS_MINUS_MAX:
        return sign * 3.0f;
    case DATA_FLT_MAX:
        return sign * FLT_MAX;
    case DATA_SUBNORMAL:
        return sign * (float)rng_below(300) * 0x1p-149f;
    case DATA_NAN:
        return i == odd_one ? NAN : (float)rng_normal();
    case DATA_INF:
        return i == odd_one ? sign * INFINITY : (float)rng_normal();
    case DATA_SPIKE:
        return i == odd_one ? sign * 1e20f : (float)rng_normal();
    case DATA_SPARSE:
        return rng_below(50) ? 0.0f : (float)rng_normal();
    case DATA_TINY:
        return (float)(1e-30 * rng_normal());
    case DATA_HUGE:
        return (float)(1e30 * rng_normal());
    case DATA_TIES:
        return sign * ((float)rng_below(127) + 0.5f) * (i == odd_one ? 1.0f : 0.5f);
    default:
        return (float)rng_normal();
    }
}

static inline void data_fill(data_kind_t kind, float *values, uint64_t n)
{
    uint64_t odd_one = n ? rng_below(n) : 0;
    for (uint64_t i = 0; i < n; i++)
        values[i] = data_value(kind, i, odd_one);
}

/* `bytes` usable bytes that end at an inaccessible page; what lies before them is filled with GUARD. */
enum { GUARD = 0xa5, GUARD_BYTES = 64 };

typedef struct guarded {
    uint8_t *map;
    size_t room, map_bytes;
} guarded_t;

static inline guarded_t guarded_create(size_t room)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    guarded_t g = {.room = (room + GUARD_BYTES + page - 1) / page * page};
    g.map_bytes = g.room + page;
    g.map = mmap(NULL, g.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(g.map, MAP_FAILED);
    ck_assert_int_eq(mprotect(g.map + g.room, page, PROT_NONE), 0);
    return g;
}

static inline void guarded_destroy(guarded_t *g)
{
    munmap(g->map, g->map_bytes);
}

static inline void *guarded_take(const guarded_t *g, size_t bytes)
{
    uint8_t *start = g->map + g->room - bytes;
    memset(start - GUARD_BYTES, GUARD, bytes + GUARD_BYTES);
    return start;
}

static inline bool guarded_intact(const guarded_t *g, size_t bytes)
{
    for (size_t i = 1; i <= GUARD_BYTES; i++)
        if (g->map[g->room - bytes - i] != GUARD) return false;
    return true;
}

static inline int run_suite(Suite *suite)
{
    rng_start();
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
