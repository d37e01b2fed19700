/* The driver under every codec, plain and vector: runs to blocks, blocks to chunks in scratch, and back. It knows no
 * codec and no instruction set; a codec brings an lnt_block_codec_t and ends its file with LNT_BLOCK_OPS.
 *
 * Everything is inlined into the file of the codec, and so compiled with its flags and its constants. A block of one
 * chunk is read once. A larger one is read twice, first to measure, then to code; the error of a chunk is written only
 * after the chunk was read, so error_out may be error_in. Memory of the caller is touched exactly, at any alignment.
 */
#ifndef LNT_BLOCK_DRIVER_H
#define LNT_BLOCK_DRIVER_H

#include "block_chunk.h"

LNT_INLINE void lnt_block_measure(const lnt_block_codec_t *codec, const lnt_codec_cfg_t *cfg, const lnt_encode_in_t *in,
                                  uint64_t first, lnt_measure_t *m)
{
    lnt_scratch_t s;
    lnt_chunk_t chunk;
    lnt_scratch_init(&s);
    for (uint64_t i = 0; i < in->n; i += LNT_CHUNK) {
        lnt_chunk_load(codec, in, i, in->n, in->n, &s, &chunk);
        if (lnt_chunk_poisoned(codec, &chunk, 0)) m->poisoned = true;
        lnt_chunk_measure(codec, cfg, &chunk, first + i, &s, m);
    }
}

/* All of `in` as one block of this scale, or without a scale. */
LNT_INLINE void lnt_block_encode_scaled(const lnt_block_codec_t *codec, const lnt_encode_in_t *in, float scale,
                                        lnt_encode_out_t *out)
{
    lnt_scratch_t s;
    lnt_chunk_t chunk;
    bool poisoned = false;
    lnt_scratch_init(&s);
    for (uint64_t i = 0; i < in->n; i += LNT_CHUNK) {
        lnt_chunk_load(codec, in, i, in->n, in->n, &s, &chunk);
        if (lnt_chunk_poisoned(codec, &chunk, 0)) poisoned = true;
        chunk.scales[0] = scale;
        lnt_block_code(codec, in, &chunk, i, poisoned, &s, out);
    }
    if (codec->stream_end && lnt_streams(in, out)) codec->stream_end();
    if (poisoned && codec->has_scales) memset(out->codes, 0, lnt_code_bytes(codec, in->n));
    if (codec->has_scales && in->n) lnt_wire_store_f32(out->scales, poisoned ? 0.0f : scale);
}

/* Scales of all blocks of the chunk, of which the first is number `block`. Returns whether all are clean; poisoned[b].
 */
LNT_INLINE bool lnt_group_scales(const lnt_block_codec_t *codec, const lnt_codec_cfg_t *cfg, lnt_chunk_t *chunk,
                                 uint64_t block, bool *poisoned, lnt_encode_out_t *out)
{
    bool clean = true;
    for (size_t b = 0; b * chunk->block < chunk->n; b++) {
        poisoned[b] = lnt_chunk_poisoned(codec, chunk, b);
        chunk->scales[b] = poisoned[b] ? 0.0f : codec->scale(cfg, chunk, b, &poisoned[b]);
        lnt_wire_store_f32(out->scales + 4 * (block + b), chunk->scales[b]);
        if (poisoned[b]) clean = false;
    }
    return clean;
}

/* The chunk, which starts at element `start`, with scales of all its blocks. */
LNT_INLINE void lnt_group_code(const lnt_block_codec_t *codec, const lnt_encode_in_t *in, lnt_chunk_t *chunk,
                               uint64_t start, bool clean, const bool *poisoned, lnt_scratch_t *s,
                               lnt_encode_out_t *out)
{
    if (codec->sweeps) chunk->ahead.values = (uintptr_t)chunk->a;
    if (clean) {
        lnt_block_code(codec, in, chunk, start, false, s, out);
        return;
    }
    for (size_t b = 0; b * chunk->block < chunk->n; b++) {
        lnt_chunk_t one = lnt_chunk_of_block(chunk, b);
        lnt_block_code(codec, in, &one, start + b * chunk->block, poisoned[b], s, out);
    }
}

/* Blocks that make up to one chunk, which is still in scratch when it is coded. Taken together: calls, and the slow
 * steps from a maximum to a scale, are shared. */
LNT_INLINE void lnt_block_encode_group(const lnt_block_codec_t *codec, const lnt_codec_cfg_t *cfg,
                                       const lnt_encode_in_t *in, uint64_t start, uint64_t end, uint64_t block,
                                       lnt_scratch_t *s, lnt_encode_out_t *out)
{
    bool poisoned[LNT_GROUP];
    lnt_chunk_t chunk;
    lnt_chunk_take(codec, cfg, in, start, end, s, out, &chunk);
    bool clean = lnt_group_scales(codec, cfg, &chunk, block, poisoned, out);
    lnt_group_code(codec, in, &chunk, start, clean, poisoned, s, out);
}

/* Short runs are pieces of the exchange: their values were formed a moment ago, and the first chunk and the last, which
 * are alone, are much of them. There it costs 5 %, where long runs from memory gain 15 %. */
enum { LNT_PIPED_FROM = 8 * LNT_CHUNK };

