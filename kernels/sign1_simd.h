/* sign1, vector loops: f64 lanes swept in columns, signs by comparison, values by choice. Compiled per instruction set.
 */
#include <float.h>

#include "block_simd.h"
#include "impl.h"
#include "sign1_math.h"

enum { COLUMN = SWEEP_VECS * VECD, COLUMNS = LNT_TREE_LANES / COLUMN };

/* The product of two f32 is exact in f64, so fused or not makes no difference. */
LNT_INLINE vd sum_more(lnt_scale_rule_t rule, vd sum, vd x)
{
    return rule == LNT_SCALE_L1 ? vd_add(sum, vd_magnitude(x)) : vd_multiply_add(x, x, sum);
}

/* Column c of the lanes down all rounds from `base` on. Steps share what is ahead as if they were the chunk's elements
 * in order. `fresh`: what is in the lanes does not count. */
LNT_INLINE void sweep(lnt_scale_rule_t rule, const float *base, size_t n, int c, lnt_ahead_t ahead, bool fresh,
                      double *lanes)
{
    size_t share = (size_t)c * (n / COLUMNS);
    vd sums[SWEEP_VECS];
    base += c * COLUMN;
    lanes += c * COLUMN;
    LNT_UNROLL
    for (int k = 0; k < SWEEP_VECS; k++)
        sums[k] = fresh ? vd_zero() : vd_load(lanes + k * VECD);
    for (size_t i = 0; i < n; i += LNT_TREE_LANES) {
        if (fresh)
            prefetch_values(ahead, share + i / COLUMNS, COLUMN);
        else
            prefetch_both(ahead, share + i / COLUMNS, COLUMN);
        LNT_UNROLL
        for (int k = 0; k < SWEEP_VECS; k++)
            sums[k] = sum_more(rule, sums[k], vd_load_f32(base + i + k * VECD));
    }
    LNT_UNROLL
    for (int k = 0; k < SWEEP_VECS; k++)
        vd_store(lanes + k * VECD, sums[k]);
}

/* All columns of n elements, of which the first is lane `shift`. */
LNT_INLINE void sweep_all(lnt_scale_rule_t rule, const float *a, size_t n, size_t shift, lnt_ahead_t ahead, bool fresh,
                          double *lanes)
{
    for (int c = 0; c < COLUMNS; c++) {
        if (rule == LNT_SCALE_L1)
            sweep(LNT_SCALE_L1, a - shift, shift + n, c, ahead, fresh, lanes);
        else
            sweep(LNT_SCALE_L2, a - shift, shift + n, c, ahead, fresh, lanes);
    }
}

static void measure(const lnt_codec_cfg_t *cfg, const lnt_chunk_t *chunk, size_t shift, lnt_measure_t *m)
{
    sweep_all(cfg->scale_rule, chunk->a, chunk->n, shift, chunk->ahead, false, m->lanes);
}

static float finish(const lnt_codec_cfg_t *cfg, const lnt_measure_t *m, bool *poisoned)
{
    return lnt_sign1_ops_ref.finish(cfg, m, poisoned);
}

static double sum_of(const lnt_codec_cfg_t *cfg, const lnt_chunk_t *chunk, size_t b)
{
    alignas(64) double lanes[LNT_TREE_LANES];
    size_t first = b * chunk->block, n = chunk->n - first < chunk->block ? chunk->n - first : chunk->block;
    lnt_ahead_t ahead = chunk->ahead;
    ahead.values += first << ahead.value_shift;
    sweep_all(cfg->scale_rule, chunk->a + first, n, 0, ahead, true, lanes);
    return vec_tree_combine(lanes);
}

/* The sum tells what is not finite: nothing cancels, and squares of f32 are far from the end of f64. So nobody has to
 * look for the largest magnitude. */
LNT_INLINE void sum_blocks(const lnt_codec_cfg_t *cfg, lnt_chunk_t *chunk)
{
    for (size_t b = 0; b * chunk->block < chunk->n; b++) {
        chunk->sums[b] = sum_of(cfg, chunk, b);
        chunk->tops[b].all = chunk->sums[b] <= DBL_MAX ? 0 : LNT_F32_INF_BITS;
    }
}

static void take(const lnt_codec_cfg_t *cfg, const lnt_encode_in_t *in, uint64_t first, size_t n, float *room,
                 lnt_chunk_t *chunk)
{
    LNT_ISA_NAME(lnt_chunk_add)(in, first, n, room, chunk);
    sum_blocks(cfg, chunk);
}

