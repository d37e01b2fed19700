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
#include "next.h"
#include "reduce_tree.h"

enum {
    LNT_CHUNK = 1024, /* 4 KiB of f32: stays in L1 */
    LNT_PAD = 128,    /* one round of the lanes; also what loops may overrun inside scratch */
    LNT_CODES_MAX = 4 * (LNT_CHUNK + LNT_PAD),
    LNT_GROUP = LNT_CHUNK / LNT_PAD, /* the most blocks that are coded together */
    LNT_RUNS_AT_ONCE = 16
};

/* What will be read one LNT_CHUNK after a chunk, to be asked for while it is coded: where its element 0 would find its
 * value (of 1 << value_shift bytes) and its error then. Hints for the caches, which may lie behind the end of
 * everything; where nothing is to be asked for, the chunk itself, which costs next to nothing. */
typedef struct lnt_ahead {
    uintptr_t values, error;
    uintptr_t next[LNT_NEXTS]; /* of the piece after this run, where next.h knows it */
    unsigned value_shift;
} lnt_ahead_t;

/* The largest magnitudes of a block, as bits: of all elements, and of live ones. */
typedef struct lnt_tops {
    uint32_t all, live;
} lnt_tops_t;

/* A chunk in scratch: n elements of input + error, then +0 up to the next multiple of LNT_PAD. One block, a part of
 * one, or several whole ones, of which the last may be short. */
typedef struct lnt_chunk {
    const float *a;
    size_t n, block;      /* n elements, a block is this many of them (n: not more than one block) */
    const uint8_t *live;  /* bits of the chunk, dead elements are +0 in `a`; NULL: all live */
    uint64_t seed, index; /* of the first element, as in lnt_encode_in_t */
    bool stream;          /* stores to the error may go around the caches */
    lnt_ahead_t ahead;
    lnt_tops_t tops[LNT_GROUP]; /* of every block */
    bool taken;                 /* by take(), which leaves */
    double sums[LNT_GROUP];     /* the sums of blocks */
    float scales[LNT_GROUP];
} lnt_chunk_t;

/* One codec in one implementation. */
typedef struct lnt_block_codec {
    uint32_t bits;
    bool has_scales;
    size_t strip; /* loops may write codes and error up to the next multiple of it; divides 64 or is LNT_PAD */
    /* Called once when an op has stored all errors, if they were to be streamed. NULL: not needed. */
    void (*stream_end)(void);
    /* Fills a, n and tops of the chunk with the n elements of `in` from `first` on; block is set. They go to `room`,
     * which has LNT_PAD more than n, or stay where they are if they are right as they are. */
    void (*load)(const lnt_encode_in_t *in, uint64_t first, size_t n, float *room, lnt_chunk_t *chunk);
    /* The same for whole blocks, all alive and of whole rounds, that scale() will be asked for, which it may prepare:
     * the sums of the chunk, and of tops no more than what is not finite. `room` may be where the error will go. Asks
     * for the values ahead, so that code() need not. NULL: load. */
    void (*take)(const lnt_codec_cfg_t *cfg, const lnt_encode_in_t *in, uint64_t first, size_t n, float *room,
                 lnt_chunk_t *chunk);
    /* Does a live element, finite itself, become non-finite when coded? NULL: never. */
    bool (*overflows)(const lnt_chunk_t *chunk);
    /* Add the chunk, part of one block, to the partial sums. a[-shift] is lane 0, with +0 between, and if there is a
     * shift, +0 in the LNT_PAD elements behind. NULL: nothing to measure. */
    void (*measure)(const lnt_codec_cfg_t *cfg, const lnt_chunk_t *chunk, size_t shift, lnt_measure_t *m);
    /* As in lnt_codec_ops_t. */
    float (*finish)(const lnt_codec_cfg_t *cfg, const lnt_measure_t *m, bool *poisoned);
    /* The same for block number b of the chunk, a clean one, without the way over partial sums. Implementations that
     * take blocks one by one have NULL. */
    float (*scale)(const lnt_codec_cfg_t *cfg, const lnt_chunk_t *chunk, size_t b, bool *poisoned);
    /* Codes elements from `start`, the first of a block, on without a chunk. Returns how many, whole blocks: what comes
     * next needs the usual way. NULL: everything does. */
    uint64_t (*direct)(const lnt_codec_cfg_t *cfg, const lnt_encode_in_t *in, uint64_t start, lnt_encode_out_t *out);
    bool sweeps; /* scale() goes over the chunk and asks for the values ahead, so that code() need not */
    /* Codes, and error[i] = a[i] - decoded unless error is NULL, by the scales of the chunk. Dead elements and what
     * lies behind the last one have code 0 and error +0. */
    void (*code)(const lnt_chunk_t *chunk, uint8_t *codes, float *error);
    /* out = (add ? out : nothing) + decoded run 0 + ... of n <= LNT_CHUNK elements; 1 <= n_runs <= LNT_RUNS_AT_ONCE. */
    void (*sum)(const uint8_t *const *codes, const float *scales, uint32_t n_runs, size_t n, const uint8_t *live,
                bool add, float *out);
} lnt_block_codec_t;

