/* Opening a mesh: the two listeners and what other ranks must know to reach them.
 *
 * Which TCP address: the interface the user names, else the first that is up and not a loopback, bridge or container
 * interface, else loopback; IPv4 before IPv6, link-local IPv6 never (its scope means nothing on another host).
 * A host without any usable address still serves ranks of its own over the unix socket.
 */
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../base/error.h"
#include "../base/memory.h"
#include "mesh_internal.h"

static lnt_status_t refused(const char *what)
{
    return lnt_error(LNT_ERR_SYSTEM, "check the limit of open files (ulimit -n)", "control mesh: %s failed: %s", what,
                     strerror(errno));
}

static lnt_status_t random_u64(uint64_t *value_p)
{
    uint64_t value;

    if (getrandom(&value, sizeof(value), 0) != (ssize_t)sizeof(value)) {
        return refused("getrandom");
    }
    *value_p = value;
    return LNT_OK;
}

static lnt_status_t listen_on(int family, const void *address, socklen_t bytes, int *fd_p)
{
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        return refused("socket");
    }
    if ((bind(fd, address, bytes) != 0) || (listen(fd, SOMAXCONN) != 0)) {
        lnt_status_t status = refused("listening");

        close(fd);
        return status;
    }
    *fd_p = fd;
    return LNT_OK;
}

static lnt_status_t listen_unix(lnt_mesh_t *mesh)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    uint64_t name = 0;
    int length;

    LNT_TRY(random_u64(&name));
    length = snprintf(mesh->me.unix_name, sizeof(mesh->me.unix_name), "linnet.%u.%016llx", mesh->me.pid,
                      (unsigned long long)name);
    memcpy(address.sun_path + 1, mesh->me.unix_name, (size_t)length); /* abstract: starts with a zero byte */
    return listen_on(AF_UNIX, &address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length),
                     &mesh->listeners[0]);
}

static bool name_starts_with_any(const char *name, const char *const *prefixes)
{
    for (; *prefixes != NULL; prefixes++) {
        if (strncmp(name, *prefixes, strlen(*prefixes)) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_ipv6_link_local(const struct sockaddr *address)
{
    return (address->sa_family == AF_INET6) &&
           IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

/* How gladly an address is used; 0 = never. */
static int rank_address(const struct ifaddrs *entry, const char *interface)
{
    static const char *const virtual_prefixes[] = {"docker", "br-", "virbr", "veth", "cni", "flannel", NULL};
    int score;

    if ((entry->ifa_addr == NULL) || ((entry->ifa_flags & IFF_UP) == 0) || is_ipv6_link_local(entry->ifa_addr)) {
        return 0;
    }
    if ((entry->ifa_addr->sa_family != AF_INET) && (entry->ifa_addr->sa_family != AF_INET6)) {
        return 0;
    }
    if ((interface != NULL) && (strcmp(entry->ifa_name, interface) != 0)) {
        return 0;
    }
    score = ((entry->ifa_flags & IFF_LOOPBACK) != 0)                  ? 1
            : name_starts_with_any(entry->ifa_name, virtual_prefixes) ? 3
                                                                      : 5;
    return score + (entry->ifa_addr->sa_family == AF_INET);
}

static const struct ifaddrs *choose_address(const struct ifaddrs *list, const char *interface)
{
    const struct ifaddrs *best = NULL;
    int best_score = 0;

    for (; list != NULL; list = list->ifa_next) {
        int score = rank_address(list, interface);

        if (score > best_score) {
            best = list;
            best_score = score;
        }
    }
    return best;
}

static lnt_status_t no_such_interface(const struct ifaddrs *list, const char *interface)
{
    char names[256] = "";
    size_t used = 0;

    for (; (list != NULL) && (used < sizeof(names)); list = list->ifa_next) {
        if (rank_address(list, NULL) > 0) {
            used += (size_t)snprintf(names + used, sizeof(names) - used, " %s", list->ifa_name);
        }
    }
    return lnt_error(LNT_ERR_CONFIG, "set LINNET_SOCKET_IFNAME to an interface that is up, or unset it",
                     "LINNET_SOCKET_IFNAME: no usable address on interface \"%s\"; there are:%s", interface, names);
}

static lnt_status_t listen_tcp_at(lnt_mesh_t *mesh, const struct sockaddr *chosen)
{
    struct sockaddr_storage address = {0};
    socklen_t bytes = (chosen->sa_family == AF_INET) ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);

    _Static_assert(sizeof(struct sockaddr_in6) <= sizeof(((lnt_peer_id_t *)NULL)->address), "both families fit");
    memcpy(&address, chosen, bytes); /* its port is 0: the kernel chooses */
    LNT_TRY(listen_on(chosen->sa_family, &address, bytes, &mesh->listeners[1]));
    if (getsockname(mesh->listeners[1], (struct sockaddr *)&address, &bytes) != 0) {
        return refused("getsockname");
    }
    memcpy(mesh->me.address, &address, bytes);
    mesh->me.address_bytes = bytes;
    return LNT_OK;
}

static lnt_status_t listen_tcp(lnt_mesh_t *mesh, const char *interface)
{
    struct ifaddrs *list;
    const struct ifaddrs *chosen;
    lnt_status_t status = LNT_OK;

    if (getifaddrs(&list) != 0) {
        return refused("listing network interfaces");
    }
    chosen = choose_address(list, interface);
    if (chosen != NULL) {
        status = listen_tcp_at(mesh, chosen->ifa_addr);
    } else if (interface != NULL) {
        status = no_such_interface(list, interface);
    }
    freeifaddrs(list);
    return status;
}

static lnt_status_t open_event_set(lnt_mesh_t *mesh)
{
    mesh->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (mesh->epoll < 0) {
        return refused("epoll_create1");
    }
    mesh->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if ((mesh->event < 0) || !lnt_mesh_watch(mesh, mesh->event, EPOLLIN, LNT_WATCH_EVENT, 0)) {
        return refused("eventfd");
    }
    return LNT_OK;
}

static void mesh_init(lnt_mesh_t *mesh, const lnt_peer_id_t *me)
{
    mesh->me = *me;
    mesh->me.pid = (uint32_t)getpid();
    memset(mesh->me.address, 0, sizeof(mesh->me.address));
    mesh->me.address_bytes = 0;
    mesh->epoll = mesh->event = mesh->listeners[0] = mesh->listeners[1] = -1;
    mesh->waits.peer = -1;
    for (uint32_t i = 0; i < LNT_MESH_GUESTS; i++) {
        mesh->guests[i].fd = -1;
    }
}

lnt_status_t lnt_mesh_open(lnt_peer_id_t *me, const char *interface, lnt_mesh_t **mesh_p)
{
    lnt_mesh_t *mesh;
    lnt_status_t status;

    LNT_CHECK_ARG((me != NULL) && (mesh_p != NULL) && (me->rank < me->n_ranks));
    mesh = lnt_calloc(1, sizeof(*mesh), "mesh");
    if (mesh == NULL) {
        return LNT_ERR_NO_MEMORY;
    }
    mesh_init(mesh, me);
    if (mesh->me.mesh_token == 0) {
        LNT_TRY_GOTO(status, random_u64(&mesh->me.mesh_token), err_close);
    }
    LNT_TRY_GOTO(status, open_event_set(mesh), err_close);
    LNT_TRY_GOTO(status, listen_unix(mesh), err_close);
    LNT_TRY_GOTO(status, listen_tcp(mesh, interface), err_close);
    *me = mesh->me;
    *mesh_p = mesh;
    return LNT_OK;

err_close:
    lnt_mesh_close(mesh, 0);
    return status;
}
