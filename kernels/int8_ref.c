/* int8, reference loops (intq_ref.h): a byte per code. */
#include "int8_math.h"
#include "intq_ref.h"

static float int8_finish(const lnt_codec_cfg_t *cfg, const lnt_measure_t *m, bool *codable_p)
{
    (void)cfg;
    float scale = lnt_int8_scale(m->amax_bits);
    if (!lnt_int8_scale_decodes(scale)) *codable_p = false;
    return scale;
}

static void int8_code(const lnt_chunk_t *chunk, float scale, uint8_t *restrict codes, float *restrict error)
{
    if (lnt_intq_code_zero(chunk, scale, chunk->n, codes, error)) return;
    alignas(64) int32_t strip[LNT_PAD];
    alignas(64) float values[LNT_PAD];
    for (size_t i = 0; i < chunk->n; i += LNT_PAD) {
        lnt_intq_code_strip(chunk->a + i, scale, LNT_INT8_TOP, strip, values);
        lnt_intq_error_strip(chunk->a + i, values, error + i);
        for (size_t k = 0; k < LNT_PAD; k++)
            codes[i + k] = (uint8_t)strip[k];
    }
}

static void int8_decode(const uint8_t *restrict codes, size_t n, const uint8_t *live, float scale,
                        float *restrict values)
{
    (void)live;
    alignas(64) int8_t strip[LNT_CHUNK + LNT_PAD] = {0};
    memcpy(strip, codes, n);
    for (size_t i = 0; i < n; i += LNT_PAD)
        for (size_t k = 0; k < LNT_PAD; k++)
            values[i + k] = lnt_int8_value(strip[i + k], scale);
}

static const lnt_ref_loops_t int8_loops = {.bits = 8,
                                           .has_scales = true,
                                           .measure = lnt_intq_measure,
                                           .finish = int8_finish,
                                           .code = int8_code,
                                           .decode = int8_decode};

LNT_REF_OPS(int8);
