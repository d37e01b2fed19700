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

LNT_INLINE void clear_strip(float *a)
{
    LNT_UNROLL
    for (int v = 0; v < STRIP_VECS; v++)
        vf_store(a + v * VEC, vf_zero());
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
    const size_t size = element_size(dtype);
    source_t tail = {values, from->error ? error : NULL, from->live};
    memcpy(values, from->values + i * size, n * size);
    if (from->error) memcpy(error, from->error + i, n * sizeof(*error));
    load_strip(dtype, &tail, 0, strip_lanes(from->live, i, i + n), a + i, all, live);
}

/* Block b, which is elements [i, end). Which inputs there are is constant in each of the variants below. */
LNT_INLINE lnt_tops_t load_block(lnt_dtype_t dtype, const source_t *from, size_t i, size_t end, float *a)
{
    vi all = vi_all(0), live = vi_all(0);
    for (; i + STRIP <= end; i += STRIP)
        load_strip(dtype, from, i, from->live ? load_u32(from->live + i / 8) : ~0u, a, &all, &live);
    if (i < end) load_tail(dtype, from, i, end - i, a, &all, &live);
    uint32_t top_all = vi_highest(all);
    return (lnt_tops_t){top_all, from->live ? vi_highest(live) : top_all};
}

LNT_INLINE void load_blocks(lnt_dtype_t dtype, const source_t *from, size_t n, size_t block, float *a, lnt_tops_t *tops)
{
    for (size_t i = 0, b = 0; i < n; i += block, b++)
        tops[b] = load_block(dtype, from, i, n - i < block ? n : i + block, a);
}

LNT_INLINE void load_dtype(lnt_dtype_t dtype, const source_t *from, size_t n, size_t block, float *a, lnt_tops_t *tops)
{
    const source_t bare = {from->values, NULL, NULL}, feedback = {from->values, from->error, NULL},
                   masked = {from->values, NULL, from->live};
    if (from->error && from->live)
        load_blocks(dtype, from, n, block, a, tops);
    else if (from->live)
        load_blocks(dtype, &masked, n, block, a, tops);
    else if (from->error)
        load_blocks(dtype, &feedback, n, block, a, tops);
    else
        load_blocks(dtype, &bare, n, block, a, tops);
}

/* Whole rounds of f32 to which nothing is to be done stay where they are. Blocks are whole strips. */
LNT_INLINE void look_at(const float *a, size_t n, size_t block, lnt_tops_t *tops)
{
    for (size_t i = 0, b = 0; i < n; i += block, b++)
        tops[b].all = tops[b].live = top_of(a + i, n - i < block ? n - i : block);
}

void LNT_ISA_NAME(lnt_chunk_load)(const lnt_encode_in_t *in, uint64_t first, size_t n, float *room, lnt_chunk_t *chunk)
{
    const source_t from = {(const uint8_t *)in->values + first * element_size(in->dtype),
                           in->error_in ? in->error_in + first : NULL, chunk->live};
    chunk->n = n;
    chunk->a = room;
    if (in->dtype == LNT_F32 && !from.error && !from.live && n % LNT_PAD == 0) {
        chunk->a = (const float *)(const void *)from.values;
        look_at(chunk->a, n, chunk->block, chunk->tops);
        return;
    }
    for (size_t i = (n + STRIP - 1) / STRIP * STRIP; i % LNT_PAD; i += STRIP)
        clear_strip(room + i);
    if (in->dtype == LNT_BF16)
        load_dtype(LNT_BF16, &from, n, chunk->block, room, chunk->tops);
    else if (in->dtype == LNT_F16)
        load_dtype(LNT_F16, &from, n, chunk->block, room, chunk->tops);
    else
        load_dtype(LNT_F32, &from, n, chunk->block, room, chunk->tops);
}

/* n elements, whole strips. */
LNT_INLINE void add_error(lnt_dtype_t dtype, const source_t *from, size_t n, float *a)
{
    for (size_t i = 0; i < n; i += STRIP) {
        LNT_UNROLL
        for (int v = 0; v < STRIP_VECS; v++) {
            size_t k = i + (size_t)v * VEC;
            vf x = load_values(dtype, from->values, k);
            vf_store(a + k, from->error ? vf_add(x, vf_load(from->error + k)) : x);
        }
    }
}

LNT_INLINE void add_dtype(lnt_dtype_t dtype, const source_t *from, size_t n, float *a)
{
    const source_t bare = {from->values, NULL, NULL};
    if (from->error)
        add_error(dtype, from, n, a);
    else
        add_error(dtype, &bare, n, a);
}

void LNT_ISA_NAME(lnt_chunk_add)(const lnt_encode_in_t *in, uint64_t first, size_t n, float *room, lnt_chunk_t *chunk)
{
    const source_t from = {(const uint8_t *)in->values + first * element_size(in->dtype),
                           in->error_in ? in->error_in + first : NULL, NULL};
    chunk->n = n;
    chunk->a = room;
    if (in->dtype == LNT_BF16)
        add_dtype(LNT_BF16, &from, n, room);
    else if (in->dtype == LNT_F16)
        add_dtype(LNT_F16, &from, n, room);
    else if (from.error)
        add_error(LNT_F32, &from, n, room);
    else
        chunk->a = (const float *)(const void *)from.values;
}
