/* What a warp does with elements of one block: thread l has elements 4l .. 4l + 3 of every round of 128, which are its
 * four lanes of reduce_tree.h, and keeps them in registers between measuring and coding. The counterpart of
 * block_ref.c; knows no codec: those are classes of functions for four elements (<codec>_cuda.cu).
 *
 * All 32 threads call the warp operations: whatever those depend on is the same in the whole warp. A thread whose
 * elements lie outside the chunk works on +0 and stores nothing.
 *
 * A codec class has BITS, HAS_SCALES, MEASURE and
 *   overflow(a, place)                    top bit: a finite element becomes non-finite when coded
 *   rotate(v, place), unrotate(v, place)  to the coordinates that are coded and back; may use the warp
 *   finish(rule, sum, amax, count, &ok)   the scale of a clean block
 *   code(b, scale, place), decode(code, scale, values)
 */
#ifndef LNT_BLOCK_CUDA_CUH
#define LNT_BLOCK_CUDA_CUH

#include "cuda_compat.h"

#include "cuda_kernels.h"
#include "quad_cuda.cuh"
#include "reduce_tree.h"

#define LNT_WHOLE_WARP 0xffffffffu

/* How a codec comes to its scale. */
enum { LNT_MEASURE_NOTHING, LNT_MEASURE_TREE, LNT_MEASURE_MAX };

/* Consecutive elements of one block, as a thread sees them; pointers are those of the first element. */
typedef struct lnt_dev_chunk {
    const uint8_t *live;
    const float *error_in;
    uint64_t seed, index;
    uint64_t at;    /* its place in the run */
    uint64_t block; /* number of the block in the run */
    uint32_t n;     /* at most 128 * ROUNDS */
    int e;          /* the thread's elements are e .. e + 3, + 128, ...; below 0 is outside */
} lnt_dev_chunk_t;

/* Where four elements are in the chunk. */
typedef struct lnt_dev_place {
    const uint8_t *live;
    uint64_t seed, index; /* of the first of them */
    int e;
    uint32_t n;
} lnt_dev_place_t;

/* Partial sums of a block in one thread. */
typedef struct lnt_dev_measure {
    double lanes[LNT_QUAD];
    uint32_t amax_bits;
    uint32_t count;   /* live elements */
    uint32_t bad;     /* top bit: an element cannot be coded */
    uint32_t squares; /* top bit: the f32 square of an element is not finite */
} lnt_dev_measure_t;

LNT_DEVICE uint32_t lnt_dev_thread_in_warp(void)
{
    return threadIdx.x % LNT_WARP;
}

LNT_DEVICE lnt_dev_measure_t lnt_dev_measure_zero(void)
{
    lnt_dev_measure_t m = {{0.0, 0.0, 0.0, 0.0}, 0, 0, 0, 0};
    return m;
}

LNT_DEVICE lnt_dev_place_t lnt_dev_place(const lnt_dev_chunk_t &chunk, int round)
{
    int e = chunk.e + round * LNT_ROUND;
    lnt_dev_place_t place = {chunk.live, chunk.seed, chunk.index + (uint64_t)(int64_t)e, e, chunk.n};
    return place;
}

/* Bit k: element k of the four is inside the chunk and live. */
LNT_DEVICE uint32_t lnt_dev_present(const lnt_dev_place_t &place)
{
    if (!lnt_quad_inside(place.e, place.n)) return 0;
    uint32_t left = place.n - (uint32_t)place.e, inside = left >= LNT_QUAD ? 15u : (1u << left) - 1u;
    return place.live ? (uint32_t)place.live[place.e / 8] >> (place.e % 8) & inside : inside;
}

LNT_DEVICE bool lnt_dev_any(uint32_t top_bit)
{
    return __any_sync(LNT_WHOLE_WARP, (int)(top_bit >> 31)) != 0;
}

/* One thread of the warp reports. */
LNT_DEVICE void lnt_dev_poison(uint32_t *word, bool poisoned)
{
    if (poisoned && word && lnt_dev_thread_in_warp() == 0) (void)atomicOr(word, 1u);
}

/* A wire scale may lie anywhere, but mostly lies well. */
LNT_DEVICE float lnt_dev_load_scale(const uint8_t *wire)
{
    return ((uintptr_t)wire & 3u) == 0 ? *(const float *)wire : lnt_wire_load_f32(wire);
}

LNT_DEVICE void lnt_dev_store_scale(uint8_t *wire, float scale)
{
    if (lnt_dev_thread_in_warp() != 0) return;
    if (((uintptr_t)wire & 3u) == 0)
        *(float *)wire = scale;
    else
        lnt_wire_store_f32(wire, scale);
}

/* ---- from values to sums ---- */

