/* int4 and int4_hadamard, vector loops (intq_simd.h): two codes to a byte, of values as they are or of strips that were
 * rotated before (hadamard_math.h). A group of the rotation is a strip. Compiled per instruction set.
 */
#include "hadamard_math.h"
#include "intq_direct_simd.h"

_Static_assert((int)LNT_HADAMARD_GROUP == (int)STRIP, "a strip is rotated as a whole");

/* ---- int4 ---- */

static float int4_finish_ref(const lnt_codec_cfg_t *cfg, const lnt_measure_t *m, bool *poisoned)
{
    return lnt_int4_ops_ref.finish(cfg, m, poisoned);
}

LNT_INLINE float int4_scale_of(const lnt_codec_cfg_t *cfg, const lnt_chunk_t *chunk, size_t b, bool *poisoned)
{
    (void)cfg;
    return intq_scale_of(chunk->tops[b].live, LNT_INT4_TOP, poisoned);
}

static void int4_code(const lnt_chunk_t *chunk, uint8_t *codes, float *error)
{
    intq_code(chunk, LNT_INT4_TOP, strip_store_i4, 4, codes, error);
}

static uint64_t int4_direct(const lnt_codec_cfg_t *cfg, const lnt_encode_in_t *in, uint64_t start,
                            lnt_encode_out_t *out)
{
    const direct_form_t form = {LNT_INT4_TOP, fixed_store_i4, strip_store_i4, 4, 0};
    return intq_direct(form, 128, cfg, in, start, out);
}

LNT_INLINE void int4_values(const uint8_t *codes, const levels_t *levels, uint32_t lanes, vf *strip)
{
    vi numbers[STRIP_VECS];
    (void)lanes;
    strip_load_i4(codes, numbers);
    intq_values(numbers, levels->scale, strip);
}

LNT_INLINE void int4_sum(const uint8_t *const *codes, const float *scales, uint32_t n_runs, size_t n,
                         const uint8_t *live, bool add, float *out)
{
    simd_sum(int4_values, scale_alone, 4, codes, scales, n_runs, n, live, add, out);
}

LNT_INLINE lnt_block_codec_t int4(void)
{
    return (lnt_block_codec_t){.bits = 4,
                               .has_scales = true,
                               .strip = STRIP,
                               .stream_end = vec_stream_end,
                               .load = LNT_ISA_NAME(lnt_chunk_load),
                               .measure = intq_measure,
                               .finish = int4_finish_ref,
                               .scale = int4_scale_of,
                               .code = int4_code,
                               .direct = int4_direct,
                               .sum = int4_sum};
}

LNT_BLOCK_OPS(LNT_ISA_NAME(lnt_int4_ops), int4);

/* ---- int4_hadamard ---- */

/* lnt_hadamard_rotate: distances below VEC inside vectors, the others between them. */
LNT_INLINE void rotate(vf *strip)
{
    LNT_UNROLL
    for (int distance = 1; distance < VEC; distance *= 2) {
        LNT_UNROLL
        for (int v = 0; v < STRIP_VECS; v++)
            strip[v] = vf_butterfly(strip[v], distance);
    }
    LNT_UNROLL
    for (int apart = 1; apart < STRIP_VECS; apart *= 2) {
        LNT_UNROLL
        for (int v = 0; v < STRIP_VECS; v++) {
            if (v & apart) continue;
            vf low = strip[v], high = strip[v + apart];
            strip[v] = vf_add(low, high);
            strip[v + apart] = vf_sub(low, high);
        }
    }
}

LNT_INLINE void rotate_back(vf *strip)
{
    rotate(strip);
    LNT_UNROLL
    for (int v = 0; v < STRIP_VECS; v++)
        strip[v] = vf_mul(strip[v], vf_all(LNT_HADAMARD_INVERSE));
}

/* Only strips that are whole and live are rotated. Blocks are whole strips, so the end of the chunk decides. */
LNT_INLINE bool rotates(const lnt_chunk_t *chunk, size_t i)
{
    return strip_lanes(chunk->live, i, chunk->n) == ~0u;
}

/* The largest magnitude, rotated, of elements [i, end). */
static uint32_t hadamard_top(const lnt_chunk_t *chunk, size_t i, size_t end)
{
    vi largest = vi_all(0);
    for (; i < end; i += STRIP) {
        vf a[STRIP_VECS];
        prefetch_values(chunk->ahead, i, STRIP);
        strip_load(chunk->a + i, a);
        if (rotates(chunk, i)) rotate(a);
        LNT_UNROLL
        for (int v = 0; v < STRIP_VECS; v++)
            largest = vi_max(largest, vf_magnitude_bits(a[v]));
    }
    return vi_highest(largest);
}

