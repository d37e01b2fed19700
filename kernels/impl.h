/* Implementations of the ops: one row per instruction set. A row brings the ops it speeds up; what it leaves NULL, a
 * whole table or single ops, comes from the rows before it, and in the end from the reference, which has all. All rows
 * give the same bytes, so choosing one is never part of the numerics.
 */
#ifndef LNT_KERNELS_IMPL_H
#define LNT_KERNELS_IMPL_H

#include "array.h"
#include "codec.h"

typedef struct lnt_kernel_impl {
    const char *name;
    const char *doc;
    bool (*usable)(void);                        /* does this machine have what it needs? */
    const lnt_codec_ops_t *ops[LNT_CODEC_COUNT]; /* by lnt_codec_id_t */
    const lnt_array_ops_t *arrays;
} lnt_kernel_impl_t;

/* The tables of an implementation that has all. */
#define LNT_DECLARE_OPS(_impl)                                                                                         \
    extern const lnt_codec_ops_t lnt_f32_ops_##_impl, lnt_bf16_ops_##_impl, lnt_sign1_ops_##_impl,                     \
        lnt_int8_ops_##_impl, lnt_int4_ops_##_impl, lnt_int4_hadamard_ops_##_impl, lnt_f16_ops_##_impl,                \
        lnt_bf16_sr_ops_##_impl, lnt_f16_sr_ops_##_impl;                                                               \
    extern const lnt_array_ops_t lnt_array_ops_##_impl

LNT_DECLARE_OPS(ref);
LNT_DECLARE_OPS(avx2);
LNT_DECLARE_OPS(avx512);

enum { LNT_KERNEL_IMPLS_MAX = 8 };

/* Rows from slowest to fastest, at most LNT_KERNEL_IMPLS_MAX; row 0 is "ref". */
const lnt_kernel_impl_t *lnt_kernel_impls(size_t *n_impls_p);

/* What LINNET_KERNELS may be: "auto", then the names of all rows, then "cuda", which is no row (its ops take device
 * memory, cuda_kernels.h) and is refused by name, then NULL. */
extern const char *const lnt_kernel_choices[];

/* NULL where no row has the name, as for "cuda". "auto": the last usable row. */
const lnt_kernel_impl_t *lnt_kernel_impl_by_name(const char *name);

/* The ops of a codec: those of every usable row up to `impl`, an element of the table, later ones over earlier ones. */
lnt_codec_ops_t lnt_kernel_ops(const lnt_kernel_impl_t *impl, lnt_codec_id_t id);

/* Takes the ops that `more` has. */
void lnt_codec_ops_override(lnt_codec_ops_t *ops, const lnt_codec_ops_t *more);
void lnt_ops_override(void *ops, const void *more, size_t bytes); /* of any table that holds functions only */

/* The implementation that new codecs, lnt_arrays and the update rules use, process-wide; `auto` until somebody selects.
 * Contexts select what LINNET_KERNELS says when they are created, and so does the first codec of a process without a
 * context. Any thread, any time: all give the same bytes. NULL: nobody has selected. */
void lnt_kernels_select(const lnt_kernel_impl_t *impl);
bool lnt_kernels_any_selected(void);
const lnt_kernel_impl_t *lnt_kernels_selected(void);
lnt_array_ops_t lnt_kernel_arrays(const lnt_kernel_impl_t *impl); /* as lnt_kernel_ops */

#endif
