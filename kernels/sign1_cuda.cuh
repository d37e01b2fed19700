/* sign1 for four elements of a thread; the warp's part is block_cuda.cuh. */
#ifndef LNT_SIGN1_CUDA_CUH
#define LNT_SIGN1_CUDA_CUH

#include "launch_cuda.cuh"
#include "sign1_math.h"

struct sign1 : lnt_plain_codec {
    static constexpr int BITS = 1, MEASURE = LNT_MEASURE_TREE;
    static constexpr bool HAS_SCALES = true;

    /* The scale is at most the largest magnitude: always finite. */
    LNT_DEVICE float finish(lnt_scale_rule_t rule, double sum, uint32_t, uint64_t count, bool *)
    {
        return rule == LNT_SCALE_L1 ? lnt_sign1_scale_l1(sum, count) : lnt_sign1_scale_l2(sum, count);
    }

    LNT_DEVICE lnt_quad_code<BITS> code(const float *a, float, const lnt_dev_place_t &)
    {
        lnt_quad_code<BITS> c = {{0}};
        LNT_UNROLL
        for (int k = 0; k < LNT_QUAD; k++)
            c.w[0] |= (uint32_t)lnt_sign1_bit(a[k]) << k;
        return c;
    }

    LNT_DEVICE void decode(const lnt_quad_code<BITS> &c, float scale, float *v)
    {
        float negative = lnt_sign1_negative(scale);
        LNT_UNROLL
        for (int k = 0; k < LNT_QUAD; k++)
            v[k] = c.w[0] >> k & 1u ? scale : negative;
    }
};

#endif
