/* The store's addresses: resolving, listening, dialing. Without a secret only loopback is used, whatever the name
 * resolves to. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "store_internal.h"

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        return (ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24) == 127;
    }
    return (address->sa_family == AF_INET6) &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

/* A name may have several addresses, and each of them is tried. */
bool lnt_store_all_loopback(const struct addrinfo *list)
{
    for (const struct addrinfo *info = list; info != NULL; info = info->ai_next) {
        if (!is_loopback(info->ai_addr)) {
            return false;
        }
    }
    return true;
}

static lnt_status_t resolve(const lnt_store_params_t *params, struct addrinfo **list_p)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    char port[8];
    int error;

    snprintf(port, sizeof(port), "%u", params->port);
    error = getaddrinfo(params->address, port, &hints, list_p);
    if (error != 0) {
        return lnt_error(LNT_ERR_CONFIG, "set MASTER_ADDR to the host name or address of rank 0",
                         "MASTER_ADDR %s cannot be resolved: %s", params->address, gai_strerror(error));
    }
    if (params->secret == NULL && !lnt_store_all_loopback(*list_p)) {
        freeaddrinfo(*list_p);
        return lnt_error(LNT_ERR_CONFIG, "set the same LINNET_SECRET on every rank, or use MASTER_ADDR=127.0.0.1",
                         "without a secret the store works on loopback only, and MASTER_ADDR is %s", params->address);
    }
    return LNT_OK;
}

static int listen_on(const struct addrinfo *info)
{
    int one = 1;
    int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0) {
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, info->ai_addr, info->ai_addrlen) != 0 || listen(fd, 128) != 0) {
        int saved = errno;

        close(fd);
        errno = saved;
        return -1;
    }
    return fd;
}

/* Stops at a port that is taken: another rank 0 may sit on one of the name's addresses, and two must not start. */
lnt_status_t lnt_store_listen(const lnt_store_params_t *params, int *fd_p, bool *in_use_p)
{
    struct addrinfo *list;
    int fd = -1, error = 0;

    *in_use_p = false;
    LNT_TRY(resolve(params, &list));
    for (struct addrinfo *info = list; info != NULL && fd < 0 && error != EADDRINUSE; info = info->ai_next) {
        fd = listen_on(info);
        error = errno;
    }
    freeaddrinfo(list);
    if (fd < 0) {
        *in_use_p = (error == EADDRINUSE);
        return lnt_error(LNT_ERR_BOOTSTRAP,
                         "MASTER_ADDR must be an address of rank 0's host, and MASTER_PORT free: is another "
                         "rank 0 running?",
                         "rank 0 cannot listen on %s:%u: %s", params->address, params->port, strerror(error));
    }
    *fd_p = fd;
    return LNT_OK;
}

void lnt_store_no_delay(int fd)
{
    int one = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

/* One attempt to connect, bounded; -1 if it failed. */
static int connect_once(const struct addrinfo *info, uint64_t deadline_ns)
{
    int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
    uint64_t now = lnt_now_ns();
    int error = 0;
    socklen_t length = sizeof(error);

    if (fd < 0) {
        return -1;
    }
    if (connect(fd, info->ai_addr, info->ai_addrlen) == 0) {
        return fd;
    }
    if (errno != EINPROGRESS || now >= deadline_ns || poll(&poll_fd, 1, (int)((deadline_ns - now) / 1000000u)) <= 0 ||
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Rank 0 may start later than the others: try until the deadline. */
lnt_status_t lnt_store_dial(const lnt_store_params_t *params, uint64_t deadline_ns, int *fd_p)
{
    struct addrinfo *list;
    int fd = -1;

    LNT_TRY(resolve(params, &list));
    while (fd < 0 && lnt_now_ns() < deadline_ns) {
        for (struct addrinfo *info = list; info != NULL && fd < 0; info = info->ai_next) {
            fd = connect_once(info, earlier(deadline_ns, lnt_store_deadline(LNT_STORE_HANDSHAKE_MS)));
        }
        if (fd < 0) {
            nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        }
    }
    freeaddrinfo(list);
    if (fd < 0) {
        return lnt_error(LNT_ERR_TIMED_OUT, "start rank 0, and check MASTER_ADDR, MASTER_PORT and firewalls",
                         "rank %u: rank 0 does not answer at %s:%u", params->rank, params->address, params->port);
    }
    lnt_store_no_delay(fd);
    *fd_p = fd;
    return LNT_OK;
}
