/* int4 and int4_hadamard, vector loops (intq_simd.h): two codes to a byte, of values as they are or of strips that were
 * rotated before (hadamard_math.h). A group of the rotation is a strip. Compiled per instruction set.
 */
#include "hadamard_math.h"
#include "intq_simd.h"

_Static_assert((int)LNT_HADAMARD_GROUP == (int)STRIP, "a strip is rotated as a whole");

/* ---- int4 ---- */

static float int4_finish_ref(const lnt_codec_cfg_t *cfg, const lnt_measure_t *m, bool *poisoned)
{
    return lnt_int4_ops_ref.finish(cfg, m, poisoned);
}

static void int4_code(const lnt_chunk_t *chunk, float scale, uint8_t *codes, float *error)
{
    const intq_chunk_t k = intq_chunk(scale, LNT_INT4_TOP);
    if (intq_code_zero(chunk, scale, (chunk->n + 1) / 2, codes, error)) return;
    for (size_t i = 0; i < chunk->n; i += STRIP) {
        vf a[STRIP_VECS], numbers[STRIP_VECS], decoded[STRIP_VECS];
        vi strip[STRIP_VECS];
        strip_load(chunk->a + i, a);
        intq_strip(&k, a, strip, numbers);
        strip_store_i4(codes + i / 2, strip);
        if (!error) continue;
        intq_scale_strip(&k, numbers, decoded);
        strip_store_error(error + i, a, decoded);
    }
}

LNT_INLINE void int4_values(const uint8_t *codes, float scale, uint32_t lanes, vf *strip)
{
    vi numbers[STRIP_VECS];
    (void)lanes;
    strip_load_i4(codes, numbers);
    intq_values(numbers, scale, strip);
}

LNT_INLINE void int4_sum(const uint8_t *const *codes, const float *scales, uint32_t n_runs, size_t n,
                         const uint8_t *live, bool add, float *out)
{
    simd_sum(int4_values, 4, codes, scales, n_runs, n, live, add, out);
}

LNT_INLINE lnt_block_codec_t int4(void)
{
    return (lnt_block_codec_t){.bits = 4,
                               .has_scales = true,
                               .strip = STRIP,
                               .load = LNT_ISA_NAME(lnt_chunk_load),
                               .measure = intq_measure,
                               .finish = int4_finish_ref,
                               .code = int4_code,
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

/* Only strips that are whole and live are rotated. */
LNT_INLINE bool rotates(const lnt_chunk_t *chunk, size_t i)
{
    return strip_lanes(chunk->live, i, chunk->n) == ~0u;
}

static void hadamard_measure(const lnt_codec_cfg_t *cfg, const lnt_chunk_t *chunk, size_t shift, lnt_measure_t *m)
{
    vi largest = vi_all((int32_t)m->amax_bits);
    (void)cfg;
    (void)shift;
    for (size_t i = 0; i < chunk->n; i += STRIP) {
        vf a[STRIP_VECS];
        strip_load(chunk->a + i, a);
        if (rotates(chunk, i)) rotate(a);
        LNT_UNROLL
        for (int v = 0; v < STRIP_VECS; v++)
            largest = vi_max(largest, vf_magnitude_bits(a[v]));
    }
    m->amax_bits = vi_highest(largest);
}

static float hadamard_finish_ref(const lnt_codec_cfg_t *cfg, const lnt_measure_t *m, bool *poisoned)
{
    return lnt_int4_hadamard_ops_ref.finish(cfg, m, poisoned);
}

LNT_INLINE void hadamard_code_strip(const intq_chunk_t *k, const float *from, bool rotated, uint8_t *codes,
                                    float *error)
{
    vf a[STRIP_VECS], turned[STRIP_VECS], numbers[STRIP_VECS], decoded[STRIP_VECS];
    vi strip[STRIP_VECS];
    strip_load(from, a);
    strip_load(from, turned);
    if (rotated) rotate(turned);
    intq_strip(k, turned, strip, numbers);
    strip_store_i4(codes, strip);
    if (!error) return;
    intq_scale_strip(k, numbers, decoded);
    if (rotated) rotate_back(decoded);
    strip_store_error(error, a, decoded);
}

static void hadamard_code(const lnt_chunk_t *chunk, float scale, uint8_t *codes, float *error)
{
    const intq_chunk_t k = intq_chunk(scale, LNT_INT4_TOP);
    if (intq_code_zero(chunk, scale, (chunk->n + 1) / 2, codes, error)) return;
    for (size_t i = 0; i < chunk->n; i += STRIP)
        hadamard_code_strip(&k, chunk->a + i, rotates(chunk, i), codes + i / 2, error ? error + i : NULL);
}

LNT_INLINE void hadamard_values(const uint8_t *codes, float scale, uint32_t lanes, vf *strip)
{
    int4_values(codes, scale, lanes, strip);
    if (lanes == ~0u) rotate_back(strip);
}

LNT_INLINE void hadamard_sum(const uint8_t *const *codes, const float *scales, uint32_t n_runs, size_t n,
                             const uint8_t *live, bool add, float *out)
{
    simd_sum(hadamard_values, 4, codes, scales, n_runs, n, live, add, out);
}

LNT_INLINE lnt_block_codec_t int4_hadamard(void)
{
    return (lnt_block_codec_t){.bits = 4,
                               .has_scales = true,
                               .strip = STRIP,
                               .load = LNT_ISA_NAME(lnt_chunk_load),
                               .measure = hadamard_measure,
                               .finish = hadamard_finish_ref,
                               .code = hadamard_code,
                               .sum = hadamard_sum};
}

LNT_BLOCK_OPS(LNT_ISA_NAME(lnt_int4_hadamard_ops), int4_hadamard);
