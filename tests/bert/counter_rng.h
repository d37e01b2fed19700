/* Counter-based random numbers: every value is a hash of (key, counter), so data and masks depend on (seed, purpose,
 * step, rank) alone and never on the order of calls. Not for cryptography. */
#ifndef BERT_COUNTER_RNG_H
#define BERT_COUNTER_RNG_H

#include <math.h>
#include <stdint.h>

typedef enum rng_purpose { RNG_WEIGHTS = 1, RNG_TRAIN = 2, RNG_EVAL = 3 } rng_purpose_t;

/* Finalizer with full avalanche (two multiply-xorshift rounds). */
static inline uint64_t rng_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline uint64_t rng_key(uint64_t seed, rng_purpose_t purpose, uint64_t a, uint64_t b)
{
    uint64_t key = rng_mix(seed + 0x9e3779b97f4a7c15u);
    key = rng_mix(key ^ ((uint64_t)purpose << 56));
    key = rng_mix(key + a);
    return rng_mix(key ^ (b << 32));
}

static inline uint64_t rng_bits(uint64_t key, uint64_t counter)
{
    return rng_mix(key + (counter + 1) * 0x9e3779b97f4a7c15u);
}

/* Uniform in [0, n); the bias is below n / 2^32. */
static inline uint32_t rng_below(uint64_t key, uint64_t counter, uint32_t n)
{
    return (uint32_t)(((rng_bits(key, counter) >> 32) * n) >> 32);
}

/* Uniform in (0, 1). */
static inline double rng_uniform(uint64_t key, uint64_t counter)
{
    return ((double)(rng_bits(key, counter) >> 11) + 0.5) * 0x1p-53;
}

/* Standard normal, by Box and Muller; uses counters 2c and 2c + 1. */
static inline double rng_normal(uint64_t key, uint64_t counter)
{
    double radius = sqrt(-2.0 * log(rng_uniform(key, 2 * counter)));
    return radius * cos(6.283185307179586 * rng_uniform(key, 2 * counter + 1));
}

#endif
