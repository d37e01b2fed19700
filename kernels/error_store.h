/* How errors are kept between steps: as f32, or rounded to fewer bytes. One row per way.
 *
 * What is read is what was kept; only `write` rounds, and writing what was read changes no value: so saved state holds
 * f32 and a resumed run equals the uninterrupted one. (Codes may be set to 0 in between only if the run is then read
 * and written once: the largest of a block may have gone.) Runs begin at a multiple of LNT_ERROR_BLOCK elements of
 * their tensor. Non-finite values are never kept by a committed step; what becomes of them is defined all the same.
 */
#ifndef LNT_KERNELS_ERROR_STORE_H
#define LNT_KERNELS_ERROR_STORE_H

#include <linnet/plan.h>

enum { LNT_ERROR_BLOCK = 64 }; /* elements per scale; divides every codec block */

typedef struct lnt_error_row {
    const char *name; /* the word of LINNET_ERROR_DTYPE */
    lnt_error_dtype_t dtype;
    uint32_t elem_bytes;
    bool has_scales; /* one f32 per LNT_ERROR_BLOCK elements; otherwise `scales` is not used */
    void (*read)(const void *codes, const float *scales, uint64_t n, float *out);
    void (*write)(const float *values, uint64_t n, void *codes, float *scales);
} lnt_error_row_t;

/* By number; NULL if there is no such way (LNT_ERROR_DEFAULT is none). */
const lnt_error_row_t *lnt_error_row(lnt_error_dtype_t dtype);
extern const char *const lnt_error_words[]; /* their names from LNT_ERROR_F32 on, NULL-terminated */

#endif
