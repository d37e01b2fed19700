/* Modules: optional parts in shared objects of their own, loaded on first use and never unloaded (their code may have
 * registered itself with libraries that cannot be unloaded safely). */
#ifndef LNT_BASE_MODULE_H
#define LNT_BASE_MODULE_H

#include <linnet/types.h>

/* The address of `symbol` in module `file`, looked for beside the library itself, in LINNET_MODULE_DIR, then in the
 * loader's path. NULL with a reason in why. Any thread. */
void *lnt_module_symbol(const char *file, const char *symbol, char *why, size_t size);

#endif
