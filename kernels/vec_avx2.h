/* The vector layer (vec.h) on AVX2, FMA and F16C: 8 lanes. */
#ifndef LNT_KERNELS_VEC_AVX2_H
#define LNT_KERNELS_VEC_AVX2_H

#include <immintrin.h>

#define LNT_ISA_NAME(_name) _name##_avx2

enum { VEC = 8, VECD = 4, SWEEP_VECS = 8 /* registers of f64 to sum in */ };

typedef __m256 vf;
typedef __m256i vi;
typedef __m256i vm; /* all bits of a lane, or none */
typedef __m256d vd;
typedef __m128i vh;

/* ---- f32 ---- */

LNT_INLINE vf vf_zero(void)
{
    return _mm256_setzero_ps();
}

LNT_INLINE vf vf_all(float x)
{
    return _mm256_set1_ps(x);
}

LNT_INLINE vf vf_load(const float *from)
{
    return _mm256_loadu_ps(from);
}

LNT_INLINE void vf_store(float *to, vf x)
{
    _mm256_storeu_ps(to, x);
}

/* Around the caches. `to` is aligned to the vector; vec_stream_end() before anybody else reads. */
LNT_INLINE void vf_stream(float *to, vf x)
{
    _mm256_stream_ps(to, x);
}

LNT_INLINE void vec_stream_end(void)
{
    _mm_sfence();
}

LNT_INLINE vm vm_first(size_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

LNT_INLINE vf vf_load_part(const float *from, size_t n)
{
    return _mm256_maskload_ps(from, vm_first(n));
}

LNT_INLINE void vf_store_part(float *to, vf x, size_t n)
{
    _mm256_maskstore_ps(to, vm_first(n), x);
}

LNT_INLINE vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}

LNT_INLINE vf vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}

LNT_INLINE vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}

LNT_INLINE vf vf_multiply_add(vf a, vf b, vf c) /* a * b + c, rounded once */
{
    return _mm256_fmadd_ps(a, b, c);
}

LNT_INLINE vf vf_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}

LNT_INLINE vf vf_sqrt(vf a)
{
    return _mm256_sqrt_ps(a);
}

LNT_INLINE vm vf_at_least(vf a, vf b) /* a >= b; false for NaN */
{
    return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_GE_OQ));
}

LNT_INLINE vi vf_bits(vf x)
{
    return _mm256_castps_si256(x);
}

LNT_INLINE vi vf_to_int(vf x) /* nearest, half to even */
{
    return _mm256_cvtps_epi32(x);
}

/* ---- int32 ---- */

LNT_INLINE vi vi_all(int32_t x)
{
    return _mm256_set1_epi32(x);
}

LNT_INLINE vi vi_iota(void) /* 0, 1, 2, ... */
{
    return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
}

LNT_INLINE vf vi_floats(vi bits)
{
    return _mm256_castsi256_ps(bits);
}

LNT_INLINE vf vi_to_float(vi x)
{
    return _mm256_cvtepi32_ps(x);
}

LNT_INLINE vi vi_load(const void *from)
{
    return _mm256_loadu_si256((const __m256i *)from);
}

LNT_INLINE vi vi_add(vi a, vi b)
{
    return _mm256_add_epi32(a, b);
}

LNT_INLINE vi vi_sub(vi a, vi b)
{
    return _mm256_sub_epi32(a, b);
}

LNT_INLINE vi vi_mul(vi a, vi b) /* low halves of the products */
{
    return _mm256_mullo_epi32(a, b);
}

LNT_INLINE vi vi_and(vi a, vi b)
{
    return _mm256_and_si256(a, b);
}

LNT_INLINE vi vi_or(vi a, vi b)
{
    return _mm256_or_si256(a, b);
}

LNT_INLINE vi vi_xor(vi a, vi b)
{
    return _mm256_xor_si256(a, b);
}

LNT_INLINE vi vi_max(vi a, vi b)
{
    return _mm256_max_epi32(a, b);
}

LNT_INLINE vi vi_min(vi a, vi b)
{
    return _mm256_min_epi32(a, b);
}

LNT_INLINE vi vi_left(vi x, int n)
{
    return _mm256_slli_epi32(x, n);
}

LNT_INLINE vi vi_right(vi x, int n) /* zeros come in */
{
    return _mm256_srli_epi32(x, n);
}

LNT_INLINE vi vi_left_each(vi x, vi n) /* zeros come in, also from all 32 on */
{
    return _mm256_sllv_epi32(x, n);
}

LNT_INLINE vi vi_right_each(vi x, vi n)
{
    return _mm256_srlv_epi32(x, n);
}

LNT_INLINE vm vi_greater(vi a, vi b)
{
    return _mm256_cmpgt_epi32(a, b);
}

LNT_INLINE uint32_t vi_highest(vi x) /* of lanes that are not negative */
{
    __m128i half = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(half);
}

/* ---- choices ---- */

LNT_INLINE uint32_t vm_bits(vm m) /* lane i to bit i */
{
    return (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(m));
}

LNT_INLINE vm vm_of_bits(uint32_t bits)
{
    const __m256i one = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)bits), one), one);
}

LNT_INLINE vf vf_choose(vm m, vf yes, vf no)
{
    return _mm256_blendv_ps(no, yes, _mm256_castsi256_ps(m));
}

LNT_INLINE vi vi_choose(vm m, vi yes, vi no)
{
    return _mm256_blendv_epi8(no, yes, m);
}

LNT_INLINE vf vf_keep(vm m, vf x) /* x, or +0 */
{
    return _mm256_and_ps(x, _mm256_castsi256_ps(m));
}

/* yes where the bit of the lane is set, or no; vector v of the strip that `bits` is for. The sign bit decides, so one
 * shift does for all lanes. */
