/* One link: messages with descriptors over a stream socket that never blocks.
 *
 * Out: a small queue; the socket takes what it takes. Room is never a matter of luck: at most one message of each kind
 * is under way (see LNT_MSG_OUT_BYTES), and waiting-for edges are only added to an empty queue.
 * In: header and body are read in exact sizes, so descriptors always belong to the message being read. A set-up or
 * vote message that comes early is held, and the socket behind it is left unread, until its round.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mesh_internal.h"

static const uint32_t msg_magic = 0x4d544e4c; /* "LNTM" */

void lnt_mesh_link_close(lnt_mesh_link_t *link)
{
    for (size_t i = 0; i < link->n_in_fds; i++) {
        close(link->in_fds[i]);
    }
    link->n_in_fds = link->n_out_fds = 0;
    link->out_begin = link->out_end = 0;
    if (link->fd >= 0) {
        close(link->fd); /* leaves the epoll set by itself */
    }
    if (link->pidfd >= 0) {
        close(link->pidfd);
    }
    link->fd = link->pidfd = -1;
    link->watched = 0;
    link->state = LNT_LINK_GONE;
}

void lnt_mesh_link_update_watch(lnt_mesh_t *mesh, lnt_mesh_link_t *link)
{
    uint32_t wanted = link->held ? 0 : (uint32_t)EPOLLIN;

    if (link->fd < 0) {
        return;
    }
    if ((link->state == LNT_LINK_DIALING) || (lnt_mesh_link_pending(link) && !link->out_dead)) {
        wanted |= EPOLLOUT;
    }
    if (wanted == link->watched) {
        return;
    }
    /* A held link is taken out altogether: a hang-up could not be masked and would keep the set awake. */
    if (link->watched != 0) {
        (void)epoll_ctl(mesh->epoll, EPOLL_CTL_DEL, link->fd, NULL);
    }
    link->watched = wanted;
    if ((wanted != 0) && !lnt_mesh_watch(mesh, link->fd, wanted, LNT_WATCH_LINK, link->peer)) {
        lnt_mesh_link_lost(mesh, link, "its socket cannot be watched");
    }
}

static void make_room(lnt_mesh_link_t *link)
{
    size_t pending = link->out_end - link->out_begin;

    memmove(link->out, link->out + link->out_begin, pending);
    link->out_fds_at -= (link->n_out_fds > 0) ? link->out_begin : 0;
    link->out_begin = 0;
    link->out_end = pending;
}

void lnt_mesh_link_queue_bytes(lnt_mesh_link_t *link, const void *bytes, size_t count)
{
    memcpy(link->out + link->out_end, bytes, count);
    link->out_end += count;
}

bool lnt_mesh_link_queue(lnt_mesh_t *mesh, lnt_mesh_link_t *link, const lnt_msg_header_t *header, const void *body,
                         const int *fds)
{
    lnt_msg_header_t framed = *header;

    make_room(link);
    if (link->out_dead || (LNT_MSG_OUT_BYTES - link->out_end < sizeof(framed) + framed.bytes)) {
        return false;
    }
    framed.magic = msg_magic;
    if (!link->local) {
        framed.n_fds = 0;
    }
    if (framed.n_fds > 0) {
        memcpy(link->out_fds, fds, framed.n_fds * sizeof(*fds));
        link->n_out_fds = framed.n_fds;
        link->out_fds_at = link->out_end;
    }
    lnt_mesh_link_queue_bytes(link, &framed, sizeof(framed));
    if (framed.bytes > 0) {
        lnt_mesh_link_queue_bytes(link, body, framed.bytes);
    }
    lnt_mesh_link_flush(mesh, link);
    return true;
}

/* One sendmsg; the descriptors go with their byte and with no byte before it. */
static ssize_t send_some(lnt_mesh_link_t *link)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(link->out_fds))];
    } control = {0};
    struct iovec piece = {.iov_base = link->out + link->out_begin, .iov_len = link->out_end - link->out_begin};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    struct cmsghdr *attached;
    ssize_t sent;

    if ((link->n_out_fds > 0) && (link->out_begin < link->out_fds_at)) {
        piece.iov_len = link->out_fds_at - link->out_begin;
    } else if (link->n_out_fds > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(link->n_out_fds * sizeof(int));
        attached = CMSG_FIRSTHDR(&message);
        attached->cmsg_level = SOL_SOCKET;
        attached->cmsg_type = SCM_RIGHTS;
        attached->cmsg_len = CMSG_LEN(link->n_out_fds * sizeof(int));
        memcpy(CMSG_DATA(attached), link->out_fds, link->n_out_fds * sizeof(int));
    }
    sent = sendmsg(link->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if ((sent > 0) && (message.msg_control != NULL)) {
        link->n_out_fds = 0;
    }
    return sent;
}

void lnt_mesh_link_flush(lnt_mesh_t *mesh, lnt_mesh_link_t *link)
{
    bool connected = (link->state == LNT_LINK_GREETING) || (link->state == LNT_LINK_UP);

    while (connected && !link->out_dead && lnt_mesh_link_pending(link)) {
        ssize_t sent = send_some(link);

        if (sent > 0) {
            link->out_begin += (size_t)sent;
        } else if ((errno == EAGAIN) || (errno == EWOULDBLOCK)) {
            break;
        } else if (errno != EINTR) {
            /* Reading tells what happened: the peer's last words may lie there. */
            link->out_dead = true;
            link->out_begin = link->out_end = link->n_out_fds = 0;
        }
    }
    lnt_mesh_link_update_watch(mesh, link);
}

