/* The vector layer (vec.h) on AVX-512 F, BW, DQ and VL: 16 lanes. Whoever defines LNT_AVX512_EMULATED has declared
 * the intrinsics used here already: a test runs these kernels on processors without AVX-512. */
#ifndef LNT_KERNELS_VEC_AVX512_H
#define LNT_KERNELS_VEC_AVX512_H

#if !defined(LNT_AVX512_EMULATED)
#include <immintrin.h>
#endif

#define LNT_ISA_NAME(_name) _name##_avx512

enum { VEC = 16, VECD = 8, SWEEP_VECS = 16 /* registers of f64 to sum in */ };

typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm;
typedef __m512d vd;
typedef __m256i vh;

/* ---- f32 ---- */

LNT_INLINE vf vf_zero(void)
{
    return _mm512_setzero_ps();
}

LNT_INLINE vf vf_all(float x)
{
    return _mm512_set1_ps(x);
}

LNT_INLINE vf vf_load(const float *from)
{
    return _mm512_loadu_ps(from);
}

LNT_INLINE void vf_store(float *to, vf x)
{
    _mm512_storeu_ps(to, x);
}

/* Around the caches. `to` is aligned to the vector; vec_stream_end() before anybody else reads. */
LNT_INLINE void vf_stream(float *to, vf x)
{
    _mm512_stream_ps(to, x);
}

LNT_INLINE void vec_stream_end(void)
{
    _mm_sfence();
}

LNT_INLINE vm vm_first(size_t n)
{
    return (vm)((1u << n) - 1);
}

LNT_INLINE vf vf_load_part(const float *from, size_t n)
{
    return _mm512_maskz_loadu_ps(vm_first(n), from);
}

LNT_INLINE void vf_store_part(float *to, vf x, size_t n)
{
    _mm512_mask_storeu_ps(to, vm_first(n), x);
}

LNT_INLINE vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}

LNT_INLINE vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}

LNT_INLINE vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}

LNT_INLINE vf vf_multiply_add(vf a, vf b, vf c) /* a * b + c, rounded once */
{
    return _mm512_fmadd_ps(a, b, c);
}

LNT_INLINE vf vf_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}

LNT_INLINE vf vf_sqrt(vf a)
{
    return _mm512_sqrt_ps(a);
}

LNT_INLINE vm vf_at_least(vf a, vf b) /* a >= b; false for NaN */
{
    return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ);
}

LNT_INLINE vi vf_bits(vf x)
{
    return _mm512_castps_si512(x);
}

LNT_INLINE vi vf_to_int(vf x) /* nearest, half to even */
{
    return _mm512_cvtps_epi32(x);
}

/* ---- int32 ---- */

LNT_INLINE vi vi_all(int32_t x)
{
    return _mm512_set1_epi32(x);
}

LNT_INLINE vi vi_iota(void) /* 0, 1, 2, ... */
{
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

LNT_INLINE vf vi_floats(vi bits)
{
    return _mm512_castsi512_ps(bits);
}

LNT_INLINE vf vi_to_float(vi x)
{
    return _mm512_cvtepi32_ps(x);
}

LNT_INLINE vi vi_load(const void *from)
{
    return _mm512_loadu_si512(from);
}

LNT_INLINE vi vi_add(vi a, vi b)
{
    return _mm512_add_epi32(a, b);
}

LNT_INLINE vi vi_sub(vi a, vi b)
{
    return _mm512_sub_epi32(a, b);
}

LNT_INLINE vi vi_mul(vi a, vi b) /* low halves of the products */
{
    return _mm512_mullo_epi32(a, b);
}

LNT_INLINE vi vi_and(vi a, vi b)
{
    return _mm512_and_si512(a, b);
}

LNT_INLINE vi vi_or(vi a, vi b)
{
    return _mm512_or_si512(a, b);
}

LNT_INLINE vi vi_xor(vi a, vi b)
{
    return _mm512_xor_si512(a, b);
}

LNT_INLINE vi vi_max(vi a, vi b)
{
    return _mm512_max_epi32(a, b);
}

LNT_INLINE vi vi_min(vi a, vi b)
{
    return _mm512_min_epi32(a, b);
}

LNT_INLINE vi vi_left(vi x, int n)
{
    return _mm512_slli_epi32(x, n);
}

LNT_INLINE vi vi_right(vi x, int n) /* zeros come in */
{
    return _mm512_srli_epi32(x, n);
}

LNT_INLINE vi vi_left_each(vi x, vi n) /* zeros come in, also from all 32 on */
{
    return _mm512_sllv_epi32(x, n);
}

LNT_INLINE vi vi_right_each(vi x, vi n)
{
    return _mm512_srlv_epi32(x, n);
}

LNT_INLINE vm vi_greater(vi a, vi b)
{
    return _mm512_cmpgt_epi32_mask(a, b);
}

LNT_INLINE uint32_t vi_highest(vi x) /* of lanes that are not negative */
{
    return (uint32_t)_mm512_reduce_max_epi32(x);
}

/* ---- choices ---- */

LNT_INLINE uint32_t vm_bits(vm m) /* lane i to bit i */
{
    return m;
}

LNT_INLINE vm vm_of_bits(uint32_t bits)
{
    return (vm)bits;
}

LNT_INLINE vf vf_choose(vm m, vf yes, vf no)
{
    return _mm512_mask_blend_ps(m, no, yes);
}

LNT_INLINE vi vi_choose(vm m, vi yes, vi no)
{
    return _mm512_mask_blend_epi32(m, no, yes);
}

LNT_INLINE vf vf_keep(vm m, vf x) /* x, or +0 */
{
    return _mm512_maskz_mov_ps(m, x);
}

/* yes where the bit of the lane is set, or no; vector v of the strip that `bits` is for. */
LNT_INLINE vf strip_choose(uint32_t bits, int v, vf yes, vf no)
{
    return vf_choose(vm_of_bits(bits >> (v * VEC)), yes, no);
}

/* ---- smaller elements ---- */

LNT_INLINE vh vh_load(const void *from)
{
    return _mm256_loadu_si256((const __m256i *)from);
}

LNT_INLINE void vh_store(void *to, vh x)
{
    _mm256_storeu_si256((__m256i *)to, x);
}

LNT_INLINE vi vh_wide(vh x) /* zeros above */
{
    return _mm512_cvtepu16_epi32(x);
}

LNT_INLINE vh vi_narrow(vi x) /* lanes below 2^16 */
{
    return _mm512_cvtepi32_epi16(x);
}

LNT_INLINE vf vh_f16_value(vh code)
{
    return _mm512_cvtph_ps(code);
}

LNT_INLINE vh vf_f16_code(vf x) /* lnt_f16_code */
{
    return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
}

LNT_INLINE vi vi_load_i8(const void *from)
{
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)from));
}

