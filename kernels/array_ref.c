/* Elementwise work, reference: plain loops. Inner loops have constant trip counts, so that compilers vectorise them;
 * what is not whole pieces goes through padded scratch. */
#include <string.h>

#include "bf16_math.h"
#include "error_math.h"
#include "error_store.h"
#include "f16_math.h"
#include "impl.h"
#include "reduce_tree.h"

enum { PIECE = 128 };

static size_t piece_size(uint64_t left)
{
    return left < PIECE ? (size_t)left : PIECE;
}

static void add(float *sum, const float *more, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        sum[i] += more[i];
}

static bool scale(float *values, uint64_t n, float factor)
{
    uint32_t any = 0;
    for (uint64_t i = 0; i < n; i++) {
        values[i] *= factor;
        any |= lnt_f32_nonfinite_bit(values[i]);
    }
    return !(any >> 31);
}

static bool f32_widen_scaled(const void *values, uint64_t n, float factor, float *out)
{
    const float *from = values;
    uint32_t any = 0;
    for (uint64_t i = 0; i < n; i++) {
        out[i] = from[i] * factor;
        any |= lnt_f32_nonfinite_bit(out[i]);
    }
    return !(any >> 31);
}

static void f32_widen_add(const void *values, uint64_t n, float *sum)
{
    add(sum, values, n);
}

static void f32_widen(const void *values, uint64_t n, float *out)
{
    if (n) memcpy(out, values, n * sizeof(*out));
}

static void f32_narrow(const float *values, uint64_t n, void *out)
{
    if (n) memcpy(out, values, n * sizeof(*values));
}

/* All that depends on a 16-bit type whose arithmetic is lnt_<type>_value, _code and _overflow_bit. */
#define LNT_HALF_ARRAYS(_type)                                                                                         \
    static void _type##_widen(const void *values, uint64_t n, float *out)                                              \
    {                                                                                                                  \
        for (uint64_t i = 0; i < n; i += PIECE) {                                                                      \
            uint16_t codes[PIECE] = {0};                                                                               \
            float wide[PIECE];                                                                                         \
            size_t count = piece_size(n - i);                                                                          \
            memcpy(codes, (const uint8_t *)values + i * sizeof(*codes), count * sizeof(*codes));                       \
            for (size_t k = 0; k < PIECE; k++)                                                                         \
                wide[k] = lnt_##_type##_value(codes[k]);                                                               \
            memcpy(out + i, wide, count * sizeof(*wide));                                                              \
        }                                                                                                              \
    }                                                                                                                  \
    static void _type##_narrow(const float *values, uint64_t n, void *out)                                             \
    {                                                                                                                  \
        for (uint64_t i = 0; i < n; i += PIECE) {                                                                      \
            float wide[PIECE] = {0};                                                                                   \
            uint16_t codes[PIECE];                                                                                     \
            size_t count = piece_size(n - i);                                                                          \
            memcpy(wide, values + i, count * sizeof(*wide));                                                           \
            for (size_t k = 0; k < PIECE; k++)                                                                         \
                codes[k] = lnt_##_type##_code(wide[k]);                                                                \
            memcpy((uint8_t *)out + i * sizeof(*codes), codes, count * sizeof(*codes));                                \
        }                                                                                                              \
    }                                                                                                                  \
    static bool _type##_fits(const float *values, uint64_t n)                                                          \
    {                                                                                                                  \
        uint32_t any = 0;                                                                                              \
        for (uint64_t i = 0; i < n; i++)                                                                               \
            any |= lnt_##_type##_overflow_bit(values[i]);                                                              \
        return !(any >> 31);                                                                                           \
    }                                                                                                                  \
    static bool _type##_widen_scaled(const void *values, uint64_t n, float factor, float *out)                         \
    {                                                                                                                  \
        bool all = true;                                                                                               \
        for (uint64_t i = 0; i < n; i += PIECE) {                                                                      \
            _type##_widen((const uint8_t *)values + i * sizeof(uint16_t), piece_size(n - i), out + i);                 \
            all &= scale(out + i, piece_size(n - i), factor);                                                          \
        }                                                                                                              \
        return all;                                                                                                    \
    }                                                                                                                  \
    static void _type##_widen_add(const void *values, uint64_t n, float *sum)                                          \
    {                                                                                                                  \
        for (uint64_t i = 0; i < n; i += PIECE) {                                                                      \
            float wide[PIECE];                                                                                         \
            _type##_widen((const uint8_t *)values + i * sizeof(uint16_t), piece_size(n - i), wide);                    \
            add(sum + i, wide, piece_size(n - i));                                                                     \
        }                                                                                                              \
    }

