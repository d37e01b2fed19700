/* The elements of a thread, four in a row in each of ROUNDS rounds of 128: loads and stores as vectors where the
 * alignment allows, element by element where it does not or where the end is ragged. `e` is the first element, a
 * multiple of 4; elements outside 0 .. n - 1 are not touched and read as 0. Moves bits only.
 *
 * Whether vectors may be used is asked once per array, outside the loops: the loads of all rounds are then in flight
 * together.
 */
#ifndef LNT_QUAD_CUDA_CUH
#define LNT_QUAD_CUDA_CUH

#include "cuda_compat.h"

#include "bf16_math.h"
#include "f16_math.h"

enum { LNT_QUAD = 4, LNT_WARP = 32, LNT_ROUND = LNT_QUAD * LNT_WARP };

LNT_DEVICE bool lnt_quad_vectors(const void *array, uint32_t bytes, uint32_t n)
{
    return ((uintptr_t)array & (bytes - 1u)) == 0 && n % LNT_QUAD == 0;
}

LNT_DEVICE bool lnt_quad_inside(int i, uint32_t n)
{
    return (uint32_t)i < n;
}

template <int ROUNDS> LNT_DEVICE void lnt_load_f32(const float *array, int e, uint32_t n, float (*a)[LNT_QUAD])
{
    if (lnt_quad_vectors(array, sizeof(float4), n)) {
        LNT_UNROLL
        for (int r = 0; r < ROUNDS; r++) {
            float4 q = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (lnt_quad_inside(e + r * LNT_ROUND, n)) q = *(const float4 *)(array + e + r * LNT_ROUND);
            a[r][0] = q.x, a[r][1] = q.y, a[r][2] = q.z, a[r][3] = q.w;
        }
        return;
    }
    LNT_UNROLL
    for (int r = 0; r < ROUNDS; r++) {
        LNT_UNROLL
        for (int k = 0; k < LNT_QUAD; k++)
            a[r][k] = lnt_quad_inside(e + r * LNT_ROUND + k, n) ? array[e + r * LNT_ROUND + k] : 0.0f;
    }
}

template <int ROUNDS> LNT_DEVICE void lnt_store_f32(float *array, int e, uint32_t n, const float (*a)[LNT_QUAD])
{
    if (lnt_quad_vectors(array, sizeof(float4), n)) {
        LNT_UNROLL
        for (int r = 0; r < ROUNDS; r++)
            if (lnt_quad_inside(e + r * LNT_ROUND, n))
                *(float4 *)(array + e + r * LNT_ROUND) = make_float4(a[r][0], a[r][1], a[r][2], a[r][3]);
        return;
    }
    LNT_UNROLL
    for (int r = 0; r < ROUNDS; r++) {
        LNT_UNROLL
        for (int k = 0; k < LNT_QUAD; k++)
            if (lnt_quad_inside(e + r * LNT_ROUND + k, n)) array[e + r * LNT_ROUND + k] = a[r][k];
    }
}

/* ---- numbers of BITS bits, first element in the least significant bits of word 0 ---- */

/* Four numbers in words. */
template <int BITS> struct lnt_quad_code {
    static constexpr int WORDS = (LNT_QUAD * BITS + 31) / 32, BYTES = LNT_QUAD * BITS / 8;
    uint32_t w[WORDS];
};

template <int BITS> LNT_DEVICE lnt_quad_code<BITS> lnt_quad_load(const uint8_t *p)
{
    lnt_quad_code<BITS> code;
    if constexpr (BITS == 32) {
        uint4 q = *(const uint4 *)p;
        code.w[0] = q.x, code.w[1] = q.y, code.w[2] = q.z, code.w[3] = q.w;
    } else if constexpr (BITS == 16) {
        uint2 q = *(const uint2 *)p;
        code.w[0] = q.x, code.w[1] = q.y;
    } else if constexpr (BITS == 8) {
        code.w[0] = *(const uint32_t *)p;
    } else {
        code.w[0] = *(const uint16_t *)p;
    }
    return code;
}

template <int BITS> LNT_DEVICE void lnt_quad_store(uint8_t *p, const lnt_quad_code<BITS> &code)
{
    if constexpr (BITS == 32)
        *(uint4 *)p = make_uint4(code.w[0], code.w[1], code.w[2], code.w[3]);
    else if constexpr (BITS == 16)
        *(uint2 *)p = make_uint2(code.w[0], code.w[1]);
    else if constexpr (BITS == 8)
        *(uint32_t *)p = code.w[0];
    else
        *(uint16_t *)p = (uint16_t)code.w[0];
}

template <int BITS> LNT_DEVICE void lnt_quad_clear(lnt_quad_code<BITS> *code)
{
    LNT_UNROLL
    for (int i = 0; i < lnt_quad_code<BITS>::WORDS; i++)
        code->w[i] = 0;
}