LNT_INLINE bool lnt_is_piped(const lnt_block_codec_t *codec, const lnt_encode_in_t *in, const lnt_encode_out_t *out,
                             uint64_t group)
{
    return codec->code_and_take && in->n > LNT_PIPED_FROM && group % LNT_PAD == 0 && group <= LNT_CHUNK && !in->live &&
           in->error_in && out->error_out;
}

/* The whole groups of the run, each coded while the next is taken. Returns where they end. */
LNT_INLINE uint64_t lnt_block_encode_piped(const lnt_block_codec_t *codec, const lnt_codec_cfg_t *cfg,
                                           const lnt_encode_in_t *in, uint64_t group, lnt_scratch_t *s,
                                           lnt_encode_out_t *out)
{
    const uint64_t end = in->n / group * group;
    lnt_chunk_t chunks[2];
    if (end) lnt_chunk_take(codec, cfg, in, 0, group, s, out, &chunks[0]);
    for (uint64_t start = 0, k = 0; start < end; start += group, k++) {
        lnt_chunk_t *chunk = &chunks[k % 2], *next = &chunks[(k + 1) % 2];
        float *room = lnt_chunk_room(in, start + group, out, k % 2 ? s->a : s->other);
        bool poisoned[LNT_GROUP], last = start + group == end;
        bool clean = lnt_group_scales(codec, cfg, chunk, start / cfg->block, poisoned, out);
        if (!last) {
            (void)lnt_chunk_begin(in, start + group, start + 2 * group, cfg->block, s, next);
            next->taken = true;
        }
        if (!last && clean) {
            chunk->stream = lnt_streams(in, out);
            codec->code_and_take(cfg, chunk, out->codes + start * codec->bits / 8, out->error_out + start, in,
                                 start + group, room, next);
            continue;
        }
        lnt_group_code(codec, in, chunk, start, clean, poisoned, s, out);
        if (!last) codec->take(cfg, in, start + group, group, room, next);
    }
    return end;
}

/* A block of any size. */
LNT_INLINE void lnt_block_encode_one(const lnt_block_codec_t *codec, const lnt_codec_cfg_t *cfg,
                                     const lnt_encode_in_t *in, uint64_t start, uint64_t end, uint64_t block,
                                     lnt_scratch_t *s, lnt_encode_out_t *out)
{
    lnt_measure_t m = {0};
    lnt_chunk_t chunk;
    bool poisoned = false;
    for (uint64_t i = start; i < end; i += LNT_CHUNK) {
        lnt_chunk_load(codec, in, i, end, end - start, s, &chunk);
        if (lnt_chunk_poisoned(codec, &chunk, 0)) m.poisoned = true;
        lnt_chunk_measure(codec, cfg, &chunk, i - start, s, &m);
    }
    float scale = codec->finish(cfg, &m, &poisoned);
    for (uint64_t i = start; i < end; i += LNT_CHUNK) {
        if (end - start > LNT_CHUNK) lnt_chunk_load(codec, in, i, end, end - start, s, &chunk);
        chunk.scales[0] = scale;
        lnt_block_code(codec, in, &chunk, i, poisoned, s, out);
    }
    lnt_wire_store_f32(out->scales + 4 * block, scale);
}

/* How many blocks are coded together. They lie one behind the other in scratch, each padded. */
LNT_INLINE uint32_t lnt_group_blocks(const lnt_block_codec_t *codec, const lnt_codec_cfg_t *cfg)
{
    bool grouped = codec->scale && cfg->block % LNT_PAD == 0 && cfg->block <= LNT_CHUNK;
    return grouped ? LNT_CHUNK / cfg->block : 1;
}

LNT_INLINE void lnt_block_encode_blocks(const lnt_block_codec_t *codec, const lnt_codec_cfg_t *cfg,
                                        const lnt_encode_in_t *in, lnt_encode_out_t *out)
{
    lnt_scratch_t s;
    const uint64_t group = (uint64_t)lnt_group_blocks(codec, cfg) * cfg->block;
    uint64_t start = 0;
    lnt_scratch_init(&s);
    s.next = lnt_next_take();
    if (lnt_is_piped(codec, in, out, group)) start = lnt_block_encode_piped(codec, cfg, in, group, &s, out);
    for (; start < in->n; start += group) {
        if (codec->direct) start += codec->direct(cfg, in, start, out);
        if (start == in->n) break;
        uint64_t end = in->n - start < group ? in->n : start + group;
        if (codec->scale && end - start <= LNT_CHUNK)
            lnt_block_encode_group(codec, cfg, in, start, end, start / cfg->block, &s, out);
        else
            lnt_block_encode_one(codec, cfg, in, start, end, start / cfg->block, &s, out);
    }
    if (codec->stream_end && lnt_streams(in, out)) codec->stream_end();
}

/* Blocks are there for their scales: without them, all is one. */
LNT_INLINE void lnt_block_encode(const lnt_block_codec_t *codec, const lnt_codec_cfg_t *cfg, const lnt_encode_in_t *in,
                                 lnt_encode_out_t *out)
{
    if (codec->has_scales)
        lnt_block_encode_blocks(codec, cfg, in, out);
    else
        lnt_block_encode_scaled(codec, in, 0.0f, out);
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