/* Keep the descriptors that came along; false when there are more than a message may have. */
static bool take_fds(lnt_mesh_link_t *link, struct msghdr *message)
{
    bool fit = (message->msg_flags & MSG_CTRUNC) == 0;

    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part != NULL; part = CMSG_NXTHDR(message, part)) {
        size_t n = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if ((part->cmsg_level != SOL_SOCKET) || (part->cmsg_type != SCM_RIGHTS)) {
            continue;
        }
        for (size_t i = 0; i < n; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(part) + i * sizeof(fd), sizeof(fd));
            if (link->n_in_fds < LNT_MESH_SETUP_FDS) {
                link->in_fds[link->n_in_fds++] = fd;
            } else {
                close(fd);
                fit = false;
            }
        }
    }
    return fit;
}

/* Reads up to `want` bytes to in + in_have. > 0, 0 = end of file, -1 with errno. */
static ssize_t receive_some(lnt_mesh_link_t *link, size_t want)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(link->in_fds))];
    } control;
    struct iovec piece = {.iov_base = link->in + link->in_have, .iov_len = want};
    struct msghdr message = {
        .msg_iov = &piece, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
    ssize_t got;

    do {
        got = recvmsg(link->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while ((got < 0) && (errno == EINTR));
    if ((got > 0) && !take_fds(link, &message)) {
        errno = EMFILE;
        return -1;
    }
    return got;
}

typedef struct msg_rule {
    size_t least, most; /* bytes of the body */
    bool held;          /* waits for the caller's round */
} msg_rule_t;

static const msg_rule_t rules[LNT_MSG_KINDS] = {
    [LNT_MSG_SETUP] = {0, LNT_MESH_SETUP_BYTES, true},
    [LNT_MSG_VOTE] = {sizeof(lnt_msg_vote_t), sizeof(lnt_msg_vote_t), true},
    [LNT_MSG_FAILURE] = {sizeof(lnt_msg_failure_t), sizeof(lnt_msg_failure_t), false},
    [LNT_MSG_WAITING] = {sizeof(lnt_msg_waiting_t), sizeof(lnt_msg_waiting_t), false},
    [LNT_MSG_GOODBYE] = {0, 0, false},
};

static lnt_msg_header_t in_header(const lnt_mesh_link_t *link)
{
    lnt_msg_header_t header;

    memcpy(&header, link->in, sizeof(header));
    return header;
}

static bool header_sane(const lnt_msg_header_t *header)
{
    return (header->magic == msg_magic) && (header->kind >= LNT_MSG_SETUP) && (header->kind < LNT_MSG_KINDS) &&
           (header->bytes >= rules[header->kind].least) && (header->bytes <= rules[header->kind].most) &&
           ((header->n_fds == 0) || (header->kind == LNT_MSG_SETUP));
}

/* A whole message lies in `in`. */
static void handle_message(lnt_mesh_t *mesh, lnt_mesh_link_t *link, const lnt_msg_header_t *header)
{
    const unsigned char *body = link->in + sizeof(*header);

    if (header->n_fds != link->n_in_fds) {
        lnt_mesh_link_lost(mesh, link, "descriptors were lost on the way (limit of open files?)");
        return;
    }
    link->held = rules[header->kind].held;
    if (link->held) {
        return;
    }
    link->in_have = 0;
    if (header->kind == LNT_MSG_FAILURE) {
        lnt_mesh_on_failure_message(mesh, body);
    } else if (header->kind == LNT_MSG_WAITING) {
        memcpy(&link->waits, body, sizeof(link->waits));
        link->waits.what[LNT_WAITING_TEXT - 1] = '\0';
    } else {
        lnt_mesh_link_close(link); /* goodbye */
    }
}

/* Bytes still missing of the message being read; 0 = it is whole. */
static size_t bytes_missing(const lnt_mesh_link_t *link, bool *sane_p)
{
    lnt_msg_header_t header;

    *sane_p = true;
    if (link->in_have < sizeof(header)) {
        return sizeof(header) - link->in_have;
    }
    header = in_header(link);
    *sane_p = header_sane(&header);
    return *sane_p ? sizeof(header) + header.bytes - link->in_have : 0;
}

static void read_failed(lnt_mesh_t *mesh, lnt_mesh_link_t *link, ssize_t got)
{
    if (got == 0) {
        lnt_mesh_link_lost(mesh, link, "its control socket was closed without goodbye");
    } else if ((errno != EAGAIN) && (errno != EWOULDBLOCK)) {
        lnt_mesh_link_lost(mesh, link, strerror(errno));
    }
}

void lnt_mesh_link_read(lnt_mesh_t *mesh, lnt_mesh_link_t *link)
{
    while ((link->state == LNT_LINK_UP) && !link->held) {
        bool sane;
        size_t missing = bytes_missing(link, &sane);

        if (!sane) {
            lnt_mesh_link_lost(mesh, link, "it sent something that is no message of the control mesh");
        } else if (missing == 0) {
            lnt_msg_header_t header = in_header(link);

            handle_message(mesh, link, &header);
        } else {
            ssize_t got = receive_some(link, missing);

            if (got <= 0) {
                read_failed(mesh, link, got);
                break;
            }
            link->in_have += (size_t)got;
        }
    }
    lnt_mesh_link_update_watch(mesh, link);
}

void lnt_mesh_link_release(lnt_mesh_t *mesh, lnt_mesh_link_t *link)
{
    for (size_t i = 0; i < link->n_in_fds; i++) {
        close(link->in_fds[i]);
    }
    link->n_in_fds = 0;
    link->in_have = 0;
    link->held = false;
    lnt_mesh_link_update_watch(mesh, link);
    if (link->process_gone) {
        lnt_mesh_on_pidfd(mesh, link);
    }
}
