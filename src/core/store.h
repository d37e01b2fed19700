/* The TCP store behind lnt_bootstrap_env: rank 0 serves, the others connect once and stay connected. One service:
 * all-gather. Without a secret the store stays on loopback. Sizes and times are limited. */
#ifndef LNT_CORE_STORE_H
#define LNT_CORE_STORE_H

#include <linnet/status.h>
#include <stddef.h>
#include <stdint.h>

enum { LNT_STORE_MESSAGE_MAX = 1 << 26 };

typedef struct lnt_store_params {
    uint32_t rank, n_ranks;
    const char *address;
    uint16_t port;
    const char *secret; /* NULL: none. Borrowed for the call */
    uint32_t timeout_ms;
} lnt_store_params_t;

typedef struct lnt_store lnt_store_t;

/* Collective: returns when all ranks have joined, or with an error that names who is missing or wrong. */
lnt_status_t lnt_store_open(const lnt_store_params_t *params, lnt_store_t **store_p);
lnt_status_t lnt_store_allgather(lnt_store_t *store, const void *input, void *output, size_t bytes);
void lnt_store_close(lnt_store_t *store); /* NULL is legal */

#endif
