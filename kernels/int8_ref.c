/* int8, reference loops: the largest magnitude as an integer, then a division and a rounding per element. */
#include <stdalign.h>

#include "block_ref.h"
#include "int8_math.h"

enum { STRIP = LNT_PAD };

static void int8_measure(const lnt_codec_cfg_t *cfg, const lnt_chunk_t *chunk, size_t shift, lnt_measure_t *m)
{
    (void)cfg;
    (void)shift; /* a maximum has no order */
    int32_t top = (int32_t)m->amax_bits;
    for (size_t i = 0; i < chunk->n; i += STRIP) {
        for (size_t k = 0; k < STRIP; k++) {
            int32_t bits = (int32_t)lnt_f32_abs_bits(chunk->a[i + k]);
            top = bits > top ? bits : top;
        }
    }
    m->amax_bits = (uint32_t)top;
}

static float int8_finish(const lnt_codec_cfg_t *cfg, const lnt_measure_t *m, bool *codable_p)
{
    (void)cfg;
    float scale = lnt_int8_scale(m->amax_bits);
    if (!lnt_int8_scale_decodes(scale)) *codable_p = false;
    return scale;
}

static void int8_code(const lnt_chunk_t *chunk, float scale, uint8_t *restrict codes, float *restrict error)
{
    const float *restrict a = chunk->a;
    size_t n = chunk->n;
    if (!(scale > 0.0f)) {
        memset(codes, 0, n);
        memcpy(error, a, n * sizeof(*a));
        return;
    }
    alignas(64) int32_t strip[STRIP];
    for (size_t i = 0; i < n; i += STRIP) {
        for (size_t k = 0; k < STRIP; k++) {
            strip[k] = lnt_int8_code(a[i + k], scale);
            error[i + k] = a[i + k] - lnt_int8_value(strip[k], scale);
        }
        for (size_t k = 0; k < STRIP; k++)
            codes[i + k] = (uint8_t)strip[k];
    }
}

static void int8_decode(const uint8_t *restrict codes, size_t n, const uint8_t *live, float scale,
                        float *restrict values)
{
    (void)live;
    alignas(64) int8_t strip[LNT_CHUNK + LNT_PAD] = {0};
    memcpy(strip, codes, n);
    for (size_t i = 0; i < n; i += STRIP)
        for (size_t k = 0; k < STRIP; k++)
            values[i + k] = lnt_int8_value(strip[i + k], scale);
}

static const lnt_ref_loops_t int8_loops = {.bits = 8,
                                           .has_scales = true,
                                           .measure = int8_measure,
                                           .finish = int8_finish,
                                           .code = int8_code,
                                           .decode = int8_decode};

LNT_REF_OPS(int8);
