/* Vector kernels on the driver (block_driver.h): what the bodies <codec>_simd.h share. Loops go strip by strip; the
 * last strip may be short, and then its codes come from padded room and its values go through it.
 */
#ifndef LNT_BLOCK_SIMD_H
#define LNT_BLOCK_SIMD_H

#include "block_driver.h"
#include "vec.h"

void LNT_ISA_NAME(lnt_chunk_load)(const lnt_encode_in_t *in, uint64_t first, size_t n, float *room, lnt_chunk_t *chunk);

/* The same for n elements that are whole rounds and all alive, where nobody needs tops. */
void LNT_ISA_NAME(lnt_chunk_add)(const lnt_encode_in_t *in, uint64_t first, size_t n, float *room, lnt_chunk_t *chunk);

/* The numbers that decode a block; `low` is of sign1 alone. */
typedef struct levels {
    float scale, low;
} levels_t;

/* The values of a strip of codes. `levels`: what the codec made of the scale for all strips. `lanes`: the elements that
 * exist and live; others may come out as anything. */
typedef void (*strip_values_fn)(const uint8_t *codes, const levels_t *levels, uint32_t lanes, vf *values);

typedef levels_t (*levels_fn)(float scale);

/* Asks for what elements [i, i + n) of the next chunk will need, a constant number of them. Spread over the loops that
 * only compute, this keeps memory busy all the time: sign1 with error feedback in memory went from 0.63 to 0.80 of
 * a += b. */
LNT_INLINE void prefetch(uintptr_t address, size_t n)
{
    enum { LINE = 64 };
    LNT_UNROLL
    for (size_t at = 0; at < n * sizeof(float); at += LINE)
        __builtin_prefetch((const void *)(address + at));
}

LNT_INLINE void prefetch_values(lnt_ahead_t ahead, size_t i, size_t n)
{
    prefetch(ahead.values + (i << ahead.value_shift), n);
}

LNT_INLINE void prefetch_both(lnt_ahead_t ahead, size_t i, size_t n)
{
    prefetch_values(ahead, i, n);
    prefetch(ahead.error + (i << 2), n);
}

/* The same for the next piece, which is further away: the second-level cache will do. */
LNT_INLINE void prefetch_next(lnt_ahead_t ahead, size_t i, size_t n)
{
    enum { LINE = 64 };
    LNT_UNROLL
    for (int k = 0; k < LNT_NEXTS; k++) {
        LNT_UNROLL
        for (size_t at = 0; at < n * sizeof(float); at += LINE)
            __builtin_prefetch((const void *)(ahead.next[k] + i * sizeof(float) + at), 0, 2);
    }
}

/* A bit for every element of the strip from i on that exists (is below n) and lives. */
LNT_INLINE uint32_t strip_lanes(const uint8_t *live, size_t i, size_t n)
{
    size_t count = n - i < STRIP ? n - i : STRIP;
    uint32_t lanes = ~0u;
    if (live) memcpy(&lanes, live + i / 8, (count + 7) / 8);
    return count < STRIP ? lanes & ((1u << count) - 1) : lanes;
}

LNT_INLINE size_t element_size(lnt_dtype_t dtype)
{
    return dtype == LNT_F32 ? 4 : 2;
}

LNT_INLINE vf load_values(lnt_dtype_t dtype, const uint8_t *values, size_t i)
{
    if (dtype == LNT_BF16) return vf_load_bf16(values + 2 * i);
    if (dtype == LNT_F16) return vf_load_f16(values + 2 * i);
    return vf_load((const float *)(const void *)(values + 4 * i));
}

/* The largest magnitude of n elements, whole strips, as bits. Several maxima, so that one need not wait for the other.
 */
LNT_INLINE uint32_t top_of(const float *a, size_t n)
{
    vi tops[STRIP_VECS];
    LNT_UNROLL
    for (int v = 0; v < STRIP_VECS; v++)
        tops[v] = vi_all(0);
    for (size_t i = 0; i < n; i += STRIP) {
        LNT_UNROLL
        for (int v = 0; v < STRIP_VECS; v++)
            tops[v] = vi_max(tops[v], vf_magnitude_bits(vf_load(a + i + v * VEC)));
    }
    LNT_UNROLL
    for (int v = 1; v < STRIP_VECS; v++)
        tops[0] = vi_max(tops[0], tops[v]);
    return vi_highest(tops[0]);
}

