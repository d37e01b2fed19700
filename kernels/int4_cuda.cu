/* int4 and int4_hadamard for four elements of a thread; the warp's part is block_cuda.cuh. A group of 32 elements,
 * which is rotated together, is what eight neighbouring threads have of a round.
 */
#include "hadamard_math.h"
#include "launch_cuda.cuh"

struct int4_codes : lnt_plain_codec {
    static constexpr int BITS = 4, MEASURE = LNT_MEASURE_MAX;
    static constexpr bool HAS_SCALES = true;

    LNT_DEVICE float finish(lnt_scale_rule_t, double, uint32_t amax_bits, uint64_t, bool *codable_p)
    {
        float scale = lnt_int4_scale(amax_bits);
        if (!lnt_int4_scale_decodes(scale)) *codable_p = false;
        return scale;
    }

    LNT_DEVICE lnt_quad_code<BITS> code(const float *a, float scale, const lnt_dev_place_t &)
    {
        lnt_quad_code<BITS> c = {{0}};
        if (!(scale > 0.0f)) return c;
        c.w[0] = lnt_int4_pack(lnt_int4_code(a[0], scale), lnt_int4_code(a[1], scale)) |
                 (uint32_t)lnt_int4_pack(lnt_int4_code(a[2], scale), lnt_int4_code(a[3], scale)) << 8;
        return c;
    }

    LNT_DEVICE void decode(const lnt_quad_code<BITS> &c, float scale, float *v)
    {
        LNT_UNROLL
        for (int k = 0; k < LNT_QUAD; k++)
            v[k] = lnt_int4_value(lnt_int4_unpack(c.w[0] >> (4 * k)), scale);
    }
};

struct int4_rotated : int4_codes {
    LNT_DEVICE float finish(lnt_scale_rule_t, double, uint32_t amax_bits, uint64_t, bool *codable_p)
    {
        float scale = lnt_int4_scale(amax_bits);
        if (!lnt_hadamard_scale_decodes(scale)) *codable_p = false;
        return scale;
    }

    /* The same answer in all threads of a group. */
    LNT_DEVICE bool rotates(const lnt_dev_place_t &place)
    {
        int first = place.e & ~(LNT_HADAMARD_GROUP - 1);
        return lnt_quad_inside(first, place.n) && lnt_hadamard_rotates(place.live, (uint64_t)first, place.n);
    }

    /* Stages inside a thread, then between threads. */
    LNT_DEVICE void stages(float *v)
    {
        LNT_UNROLL
        for (uint32_t distance = 1; distance < LNT_QUAD; distance *= 2) {
            const float from[LNT_QUAD] = {v[0], v[1], v[2], v[3]};
            LNT_UNROLL
            for (uint32_t k = 0; k < LNT_QUAD; k++)
                v[k] = lnt_hadamard_stage(from[k], from[k ^ distance], k, distance);
        }
        LNT_UNROLL
        for (uint32_t distance = 1; distance < LNT_HADAMARD_GROUP / LNT_QUAD; distance *= 2) {
            LNT_UNROLL
            for (int k = 0; k < LNT_QUAD; k++)
                v[k] = lnt_hadamard_stage(v[k], __shfl_xor_sync(LNT_WHOLE_WARP, v[k], (int)distance),
                                          lnt_dev_thread_in_warp(), distance);
        }
    }

    LNT_DEVICE void rotate(float *v, const lnt_dev_place_t &place)
    {
        float rotated[LNT_QUAD] = {v[0], v[1], v[2], v[3]};
        bool does = rotates(place);
        stages(rotated);
        LNT_UNROLL
        for (int k = 0; k < LNT_QUAD; k++)
            v[k] = does ? rotated[k] : v[k];
    }

    LNT_DEVICE void unrotate(float *v, const lnt_dev_place_t &place)
    {
        float rotated[LNT_QUAD] = {v[0], v[1], v[2], v[3]};
        bool does = rotates(place);
        stages(rotated);
        LNT_UNROLL
        for (int k = 0; k < LNT_QUAD; k++)
            v[k] = does ? rotated[k] * LNT_HADAMARD_INVERSE : v[k];
    }
};

LNT_CUDA_OPS(int4, int4_codes)
LNT_CUDA_OPS(int4_hadamard, int4_rotated)