static void hadamard_measure(const lnt_codec_cfg_t *cfg, const lnt_chunk_t *chunk, size_t shift, lnt_measure_t *m)
{
    uint32_t top = hadamard_top(chunk, 0, chunk->n);
    (void)cfg;
    (void)shift;
    if (top > m->amax_bits) m->amax_bits = top;
}

static float hadamard_scale_of(const lnt_codec_cfg_t *cfg, const lnt_chunk_t *chunk, size_t b, bool *poisoned)
{
    size_t first = b * chunk->block, end = chunk->n - first < chunk->block ? chunk->n : first + chunk->block;
    float scale = lnt_int4_scale(hadamard_top(chunk, first, end));
    (void)cfg;
    if (lnt_hadamard_scale_decodes(scale)) return scale;
    *poisoned = true;
    return 0.0f;
}

static float hadamard_finish_ref(const lnt_codec_cfg_t *cfg, const lnt_measure_t *m, bool *poisoned)
{
    return lnt_int4_hadamard_ops_ref.finish(cfg, m, poisoned);
}

/* Rotated, the largest magnitude is another one: every strip looks at its own. */
LNT_INLINE void hadamard_codes(const intq_chunk_t *k, const vf *turned, vi *codes)
{
    vi farthest = vi_all(0), largest = vi_all(0);
    LNT_UNROLL
    for (int v = 0; v < STRIP_VECS; v++)
        largest = vi_max(largest, vf_magnitude_bits(vf_mul(turned[v], k->inverse)));
    intq_multiply(k, turned, codes, &farthest);
    bool bounded = !vm_bits(vi_greater(largest, vf_bits(vf_all(LNT_INT4_TOP + 0.25f))));
    if (!k->multiply || !bounded || !intq_proved(k, farthest)) intq_divide(k, turned, codes);
}

LNT_INLINE void hadamard_code_strip(const intq_chunk_t *k, const float *from, bool rotated, uint8_t *codes,
                                    float *error, bool stream)
{
    vf a[STRIP_VECS], turned[STRIP_VECS], decoded[STRIP_VECS];
    vi strip[STRIP_VECS];
    strip_load(from, a);
    strip_load(from, turned);
    if (rotated) rotate(turned);
    hadamard_codes(k, turned, strip);
    strip_store_i4(codes, strip);
    if (!error) return;
    LNT_UNROLL
    for (int v = 0; v < STRIP_VECS; v++)
        decoded[v] = vf_mul(vi_to_float(strip[v]), k->scale);
    if (rotated) rotate_back(decoded);
    strip_store_error(error, a, decoded, stream);
}

/* Block b, which is elements [i, end). */
LNT_INLINE void hadamard_code_block(const lnt_chunk_t *chunk, size_t b, size_t i, size_t end, uint8_t *codes,
                                    float *error, bool stream)
{
    float scale = chunk->scales[b];
    const intq_chunk_t k = intq_chunk(scale, LNT_INT4_TOP);
    if (!(scale > 0.0f)) {
        memset(codes + i / 2, 0, (end - i + 1) / 2);
        if (error) memcpy(error + i, chunk->a + i, (end - i) * sizeof(*error));
        return;
    }
    for (; i < end; i += STRIP) {
        prefetch_both(chunk->ahead, i, STRIP);
        hadamard_code_strip(&k, chunk->a + i, rotates(chunk, i), codes + i / 2, error ? error + i : NULL, stream);
    }
}

static void hadamard_code(const lnt_chunk_t *chunk, uint8_t *codes, float *error)
{
    bool stream = error && streams(chunk, error);
    for (size_t i = 0, b = 0; i < chunk->n; i += chunk->block, b++)
        hadamard_code_block(chunk, b, i, chunk->n - i < chunk->block ? chunk->n : i + chunk->block, codes, error,
                            stream);
}

LNT_INLINE void hadamard_values(const uint8_t *codes, const levels_t *levels, uint32_t lanes, vf *strip)
{
    int4_values(codes, levels, lanes, strip);
    if (lanes == ~0u) rotate_back(strip);
}

LNT_INLINE void hadamard_sum(const uint8_t *const *codes, const float *scales, uint32_t n_runs, size_t n,
                             const uint8_t *live, bool add, float *out)
{
    simd_sum(hadamard_values, scale_alone, 4, codes, scales, n_runs, n, live, add, out);
}

LNT_INLINE lnt_block_codec_t int4_hadamard(void)
{
    return (lnt_block_codec_t){.bits = 4,
                               .has_scales = true,
                               .strip = STRIP,
                               .stream_end = vec_stream_end,
                               .load = LNT_ISA_NAME(lnt_chunk_load),
                               .measure = hadamard_measure,
                               .finish = hadamard_finish_ref,
                               .scale = hadamard_scale_of,
                               .sweeps = true,
                               .code = hadamard_code,
                               .sum = hadamard_sum};
}

LNT_BLOCK_OPS(LNT_ISA_NAME(lnt_int4_hadamard_ops), int4_hadamard);