LNT_INLINE void strip_load(const float *from, vf *strip)
{
    LNT_UNROLL
    for (int v = 0; v < STRIP_VECS; v++)
        strip[v] = vf_load(from + v * VEC);
}

LNT_INLINE void strip_store(float *to, const vf *strip)
{
    LNT_UNROLL
    for (int v = 0; v < STRIP_VECS; v++)
        vf_store(to + v * VEC, strip[v]);
}

/* Around the caches where asked and possible. */
LNT_INLINE bool streams(const lnt_chunk_t *chunk, const float *error)
{
    return chunk->stream && (uintptr_t)error % (VEC * sizeof(float)) == 0;
}

LNT_INLINE void error_store(float *to, vf x, bool stream)
{
    if (stream)
        vf_stream(to, x);
    else
        vf_store(to, x);
}

/* error = a - decoded */
LNT_INLINE void strip_store_error(float *error, const vf *a, const vf *decoded, bool stream)
{
    LNT_UNROLL
    for (int v = 0; v < STRIP_VECS; v++)
        error_store(error + v * VEC, vf_sub(a[v], decoded[v]), stream);
}

LNT_INLINE levels_t scale_alone(float scale)
{
    return (levels_t){.scale = scale};
}

LNT_INLINE void strip_decode(strip_values_fn values, const uint8_t *codes, const levels_t *levels, const uint8_t *live,
                             uint32_t lanes, vf *strip)
{
    values(codes, levels, lanes, strip);
    if (!live) return;
    LNT_UNROLL
    for (int v = 0; v < STRIP_VECS; v++)
        strip[v] = strip_choose(lanes, v, strip[v], vf_zero());
}

/* The strip whose codes are `at` bytes into every run; the sum stays in registers over all runs. */
LNT_INLINE void strip_sum(strip_values_fn values, const uint8_t *const *codes, const levels_t *levels, uint32_t n_runs,
                          size_t at, const uint8_t *live, uint32_t lanes, bool add, float *out)
{
    vf sum[STRIP_VECS], more[STRIP_VECS];
    if (add)
        strip_load(out, sum);
    else
        strip_decode(values, codes[0] + at, &levels[0], live, lanes, sum);
    for (uint32_t r = add ? 0 : 1; r < n_runs; r++) {
        strip_decode(values, codes[r] + at, &levels[r], live, lanes, more);
        LNT_UNROLL
        for (int v = 0; v < STRIP_VECS; v++)
            sum[v] = vf_add(sum[v], more[v]);
    }
    strip_store(out, sum);
}

/* The last n - i < STRIP elements. */
LNT_INLINE void tail_sum(strip_values_fn values, uint32_t bits, const uint8_t *const *codes, const levels_t *levels,
                         uint32_t n_runs, size_t i, size_t n, const uint8_t *live, bool add, float *out)
{
    alignas(64) uint8_t room[LNT_RUNS_AT_ONCE][4 * STRIP];
    alignas(64) float sums[STRIP] = {0};
    const uint8_t *padded[LNT_RUNS_AT_ONCE];
    for (uint32_t r = 0; r < n_runs; r++) {
        memset(room[r], 0, sizeof(room[r]));
        memcpy(room[r], codes[r] + i * bits / 8, ((n - i) * bits + 7) / 8);
        padded[r] = room[r];
    }
    if (add) memcpy(sums, out + i, (n - i) * sizeof(*sums));
    strip_sum(values, padded, levels, n_runs, 0, live, strip_lanes(live, i, n), add, sums);
    memcpy(out + i, sums, (n - i) * sizeof(*sums));
}

/* lnt_block_codec_t.sum of a codec of which the others are known. */
LNT_INLINE void simd_sum(strip_values_fn values, levels_fn make_levels, uint32_t bits, const uint8_t *const *codes,
                         const float *scales, uint32_t n_runs, size_t n, const uint8_t *live, bool add, float *out)
{
    levels_t levels[LNT_RUNS_AT_ONCE];
    uint32_t r = 0;
    size_t i = 0;
    do
        levels[r] = make_levels(scales[r]);
    while (++r < n_runs); /* there is one at least */
    for (; i + STRIP <= n; i += STRIP)
        strip_sum(values, codes, levels, n_runs, i * bits / 8, live, live ? load_u32(live + i / 8) : ~0u, add, out + i);
    if (i < n) tail_sum(values, bits, codes, levels, n_runs, i, n, live, add, out);
}

#endif
