/* The TCP store behind lnt_bootstrap_env: rank 0 serves, the others connect once and stay connected. One service: all-gather.
 *
 * Handshake. client: hello {magic, version, rank, world, library version, secret?, nonce}; server: {nonce, proof}; client: {proof};
 * server: verdict. Proofs are keyed hashes over hello and both nonces, so each side shows that it knows the secret and neither can be
 * replayed. Afterwards every message carries a keyed hash over a counter and its bytes. Without a secret the proofs are zero, and the
 * store stays on loopback. Sizes and times are limited; a connection that does not keep to the protocol is dropped.
 */
#ifndef LNT_CORE_STORE_H
#define LNT_CORE_STORE_H

#include "auth.h"

enum { LNT_STORE_NONCE = 32, LNT_STORE_MESSAGE_MAX = 1 << 26 };

typedef struct lnt_store_params {
    uint32_t    rank, n_ranks;
    const char *address;
    uint16_t    port;
    const char *secret; /* NULL: none. Borrowed for the call */
    uint32_t    timeout_ms;
} lnt_store_params_t;

typedef struct lnt_store lnt_store_t;

/* Collective: returns when all ranks have joined, or with an error that names who is missing or wrong. */
lnt_status_t lnt_store_open(const lnt_store_params_t *params, lnt_store_t **store_p);
lnt_status_t lnt_store_allgather(lnt_store_t *store, const void *input, void *output, size_t bytes);
void         lnt_store_close(lnt_store_t *store); /* NULL is legal */

/* One end of a connection; store_link.c. */
typedef struct lnt_link {
    int                   fd; /* -1: closed */
    const lnt_auth_ops_t *auth; /* NULL: no secret */
    uint8_t               key[LNT_AUTH_BYTES]; /* of this session */
    uint64_t              sent, received;      /* message counters, part of what is hashed */
    bool                  server;
} lnt_store_link_t;

/* All functions: LNT_OK, or an error without report (the caller names the rank): TIMED_OUT, PEER_LOST (closed), CORRUPT (not
 * the protocol), AUTH. deadline_ns on the clock of lnt_now_ns. */
lnt_status_t lnt_store_link_write(int fd, const void *data, size_t bytes, uint64_t deadline_ns);
lnt_status_t lnt_store_link_read(int fd, void *data, size_t bytes, uint64_t deadline_ns);
lnt_status_t lnt_store_link_send(lnt_store_link_t *link, uint32_t type, const void *data, size_t bytes, uint64_t deadline_ns);
/* Reads a message of at most `room` bytes into data. */
lnt_status_t lnt_store_link_receive(lnt_store_link_t *link, uint32_t *type_p, void *data, size_t room, size_t *bytes_p, uint64_t deadline_ns);
void         lnt_store_link_close(lnt_store_link_t *link);

enum { LNT_STORE_DATA = 1, LNT_STORE_ERROR = 2, LNT_STORE_WELCOME = 3 };

typedef struct lnt_hello {
    uint32_t magic, protocol;
    uint32_t rank, n_ranks;
    uint32_t library_version;
    uint32_t has_secret;
    uint8_t  nonce[LNT_STORE_NONCE];
} lnt_hello_t;

/* Both sides of the handshake up to the verdict; on success link->key is the session's. base_key: of the secret. The server accepts any hello that
 * proves itself; what it says is judged afterwards. */
lnt_status_t lnt_store_link_handshake_client(lnt_store_link_t *link, const uint8_t *base_key, lnt_hello_t *hello, uint64_t deadline_ns);
lnt_status_t lnt_store_link_handshake_server(lnt_store_link_t *link, const uint8_t *base_key, lnt_hello_t *hello, uint64_t deadline_ns);

#endif
