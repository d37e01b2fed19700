/* Identity of the host. Two processes get the same text exactly when they can share abstract sockets and memory: same
 * running kernel, same UTS name, same network and IPC namespace. So containers and test rigs that play several hosts on
 * one machine are told apart, and ranks in one container are not. */
#include "topo.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "../base/error.h"

/* First line of a small file, or "-" where it cannot be read (then the other parts must tell hosts apart). */
static void read_line(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "re");

    if (file == NULL || fgets(text, (int)size, file) == NULL) {
        snprintf(text, size, "-");
    }
    text[strcspn(text, "\n")] = '\0';
    if (file != NULL) {
        fclose(file);
    }
}

static void read_namespace(const char *path, char *text, size_t size)
{
    ssize_t n = readlink(path, text, size - 1);

    text[n > 0 ? n : 0] = '\0';
}

lnt_status_t lnt_topo_host_id(char *text, size_t size)
{
    struct utsname uts;
    char boot[64], net[64], ipc[64];
    int n;

    LNT_CHECK_ARG(text != NULL && size > 0);
    if (uname(&uts) != 0) {
        return lnt_error(LNT_ERR_SYSTEM, "set LINNET_NODE by hand", "uname failed");
    }
    read_line("/proc/sys/kernel/random/boot_id", boot, sizeof(boot));
    read_namespace("/proc/self/ns/net", net, sizeof(net));
    read_namespace("/proc/self/ns/ipc", ipc, sizeof(ipc));
    n = snprintf(text, size, "%s/%s/%s/%s", boot, uts.nodename, net, ipc);
    if (n < 0 || (size_t)n >= size) {
        return lnt_error(LNT_ERR_OUT_OF_RANGE, "give a larger buffer", "host identity needs %d bytes, buffer has %zu",
                         n + 1, size);
    }
    return LNT_OK;
}