LNT_INLINE vf strip_choose(uint32_t bits, int v, vf yes, vf no)
{
    const __m256i to_sign = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
    __m256i signs = _mm256_sllv_epi32(_mm256_set1_epi32((int)bits), _mm256_sub_epi32(to_sign, vi_all(v * VEC)));
    return _mm256_blendv_ps(no, yes, _mm256_castsi256_ps(signs));
}

/* ---- smaller elements ---- */

LNT_INLINE vh vh_load(const void *from)
{
    return _mm_loadu_si128((const __m128i *)from);
}

LNT_INLINE void vh_store(void *to, vh x)
{
    _mm_storeu_si128((__m128i *)to, x);
}

LNT_INLINE vi vh_wide(vh x) /* zeros above */
{
    return _mm256_cvtepu16_epi32(x);
}

LNT_INLINE vh vi_narrow(vi x) /* lanes below 2^16 */
{
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi32(x, x), 0x08));
}

LNT_INLINE vf vh_f16_value(vh code)
{
    return _mm256_cvtph_ps(code);
}

LNT_INLINE vh vf_f16_code(vf x) /* lnt_f16_code */
{
    return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
}

LNT_INLINE vi vi_load_i8(const void *from)
{
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)from));
}

/* A strip of codes -128..127 to bytes. */
LNT_INLINE __m256i strip_bytes(const vi *strip)
{
    __m256i low = _mm256_packs_epi32(strip[0], strip[1]), high = _mm256_packs_epi32(strip[2], strip[3]);
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* The 8 bits from FIXED_POINT on of every lane of a strip. Four lanes of each vector to one half, and four to the
 * other.
 */
LNT_INLINE __m256i fixed_bytes(const vi *strip)
{
    const __m256i order =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 2, 6, 10, 14, 1, 5, 9, 13, 3, 7, 11, 15));
    __m256i even = _mm256_blend_epi16(vi_right(strip[0], FIXED_POINT), vi_left(strip[1], 16 - FIXED_POINT), 0xaa);
    __m256i odd = _mm256_blend_epi16(vi_right(strip[2], FIXED_POINT - 8), vi_left(strip[3], 24 - FIXED_POINT), 0xaa);
    return _mm256_shuffle_epi8(_mm256_blendv_epi8(even, odd, _mm256_set1_epi16((short)0xff00)), order);
}

LNT_INLINE void fixed_store_i8(uint8_t *to, const vi *first, const vi *second)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    vi *room = (vi *)(void *)to;
    _mm256_storeu_si256(room, _mm256_permutevar8x32_epi32(fixed_bytes(first), order));
    _mm256_storeu_si256(room + 1, _mm256_permutevar8x32_epi32(fixed_bytes(second), order));
}

LNT_INLINE void fixed_store_i4(uint8_t *to, const vi *first, const vi *second)
{
    const __m256i low = _mm256_set1_epi8(15), shift_odd = _mm256_set1_epi16(0x1001); /* first + 16 * second */
    const __m256i order =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15));
    __m256i front = _mm256_maddubs_epi16(_mm256_and_si256(fixed_bytes(first), low), shift_odd);
    __m256i back = _mm256_maddubs_epi16(_mm256_and_si256(fixed_bytes(second), low), shift_odd);
    __m256i halves = _mm256_permute4x64_epi64(_mm256_packus_epi16(front, back), 0xd8); /* a strip in each half */
    _mm256_storeu_si256((__m256i *)to, _mm256_shuffle_epi8(halves, order));
}

/* And back, from two halves. */
LNT_INLINE void strip_of_bytes(__m128i low, __m128i high, vi *strip)
{
    strip[0] = _mm256_cvtepi8_epi32(low);
    strip[1] = _mm256_cvtepi8_epi32(_mm_srli_si128(low, 8));
    strip[2] = _mm256_cvtepi8_epi32(high);
    strip[3] = _mm256_cvtepi8_epi32(_mm_srli_si128(high, 8));
}

/* ---- lanes among themselves ---- */

/* x[i] + x[i + distance] where i lacks the bit `distance`, x[i - distance] - x[i] where it has it; below VEC. */
LNT_INLINE vf vf_butterfly(vf x, int distance)
{
    vf other = distance == 1   ? _mm256_permute_ps(x, 0xb1)
               : distance == 2 ? _mm256_permute_ps(x, 0x4e)
                               : _mm256_permute2f128_ps(x, x, 1);
    vf sum = vf_add(x, other), difference = vf_sub(other, x);
    return distance == 1   ? _mm256_blend_ps(sum, difference, 0xaa)
           : distance == 2 ? _mm256_blend_ps(sum, difference, 0xcc)
                           : _mm256_blend_ps(sum, difference, 0xf0);
}

/* ---- f64 ---- */

LNT_INLINE vd vd_zero(void)
{
    return _mm256_setzero_pd();
}

LNT_INLINE vd vd_load(const double *from)
{
    return _mm256_loadu_pd(from);
}

LNT_INLINE void vd_store(double *to, vd x)
{
    _mm256_storeu_pd(to, x);
}

LNT_INLINE vd vd_add(vd a, vd b)
{
    return _mm256_add_pd(a, b);
}

LNT_INLINE vd vd_multiply_add(vd a, vd b, vd c) /* a * b + c, rounded once */
{
    return _mm256_fmadd_pd(a, b, c);
}

/* The VECD floats at `from`; exact. */
LNT_INLINE vd vd_load_f32(const float *from)
{
    return _mm256_cvtps_pd(_mm_loadu_ps(from));
}

LNT_INLINE vd vd_magnitude(vd x)
{
    return _mm256_andnot_pd(_mm256_set1_pd(-0.0), x);
}

#endif
