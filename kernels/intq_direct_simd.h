/* int8 and int4 of f32 values as they are: no error in or out, nothing dead, whole blocks. Nothing is formed then, so
 * they go from the caller's memory to codes in one call, without a chunk. What is rare (a block of zeros, one that is
 * not finite, scales at the edge of f32) is left to the driver.
 *
 * A code is proved in another way than in intq_simd.h, with fewer operations. With u = 2^-24, t = a / scale and the
 * reciprocal r as rounded, y = a * r + 768.5 is rounded to a multiple of 2^-14, since it lies in [512, 1024): off by
 * 2^-15 at most. r has one rounding, the product at most one, the quotient q of the reference one, each of |t| u, and
 * |t| is at most top (1 + 2u). So y is closer than 2^-15 + 3.01 * 127u < 2^-14 to q + 768.5. Is the fraction of y not
 * 0, then there is no integer between the two nor at one of them: q + 1/2 has the floor of y, which is the code, and is
 * no tie. One element in 2^14 is not proved, and its block is divided. (A q that is subnormal is off by 2^-150 more.)
 */
#ifndef LNT_INTQ_DIRECT_SIMD_H
#define LNT_INTQ_DIRECT_SIMD_H

#include "intq_simd.h"

enum {
    DIRECT_BLOCKS = (int)LNT_GROUP > (int)VEC ? (int)LNT_GROUP : (int)VEC,
    DIRECT_LEAST = 2 * STRIP, /* elements that are coded together */
    DIRECT_BLOCK_LEAST = LNT_CHUNK / LNT_GROUP
};

/* Codes of two strips, in fixed point, to memory. */
typedef void (*direct_store_fn)(uint8_t *to, const vi *first, const vi *second);

/* How a run is coded; constant but for the block. */
typedef struct direct_form {
    float top;
    direct_store_fn store;
    intq_store_fn store_divided;
    size_t bits, block;
} direct_form_t;

/* Of every block of a group. */
typedef struct direct_group {
    alignas(64) float scale[DIRECT_BLOCKS];
    alignas(64) float inverse[DIRECT_BLOCKS];
} direct_group_t;

/* From maxima, in k->scale, to scales and reciprocals. Returns whether this way is good for all of them: reciprocals
 * are normal numbers and the largest code decodes. Maxima that are not finite give no such scale. */
LNT_INLINE bool direct_scales(direct_group_t *k, float top)
{
    bool good = true;
    for (size_t b = 0; b < DIRECT_BLOCKS; b += VEC) {
        vf scale = vf_div(vf_load(k->scale + b), vf_all(top));
        uint32_t normal = vm_bits(vf_at_least(scale, vf_all(0x1p-126f)));
        uint32_t decodes = vm_bits(vf_at_least(vf_all(0x1p120f), scale));
        if ((normal & decodes) != (1u << VEC) - 1) good = false;
        vf_store(k->scale + b, scale);
        vf_store(k->inverse + b, vf_div(vf_all(1.0f), scale));
    }
    return good;
}

/* The scales of the n elements of a group; lanes without a block get any. Returns whether this way is good for it. */
LNT_INLINE bool direct_measure(const direct_form_t *form, const float *a, size_t n, direct_group_t *k)
{
    for (size_t b = 0; b < DIRECT_BLOCKS; b += VEC)
        vf_store(k->scale + b, vf_all(1.0f));
    for (size_t i = 0, b = 0; i < n; i += form->block, b++)
        k->scale[b] = lnt_f32_from_bits(top_of(a + i, form->block));
    return direct_scales(k, form->top);
}

/* A strip in fixed point. *least_p becomes the smallest of what was there and the fractions. */
LNT_INLINE void direct_round(const float *a, vf inverse, vi *strip, vi *least_p)
{
    LNT_UNROLL
    for (int v = 0; v < STRIP_VECS; v++) {
        strip[v] = vf_bits(vf_multiply_add(vf_load(a + v * VEC), inverse, vf_all(768.5f)));
        *least_p = vi_min(*least_p, vi_and(strip[v], vi_all((1 << FIXED_POINT) - 1)));
    }
}

