/* The table of element types. Inner loops have constant trip counts, so that compilers vectorise them; what is not
 * whole strips goes through padded scratch. */
#include "dtype.h"

#include "bf16_math.h"

enum { STRIP = 128 };

static size_t strip_size(uint64_t left)
{
    return left < STRIP ? (size_t)left : STRIP;
}

static void f32_widen(const void *values, uint64_t n, float *out)
{
    if (n) memcpy(out, values, n * sizeof(*out));
}

static void f32_narrow(const float *values, uint64_t n, void *out)
{
    if (n) memcpy(out, values, n * sizeof(*values));
}

static bool f32_fits(const float *values, uint64_t n)
{
    uint32_t any = 0;
    for (uint64_t i = 0; i < n; i++)
        any |= lnt_f32_nonfinite_bit(values[i]);
    return !(any >> 31);
}

static void bf16_widen(const void *values, uint64_t n, float *out)
{
    for (uint64_t i = 0; i < n; i += STRIP) {
        uint16_t codes[STRIP] = {0};
        float wide[STRIP];
        size_t count = strip_size(n - i);
        memcpy(codes, (const uint8_t *)values + i * sizeof(*codes), count * sizeof(*codes));
        for (size_t k = 0; k < STRIP; k++)
            wide[k] = lnt_bf16_value(codes[k]);
        memcpy(out + i, wide, count * sizeof(*wide));
    }
}

static void bf16_narrow(const float *values, uint64_t n, void *out)
{
    for (uint64_t i = 0; i < n; i += STRIP) {
        float wide[STRIP] = {0};
        uint16_t codes[STRIP];
        size_t count = strip_size(n - i);
        memcpy(wide, values + i, count * sizeof(*wide));
        for (size_t k = 0; k < STRIP; k++)
            codes[k] = lnt_bf16_code(wide[k]);
        memcpy((uint8_t *)out + i * sizeof(*codes), codes, count * sizeof(*codes));
    }
}

static bool bf16_fits(const float *values, uint64_t n)
{
    uint32_t any = 0;
    for (uint64_t i = 0; i < n; i++)
        any |= lnt_bf16_overflow_bit(values[i]);
    return !(any >> 31);
}

static const lnt_dtype_row_t dtypes[LNT_DTYPE_COUNT] = {
    [LNT_F32] = {"f32", 4, f32_widen, f32_narrow, f32_fits},
    [LNT_BF16] = {"bf16", 2, bf16_widen, bf16_narrow, bf16_fits},
    [LNT_F16] = {.name = "f16", .size = 2},
};

const lnt_dtype_row_t *lnt_dtype_row(lnt_dtype_t dtype)
{
    return (int)dtype >= 0 && (int)dtype < LNT_DTYPE_COUNT ? &dtypes[dtype] : NULL;
}

size_t lnt_dtype_size(lnt_dtype_t dtype)
{
    const lnt_dtype_row_t *row = lnt_dtype_row(dtype);
    return row ? row->size : 0;
}

const char *lnt_dtype_name(lnt_dtype_t dtype)
{
    const lnt_dtype_row_t *row = lnt_dtype_row(dtype);
    return row ? row->name : "unknown";
}
