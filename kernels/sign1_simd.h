/* sign1, vector loops: f64 lanes swept in columns, signs by comparison, values by choice. Compiled per instruction set.
 */
#include "block_simd.h"
#include "impl.h"
#include "sign1_math.h"

enum { COLUMN = SWEEP_VECS * VECD, COLUMNS = LNT_TREE_LANES / COLUMN };

/* A column of the lanes down all rounds of the chunk. The product of two f32 is exact in f64, so fused or not makes no
 * difference. */
LNT_INLINE void sweep(lnt_scale_rule_t rule, const float *base, size_t n, double *lanes)
{
    vd sums[SWEEP_VECS];
    LNT_UNROLL
    for (int k = 0; k < SWEEP_VECS; k++)
        sums[k] = vd_load(lanes + k * VECD);
    for (size_t i = 0; i < n; i += LNT_TREE_LANES) {
        LNT_UNROLL
        for (int k = 0; k < SWEEP_VECS; k++) {
            vd x = vd_load_f32(base + i + k * VECD);
            sums[k] = rule == LNT_SCALE_L1 ? vd_add(sums[k], vd_magnitude(x)) : vd_multiply_add(x, x, sums[k]);
        }
    }
    LNT_UNROLL
    for (int k = 0; k < SWEEP_VECS; k++)
        vd_store(lanes + k * VECD, sums[k]);
}

static void measure(const lnt_codec_cfg_t *cfg, const lnt_chunk_t *chunk, size_t shift, lnt_measure_t *m)
{
    const float *base = chunk->a - shift;
    for (int c = 0; c < COLUMNS; c++) {
        if (cfg->scale_rule == LNT_SCALE_L1)
            sweep(LNT_SCALE_L1, base + c * COLUMN, shift + chunk->n, m->lanes + c * COLUMN);
        else
            sweep(LNT_SCALE_L2, base + c * COLUMN, shift + chunk->n, m->lanes + c * COLUMN);
    }
}

static float finish(const lnt_codec_cfg_t *cfg, const lnt_measure_t *m, bool *poisoned)
{
    return lnt_sign1_ops_ref.finish(cfg, m, poisoned);
}

/* Dead elements are +0 here and would code as 1. */
LNT_INLINE void code_strip(const float *a, vf positive, vf negative, const uint8_t *live, uint32_t lanes,
                           uint8_t *codes, float *error)
{
    uint32_t word = 0;
    LNT_UNROLL
    for (int v = 0; v < STRIP_VECS; v++) {
        vf x = vf_load(a + v * VEC);
        vm up = vf_at_least(x, vf_zero());
        word |= vm_bits(up) << (v * VEC);
        if (!error) continue;
        vf left = vf_sub(x, vf_choose(up, positive, negative));
        vf_store(error + v * VEC, live ? strip_choose(lanes, v, left, vf_zero()) : left);
    }
    store_u32(codes, word & lanes);
}

static void code(const lnt_chunk_t *chunk, float scale, uint8_t *codes, float *error)
{
    const vf positive = vf_all(scale), negative = vf_all(lnt_sign1_negative(scale));
    const uint8_t *live = chunk->live;
    for (size_t i = 0; i < chunk->n; i += STRIP)
        code_strip(chunk->a + i, positive, negative, live, strip_lanes(live, i, chunk->n), codes + i / 8,
                   error ? error + i : NULL);
}

LNT_INLINE void values(const uint8_t *codes, float scale, uint32_t lanes, vf *strip)
{
    const vf positive = vf_all(scale), negative = vf_all(lnt_sign1_negative(scale));
    uint32_t word = load_u32(codes);
    (void)lanes;
    LNT_UNROLL
    for (int v = 0; v < STRIP_VECS; v++)
        strip[v] = strip_choose(word, v, positive, negative);
}

LNT_INLINE void sum(const uint8_t *const *codes, const float *scales, uint32_t n_runs, size_t n, const uint8_t *live,
                    bool add, float *out)
{
    simd_sum(values, 1, codes, scales, n_runs, n, live, add, out);
}

LNT_INLINE lnt_block_codec_t sign1(void)
{
    return (lnt_block_codec_t){.bits = 1,
                               .has_scales = true,
                               .strip = STRIP,
                               .load = LNT_ISA_NAME(lnt_chunk_load),
                               .measure = measure,
                               .finish = finish,
                               .code = code,
                               .sum = sum};
}

LNT_BLOCK_OPS(LNT_ISA_NAME(lnt_sign1_ops), sign1);