/* The codes of a block. Returns whether all are proved. The group behind the next one is asked for. */
LNT_INLINE bool direct_codes(const direct_form_t *form, const float *a, float inverse, uint8_t *codes)
{
    const vf by = vf_all(inverse);
    vi least = vi_all(1);
    for (size_t i = 0; i < form->block; i += DIRECT_LEAST) {
        vi first[STRIP_VECS], second[STRIP_VECS];
        prefetch((uintptr_t)(a + i + 2 * LNT_CHUNK), DIRECT_LEAST);
        direct_round(a + i, by, first, &least);
        direct_round(a + i + STRIP, by, second, &least);
        form->store(codes + i * form->bits / 8, first, second);
    }
    return !vm_bits(vi_greater(vi_all(1), least));
}

LNT_INLINE void direct_divide(const direct_form_t *form, const float *a, float scale, uint8_t *codes)
{
    const intq_chunk_t k = intq_chunk(scale, form->top);
    for (size_t i = 0; i < form->block; i += STRIP) {
        vf strip[STRIP_VECS];
        vi numbers[STRIP_VECS];
        strip_load(a + i, strip);
        intq_divide(&k, strip, numbers);
        form->store_divided(codes + i * form->bits / 8, numbers);
    }
}

LNT_INLINE void direct_code(const direct_form_t *form, const direct_group_t *k, const float *a, size_t n,
                            uint8_t *scales, uint8_t *codes)
{
    for (size_t i = 0, b = 0; i < n; i += form->block, b++) {
        uint8_t *to = codes + i * form->bits / 8;
        lnt_wire_store_f32(scales + 4 * b, k->scale[b]);
        if (!direct_codes(form, a + i, k->inverse[b], to)) direct_divide(form, a + i, k->scale[b], to);
    }
}

/* The elements of the next group: whole blocks. */
LNT_INLINE size_t direct_size(uint64_t left, size_t group, size_t block)
{
    return left >= group ? group : (size_t)left / block * block;
}

/* A group is measured before the one in front of it is coded: nothing then waits for the long
 * way from a maximum to a reciprocal. */
LNT_INLINE uint64_t direct_run(const direct_form_t *form, const lnt_encode_in_t *in, uint64_t start,
                               lnt_encode_out_t *out)
{
    const size_t block = form->block, group = LNT_CHUNK / block * block;
    const float *a = (const float *)in->values;
    direct_group_t k[2];
    uint64_t at = start;
    size_t now = direct_size(in->n - at, group, block);
    bool good = now && direct_measure(form, a + at, now, &k[0]);
    for (unsigned turn = 0; good; turn ^= 1) {
        size_t next = direct_size(in->n - at - now, group, block);
        good = next && direct_measure(form, a + at + now, next, &k[turn ^ 1]);
        direct_code(form, &k[turn], a + at, now, out->scales + at / block * 4, out->codes + at * form->bits / 8);
        at += now;
        now = next;
    }
    return at - start;
}

/* lnt_block_codec_t.direct. Blocks are nearly always of the default size, and what is known to compilers has no loops:
 * that is worth a seventh. */
LNT_INLINE uint64_t intq_direct(direct_form_t form, size_t default_block, const lnt_codec_cfg_t *cfg,
                                const lnt_encode_in_t *in, uint64_t start, lnt_encode_out_t *out)
{
    if (in->dtype != LNT_F32 || in->error_in || out->error_out || in->live) return 0;
    if (cfg->block % DIRECT_LEAST || cfg->block < DIRECT_BLOCK_LEAST || cfg->block > LNT_CHUNK) return 0;
    form.block = default_block;
    if (cfg->block == default_block) return direct_run(&form, in, start, out);
    form.block = cfg->block;
    return direct_run(&form, in, start, out);
}

#endif