/* A strip of codes -128..127 to bytes. */
LNT_INLINE __m256i strip_bytes(const vi *strip)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm512_cvtepi32_epi8(strip[0])),
                                   _mm512_cvtepi32_epi8(strip[1]), 1);
}

/* The 8 bits from FIXED_POINT on of every lane of a strip. */
LNT_INLINE __m256i fixed_bytes(const vi *strip)
{
    const vi whole[] = {vi_right(strip[0], FIXED_POINT), vi_right(strip[1], FIXED_POINT)};
    return strip_bytes(whole);
}

LNT_INLINE void fixed_store_i8(uint8_t *to, const vi *first, const vi *second)
{
    __m256i *room = (__m256i *)(void *)to;
    _mm256_storeu_si256(room, fixed_bytes(first));
    _mm256_storeu_si256(room + 1, fixed_bytes(second));
}

LNT_INLINE void fixed_store_i4(uint8_t *to, const vi *first, const vi *second)
{
    const __m256i low = _mm256_set1_epi8(15), shift_odd = _mm256_set1_epi16(0x1001); /* first + 16 * second */
    __m256i front = _mm256_maddubs_epi16(_mm256_and_si256(fixed_bytes(first), low), shift_odd);
    __m256i back = _mm256_maddubs_epi16(_mm256_and_si256(fixed_bytes(second), low), shift_odd);
    __m256i codes =
        _mm256_permute4x64_epi64(_mm256_packus_epi16(front, back), 0xd8); /* the strips one after the other */
    _mm256_storeu_si256((__m256i *)to, codes);
}

/* And back, from two halves. */
LNT_INLINE void strip_of_bytes(__m128i low, __m128i high, vi *strip)
{
    strip[0] = _mm512_cvtepi8_epi32(low);
    strip[1] = _mm512_cvtepi8_epi32(high);
}

/* ---- lanes among themselves ---- */

/* x[i] + x[i + distance] where i lacks the bit `distance`, x[i - distance] - x[i] where it has it; below VEC. */
LNT_INLINE vf vf_butterfly(vf x, int distance)
{
    vf other = _mm512_permutexvar_ps(_mm512_xor_si512(vi_iota(), vi_all(distance)), x);
    vm upper = distance == 1 ? 0xaaaa : distance == 2 ? 0xcccc : distance == 4 ? 0xf0f0 : 0xff00;
    return vf_choose(upper, vf_sub(other, x), vf_add(x, other));
}

/* ---- f64 ---- */

LNT_INLINE vd vd_zero(void)
{
    return _mm512_setzero_pd();
}

LNT_INLINE vd vd_load(const double *from)
{
    return _mm512_loadu_pd(from);
}

LNT_INLINE void vd_store(double *to, vd x)
{
    _mm512_storeu_pd(to, x);
}

LNT_INLINE vd vd_add(vd a, vd b)
{
    return _mm512_add_pd(a, b);
}

LNT_INLINE vd vd_multiply_add(vd a, vd b, vd c) /* a * b + c, rounded once */
{
    return _mm512_fmadd_pd(a, b, c);
}

/* The VECD floats at `from`; exact. */
LNT_INLINE vd vd_load_f32(const float *from)
{
    return _mm512_cvtps_pd(_mm256_loadu_ps(from));
}

LNT_INLINE vd vd_magnitude(vd x)
{
    return _mm512_castsi512_pd(_mm512_and_si512(_mm512_castpd_si512(x), _mm512_set1_epi64(0x7fffffffffffffff)));
}

#endif
