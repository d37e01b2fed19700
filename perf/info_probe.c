/* Transports and back ends: what can be used in this process, found out by trying it, and why not. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <linnet/linnet.h>

#include "../src/base/module.h"
#include "../src/transport/transport.h"
#include "common_machine.h"
#include "info_tool.h"

enum { WHY_BYTES = 256 };

int info_transports(void)
{
    size_t n_rows;
    const lnt_transport_ops_t *const *rows = lnt_transport_rows(&n_rows);
    const char *allowed = lnt_config_env("TLS");

    printf("transports, in order of preference%s%s%s:\n", (allowed != NULL) ? " (LINNET_TLS=" : "",
           (allowed != NULL) ? allowed : "", (allowed != NULL) ? ")" : "");
    for (size_t i = 0; i < n_rows; i++) {
        char why[WHY_BYTES] = "";
        bool usable = rows[i]->usable(why, sizeof(why));

        printf("  %-6s %-4s %s%s%s\n", rows[i]->name, usable ? "yes" : "no", rows[i]->doc, usable ? "" : ": ",
               usable ? "" : why);
    }
    return TOOL_OK;
}

/* ---- probes: true, or false with a reason ---- */

static bool refused(char *why, const char *what)
{
    (void)snprintf(why, WHY_BYTES, "%s: %s", what, strerror(errno));
    return false;
}

static bool probe_memfd(char *why)
{
    int fd = memfd_create("linnet-info", MFD_CLOEXEC);
    bool grown;

    if (fd < 0) return refused(why, "memfd_create");
    errno = posix_fallocate(fd, 0, 1 << 20);
    grown = (errno == 0);
    (void)close(fd);
    if (!grown) return refused(why, "posix_fallocate of 1 MiB");
    (void)snprintf(why, WHY_BYTES, "shared memory needs no /dev/shm");
    return true;
}

static bool probe_pidfd(char *why)
{
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

    if (fd < 0) return refused(why, "pidfd_open");
    (void)close(fd);
    (void)snprintf(why, WHY_BYTES, "the death of a local rank is seen at once");
    return true;
}

static bool probe_epoll(char *why)
{
    int events = eventfd(0, EFD_CLOEXEC), set = epoll_create1(EPOLL_CLOEXEC);
    bool works = events >= 0 && set >= 0;

    if (!works) (void)refused(why, "eventfd or epoll_create1");
    if (works) (void)snprintf(why, WHY_BYTES, "idle ranks sleep");
    if (events >= 0) (void)close(events);
    if (set >= 0) (void)close(set);
    return works;
}

static bool probe_abstract_socket(char *why)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool bound;

    if (fd < 0) return refused(why, "socket(AF_UNIX)");
    bound = bind(fd, (const struct sockaddr *)&address, sizeof(sa_family_t)) == 0; /* autobind: an abstract name */
    if (!bound) (void)refused(why, "bind of an abstract unix socket");
    if (bound) (void)snprintf(why, WHY_BYTES, "descriptors are passed between local ranks");
    (void)close(fd);
    return bound;
}

static bool probe_ucx(char *why)
{
    size_t n_rows;
    const lnt_transport_ops_t *const *rows = lnt_transport_rows(&n_rows);

    for (size_t i = 0; i < n_rows; i++) {
        if (strcmp(rows[i]->name, "ucx") != 0) continue;
        if (!rows[i]->usable(why, WHY_BYTES)) return false;
        (void)snprintf(why, WHY_BYTES, "traffic between hosts");
        return true;
    }
    (void)snprintf(why, WHY_BYTES, "not part of this build");
    return false;
}

static bool probe_sodium(char *why)
{
    if (lnt_module_symbol("liblinnet_auth.so", "lnt_auth_ops", why, WHY_BYTES) == NULL) return false;
    (void)snprintf(why, WHY_BYTES, "authenticated start between hosts with LINNET_SECRET");
    return true;
}

static bool probe_mpi(char *why)
{
    const char *parts = strstr(lnt_build_info(), "optional parts:");
    bool built = parts != NULL && strstr(parts, "mpi") != NULL;

    (void)snprintf(why, WHY_BYTES, "%s",
                   built ? "liblinnet_mpi was built: start from an MPI communicator"
                         : "this build has no liblinnet_mpi");
    return built;
}

static bool probe_cores(char *why)
{
    machine_t machine;

    machine_look(&machine);
    (void)snprintf(why, WHY_BYTES, "%u cores for this process; waiting threads %s", machine.n_cores,
                   (machine.n_cores > 1) ? "may spin for LINNET_SPIN_US while ranks and progress threads fit the cores"
                                         : "sleep at once");
    return true;
}

int info_probes(void)
{
    static const struct {
        const char *name;
        bool (*probe)(char *why);
    } probes[] = {
        {"memfd", probe_memfd}, {"pidfd", probe_pidfd},
        {"epoll", probe_epoll}, {"abstract sockets", probe_abstract_socket},
        {"ucx", probe_ucx},     {"libsodium", probe_sodium},
        {"mpi", probe_mpi},     {"cores", probe_cores},
    };

    printf("back ends:\n");
    for (size_t i = 0; i < sizeof(probes) / sizeof(probes[0]); i++) {
        char why[WHY_BYTES] = "";
        bool works = probes[i].probe(why);

        printf("  %-17s %-4s %s\n", probes[i].name, works ? "yes" : "no", why);
    }
    return TOOL_OK;
}
