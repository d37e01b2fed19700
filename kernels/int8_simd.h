/* int8, vector loops (intq_simd.h): a byte per code. Compiled per instruction set. */
#include "int8_math.h"
#include "intq_direct_simd.h"

static float finish(const lnt_codec_cfg_t *cfg, const lnt_measure_t *m, bool *poisoned)
{
    return lnt_int8_ops_ref.finish(cfg, m, poisoned);
}

LNT_INLINE float scale_of(const lnt_codec_cfg_t *cfg, const lnt_chunk_t *chunk, size_t b, bool *poisoned)
{
    (void)cfg;
    return intq_scale_of(chunk->tops[b].live, LNT_INT8_TOP, poisoned);
}

static void code(const lnt_chunk_t *chunk, uint8_t *codes, float *error)
{
    intq_code(chunk, LNT_INT8_TOP, strip_store_i8, 8, codes, error);
}

static uint64_t direct(const lnt_codec_cfg_t *cfg, const lnt_encode_in_t *in, uint64_t start, lnt_encode_out_t *out)
{
    const direct_form_t form = {LNT_INT8_TOP, fixed_store_i8, strip_store_i8, 8, 0};
    return intq_direct(form, 256, cfg, in, start, out);
}

LNT_INLINE void values(const uint8_t *codes, const levels_t *levels, uint32_t lanes, vf *strip)
{
    vi numbers[STRIP_VECS];
    (void)lanes;
    LNT_UNROLL
    for (int v = 0; v < STRIP_VECS; v++)
        numbers[v] = vi_load_i8(codes + v * VEC);
    intq_values(numbers, levels->scale, strip);
}

LNT_INLINE void sum(const uint8_t *const *codes, const float *scales, uint32_t n_runs, size_t n, const uint8_t *live,
                    bool add, float *out)
{
    simd_sum(values, scale_alone, 8, codes, scales, n_runs, n, live, add, out);
}

LNT_INLINE lnt_block_codec_t int8(void)
{
    return (lnt_block_codec_t){.bits = 8,
                               .has_scales = true,
                               .strip = STRIP,
                               .stream_end = vec_stream_end,
                               .load = LNT_ISA_NAME(lnt_chunk_load),
                               .measure = intq_measure,
                               .finish = finish,
                               .scale = scale_of,
                               .code = code,
                               .direct = direct,
                               .sum = sum};
}

LNT_BLOCK_OPS(LNT_ISA_NAME(lnt_int8_ops), int8);