static float scale_of(const lnt_codec_cfg_t *cfg, const lnt_chunk_t *chunk, size_t b, bool *poisoned)
{
    double sum = chunk->taken ? chunk->sums[b] : sum_of(cfg, chunk, b);
    uint64_t n_live = lnt_chunk_live(chunk, b);
    (void)poisoned;
    return cfg->scale_rule == LNT_SCALE_L1 ? lnt_sign1_scale_l1(sum, n_live) : lnt_sign1_scale_l2(sum, n_live);
}

/* Dead elements are +0 here and would code as 1. */
LNT_INLINE void code_strip(const float *a, vf positive, vf negative, const uint8_t *live, uint32_t lanes,
                           uint8_t *codes, float *error, bool stream)
{
    uint32_t word = 0;
    LNT_UNROLL
    for (int v = 0; v < STRIP_VECS; v++) {
        vf x = vf_load(a + v * VEC);
        vm up = vf_at_least(x, vf_zero());
        word |= vm_bits(up) << (v * VEC);
        if (!error) continue;
        vf left = vf_sub(x, vf_choose(up, positive, negative));
        error_store(error + v * VEC, live ? strip_choose(lanes, v, left, vf_zero()) : left, stream);
    }
    store_u32(codes, word & lanes);
}

/* Block b, which is elements [i, end). `values_too`: nobody has asked for the values ahead. */
LNT_INLINE void code_block(const lnt_chunk_t *chunk, const uint8_t *live, size_t b, size_t i, size_t end,
                           bool values_too, uint8_t *codes, float *error, bool stream)
{
    const vf positive = vf_all(chunk->scales[b]), negative = vf_all(lnt_sign1_negative(chunk->scales[b]));
    const lnt_ahead_t ahead = chunk->ahead;
    const float *a = chunk->a;
    for (; i + STRIP <= end; i += STRIP) {
        if (values_too) prefetch_values(ahead, i, STRIP);
        if (error) prefetch(ahead.error + i * sizeof(float), STRIP);
        if (stream) prefetch_next(ahead, i, STRIP);
        code_strip(a + i, positive, negative, live, live ? load_u32(live + i / 8) : ~0u, codes + i / 8,
                   error ? error + i : NULL, stream);
    }
    if (i < end)
        code_strip(a + i, positive, negative, live, strip_lanes(live, i, end), codes + i / 8, error ? error + i : NULL,
                   stream);
}

LNT_INLINE void code_blocks(const lnt_chunk_t *chunk, const uint8_t *live, uint8_t *codes, float *error, bool stream)
{
    const bool values_too = chunk->ahead.values != (uintptr_t)chunk->a;
    for (size_t i = 0, b = 0; i < chunk->n; i += chunk->block, b++)
        code_block(chunk, live, b, i, chunk->n - i < chunk->block ? chunk->n : i + chunk->block, values_too, codes,
                   error, stream);
}

/* What is constant in each of the variants makes its loop short. */
static void code(const lnt_chunk_t *chunk, uint8_t *codes, float *error)
{
    if (chunk->live && error)
        code_blocks(chunk, chunk->live, codes, error, false);
    else if (chunk->live)
        code_blocks(chunk, chunk->live, codes, NULL, false);
    else if (!error)
        code_blocks(chunk, NULL, codes, NULL, false);
    else if (streams(chunk, error))
        code_blocks(chunk, NULL, codes, error, true);
    else
        code_blocks(chunk, NULL, codes, error, false);
}

/* ---- one chunk out, the next one in ---- */

/* Bytes ahead of the chunk that is read. Distances matter more than one would think: docs/perf.md. */
enum { SOON_VALUES = 2048, SOON_ERROR = 3072 };

LNT_INLINE void add_strip(lnt_dtype_t dtype, const uint8_t *values, const float *error, size_t i, float *a)
{
    LNT_UNROLL
    for (int v = 0; v < STRIP_VECS; v++) {
        size_t k = i + (size_t)v * VEC;
        vf_store(a + k, vf_add(load_values(dtype, values, k), vf_load(error + k)));
    }
}

/* `error` is there: told here, or every strip asks. */
LNT_INLINE void pass_blocks(lnt_dtype_t dtype, const lnt_chunk_t *chunk, uint8_t *codes, float *error, bool stream,
                            const uint8_t *values, const float *error_in, float *room)
{
    const size_t size = element_size(dtype), n = chunk->n, block = chunk->block;
    const float *a = chunk->a;
    if (!error) __builtin_unreachable();
    for (size_t i = 0, b = 0; i < n; b++) {
        const vf positive = vf_all(chunk->scales[b]), negative = vf_all(lnt_sign1_negative(chunk->scales[b]));
        for (const size_t end = i + block; i < end; i += STRIP) {
            prefetch((uintptr_t)values + i * size + SOON_VALUES, STRIP * size / sizeof(float));
            prefetch((uintptr_t)(error_in + i) + SOON_ERROR, STRIP);
            if (stream) prefetch_next(chunk->ahead, i, STRIP);
            add_strip(dtype, values, error_in, i, room);
            code_strip(a + i, positive, negative, NULL, ~0u, codes + i / 8, error + i, stream);
        }
    }
}

