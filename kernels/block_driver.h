/* The driver under every codec, plain and vector: runs to blocks, blocks to chunks in scratch, and back. It knows no
 * codec and no instruction set; a codec brings an lnt_block_codec_t and ends its file with LNT_BLOCK_OPS.
 *
 * Everything is inlined into the file of the codec, and so compiled with its flags and its constants. A chunk is at
 * most LNT_CHUNK elements of input + error, which stay in L1. A block of one chunk is read once. A larger one is read
 * twice, first to measure, then to code; the error of a chunk is written only after the chunk was read, so error_out
 * may be error_in. Memory of the caller is touched exactly, at any alignment.
 */
#ifndef LNT_BLOCK_DRIVER_H
#define LNT_BLOCK_DRIVER_H

#include <stdalign.h>
#include <string.h>

#include "codec.h"
#include "float_bits.h"
#include "lnt_inline.h"
#include "reduce_tree.h"

enum {
    LNT_CHUNK = 1024, /* 4 KiB of f32: stays in L1 */
    LNT_PAD = 128,    /* one round of the lanes; also what loops may overrun inside scratch */
    LNT_CODES_MAX = 4 * (LNT_CHUNK + LNT_PAD),
    LNT_RUNS_AT_ONCE = 16
};

/* A chunk in scratch: n elements of input + error, then +0 in the LNT_PAD elements behind. */
typedef struct lnt_chunk {
    const float *a;
    size_t n;
    const uint8_t *live;  /* bits of the chunk, dead elements are +0 in `a`; NULL: all live */
    uint64_t seed, index; /* of the first element, as in lnt_encode_in_t */
    uint32_t top_bits;    /* the largest magnitude of live elements, as bits */
    bool stream;          /* stores to the error may go around the caches */
} lnt_chunk_t;

/* The largest magnitudes of a chunk, as bits: of all elements, and of live ones. */
typedef struct lnt_tops {
    uint32_t all, live;
} lnt_tops_t;

/* One codec in one implementation. */
typedef struct lnt_block_codec {
    uint32_t bits;
    bool has_scales;
    size_t strip; /* loops may write codes and error up to the next multiple of it; divides 64 or is LNT_PAD */
    /* The n elements of `in` from `first` on into `a` (which has room for LNT_PAD more), as in lnt_chunk_t. */
    lnt_tops_t (*load)(const lnt_encode_in_t *in, uint64_t first, size_t n, float *a);
    /* Does a live element, finite itself, become non-finite when coded? NULL: never. */
    bool (*overflows)(const lnt_chunk_t *chunk);
    /* Add the chunk to the partial sums. a[-shift] is lane 0, with +0 between. NULL: nothing to measure. */
    void (*measure)(const lnt_codec_cfg_t *cfg, const lnt_chunk_t *chunk, size_t shift, lnt_measure_t *m);
    /* As in lnt_codec_ops_t. */
    float (*finish)(const lnt_codec_cfg_t *cfg, const lnt_measure_t *m, bool *poisoned);
    /* Codes, and error[i] = a[i] - decoded unless error is NULL. Dead elements and what lies behind the last one have
     * code 0 and error +0. */
    void (*code)(const lnt_chunk_t *chunk, float scale, uint8_t *codes, float *error);
    /* out = (add ? out : nothing) + decoded run 0 + ... of n <= LNT_CHUNK elements, n_runs <= LNT_RUNS_AT_ONCE. */
    void (*sum)(const uint8_t *const *codes, const float *scales, uint32_t n_runs, size_t n, const uint8_t *live,
                bool add, float *out);
} lnt_block_codec_t;

typedef struct lnt_scratch {
    alignas(64) float room[LNT_PAD + LNT_CHUNK + LNT_PAD];
    alignas(64) float error[LNT_CHUNK + LNT_PAD];
    alignas(64) uint8_t codes[LNT_CODES_MAX];
    float *a; /* the chunk, inside room; +0 before it are the lanes in front of one that starts inside a round */
} lnt_scratch_t;

LNT_INLINE void lnt_scratch_init(lnt_scratch_t *s)
{
    memset(s->room, 0, LNT_PAD * sizeof(*s->room));
    s->a = s->room + LNT_PAD;
}