LNT_HALF_ARRAYS(bf16)
LNT_HALF_ARRAYS(f16)

static bool finite(const float *values, uint64_t n)
{
    uint32_t any = 0;
    for (uint64_t i = 0; i < n; i++)
        any |= lnt_f32_nonfinite_bit(values[i]);
    return !(any >> 31);
}

static bool squares_fit(const float *values, const float *error, const uint8_t *live, uint64_t n)
{
    uint32_t any = 0;
    for (uint64_t i = 0; i < n; i++) {
        float value = error ? values[i] + error[i] : values[i];
        bool counts = !live || ((live[i / 8] >> (i % 8)) & 1);
        any |= counts ? lnt_f32_nonfinite_bit(value * value) : 0;
    }
    return !(any >> 31);
}

static double square_sum(const float *values, uint64_t n)
{
    double lanes[LNT_TREE_LANES] = {0};
    for (uint64_t i = 0; i < n; i++)
        lanes[i % LNT_TREE_LANES] += (double)values[i] * (double)values[i];
    return lnt_tree_combine(lanes);
}

/* ---- errors as int8 ---- */

/* Adding 1.5 * 2^23 rounds to the nearest integer, in the middle to the even one. */
#define ROUNDING 12582912.0f

/* A block, or the last part of one: inlined with a constant n for whole ones, which lets compilers vectorise it. */
static inline float keep_block(const float *restrict values, size_t n, int8_t *restrict codes)
{
    uint32_t amax = 0;
    float scale, inverse;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = lnt_f32_abs_bits(values[i]);
        amax = bits > amax ? bits : amax;
    }
    if (!lnt_error_is_kept(amax)) {
        memset(codes, 0, n);
        return 0;
    }
    scale = lnt_error_scale(amax);
    inverse = 1 / scale;
    for (size_t i = 0; i < n; i++)
        codes[i] = (int8_t)(int32_t)(lnt_f32_bits(values[i] * inverse + ROUNDING) - lnt_f32_bits(ROUNDING));
    return scale;
}

static void keep_int8(const float *values, uint64_t n, int8_t *codes, float *scales)
{
    uint64_t i = 0;
    for (; i + LNT_ERROR_BLOCK <= n; i += LNT_ERROR_BLOCK)
        scales[i / LNT_ERROR_BLOCK] = keep_block(values + i, LNT_ERROR_BLOCK, codes + i);
    if (i < n) scales[i / LNT_ERROR_BLOCK] = keep_block(values + i, (size_t)(n - i), codes + i);
}

static inline void kept_block(const int8_t *restrict codes, float scale, size_t n, float *restrict out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (float)codes[i] * scale;
}

static void kept_int8(const int8_t *codes, const float *scales, uint64_t n, float *out)
{
    uint64_t i = 0;
    for (; i + LNT_ERROR_BLOCK <= n; i += LNT_ERROR_BLOCK)
        kept_block(codes + i, scales[i / LNT_ERROR_BLOCK], LNT_ERROR_BLOCK, out + i);
    if (i < n) kept_block(codes + i, scales[i / LNT_ERROR_BLOCK], (size_t)(n - i), out + i);
}

const lnt_array_ops_t lnt_array_ops_ref = {
    .widen = {[LNT_F32] = f32_widen, [LNT_BF16] = bf16_widen, [LNT_F16] = f16_widen},
    .narrow = {[LNT_F32] = f32_narrow, [LNT_BF16] = bf16_narrow, [LNT_F16] = f16_narrow},
    .fits = {[LNT_F32] = finite, [LNT_BF16] = bf16_fits, [LNT_F16] = f16_fits},
    .widen_scaled = {[LNT_F32] = f32_widen_scaled, [LNT_BF16] = bf16_widen_scaled, [LNT_F16] = f16_widen_scaled},
    .widen_add = {[LNT_F32] = f32_widen_add, [LNT_BF16] = bf16_widen_add, [LNT_F16] = f16_widen_add},
    .add = add,
    .scale = scale,
    .finite = finite,
    .squares_fit = squares_fit,
    .square_sum = square_sum,
    .keep_int8 = keep_int8,
    .kept_int8 = kept_int8,
};
