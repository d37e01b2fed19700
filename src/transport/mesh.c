/* The mesh's event loop, and its end.
 *
 * Everything a mesh reacts to sits in one epoll set; lnt_mesh_poll hands each event to the file that knows about it.
 * Leaving: goodbye to everybody, then wait (a bounded time) until it is on its way: the peers must not take the end of
 * file for a death, and must get the failure record if there is one.
 */
#include "mesh.h"

#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "../base/clock.h"
#include "../base/memory.h"
#include "mesh_internal.h"

bool lnt_mesh_watch(lnt_mesh_t *mesh, int fd, uint32_t events, lnt_watch_t what, uint32_t index)
{
    struct epoll_event event = {.events = events, .data.u64 = ((uint64_t)what << 32) | index};

    return epoll_ctl(mesh->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

static void on_link(lnt_mesh_t *mesh, lnt_mesh_link_t *link, uint32_t events)
{
    if (link->state == LNT_LINK_DIALING) {
        lnt_mesh_on_dialed(mesh, link);
        return;
    }
    if ((events & EPOLLOUT) != 0) {
        lnt_mesh_link_flush(mesh, link);
        lnt_mesh_tell_waiting(mesh, link);
    }
    if ((events & ~(uint32_t)EPOLLOUT) == 0) {
        return;
    }
    if (link->state == LNT_LINK_GREETING) {
        lnt_mesh_on_greeting(mesh, link);
    }
    lnt_mesh_link_read(mesh, link); /* nothing unless it is up */
}

static void handle(lnt_mesh_t *mesh, const struct epoll_event *event)
{
    lnt_watch_t what = (lnt_watch_t)(event->data.u64 >> 32);
    uint32_t index = (uint32_t)event->data.u64;

    /* An earlier event of the same batch may have closed what this one is about: every handler copes with that. */
    switch (what) {
    case LNT_WATCH_LINK:
        on_link(mesh, &mesh->links[index], event->events);
        break;
    case LNT_WATCH_PIDFD:
        lnt_mesh_on_pidfd(mesh, &mesh->links[index]);
        break;
    case LNT_WATCH_GUEST:
        lnt_mesh_on_guest(mesh, index);
        break;
    case LNT_WATCH_LISTENER:
        lnt_mesh_on_listener(mesh, index);
        break;
    case LNT_WATCH_EVENT:
        lnt_mesh_on_event(mesh);
        break;
    }
}

int lnt_mesh_poll(lnt_mesh_t *mesh, int timeout_ms)
{
    struct epoll_event events[16];
    int n = epoll_wait(mesh->epoll, events, (int)(sizeof(events) / sizeof(events[0])), timeout_ms);

    for (int i = 0; i < n; i++) {
        handle(mesh, &events[i]);
    }
    return n;
}

bool lnt_mesh_progress(lnt_mesh_t *mesh)
{
    return lnt_mesh_poll(mesh, 0) > 0;
}

int lnt_mesh_fd(const lnt_mesh_t *mesh)
{
    return mesh->epoll;
}

/* Everything handed to the network and, for TCP, acknowledged? A reset after close could overtake the rest. */
static bool link_delivered(const lnt_mesh_link_t *link)
{
    int unacknowledged = 0;

    if ((link->fd < 0) || link->out_dead) {
        return true;
    }
    if (lnt_mesh_link_pending(link)) {
        return false;
    }
    return link->local || (ioctl(link->fd, SIOCOUTQ, &unacknowledged) != 0) || (unacknowledged == 0);
}

/* After a failure in connect: a rank that will still dial must find an open door, or it blames this rank. */
static bool may_still_come(const lnt_mesh_t *mesh, const lnt_mesh_link_t *link)
{
    return mesh->failed && (mesh->listeners[0] >= 0) && (link->state == LNT_LINK_AWAITED) &&
           (link->peer != mesh->record.peer);
}

static bool all_delivered(const lnt_mesh_t *mesh)
{
    for (uint32_t i = 0; i < mesh->n_links; i++) {
        if (!link_delivered(&mesh->links[i]) || may_still_come(mesh, &mesh->links[i])) {
            return false;
        }
    }
    return true;
}

static void say_goodbye(lnt_mesh_t *mesh)
{
    lnt_msg_header_t header = {.kind = LNT_MSG_GOODBYE};

    for (uint32_t i = 0; i < mesh->n_links; i++) {
        lnt_mesh_link_t *link = &mesh->links[i];

        if ((link->state == LNT_LINK_UP) || (link->state == LNT_LINK_GREETING)) {
            (void)lnt_mesh_link_queue(mesh, link, &header, NULL, NULL);
        }
    }
}

static void linger(lnt_mesh_t *mesh, uint32_t linger_ms)
{
    const int nap_ms = 2; /* an acknowledgement is no event */
    uint64_t deadline = lnt_now_ns() + linger_ms * UINT64_C(1000000);

    say_goodbye(mesh);
    while (!all_delivered(mesh) && (lnt_now_ns() < deadline)) {
        (void)lnt_mesh_poll(mesh, nap_ms);
    }
}

static void close_if_open(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

void lnt_mesh_close(lnt_mesh_t *mesh, uint32_t linger_ms)
{
    if (mesh == NULL) {
        return;
    }
    mesh->closing = true;
    linger(mesh, linger_ms);
    for (uint32_t i = 0; i < mesh->n_links; i++) {
        lnt_mesh_link_close(&mesh->links[i]);
    }
    lnt_mesh_close_doors(mesh);
    close_if_open(mesh->event);
    close_if_open(mesh->epoll);
    lnt_free(mesh->links);
    lnt_free(mesh->peers);
    lnt_free(mesh);
}