template <int ROUNDS> LNT_DEVICE void lnt_dev_clear(float (*a)[LNT_QUAD])
{
    LNT_UNROLL
    for (int r = 0; r < ROUNDS; r++)
        a[r][0] = a[r][1] = a[r][2] = a[r][3] = 0.0f;
}

/* Top bit: the f32 square of one of the four is not finite. */
LNT_DEVICE uint32_t lnt_dev_squares(const float *v)
{
    return lnt_f32_nonfinite_bit(v[0] * v[0]) | lnt_f32_nonfinite_bit(v[1] * v[1]) |
           lnt_f32_nonfinite_bit(v[2] * v[2]) | lnt_f32_nonfinite_bit(v[3] * v[3]);
}

/* a = value + error, in place. Every element is checked, then dead ones become +0. */
template <class CODEC, int ROUNDS>
LNT_DEVICE void lnt_dev_form(const lnt_dev_chunk_t &chunk, float (*a)[LNT_QUAD], lnt_dev_measure_t *m)
{
    if (chunk.error_in) {
        float error[ROUNDS][LNT_QUAD];
        lnt_load_f32<ROUNDS>(chunk.error_in, chunk.e, chunk.n, error);
        LNT_UNROLL
        for (int r = 0; r < ROUNDS; r++) {
            LNT_UNROLL
            for (int k = 0; k < LNT_QUAD; k++)
                a[r][k] = a[r][k] + error[r][k];
        }
    }
    LNT_UNROLL
    for (int r = 0; r < ROUNDS; r++) {
        lnt_dev_place_t place = lnt_dev_place(chunk, r);
        uint32_t present = lnt_dev_present(place);
        m->count += (uint32_t)__popc(present);
        LNT_UNROLL
        for (int k = 0; k < LNT_QUAD; k++) {
            m->bad |= lnt_f32_nonfinite_bit(a[r][k]);
            if (!(present >> k & 1u)) a[r][k] = 0.0f;
        }
        m->bad |= CODEC::overflow(a[r], place);
        m->squares |= lnt_dev_squares(a[r]);
    }
}

/* Four elements to the thread's four lanes. */
LNT_DEVICE void lnt_dev_add_to_lanes(const float *v, lnt_scale_rule_t rule, double *lanes)
{
    LNT_UNROLL
    for (int k = 0; k < LNT_QUAD; k++) {
        double value = (double)lnt_f32_from_bits(lnt_f32_abs_bits(v[k]));
        lanes[k] += rule == LNT_SCALE_L1 ? value : value * value;
    }
}

template <class CODEC, int ROUNDS>
LNT_DEVICE void lnt_dev_measure(const lnt_dev_chunk_t &chunk, lnt_scale_rule_t rule, const float (*a)[LNT_QUAD],
                                lnt_dev_measure_t *m)
{
    LNT_UNROLL
    for (int r = 0; r < ROUNDS && CODEC::MEASURE != LNT_MEASURE_NOTHING; r++) {
        float b[LNT_QUAD] = {a[r][0], a[r][1], a[r][2], a[r][3]};
        CODEC::rotate(b, lnt_dev_place(chunk, r));
        if constexpr (CODEC::MEASURE == LNT_MEASURE_TREE) lnt_dev_add_to_lanes(b, rule, m->lanes);
        LNT_UNROLL
        for (int k = 0; k < LNT_QUAD && CODEC::MEASURE == LNT_MEASURE_MAX; k++)
            m->amax_bits = lnt_f32_abs_bits(b[k]) > m->amax_bits ? lnt_f32_abs_bits(b[k]) : m->amax_bits;
    }
}

/* lnt_tree_combine by a warp. Halving with xor gives every thread the sum: a + b is b + a. */
LNT_DEVICE double lnt_dev_tree_combine(const double *lanes)
{
    double sum = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
    LNT_UNROLL
    for (int half = LNT_TREE_GROUPS / 2; half > 0; half /= 2)
        sum += __shfl_xor_sync(LNT_WHOLE_WARP, sum, half);
    return sum;
}

/* The scale of a block with `count` live elements, in every thread. False: poisoned, and the scale is +0. */
template <class CODEC>
LNT_DEVICE bool lnt_dev_finish(const lnt_dev_measure_t &m, uint64_t count, lnt_scale_rule_t rule, float *scale_p)
{
    bool codable = !lnt_dev_any(m.bad);
    float scale = 0.0f;
    if constexpr (CODEC::MEASURE == LNT_MEASURE_TREE)
        scale = CODEC::finish(rule, lnt_dev_tree_combine(m.lanes), 0, count, &codable);
    if constexpr (CODEC::MEASURE == LNT_MEASURE_MAX)
        scale = CODEC::finish(rule, 0.0, __reduce_max_sync(LNT_WHOLE_WARP, m.amax_bits), count, &codable);
    *scale_p = codable ? scale : 0.0f;
    return codable;
}

