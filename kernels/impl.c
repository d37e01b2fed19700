/* The table of implementations, and which of them is used. Pure but for one pointer: the selected row. */
#include "impl.h"

#include "cpu.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static bool always(void)
{
    return true;
}

/* Everything LNT_DECLARE_OPS declares. */
#define LNT_ALL_OPS(_impl)                                                                                             \
    .ops = {[LNT_CODEC_F32] = &lnt_f32_ops_##_impl,      [LNT_CODEC_BF16] = &lnt_bf16_ops_##_impl,                     \
            [LNT_CODEC_SIGN1] = &lnt_sign1_ops_##_impl,  [LNT_CODEC_INT8] = &lnt_int8_ops_##_impl,                     \
            [LNT_CODEC_INT4] = &lnt_int4_ops_##_impl,    [LNT_CODEC_INT4_HADAMARD] = &lnt_int4_hadamard_ops_##_impl,   \
            [LNT_CODEC_F16] = &lnt_f16_ops_##_impl,      [LNT_CODEC_BF16_SR] = &lnt_bf16_sr_ops_##_impl,               \
            [LNT_CODEC_F16_SR] = &lnt_f16_sr_ops_##_impl},                                                             \
    .arrays = &lnt_array_ops_##_impl

/* Vector kernels are compiled on their machine only; elsewhere the rows stand empty. */
#if defined(__x86_64__)
#define LNT_X86_OPS(_impl) LNT_ALL_OPS(_impl)
#else
#define LNT_X86_OPS(_impl) .arrays = NULL
#endif

static const lnt_kernel_impl_t impls[] = {
    {.name = "ref", .doc = "plain C, normative", .usable = always, LNT_ALL_OPS(ref)},
    {.name = "avx2", .doc = "AVX2, FMA and F16C", .usable = lnt_cpu_has_avx2, LNT_X86_OPS(avx2)},
    {.name = "avx512", .doc = "AVX-512 F, BW, DQ and VL", .usable = lnt_cpu_has_avx512, LNT_X86_OPS(avx512)},
};

enum { N_IMPLS = sizeof(impls) / sizeof(impls[0]) };
_Static_assert((int)N_IMPLS <= (int)LNT_KERNEL_IMPLS_MAX, "tables by implementation have room for all rows");

const char *const lnt_kernel_choices[] = {"auto", "ref", "avx2", "avx512", "cuda", NULL};
_Static_assert(sizeof(lnt_kernel_choices) / sizeof(lnt_kernel_choices[0]) == 3 + N_IMPLS,
               "auto, every row, cuda, NULL");

const lnt_kernel_impl_t *lnt_kernel_impls(size_t *n_impls_p)
{
    *n_impls_p = N_IMPLS;
    return impls;
}

const lnt_kernel_impl_t *lnt_kernel_impl_by_name(const char *name)
{
    bool any = !strcmp(name, "auto");
    for (size_t i = N_IMPLS; i-- > 0;)
        if (any ? impls[i].usable() : !strcmp(impls[i].name, name)) return &impls[i];
    return NULL;
}

/* Tables of functions, seen as arrays of them: what `more` has goes over what is there. */
void lnt_ops_override(void *ops, const void *more, size_t bytes)
{
    typedef void (*function_t)(void);
    for (size_t at = 0; at < bytes; at += sizeof(function_t)) {
        function_t function;
        memcpy(&function, (const uint8_t *)more + at, sizeof(function));
        if (function) memcpy((uint8_t *)ops + at, &function, sizeof(function));
    }
}

void lnt_codec_ops_override(lnt_codec_ops_t *ops, const lnt_codec_ops_t *more)
{
    lnt_ops_override(ops, more, sizeof(*ops));
}

lnt_codec_ops_t lnt_kernel_ops(const lnt_kernel_impl_t *impl, lnt_codec_id_t id)
{
    lnt_codec_ops_t ops = *impls[0].ops[id];
    for (const lnt_kernel_impl_t *row = impls + 1; row <= impl; row++)
        if (row->ops[id] && row->usable()) lnt_codec_ops_override(&ops, row->ops[id]);
    return ops;
}

lnt_array_ops_t lnt_kernel_arrays(const lnt_kernel_impl_t *impl)
{
    lnt_array_ops_t ops = *impls[0].arrays;
    for (const lnt_kernel_impl_t *row = impls + 1; row <= impl; row++)
        if (row->arrays && row->usable()) lnt_ops_override(&ops, row->arrays, sizeof(ops));
    return ops;
}

/* ---- the selected row ---- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static lnt_array_ops_t arrays[N_IMPLS]; /* complete tables, written once */
static _Atomic(const lnt_kernel_impl_t *) selected;

static void fill_arrays(void)
{
    for (size_t i = 0; i < N_IMPLS; i++)
        arrays[i] = lnt_kernel_arrays(&impls[i]);
}

void lnt_kernels_select(const lnt_kernel_impl_t *impl)
{
    atomic_store_explicit(&selected, impl, memory_order_release);
}

bool lnt_kernels_any_selected(void)
{
    return atomic_load_explicit(&selected, memory_order_acquire) != NULL;
}

const lnt_kernel_impl_t *lnt_kernels_selected(void)
{
    const lnt_kernel_impl_t *impl = atomic_load_explicit(&selected, memory_order_acquire);
    return impl ? impl : lnt_kernel_impl_by_name("auto");
}

const lnt_array_ops_t *lnt_arrays(void)
{
    (void)pthread_once(&once, fill_arrays);
    return &arrays[lnt_kernels_selected() - impls];
}
