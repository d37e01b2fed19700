/* Authentication of the bootstrap: a keyed hash from libsodium, loaded on need so that the library does not depend on
 * it. */
#ifndef LNT_CORE_AUTH_H
#define LNT_CORE_AUTH_H

#include <linnet/types.h>

enum { LNT_AUTH_BYTES = 32 };

/* What the module liblinnet_auth exports as lnt_auth_ops(). */
typedef struct lnt_auth_ops {
    const char *name;
    /* BLAKE2b-256 keyed with `key` over the concatenation of two strings. */
    void (*mac)(const uint8_t key[LNT_AUTH_BYTES], const void *a, size_t a_bytes, const void *b, size_t b_bytes,
                uint8_t out[LNT_AUTH_BYTES]);
    /* Key of a secret of any length. */
    void (*key)(const char *secret, uint8_t out[LNT_AUTH_BYTES]);
    bool (*equal)(const uint8_t *a, const uint8_t *b, size_t bytes); /* in constant time */
    void (*wipe)(void *memory, size_t bytes);
} lnt_auth_ops_t;

/* Loads the module on first use; *ops_p stays valid. LNT_ERR_UNSUPPORTED says what is missing. */
lnt_status_t lnt_auth_load(const lnt_auth_ops_t **ops_p);

#endif
