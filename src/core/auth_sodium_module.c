/* Module liblinnet_auth: the keyed hash of libsodium. */
#include <sodium.h>
#include <string.h>

#include "auth.h"

static void sodium_mac(const uint8_t key[LNT_AUTH_BYTES], const void *a, size_t a_bytes, const void *b, size_t b_bytes,
                       uint8_t out[LNT_AUTH_BYTES])
{
    crypto_generichash_state state;

    crypto_generichash_init(&state, key, LNT_AUTH_BYTES, LNT_AUTH_BYTES);
    crypto_generichash_update(&state, a, a_bytes);
    crypto_generichash_update(&state, b, b_bytes);
    crypto_generichash_final(&state, out, LNT_AUTH_BYTES);
    sodium_memzero(&state, sizeof(state));
}

static void sodium_key(const char *secret, uint8_t out[LNT_AUTH_BYTES])
{
    crypto_generichash(out, LNT_AUTH_BYTES, (const uint8_t *)secret, strlen(secret), NULL, 0);
}

static bool sodium_equal(const uint8_t *a, const uint8_t *b, size_t bytes)
{
    return sodium_memcmp(a, b, bytes) == 0;
}

LNT_API const lnt_auth_ops_t *lnt_auth_ops(void);

const lnt_auth_ops_t *lnt_auth_ops(void)
{
    static const lnt_auth_ops_t ops = {
        .name = "libsodium", .mac = sodium_mac, .key = sodium_key, .equal = sodium_equal, .wipe = sodium_memzero};

    return sodium_init() < 0 ? NULL : &ops;
}
