/* Kinds of data that codecs are tested with, as a table: name and value of element i. The random numbers are the
 * program's (kernel_testing.h).
 *
 * Kinds whose border depends on the codec aim at it from the formula: "halves" lie at the middle between two codes of
 * an integer codec or one bit beside it, "edges" at the middle between two 16-bit numbers. Other codecs take them as
 * any other data.
 */
#ifndef DATA_KINDS_H
#define DATA_KINDS_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernel_rng.h"

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
    DATA_INT8_HALVES,
    DATA_INT4_HALVES,
    DATA_BF16_EDGES,
    DATA_F16_EDGES,
    DATA_F16_SUBNORMAL,
    DATA_BF16_OVERFLOW,
    DATA_F16_OVERFLOW,
    DATA_ANY_FINITE,
    DATA_SUM_BORDER, /* normal here; matrix_case.h moves sums to a border */
    DATA_COUNT
} data_kind_t;

typedef struct data_place {
    uint64_t i, odd_one;
    float sign; /* random */
    float unit; /* of the whole fill: a step between codes */
} data_place_t;

static inline float data_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* The number or one of its neighbours. */
static inline float data_beside(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return value == 0.0f ? value : data_from_bits(bits + (uint32_t)rng_below(3) - 1);
}

static inline float data_normal(const data_place_t *p)
{
    (void)p;
    return (float)rng_normal();
}

static inline float data_zero(const data_place_t *p)
{
    (void)p;
    return 0.0f;
}

static inline float data_minus_zero(const data_place_t *p)
{
    return p->i % 3 ? -0.0f : 0.0f;
}

static inline float data_constant(const data_place_t *p)
{
    (void)p;
    return 0.1f;
}

static inline float data_plus_minus_max(const data_place_t *p)
{
    return p->sign * 3.0f;
}

static inline float data_flt_max(const data_place_t *p)
{
    return p->sign * FLT_MAX;
}

static inline float data_subnormal(const data_place_t *p)
{
    return p->sign * (float)rng_below(300) * 0x1p-149f;
}

static inline float data_nan(const data_place_t *p)
{
    return p->i == p->odd_one ? NAN : data_normal(p);
}

static inline float data_inf(const data_place_t *p)
{
    return p->i == p->odd_one ? p->sign * INFINITY : data_normal(p);
}

static inline float data_spike(const data_place_t *p)
{
    return p->i == p->odd_one ? p->sign * 1e20f : data_normal(p);
}

static inline float data_sparse(const data_place_t *p)
{
    return rng_below(50) ? 0.0f : data_normal(p);
}

static inline float data_tiny(const data_place_t *p)
{
    return 1e-30f * data_normal(p);
}

static inline float data_huge(const data_place_t *p)
{
    return 1e30f * data_normal(p);
}

static inline float data_ties(const data_place_t *p)
{
    return p->sign * ((float)rng_below(127) + 0.5f) * (p->i == p->odd_one ? 1.0f : 0.5f);
}

/* Every 64th element, so some element of every block, is the top; the others lie at code + 1/2. */
static inline float data_halves(const data_place_t *p, float top)
{
    float scale = p->unit * top / top;
    if (p->i % 64 == 0) return p->sign * (p->unit * top);
    return data_beside(p->sign * ((float)rng_below((uint64_t)top) + 0.5f) * scale);
}

static inline float data_int8_halves(const data_place_t *p)
{
    return data_halves(p, 127.0f);
}

static inline float data_int4_halves(const data_place_t *p)
{
    return data_halves(p, 7.0f);
}

/* Exponents that no 16-bit type loses, the dropped bits at one half or one beside it. */
static inline float data_edge(const data_place_t *p, unsigned dropped, uint32_t lowest, uint32_t exponents)
{
    uint32_t half = 1u << (dropped - 1), kept = (uint32_t)rng_next() << dropped & 0x7fffffu;
    uint32_t exponent = lowest + (uint32_t)rng_below(exponents);
    return p->sign * data_from_bits((exponent << 23 | kept | half) + (uint32_t)rng_below(3) - 1);
}