/* 4 bits and more: whole bytes per quad. A last byte may hold less than it could. */
template <int BITS, int ROUNDS>
LNT_DEVICE void lnt_load_codes(const uint8_t *codes, int e, uint32_t n, lnt_quad_code<BITS> *c)
{
    constexpr int bytes = lnt_quad_code<BITS>::BYTES;
    int at = e / LNT_QUAD * bytes;
    bool vectors = lnt_quad_vectors(codes, bytes, n);
    uint32_t end = (n * BITS + 7) / 8;
    LNT_UNROLL
    for (int r = 0; r < ROUNDS; r++)
        lnt_quad_clear(&c[r]);
    if (vectors) {
        LNT_UNROLL
        for (int r = 0; r < ROUNDS; r++)
            if (lnt_quad_inside(e + r * LNT_ROUND, n)) c[r] = lnt_quad_load<BITS>(codes + at + r * LNT_WARP * bytes);
        return;
    }
    LNT_UNROLL
    for (int r = 0; r < ROUNDS; r++) {
        LNT_UNROLL
        for (int i = 0; i < bytes; i++)
            if (lnt_quad_inside(at + r * LNT_WARP * bytes + i, end))
                c[r].w[i / 4] |= (uint32_t)codes[at + r * LNT_WARP * bytes + i] << (8 * (i % 4));
    }
}

template <int BITS, int ROUNDS>
LNT_DEVICE void lnt_store_codes(uint8_t *codes, int e, uint32_t n, const lnt_quad_code<BITS> *c)
{
    constexpr int bytes = lnt_quad_code<BITS>::BYTES;
    int at = e / LNT_QUAD * bytes;
    uint32_t end = (n * BITS + 7) / 8;
    if (lnt_quad_vectors(codes, bytes, n)) {
        LNT_UNROLL
        for (int r = 0; r < ROUNDS; r++)
            if (lnt_quad_inside(e + r * LNT_ROUND, n)) lnt_quad_store<BITS>(codes + at + r * LNT_WARP * bytes, c[r]);
        return;
    }
    LNT_UNROLL
    for (int r = 0; r < ROUNDS; r++) {
        LNT_UNROLL
        for (int i = 0; i < bytes; i++)
            if (lnt_quad_inside(at + r * LNT_WARP * bytes + i, end))
                codes[at + r * LNT_WARP * bytes + i] = (uint8_t)(c[r].w[i / 4] >> (8 * (i % 4)));
    }
}

/* Single bits are read by half bytes. (Bytes hold more than one thread's elements: block_cuda.cuh stores them.) */
template <int ROUNDS> LNT_DEVICE void lnt_load_bits(const uint8_t *codes, int e, uint32_t n, lnt_quad_code<1> *c)
{
    LNT_UNROLL
    for (int r = 0; r < ROUNDS; r++) {
        lnt_quad_clear(&c[r]);
        if (lnt_quad_inside(e + r * LNT_ROUND, n))
            c[r].w[0] = (uint32_t)codes[e / 8 + r * LNT_ROUND / 8] >> (e % 8) & 15u;
    }
}

LNT_DEVICE uint16_t lnt_quad_half(const lnt_quad_code<16> &code, int k)
{
    return (uint16_t)(code.w[k / 2] >> (16 * (k % 2)));
}

/* ---- element types of inputs ---- */

struct lnt_type_f32 {
    static constexpr int BYTES = 4;
    template <int ROUNDS> LNT_DEVICE void load(const void *array, int e, uint32_t n, float (*a)[LNT_QUAD])
    {
        lnt_load_f32<ROUNDS>((const float *)array, e, n, a);
    }
};

struct lnt_type_bf16 {
    static constexpr int BYTES = 2;
    template <int ROUNDS> LNT_DEVICE void load(const void *array, int e, uint32_t n, float (*a)[LNT_QUAD])
    {
        lnt_quad_code<16> c[ROUNDS];
        lnt_load_codes<16, ROUNDS>((const uint8_t *)array, e, n, c);
        LNT_UNROLL
        for (int r = 0; r < ROUNDS; r++) {
            LNT_UNROLL
            for (int k = 0; k < LNT_QUAD; k++)
                a[r][k] = lnt_bf16_value(lnt_quad_half(c[r], k));
        }
    }
};

struct lnt_type_f16 {
    static constexpr int BYTES = 2;
    template <int ROUNDS> LNT_DEVICE void load(const void *array, int e, uint32_t n, float (*a)[LNT_QUAD])
    {
        lnt_quad_code<16> c[ROUNDS];
        lnt_load_codes<16, ROUNDS>((const uint8_t *)array, e, n, c);
        LNT_UNROLL
        for (int r = 0; r < ROUNDS; r++) {
            LNT_UNROLL
            for (int k = 0; k < LNT_QUAD; k++)
                a[r][k] = lnt_f16_value(lnt_quad_half(c[r], k));
        }
    }
};

#endif