typedef struct lnt_scratch {
    alignas(64) float room[LNT_PAD + LNT_CHUNK + LNT_PAD];
    alignas(64) float error[LNT_CHUNK + LNT_PAD];
    alignas(64) uint8_t codes[LNT_CODES_MAX];
    lnt_next_t next;
    float *a; /* the chunk, inside room; +0 before it are the lanes in front of one that starts inside a round */
} lnt_scratch_t;

LNT_INLINE void lnt_scratch_init(lnt_scratch_t *s)
{
    memset(s->room, 0, LNT_PAD * sizeof(*s->room));
    s->a = s->room + LNT_PAD;
    s->next = (lnt_next_t){{0}};
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

/* Values that were formed a moment ago are in cache. */
LNT_INLINE lnt_ahead_t lnt_ahead_of(const lnt_encode_in_t *in, uint64_t first, const lnt_scratch_t *s)
{
    const uintptr_t a = (uintptr_t)s->a;
    const unsigned value_shift = in->dtype == LNT_F32 ? 2 : 1;
    uint64_t at = first + LNT_CHUNK;
    lnt_ahead_t ahead = {.values = (uintptr_t)in->values + (at << value_shift),
                         .error = in->error_in ? (uintptr_t)in->error_in + at * sizeof(float) : a,
                         .value_shift = value_shift};
    for (int k = 0; k < LNT_NEXTS; k++) {
        ahead.next[k] = s->next.at[k] ? s->next.at[k] + first * sizeof(float) : a;
        if (s->next.at[k]) ahead.values = a;
    }
    return ahead;
}

/* The chunk from element `first` to `end` at most, of blocks of `block` elements or a part of one, before it has
 * values. Returns how many elements it has. */
LNT_INLINE size_t lnt_chunk_begin(const lnt_encode_in_t *in, uint64_t first, uint64_t end, uint64_t block,
                                  const lnt_scratch_t *s, lnt_chunk_t *chunk)
{
    size_t n = lnt_chunk_size(end - first);
    chunk->block = block < n ? (size_t)block : n;
    chunk->live = in->live ? in->live + first / 8 : NULL;
    chunk->seed = in->seed;
    chunk->index = in->index + first;
    chunk->ahead = lnt_ahead_of(in, first, s);
    return n;
}

LNT_INLINE void lnt_chunk_load(const lnt_block_codec_t *codec, const lnt_encode_in_t *in, uint64_t first, uint64_t end,
                               uint64_t block, lnt_scratch_t *s, lnt_chunk_t *chunk)
{
    size_t n = lnt_chunk_begin(in, first, end, block, s, chunk);
    codec->load(in, first, n, s->a, chunk);
}

/* Can an element of block b, dead or not, not be coded? Without scales all is one block. */
LNT_INLINE bool lnt_chunk_poisoned(const lnt_block_codec_t *codec, const lnt_chunk_t *chunk, size_t b)
{
    return chunk->tops[b].all >= LNT_F32_INF_BITS || (codec->overflows && codec->overflows(chunk));
}

/* The live elements of block b. */
LNT_INLINE uint64_t lnt_chunk_live(const lnt_chunk_t *chunk, size_t b)
{
    size_t first = b * chunk->block, n = chunk->n - first < chunk->block ? chunk->n - first : chunk->block;
    return chunk->live ? lnt_count_live(chunk->live + first / 8, n) : n;
}

/* Block b as a chunk of its own. */
LNT_INLINE lnt_chunk_t lnt_chunk_of_block(const lnt_chunk_t *chunk, size_t b)
{
    size_t first = b * chunk->block;
    lnt_chunk_t one = *chunk;
    one.a += first;
    one.n = one.block = chunk->n - first < chunk->block ? chunk->n - first : chunk->block;
    if (one.live) one.live += first / 8;
    one.index += first;
    one.tops[0] = chunk->tops[b];
    one.scales[0] = chunk->scales[b];
    return one;
}

/* `position`: of the chunk in its block. */
LNT_INLINE void lnt_chunk_measure(const lnt_block_codec_t *codec, const lnt_codec_cfg_t *cfg, lnt_chunk_t *chunk,
                                  uint64_t position, lnt_scratch_t *s, lnt_measure_t *m)
{
    size_t shift = (size_t)(position % LNT_TREE_LANES);
    m->count += lnt_chunk_live(chunk, 0);
    if (shift) {
        if (chunk->a != s->a) memcpy(s->a, chunk->a, chunk->n * sizeof(*s->a));
        memset(s->a + chunk->n, 0, LNT_PAD * sizeof(*s->a));
        chunk->a = s->a;
    }
    if (codec->measure) codec->measure(cfg, chunk, shift, m);
}

/* Codes and error of the chunk, by way of scratch where loops would write behind its end. */
LNT_INLINE void lnt_chunk_code(const lnt_block_codec_t *codec, const lnt_chunk_t *chunk, lnt_scratch_t *s,
                               uint8_t *codes, float *error_out)
{
    size_t n = chunk->n;
    if (n % codec->strip == 0) {
        codec->code(chunk, codes, error_out);
        return;
    }
    codec->code(chunk, s->codes, error_out ? s->error : NULL);
    memcpy(codes, s->codes, lnt_code_bytes(codec, n));
    if (error_out) memcpy(error_out, s->error, n * sizeof(*error_out));
}

/* Where the error replaces what was just read, going around the caches costs: 0.71 instead of 0.80 of a += b. */
LNT_INLINE bool lnt_streams(const lnt_encode_in_t *in, const lnt_encode_out_t *out)
{
    return out->stream && out->error_out != in->error_in;
}

/* Whole blocks, whose scales come next. An error in place has room for input + error in the meantime: that is less for
 * the first-level cache to hold. */
LNT_INLINE void lnt_chunk_take(const lnt_block_codec_t *codec, const lnt_codec_cfg_t *cfg, const lnt_encode_in_t *in,
                               uint64_t first, uint64_t end, lnt_scratch_t *s, const lnt_encode_out_t *out,
                               lnt_chunk_t *chunk)
{
    size_t n = lnt_chunk_begin(in, first, end, cfg->block, s, chunk);
    bool in_place = out->error_out && out->error_out == in->error_in;
    chunk->taken = codec->take && !in->live && n % LNT_PAD == 0;
    if (chunk->taken)
        codec->take(cfg, in, first, n, in_place ? out->error_out + first : s->a, chunk);
    else
        codec->load(in, first, n, s->a, chunk);
}

/* The chunk, whose first element is element i of the run, goes out. `poisoned`: codes 0 under a scale of +0, and an
 * error nobody may use. Values without a scale (f32, bf16) pass as they are: plain collectives hand NaN and Inf on. */
LNT_INLINE void lnt_block_code(const lnt_block_codec_t *codec, const lnt_encode_in_t *in, lnt_chunk_t *chunk,
                               uint64_t i, bool poisoned, lnt_scratch_t *s, lnt_encode_out_t *out)
{
    uint8_t *codes = out->codes + i * codec->bits / 8;
    float *error_out = out->error_out ? out->error_out + i : NULL;
    if (poisoned) out->poisoned = true;
    if (poisoned && codec->has_scales) {
        memset(codes, 0, lnt_code_bytes(codec, chunk->n));
        if (error_out) memmove(error_out, chunk->a, chunk->n * sizeof(*error_out));
        return;
    }
    chunk->stream = lnt_streams(in, out);
    lnt_chunk_code(codec, chunk, s, codes, error_out);
}

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
    if (codec->sweeps) chunk.ahead.values = (uintptr_t)chunk.a;
    if (clean) {
        lnt_block_code(codec, in, &chunk, start, false, s, out);
        return;
    }
    for (size_t b = 0; b * chunk.block < chunk.n; b++) {
        lnt_chunk_t one = lnt_chunk_of_block(&chunk, b);
        lnt_block_code(codec, in, &one, start + b * chunk.block, poisoned[b], s, out);
    }
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
    const uint32_t n_blocks = lnt_group_blocks(codec, cfg);
    const uint64_t group = (uint64_t)n_blocks * cfg->block;
    lnt_scratch_init(&s);
    s.next = lnt_next_take();
    for (uint64_t start = 0, block = 0; start < in->n; start += group, block += n_blocks) {
        if (codec->direct) start += codec->direct(cfg, in, start, out);
        if (start == in->n) break;
        if (codec->direct) block = start / cfg->block;
        uint64_t end = in->n - start < group ? in->n : start + group;
        if (codec->scale && end - start <= LNT_CHUNK)
            lnt_block_encode_group(codec, cfg, in, start, end, block, &s, out);
        else
            lnt_block_encode_one(codec, cfg, in, start, end, block, &s, out);
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
