/* Bringing the links up: rank i dials every j < i, and everybody answers j > i.
 *
 * Both sides prove that they know the other's token (from the bootstrap all-gather) with a hello. A connection that
 * has not done so is a guest: it gets a fixed number of bytes, a fixed time and one of few places, so strangers cost
 * nothing and harm nobody; a rank that was thrown out with them dials again. The listeners exist before the
 * all-gather, so a refused connection means that the peer is gone.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "../base/clock.h"
#include "../base/error.h"
#include "../base/memory.h"
#include "mesh_internal.h"

static const uint32_t hello_magic = 0x484c4e4c; /* "LNLH" */
static const uint64_t ns_per_ms = 1000 * 1000;
static const uint64_t guest_ns = 2 * UINT64_C(1000000000);
static const uint64_t redial_ns = 20 * 1000 * 1000;

/* A dead host must show within about 10 s, idle or with data on the way. */
static void tune_tcp(int fd)
{
    static const struct {
        int level, option, value;
    } options[] = {{SOL_SOCKET, SO_KEEPALIVE, 1},   {IPPROTO_TCP, TCP_KEEPIDLE, 4},
                   {IPPROTO_TCP, TCP_KEEPINTVL, 2}, {IPPROTO_TCP, TCP_KEEPCNT, 3},
                   {IPPROTO_TCP, TCP_NODELAY, 1},   {IPPROTO_TCP, TCP_USER_TIMEOUT, 10000}};

    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        (void)setsockopt(fd, options[i].level, options[i].option, &options[i].value, sizeof(options[i].value));
    }
}

/* Local peers: the kernel tells when their process ends, even if a child of theirs keeps the socket open. */
static void watch_process(lnt_mesh_t *mesh, lnt_mesh_link_t *link)
{
    struct ucred owner;
    socklen_t bytes = sizeof(owner);

    if (!link->local || (getsockopt(link->fd, SOL_SOCKET, SO_PEERCRED, &owner, &bytes) != 0) || (owner.pid <= 0) ||
        (owner.pid == getpid())) {
        return; /* ranks of one process die together */
    }
    link->pidfd = (int)syscall(SYS_pidfd_open, owner.pid, 0);
    if ((link->pidfd >= 0) && !lnt_mesh_watch(mesh, link->pidfd, EPOLLIN, LNT_WATCH_PIDFD, link->peer)) {
        close(link->pidfd);
        link->pidfd = -1;
    }
}

void lnt_mesh_on_pidfd(lnt_mesh_t *mesh, lnt_mesh_link_t *link)
{
    lnt_mesh_link_read(mesh, link); /* what it said before it died comes first */
    if ((link->state == LNT_LINK_UP) && !link->held) {
        lnt_mesh_link_lost(mesh, link, "its process ended");
    } else if (link->pidfd >= 0) {
        close(link->pidfd);
        link->pidfd = -1;
        link->process_gone = true;
    }
}

static void link_up(lnt_mesh_t *mesh, lnt_mesh_link_t *link)
{
    link->state = LNT_LINK_UP;
    link->in_have = 0;
    if (!link->local) {
        tune_tcp(link->fd);
    }
    watch_process(mesh, link);
    lnt_mesh_link_flush(mesh, link);
}

/* This rank has failed while the mesh was being built: who comes now must hear why before it finds the doors closed. */
static void tell_latecomer(lnt_mesh_t *mesh, lnt_mesh_link_t *link)
{
    if (mesh->failed && (link->state != LNT_LINK_GONE)) {
        lnt_mesh_tell_failure(mesh, link);
    }
}

static void queue_hello(lnt_mesh_t *mesh, lnt_mesh_link_t *link)
{
    lnt_hello_t hello = {.magic = hello_magic,
                         .rank = mesh->me.rank,
                         .n_ranks = mesh->me.n_ranks,
                         .token = mesh->peers[link->peer].mesh_token};

    link->out_begin = link->out_end = 0;
    link->out_dead = false;
    lnt_mesh_link_queue_bytes(link, &hello, sizeof(hello));
}

