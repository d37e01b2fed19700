/* What a codec brings to the driver (block_driver.h), and the chunks it works on: at most LNT_CHUNK elements of input +
 * error, which stay in L1. How a chunk comes about, is measured and goes out, with the codec's functions; the order of
 * chunks and blocks is the driver's. The error of a chunk is written only after the chunk was read.
 */
#ifndef LNT_BLOCK_CHUNK_H
#define LNT_BLOCK_CHUNK_H

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
    /* code() of a chunk, with an error, and take() of the next, as long as it and also with an error, in one loop:
     * memory is read while values are computed. NULL: one after the other. */
    void (*code_and_take)(const lnt_codec_cfg_t *cfg, const lnt_chunk_t *chunk, uint8_t *codes, float *error,
                          const lnt_encode_in_t *in, uint64_t first, float *room, lnt_chunk_t *next);
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
    alignas(64) float other[LNT_CHUNK]; /* room of every second chunk, where two are on their way */
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

/* Where input + error of a chunk may lie. An error in place has room for it in the meantime: that is less for the
 * first-level cache to hold. */
LNT_INLINE float *lnt_chunk_room(const lnt_encode_in_t *in, uint64_t first, const lnt_encode_out_t *out, float *scratch)
{
    bool in_place = out->error_out && out->error_out == in->error_in;
    return in_place ? out->error_out + first : scratch;
}

/* Whole blocks, whose scales come next. */
LNT_INLINE void lnt_chunk_take(const lnt_block_codec_t *codec, const lnt_codec_cfg_t *cfg, const lnt_encode_in_t *in,
                               uint64_t first, uint64_t end, lnt_scratch_t *s, const lnt_encode_out_t *out,
                               lnt_chunk_t *chunk)
{
    size_t n = lnt_chunk_begin(in, first, end, cfg->block, s, chunk);
    chunk->taken = codec->take && !in->live && n % LNT_PAD == 0;
    if (chunk->taken)
        codec->take(cfg, in, first, n, lnt_chunk_room(in, first, out, s->a), chunk);
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

#endif
