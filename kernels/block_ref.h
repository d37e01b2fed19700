/* The reference driver: everything codecs share, so that a <codec>_ref.c holds the loops of its own format only.
 *
 * The driver copies a chunk of at most LNT_CHUNK elements into scratch that is aligned and padded with +0, forms
 * a = input + error there, checks every element, zeroes dead ones, and calls the codec's loops on the scratch. Loops
 * may run to the next multiple of LNT_PAD: memory of the caller is touched by memcpy of exact sizes alone, at any
 * alignment.
 */
#ifndef LNT_BLOCK_REF_H
#define LNT_BLOCK_REF_H

#include "codec.h"
#include "reduce_tree.h"

enum {
    LNT_CHUNK = 1024, /* 4 KiB of f32: stays in L1 */
    LNT_PAD = 128,    /* one round of the lanes; also what loops may overrun inside scratch */
    LNT_CODES_MAX = 4 * (LNT_CHUNK + LNT_PAD)
};

/* A chunk in scratch: n elements of input + error, then +0 up to the next multiple of LNT_PAD. */
typedef struct lnt_chunk {
    const float *a;
    size_t n;
    const uint8_t *live;  /* bits of the chunk, dead elements are +0 in `a`; NULL: all live */
    uint64_t seed, index; /* of the first element, as in lnt_encode_in_t */
} lnt_chunk_t;

/* What a codec adds to the driver. */
typedef struct lnt_ref_loops {
    uint32_t bits;
    bool has_scales;
    /* Does an element, finite itself, become non-finite when coded? NULL: never. */
    bool (*overflows)(const lnt_chunk_t *chunk);
    /* Add the chunk to the partial sums. a[-shift] is lane 0, with +0 between. NULL: nothing to measure. */
    void (*measure)(const lnt_codec_cfg_t *cfg, const lnt_chunk_t *chunk, size_t shift, lnt_measure_t *m);
    /* The scale of a clean block; clears *codable_p when it cannot be decoded. NULL: no scales. */
    float (*finish)(const lnt_codec_cfg_t *cfg, const lnt_measure_t *m, bool *codable_p);
    /* Codes, and error[i] = a[i] - decoded. Bits behind the last element and those of dead elements are the driver's
     * business. */
    void (*code)(const lnt_chunk_t *chunk, float scale, uint8_t *restrict codes, float *restrict error);
    /* Values of n elements; dead ones are the driver's business, but `live` may say how codes are to be read. */
    void (*decode)(const uint8_t *restrict codes, size_t n, const uint8_t *live, float scale, float *restrict values);
} lnt_ref_loops_t;

void lnt_ref_encode(const lnt_ref_loops_t *loops, const lnt_codec_cfg_t *cfg, const lnt_encode_in_t *in,
                    lnt_encode_out_t *out);
void lnt_ref_decode(const lnt_ref_loops_t *loops, const lnt_codec_cfg_t *cfg, const uint8_t *scales,
                    const uint8_t *codes, uint64_t n, const uint8_t *live, float *out);
void lnt_ref_decode_add(const lnt_ref_loops_t *loops, const lnt_codec_cfg_t *cfg, const uint8_t *scales,
                        const uint8_t *codes, uint64_t n, const uint8_t *live, float *acc);
void lnt_ref_decode_sum(const lnt_ref_loops_t *loops, const lnt_codec_cfg_t *cfg, const lnt_coded_run_t *runs,
                        uint32_t n_runs, uint64_t n, const uint8_t *live, bool add, float *out);
void lnt_ref_measure(const lnt_ref_loops_t *loops, const lnt_codec_cfg_t *cfg, const lnt_encode_in_t *in,
                     uint64_t first, lnt_measure_t *m);
float lnt_ref_finish(const lnt_ref_loops_t *loops, const lnt_codec_cfg_t *cfg, const lnt_measure_t *m, bool *poisoned);
void lnt_ref_encode_scaled(const lnt_ref_loops_t *loops, const lnt_encode_in_t *in, float scale, lnt_encode_out_t *out);

/* The ops table of a codec whose loops are _codec##_loops: the driver bound to them. */
#define LNT_REF_OPS(_codec)                                                                                            \
    static void _codec##_run_encode(const lnt_codec_cfg_t *cfg, const lnt_encode_in_t *in, lnt_encode_out_t *out)      \
    {                                                                                                                  \
        lnt_ref_encode(&_codec##_loops, cfg, in, out);                                                                 \
    }                                                                                                                  \
    static void _codec##_run_decode(const lnt_codec_cfg_t *cfg, const uint8_t *scales, const uint8_t *codes,           \
                                    uint64_t n, const uint8_t *live, float *out)                                       \
    {                                                                                                                  \
        lnt_ref_decode(&_codec##_loops, cfg, scales, codes, n, live, out);                                             \
    }                                                                                                                  \
    static void _codec##_run_decode_add(const lnt_codec_cfg_t *cfg, const uint8_t *scales, const uint8_t *codes,       \
                                        uint64_t n, const uint8_t *live, float *acc)                                   \
    {                                                                                                                  \
        lnt_ref_decode_add(&_codec##_loops, cfg, scales, codes, n, live, acc);                                         \
    }                                                                                                                  \
    static void _codec##_run_decode_sum(const lnt_codec_cfg_t *cfg, const lnt_coded_run_t *runs, uint32_t n_runs,      \
                                        uint64_t n, const uint8_t *live, bool add, float *out)                         \
    {                                                                                                                  \
        lnt_ref_decode_sum(&_codec##_loops, cfg, runs, n_runs, n, live, add, out);                                     \
    }                                                                                                                  \
    static void _codec##_run_measure(const lnt_codec_cfg_t *cfg, const lnt_encode_in_t *in, uint64_t first,            \
                                     lnt_measure_t *m)                                                                 \
    {                                                                                                                  \
        lnt_ref_measure(&_codec##_loops, cfg, in, first, m);                                                           \
    }                                                                                                                  \
    static float _codec##_run_finish(const lnt_codec_cfg_t *cfg, const lnt_measure_t *m, bool *poisoned)               \
    {                                                                                                                  \
        return lnt_ref_finish(&_codec##_loops, cfg, m, poisoned);                                                      \
    }                                                                                                                  \
    static void _codec##_run_encode_scaled(const lnt_codec_cfg_t *cfg, const lnt_encode_in_t *in, float scale,         \
                                           lnt_encode_out_t *out)                                                      \
    {                                                                                                                  \
        (void)cfg;                                                                                                     \
        lnt_ref_encode_scaled(&_codec##_loops, in, scale, out);                                                        \
    }                                                                                                                  \
    const lnt_codec_ops_t lnt_##_codec##_ops_ref = {.encode = _codec##_run_encode,                                     \
                                                    .decode = _codec##_run_decode,                                     \
                                                    .decode_add = _codec##_run_decode_add,                             \
                                                    .decode_sum = _codec##_run_decode_sum,                             \
                                                    .measure = _codec##_run_measure,                                   \
                                                    .finish = _codec##_run_finish,                                     \
                                                    .encode_scaled = _codec##_run_encode_scaled}

#endif