/* From the side that dials. */

static void redial_later(lnt_mesh_link_t *link)
{
    lnt_mesh_link_close(link);
    link->state = LNT_LINK_RETRY;
    link->retry_at = lnt_now_ns() + redial_ns;
}

socklen_t lnt_mesh_peer_address(const lnt_mesh_t *mesh, const lnt_mesh_link_t *link, struct sockaddr_storage *address)
{
    const lnt_peer_id_t *peer = &mesh->peers[link->peer];
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    size_t length = strnlen(peer->unix_name, sizeof(peer->unix_name));

    memset(address, 0, sizeof(*address));
    if (!link->local) {
        memcpy(address, peer->address, sizeof(peer->address));
        return (peer->address_bytes <= sizeof(peer->address)) ? peer->address_bytes : 0;
    }
    memcpy(local.sun_path + 1, peer->unix_name, length);
    memcpy(address, &local, sizeof(local));
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

static void dial_failed(lnt_mesh_t *mesh, lnt_mesh_link_t *link, int error)
{
    if ((error == EAGAIN) || (error == EINTR)) {
        redial_later(link); /* its queue is full: strangers, or many ranks at once */
    } else {
        lnt_mesh_link_lost(mesh, link, (error == ECONNREFUSED) ? "it no longer listens" : strerror(error));
    }
}

static void dial(lnt_mesh_t *mesh, lnt_mesh_link_t *link)
{
    struct sockaddr_storage address;
    socklen_t bytes = lnt_mesh_peer_address(mesh, link, &address);

    if (bytes == 0) {
        lnt_mesh_link_lost(mesh, link,
                           "it sits on another host and has no network address (see LINNET_SOCKET_IFNAME there)");
        return;
    }
    link->fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (link->fd < 0) {
        lnt_mesh_link_lost(mesh, link, strerror(errno));
        return;
    }
    queue_hello(mesh, link);
    if (connect(link->fd, (struct sockaddr *)&address, bytes) == 0) {
        link->state = LNT_LINK_GREETING;
        lnt_mesh_link_flush(mesh, link);
    } else if (errno == EINPROGRESS) {
        link->state = LNT_LINK_DIALING;
        lnt_mesh_link_update_watch(mesh, link);
    } else {
        dial_failed(mesh, link, errno);
    }
}

void lnt_mesh_on_dialed(lnt_mesh_t *mesh, lnt_mesh_link_t *link)
{
    int error = 0;
    socklen_t bytes = sizeof(error);

    if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) {
        error = errno;
    }
    if (error != 0) {
        dial_failed(mesh, link, error);
        return;
    }
    link->state = LNT_LINK_GREETING;
    lnt_mesh_link_flush(mesh, link);
    tell_latecomer(mesh, link);
}

/* Reads towards a hello: true when it is whole; *over_p when the connection ended or cannot become one. */
static bool read_hello(int fd, lnt_hello_t *hello, size_t *have_p, bool *over_p)
{
    ssize_t got = recv(fd, (unsigned char *)hello + *have_p, sizeof(*hello) - *have_p, MSG_DONTWAIT);

    if (got > 0) {
        *have_p += (size_t)got;
    }
    *over_p = (got == 0) || ((got < 0) && (errno != EAGAIN) && (errno != EINTR)) ||
              ((*have_p >= sizeof(hello->magic)) && (hello->magic != hello_magic));
    return (*have_p == sizeof(*hello)) && !*over_p;
}

void lnt_mesh_on_greeting(lnt_mesh_t *mesh, lnt_mesh_link_t *link)
{
    lnt_hello_t hello = {0};
    bool over;

    memcpy(&hello, link->in, link->in_have);
    if (read_hello(link->fd, &hello, &link->in_have, &over)) {
        if ((hello.rank == link->peer) && (hello.token == mesh->me.mesh_token)) {
            link_up(mesh, link);
        } else {
            lnt_mesh_link_lost(mesh, link, "somebody else answers at its address");
        }
        return;
    }
    memcpy(link->in, &hello, link->in_have);
    if (over) {
        redial_later(link);
    }
}

