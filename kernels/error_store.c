/* Errors as f32, bf16 and int8, both rounded to nearest even. The loops are those of array.h. */
#include "error_store.h"

#include <string.h>

#include "array.h"

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

static void int8_write(const float *values, uint64_t n, void *codes, float *scales)
{
    lnt_arrays()->keep_int8(values, n, codes, scales);
}

static void int8_read(const void *codes, const float *scales, uint64_t n, float *out)
{
    lnt_arrays()->kept_int8(codes, scales, n, out);
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
