/* Element types as a table: name, size, and the way to f32 and back. A new type is a new row in dtype.c.
 *
 * Conversions touch exactly n elements at any alignment. A row without them is a type that is named but not supported.
 */
#ifndef LNT_KERNELS_DTYPE_H
#define LNT_KERNELS_DTYPE_H

#include <linnet/types.h>

typedef struct lnt_dtype_row {
    const char *name; /* also of the codec that stands for plain elements, where there is one */
    size_t size;
    void (*widen)(const void *values, uint64_t n, float *out);  /* exact */
    void (*narrow)(const float *values, uint64_t n, void *out); /* nearest even; too large becomes Inf, NaN stays NaN */
    bool (*fits)(const float *values, uint64_t n);              /* all finite after narrow */
} lnt_dtype_row_t;

/* NULL for numbers that are no type. */
const lnt_dtype_row_t *lnt_dtype_row(lnt_dtype_t dtype);

static inline bool lnt_dtype_supported(lnt_dtype_t dtype)
{
    const lnt_dtype_row_t *row = lnt_dtype_row(dtype);
    return row && row->widen;
}

#endif
