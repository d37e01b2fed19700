/* The table of update rules, by name of the implementation. */
#include "update.h"

#include <pthread.h>
#include <string.h>

typedef struct row {
    const char *impl;
    const lnt_update_ops_t *ops;
} row_t;

static const row_t rows[] = {
    {"ref", &lnt_update_ops_ref},
#if defined(__x86_64__)
    {"avx2", &lnt_update_ops_avx2},
    {"avx512", &lnt_update_ops_avx512},
#endif
};

const lnt_update_ops_t *lnt_update_ops_named(const char *impl)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (!strcmp(rows[i].impl, impl)) return rows[i].ops;
    return NULL;
}

lnt_update_ops_t lnt_update_ops_of(const lnt_kernel_impl_t *impl)
{
    size_t n_impls;
    const lnt_kernel_impl_t *impls = lnt_kernel_impls(&n_impls);
    lnt_update_ops_t ops = *rows[0].ops;
    for (const lnt_kernel_impl_t *row = impls; row <= impl; row++) {
        const lnt_update_ops_t *more = lnt_update_ops_named(row->name);
        if (more && row->usable()) lnt_ops_override(&ops, more, sizeof(ops));
    }
    return ops;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static lnt_update_ops_t tables[LNT_KERNEL_IMPLS_MAX]; /* complete, written once */

static void fill_tables(void)
{
    size_t n_impls;
    const lnt_kernel_impl_t *impls = lnt_kernel_impls(&n_impls);
    for (size_t i = 0; i < n_impls; i++)
        tables[i] = lnt_update_ops_of(&impls[i]);
}

const lnt_update_ops_t *lnt_updates(void)
{
    size_t n_impls;
    (void)pthread_once(&once, fill_tables);
    return &tables[lnt_kernels_selected() - lnt_kernel_impls(&n_impls)];
}
