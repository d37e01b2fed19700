/* f16 and f16_sr: one format, rounded to nearest even or by chance. The warp's part is block_cuda.cuh. */
#include "f16_math.h"
#include "half_cuda.cuh"

struct f16_format {
    static constexpr uint32_t INF = LNT_F16_INF;
    LNT_DEVICE float value(uint16_t code) { return lnt_f16_value(code); }
};

struct f16_nearest : f16_format {
    static constexpr bool CHANCE = false;
    LNT_DEVICE uint16_t code(float a, uint32_t) { return lnt_f16_code(a); }
};

struct f16_by_chance : f16_format {
    static constexpr bool CHANCE = true;
    LNT_DEVICE uint16_t code(float a, uint32_t random) { return lnt_f16_code_by_chance(a, random); }
};

LNT_CUDA_OPS(f16, lnt_half_codec<f16_nearest>)
LNT_CUDA_OPS(f16_sr, lnt_half_codec<f16_by_chance>)
