/* Vectors of VEC f32 or int32 lanes: the thin layer under every vector kernel. A kernel body is written once against it
 * (<name>_simd.h) and compiled by <name>_avx2.c and <name>_avx512.c, each with the flags of its instruction set.
 *
 *   vf  VEC floats       vi  VEC 32-bit integers     vm  a choice per lane
 *   vd  VEC / 2 doubles  vh  VEC 16-bit elements
 *
 * Memory operands need the alignment of their element only (vf_stream: of a whole vector). Arithmetic is IEEE f32,
 * round to nearest even, as plain C: nothing here contracts or approximates. *_part functions touch the first n lanes
 * only and read the others as +0. A strip is STRIP elements as vectors: one word of live bits, whole bytes of every
 * code.
 *
 * fixed_store_* take two strips of numbers with FIXED_POINT bits behind the point, and store the low 8 or 4 bits in
 * front of it.
 */
#ifndef LNT_KERNELS_VEC_H
#define LNT_KERNELS_VEC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "float_bits.h"
#include "lnt_inline.h"
#include "reduce_tree.h"

enum { FIXED_POINT = 14 };

#if defined(__AVX512F__) || defined(LNT_AVX512_EMULATED)
#include "vec_avx512.h"
#else
#include "vec_avx2.h"
#endif

enum { STRIP = 32, STRIP_VECS = STRIP / VEC };

/* Before loops over the vectors of a strip: unrolled, so that arrays of vectors live in registers. */
#if defined(__clang__)
#define LNT_UNROLL _Pragma("unroll")
#else
#define LNT_UNROLL _Pragma("GCC unroll 16")
#endif

LNT_INLINE vi vf_magnitude_bits(vf x)
{
    return vi_and(vf_bits(x), vi_all(0x7fffffff));
}

/* The lanes whose bits are set, around the caches, one by one. Among vectors that are streamed, to read some of them or
 * to store a part of one the usual way makes all of them wait for memory: one element of 1000 that stays as it is cost
 * a third of the time. */
LNT_INLINE void vf_stream_lanes(float *to, vf x, uint32_t lanes)
{
    int32_t bits[VEC];
    memcpy(bits, &x, sizeof(bits));
    LNT_UNROLL
    for (int i = 0; i < VEC; i++)
        if (lanes >> i & 1) _mm_stream_si32((int *)(void *)(to + i), bits[i]);
}

/* ---- 16-bit elements ---- */

LNT_INLINE vf vh_bf16_value(vh code)
{
    return vi_floats(vi_left(vh_wide(code), 16));
}

/* lnt_bf16_code; bf16_math.h says why. */
LNT_INLINE vh vf_bf16_code(vf x)
{
    vi bits = vf_bits(x), upper = vi_right(bits, 16);
    vi rounded = vi_right(vi_add(vi_add(bits, vi_all(0x7fff)), vi_and(upper, vi_all(1))), 16);
    vm nan = vi_greater(vf_magnitude_bits(x), vi_all(LNT_F32_INF_BITS));
    return vi_narrow(vi_choose(nan, vi_or(upper, vi_all(0x40)), rounded));
}

LNT_INLINE vf vf_load_bf16(const void *from)
{
    return vh_bf16_value(vh_load(from));
}

LNT_INLINE vf vf_load_f16(const void *from)
{
    return vh_f16_value(vh_load(from));
}

LNT_INLINE void vf_store_bf16(void *to, vf x)
{
    vh_store(to, vf_bf16_code(x));
}

LNT_INLINE void vf_store_f16(void *to, vf x)
{
    vh_store(to, vf_f16_code(x));
}

/* ---- f64 ---- */

/* lnt_tree_combine: four groups at a time, and four sums of the halving. */
LNT_INLINE double vec_tree_combine(const double *lanes)
{
    __m256d groups[LNT_TREE_GROUPS / 4];
    for (int g = 0; g < LNT_TREE_GROUPS / 4; g++) {
        const double *lane = lanes + 16 * g;
        __m256d first = _mm256_hadd_pd(_mm256_loadu_pd(lane), _mm256_loadu_pd(lane + 4));
        __m256d second = _mm256_hadd_pd(_mm256_loadu_pd(lane + 8), _mm256_loadu_pd(lane + 12));
        groups[g] = _mm256_add_pd(_mm256_permute2f128_pd(first, second, 0x20),  /* lanes 0 + 1 of every group */
                                  _mm256_permute2f128_pd(first, second, 0x31)); /* lanes 2 + 3 */
    }
    for (int half = LNT_TREE_GROUPS / 8; half > 0; half /= 2)
        for (int g = 0; g < half; g++)
            groups[g] = _mm256_add_pd(groups[g], groups[g + half]);
    __m128d pair = _mm_add_pd(_mm256_castpd256_pd128(groups[0]), _mm256_extractf128_pd(groups[0], 1));
    return _mm_cvtsd_f64(_mm_add_sd(pair, _mm_unpackhi_pd(pair, pair)));
}

/* ---- strips ---- */

/* The low half byte of every code of a strip, two to a byte, the first in the low half. */
LNT_INLINE void strip_store_i4(uint8_t *to, const vi *strip)
{
    const __m256i shift_odd = _mm256_set1_epi16(0x1001); /* first + 16 * second */
    __m256i pairs = _mm256_maddubs_epi16(_mm256_and_si256(strip_bytes(strip), _mm256_set1_epi8(15)), shift_odd);
    _mm_storeu_si128((__m128i *)to,
                     _mm_packus_epi16(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1)));
}

LNT_INLINE void strip_load_i4(const uint8_t *from, vi *strip)
{
    const __m128i low = _mm_set1_epi8(15), sign = _mm_set1_epi8(8);
    __m128i both = _mm_loadu_si128((const __m128i *)from);
    __m128i first = _mm_and_si128(both, low), second = _mm_and_si128(_mm_srli_epi16(both, 4), low);
    first = _mm_sub_epi8(_mm_xor_si128(first, sign), sign);
    second = _mm_sub_epi8(_mm_xor_si128(second, sign), sign);
    strip_of_bytes(_mm_unpacklo_epi8(first, second), _mm_unpackhi_epi8(first, second), strip);
}

LNT_INLINE void strip_store_i8(uint8_t *to, const vi *strip)
{
    _mm256_storeu_si256((__m256i *)to, strip_bytes(strip));
}

LNT_INLINE uint32_t load_u32(const uint8_t *bytes)
{
    uint32_t word;
    memcpy(&word, bytes, sizeof(word));
    return word;
}

LNT_INLINE void store_u32(uint8_t *bytes, uint32_t word)
{
    memcpy(bytes, &word, sizeof(word));
}

/* Is a magnitude, as bits, of a NaN or Inf? The largest of many answers for all. */
LNT_INLINE bool magnitude_nonfinite(uint32_t magnitude_bits)
{
    return magnitude_bits >= LNT_F32_INF_BITS;
}

#endif
