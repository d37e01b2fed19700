/* int8, int4 and int4_hadamard, vector loops. Compiled per codec and instruction set, which define LNT_INTQ_* before.
 *
 * The reference divides, code = rint(clamp(a / scale)), and a division per element is too slow. Here x = a * (1 /
 * scale) is rounded, and whatever could round differently is found and divided after all. With u = 2^-24, t = a / scale
 * and |t| <= top + 1/2: the reciprocal has one rounding and the product another, so |x - t| <= |t| (2u + u^2); the
 * quotient q of the reference has one, so |q - t| <= |t| u; together |x - q| <= (top + 1/2) 3.01u. (That takes a
 * reciprocal which is a normal number; a subnormal product is off by 2^-149 more, which no half-integer is near.)
 * rint(x) and rint(q) differ only if a half-integer lies between x and q, that is, if x is less than that far from one.
 * x - rint(x) is exact, so |x - rint(x)| < 1/2 - (top + 1/2) 4u proves the code. Magnitudes up to top + 1/4 need no
 * clamp, since they round to top at most. A strip that proves nothing is divided, and so is everything under a scale
 * that is not in [2^-126, 2^126].
 */
#ifndef LNT_INTQ_SIMD_H
#define LNT_INTQ_SIMD_H

#include "block_simd.h"
#include "impl.h"
#include "intq_math.h"

#define LNT_INTQ_SHIFTER 12582912.0f /* as in lnt_intq_round */

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

/* lnt_intq_clamp */
LNT_INLINE vf intq_clamp(vf x, float top)
{
    vi magnitude = vi_min(vf_magnitude_bits(x), vf_bits(vf_all(top)));
    return vi_floats(vi_or(magnitude, vi_and(vf_bits(x), vi_all(INT32_MIN))));
}

/* Codes of a strip and, as floats, the same numbers. Codes are read off the sum with the shifter: its unit is 1. */
LNT_INLINE void intq_divide(const intq_chunk_t *k, const vf *a, vi *codes, vf *numbers)
{
    const vf shifter = vf_all(LNT_INTQ_SHIFTER);
    LNT_UNROLL
    for (int v = 0; v < STRIP_VECS; v++) {
        vf shifted = vf_add(intq_clamp(vf_div(a[v], k->scale), k->top), shifter);
        codes[v] = vi_sub(vf_bits(shifted), vf_bits(shifter));
        numbers[v] = vf_sub(shifted, shifter);
    }
}

/* The same by the reciprocal. Returns whether all of it is proved. */
LNT_INLINE bool intq_multiply(const intq_chunk_t *k, const vf *a, vi *codes, vf *numbers)
{
    const vf shifter = vf_all(LNT_INTQ_SHIFTER);
    const float near = 0.5f - (k->top + 0.5f) * 0x1p-22f;
    vi distance = vi_all(0), largest = vi_all(0);
    LNT_UNROLL
    for (int v = 0; v < STRIP_VECS; v++) {
        vf x = vf_mul(a[v], k->inverse), shifted = vf_add(x, shifter);
        codes[v] = vi_sub(vf_bits(shifted), vf_bits(shifter));
        numbers[v] = vf_sub(shifted, shifter);
        distance = vi_max(distance, vf_magnitude_bits(vf_sub(x, numbers[v])));
        largest = vi_max(largest, vf_magnitude_bits(x));
    }
    return !vm_bits(vi_greater(distance, vf_bits(vf_all(near)))) &&
           !vm_bits(vi_greater(largest, vf_bits(vf_all(k->top + 0.25f))));
}

LNT_INLINE void intq_strip(const intq_chunk_t *k, const vf *a, vi *codes, vf *numbers)
{
    if (!k->multiply || !intq_multiply(k, a, codes, numbers)) intq_divide(k, a, codes, numbers);
}

/* A scale that is not positive divides nothing: codes 0, and everything is lost. */
LNT_INLINE bool intq_code_zero(const lnt_chunk_t *chunk, float scale, size_t code_bytes, uint8_t *codes, float *error)
{
    if (scale > 0.0f) return false;
    memset(codes, 0, code_bytes);
    if (error) memcpy(error, chunk->a, chunk->n * sizeof(*error));
    return true;
}

/* The maximum was found when the chunk was loaded. */
static inline void intq_measure(const lnt_codec_cfg_t *cfg, const lnt_chunk_t *chunk, size_t shift, lnt_measure_t *m)
{
    (void)cfg;
    (void)shift;
    if (chunk->top_bits > m->amax_bits) m->amax_bits = chunk->top_bits;
}

/* Decoded values of a strip. */
LNT_INLINE void intq_values(const vi *codes, float scale, vf *values)
{
    LNT_UNROLL
    for (int v = 0; v < STRIP_VECS; v++)
        values[v] = vf_mul(vi_to_float(codes[v]), vf_all(scale));
}

LNT_INLINE void intq_scale_strip(const intq_chunk_t *k, const vf *numbers, vf *values)
{
    LNT_UNROLL
    for (int v = 0; v < STRIP_VECS; v++)
        values[v] = vf_mul(numbers[v], k->scale);
}

#endif
