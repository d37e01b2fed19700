/* bf16 and f16, to nearest and by chance, and f32, vector loops: no scales. Compiled per instruction set. */
#include "bf16_math.h"
#include "block_simd.h"
#include "chance_math.h"
#include "f16_math.h"
#include "impl.h"

static float no_scale(const lnt_codec_cfg_t *cfg, const lnt_measure_t *m, bool *poisoned)
{
    return lnt_f32_ops_ref.finish(cfg, m, poisoned);
}

/* ---- random numbers ---- */

/* The keys of a chunk: its indices share their upper half, but for those behind a multiple of 2^32. */
typedef struct chances {
    uint64_t index, seed;
    lnt_chance_key_t first, second;
} chances_t;

LNT_INLINE chances_t chances(const lnt_chunk_t *chunk)
{
    return (chances_t){chunk->index, chunk->seed, lnt_chance_key(chunk->seed, chunk->index),
                       lnt_chance_key(chunk->seed, chunk->index + LNT_CHUNK)};
}

/* lnt_chance_mix */
LNT_INLINE vi mix(vi x)
{
    x = vi_mul(vi_xor(x, vi_right(x, 16)), vi_all(0x7feb352d));
    x = vi_mul(vi_xor(x, vi_right(x, 15)), vi_all((int32_t)0x846ca68bu));
    return vi_xor(x, vi_right(x, 16));
}

/* The random numbers of the vector from element i of the chunk on. */
LNT_INLINE vi chance(const chances_t *c, size_t i)
{
    uint64_t index = c->index + i;
    uint32_t low = (uint32_t)index;
    if (low > UINT32_MAX - VEC) { /* one of the few that may lie on both sides */
        uint32_t lanes[VEC];
        for (uint32_t k = 0; k < VEC; k++)
            lanes[k] = lnt_chance_u32(lnt_chance_key(c->seed, index + k), low + k);
        return vi_load(lanes);
    }
    const lnt_chance_key_t key = index >> 32 == c->index >> 32 ? c->first : c->second;
    vi x = vi_xor(vi_add(vi_all((int32_t)low), vi_iota()), vi_all((int32_t)key.before));
    return mix(vi_add(mix(x), vi_all((int32_t)key.between)));
}

/* ---- codes ---- */

LNT_INLINE vh bf16_code(vf x, const chances_t *c, size_t i)
{
    (void)c;
    (void)i;
    return vf_bf16_code(x);
}

LNT_INLINE vh f16_code(vf x, const chances_t *c, size_t i)
{
    (void)c;
    (void)i;
    return vf_f16_code(x);
}

/* lnt_bf16_code_by_chance */
LNT_INLINE vh bf16_sr_code(vf x, const chances_t *c, size_t i)
{
    vi bits = vf_bits(x), upper = vi_right(bits, 16);
    vi rounded = vi_right(vi_add(bits, vi_and(chance(c, i), vi_all(0xffff))), 16);
    vm nan = vi_greater(vf_magnitude_bits(x), vi_all(LNT_F32_INF_BITS));
    return vi_narrow(vi_choose(nan, vi_or(upper, vi_all(0x40)), rounded));
}

/* lnt_f16_code_by_chance. Shifts of 32 and more give zero, which is the result below 2^-32. */
LNT_INLINE vh f16_sr_code(vf x, const chances_t *c, size_t i)
{
    vi magnitude = vf_magnitude_bits(x), sign = vi_and(vi_right(vf_bits(x), 16), vi_all(0x8000));
    vi random = chance(c, i), shift = vi_sub(vi_all(126), vi_right(magnitude, 23));
    vi normal = vi_add(magnitude, vi_sub(vi_and(random, vi_all(0x1fff)), vi_all(0x38000000)));
    vi below = vi_and(random, vi_sub(vi_left_each(vi_all(1), shift), vi_all(1)));
    vi significand = vi_or(vi_and(magnitude, vi_all(0x7fffff)), vi_all(0x800000));
    vi code = vi_right_each(vi_add(significand, below), shift);
    code = vi_choose(vi_greater(magnitude, vi_all(LNT_F16_NORMAL_BITS - 1)), vi_right(normal, 13), code);
    code = vi_choose(vi_greater(magnitude, vi_all(LNT_F16_BEYOND_BITS - 1)), vi_all(LNT_F16_INF), code);
    vi payload = vi_or(vi_all(0x7e00), vi_and(vi_right(magnitude, 13), vi_all(0x3ff)));
    code = vi_choose(vi_greater(magnitude, vi_all(LNT_F32_INF_BITS)), payload, code);
    return vi_narrow(vi_or(code, sign));
}

/* ---- loops ---- */

