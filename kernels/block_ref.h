/* The reference on the driver (block_driver.h): what all plain codecs share, so that a <codec>_ref.c holds the loops of
 * its own format only.
 *
 * Loops may run to the next multiple of LNT_PAD, with constant inner trip counts: that is what compilers vectorise.
 */
#ifndef LNT_BLOCK_REF_H
#define LNT_BLOCK_REF_H

#include "block_driver.h"

/* What a codec adds to the driver. */
typedef struct lnt_ref_loops {
    uint32_t bits;
    bool has_scales;
    /* As in lnt_block_codec_t. */
    bool (*overflows)(const lnt_chunk_t *chunk);
    void (*measure)(const lnt_codec_cfg_t *cfg, const lnt_chunk_t *chunk, size_t shift, lnt_measure_t *m);
    /* The scale of a clean block; clears *codable_p when it cannot be decoded. NULL: no scales. */
    float (*finish)(const lnt_codec_cfg_t *cfg, const lnt_measure_t *m, bool *codable_p);
    /* Codes, and error[i] = a[i] - decoded. Bits behind the last element and those of dead elements are the driver's
     * business. */
    void (*code)(const lnt_chunk_t *chunk, float scale, uint8_t *restrict codes, float *restrict error);
    /* Values of n elements; dead ones are the driver's business, but `live` may say how codes are to be read. */
    void (*decode)(const uint8_t *restrict codes, size_t n, const uint8_t *live, float scale, float *restrict values);
} lnt_ref_loops_t;

void lnt_ref_load(const lnt_encode_in_t *in, uint64_t first, size_t n, float *room, lnt_chunk_t *chunk);
float lnt_ref_finish(const lnt_ref_loops_t *loops, const lnt_codec_cfg_t *cfg, const lnt_measure_t *m, bool *poisoned);
void lnt_ref_code(const lnt_ref_loops_t *loops, const lnt_chunk_t *chunk, uint8_t *codes, float *error);
void lnt_ref_sum(const lnt_ref_loops_t *loops, const uint8_t *const *codes, const float *scales, uint32_t n_runs,
                 size_t n, const uint8_t *live, bool add, float *out);

/* The ops table of a codec whose loops are _codec##_loops. */
#define LNT_REF_OPS(_codec)                                                                                            \
    static bool _codec##_plain_overflows(const lnt_chunk_t *chunk)                                                     \
    {                                                                                                                  \
        return _codec##_loops.overflows && _codec##_loops.overflows(chunk);                                            \
    }                                                                                                                  \
    static float _codec##_plain_finish(const lnt_codec_cfg_t *cfg, const lnt_measure_t *m, bool *poisoned)             \
    {                                                                                                                  \
        return lnt_ref_finish(&_codec##_loops, cfg, m, poisoned);                                                      \
    }                                                                                                                  \
    static void _codec##_plain_code(const lnt_chunk_t *chunk, uint8_t *codes, float *error)                            \
    {                                                                                                                  \
        lnt_ref_code(&_codec##_loops, chunk, codes, error);                                                            \
    }                                                                                                                  \
    static void _codec##_plain_sum(const uint8_t *const *codes, const float *scales, uint32_t n_runs, size_t n,        \
                                   const uint8_t *live, bool add, float *out)                                          \
    {                                                                                                                  \
        lnt_ref_sum(&_codec##_loops, codes, scales, n_runs, n, live, add, out);                                        \
    }                                                                                                                  \
    LNT_INLINE lnt_block_codec_t _codec##_ref(void)                                                                    \
    {                                                                                                                  \
        return (lnt_block_codec_t){.bits = _codec##_loops.bits,                                                        \
                                   .has_scales = _codec##_loops.has_scales,                                            \
                                   .strip = LNT_PAD,                                                                   \
                                   .load = lnt_ref_load,                                                               \
                                   .overflows = _codec##_plain_overflows,                                              \
                                   .measure = _codec##_loops.measure,                                                  \
                                   .finish = _codec##_plain_finish,                                                    \
                                   .code = _codec##_plain_code,                                                        \
                                   .sum = _codec##_plain_sum};                                                         \
    }                                                                                                                  \
    LNT_BLOCK_OPS(lnt_##_codec##_ops_ref, _codec##_ref)

#endif
