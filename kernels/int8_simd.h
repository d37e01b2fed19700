/* int8, vector loops (intq_simd.h): a byte per code. Compiled per instruction set. */
#include "int8_math.h"
#include "intq_simd.h"

static float finish(const lnt_codec_cfg_t *cfg, const lnt_measure_t *m, bool *poisoned)
{
    return lnt_int8_ops_ref.finish(cfg, m, poisoned);
}

static void code(const lnt_chunk_t *chunk, float scale, uint8_t *codes, float *error)
{
    const intq_chunk_t k = intq_chunk(scale, LNT_INT8_TOP);
    if (intq_code_zero(chunk, scale, chunk->n, codes, error)) return;
    for (size_t i = 0; i < chunk->n; i += STRIP) {
        vf a[STRIP_VECS], numbers[STRIP_VECS], decoded[STRIP_VECS];
        vi strip[STRIP_VECS];
        strip_load(chunk->a + i, a);
        intq_strip(&k, a, strip, numbers);
        strip_store_i8(codes + i, strip);
        if (!error) continue;
        intq_scale_strip(&k, numbers, decoded);
        strip_store_error(error + i, a, decoded);
    }
}

LNT_INLINE void values(const uint8_t *codes, float scale, uint32_t lanes, vf *strip)
{
    vi numbers[STRIP_VECS];
    (void)lanes;
    LNT_UNROLL
    for (int v = 0; v < STRIP_VECS; v++)
        numbers[v] = vi_load_i8(codes + v * VEC);
    intq_values(numbers, scale, strip);
}

LNT_INLINE void sum(const uint8_t *const *codes, const float *scales, uint32_t n_runs, size_t n, const uint8_t *live,
                    bool add, float *out)
{
    simd_sum(values, 8, codes, scales, n_runs, n, live, add, out);
}

LNT_INLINE lnt_block_codec_t int8(void)
{
    return (lnt_block_codec_t){.bits = 8,
                               .has_scales = true,
                               .strip = STRIP,
                               .load = LNT_ISA_NAME(lnt_chunk_load),
                               .measure = intq_measure,
                               .finish = finish,
                               .code = code,
                               .sum = sum};
}

LNT_BLOCK_OPS(LNT_ISA_NAME(lnt_int8_ops), int8);
