/* The reference driver (block_ref.h): runs to blocks, blocks to chunks in scratch, and back.
 *
 * A block of one chunk is read once. A larger one is read twice, first to measure, then to code; the error of a chunk
 * is written only after the chunk was read, so error_out may be error_in. Knows no codec.
 */
#include <stdalign.h>
#include <string.h>

#include "block_ref.h"
#include "float_bits.h"
#include "impl.h"

enum { STRIP = LNT_PAD };

typedef struct scratch {
    alignas(64) float room[LNT_PAD + LNT_CHUNK + LNT_PAD];
    float error[LNT_CHUNK + LNT_PAD];
    uint8_t codes[LNT_CODES_MAX];
    float *a; /* the chunk, inside room; +0 before it are the lanes in front of one that starts inside a round */
} scratch_t;

static void scratch_init(scratch_t *s)
{
    memset(s->room, 0, LNT_PAD * sizeof(*s->room));
    s->a = s->room + LNT_PAD;
}

static size_t chunk_size(uint64_t left)
{
    return left < LNT_CHUNK ? (size_t)left : LNT_CHUNK;
}

static bool live_bit(const uint8_t *live, size_t i)
{
    return (live[i / 8] >> (i % 8)) & 1;
}

static bool any_nonfinite(const float *a, size_t n)
{
    uint32_t any = 0;
    for (size_t i = 0; i < n; i += STRIP)
        for (size_t k = 0; k < STRIP; k++)
            any |= lnt_f32_nonfinite_bit(a[i + k]);
    return any >> 31;
}

/* a += error, for any n: what is not whole strips goes through padded scratch. Returns any_nonfinite(a). */
static bool add_error(float *restrict a, const float *error, size_t n, float *restrict room)
{
    if (n % STRIP) {
        memcpy(room, error, n * sizeof(*error));
        memset(room + n, 0, LNT_PAD * sizeof(*room));
        error = room;
    }
    uint32_t any = 0;
    for (size_t i = 0; i < n; i += STRIP) {
        for (size_t k = 0; k < STRIP; k++) {
            float sum = a[i + k] + error[i + k];
            a[i + k] = sum;
            any |= lnt_f32_nonfinite_bit(sum);
        }
    }
    return any >> 31;
}

static void zero_dead(float *a, size_t n, const uint8_t *live)
{
    for (size_t i = 0; i < n; i++)
        if (!live_bit(live, i)) a[i] = 0.0f;
}

static uint64_t count_live(const uint8_t *live, size_t n)
{
    uint64_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += live_bit(live, i);
    return count;
}

/* The input of one block or piece: `first` and sizes count from its own start. */
static lnt_encode_in_t sub_input(const lnt_encode_in_t *in, uint64_t first, uint64_t n)
{
    lnt_encode_in_t sub = *in;
    sub.values = (const uint8_t *)in->values + first * lnt_dtype_size(in->dtype);
    sub.n = n;
    sub.index = in->index + first;
    if (in->live) sub.live = in->live + first / 8;
    if (in->error_in) sub.error_in = in->error_in + first;
    return sub;
}

/* The chunk of n elements from `first` on: a = input + error, dead elements +0, padding +0. Sets *poisoned_p if an
 * element, dead or not, cannot be coded. */
static lnt_chunk_t load_chunk(const lnt_ref_loops_t *loops, const lnt_encode_in_t *in, uint64_t first, size_t n,
                              scratch_t *s, bool *poisoned_p)
{
    const uint8_t *values = (const uint8_t *)in->values + first * lnt_dtype_size(in->dtype);
    lnt_chunk_t chunk = {.a = s->a,
                         .n = n,
                         .live = in->live ? in->live + first / 8 : NULL,
                         .seed = in->seed,
                         .index = in->index + first};
    lnt_array_ops_ref.widen[in->dtype](values, n, s->a);
    memset(s->a + n, 0, LNT_PAD * sizeof(*s->a));
    bool poisoned = in->error_in ? add_error(s->a, in->error_in + first, n, s->error) : any_nonfinite(s->a, n);
    if (chunk.live) zero_dead(s->a, n, chunk.live);
    if (poisoned || (loops->overflows && loops->overflows(&chunk))) *poisoned_p = true;
    return chunk;
}

