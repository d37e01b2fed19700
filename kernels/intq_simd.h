/* What int8, int4 and int4_hadamard share, vector loops.
 *
 * The reference divides, code = rint(clamp(a / scale)), and a division per element is too slow. Here x = a * (1 /
 * scale) is rounded, and whatever could round differently is found and divided after all. With u = 2^-24, t = a / scale
 * and |t| <= top + 1/2: the reciprocal has one rounding and the product another, so |x - t| <= |t| (2u + u^2); the
 * quotient q of the reference has one, so |q - t| <= |t| u; together |x - q| <= (top + 1/2) 3.01u. (That takes a
 * reciprocal which is a normal number; a subnormal product is off by 2^-149 more, which no half-integer is near.)
 * rint(x) and rint(q) differ only if a half-integer lies between x and q, that is, if x is less than that far from one.
 * x - rint(x) is exact, so |x - rint(x)| < 1/2 - (top + 1/2) 4u proves the code. Magnitudes up to top + 1/4 need no
 * clamp, since they round to top at most. What is not proved is divided, and so is everything under a scale that
 * is not in [2^-126, 2^126].
 */
#ifndef LNT_INTQ_SIMD_H
#define LNT_INTQ_SIMD_H

#include "block_simd.h"
#include "impl.h"
#include "intq_math.h"

/* What a chunk has in common. */
typedef struct intq_chunk {
    float top;
    vf scale, inverse;
    bool multiply; /* the reciprocal is good for a proof */
} intq_chunk_t;

LNT_INLINE intq_chunk_t intq_chunk(float scale, float top)
{
    bool normal = scale >= 0x1p-126f && scale <= 0x1p126f;
    return (intq_chunk_t){top, vf_all(scale), vf_all(normal ? 1.0f / scale : 0.0f), normal};
}

/* Do no magnitudes up to `largest`, as bits, need the clamp? */
LNT_INLINE bool intq_bounded(float scale, float top, uint32_t largest)
{
    return lnt_f32_from_bits(largest) <= scale * (top + 0.125f);
}

/* lnt_intq_clamp */
LNT_INLINE vf intq_clamp(vf x, float top)
{
    vi magnitude = vi_min(vf_magnitude_bits(x), vf_bits(vf_all(top)));
    return vi_floats(vi_or(magnitude, vi_and(vf_bits(x), vi_all(INT32_MIN))));
}

/* Codes of a strip, of magnitudes up to top. */
LNT_INLINE void intq_divide(const intq_chunk_t *k, const vf *a, vi *codes)
{
    LNT_UNROLL
    for (int v = 0; v < STRIP_VECS; v++)
        codes[v] = vf_to_int(intq_clamp(vf_div(a[v], k->scale), k->top));
}

/* The same by the reciprocal. *farthest_p becomes the largest of what was there and the distances of quotients from
 * their codes, as bits. */
LNT_INLINE void intq_multiply(const intq_chunk_t *k, const vf *a, vi *codes, vi *farthest_p)
{
    LNT_UNROLL
    for (int v = 0; v < STRIP_VECS; v++) {
        vf x = vf_mul(a[v], k->inverse);
        codes[v] = vf_to_int(x);
        *farthest_p = vi_max(*farthest_p, vf_magnitude_bits(vf_sub(x, vi_to_float(codes[v]))));
    }
}

LNT_INLINE bool intq_proved(const intq_chunk_t *k, vi farthest)
{
    return !vm_bits(vi_greater(farthest, vf_bits(vf_all(0.5f - (k->top + 0.5f) * 0x1p-22f))));
}

/* Codes of a strip to memory. */
typedef void (*intq_store_fn)(uint8_t *codes, const vi *strip);

typedef struct intq_out {
    uint8_t *codes;
    float *error;
    bool stream;
} intq_out_t;

LNT_INLINE void intq_store(const intq_chunk_t *k, intq_store_fn store, size_t bits, const vf *a, const vi *strip,
                           size_t i, const intq_out_t *out)
{
    vf decoded[STRIP_VECS];
    store(out->codes + i * bits / 8, strip);
    if (!out->error) return;
    LNT_UNROLL
    for (int v = 0; v < STRIP_VECS; v++)
        decoded[v] = vf_mul(vi_to_float(strip[v]), k->scale);
    strip_store_error(out->error + i, a, decoded, out->stream);
}

