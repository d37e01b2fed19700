/* f32, vector loops: the value is the code. Compiled per instruction set. */
#include "block_simd.h"
#include "impl.h"

static float no_scale(const lnt_codec_cfg_t *cfg, const lnt_measure_t *m, bool *poisoned)
{
    return lnt_f32_ops_ref.finish(cfg, m, poisoned);
}

static void code(const lnt_chunk_t *chunk, uint8_t *codes, float *error)
{
    memcpy(codes, chunk->a, chunk->n * sizeof(*chunk->a));
    if (error) memset(error, 0, chunk->n * sizeof(*error));
}

LNT_INLINE void values(const uint8_t *codes, const levels_t *levels, uint32_t lanes, vf *strip)
{
    (void)levels;
    (void)lanes;
    strip_load((const float *)(const void *)codes, strip);
}

LNT_INLINE void sum(const uint8_t *const *codes, const float *scales, uint32_t n_runs, size_t n, const uint8_t *live,
                    bool add, float *out)
{
    simd_sum(values, scale_alone, 32, codes, scales, n_runs, n, live, add, out);
}

LNT_INLINE lnt_block_codec_t f32(void)
{
    return (lnt_block_codec_t){
        .bits = 32, .strip = 1, .load = LNT_ISA_NAME(lnt_chunk_load), .finish = no_scale, .code = code, .sum = sum};
}

LNT_BLOCK_OPS(LNT_ISA_NAME(lnt_f32_ops), f32);
