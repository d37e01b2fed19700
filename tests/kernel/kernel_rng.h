/* Random numbers of the kernel tests. The seed is printed; LNT_TEST_SEED repeats a run. */
#ifndef KERNEL_RNG_H
#define KERNEL_RNG_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

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
    printf("seed: LNT_TEST_SEED=%" PRIu64 "\n", rng_state);
    (void)fflush(stdout);
}

/* A stream of its own for the i-th of several checks, which all start from the state of the program. */
static inline void rng_fork(uint64_t i)
{
    rng_state += i * 0xd1342543de82ef95u;
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

#endif