LNT_INLINE size_t lnt_chunk_size(uint64_t left)
{
    return left < LNT_CHUNK ? (size_t)left : LNT_CHUNK;
}

LNT_INLINE size_t lnt_code_bytes(const lnt_block_codec_t *codec, uint64_t n)
{
    return (size_t)((n * codec->bits + 7) / 8);
}

LNT_INLINE uint64_t lnt_count_live(const uint8_t *live, size_t n)
{
    uint64_t count = 0;
    for (size_t i = 0; i < n / 8; i++)
        count += (uint64_t)__builtin_popcount(live[i]);
    return n % 8 ? count + (uint64_t)__builtin_popcount(live[n / 8] & ((1u << n % 8) - 1)) : count;
}

/* The input of one block: `first` and sizes count from its own start. */
LNT_INLINE lnt_encode_in_t lnt_sub_input(const lnt_encode_in_t *in, uint64_t first, uint64_t n)
{
    lnt_encode_in_t sub = *in;
    sub.values = (const uint8_t *)in->values + first * lnt_dtype_size(in->dtype);
    sub.n = n;
    sub.index = in->index + first;
    if (in->live) sub.live = in->live + first / 8;
    if (in->error_in) sub.error_in = in->error_in + first;
    return sub;
}

/* The chunk from element `first` on. Sets *poisoned_p if an element, dead or not, cannot be coded. */
LNT_INLINE lnt_chunk_t lnt_chunk_load(const lnt_block_codec_t *codec, const lnt_encode_in_t *in, uint64_t first,
                                      lnt_scratch_t *s, bool *poisoned_p)
{
    size_t n = lnt_chunk_size(in->n - first);
    lnt_tops_t tops = codec->load(in, first, n, s->a);
    lnt_chunk_t chunk = {.a = s->a,
                         .n = n,
                         .live = in->live ? in->live + first / 8 : NULL,
                         .seed = in->seed,
                         .index = in->index + first,
                         .top_bits = tops.live};
    if (tops.all >= LNT_F32_INF_BITS || (codec->overflows && codec->overflows(&chunk))) *poisoned_p = true;
    return chunk;
}

LNT_INLINE void lnt_chunk_measure(const lnt_block_codec_t *codec, const lnt_codec_cfg_t *cfg, const lnt_chunk_t *chunk,
                                  uint64_t position, lnt_measure_t *m)
{
    m->count += chunk->live ? lnt_count_live(chunk->live, chunk->n) : chunk->n;
    if (codec->measure) codec->measure(cfg, chunk, (size_t)(position % LNT_TREE_LANES), m);
}

/* Codes and error of the chunk, by way of scratch where loops would write behind its end. `poisoned`: codes 0 under a
 * scale of +0, and an error nobody may use. Values without a scale (f32, bf16) pass as they are: plain collectives hand
 * NaN and Inf on. */
LNT_INLINE void lnt_chunk_code(const lnt_block_codec_t *codec, const lnt_chunk_t *chunk, float scale, bool poisoned,
                               lnt_scratch_t *s, uint8_t *codes, float *error_out)
{
    size_t n = chunk->n, bytes = lnt_code_bytes(codec, n);
    if (poisoned && codec->has_scales) {
        memset(codes, 0, bytes);
        if (error_out) memcpy(error_out, s->a, n * sizeof(*s->a));
    } else if (n % codec->strip == 0) {
        codec->code(chunk, scale, codes, error_out);
    } else {
        codec->code(chunk, scale, s->codes, error_out ? s->error : NULL);
        memcpy(codes, s->codes, bytes);
        if (error_out) memcpy(error_out, s->error, n * sizeof(*error_out));
    }
}

LNT_INLINE void lnt_block_measure(const lnt_block_codec_t *codec, const lnt_codec_cfg_t *cfg, const lnt_encode_in_t *in,
                                  uint64_t first, lnt_measure_t *m)
{
    lnt_scratch_t s;
    lnt_scratch_init(&s);
    for (uint64_t i = 0; i < in->n; i += LNT_CHUNK) {
        lnt_chunk_t chunk = lnt_chunk_load(codec, in, i, &s, &m->poisoned);
        lnt_chunk_measure(codec, cfg, &chunk, first + i, m);
    }
}