/* From the side that answers. */

static void drop_guest(lnt_guest_t *guest)
{
    if (guest->fd >= 0) {
        close(guest->fd);
    }
    guest->fd = -1;
}

/* A free place, or that of the guest who has been silent for longest. */
static uint32_t guest_place(lnt_mesh_t *mesh)
{
    uint32_t oldest = 0;

    for (uint32_t i = 0; i < LNT_MESH_GUESTS; i++) {
        if (mesh->guests[i].fd < 0) {
            return i;
        }
        if (mesh->guests[i].since < mesh->guests[oldest].since) {
            oldest = i;
        }
    }
    drop_guest(&mesh->guests[oldest]);
    return oldest;
}

/* Nobody there, or gone again, is nothing special; a limit that is reached would wake us for ever. */
static void accept_failed(lnt_mesh_t *mesh, int error)
{
    lnt_error_info_t record;

    if ((error != EMFILE) && (error != ENFILE) && (error != ENOBUFS) && (error != ENOMEM)) {
        return;
    }
    lnt_error_fill(&record, LNT_ERR_SYSTEM, "raise the limit of open files (ulimit -n)",
                   "rank %u cannot accept connections of the control mesh: %s", mesh->me.rank, strerror(error));
    record.rank = record.peer = mesh->me.rank;
    lnt_mesh_fail(mesh, &record);
}

