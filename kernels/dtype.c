/* The table of element types. */
#include "dtype.h"

static const lnt_dtype_row_t dtypes[LNT_DTYPE_COUNT] = {
    [LNT_F32] = {"f32", 4},
    [LNT_BF16] = {"bf16", 2},
    [LNT_F16] = {"f16", 2},
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