static void measure_chunk(const lnt_ref_loops_t *loops, const lnt_codec_cfg_t *cfg, const lnt_chunk_t *chunk,
                          uint64_t position, lnt_measure_t *m)
{
    m->count += chunk->live ? count_live(chunk->live, chunk->n) : chunk->n;
    if (loops->measure) loops->measure(cfg, chunk, (size_t)(position % LNT_TREE_LANES), m);
}

/* Padding coded as live elements and dead ones coded by their +0 must not show. */
static void clear_codes(const lnt_ref_loops_t *loops, const uint8_t *live, size_t n, uint8_t *codes, float *error)
{
    if (loops->bits >= 8) return; /* +0 has code 0 and error +0 there */
    size_t bytes = (n * loops->bits + 7) / 8;
    if (n * loops->bits % 8) codes[bytes - 1] &= (uint8_t)((1u << (n * loops->bits % 8)) - 1);
    if (!live) return;
    for (size_t i = 0; i < n; i++) {
        if (live_bit(live, i)) continue;
        size_t bit = i * loops->bits;
        codes[bit / 8] &= (uint8_t) ~(((1u << loops->bits) - 1) << (bit % 8));
        error[i] = 0.0f;
    }
}

/* Codes and error of the chunk in scratch. `poisoned`: codes 0 under a scale of +0, and an error nobody may use. Values
 * without a scale (f32, bf16) pass as they are: plain collectives hand NaN and Inf on. */
static void code_chunk(const lnt_ref_loops_t *loops, const lnt_chunk_t *chunk, float scale, bool poisoned, scratch_t *s,
                       uint8_t *codes, float *error_out)
{
    size_t n = chunk->n, bytes = (n * loops->bits + 7) / 8;
    if (poisoned && loops->has_scales) {
        memset(codes, 0, bytes);
        if (error_out) memcpy(error_out, s->a, n * sizeof(*s->a));
        return;
    }
    bool whole = error_out && n % STRIP == 0; /* nothing is overrun: no detour through scratch */
    float *error = whole ? error_out : s->error;
    loops->code(chunk, scale, s->codes, error);
    clear_codes(loops, chunk->live, n, s->codes, error);
    memcpy(codes, s->codes, bytes);
    if (error_out && !whole) memcpy(error_out, error, n * sizeof(*error));
}

void lnt_ref_measure(const lnt_ref_loops_t *loops, const lnt_codec_cfg_t *cfg, const lnt_encode_in_t *in,
                     uint64_t first, lnt_measure_t *m)
{
    scratch_t s;
    scratch_init(&s);
    for (uint64_t i = 0; i < in->n; i += LNT_CHUNK) {
        lnt_chunk_t chunk = load_chunk(loops, in, i, chunk_size(in->n - i), &s, &m->poisoned);
        measure_chunk(loops, cfg, &chunk, first + i, m);
    }
}

float lnt_ref_finish(const lnt_ref_loops_t *loops, const lnt_codec_cfg_t *cfg, const lnt_measure_t *m, bool *poisoned)
{
    bool codable = !m->poisoned;
    float scale = codable && loops->finish ? loops->finish(cfg, m, &codable) : 0.0f;
    if (!codable) *poisoned = true;
    return codable ? scale : 0.0f;
}

void lnt_ref_encode_scaled(const lnt_ref_loops_t *loops, const lnt_encode_in_t *in, float scale, lnt_encode_out_t *out)
{
    scratch_t s;
    bool poisoned = false;
    scratch_init(&s);
    for (uint64_t i = 0; i < in->n; i += LNT_CHUNK) {
        lnt_chunk_t chunk = load_chunk(loops, in, i, chunk_size(in->n - i), &s, &poisoned);
        code_chunk(loops, &chunk, scale, poisoned, &s, out->codes + i * loops->bits / 8,
                   out->error_out ? out->error_out + i : NULL);
    }
    if (poisoned && loops->has_scales) memset(out->codes, 0, (size_t)((in->n * loops->bits + 7) / 8));
    if (poisoned) out->poisoned = true;
    if (loops->has_scales && in->n) lnt_wire_store_f32(out->scales, poisoned ? 0.0f : scale);
}

