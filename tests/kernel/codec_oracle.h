/* The codecs once more, straight from the formulas: one element at a time, no scratch, no shared arithmetic with
 * kernels/. Slow and plain on purpose.
 */
#ifndef CODEC_ORACLE_H
#define CODEC_ORACLE_H

#include "chance_oracle.h"
#include "hadamard_oracle.h"
#include "kernel_testing.h"

typedef struct oracle_block {
    const float *a; /* input + error, before masking */
    uint64_t n;
    const uint8_t *live; /* or NULL */
    float scale;
    bool poisoned;
    uint8_t *codes;
    uint64_t seed, index; /* of rounding by chance; index of the first element */
    float group[32];      /* decoded elements before group_end; 0: none yet */
    uint64_t group_end;
} oracle_block_t;

static inline bool oracle_live(const oracle_block_t *b, uint64_t i)
{
    return !b->live || (b->live[i / 8] >> (i % 8)) % 2;
}

/* The tree as a recursion over its definition: group l of four lanes, halving. */
static inline double oracle_group(const double *lane, int l, int groups)
{
    if (groups == 32) return (lane[4 * l] + lane[4 * l + 1]) + (lane[4 * l + 2] + lane[4 * l + 3]);
    return oracle_group(lane, l, 2 * groups) + oracle_group(lane, l + groups, 2 * groups);
}

/* The lanes of the tree, and how many elements live. */
static inline uint64_t oracle_lanes(const oracle_block_t *b, lnt_scale_rule_t rule, double *lane)
{
    uint64_t count = 0;
    memset(lane, 0, 128 * sizeof(*lane));
    for (uint64_t i = 0; i < b->n; i++) {
        if (!oracle_live(b, i)) continue;
        double v = (double)b->a[i];
        lane[i % 128] += rule == LNT_SCALE_L1 ? fabs(v) : v * v;
        count++;
    }
    return count;
}

static inline float oracle_sign_scale(const oracle_block_t *b, lnt_scale_rule_t rule)
{
    double lane[128];
    uint64_t count = oracle_lanes(b, rule, lane);
    if (!count) return 0.0f;
    double mean = oracle_group(lane, 0, 1) / (double)count;
    return rule == LNT_SCALE_L1 ? (float)mean : (float)sqrt(mean);
}

/* ---- 16-bit formats ---- */

static inline bool oracle_is_half(const lnt_codec_row_t *row)
{
    return row->bits == 16;
}

static inline uint16_t oracle_half(const oracle_block_t *b, const lnt_codec_row_t *row, uint64_t i)
{
    float v = b->a[i];
    switch (row->id) {
    case LNT_CODEC_BF16_SR:
        return oracle_bf16_by_chance(v, oracle_random(b->seed, b->index + i));
    case LNT_CODEC_F16_SR:
        return oracle_f16_by_chance(v, oracle_random(b->seed, b->index + i));
    case LNT_CODEC_F16:
        return oracle_f16(v);
    default:
        return oracle_bf16(v);
    }
}

static inline float oracle_half_value(const lnt_codec_row_t *row, uint16_t code)
{
    bool narrow = row->id == LNT_CODEC_F16 || row->id == LNT_CODEC_F16_SR;
    return narrow ? oracle_f16_value(code) : oracle_bf16_value(code);
}

/* ---- integer codes ---- */

static inline float oracle_top(const lnt_codec_row_t *row)
{
    return row->id == LNT_CODEC_INT8 ? 127.0f : row->bits == 4 ? 7.0f : 0.0f;
}

static inline bool oracle_rotated(const oracle_block_t *b, const lnt_codec_row_t *row, uint64_t first)
{
    if (row->id != LNT_CODEC_INT4_HADAMARD || first + 32 > b->n) return false;
    for (uint64_t i = first; i < first + 32; i++)
        if (!oracle_live(b, i)) return false;
    return true;
}

/* What is coded instead of the 32 elements from `first` on: dead ones are 0. */
static inline void oracle_turn(const oracle_block_t *b, const lnt_codec_row_t *row, uint64_t first, float *out)
{
    for (uint64_t k = 0; k < 32; k++)
        out[k] = first + k < b->n && oracle_live(b, first + k) ? b->a[first + k] : 0.0f;
    if (oracle_rotated(b, row, first)) oracle_hadamard(out, 32);
}

static inline float oracle_int_scale(oracle_block_t *b, const lnt_codec_row_t *row)
{
    float top = 0.0f, group[32], reach = row->id == LNT_CODEC_INT4_HADAMARD ? 32.0f : 1.0f;
    for (uint64_t i = 0; i < b->n; i += 32) {
        oracle_turn(b, row, i, group);
        for (int k = 0; k < 32; k++)
            if (!(fabsf(group[k]) <= top)) top = isfinite(group[k]) ? fabsf(group[k]) : INFINITY;
    }
    float scale = top / oracle_top(row);
    if (!isfinite(scale * oracle_top(row) * reach)) b->poisoned = true;
    return scale;
}

