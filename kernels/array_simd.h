/* Elementwise work on arrays for every vector width: included by array_<isa>.c, which names the table. Checks keep the
 * largest magnitude and look at it once, behind the loop.
 */
#include "array_loop.h"
#include "bf16_math.h"
#include "error_math.h"
#include "error_store.h"
#include "f16_math.h"
#include "impl.h"
#include "next.h"
#include "reduce_tree.h"

/* ---- f32 ---- */

LNT_INLINE vi scale_some(const float *from, float *to, vf factor, vi largest, size_t some)
{
    vf x = vf_mul(load_some(from, some), factor);
    store_some(to, x, some);
    return keep_largest(largest, x);
}

static bool f32_widen_scaled(const void *values, uint64_t n, float factor, float *out)
{
    const float *from = values;
    vf by = vf_all(factor);
    vi largest = vi_all(0);
    LNT_EACH_STRIP(n, strip_ahead(from + at, sizeof(*from)),
                   largest = scale_some(from + at, out + at, by, largest, some));
    lnt_next_note(LNT_NEXT_VALUES, from + n);
    return !magnitude_nonfinite(vi_highest(largest));
}

/* Of something in cache. */
static bool scale(float *values, uint64_t n, float factor)
{
    vf by = vf_all(factor);
    vi largest = vi_all(0);
    LNT_EACH_VECTOR(n, largest = scale_some(values + at, values + at, by, largest, some));
    return !magnitude_nonfinite(vi_highest(largest));
}

LNT_INLINE void add_some(float *sum, const float *more, size_t some)
{
    store_some(sum, vf_add(load_some(sum, some), load_some(more, some)), some);
}

static void add(float *sum, const float *more, uint64_t n)
{
    LNT_EACH_VECTOR(n, add_some(sum + at, more + at, some));
}

static void f32_widen_add(const void *values, uint64_t n, float *sum)
{
    add(sum, values, n);
}

/* Are all magnitudes below `limit`? */
LNT_INLINE bool all_below(const float *values, uint64_t n, uint32_t limit)
{
    vi largest = vi_all(0);
    LNT_EACH_VECTOR(n, largest = keep_largest(largest, load_some(values + at, some)));
    return vi_highest(largest) < limit;
}

static bool all_finite(const float *values, uint64_t n)
{
    return all_below(values, n, LNT_F32_INF_BITS);
}

/* ---- squares ---- */

/* The live bits of `some` elements, lane by lane. */
LNT_INLINE vm live_some(const uint8_t *live, size_t some)
{
    uint32_t bits = 0;
    memcpy(&bits, live, (some + 7) / 8);
    return vm_of_bits(bits);
}

LNT_INLINE vi square_some(const float *values, const float *error, const uint8_t *live, vi largest, size_t some)
{
    vf x = load_some(values, some);
    if (error) x = vf_add(x, load_some(error, some));
    x = vf_mul(x, x);
    if (live) x = vf_keep(live_some(live, some), x);
    return keep_largest(largest, x);
}

static bool squares_fit(const float *values, const float *error, const uint8_t *live, uint64_t n)
{
    vi largest = vi_all(0);
    if (error && live) {
        LNT_EACH_VECTOR(n, largest = square_some(values + at, error + at, live + at / 8, largest, some));
    } else if (error) {
        LNT_EACH_VECTOR(n, largest = square_some(values + at, error + at, NULL, largest, some));
    } else if (live) {
        LNT_EACH_VECTOR(n, largest = square_some(values + at, NULL, live + at / 8, largest, some));
    } else {
        LNT_EACH_VECTOR(n, largest = square_some(values + at, NULL, NULL, largest, some));
    }
    return !magnitude_nonfinite(vi_highest(largest));
}

/* Lanes of the tree that are summed at a time: as many sums as hide the latency of an addition. */
enum { SUMS = 8, LANES = SUMS * VECD };