/* One block; `in` and `error_out` start at it. The chunk of a small block is still in scratch when it is coded. */
static float encode_block(const lnt_ref_loops_t *loops, const lnt_codec_cfg_t *cfg, const lnt_encode_in_t *in,
                          scratch_t *s, uint8_t *codes, float *error_out, bool *poisoned_p)
{
    lnt_measure_t m = {.poisoned = false};
    lnt_chunk_t chunk;
    for (uint64_t i = 0; i < in->n; i += LNT_CHUNK) {
        chunk = load_chunk(loops, in, i, chunk_size(in->n - i), s, &m.poisoned);
        measure_chunk(loops, cfg, &chunk, i, &m);
    }
    bool poisoned = false;
    float scale = lnt_ref_finish(loops, cfg, &m, &poisoned);
    for (uint64_t i = 0; i < in->n; i += LNT_CHUNK) {
        if (in->n > LNT_CHUNK) chunk = load_chunk(loops, in, i, chunk_size(in->n - i), s, &m.poisoned);
        code_chunk(loops, &chunk, scale, poisoned, s, codes + i * loops->bits / 8, error_out ? error_out + i : NULL);
    }
    if (poisoned) *poisoned_p = true;
    return scale;
}

void lnt_ref_encode(const lnt_ref_loops_t *loops, const lnt_codec_cfg_t *cfg, const lnt_encode_in_t *in,
                    lnt_encode_out_t *out)
{
    scratch_t s;
    scratch_init(&s);
    for (uint64_t i = 0, block = 0; i < in->n; i += cfg->block, block++) {
        uint64_t n = in->n - i < cfg->block ? in->n - i : cfg->block;
        lnt_encode_in_t sub = sub_input(in, i, n);
        float scale = encode_block(loops, cfg, &sub, &s, out->codes + i * loops->bits / 8,
                                   out->error_out ? out->error_out + i : NULL, &out->poisoned);
        if (loops->has_scales) lnt_wire_store_f32(out->scales + 4 * block, scale);
    }
}

static void add_values(float *restrict acc, const float *restrict values, size_t n)
{
    size_t whole = n - n % STRIP;
    for (size_t i = 0; i < whole; i += STRIP)
        for (size_t k = 0; k < STRIP; k++)
            acc[i + k] += values[i + k];
    for (size_t i = whole; i < n; i++)
        acc[i] += values[i];
}

/* Through scratch, unless the chunk is whole strips that may be decoded in place. */
static void decode_chunk(const lnt_ref_loops_t *loops, const uint8_t *codes, const uint8_t *live, size_t n, float scale,
                         bool add, float *out)
{
    alignas(64) float scratch[LNT_CHUNK + LNT_PAD];
    float *values = add || n % STRIP ? scratch : out;
    loops->decode(codes, n, live, scale, values);
    if (live) zero_dead(values, n, live);
    if (add)
        add_values(out, scratch, n);
    else if (values != out)
        memcpy(out, values, n * sizeof(*out));
}

static void decode_run(const lnt_ref_loops_t *loops, const lnt_codec_cfg_t *cfg, const uint8_t *scales,
                       const uint8_t *codes, uint64_t n, const uint8_t *live, bool add, float *out)
{
    for (uint64_t start = 0, block = 0; start < n; start += cfg->block, block++) {
        uint64_t end = n - start < cfg->block ? n : start + cfg->block;
        float scale = loops->has_scales ? lnt_wire_load_f32(scales + 4 * block) : 0.0f;
        for (uint64_t i = start; i < end; i += LNT_CHUNK)
            decode_chunk(loops, codes + i * loops->bits / 8, live ? live + i / 8 : NULL, chunk_size(end - i), scale,
                         add, out + i);
    }
}

void lnt_ref_decode(const lnt_ref_loops_t *loops, const lnt_codec_cfg_t *cfg, const uint8_t *scales,
                    const uint8_t *codes, uint64_t n, const uint8_t *live, float *out)
{
    decode_run(loops, cfg, scales, codes, n, live, false, out);
}

void lnt_ref_decode_add(const lnt_ref_loops_t *loops, const lnt_codec_cfg_t *cfg, const uint8_t *scales,
                        const uint8_t *codes, uint64_t n, const uint8_t *live, float *acc)
{
    decode_run(loops, cfg, scales, codes, n, live, true, acc);
}

void lnt_ref_decode_sum(const lnt_ref_loops_t *loops, const lnt_codec_cfg_t *cfg, const lnt_coded_run_t *runs,
                        uint32_t n_runs, uint64_t n, const uint8_t *live, bool add, float *out)
{
    for (uint32_t r = 0; r < n_runs; r++)
        decode_run(loops, cfg, runs[r].scales, runs[r].codes, n, live, add || r > 0, out);
}