static inline void oracle_put_ints(oracle_block_t *b, const lnt_codec_row_t *row)
{
    float top = oracle_top(row), group[32];
    for (uint64_t i = 0; i < b->n && b->scale > 0; i++) {
        if (i % 32 == 0) oracle_turn(b, row, i, group);
        float q = rintf(group[i % 32] / b->scale);
        int code = (int)(q > top ? top : q < -top ? -top : q);
        if (row->bits == 8)
            b->codes[i] = (uint8_t)code;
        else
            b->codes[i / 2] = (uint8_t)(b->codes[i / 2] | (unsigned)(code + 16) % 16 << 4 * (i % 2));
    }
}

static inline float oracle_int(const oracle_block_t *b, const lnt_codec_row_t *row, uint64_t i)
{
    int code = row->bits == 8 ? b->codes[i] : b->codes[i / 2] >> 4 * (i % 2) & 15, half = 1 << (row->bits - 1);
    return (float)(code < half ? code : code - 2 * half) * b->scale;
}

/* Elements of a rotated group are known together. */
static inline float oracle_int_value(oracle_block_t *b, const lnt_codec_row_t *row, uint64_t i)
{
    uint64_t first = i - i % 32;
    if (!oracle_rotated(b, row, first)) return oracle_int(b, row, i);
    if (b->group_end != first + 32) {
        for (uint64_t k = 0; k < 32; k++)
            b->group[k] = oracle_int(b, row, first + k);
        oracle_hadamard(b->group, 32);
        b->group_end = first + 32;
    }
    return b->group[i - first] * (1.0f / 32);
}

/* ---- blocks ---- */

static inline void oracle_put_other(oracle_block_t *b, const lnt_codec_row_t *row, uint64_t i)
{
    float v = b->a[i];
    if (row->id == LNT_CODEC_SIGN1 && v >= 0) b->codes[i / 8] |= (uint8_t)(1u << (i % 8));
    if (row->id == LNT_CODEC_F32) memcpy(b->codes + 4 * i, &v, 4);
    if (oracle_is_half(row)) {
        uint16_t half = oracle_half(b, row, i);
        memcpy(b->codes + 2 * i, &half, 2);
    }
}

/* Codes of all elements (zeroed by the caller) under the block's scale. */
static inline void oracle_put(oracle_block_t *b, const lnt_codec_row_t *row)
{
    b->group_end = 0;
    if (oracle_top(row) > 0) oracle_put_ints(b, row);
    for (uint64_t i = 0; i < b->n; i++)
        if (oracle_live(b, i)) oracle_put_other(b, row, i);
}

static inline float oracle_get(oracle_block_t *b, const lnt_codec_row_t *row, uint64_t i)
{
    float v = 0.0f;
    uint16_t half;
    if (!oracle_live(b, i)) return 0.0f;
    if (oracle_top(row) > 0) return oracle_int_value(b, row, i);
    if (oracle_is_half(row)) {
        memcpy(&half, b->codes + 2 * i, 2);
        return oracle_half_value(row, half);
    }
    if (row->id == LNT_CODEC_F32) {
        memcpy(&v, b->codes + 4 * i, 4);
        return v;
    }
    if (b->scale == 0) return 0.0f;
    return (b->codes[i / 8] >> (i % 8)) % 2 ? b->scale : -b->scale;
}

static inline void oracle_decode(oracle_block_t *b, const lnt_codec_row_t *row, float *values)
{
    for (uint64_t i = 0; i < b->n; i++)
        values[i] = oracle_get(b, row, i);
}

static inline bool oracle_overflows(const oracle_block_t *b, const lnt_codec_row_t *row, uint64_t i)
{
    return oracle_is_half(row) && oracle_live(b, i) && !isfinite(oracle_half_value(row, oracle_half(b, row, i)));
}

/* Scale, codes (zeroed by the caller) and poison of one block. */
static inline void oracle_encode(oracle_block_t *b, const lnt_codec_row_t *row, lnt_scale_rule_t rule)
{
    b->scale = 0.0f;
    b->poisoned = false;
    for (uint64_t i = 0; i < b->n; i++)
        if (!isfinite(b->a[i]) || oracle_overflows(b, row, i)) b->poisoned = true;
    if (!b->poisoned && row->id == LNT_CODEC_SIGN1) b->scale = oracle_sign_scale(b, rule);
    if (!b->poisoned && oracle_top(row) > 0) b->scale = oracle_int_scale(b, row);
    if (b->poisoned) b->scale = 0.0f;
    if (b->poisoned && row->has_scales) return; /* codes 0; without a scale values pass as they are */
    oracle_put(b, row);
}

#endif