LNT_INLINE void lnt_block_encode_scaled(const lnt_block_codec_t *codec, const lnt_encode_in_t *in, float scale,
                                        lnt_encode_out_t *out)
{
    lnt_scratch_t s;
    bool poisoned = false;
    lnt_scratch_init(&s);
    for (uint64_t i = 0; i < in->n; i += LNT_CHUNK) {
        lnt_chunk_t chunk = lnt_chunk_load(codec, in, i, &s, &poisoned);
        chunk.stream = out->stream;
        lnt_chunk_code(codec, &chunk, scale, poisoned, &s, out->codes + i * codec->bits / 8,
                       out->error_out ? out->error_out + i : NULL);
    }
    if (poisoned && codec->has_scales) memset(out->codes, 0, lnt_code_bytes(codec, in->n));
    if (poisoned) out->poisoned = true;
    if (codec->has_scales && in->n) lnt_wire_store_f32(out->scales, poisoned ? 0.0f : scale);
}

/* One block; `in`, `codes` and `error_out` start at it. The chunk of a small block is still in scratch when it is
 * coded. Returns the scale. */
LNT_INLINE float lnt_block_encode_one(const lnt_block_codec_t *codec, const lnt_codec_cfg_t *cfg,
                                      const lnt_encode_in_t *in, lnt_scratch_t *s, uint8_t *codes, float *error_out,
                                      lnt_encode_out_t *out)
{
    lnt_measure_t m = {0};
    lnt_chunk_t chunk = {0};
    for (uint64_t i = 0; i < in->n; i += LNT_CHUNK) {
        chunk = lnt_chunk_load(codec, in, i, s, &m.poisoned);
        lnt_chunk_measure(codec, cfg, &chunk, i, &m);
    }
    bool poisoned = false;
    float scale = codec->finish(cfg, &m, &poisoned);
    for (uint64_t i = 0; i < in->n; i += LNT_CHUNK) {
        if (in->n > LNT_CHUNK) chunk = lnt_chunk_load(codec, in, i, s, &m.poisoned);
        chunk.stream = out->stream;
        lnt_chunk_code(codec, &chunk, scale, poisoned, s, codes + i * codec->bits / 8,
                       error_out ? error_out + i : NULL);
    }
    if (poisoned) out->poisoned = true;
    return scale;
}

LNT_INLINE void lnt_block_encode(const lnt_block_codec_t *codec, const lnt_codec_cfg_t *cfg, const lnt_encode_in_t *in,
                                 lnt_encode_out_t *out)
{
    lnt_scratch_t s;
    lnt_scratch_init(&s);
    for (uint64_t i = 0, block = 0; i < in->n; i += cfg->block, block++) {
        uint64_t n = in->n - i < cfg->block ? in->n - i : cfg->block;
        lnt_encode_in_t sub = lnt_sub_input(in, i, n);
        float scale = lnt_block_encode_one(codec, cfg, &sub, &s, out->codes + i * codec->bits / 8,
                                           out->error_out ? out->error_out + i : NULL, out);
        if (codec->has_scales) lnt_wire_store_f32(out->scales + 4 * block, scale);
    }
}

/* ---- back ---- */

/* One block of up to LNT_RUNS_AT_ONCE runs, its chunks one after the other. */
LNT_INLINE void lnt_block_sum_one(const lnt_block_codec_t *codec, const lnt_coded_run_t *runs, uint32_t n_runs,
                                  uint64_t block, uint64_t start, uint64_t end, const uint8_t *live, bool add,
                                  float *out)
{
    const uint8_t *codes[LNT_RUNS_AT_ONCE];
    float scales[LNT_RUNS_AT_ONCE];
    for (uint32_t r = 0; r < n_runs; r++)
        scales[r] = codec->has_scales ? lnt_wire_load_f32(runs[r].scales + 4 * block) : 0.0f;
    for (uint64_t i = start; i < end; i += LNT_CHUNK) {
        for (uint32_t r = 0; r < n_runs; r++)
            codes[r] = runs[r].codes + i * codec->bits / 8;
        codec->sum(codes, scales, n_runs, lnt_chunk_size(end - i), live ? live + i / 8 : NULL, add, out + i);
    }
}

