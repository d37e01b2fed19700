/* Awaited peers that will never dial: a process that died, or gave up, before it did leaves no trace on those it would
 * have dialed.
 *
 * But its listener existed before the all-gather and stays open until its mesh is whole, which it cannot be while this
 * rank still waits for it. So this rank knocks now and then: a connection that says nothing. Two refusals in a row,
 * with all that has come in handled between them, mean that nobody is there.
 */
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "mesh_internal.h"

enum { REFUSALS = 2 };

static const uint64_t patience_ns = 100 * 1000 * 1000; /* between knocks; a start-up is normally done by then */

void lnt_mesh_end_knock(lnt_mesh_link_t *link)
{
    if (link->knock_fd >= 0) {
        close(link->knock_fd);
    }
    link->knock_fd = -1;
}

/* The answer: 0 = somebody is there, EINPROGRESS, or an error. */
static int begin_knock(lnt_mesh_t *mesh, lnt_mesh_link_t *link)
{
    struct sockaddr_storage address;
    socklen_t bytes = lnt_mesh_peer_address(mesh, link, &address);

    if (bytes == 0) {
        return 0; /* the peer dials us, so we need not be able to reach it */
    }
    link->knock_fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (link->knock_fd < 0) {
        return 0;
    }
    return (connect(link->knock_fd, (struct sockaddr *)&address, bytes) == 0) ? 0 : errno;
}

static int answer_to_knock(const lnt_mesh_link_t *link)
{
    struct pollfd ready = {.fd = link->knock_fd, .events = POLLOUT};
    int error = 0;
    socklen_t bytes = sizeof(error);

    if (poll(&ready, 1, 0) == 0) {
        return EINPROGRESS;
    }
    return (getsockopt(link->knock_fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0) ? error : 0;
}

void lnt_mesh_knock(lnt_mesh_t *mesh, lnt_mesh_link_t *link, uint64_t now)
{
    int answer;

    if ((link->state != LNT_LINK_AWAITED) || mesh->failed) {
        return;
    }
    if (link->knock_at == 0) {
        link->knock_at = now + patience_ns;
    }
    if (now < link->knock_at) {
        return;
    }
    answer = (link->knock_fd >= 0) ? answer_to_knock(link) : begin_knock(mesh, link);
    if (answer == EINPROGRESS) {
        return;
    }
    lnt_mesh_end_knock(link);
    link->refusals = (answer == ECONNREFUSED) ? link->refusals + 1 : 0;
    link->knock_at = now + ((link->refusals > 0) ? 1 : patience_ns);
    if (link->refusals >= REFUSALS) {
        lnt_mesh_link_lost(mesh, link, "it ended before it connected");
    }
}