static inline float data_bf16_edges(const data_place_t *p)
{
    return data_edge(p, 16, 1, 253);
}

static inline float data_f16_edges(const data_place_t *p)
{
    return data_edge(p, 13, 113, 29);
}

/* Multiples of half the smallest f16, up to its first normal numbers. */
static inline float data_f16_subnormal(const data_place_t *p)
{
    return data_beside(p->sign * (float)rng_below(4200) * 0x1p-25f);
}

/* One element at the border to what rounds to Inf. */
static inline float data_bf16_overflow(const data_place_t *p)
{
    return p->i == p->odd_one ? p->sign * data_beside(data_from_bits(0x7f7f8000u)) : data_normal(p);
}

static inline float data_f16_overflow(const data_place_t *p)
{
    return p->i == p->odd_one ? p->sign * data_beside(65520.0f) : data_normal(p);
}

static inline float data_any_finite(const data_place_t *p)
{
    return p->sign * data_from_bits((uint32_t)rng_below(0x7f800000u));
}

typedef struct data_row {
    const char *name;
    float (*value)(const data_place_t *place);
} data_row_t;

static const data_row_t data_rows[DATA_COUNT] = {
    [DATA_ZERO] = {"zero", data_zero},
    [DATA_MINUS_ZERO] = {"minus zero", data_minus_zero},
    [DATA_CONSTANT] = {"constant", data_constant},
    [DATA_PLUS_MINUS_MAX] = {"plus or minus the maximum", data_plus_minus_max},
    [DATA_FLT_MAX] = {"plus or minus FLT_MAX", data_flt_max},
    [DATA_SUBNORMAL] = {"subnormal", data_subnormal},
    [DATA_NAN] = {"one NaN", data_nan},
    [DATA_INF] = {"one Inf", data_inf},
    [DATA_SPIKE] = {"one spike", data_spike},
    [DATA_SPARSE] = {"sparse", data_sparse},
    [DATA_TINY] = {"tiny", data_tiny},
    [DATA_NORMAL] = {"normal", data_normal},
    [DATA_HUGE] = {"huge", data_huge},
    [DATA_TIES] = {"ties", data_ties},
    [DATA_INT8_HALVES] = {"middles between codes of int8", data_int8_halves},
    [DATA_INT4_HALVES] = {"middles between codes of int4", data_int4_halves},
    [DATA_BF16_EDGES] = {"middles between bf16", data_bf16_edges},
    [DATA_F16_EDGES] = {"middles between f16", data_f16_edges},
    [DATA_F16_SUBNORMAL] = {"subnormal f16", data_f16_subnormal},
    [DATA_BF16_OVERFLOW] = {"one at the overflow of bf16", data_bf16_overflow},
    [DATA_F16_OVERFLOW] = {"one at the overflow of f16", data_f16_overflow},
    [DATA_ANY_FINITE] = {"any finite bits", data_any_finite},
    [DATA_SUM_BORDER] = {"sums at a border of rounding", data_normal},
};

/* A step between codes: mostly in the middle of the range, sometimes a power of two (so that middles are exact), and
 * sometimes so small that it is subnormal. */
static inline float data_unit(void)
{
    float fraction = rng_below(2) ? 1.0f : data_from_bits(0x3f800000u | (uint32_t)rng_below(0x800000u));
    int exponent = rng_below(4) ? (int)rng_below(60) - 30 : (int)rng_below(250) - 145;
    return ldexpf(fraction, exponent);
}

static inline void data_fill(data_kind_t kind, float *values, uint64_t n)
{
    data_place_t place = {.odd_one = n ? rng_below(n) : 0, .unit = data_unit()};
    for (place.i = 0; place.i < n; place.i++) {
        place.sign = rng_next() >> 63 ? 1.0f : -1.0f;
        values[place.i] = data_rows[kind].value(&place);
    }
}

#endif
