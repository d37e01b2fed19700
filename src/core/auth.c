/* Loader of the authentication module. */
#include "auth.h"

#include <string.h>

#include "../base/error.h"
#include "../base/module.h"

lnt_status_t lnt_auth_load(const lnt_auth_ops_t **ops_p)
{
    const lnt_auth_ops_t *(*get)(void);
    char why[256];
    void *symbol = lnt_module_symbol("liblinnet_auth.so", "lnt_auth_ops", why, sizeof(why));

    if (symbol == NULL) {
        return lnt_error(LNT_ERR_UNSUPPORTED,
                         "install libsodium and rebuild, or unset LINNET_SECRET and stay on loopback",
                         "a secret is set, but the authentication module cannot be loaded: %s", why);
    }
    memcpy(&get, &symbol, sizeof(get)); /* ISO C has no cast from object to function pointers */
    *ops_p = get();
    return *ops_p != NULL ? LNT_OK : lnt_error(LNT_ERR_SYSTEM, NULL, "libsodium cannot be initialised");
}
