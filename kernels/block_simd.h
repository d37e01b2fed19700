/* Vector kernels on the driver (block_driver.h): what the bodies <codec>_simd.h share. Loops go strip by strip; the
 * last strip may be short, and then its codes come from padded room and its values go through it.
 */
#ifndef LNT_BLOCK_SIMD_H
#define LNT_BLOCK_SIMD_H

#include "block_driver.h"
#include "vec.h"

lnt_tops_t LNT_ISA_NAME(lnt_chunk_load)(const lnt_encode_in_t *in, uint64_t first, size_t n, float *a);

/* The values of a strip of codes. `lanes`: the elements that exist and live; others may come out as anything. */
typedef void (*strip_values_fn)(const uint8_t *codes, float scale, uint32_t lanes, vf *values);

/* A bit for every element of the strip from i on that exists (is below n) and lives. */
LNT_INLINE uint32_t strip_lanes(const uint8_t *live, size_t i, size_t n)
{
    size_t count = n - i < STRIP ? n - i : STRIP;
    uint32_t lanes = ~0u;
    if (live) memcpy(&lanes, live + i / 8, (count + 7) / 8);
    return count < STRIP ? lanes & ((1u << count) - 1) : lanes;
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

/* error = a - decoded */
LNT_INLINE void strip_store_error(float *error, const vf *a, const vf *decoded)
{
    LNT_UNROLL
    for (int v = 0; v < STRIP_VECS; v++)
        vf_store(error + v * VEC, vf_sub(a[v], decoded[v]));
}

LNT_INLINE void strip_decode(strip_values_fn values, const uint8_t *codes, float scale, const uint8_t *live,
                             uint32_t lanes, vf *strip)
{
    values(codes, scale, lanes, strip);
    if (!live) return;
    LNT_UNROLL
    for (int v = 0; v < STRIP_VECS; v++)
        strip[v] = strip_choose(lanes, v, strip[v], vf_zero());
}

/* The strip whose codes are `at` bytes into every run; the sum stays in registers over all runs. */
LNT_INLINE void strip_sum(strip_values_fn values, const uint8_t *const *codes, const float *scales, uint32_t n_runs,
                          size_t at, const uint8_t *live, uint32_t lanes, bool add, float *out)
{
    vf sum[STRIP_VECS], more[STRIP_VECS];
    if (add)
        strip_load(out, sum);
    else
        strip_decode(values, codes[0] + at, scales[0], live, lanes, sum);
    for (uint32_t r = add ? 0 : 1; r < n_runs; r++) {
        strip_decode(values, codes[r] + at, scales[r], live, lanes, more);
        LNT_UNROLL
        for (int v = 0; v < STRIP_VECS; v++)
            sum[v] = vf_add(sum[v], more[v]);
    }
    strip_store(out, sum);
}

/* The last n - i < STRIP elements. */
LNT_INLINE void tail_sum(strip_values_fn values, uint32_t bits, const uint8_t *const *codes, const float *scales,
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
    strip_sum(values, padded, scales, n_runs, 0, live, strip_lanes(live, i, n), add, sums);
    memcpy(out + i, sums, (n - i) * sizeof(*sums));
}

/* lnt_block_codec_t.sum of a codec, of which `values` and `bits` are known. */
LNT_INLINE void simd_sum(strip_values_fn values, uint32_t bits, const uint8_t *const *codes, const float *scales,
                         uint32_t n_runs, size_t n, const uint8_t *live, bool add, float *out)
{
    size_t i = 0;
    for (; i + STRIP <= n; i += STRIP)
        strip_sum(values, codes, scales, n_runs, i * bits / 8, live, live ? load_u32(live + i / 8) : ~0u, add, out + i);
    if (i < n) tail_sum(values, bits, codes, scales, n_runs, i, n, live, add, out);
}

#endif