/* ---- from a scale to codes ---- */

/* Half byte r of thread l becomes half byte l of thread r, within each group of eight threads. */
LNT_DEVICE uint32_t lnt_dev_transpose(uint32_t halves)
{
    const uint32_t masks[3] = {0x0000ffffu, 0x00ff00ffu, 0x0f0f0f0fu};
    uint32_t thread = lnt_dev_thread_in_warp();
    LNT_UNROLL
    for (int stage = 0; stage < 3; stage++) {
        int distance = 4 >> stage;
        uint32_t low = masks[stage], other = __shfl_xor_sync(LNT_WHOLE_WARP, halves, distance);
        halves = thread & (uint32_t)distance ? (other >> (4 * distance) & low) | (halves & ~low)
                                             : (halves & low) | (other & low) << (4 * distance);
    }
    return halves;
}

/* One bit per element: eight threads' half bytes of a round make a word, and after the transposition each thread has
 * one. `halves` has those of the thread, round 0 lowest. */
LNT_DEVICE void lnt_dev_store_bits(uint8_t *codes, uint32_t n, uint32_t halves)
{
    uint32_t thread = lnt_dev_thread_in_warp(), word = lnt_dev_transpose(halves);
    uint32_t at = 16 * (thread % 8) + 4 * (thread / 8), end = (n + 7) / 8;
    if (at + 4 <= end && ((uintptr_t)codes & 3u) == 0) {
        *(uint32_t *)(codes + at) = word;
        return;
    }
    LNT_UNROLL
    for (uint32_t i = 0; i < 4; i++)
        if (at + i < end) codes[at + i] = (uint8_t)(word >> (8 * i));
}

/* Bits behind the end and those of dead elements are 0. Eight bits and more need no care: +0 has code 0 there. */
template <int BITS> LNT_DEVICE uint32_t lnt_dev_code_mask(uint32_t present)
{
    if constexpr (BITS >= 8) {
        (void)present;
        return 0xffffffffu;
    } else {
        uint32_t mask = 0;
        LNT_UNROLL
        for (int k = 0; k < LNT_QUAD; k++)
            mask |= present >> k & 1u ? ((1u << BITS) - 1u) << (k * BITS) : 0u;
        return mask;
    }
}

/* The code of four elements and what it decodes to. A poisoned block has codes 0. */
template <class CODEC>
LNT_DEVICE lnt_quad_code<CODEC::BITS> lnt_dev_code_quad(const lnt_dev_place_t &place, const float *a, float scale,
                                                        bool poisoned, float *v)
{
    uint32_t present = lnt_dev_present(place);
    float b[LNT_QUAD] = {a[0], a[1], a[2], a[3]};
    CODEC::rotate(b, place);
    lnt_quad_code<CODEC::BITS> code = CODEC::code(b, scale, place);
    code.w[0] &= lnt_dev_code_mask<CODEC::BITS>(present);
    if (poisoned) code.w[0] = 0; /* codes of codecs with scales are one word */
    CODEC::decode(code, scale, v);
    CODEC::unrotate(v, place);
    LNT_UNROLL
    for (int k = 0; k < LNT_QUAD; k++)
        if (poisoned || !(present >> k & 1u)) v[k] = 0.0f;
    return code;
}

/* Codes, and a = a - decoded, which goes to error_out if there is one. Returns lnt_dev_squares of all decoded values.
 */
template <class CODEC, int ROUNDS>
LNT_DEVICE uint32_t lnt_dev_code(const lnt_dev_chunk_t &chunk, float scale, bool poisoned, float (*a)[LNT_QUAD],
                                 uint8_t *codes, float *error_out)
{
    lnt_quad_code<CODEC::BITS> c[ROUNDS];
    uint32_t halves = 0, squares = 0;
    LNT_UNROLL
    for (int r = 0; r < ROUNDS; r++) {
        float v[LNT_QUAD];
        c[r] = lnt_dev_code_quad<CODEC>(lnt_dev_place(chunk, r), a[r], scale, poisoned && CODEC::HAS_SCALES, v);
        squares |= lnt_dev_squares(v);
        halves |= c[r].w[0] << (4 * r % 32);
        LNT_UNROLL
        for (int k = 0; k < LNT_QUAD; k++)
            a[r][k] = a[r][k] - v[k];
    }
    if constexpr (CODEC::BITS == 1)
        lnt_dev_store_bits(codes, chunk.n, halves);
    else
        lnt_store_codes<CODEC::BITS, ROUNDS>(codes, chunk.e, chunk.n, c);
    if (error_out) lnt_store_f32<ROUNDS>(error_out, chunk.e, chunk.n, a);
    return squares;
}

#endif
