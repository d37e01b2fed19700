/* sign1, reference loops: sums in lanes, eight signs to a byte, four values from each half byte.
 *
 * Inner loops have constant trip counts over scratch, which is what compilers vectorise without being told.
 */
#include <stdalign.h>

#include "block_ref.h"
#include "sign1_math.h"

static void sweep_squares(const float *restrict a, double *restrict lanes)
{
    for (int i = 0; i < LNT_TREE_LANES; i++)
        lanes[i] += (double)a[i] * (double)a[i];
}

static void sweep_magnitudes(const float *restrict a, double *restrict lanes)
{
    for (int i = 0; i < LNT_TREE_LANES; i++)
        lanes[i] += (double)lnt_f32_from_bits(lnt_f32_abs_bits(a[i]));
}

static void sign1_measure(const lnt_codec_cfg_t *cfg, const lnt_chunk_t *chunk, size_t shift, lnt_measure_t *m)
{
    const float *base = chunk->a - shift;
    for (size_t i = 0; i < shift + chunk->n; i += LNT_TREE_LANES) {
        if (cfg->scale_rule == LNT_SCALE_L1)
            sweep_magnitudes(base + i, m->lanes);
        else
            sweep_squares(base + i, m->lanes);
    }
}

static float sign1_finish(const lnt_codec_cfg_t *cfg, const lnt_measure_t *m, bool *codable_p)
{
    (void)codable_p; /* the scale is at most the largest magnitude: always finite */
    double sum = lnt_tree_combine(m->lanes);
    return cfg->scale_rule == LNT_SCALE_L1 ? lnt_sign1_scale_l1(sum, m->count) : lnt_sign1_scale_l2(sum, m->count);
}

static void sign1_code(const lnt_chunk_t *chunk, float scale, uint8_t *restrict codes, float *restrict error)
{
    enum { STRIP = LNT_PAD };
    alignas(64) uint8_t bits[STRIP];
    float negative = lnt_sign1_negative(scale);
    for (size_t i = 0; i < chunk->n; i += STRIP) {
        const float *restrict from = chunk->a + i;
        float *restrict to = error + i;
        for (int k = 0; k < STRIP; k++)
            bits[k] = lnt_sign1_bit(from[k]);
        for (int k = 0; k < STRIP / 8; k++)
            codes[i / 8 + (size_t)k] = lnt_sign1_pack8(bits + 8 * k);
        for (int k = 0; k < STRIP; k++)
            to[k] = from[k] - (from[k] >= 0.0f ? scale : negative);
    }
}

static void sign1_decode(const uint8_t *restrict codes, size_t n, const uint8_t *live, float scale,
                         float *restrict values)
{
    (void)live;
    alignas(64) float table[16][4];
    float negative = lnt_sign1_negative(scale);
    for (int nibble = 0; nibble < 16; nibble++)
        for (int k = 0; k < 4; k++)
            table[nibble][k] = (nibble >> k) & 1 ? scale : negative;
    for (size_t i = 0; i < n; i += 8) {
        memcpy(values + i, table[codes[i / 8] & 15], sizeof(table[0]));
        memcpy(values + i + 4, table[codes[i / 8] >> 4], sizeof(table[0]));
    }
}

static const lnt_ref_loops_t sign1_loops = {.bits = 1,
                                            .has_scales = true,
                                            .measure = sign1_measure,
                                            .finish = sign1_finish,
                                            .code = sign1_code,
                                            .decode = sign1_decode};

LNT_REF_OPS(sign1);
