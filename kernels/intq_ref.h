/* Loops that int8 and int4 share: the largest magnitude as an integer, then a division and a rounding per element. One
 * strip is LNT_PAD elements.
 */
#ifndef LNT_INTQ_REF_H
#define LNT_INTQ_REF_H

#include <stdalign.h>

#include "block_ref.h"
#include "intq_math.h"

/* A maximum has no order. Values that are not finite are the largest. */
static inline void lnt_intq_measure_strip(const float *restrict a, lnt_measure_t *m)
{
    int32_t top = (int32_t)m->amax_bits;
    for (size_t k = 0; k < LNT_PAD; k++) {
        int32_t bits = (int32_t)lnt_f32_abs_bits(a[k]);
        top = bits > top ? bits : top;
    }
    m->amax_bits = (uint32_t)top;
}

static inline void lnt_intq_measure(const lnt_codec_cfg_t *cfg, const lnt_chunk_t *chunk, size_t shift,
                                    lnt_measure_t *m)
{
    (void)cfg;
    (void)shift;
    for (size_t i = 0; i < chunk->n; i += LNT_PAD)
        lnt_intq_measure_strip(chunk->a + i, m);
}

/* Codes, and the values they stand for. */
static inline void lnt_intq_code_strip(const float *restrict a, float scale, float top, int32_t *restrict codes,
                                       float *restrict values)
{
    for (size_t k = 0; k < LNT_PAD; k++) {
        codes[k] = lnt_intq_code(a[k], scale, top);
        values[k] = lnt_intq_value(codes[k], scale);
    }
}

static inline void lnt_intq_error_strip(const float *restrict a, const float *restrict values, float *restrict error)
{
    for (size_t k = 0; k < LNT_PAD; k++)
        error[k] = a[k] - values[k];
}

/* A scale of +0 divides nothing: codes 0, and everything is lost. */
static inline bool lnt_intq_code_zero(const lnt_chunk_t *chunk, float scale, size_t code_bytes, uint8_t *restrict codes,
                                      float *restrict error)
{
    if (scale > 0.0f) return false;
    memset(codes, 0, code_bytes);
    memcpy(error, chunk->a, chunk->n * sizeof(*error));
    return true;
}

#endif