LNT_INLINE void pass_dtype(lnt_dtype_t dtype, const lnt_chunk_t *chunk, uint8_t *codes, float *error,
                           const uint8_t *values, const float *error_in, float *room)
{
    if (streams(chunk, error))
        pass_blocks(dtype, chunk, codes, error, true, values, error_in, room);
    else
        pass_blocks(dtype, chunk, codes, error, false, values, error_in, room);
}

static void code_and_take(const lnt_codec_cfg_t *cfg, const lnt_chunk_t *chunk, uint8_t *codes, float *error,
                          const lnt_encode_in_t *in, uint64_t first, float *room, lnt_chunk_t *next)
{
    const uint8_t *values = (const uint8_t *)in->values + first * element_size(in->dtype);
    const float *error_in = in->error_in + first;
    if (in->dtype == LNT_BF16)
        pass_dtype(LNT_BF16, chunk, codes, error, values, error_in, room);
    else if (in->dtype == LNT_F16)
        pass_dtype(LNT_F16, chunk, codes, error, values, error_in, room);
    else
        pass_dtype(LNT_F32, chunk, codes, error, values, error_in, room);
    next->n = chunk->n;
    next->a = room;
    sum_blocks(cfg, next);
}

LNT_INLINE levels_t levels_of(float scale)
{
    return (levels_t){scale, lnt_sign1_negative(scale)};
}

LNT_INLINE void values(const uint8_t *codes, const levels_t *levels, uint32_t lanes, vf *strip)
{
    const vf high = vf_all(levels->scale), low = vf_all(levels->low);
    uint32_t word = load_u32(codes);
    (void)lanes;
    LNT_UNROLL
    for (int v = 0; v < STRIP_VECS; v++)
        strip[v] = strip_choose(word, v, high, low);
}

/* Whole strips of a constant number of runs, all alive: pointers and scales stay in registers. Two runs took 3.2 cycles
 * per vector in the loop that takes any number, and take 2.1 here: shift and choice of each share two ports. */
LNT_INLINE void sum_runs(const uint8_t *const *codes, const float *scales, const uint32_t n_runs, size_t n, float *out)
{
    vf high[LNT_RUNS_AT_ONCE], low[LNT_RUNS_AT_ONCE];
    const uint8_t *from[LNT_RUNS_AT_ONCE];
    LNT_UNROLL
    for (uint32_t r = 0; r < n_runs; r++) {
        high[r] = vf_all(scales[r]);
        low[r] = vf_all(lnt_sign1_negative(scales[r]));
        from[r] = codes[r];
    }
    for (size_t i = 0; i < n; i += STRIP) {
        vf sum[STRIP_VECS];
        LNT_UNROLL
        for (int v = 0; v < STRIP_VECS; v++)
            sum[v] = strip_choose(load_u32(from[0] + i / 8), v, high[0], low[0]);
        LNT_UNROLL
        for (uint32_t r = 1; r < n_runs; r++) {
            const uint32_t word = load_u32(from[r] + i / 8);
            LNT_UNROLL
            for (int v = 0; v < STRIP_VECS; v++)
                sum[v] = vf_add(sum[v], strip_choose(word, v, high[r], low[r]));
        }
        strip_store(out + i, sum);
    }
}

LNT_INLINE void sum(const uint8_t *const *codes, const float *scales, uint32_t n_runs, size_t n, const uint8_t *live,
                    bool add, float *out)
{
    const bool whole = !live && n % STRIP == 0 && !add;
    if (whole && n_runs == 2)
        sum_runs(codes, scales, 2, n, out);
    else if (whole && n_runs == 4)
        sum_runs(codes, scales, 4, n, out);
    else if (whole && n_runs == 8)
        sum_runs(codes, scales, 8, n, out);
    else
        simd_sum(values, levels_of, 1, codes, scales, n_runs, n, live, add, out);
}

LNT_INLINE lnt_block_codec_t sign1(void)
{
    return (lnt_block_codec_t){.bits = 1,
                               .has_scales = true,
                               .strip = STRIP,
                               .stream_end = vec_stream_end,
                               .load = LNT_ISA_NAME(lnt_chunk_load),
                               .take = take,
                               .code_and_take = code_and_take,
                               .measure = measure,
                               .finish = finish,
                               .scale = scale_of,
                               .sweeps = true,
                               .code = code,
                               .sum = sum};
}

LNT_BLOCK_OPS(LNT_ISA_NAME(lnt_sign1_ops), sign1);
