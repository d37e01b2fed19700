/* bf16 and bf16_sr: one format, rounded to nearest even or by chance. The warp's part is block_cuda.cuh. */
#include "bf16_math.h"
#include "half_cuda.cuh"

struct bf16_format {
    static constexpr uint32_t INF = LNT_BF16_INF;
    LNT_DEVICE float value(uint16_t code) { return lnt_bf16_value(code); }
};

struct bf16_nearest : bf16_format {
    static constexpr bool CHANCE = false;
    LNT_DEVICE uint16_t code(float a, uint32_t) { return lnt_bf16_code(a); }
};

struct bf16_by_chance : bf16_format {
    static constexpr bool CHANCE = true;
    LNT_DEVICE uint16_t code(float a, uint32_t random) { return lnt_bf16_code_by_chance(a, random); }
};

LNT_CUDA_OPS(bf16, lnt_half_codec<bf16_nearest>)
LNT_CUDA_OPS(bf16_sr, lnt_half_codec<bf16_by_chance>)
