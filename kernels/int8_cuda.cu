/* int8 for four elements of a thread; the warp's part is block_cuda.cuh. */
#include "int8_math.h"
#include "launch_cuda.cuh"

struct int8 : lnt_plain_codec {
    static constexpr int BITS = 8, MEASURE = LNT_MEASURE_MAX;
    static constexpr bool HAS_SCALES = true;

    LNT_DEVICE float finish(lnt_scale_rule_t, double, uint32_t amax_bits, uint64_t, bool *codable_p)
    {
        float scale = lnt_int8_scale(amax_bits);
        if (!lnt_int8_scale_decodes(scale)) *codable_p = false;
        return scale;
    }

    LNT_DEVICE lnt_quad_code<BITS> code(const float *a, float scale, const lnt_dev_place_t &)
    {
        lnt_quad_code<BITS> c = {{0}};
        if (!(scale > 0.0f)) return c;
        LNT_UNROLL
        for (int k = 0; k < LNT_QUAD; k++)
            c.w[0] |= ((uint32_t)lnt_int8_code(a[k], scale) & 255u) << (8 * k);
        return c;
    }

    LNT_DEVICE void decode(const lnt_quad_code<BITS> &c, float scale, float *v)
    {
        LNT_UNROLL
        for (int k = 0; k < LNT_QUAD; k++)
            v[k] = lnt_int8_value((int8_t)(c.w[0] >> (8 * k)), scale);
    }
};

LNT_CUDA_OPS(int8, int8)
