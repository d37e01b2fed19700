/* int8 and int4 of f32 values as they are: no error in or out, nothing dead, whole blocks. Nothing is formed then, so a
 * group of blocks goes from the caller's memory to codes in one call, twice as fast in cache as by way of a chunk.
 * What is rare (a block of zeros, one that is not finite, scales at the edge of f32) is left to the driver.
 *
 * Codes as in intq_simd.h, proved in another way, which needs two operations less. With u = 2^-24, t = a / scale and r
 * the reciprocal as rounded, the quotient q of the reference lies between a * low and a * high, where low and high are
 * r * (1 - 4u) and r * (1 + 4u), rounded: their roundings, that of r and that of q are below 3.01u together. Rounding
 * to integers keeps order, so q has the code of both where they have the same one. (A q that is subnormal has code 0,
 * and so have both.) What is not proved is divided. |q| is at most top (1 + 2u), which needs no clamp.
 *
 * x is rounded as the last bits of the sum x + 1.5 * 2^23, of which 16 are the code: one fused operation on a, with
 * a single rounding.
 */
#ifndef LNT_INTQ_DIRECT_SIMD_H
#define LNT_INTQ_DIRECT_SIMD_H

#include "intq_simd.h"

enum { DIRECT_BLOCKS = (int)LNT_GROUP > (int)VEC ? (int)LNT_GROUP : (int)VEC };

/* Of every block of a group, in lanes. */
typedef struct direct_group {
    alignas(64) float scale[DIRECT_BLOCKS];
    alignas(64) float low[DIRECT_BLOCKS], high[DIRECT_BLOCKS];
} direct_group_t;

/* The largest magnitude of n elements, whole strips, as bits. */
LNT_INLINE uint32_t direct_top(const float *a, size_t n)
{
    vi tops[STRIP_VECS];
    LNT_UNROLL
    for (int v = 0; v < STRIP_VECS; v++)
        tops[v] = vf_magnitude_bits(vf_load(a + v * VEC));
    for (size_t i = STRIP; i < n; i += STRIP) {
        LNT_UNROLL
        for (int v = 0; v < STRIP_VECS; v++)
            tops[v] = vi_max(tops[v], vf_magnitude_bits(vf_load(a + i + v * VEC)));
    }
    LNT_UNROLL
    for (int v = 1; v < STRIP_VECS; v++)
        tops[0] = vi_max(tops[0], tops[v]);
    return vi_highest(tops[0]);
}

/* From maxima, in k->scale, to scales and what else codes need. Returns whether this way is good for all of them: the
 * reciprocal is a normal number and the largest code decodes. */
LNT_INLINE bool direct_scales(direct_group_t *k, float top)
{
    bool good = true;
    for (size_t b = 0; b < DIRECT_BLOCKS; b += VEC) {
        vf scale = vf_div(vf_load(k->scale + b), vf_all(top)), inverse = vf_div(vf_all(1.0f), scale);
        uint32_t normal = vm_bits(vf_at_least(scale, vf_all(0x1p-126f)));
        uint32_t decodes = vm_bits(vf_at_least(vf_all(0x1p120f), scale));
        if ((normal & decodes) != (1u << VEC) - 1) good = false;
        vf_store(k->scale + b, scale);
        vf_store(k->low + b, vf_mul(inverse, vf_all(1.0f - 0x1p-22f)));
        vf_store(k->high + b, vf_mul(inverse, vf_all(1.0f + 0x1p-22f)));
    }
    return good;
}

/* n elements, whole strips. Returns whether all codes are proved. */
LNT_INLINE bool direct_codes(const float *a, size_t n, float low_, float high_, intq_store_fn store, size_t bits,
                             uint8_t *codes)
{
    const vf shifter = vf_all(12582912.0f), low = vf_all(low_), high = vf_all(high_);
    vi differ = vi_all(0);
    for (size_t i = 0; i < n; i += STRIP) {
        vi strip[STRIP_VECS];
        prefetch((uintptr_t)(a + i + LNT_CHUNK), STRIP);
        LNT_UNROLL
        for (int v = 0; v < STRIP_VECS; v++) {
            vf x = vf_load(a + i + v * VEC);
            vi first = vf_bits(vf_multiply_add(x, low, shifter)), second = vf_bits(vf_multiply_add(x, high, shifter));
            differ = vi_or(differ, vi_xor(first, second));
            strip[v] = first;
        }
        store(codes + i * bits / 8, strip);
    }
    return vi_none(differ);
}

LNT_INLINE void direct_divide(const float *a, size_t n, float scale, float top, intq_store_fn store, size_t bits,
                              uint8_t *codes)
{
    const intq_chunk_t k = intq_chunk(scale, top);
    for (size_t i = 0; i < n; i += STRIP) {
        vf strip[STRIP_VECS];
        vi numbers[STRIP_VECS];
        strip_load(a + i, strip);
        intq_divide(&k, strip, numbers);
        store(codes + i * bits / 8, numbers);
    }
}

/* lnt_block_codec_t.direct */
LNT_INLINE bool intq_direct(const float *a, size_t n, size_t block, float top, intq_store_fn store, size_t bits,
                            uint8_t *scales, uint8_t *codes)
{
    direct_group_t k;
    for (size_t b = 0; b < DIRECT_BLOCKS; b++)
        k.scale[b] = 1.0f;
    for (size_t i = 0, b = 0; i < n; i += block, b++)
        k.scale[b] = lnt_f32_from_bits(direct_top(a + i, block));
    if (!direct_scales(&k, top)) return false;
    for (size_t i = 0, b = 0; i < n; i += block, b++) {
        uint8_t *to = codes + i * bits / 8;
        lnt_wire_store_f32(scales + 4 * b, k.scale[b]);
        if (!direct_codes(a + i, block, k.low[b], k.high[b], store, bits, to))
            direct_divide(a + i, block, k.scale[b], top, store, bits, to);
    }
    return true;
}

#endif
