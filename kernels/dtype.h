/* Element types as a table: name and size. The way to f32 and back is lnt_arrays() (array.h). */
#ifndef LNT_KERNELS_DTYPE_H
#define LNT_KERNELS_DTYPE_H

#include <linnet/types.h>

typedef struct lnt_dtype_row {
    const char *name; /* also of the codec that stands for plain elements */
    size_t size;
} lnt_dtype_row_t;

/* NULL for numbers that are no type. */
const lnt_dtype_row_t *lnt_dtype_row(lnt_dtype_t dtype);

static inline bool lnt_dtype_supported(lnt_dtype_t dtype)
{
    return lnt_dtype_row(dtype) != NULL;
}

#endif
