/* Vector kernels: how a chunk gets into scratch, in one pass over memory. Widened, its error added, its magnitudes
 * compared (which is the finite check and the maximum of integer codecs), dead elements cleared.
 *
 * Compiled once per instruction set (chunk_<isa>.c) and called once per chunk.
 */
#include "block_simd.h"

typedef struct source {
    const uint8_t *values;
    const float *error;
    const uint8_t *live;
} source_t;

LNT_INLINE vf load_values(lnt_dtype_t dtype, const uint8_t *values, size_t i)
{
    if (dtype == LNT_BF16) return vf_load_bf16(values + 2 * i);
    if (dtype == LNT_F16) return vf_load_f16(values + 2 * i);
    return vf_load((const float *)(const void *)(values + 4 * i));
}

/* Element i, the first of a strip, goes to a[i]. */
LNT_INLINE void load_strip(lnt_dtype_t dtype, const source_t *from, size_t i, uint32_t lanes, float *a, vi *all,
                           vi *live)
{
    LNT_UNROLL
    for (int v = 0; v < STRIP_VECS; v++) {
        size_t k = i + (size_t)v * VEC;
        vf x = load_values(dtype, from->values, k);
        if (from->error) x = vf_add(x, vf_load(from->error + k));
        *all = vi_max(*all, vf_magnitude_bits(x));
        if (from->live) {
            x = strip_choose(lanes, v, x, vf_zero());
            *live = vi_max(*live, vf_magnitude_bits(x));
        }
        vf_store(a + k, x);
    }
}

/* The last n < STRIP elements by way of padded room, so that nothing behind them is touched. */
LNT_INLINE void load_tail(lnt_dtype_t dtype, const source_t *from, size_t i, size_t n, float *a, vi *all, vi *live)
{
    alignas(64) uint8_t values[4 * STRIP] = {0};
    alignas(64) float error[STRIP] = {0};
    const size_t size = dtype == LNT_F32 ? 4 : 2;
    source_t tail = {values, from->error ? error : NULL, from->live};
    memcpy(values, from->values + i * size, n * size);
    if (from->error) memcpy(error, from->error + i, n * sizeof(*error));
    load_strip(dtype, &tail, 0, strip_lanes(from->live, i, i + n), a + i, all, live);
}

/* Which inputs there are is constant in each of the variants below. */
LNT_INLINE lnt_tops_t load_elements(lnt_dtype_t dtype, const source_t *from, size_t n, float *a)
{
    vi all = vi_all(0), live = vi_all(0);
    size_t i = 0;
    for (; i + STRIP <= n; i += STRIP)
        load_strip(dtype, from, i, from->live ? load_u32(from->live + i / 8) : ~0u, a, &all, &live);
    if (i < n) load_tail(dtype, from, i, n - i, a, &all, &live);
    lnt_tops_t tops = {.all = vi_highest(all)};
    tops.live = from->live ? vi_highest(live) : tops.all;
    return tops;
}

LNT_INLINE lnt_tops_t load_dtype(lnt_dtype_t dtype, const source_t *from, size_t n, float *a)
{
    const source_t bare = {from->values, NULL, NULL}, feedback = {from->values, from->error, NULL},
                   masked = {from->values, NULL, from->live};
    if (!from->live) return from->error ? load_elements(dtype, &feedback, n, a) : load_elements(dtype, &bare, n, a);
    return from->error ? load_elements(dtype, from, n, a) : load_elements(dtype, &masked, n, a);
}

lnt_tops_t LNT_ISA_NAME(lnt_chunk_load)(const lnt_encode_in_t *in, uint64_t first, size_t n, float *a)
{
    const source_t from = {(const uint8_t *)in->values + first * lnt_dtype_size(in->dtype),
                           in->error_in ? in->error_in + first : NULL, in->live ? in->live + first / 8 : NULL};
    size_t strips = (n + STRIP - 1) / STRIP * STRIP;
    memset(a + strips, 0, (n + LNT_PAD - strips) * sizeof(*a));
    if (in->dtype == LNT_BF16) return load_dtype(LNT_BF16, &from, n, a);
    if (in->dtype == LNT_F16) return load_dtype(LNT_F16, &from, n, a);
    return load_dtype(LNT_F32, &from, n, a);
}
