/* The 16-bit codecs for four elements of a thread: a format {value, INF} and a rounding. No scales. */
#ifndef LNT_HALF_CUDA_CUH
#define LNT_HALF_CUDA_CUH

#include "chance_math.h"
#include "launch_cuda.cuh"

/* The random numbers of four elements. Those whose indices share their upper half share a key. */
LNT_DEVICE void lnt_dev_chance(const lnt_dev_place_t &place, uint32_t *random)
{
    lnt_chance_key_t key = lnt_chance_key(place.seed, place.index);
    LNT_UNROLL
    for (uint32_t k = 0; k < LNT_QUAD; k++) {
        uint32_t low = (uint32_t)place.index + k;
        if (k > 0 && low == 0) key = lnt_chance_key(place.seed, place.index + k);
        random[k] = lnt_chance_u32(key, low);
    }
}

/* FORMAT: code(a, random), value(code), INF, CHANCE: does code look at the random number? */
template <class FORMAT> struct lnt_half_codec : lnt_plain_codec {
    static constexpr int BITS = 16, MEASURE = LNT_MEASURE_NOTHING;
    static constexpr bool HAS_SCALES = false;

    LNT_DEVICE lnt_quad_code<BITS> code(const float *a, float, const lnt_dev_place_t &place)
    {
        lnt_quad_code<BITS> c = {{0, 0}};
        uint32_t random[LNT_QUAD] = {0, 0, 0, 0};
        if (FORMAT::CHANCE) lnt_dev_chance(place, random);
        LNT_UNROLL
        for (int k = 0; k < LNT_QUAD; k++)
            c.w[k / 2] |= (uint32_t)FORMAT::code(a[k], random[k]) << (16 * (k % 2));
        return c;
    }

    LNT_DEVICE uint32_t overflow(const float *a, const lnt_dev_place_t &place)
    {
        lnt_quad_code<BITS> c = code(a, 0.0f, place);
        uint32_t any = 0;
        LNT_UNROLL
        for (int k = 0; k < LNT_QUAD; k++)
            any |= (lnt_quad_half(c, k) & 0x7fffu) + (0x8000u - FORMAT::INF);
        return any << 16;
    }

    LNT_DEVICE void decode(const lnt_quad_code<BITS> &c, float, float *v)
    {
        LNT_UNROLL
        for (int k = 0; k < LNT_QUAD; k++)
            v[k] = FORMAT::value(lnt_quad_half(c, k));
    }
};

#endif