void lnt_mesh_on_listener(lnt_mesh_t *mesh, uint32_t index)
{
    for (uint32_t n = 0; n < LNT_MESH_GUESTS; n++) {
        int fd = accept4(mesh->listeners[index], NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        uint32_t place;

        if (fd < 0) {
            accept_failed(mesh, errno);
            return;
        }
        place = guest_place(mesh);
        mesh->guests[place] = (lnt_guest_t){.fd = fd, .local = (index == 0), .since = lnt_now_ns()};
        if (!lnt_mesh_watch(mesh, fd, EPOLLIN, LNT_WATCH_GUEST, place)) {
            drop_guest(&mesh->guests[place]);
        }
        lnt_mesh_on_guest(mesh, place); /* a rank's hello is usually there already: its place is free again at once */
    }
}

static bool hello_fits(const lnt_mesh_t *mesh, const lnt_hello_t *hello)
{
    return (hello->n_ranks == mesh->n_links) && (hello->rank > mesh->me.rank) && (hello->rank < mesh->n_links) &&
           (hello->token == mesh->me.mesh_token) && (mesh->links[hello->rank].state == LNT_LINK_AWAITED);
}

void lnt_mesh_on_guest(lnt_mesh_t *mesh, uint32_t index)
{
    lnt_guest_t *guest = &mesh->guests[index];
    lnt_mesh_link_t *link;
    bool over;

    if (guest->fd < 0) {
        return;
    }
    if (!read_hello(guest->fd, &guest->hello, &guest->have, &over)) {
        if (over) {
            drop_guest(guest);
        }
        return;
    }
    if (!hello_fits(mesh, &guest->hello)) {
        drop_guest(guest);
        return;
    }
    link = &mesh->links[guest->hello.rank];
    (void)epoll_ctl(mesh->epoll, EPOLL_CTL_DEL, guest->fd, NULL); /* the link watches it from here on */
    link->fd = guest->fd;
    link->local = guest->local;
    guest->fd = -1;
    queue_hello(mesh, link);
    link_up(mesh, link);
    tell_latecomer(mesh, link);
}

void lnt_mesh_close_doors(lnt_mesh_t *mesh)
{
    for (uint32_t i = 0; i < LNT_MESH_GUESTS; i++) {
        drop_guest(&mesh->guests[i]);
    }
    for (uint32_t i = 0; i < LNT_MESH_LISTENERS; i++) {
        if (mesh->listeners[i] >= 0) {
            close(mesh->listeners[i]);
        }
        mesh->listeners[i] = -1;
    }
    for (uint32_t i = 0; i < mesh->n_links; i++) {
        lnt_mesh_end_knock(&mesh->links[i]);
    }
}

/* The whole. */

static lnt_status_t make_links(lnt_mesh_t *mesh, const lnt_peer_id_t *peers)
{
    uint32_t n = mesh->me.n_ranks;

    mesh->peers = lnt_calloc(n, sizeof(*mesh->peers), "mesh peers");
    mesh->links = (mesh->peers != NULL) ? lnt_calloc(n, sizeof(*mesh->links), "mesh links") : NULL;
    if (mesh->links == NULL) {
        return LNT_ERR_NO_MEMORY; /* close frees the rest */
    }
    memcpy(mesh->peers, peers, n * sizeof(*peers));
    mesh->n_links = n;
    for (uint32_t i = 0; i < n; i++) {
        lnt_mesh_link_t *link = &mesh->links[i];

        link->peer = i;
        link->fd = link->pidfd = link->knock_fd = -1;
        link->waits.peer = -1;
        link->local = peers[i].host_hash == mesh->me.host_hash;
        link->state = (i < mesh->me.rank) ? LNT_LINK_RETRY : (i > mesh->me.rank) ? LNT_LINK_AWAITED : LNT_LINK_GONE;
    }
    return LNT_OK;
}

static bool is_missing(const lnt_mesh_link_t *link)
{
    return (link->state != LNT_LINK_UP) && (link->state != LNT_LINK_GONE);
}

static bool all_up(const lnt_mesh_t *mesh)
{
    for (uint32_t i = 0; i < mesh->n_links; i++) {
        if (is_missing(&mesh->links[i])) {
            return false;
        }
    }
    return true;
}

/* What happens by the clock: dialing again, and the patience with guests. */
static void tick(lnt_mesh_t *mesh)
{
    uint64_t now = lnt_now_ns();

    for (uint32_t i = 0; (i < mesh->n_links) && !mesh->failed; i++) {
        if ((mesh->links[i].state == LNT_LINK_RETRY) && (mesh->links[i].retry_at <= now)) {
            dial(mesh, &mesh->links[i]);
        }
        lnt_mesh_knock(mesh, &mesh->links[i], now);
    }
    for (uint32_t i = 0; i < LNT_MESH_GUESTS; i++) {
        if ((mesh->guests[i].fd >= 0) && (now - mesh->guests[i].since > guest_ns)) {
            drop_guest(&mesh->guests[i]);
        }
    }
}

static void connect_all(lnt_mesh_t *mesh, uint32_t timeout_ms)
{
    const int tick_ms = 20;
    uint64_t deadline = lnt_now_ns() + timeout_ms * ns_per_ms;

    for (tick(mesh); !mesh->failed && !all_up(mesh); tick(mesh)) {
        if (lnt_now_ns() >= deadline) {
            lnt_mesh_fail_timeout(mesh, "connecting the control mesh", is_missing, timeout_ms);
            break;
        }
        (void)lnt_mesh_poll(mesh, tick_ms);
    }
}

lnt_status_t lnt_mesh_connect(lnt_mesh_t *mesh, const lnt_peer_id_t *peers, uint32_t timeout_ms)
{
    LNT_CHECK_ARG((mesh != NULL) && (peers != NULL) && (mesh->links == NULL));
    LNT_TRY(make_links(mesh, peers));
    for (uint32_t i = 0; i < LNT_MESH_LISTENERS; i++) {
        if ((mesh->listeners[i] >= 0) && !lnt_mesh_watch(mesh, mesh->listeners[i], EPOLLIN, LNT_WATCH_LISTENER, i)) {
            return lnt_error(LNT_ERR_SYSTEM, NULL, "control mesh: epoll_ctl failed: %s", strerror(errno));
        }
    }
    connect_all(mesh, timeout_ms);
    if (mesh->failed) {
        return lnt_mesh_report(mesh);
    }
    lnt_mesh_close_doors(mesh);
    return LNT_OK;
}