/* Lanes [0, LANES) of `rounds` rounds. The product of two f32 is exact in f64: multiply-add rounds like an addition. */
LNT_INLINE void sum_lanes(const float *values, uint64_t rounds, double *lanes)
{
    vd sum[SUMS];
    LNT_UNROLL for (int k = 0; k < SUMS; k++) sum[k] = vd_load(lanes + k * VECD);
    for (uint64_t r = 0; r < rounds; r++) {
        const float *round = values + r * LNT_TREE_LANES;
        LNT_UNROLL for (int k = 0; k < SUMS; k++)
        {
            vd x = vd_load_f32(round + k * VECD);
            sum[k] = vd_multiply_add(x, x, sum[k]);
        }
    }
    LNT_UNROLL for (int k = 0; k < SUMS; k++) vd_store(lanes + k * VECD, sum[k]);
}

static double square_sum(const float *values, uint64_t n)
{
    double lanes[LNT_TREE_LANES] = {0};
    uint64_t rounds = n / LNT_TREE_LANES, rest = n % LNT_TREE_LANES;
    float last[LNT_TREE_LANES] = {0}; /* the last round, a short one; squares of +0 change no sum */
    if (rest) memcpy(last, values + rounds * LNT_TREE_LANES, rest * sizeof(*last));
    for (int first = 0; first < LNT_TREE_LANES; first += LANES) {
        sum_lanes(values + first, rounds, lanes + first);
        if (rest) sum_lanes(last + first, 1, lanes + first);
    }
    return lnt_tree_combine(lanes);
}

/* ---- 16-bit types ---- */

/* All of a type whose vector form is vf_load_<type> and vf_store_<type>. `_limit`: the magnitude, as f32 bits, from
 * which values round to Inf. */
