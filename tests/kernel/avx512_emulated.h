/* AVX-512 intrinsics as functions that run on AVX2: SIMDe (libsimde-dev), and below what its release 0.7.4 lacks, put
 * together from 256-bit halves. Force-included (-include) when the AVX-512 kernels are compiled once more for a test;
 * the library never sees it.
 */
#ifndef AVX512_EMULATED_H
#define AVX512_EMULATED_H

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <immintrin.h>
#include <simde/x86/avx512.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LNT_AVX512_EMULATED 1
#define EMULATED static inline __attribute__((always_inline))

EMULATED __m512 emulated_join_ps(__m256 low, __m256 high)
{
    __m512 both;
    memcpy(&both, &low, sizeof(low));
    memcpy((uint8_t *)&both + sizeof(low), &high, sizeof(high));
    return both;
}

EMULATED __m512i emulated_join_si(__m256i low, __m256i high)
{
    __m512i both;
    memcpy(&both, &low, sizeof(low));
    memcpy((uint8_t *)&both + sizeof(low), &high, sizeof(high));
    return both;
}

EMULATED __m256 emulated_half_ps(__m512 x, size_t half)
{
    __m256 part;
    memcpy(&part, (const uint8_t *)&x + half * sizeof(part), sizeof(part));
    return part;
}

EMULATED __m256i emulated_half_si(__m512i x, size_t half)
{
    __m256i part;
    memcpy(&part, (const uint8_t *)&x + half * sizeof(part), sizeof(part));
    return part;
}

/* ---- memory: lanes that are masked out are not touched ---- */

EMULATED __m512 emulated_maskz_loadu_ps(unsigned mask, const void *from)
{
    float lanes[16] = {0};
    for (unsigned i = 0; i < 16; i++)
        if (mask >> i & 1) memcpy(&lanes[i], (const float *)from + i, sizeof(float));
    return _mm512_loadu_ps(lanes);
}

EMULATED void emulated_mask_storeu_ps(void *to, unsigned mask, __m512 x)
{
    float lanes[16];
    _mm512_storeu_ps(lanes, x);
    for (unsigned i = 0; i < 16; i++)
        if (mask >> i & 1) memcpy((float *)to + i, &lanes[i], sizeof(float));
}

/* The instruction faults on an address that is not aligned. */
EMULATED void emulated_stream_ps(float *to, __m512 x)
{
    if ((uintptr_t)to % 64) __builtin_trap();
    _mm512_storeu_ps(to, x);
}

/* ---- conversions ---- */

EMULATED __m512 emulated_cvtepi32_ps(__m512i x)
{
    return emulated_join_ps(_mm256_cvtepi32_ps(emulated_half_si(x, 0)), _mm256_cvtepi32_ps(emulated_half_si(x, 1)));
}

EMULATED __m512i emulated_cvtps_epi32(__m512 x)
{
    return emulated_join_si(_mm256_cvtps_epi32(emulated_half_ps(x, 0)), _mm256_cvtps_epi32(emulated_half_ps(x, 1)));
}

EMULATED __m512i emulated_cvtepu16_epi32(__m256i x)
{
    return emulated_join_si(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(x)),
                            _mm256_cvtepu16_epi32(_mm256_extracti128_si256(x, 1)));
}

EMULATED __m512i emulated_cvtepi8_epi32(__m128i x)
{
    return emulated_join_si(_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_srli_si128(x, 8)));
}

EMULATED __m256i emulated_cvtepi32_epi16(__m512i x)
{
    uint32_t from[16];
    uint16_t to[16];
    _mm512_storeu_si512(from, x);
    for (int i = 0; i < 16; i++)
        to[i] = (uint16_t)from[i];
    return _mm256_loadu_si256((const __m256i *)to);
}

EMULATED __m128i emulated_cvtepi32_epi8(__m512i x)
{
    uint32_t from[16];
    uint8_t to[16];
    _mm512_storeu_si512(from, x);
    for (int i = 0; i < 16; i++)
        to[i] = (uint8_t)from[i];
    return _mm_loadu_si128((const __m128i *)to);
}

EMULATED __m512 emulated_cvtph_ps(__m256i x)
{
    return emulated_join_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(x)),
                            _mm256_cvtph_ps(_mm256_extracti128_si256(x, 1)));
}

EMULATED __m256i emulated_cvtps_ph(__m512 x)
{
    __m128i low = _mm256_cvtps_ph(emulated_half_ps(x, 0), _MM_FROUND_TO_NEAREST_INT);
    __m128i high = _mm256_cvtps_ph(emulated_half_ps(x, 1), _MM_FROUND_TO_NEAREST_INT);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

EMULATED __m512d emulated_cvtps_pd(__m256 x)
{
    __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(x)), high = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
    __m512d both;
    memcpy(&both, &low, sizeof(low));
    memcpy((uint8_t *)&both + sizeof(low), &high, sizeof(high));
    return both;
}

EMULATED int32_t emulated_reduce_max_epi32(__m512i x)
{
    int32_t lanes[16], top = INT32_MIN;
    _mm512_storeu_si512(lanes, x);
    for (int i = 0; i < 16; i++)
        top = lanes[i] > top ? lanes[i] : top;
    return top;
}

/* Some compilers have macros of these names. */
#undef _mm512_maskz_loadu_ps
#undef _mm512_mask_storeu_ps
#undef _mm512_stream_ps
#undef _mm512_cvtepi32_ps
#undef _mm512_cvtps_epi32
#undef _mm512_cvtepu16_epi32
#undef _mm512_cvtepi8_epi32
#undef _mm512_cvtepi32_epi16
#undef _mm512_cvtepi32_epi8
#undef _mm512_cvtph_ps
#undef _mm512_cvtps_ph
#undef _mm512_cvtps_pd
#undef _mm512_reduce_max_epi32

#define __mmask16 simde__mmask16
#define _mm512_maskz_loadu_ps(_mask, _from) emulated_maskz_loadu_ps(_mask, _from)
#define _mm512_mask_storeu_ps(_to, _mask, _x) emulated_mask_storeu_ps(_to, _mask, _x)
#define _mm512_stream_ps(_to, _x) emulated_stream_ps(_to, _x)
#define _mm512_cvtepi32_ps(_x) emulated_cvtepi32_ps(_x)
#define _mm512_cvtps_epi32(_x) emulated_cvtps_epi32(_x)
#define _mm512_cvtepu16_epi32(_x) emulated_cvtepu16_epi32(_x)
#define _mm512_cvtepi8_epi32(_x) emulated_cvtepi8_epi32(_x)
#define _mm512_cvtepi32_epi16(_x) emulated_cvtepi32_epi16(_x)
#define _mm512_cvtepi32_epi8(_x) emulated_cvtepi32_epi8(_x)
#define _mm512_cvtph_ps(_x) emulated_cvtph_ps(_x)
#define _mm512_cvtps_ph(_x, _rounding) emulated_cvtps_ph(_x)
#define _mm512_cvtps_pd(_x) emulated_cvtps_pd(_x)
#define _mm512_reduce_max_epi32(_x) emulated_reduce_max_epi32(_x)

#endif
