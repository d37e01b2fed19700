/* What the files of the store share. store_address.c: names and sockets; store_server.c: rank 0; store_client.c: the
 * others; store.c: life of a store. */
#ifndef LNT_CORE_STORE_INTERNAL_H
#define LNT_CORE_STORE_INTERNAL_H

#include <netdb.h>

#include "../base/clock.h"
#include "../base/error.h"
#include "../base/memory.h"
#include "store.h"
#include "store_link.h"

enum { LNT_STORE_HANDSHAKE_MS = 5000, LNT_STORE_TEXT_MAX = 256, LNT_STORE_GUESTS = 32 };

struct lnt_store {
    uint32_t rank, n_ranks;
    uint32_t timeout_ms;
    uint32_t refused;        /* connections that spoke the protocol and failed the handshake */
    uint32_t other_protocol; /* somebody came with this one; 0: nobody */
    lnt_store_link_t *links; /* server: one per rank, [0] unused; client: one */
    const lnt_auth_ops_t *auth;
    uint8_t base_key[LNT_AUTH_BYTES];
};

/* Body of an ERROR message: what failed for all, as rank 0 saw it. */
typedef struct lnt_store_failure {
    int32_t status;
    char text[LNT_STORE_TEXT_MAX];
} lnt_store_failure_t;

static inline uint64_t lnt_store_deadline(uint32_t ms)
{
    return lnt_now_ns() + (uint64_t)ms * 1000000u;
}

bool lnt_store_all_loopback(const struct addrinfo *list);
/* *in_use_p: the port is taken. */
lnt_status_t lnt_store_listen(const lnt_store_params_t *params, int *fd_p, bool *in_use_p);
lnt_status_t lnt_store_dial(const lnt_store_params_t *params, uint64_t deadline_ns, int *fd_p);
void lnt_store_no_delay(int fd);

lnt_status_t lnt_store_serve_join(lnt_store_t *store, int listener, uint64_t deadline_ns);
lnt_status_t lnt_store_serve_allgather(lnt_store_t *store, const void *input, uint8_t *output, size_t bytes);

/* Also for a second rank 0, which so learns, and tells, that there is one. */
lnt_status_t lnt_store_join(lnt_store_t *store, const lnt_store_params_t *params, uint64_t deadline_ns);
lnt_status_t lnt_store_ask_allgather(lnt_store_t *store, const void *input, void *output, size_t bytes);

#endif
