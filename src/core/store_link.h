/* One connection of the store.
 *
 * Handshake. client: hello {magic, protocol, rank, world, library version, secret?, nonce}; server: {magic, protocol,
 * verdict, nonce, proof}; client: {proof}. Proofs are keyed hashes over hello and both nonces, so each side shows that
 * it knows the secret and neither can be replayed. Afterwards every message carries a keyed hash over a counter and its
 * bytes. Without a secret the proofs are zero. A connection that does not keep to the protocol is dropped. The first
 * eight bytes of either side are the same in every version of the protocol.
 */
#ifndef LNT_CORE_STORE_LINK_H
#define LNT_CORE_STORE_LINK_H

#include "auth.h"

enum { LNT_STORE_NONCE = 32, LNT_STORE_PROTOCOL = 2 };
#define LNT_STORE_MAGIC 0x53544e4cu /* "LNTS" */

enum { LNT_STORE_DATA = 1, LNT_STORE_ERROR = 2, LNT_STORE_WELCOME = 3 };

typedef struct lnt_store_link {
    int fd;                      /* -1: closed */
    const lnt_auth_ops_t *auth;  /* NULL: no secret */
    uint8_t key[LNT_AUTH_BYTES]; /* of this session */
    uint64_t sent, received;     /* message counters, part of what is hashed */
    bool server;
} lnt_store_link_t;

typedef struct lnt_store_hello {
    uint32_t magic, protocol;
    uint32_t rank, n_ranks;
    uint32_t library_version;
    uint32_t has_secret;
    uint8_t nonce[LNT_STORE_NONCE];
} lnt_store_hello_t;

typedef struct lnt_store_reply {
    uint32_t magic, protocol;
    int32_t verdict; /* LNT_OK, or why there is no more to come: another protocol, a secret on one side only */
    uint32_t reserved;
    uint8_t nonce[LNT_STORE_NONCE];
    uint8_t proof[LNT_AUTH_BYTES];
} lnt_store_reply_t;

/* A connection at the server that has not proved itself. */
typedef struct lnt_store_guest {
    lnt_store_link_t link;
    uint64_t since_ns;
    bool greeted; /* its hello was fit for an answer */
    size_t have;  /* bytes of the hello, then of the proof */
    lnt_store_hello_t hello;
    uint8_t nonce[LNT_STORE_NONCE];
    uint8_t proof[LNT_AUTH_BYTES];
} lnt_store_guest_t;

/* All functions: LNT_OK, or an error without report (the caller names the rank): TIMED_OUT, PEER_LOST (closed), CORRUPT
 * (not the protocol), VERSION, AUTH. deadline_ns on the clock of lnt_now_ns. */
lnt_status_t lnt_store_link_send(lnt_store_link_t *link, uint32_t type, const void *data, size_t bytes,
                                 uint64_t deadline_ns);
/* Reads a message of at most `room` bytes into data. */
lnt_status_t lnt_store_link_receive(lnt_store_link_t *link, uint32_t *type_p, void *data, size_t room, size_t *bytes_p,
                                    uint64_t deadline_ns);
void lnt_store_link_close(lnt_store_link_t *link);

/* The client's side of the handshake; on success link->key is the session's. base_key: of the secret. VERSION: the
 * other side's protocol is in *other_p. */
lnt_status_t lnt_store_link_handshake(lnt_store_link_t *link, const uint8_t *base_key, lnt_store_hello_t *hello,
                                      uint32_t *other_p, uint64_t deadline_ns);
/* The server's side, as far as it goes without waiting: LNT_IN_PROGRESS until the guest has proved itself. Any hello
 * that proves itself is accepted; what it says is judged afterwards. */
lnt_status_t lnt_store_guest_step(lnt_store_guest_t *guest, const uint8_t *base_key);

#endif