/* Strips [i, end). Returns whether all is proved, which `divide` needs not. */
LNT_INLINE bool intq_code_strips(const lnt_chunk_t *chunk, const intq_chunk_t *k, intq_store_fn store, size_t bits,
                                 size_t i, size_t end, bool divide, const intq_out_t *out)
{
    const lnt_ahead_t ahead = chunk->ahead;
    const float *from = chunk->a;
    vi farthest = vi_all(0);
    for (; i < end; i += STRIP) {
        vf a[STRIP_VECS];
        vi strip[STRIP_VECS];
        if (!divide) prefetch_values(ahead, i, STRIP);
        if (!divide && out->error) prefetch(ahead.error + i * sizeof(float), STRIP);
        if (!divide && out->stream) prefetch_next(ahead, i, STRIP);
        strip_load(from + i, a);
        if (divide)
            intq_divide(k, a, strip);
        else
            intq_multiply(k, a, strip, &farthest);
        intq_store(k, store, bits, a, strip, i, out);
    }
    return intq_proved(k, farthest);
}

/* Block b, which is elements [i, end): some strips at a time, so that proofs cost little, and little is done twice
 * where they fail. Under a scale that is not positive codes are 0, and everything is lost. */
LNT_INLINE void intq_code_block(const lnt_chunk_t *chunk, float top, intq_store_fn store, size_t bits, size_t b,
                                size_t i, size_t end, const intq_out_t *out)
{
    enum { SOME = 8 * STRIP };
    float scale = chunk->scales[b];
    intq_chunk_t k = intq_chunk(scale, top);
    if (!(scale > 0.0f)) {
        memset(out->codes + i * bits / 8, 0, ((end - i) * bits + 7) / 8);
        if (out->error) memcpy(out->error + i, chunk->a + i, (end - i) * sizeof(*out->error));
        return;
    }
    if (!intq_bounded(scale, top, chunk->tops[b].live)) k.multiply = false;
    for (; i < end; i += SOME) {
        size_t some_end = end - i < SOME ? end : i + SOME;
        bool proved = k.multiply && intq_code_strips(chunk, &k, store, bits, i, some_end, false, out);
        if (!proved) (void)intq_code_strips(chunk, &k, store, bits, i, some_end, true, out);
    }
}

LNT_INLINE void intq_code_blocks(const lnt_chunk_t *chunk, float top, intq_store_fn store, size_t bits,
                                 const intq_out_t *out)
{
    for (size_t i = 0, b = 0; i < chunk->n; i += chunk->block, b++)
        intq_code_block(chunk, top, store, bits, b, i, chunk->n - i < chunk->block ? chunk->n : i + chunk->block, out);
}

/* lnt_block_codec_t.code of int8 and int4. What is constant in each of the variants makes its loop short. */
LNT_INLINE void intq_code(const lnt_chunk_t *chunk, float top, intq_store_fn store, size_t bits, uint8_t *codes,
                          float *error)
{
    const intq_out_t bare = {codes, NULL, false}, kept = {codes, error, false}, streamed = {codes, error, true};
    if (!error)
        intq_code_blocks(chunk, top, store, bits, &bare);
    else if (streams(chunk, error))
        intq_code_blocks(chunk, top, store, bits, &streamed);
    else
        intq_code_blocks(chunk, top, store, bits, &kept);
}

/* The maximum was found when the chunk was loaded. */
static inline void intq_measure(const lnt_codec_cfg_t *cfg, const lnt_chunk_t *chunk, size_t shift, lnt_measure_t *m)
{
    (void)cfg;
    (void)shift;
    if (chunk->tops[0].live > m->amax_bits) m->amax_bits = chunk->tops[0].live;
}

/* The scale of a clean block. */
LNT_INLINE float intq_scale_of(uint32_t amax_bits, float top, bool *poisoned)
{
    float scale = lnt_intq_scale(amax_bits, top);
    if (lnt_intq_scale_decodes(scale, top)) return scale;
    *poisoned = true;
    return 0.0f;
}

/* Decoded values of a strip. */
LNT_INLINE void intq_values(const vi *codes, float scale, vf *values)
{
    LNT_UNROLL
    for (int v = 0; v < STRIP_VECS; v++)
        values[v] = vf_mul(vi_to_float(codes[v]), vf_all(scale));
}

#endif
