/* Vectors of VEC f32 or int32 lanes: the thin layer under every vector kernel. A kernel body is written once against it
 * (<name>_simd.h) and compiled by <name>_avx2.c and <name>_avx512.c, each with the flags of its instruction set.
 *
 *   vf  VEC floats       vi  VEC 32-bit integers     vm  a choice per lane     vd  VEC / 2 doubles
 *
 * Memory operands need the alignment of their element only (vf_stream: of a whole vector). Arithmetic is IEEE f32,
 * round to nearest even, as plain C: nothing here contracts or approximates. *_part functions touch the first n lanes
 * only and read the others as +0. A strip is STRIP elements as vectors: one word of live bits, whole bytes of every
 * code.
 */
#ifndef LNT_KERNELS_VEC_H
#define LNT_KERNELS_VEC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "float_bits.h"
#include "lnt_inline.h"

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

LNT_INLINE vf vf_magnitude(vf x)
{
    return vi_floats(vf_magnitude_bits(x));
}

/* bf16 is the upper half of an f32. */
LNT_INLINE vf vf_load_bf16(const void *halves)
{
    return vi_floats(vi_left(vi_load_u16(halves), 16));
}

/* lnt_bf16_code of every lane, in the low halves; bf16_math.h says why. */
LNT_INLINE vi vf_bf16_code(vf x)
{
    vi bits = vf_bits(x), upper = vi_right(bits, 16);
    vi rounded = vi_right(vi_add(vi_add(bits, vi_all(0x7fff)), vi_and(upper, vi_all(1))), 16);
    vm nan = vi_greater(vf_magnitude_bits(x), vi_all(LNT_F32_INF_BITS));
    return vi_choose(nan, vi_or(upper, vi_all(0x40)), rounded);
}

LNT_INLINE void vf_store_bf16(void *halves, vf x)
{
    vi_store_u16(halves, vf_bf16_code(x));
}

/* The first n < VEC 16-bit elements. */
LNT_INLINE vi vi_load_u16_part(const void *halves, size_t n)
{
    uint16_t room[VEC] = {0};
    memcpy(room, halves, n * sizeof(*room));
    return vi_load_u16(room);
}

LNT_INLINE void vi_store_u16_part(void *halves, vi x, size_t n)
{
    uint16_t room[VEC];
    vi_store_u16(room, x);
    memcpy(halves, room, n * sizeof(*room));
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
