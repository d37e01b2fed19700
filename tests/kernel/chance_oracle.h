/* Rounding by chance once more, from its definition, in f64 and without shared arithmetic. Formats by two numbers, so
 * that both take the same lines.
 */
#ifndef CHANCE_ORACLE_H
#define CHANCE_ORACLE_H

#include "half_oracle.h"

typedef struct oracle_format {
    int fraction, lowest; /* bits of the fraction, exponent of the smallest normal number */
    uint16_t inf;
} oracle_format_t;

static inline uint64_t oracle_mixed(uint64_t x, int bits, int first, uint64_t by, int second, uint64_t by_then,
                                    int last)
{
    uint64_t mask = bits == 64 ? UINT64_MAX : UINT32_MAX;
    x = ((x ^ x >> first) * by) & mask;
    x = ((x ^ x >> second) * by_then) & mask;
    return x ^ x >> last;
}

/* numerics.md, "Chance". */
static inline uint32_t oracle_random(uint64_t seed, uint64_t index)
{
    uint64_t high = index / 4294967296u, low = index % 4294967296u;
    uint64_t key =
        oracle_mixed(seed + high * 0x9e3779b97f4a7c15u, 64, 30, 0xbf58476d1ce4e5b9u, 27, 0x94d049bb133111ebu, 31);
    uint64_t once = oracle_mixed(low ^ key % 4294967296u, 32, 16, 0x7feb352d, 15, 0x846ca68b, 16);
    return (uint32_t)oracle_mixed((once + key / 4294967296u) % 4294967296u, 32, 16, 0x7feb352d, 15, 0x846ca68b, 16);
}

/* |v| in units of the format, as a whole number below and what is left in [0, 1). Exact in f64. */
static inline uint32_t oracle_units(const oracle_format_t *f, float v, int *exponent_p, double *rest_p)
{
    int exponent = v == 0 ? f->lowest : ilogb((double)v);
    *exponent_p = exponent;
    if (exponent < f->lowest) exponent = f->lowest;
    double units = ldexp(fabs((double)v), f->fraction - exponent);
    *rest_p = units - floor(units);
    return (uint32_t)floor(units);
}

/* The code of so many units; one more than the largest fraction is the next exponent. */
static inline uint16_t oracle_join(const oracle_format_t *f, float v, int exponent, uint32_t units)
{
    uint32_t raised = exponent > f->lowest ? (uint32_t)(exponent - f->lowest) << f->fraction : 0;
    uint32_t code = units + raised;
    if (code > f->inf) code = f->inf;
    return (uint16_t)(code | (signbit(v) ? 0x8000u : 0));
}

static inline bool oracle_special(const oracle_format_t *f, float v, uint16_t *code_p)
{
    uint32_t bits;
    memcpy(&bits, &v, 4);
    uint32_t kept = (bits & 0x7fffff) >> (23 - f->fraction), quiet = 1u << (f->fraction - 1);
    *code_p = (uint16_t)(f->inf | (bits >> 16 & 0x8000) | (isnan(v) ? kept | quiet : 0));
    return !isfinite(v);
}

/* Up if what is left and a random fraction reach 1. The fraction has as many bits as an f32 has behind the unit. */
static inline uint16_t oracle_by_chance(const oracle_format_t *f, float v, uint32_t random)
{
    int exponent;
    double rest;
    uint16_t special;
    if (oracle_special(f, v, &special)) return special;
    uint32_t units = oracle_units(f, v, &exponent, &rest);
    int bits = 23 - f->fraction;
    if (exponent < f->lowest) bits += f->lowest - exponent;
    if (f->lowest == -126) bits = 16; /* subnormals of bf16 are those of f32 */
    double fraction =
        bits <= 31 ? ldexp((double)(random % (UINT64_C(1) << bits)), -bits) : 0; /* f16 below 2^-32: none */
    return oracle_join(f, v, exponent, units + (rest + fraction >= 1));
}

static inline uint16_t oracle_bf16_by_chance(float v, uint32_t random)
{
    return oracle_by_chance(&(oracle_format_t){7, -126, 0x7f80}, v, random);
}

static inline uint16_t oracle_f16_by_chance(float v, uint32_t random)
{
    return oracle_by_chance(&(oracle_format_t){10, -14, 0x7c00}, v, random);
}

#endif