typedef vh (*half_code_fn)(vf x, const chances_t *c, size_t i);
typedef vf (*half_value_fn)(vh code);

LNT_INLINE void half_code_strip(half_code_fn code, half_value_fn value, const float *from, const chances_t *c, size_t i,
                                uint8_t *codes, float *error, bool stream)
{
    LNT_UNROLL
    for (int v = 0; v < STRIP_VECS; v++) {
        size_t k = i + (size_t)v * VEC;
        vf a = vf_load(from + k);
        vh half = code(a, c, k);
        vh_store(codes + 2 * k, half);
        if (error) error_store(error + k, vf_sub(a, value(half)), stream);
    }
}

LNT_INLINE void half_code(half_code_fn code, half_value_fn value, const lnt_chunk_t *chunk, uint8_t *codes,
                          float *error)
{
    const chances_t c = chances(chunk);
    const lnt_ahead_t ahead = chunk->ahead;
    const float *from = chunk->a;
    bool stream = error && streams(chunk, error);
    for (size_t i = 0; i < chunk->n; i += STRIP) {
        prefetch_both(ahead, i, STRIP);
        half_code_strip(code, value, from, &c, i, codes, error, stream);
    }
}

/* Does any code of the chunk stand for Inf? Only asked if the largest magnitude is close. */
LNT_INLINE bool half_overflows(half_code_fn code, uint32_t infinity, const lnt_chunk_t *chunk)
{
    const chances_t c = chances(chunk);
    vi largest = vi_all(0);
    for (size_t i = 0; i < chunk->n; i += VEC)
        largest = vi_max(largest, vi_and(vh_wide(code(vf_load(chunk->a + i), &c, i)), vi_all(0x7fff)));
    return vi_highest(largest) >= infinity;
}

LNT_INLINE void half_values(half_value_fn value, const uint8_t *codes, vf *strip)
{
    LNT_UNROLL
    for (int v = 0; v < STRIP_VECS; v++)
        strip[v] = value(vh_load(codes + 2 * v * VEC));
}

LNT_INLINE void bf16_values(const uint8_t *codes, const levels_t *levels, uint32_t lanes, vf *strip)
{
    (void)levels;
    (void)lanes;
    half_values(vh_bf16_value, codes, strip);
}

LNT_INLINE void f16_values(const uint8_t *codes, const levels_t *levels, uint32_t lanes, vf *strip)
{
    (void)levels;
    (void)lanes;
    half_values(vh_f16_value, codes, strip);
}

/* A codec of a format. _largest: the magnitude, as f32 bits, of its largest finite number. */
#define LNT_HALF_CODEC(_codec, _format, _largest, _infinity)                                                           \
    static bool _codec##_overflows(const lnt_chunk_t *chunk)                                                           \
    {                                                                                                                  \
        return chunk->tops[0].live > (_largest) && half_overflows(_codec##_code, _infinity, chunk);                    \
    }                                                                                                                  \
    static void _codec##_codes(const lnt_chunk_t *chunk, uint8_t *codes, float *error)                                 \
    {                                                                                                                  \
        half_code(_codec##_code, vh_##_format##_value, chunk, codes, error);                                           \
    }                                                                                                                  \
    LNT_INLINE void _codec##_sum(const uint8_t *const *codes, const float *scales, uint32_t n_runs, size_t n,          \
                                 const uint8_t *live, bool add, float *out)                                            \
    {                                                                                                                  \
        simd_sum(_format##_values, scale_alone, 16, codes, scales, n_runs, n, live, add, out);                         \
    }                                                                                                                  \
    LNT_INLINE lnt_block_codec_t _codec(void)                                                                          \
    {                                                                                                                  \
        return (lnt_block_codec_t){.bits = 16,                                                                         \
                                   .strip = STRIP,                                                                     \
                                   .stream_end = vec_stream_end,                                                       \
                                   .load = LNT_ISA_NAME(lnt_chunk_load),                                               \
                                   .overflows = _codec##_overflows,                                                    \
                                   .finish = no_scale,                                                                 \
                                   .code = _codec##_codes,                                                             \
                                   .sum = _codec##_sum};                                                               \
    }                                                                                                                  \
    LNT_BLOCK_OPS(LNT_ISA_NAME(lnt_##_codec##_ops), _codec)

LNT_HALF_CODEC(bf16, bf16, 0x7f7f0000u, LNT_BF16_INF);
LNT_HALF_CODEC(bf16_sr, bf16, 0x7f7f0000u, LNT_BF16_INF);
LNT_HALF_CODEC(f16, f16, 0x477fe000u, LNT_F16_INF);
LNT_HALF_CODEC(f16_sr, f16, 0x477fe000u, LNT_F16_INF);
