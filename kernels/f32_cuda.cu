/* f32 for four elements of a thread: the value is the code. The warp's part is block_cuda.cuh. */
#include "launch_cuda.cuh"

struct f32 : lnt_plain_codec {
    static constexpr int BITS = 32, MEASURE = LNT_MEASURE_NOTHING;
    static constexpr bool HAS_SCALES = false;

    LNT_DEVICE lnt_quad_code<BITS> code(const float *a, float, const lnt_dev_place_t &)
    {
        lnt_quad_code<BITS> c;
        LNT_UNROLL
        for (int k = 0; k < LNT_QUAD; k++)
            c.w[k] = lnt_f32_bits(a[k]);
        return c;
    }

    LNT_DEVICE void decode(const lnt_quad_code<BITS> &c, float, float *v)
    {
        LNT_UNROLL
        for (int k = 0; k < LNT_QUAD; k++)
            v[k] = lnt_f32_from_bits(c.w[k]);
    }
};

LNT_CUDA_OPS(f32, f32)