LNT_INLINE void lnt_block_sum(const lnt_block_codec_t *codec, const lnt_codec_cfg_t *cfg, const lnt_coded_run_t *runs,
                              uint32_t n_runs, uint64_t n, const uint8_t *live, bool add, float *out)
{
    for (uint64_t start = 0, block = 0; start < n; start += cfg->block, block++) {
        uint64_t end = n - start < cfg->block ? n : start + cfg->block;
        for (uint32_t r = 0; r < n_runs; r += LNT_RUNS_AT_ONCE) {
            uint32_t count = n_runs - r < LNT_RUNS_AT_ONCE ? n_runs - r : LNT_RUNS_AT_ONCE;
            lnt_block_sum_one(codec, runs + r, count, block, start, end, live, add || r > 0, out);
        }
    }
}

/* The ops table _ops of the codec that the inline function _codec() describes. */
#define LNT_BLOCK_OPS(_ops, _codec)                                                                                    \
    static void _codec##_encode(const lnt_codec_cfg_t *cfg, const lnt_encode_in_t *in, lnt_encode_out_t *out)          \
    {                                                                                                                  \
        const lnt_block_codec_t codec = _codec();                                                                      \
        lnt_block_encode(&codec, cfg, in, out);                                                                        \
    }                                                                                                                  \
    static void _codec##_decode(const lnt_codec_cfg_t *cfg, const uint8_t *scales, const uint8_t *codes, uint64_t n,   \
                                const uint8_t *live, float *out)                                                       \
    {                                                                                                                  \
        const lnt_block_codec_t codec = _codec();                                                                      \
        const lnt_coded_run_t run = {scales, codes};                                                                   \
        lnt_block_sum(&codec, cfg, &run, 1, n, live, false, out);                                                      \
    }                                                                                                                  \
    static void _codec##_decode_add(const lnt_codec_cfg_t *cfg, const uint8_t *scales, const uint8_t *codes,           \
                                    uint64_t n, const uint8_t *live, float *acc)                                       \
    {                                                                                                                  \
        const lnt_block_codec_t codec = _codec();                                                                      \
        const lnt_coded_run_t run = {scales, codes};                                                                   \
        lnt_block_sum(&codec, cfg, &run, 1, n, live, true, acc);                                                       \
    }                                                                                                                  \
    static void _codec##_decode_sum(const lnt_codec_cfg_t *cfg, const lnt_coded_run_t *runs, uint32_t n_runs,          \
                                    uint64_t n, const uint8_t *live, bool add, float *out)                             \
    {                                                                                                                  \
        const lnt_block_codec_t codec = _codec();                                                                      \
        lnt_block_sum(&codec, cfg, runs, n_runs, n, live, add, out);                                                   \
    }                                                                                                                  \
    static void _codec##_measure(const lnt_codec_cfg_t *cfg, const lnt_encode_in_t *in, uint64_t first,                \
                                 lnt_measure_t *m)                                                                     \
    {                                                                                                                  \
        const lnt_block_codec_t codec = _codec();                                                                      \
        lnt_block_measure(&codec, cfg, in, first, m);                                                                  \
    }                                                                                                                  \
    static void _codec##_encode_scaled(const lnt_codec_cfg_t *cfg, const lnt_encode_in_t *in, float scale,             \
                                       lnt_encode_out_t *out)                                                          \
    {                                                                                                                  \
        const lnt_block_codec_t codec = _codec();                                                                      \
        (void)cfg;                                                                                                     \
        lnt_block_encode_scaled(&codec, in, scale, out);                                                               \
    }                                                                                                                  \
    static float _codec##_finish(const lnt_codec_cfg_t *cfg, const lnt_measure_t *m, bool *poisoned)                   \
    {                                                                                                                  \
        const lnt_block_codec_t codec = _codec();                                                                      \
        return codec.finish(cfg, m, poisoned);                                                                         \
    }                                                                                                                  \
    const lnt_codec_ops_t _ops = {.encode = _codec##_encode,                                                           \
                                  .decode = _codec##_decode,                                                           \
                                  .decode_add = _codec##_decode_add,                                                   \
                                  .decode_sum = _codec##_decode_sum,                                                   \
                                  .measure = _codec##_measure,                                                         \
                                  .finish = _codec##_finish,                                                           \
                                  .encode_scaled = _codec##_encode_scaled}

#endif
