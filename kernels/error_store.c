/* Errors as f32, bf16 and int8, both rounded to nearest even. A step of int8 is 1/127 of the largest magnitude of its
 * block, whose code is 127 or -127. (Rounding by chance, and powers of two as scales, were tried: on the quadratic of
 * the tests both end higher.) */
#include "error_store.h"

#include "array.h"
#include "float_bits.h"

const char *const lnt_error_words[] = {"f32", "bf16", "int8", NULL};

static void f32_read(const void *codes, const float *scales, uint64_t n, float *out)
{
    (void)scales;
    if (n != 0) memcpy(out, codes, n * sizeof(*out));
}

static void f32_write(const float *values, uint64_t n, void *codes, float *scales)
{
    (void)scales;
    if (n != 0) memcpy(codes, values, n * sizeof(*values));
}

static void bf16_read(const void *codes, const float *scales, uint64_t n, float *out)
{
    (void)scales;
    lnt_arrays()->widen[LNT_BF16](codes, n, out);
}

/* What rounds beyond the largest number stays there: an infinite error would poison every later step. */
static inline void saturate(uint16_t *codes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        codes[i] = (uint16_t)(codes[i] - ((codes[i] & 0x7fffu) == 0x7f80u));
}

static void bf16_write(const float *values, uint64_t n, void *codes, float *scales)
{
    uint16_t *out = codes;
    uint64_t i = 0;

    (void)scales;
    lnt_arrays()->narrow[LNT_BF16](values, n, codes);
    for (; i + LNT_ERROR_BLOCK <= n; i += LNT_ERROR_BLOCK) /* a constant count is vectorised */
        saturate(out + i, LNT_ERROR_BLOCK);
    saturate(out + i, (size_t)(n - i));
}

/* Adding 1.5 * 2^23 rounds to the nearest integer, in the middle to the even one. */
#define ROUNDING 12582912.0f
enum { LARGEST_CODE = 127, SCALE_BITS_DROPPED = 7 };

/* 17 significant bits: a code has 7, so their product is exact, and the scale comes out of it again. Not below the
 * smallest normal number. */
static float scale_of(uint32_t amax_bits)
{
    uint32_t bits = lnt_f32_bits(lnt_f32_from_bits(amax_bits) / LARGEST_CODE);

    bits = bits >> SCALE_BITS_DROPPED << SCALE_BITS_DROPPED;
    return lnt_f32_from_bits(bits > 0x00800000u ? bits : 0x00800000u);
}

/* Inlined with a constant n for whole blocks, which lets compilers vectorise them. */
static inline uint32_t largest(const float *restrict values, size_t n)
{
    uint32_t amax = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t bits = lnt_f32_abs_bits(values[i]);
        amax = bits > amax ? bits : amax;
    }
    return amax;
}

static inline float int8_block(const float *restrict values, size_t n, int8_t *restrict codes)
{
    const uint32_t amax = largest(values, n);
    const float scale = scale_of(amax), inverse = 1 / scale;

    if (amax == 0 || amax >= LNT_F32_INF_BITS) {
        memset(codes, 0, n);
        return 0;
    }
    for (size_t i = 0; i < n; i++)
        codes[i] = (int8_t)(int32_t)(lnt_f32_bits(values[i] * inverse + ROUNDING) - lnt_f32_bits(ROUNDING));
    return scale;
}

static void int8_write(const float *values, uint64_t n, void *codes, float *scales)
{
    int8_t *out = codes;
    uint64_t i = 0;

    for (; i + LNT_ERROR_BLOCK <= n; i += LNT_ERROR_BLOCK)
        scales[i / LNT_ERROR_BLOCK] = int8_block(values + i, LNT_ERROR_BLOCK, out + i);
    if (i < n) scales[i / LNT_ERROR_BLOCK] = int8_block(values + i, (size_t)(n - i), out + i);
}

static inline void int8_widen(const int8_t *restrict codes, float scale, size_t n, float *restrict out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (float)codes[i] * scale;
}

static void int8_read(const void *codes, const float *scales, uint64_t n, float *out)
{
    const int8_t *from = codes;
    uint64_t i = 0;

    for (; i + LNT_ERROR_BLOCK <= n; i += LNT_ERROR_BLOCK)
        int8_widen(from + i, scales[i / LNT_ERROR_BLOCK], LNT_ERROR_BLOCK, out + i);
    if (i < n) int8_widen(from + i, scales[i / LNT_ERROR_BLOCK], (size_t)(n - i), out + i);
}

static const lnt_error_row_t rows[] = {
    {"f32", LNT_ERROR_F32, 4, false, f32_read, f32_write},
    {"bf16", LNT_ERROR_BF16, 2, false, bf16_read, bf16_write},
    {"int8", LNT_ERROR_INT8, 1, true, int8_read, int8_write},
};

const lnt_error_row_t *lnt_error_row(lnt_error_dtype_t dtype)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].dtype == dtype) return &rows[i];
    }
    return NULL;
}
