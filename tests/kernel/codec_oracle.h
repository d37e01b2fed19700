/* The codecs once more, straight from the formulas: one element at a time, no scratch, no shared arithmetic with
 * kernels/. Slow and plain on purpose.
 */
#ifndef CODEC_ORACLE_H
#define CODEC_ORACLE_H

#include "half_oracle.h"
#include "kernel_testing.h"

typedef struct oracle_block {
    const float *a; /* input + error, before masking */
    uint64_t n;
    const uint8_t *live;  /* or NULL */
    uint64_t seed, index; /* chance: of the first element */
    float scale;
    bool poisoned;
    uint8_t *codes;
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

static inline float oracle_sign_scale(const oracle_block_t *b, lnt_scale_rule_t rule)
{
    double lane[128] = {0};
    uint64_t count = 0;
    for (uint64_t i = 0; i < b->n; i++) {
        if (!oracle_live(b, i)) continue;
        double v = (double)b->a[i];
        lane[i % 128] += rule == LNT_SCALE_L1 ? fabs(v) : v * v;
        count++;
    }
    if (!count) return 0.0f;
    double mean = oracle_group(lane, 0, 1) / (double)count;
    return rule == LNT_SCALE_L1 ? (float)mean : (float)sqrt(mean);
}

static inline float oracle_int8_scale(oracle_block_t *b)
{
    float top = 0.0f;
    for (uint64_t i = 0; i < b->n; i++)
        if (oracle_live(b, i) && fabsf(b->a[i]) > top) top = fabsf(b->a[i]);
    float scale = top / 127.0f;
    if (!isfinite(scale * 127.0f)) b->poisoned = true;
    return scale;
}

static inline void oracle_put(oracle_block_t *b, const lnt_codec_row_t *row, uint64_t i)
{
    float v = b->a[i];
    if (row->id == LNT_CODEC_SIGN1 && v >= 0) b->codes[i / 8] |= (uint8_t)(1u << (i % 8));
    if (row->id == LNT_CODEC_F32) memcpy(b->codes + 4 * i, &v, 4);
    if (row->id == LNT_CODEC_BF16) {
        uint16_t half = oracle_bf16(v);
        memcpy(b->codes + 2 * i, &half, 2);
    }
    if (row->id == LNT_CODEC_INT8 && b->scale > 0) {
        float q = rintf(v / b->scale);
        b->codes[i] = (uint8_t)(int8_t)(q > 127 ? 127 : q < -127 ? -127 : q);
    }
}

static inline float oracle_get(const oracle_block_t *b, const lnt_codec_row_t *row, uint64_t i)
{
    float v = 0.0f;
    uint16_t half;
    if (!oracle_live(b, i)) return 0.0f;
    switch (row->id) {
    case LNT_CODEC_SIGN1:
        if (b->scale == 0) return 0.0f;
        return (b->codes[i / 8] >> (i % 8)) % 2 ? b->scale : -b->scale;
    case LNT_CODEC_INT8:
        return (float)(int8_t)b->codes[i] * b->scale;
    case LNT_CODEC_BF16:
        memcpy(&half, b->codes + 2 * i, 2);
        return oracle_bf16_value(half);
    default:
        memcpy(&v, b->codes + 4 * i, 4);
        return v;
    }
}

static inline void oracle_decode(const oracle_block_t *b, const lnt_codec_row_t *row, float *values)
{
    for (uint64_t i = 0; i < b->n; i++)
        values[i] = oracle_get(b, row, i);
}

/* Scale, codes (zeroed by the caller) and poison of one block. */
static inline void oracle_encode(oracle_block_t *b, const lnt_codec_row_t *row, lnt_scale_rule_t rule)
{
    b->scale = 0.0f;
    b->poisoned = false;
    for (uint64_t i = 0; i < b->n; i++) {
        if (!isfinite(b->a[i])) b->poisoned = true;
        if (row->id == LNT_CODEC_BF16 && oracle_live(b, i) && !isfinite(oracle_bf16_value(oracle_bf16(b->a[i]))))
            b->poisoned = true;
    }
    if (!b->poisoned && row->id == LNT_CODEC_SIGN1) b->scale = oracle_sign_scale(b, rule);
    if (!b->poisoned && row->id == LNT_CODEC_INT8) b->scale = oracle_int8_scale(b);
    if (b->poisoned) b->scale = 0.0f;
    if (b->poisoned && row->has_scales) return; /* codes 0; without a scale values pass as they are */
    for (uint64_t i = 0; i < b->n; i++)
        if (oracle_live(b, i)) oracle_put(b, row, i);
}

#endif