#define LNT_HALF_ARRAYS(_type, _limit)                                                                                 \
    LNT_INLINE vf _type##_load_some(const uint8_t *from, size_t some)                                                  \
    {                                                                                                                  \
        uint16_t room[VEC] = {0};                                                                                      \
        if (some >= VEC) return vf_load_##_type(from);                                                                 \
        memcpy(room, from, some * sizeof(*room));                                                                      \
        return vf_load_##_type(room);                                                                                  \
    }                                                                                                                  \
    LNT_INLINE void _type##_store_some(uint8_t *to, vf x, size_t some)                                                 \
    {                                                                                                                  \
        uint16_t room[VEC];                                                                                            \
        vf_store_##_type(some >= VEC ? (void *)to : room, x);                                                          \
        if (some < VEC) memcpy(to, room, some * sizeof(*room));                                                        \
    }                                                                                                                  \
    LNT_INLINE vi _type##_scale_some(const uint8_t *from, float *to, vf factor, vi largest, size_t some)               \
    {                                                                                                                  \
        vf x = vf_mul(_type##_load_some(from, some), factor);                                                          \
        store_some(to, x, some);                                                                                       \
        return keep_largest(largest, x);                                                                               \
    }                                                                                                                  \
    static void _type##_widen(const void *values, uint64_t n, float *out)                                              \
    {                                                                                                                  \
        const uint8_t *from = values;                                                                                  \
        LNT_EACH_VECTOR(n, store_some(out + at, _type##_load_some(from + 2 * at, some), some));                        \
    }                                                                                                                  \
    static bool _type##_widen_scaled(const void *values, uint64_t n, float factor, float *out)                         \
    {                                                                                                                  \
        const uint8_t *from = values;                                                                                  \
        vf by = vf_all(factor);                                                                                        \
        vi largest = vi_all(0);                                                                                        \
        LNT_EACH_STRIP(n, strip_ahead(from + 2 * at, 2),                                                               \
                       largest = _type##_scale_some(from + 2 * at, out + at, by, largest, some));                      \
        return !magnitude_nonfinite(vi_highest(largest));                                                              \
    }                                                                                                                  \
    static void _type##_widen_add(const void *values, uint64_t n, float *sum)                                          \
    {                                                                                                                  \
        const uint8_t *from = values;                                                                                  \
        LNT_EACH_VECTOR(                                                                                               \
            n, store_some(sum + at, vf_add(load_some(sum + at, some), _type##_load_some(from + 2 * at, some)), some)); \
    }                                                                                                                  \
    static void _type##_narrow(const float *values, uint64_t n, void *out)                                             \
    {                                                                                                                  \
        uint8_t *to = out;                                                                                             \
        LNT_EACH_VECTOR(n, _type##_store_some(to + 2 * at, load_some(values + at, some), some));                       \
    }                                                                                                                  \
    static bool _type##_fits(const float *values, uint64_t n)                                                          \
    {                                                                                                                  \
        return all_below(values, n, _limit);                                                                           \
    }

LNT_HALF_ARRAYS(bf16, LNT_BF16_INFINITE_BITS)
LNT_HALF_ARRAYS(f16, LNT_F16_INFINITE_BITS)

/* ---- errors as int8 ---- */

enum { ERROR_VECS = LNT_ERROR_BLOCK / VEC };

LNT_INLINE float keep_block(const float *values, uint8_t *codes)
{
    vf x[ERROR_VECS], inverse;
    vi largest = vi_all(0);
    float by;
    LNT_UNROLL for (int v = 0; v < ERROR_VECS; v++) x[v] = vf_load(values + v * VEC);
    LNT_UNROLL for (int v = 0; v < ERROR_VECS; v++) largest = keep_largest(largest, x[v]);
    if (!lnt_error_is_kept(vi_highest(largest))) {
        memset(codes, 0, LNT_ERROR_BLOCK);
        return 0;
    }
    by = lnt_error_scale(vi_highest(largest));
    inverse = vf_all(1 / by);
    for (int first = 0; first < ERROR_VECS; first += STRIP_VECS) {
        vi strip[STRIP_VECS];
        LNT_UNROLL for (int v = 0; v < STRIP_VECS; v++) strip[v] = vf_to_int(vf_mul(x[first + v], inverse));
        strip_store_i8(codes + first * VEC, strip);
    }
    return by;
}

/* Zeros behind the last elements change neither their scale nor their codes. */
static void keep_int8(const float *values, uint64_t n, int8_t *codes, float *scales)
{
    const uint64_t whole = n / LNT_ERROR_BLOCK, rest = n % LNT_ERROR_BLOCK;
    float last[LNT_ERROR_BLOCK] = {0};
    uint8_t last_codes[LNT_ERROR_BLOCK];
    for (uint64_t b = 0; b < whole; b++)
        scales[b] = keep_block(values + b * LNT_ERROR_BLOCK, (uint8_t *)codes + b * LNT_ERROR_BLOCK);
    if (rest == 0) return;
    memcpy(last, values + n - rest, rest * sizeof(*last));
    scales[whole] = keep_block(last, last_codes);
    memcpy(codes + n - rest, last_codes, rest);
}

LNT_INLINE void kept_block(const int8_t *codes, float by, float *out)
{
    const vf step = vf_all(by);
    LNT_UNROLL for (int v = 0; v < ERROR_VECS; v++)
        vf_store(out + v * VEC, vf_mul(vi_to_float(vi_load_i8(codes + v * VEC)), step));
}

static void kept_int8(const int8_t *codes, const float *scales, uint64_t n, float *out)
{
    const uint64_t whole = n / LNT_ERROR_BLOCK, rest = n % LNT_ERROR_BLOCK;
    int8_t last_codes[LNT_ERROR_BLOCK] = {0};
    float last[LNT_ERROR_BLOCK];
    for (uint64_t b = 0; b < whole; b++)
        kept_block(codes + b * LNT_ERROR_BLOCK, scales[b], out + b * LNT_ERROR_BLOCK);
    if (rest == 0) return;
    memcpy(last_codes, codes + n - rest, rest);
    kept_block(last_codes, scales[whole], last);
    memcpy(out + n - rest, last, rest * sizeof(*last));
}

/* f32 is widened and narrowed by the reference's copy. */
const lnt_array_ops_t LNT_ARRAY_OPS = {
    .widen = {[LNT_BF16] = bf16_widen, [LNT_F16] = f16_widen},
    .narrow = {[LNT_BF16] = bf16_narrow, [LNT_F16] = f16_narrow},
    .fits = {[LNT_F32] = all_finite, [LNT_BF16] = bf16_fits, [LNT_F16] = f16_fits},
    .widen_scaled = {[LNT_F32] = f32_widen_scaled, [LNT_BF16] = bf16_widen_scaled, [LNT_F16] = f16_widen_scaled},
    .widen_add = {[LNT_F32] = f32_widen_add, [LNT_BF16] = bf16_widen_add, [LNT_F16] = f16_widen_add},
    .add = add,
    .scale = scale,
    .finite = all_finite,
    .squares_fit = squares_fit,
    .square_sum = square_sum,
    .keep_int8 = keep_int8,
    .kept_int8 = kept_int8,
};
