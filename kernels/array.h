/* Elementwise work on plain arrays outside the codecs: conversions, sums, norms, finite checks. One table per
 * implementation (impl.h), all giving the same bytes; what a row leaves NULL comes from the rows before it.
 *
 * Pointers need the alignment of their element only, n is any number, exactly n elements are touched. Where a function
 * checks, the check rides on a pass that happens anyway.
 */
#ifndef LNT_KERNELS_ARRAY_H
#define LNT_KERNELS_ARRAY_H

#include <linnet/types.h>

/* From so many f32 on, an array is far larger than its share of the caches (docs/perf.md has the measurement): what a
 * pass writes and never reads is stored around them, where an op takes that hint. */
enum { LNT_STREAM_ELEMS = 1 << 22 };

typedef struct lnt_array_ops {
    /* By lnt_dtype_t. widen is exact; narrow rounds to nearest even, too large becomes Inf, NaN stays NaN; fits: all
     * finite after narrow. */
    void (*widen[LNT_DTYPE_COUNT])(const void *values, uint64_t n, float *out);
    void (*narrow[LNT_DTYPE_COUNT])(const float *values, uint64_t n, void *out);
    bool (*fits[LNT_DTYPE_COUNT])(const float *values, uint64_t n);
    /* Two in one pass: widen, then scale; sum += widened. */
    bool (*widen_scaled[LNT_DTYPE_COUNT])(const void *values, uint64_t n, float factor, float *out);
    void (*widen_add[LNT_DTYPE_COUNT])(const void *values, uint64_t n, float *sum);

    void (*add)(float *sum, const float *more, uint64_t n); /* sum += more */
    bool (*scale)(float *values, uint64_t n, float factor); /* values *= factor; true: all are finite */
    bool (*finite)(const float *values, uint64_t n);        /* all are */
    /* Is the f32 square of every live value + error finite? error may be NULL (then values alone); live as in
     * codec.h, NULL: all. */
    bool (*squares_fit)(const float *values, const float *error, const uint8_t *live, uint64_t n);
    double (*square_sum)(const float *values, uint64_t n); /* one block, the order of reduce_tree.h */
    /* Errors as int8 (error_math.h), a scale for LNT_ERROR_BLOCK elements; kept is exact. */
    void (*keep_int8)(const float *values, uint64_t n, int8_t *codes, float *scales);
    void (*kept_int8)(const int8_t *codes, const float *scales, uint64_t n, float *out);
} lnt_array_ops_t;

/* The table of the chosen implementation (lnt_kernels_select). Valid for ever; reading it is one atomic load. */
const lnt_array_ops_t *lnt_arrays(void);

#endif
