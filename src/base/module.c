/* Finding and loading modules. */
#include "module.h"

#include <dlfcn.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "config.h"

/* Folder of the shared object (or program) this function is linked into, with the trailing slash; "" if unknown. */
static void own_folder(char *folder, size_t size)
{
    Dl_info info;
    const char *slash;

    folder[0] = '\0';
    if (dladdr((const void *)&lnt_module_symbol, &info) == 0 || info.dli_fname == NULL) {
        return;
    }
    slash = strrchr(info.dli_fname, '/');
    if (slash != NULL && (size_t)(slash - info.dli_fname) + 2 < size) {
        memcpy(folder, info.dli_fname, (size_t)(slash - info.dli_fname) + 1);
        folder[slash - info.dli_fname + 1] = '\0';
    }
}

/* Libraries that a module brings along may install fatal-signal handlers when they are loaded (UCX does): the
 * application's own are put back. */
static const int guarded_signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
enum { N_GUARDED = sizeof(guarded_signals) / sizeof(guarded_signals[0]) };

static void save_signals(struct sigaction saved[N_GUARDED])
{
    for (int i = 0; i < N_GUARDED; i++) {
        sigaction(guarded_signals[i], NULL, &saved[i]);
    }
}

static void restore_signals(const struct sigaction saved[N_GUARDED])
{
    for (int i = 0; i < N_GUARDED; i++) {
        sigaction(guarded_signals[i], &saved[i], NULL);
    }
}

static void *open_module(const char *file, char *why, size_t size)
{
    const char *configured = lnt_config_env("MODULE_DIR");
    char folder[PATH_MAX], path[2 * PATH_MAX];
    void *handle = NULL;

    own_folder(folder, sizeof(folder));
    if (configured != NULL) {
        snprintf(path, sizeof(path), "%s/%s", configured, file);
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    }
    if (handle == NULL && folder[0] != '\0') {
        snprintf(path, sizeof(path), "%s%s", folder, file);
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    }
    if (handle == NULL) {
        handle = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    }
    if (handle == NULL) {
        snprintf(why, size, "%s", dlerror());
    }
    return handle;
}

void *lnt_module_symbol(const char *file, const char *symbol, char *why, size_t size)
{
    struct sigaction saved[N_GUARDED];
    void *handle, *address;

    save_signals(saved);
    handle = open_module(file, why, size);
    restore_signals(saved);
    if (handle == NULL) {
        return NULL;
    }
    address = dlsym(handle, symbol);
    if (address == NULL) {
        snprintf(why, size, "%s has no symbol %s", file, symbol);
    }
    return address;
}
