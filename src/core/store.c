/* The store: joining and the all-gather, on both sides. */
#include "store.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <linnet/context.h>

#include "../base/clock.h"
#include "../base/error.h"
#include "../base/memory.h"

enum { HANDSHAKE_MS = 5000, TEXT_MAX = 256 };

struct lnt_store {
    uint32_t    rank, n_ranks;
    uint32_t    timeout_ms;
    uint32_t    refused; /* connections that failed the handshake */
    lnt_store_link_t *links;   /* server: one per rank, [0] unused; client: one */
    const lnt_auth_ops_t *auth;
    uint8_t     base_key[LNT_AUTH_BYTES];
};

static uint64_t deadline_in(uint32_t ms)
{
    return lnt_now_ns() + (uint64_t)ms * 1000000u;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- addresses ---- */

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        return (ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24) == 127;
    }
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
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
    if (params->secret == NULL && !is_loopback((*list_p)->ai_addr)) {
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

static lnt_status_t open_listener(const lnt_store_params_t *params, int *fd_p)
{
    struct addrinfo *list;
    int fd = -1;

    LNT_TRY(resolve(params, &list));
    for (struct addrinfo *info = list; info != NULL && fd < 0; info = info->ai_next) {
        fd = listen_on(info);
    }
    freeaddrinfo(list);
    if (fd < 0) {
        return lnt_error(LNT_ERR_BOOTSTRAP, "MASTER_ADDR must be an address of rank 0's host, and MASTER_PORT free: is another "
                         "rank 0 running?", "rank 0 cannot listen on %s:%u: %s", params->address, params->port, strerror(errno));
    }
    *fd_p = fd;
    return LNT_OK;
}

static void no_delay(int fd)
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

/* Rank 0 may start later than the others: try until the deadline. */
static lnt_status_t connect_to_master(const lnt_store_params_t *params, uint64_t deadline_ns, int *fd_p)
{
    struct addrinfo *list;
    int fd = -1;

    LNT_TRY(resolve(params, &list));
    while (fd < 0 && lnt_now_ns() < deadline_ns) {
        for (struct addrinfo *info = list; info != NULL && fd < 0; info = info->ai_next) {
            fd = connect_once(info, earlier(deadline_ns, deadline_in(HANDSHAKE_MS)));
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
    no_delay(fd);
    *fd_p = fd;
    return LNT_OK;
}

/* ---- server ---- */

/* Tells one client why, then every rank that had joined; used for errors only. */
static void tell_all(lnt_store_t *store, const char *text)
{
    for (uint32_t rank = 1; rank < store->n_ranks; rank++) {
        if (store->links[rank].fd >= 0) {
            lnt_store_link_send(&store->links[rank], LNT_STORE_ERROR, text, strlen(text), deadline_in(HANDSHAKE_MS));
        }
    }
}

/* What a proven hello says must fit this world; otherwise the text for both sides. */
static bool hello_fits(const lnt_store_t *store, const lnt_hello_t *hello, char *text)
{
    text[0] = '\0';
    if (hello->n_ranks != store->n_ranks) {
        snprintf(text, TEXT_MAX, "rank %u has WORLD_SIZE %u, rank 0 has %u", hello->rank, hello->n_ranks, store->n_ranks);
    } else if (hello->rank == 0 || hello->rank >= store->n_ranks) {
        snprintf(text, TEXT_MAX, "a second process says it is rank %u of %u", hello->rank, store->n_ranks);
    } else if (store->links[hello->rank].fd >= 0) {
        snprintf(text, TEXT_MAX, "rank %u was started twice", hello->rank);
    } else if (hello->library_version != (uint32_t)LINNET_VERSION) {
        snprintf(text, TEXT_MAX, "rank %u has linnet version %u, rank 0 has %u", hello->rank, hello->library_version, (uint32_t)LINNET_VERSION);
    }
    return text[0] == '\0';
}

/* Takes one connection. A stranger is dropped and counted; a rank that does not fit ends the start. */
static lnt_status_t admit(lnt_store_t *store, int fd, uint64_t deadline_ns, bool *joined_p)
{
    lnt_store_link_t link = {.fd = fd, .auth = store->auth, .server = true};
    uint64_t limit = earlier(deadline_ns, deadline_in(HANDSHAKE_MS));
    lnt_hello_t hello;
    char text[TEXT_MAX];

    *joined_p = false;
    no_delay(fd);
    if (lnt_store_link_handshake_server(&link, store->base_key, &hello, limit) < 0) {
        store->refused++;
        lnt_store_link_close(&link);
        return LNT_OK;
    }
    if (!hello_fits(store, &hello, text)) {
        lnt_store_link_send(&link, LNT_STORE_ERROR, text, strlen(text), limit);
        lnt_store_link_close(&link);
        tell_all(store, text);
        return lnt_error(LNT_ERR_MISMATCH, "start every rank once, with one WORLD_SIZE and one library", "%s", text);
    }
    store->links[hello.rank] = link;
    *joined_p = true;
    return LNT_OK;
}

static lnt_status_t report_missing(lnt_store_t *store)
{
    char text[TEXT_MAX];
    int n = snprintf(text, sizeof(text), "these ranks did not come within %u ms:", store->timeout_ms);

    for (uint32_t rank = 1; rank < store->n_ranks && n > 0 && n < TEXT_MAX - 64; rank++) {
        if (store->links[rank].fd < 0) {
            n += snprintf(text + n, sizeof(text) - (size_t)n, " %u", rank);
        }
    }
    if (store->refused > 0) {
        snprintf(text + n, sizeof(text) - (size_t)n, " (%u connections failed authentication)", store->refused);
    }
    tell_all(store, text);
    return lnt_error(store->refused > 0 ? LNT_ERR_AUTH : LNT_ERR_TIMED_OUT,
                     "start the missing ranks with the same MASTER_ADDR, MASTER_PORT and LINNET_SECRET", "%s", text);
}

static lnt_status_t serve_join(lnt_store_t *store, int listener, uint64_t deadline_ns)
{
    uint32_t joined = 1;

    while (joined < store->n_ranks) {
        uint64_t now = lnt_now_ns();
        struct pollfd poll_fd = {.fd = listener, .events = POLLIN};
        bool came = false;
        int fd;

        if (now >= deadline_ns) {
            return report_missing(store);
        }
        if (poll(&poll_fd, 1, (int)((deadline_ns - now) / 1000000u) + 1) <= 0) {
            continue;
        }
        fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            LNT_TRY(admit(store, fd, deadline_ns, &came));
            joined += came;
        }
    }
    for (uint32_t rank = 1; rank < store->n_ranks; rank++) {
        lnt_store_link_send(&store->links[rank], LNT_STORE_WELCOME, NULL, 0, deadline_in(HANDSHAKE_MS));
    }
    return LNT_OK;
}

static lnt_status_t serve_allgather(lnt_store_t *store, const void *input, uint8_t *output, size_t bytes)
{
    uint64_t deadline_ns = deadline_in(store->timeout_ms);
    char text[TEXT_MAX];

    memcpy(output, input, bytes);
    for (uint32_t rank = 1; rank < store->n_ranks; rank++) {
        uint32_t type;
        size_t got = 0;
        lnt_status_t status = lnt_store_link_receive(&store->links[rank], &type, output + rank * bytes, bytes, &got, deadline_ns);

        if (status < 0 || type != LNT_STORE_DATA || got != bytes) {
            snprintf(text, sizeof(text), "rank %u did not take part in the start-up exchange: %s", rank,
                     status < 0 ? lnt_status_string(status) : "another message size");
            tell_all(store, text);
            return lnt_error(status < 0 ? status : LNT_ERR_MISMATCH, "look at the log of that rank", "%s", text);
        }
    }
    for (uint32_t rank = 1; rank < store->n_ranks; rank++) {
        lnt_status_t status =
            lnt_store_link_send(&store->links[rank], LNT_STORE_DATA, output, bytes * store->n_ranks, deadline_ns);
        if (status < 0) {
            return lnt_error(status, "look at the log of that rank", "rank %u was lost in the start-up exchange", rank);
        }
    }
    return LNT_OK;
}

/* ---- client ---- */

/* The server's answer: data of exactly `bytes`, a welcome (bytes 0), or the text of an error. */
static lnt_status_t await_answer(lnt_store_t *store, uint32_t expected, void *data, size_t bytes)
{
    uint64_t deadline_ns = deadline_in(store->timeout_ms + 2 * HANDSHAKE_MS);
    size_t room = bytes > TEXT_MAX ? bytes : TEXT_MAX;
    char *buffer = lnt_calloc(1, room, "store answer");
    uint32_t type = 0;
    size_t got = 0;
    lnt_status_t status;

    if (buffer == NULL) {
        return LNT_ERR_NO_MEMORY;
    }
    status = lnt_store_link_receive(&store->links[0], &type, buffer, room, &got, deadline_ns);
    if (status == LNT_ERR_PEER_LOST && expected == LNT_STORE_WELCOME) {
        status = lnt_error(LNT_ERR_AUTH, "set the same LINNET_SECRET (or none) on every rank",
                           "rank %u: rank 0 closed the connection: another secret, or it failed", store->rank);
    } else if (status < 0) {
        status = lnt_error(status, "look at the log of rank 0", "rank %u: no answer from rank 0 in the start-up: %s",
                           store->rank, lnt_status_string(status));
    } else if (type == LNT_STORE_ERROR) {
        status = lnt_error(LNT_ERR_MISMATCH, "look at the log of rank 0", "rank 0 refused the start: %.*s", (int)got, buffer);
    } else if (type != expected || got != bytes) {
        status = lnt_error(LNT_ERR_MISMATCH, "every rank must make the same calls", "rank %u: rank 0 is at another exchange",
                           store->rank);
    } else if (bytes > 0) {
        memcpy(data, buffer, bytes);
    }
    lnt_free(buffer);
    return status;
}

static lnt_status_t join(lnt_store_t *store, const lnt_store_params_t *params, uint64_t deadline_ns)
{
    lnt_hello_t hello = {.rank = params->rank, .n_ranks = params->n_ranks, .library_version = (uint32_t)LINNET_VERSION};
    lnt_status_t status;

    LNT_TRY(connect_to_master(params, deadline_ns, &store->links[0].fd));
    store->links[0].auth = store->auth;
    status = lnt_store_link_handshake_client(&store->links[0], store->base_key, &hello, deadline_in(2 * HANDSHAKE_MS));
    if (status == LNT_ERR_AUTH || status == LNT_ERR_PEER_LOST) {
        return lnt_error(LNT_ERR_AUTH, "set the same LINNET_SECRET (or none) on every rank",
                         "rank %u: rank 0 and this rank do not have the same secret", store->rank);
    }
    if (status < 0) {
        return lnt_error(status, "is something else listening at MASTER_ADDR:MASTER_PORT?",
                         "rank %u: what answers at %s:%u does not speak the protocol", store->rank, params->address,
                         params->port);
    }
    return await_answer(store, LNT_STORE_WELCOME, NULL, 0);
}

/* ---- both ---- */

static lnt_status_t store_allocate(const lnt_store_params_t *params, lnt_store_t **store_p)
{
    lnt_store_t *store = lnt_calloc(1, sizeof(*store), "store");
    uint32_t n_links = params->rank == 0 ? params->n_ranks : 1;

    if (store == NULL) {
        return LNT_ERR_NO_MEMORY;
    }
    store->links = lnt_calloc(n_links, sizeof(*store->links), "store connections");
    if (store->links == NULL) {
        lnt_free(store);
        return LNT_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < n_links; i++) {
        store->links[i].fd = -1;
    }
    store->rank = params->rank;
    store->n_ranks = params->n_ranks;
    store->timeout_ms = params->timeout_ms;
    *store_p = store;
    return LNT_OK;
}

lnt_status_t lnt_store_open(const lnt_store_params_t *params, lnt_store_t **store_p)
{
    uint64_t deadline_ns = deadline_in(params->timeout_ms);
    lnt_store_t *store;
    lnt_status_t status = LNT_OK;
    int listener = -1;

    LNT_TRY(store_allocate(params, &store));
    if (params->secret != NULL) {
        LNT_TRY_GOTO(status, lnt_auth_load(&store->auth), err_close);
        store->auth->key(params->secret, store->base_key);
    }
    if (params->rank != 0) {
        LNT_TRY_GOTO(status, join(store, params, deadline_ns), err_close);
    } else {
        LNT_TRY_GOTO(status, open_listener(params, &listener), err_close);
        status = serve_join(store, listener, deadline_ns);
        close(listener);
        if (status < 0) {
            goto err_close;
        }
    }
    *store_p = store;
    return LNT_OK;

err_close:
    lnt_store_close(store);
    return status;
}

lnt_status_t lnt_store_allgather(lnt_store_t *store, const void *input, void *output, size_t bytes)
{
    lnt_status_t status;

    if (bytes * store->n_ranks > LNT_STORE_MESSAGE_MAX) {
        return lnt_error(LNT_ERR_OUT_OF_RANGE, "exchange less per call", "the store moves at most %d bytes, asked for %zu",
                         LNT_STORE_MESSAGE_MAX, bytes * store->n_ranks);
    }
    if (store->rank == 0) {
        return serve_allgather(store, input, output, bytes);
    }
    status = lnt_store_link_send(&store->links[0], LNT_STORE_DATA, input, bytes, deadline_in(store->timeout_ms));
    if (status < 0) {
        return lnt_error(status, "look at the log of rank 0", "rank %u lost rank 0 in the start-up", store->rank);
    }
    return await_answer(store, LNT_STORE_DATA, output, bytes * store->n_ranks);
}

void lnt_store_close(lnt_store_t *store)
{
    uint32_t n_links;

    if (store == NULL) {
        return;
    }
    n_links = store->rank == 0 ? store->n_ranks : 1;
    for (uint32_t i = 0; i < n_links; i++) {
        lnt_store_link_close(&store->links[i]);
    }
    if (store->auth != NULL) {
        store->auth->wipe(store->base_key, sizeof(store->base_key));
    }
    lnt_free(store->links);
    lnt_free(store);
}
