/* Element types as a table: size and name. A new type is a new row. */
#include <linnet/types.h>

typedef struct dtype_row {
    const char *name;
    size_t size;
} dtype_row_t;

static const dtype_row_t dtypes[LNT_DTYPE_COUNT] = {
    [LNT_F32] = {"f32", 4},
    [LNT_BF16] = {"bf16", 2},
    [LNT_F16] = {"f16", 2},
};

static bool dtype_known(lnt_dtype_t dtype)
{
    return ((int)dtype >= 0) && ((int)dtype < LNT_DTYPE_COUNT);
}

size_t lnt_dtype_size(lnt_dtype_t dtype)
{
    return dtype_known(dtype) ? dtypes[dtype].size : 0;
}

const char *lnt_dtype_name(lnt_dtype_t dtype)
{
    return dtype_known(dtype) ? dtypes[dtype].name : "unknown";
}
