/* One lane of the ring transports: frames into the outgoing ring, frames out of the incoming one.
 *
 * Both directions work piece by piece, so a frame may be larger than its ring. What the peer writes is never trusted:
 * an impossible ring position or frame header breaks the lane and touches no memory. A broken lane stays silent; its
 * queued sends are not completed (the communicator fails, and its owner drops them).
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "../base/error.h"
#include "ring_net.h"

/* Fairness: a lane hands on to the next one after so many bytes. */
static const uint64_t budget_bytes = 4 * LNT_RING_PIECE_BYTES;

static void lane_break(lnt_transport_t *transport, lnt_lane_t *lane, const char *why)
{
    lane->broken = true;
    transport->params.sink.broken(transport->params.sink.arg, lane->peer, why);
}

/* A full eventfd counter is as good as one more ring. */
static void ring_bell(const lnt_lane_t *lane)
{
    const uint64_t one = 1;
    ssize_t written;

    do {
        written = write(lane->bell, &one, sizeof(one));
    } while ((written < 0) && (errno == EINTR));
}

static void wake_peer(const lnt_lane_t *lane)
{
    if ((atomic_load(&lane->view.page->sleeping) != 0) && (atomic_exchange(&lane->view.page->sleeping, 0) != 0)) {
        ring_bell(lane);
    }
}

static uint64_t smallest(uint64_t a, uint64_t b)
{
    return (a < b) ? a : b;
}

static bool paced(const lnt_transport_t *transport, const lnt_lane_t *lane)
{
    return lane->inter && (transport->params.pacer != NULL);
}

/* Bytes of the first queued frame that may go into the ring now; 0 = wait. */
static uint64_t may_send(lnt_transport_t *transport, lnt_lane_t *lane)
{
    uint64_t room = 0;

    if (!lnt_ring_room(&lane->out, &room)) {
        lane_break(transport, lane, "the peer's read position is impossible");
        return 0;
    }
    if (room == 0) {
        if (atomic_load_explicit(&lane->view.page->closed, memory_order_relaxed) != 0) {
            lane_break(transport, lane, "the peer closed its side before it had read everything");
        }
        return 0;
    }
    room = smallest(smallest(room, LNT_RING_PIECE_BYTES), lane->queue->bytes - lane->queue->sent);
    return paced(transport, lane) ? lnt_pacer_take(transport->params.pacer, room) : room;
}

static void finish_send(lnt_transport_t *transport, lnt_lane_t *lane)
{
    lnt_send_t *send = lane->queue;

    lane->queue = send->next;
    if (lane->queue == NULL) {
        lane->queue_end = &lane->queue;
    }
    send->next = NULL;
    lnt_transport_count(&transport->params.wire_bytes[lane->inter ? 1 : 0], send->bytes);
    transport->params.sink.sent(transport->params.sink.arg, send);
}

bool lnt_lane_push(lnt_transport_t *transport, lnt_lane_t *lane)
{
    uint64_t moved = 0;

    while ((lane->queue != NULL) && !lane->broken && (moved < budget_bytes)) {
        lnt_send_t *send = lane->queue;
        uint64_t piece = may_send(transport, lane);

        if (piece == 0) {
            break;
        }
        lnt_ring_write(&lane->out, (const unsigned char *)send->frame + send->sent, piece);
        wake_peer(lane);
        send->sent += piece;
        moved += piece;
        if (send->sent == send->bytes) {
            finish_send(transport, lane);
        }
    }
    return moved > 0;
}

/* Take up to `want` bytes that lie ready; returns how many. */
static uint64_t take(lnt_transport_t *transport, lnt_lane_t *lane, void *to, uint64_t want)
{
    uint64_t ready = 0;

    if (!lnt_ring_ready(&lane->in, &ready)) {
        lane_break(transport, lane, "the peer's write position is impossible");
        return 0;
    }
    ready = smallest(smallest(ready, LNT_RING_PIECE_BYTES), want);
    if (ready > 0) {
        lnt_ring_read(&lane->in, to, ready);
        if (lnt_ring_feed(&lane->in)) {
            wake_peer(lane);
        }
    }
    return ready;
}

static uint64_t pull_header(lnt_transport_t *transport, lnt_lane_t *lane)
{
    uint64_t got =
        take(transport, lane, (unsigned char *)&lane->header + lane->have, sizeof(lane->header) - lane->have);

    lane->have += got;
    if (lane->have == sizeof(lane->header)) {
        lane->stage = LNT_LANE_LOCATE;
        if (!lnt_frame_header_valid(&lane->header)) {
            lane_break(transport, lane, "a frame header is corrupt");
        }
    }
    return got;
}

static uint64_t body_bytes(const lnt_lane_t *lane)
{
    return (uint64_t)lane->header.payload_bytes + lane->header.section_bytes;
}

static void arrive_if_whole(lnt_transport_t *transport, lnt_lane_t *lane)
{
    if (lane->have == body_bytes(lane)) {
        lane->stage = LNT_LANE_HEADER;
        lane->have = 0;
        transport->params.sink.arrived(transport->params.sink.arg, lane->peer, &lane->header, lane->body);
    }
}

/* Ask the sink for room. Finding it counts as one byte of progress, so that an empty frame moves on, too. */
static uint64_t pull_place(lnt_transport_t *transport, lnt_lane_t *lane)
{
    void *body = NULL;
    lnt_status_t status = transport->params.sink.locate(transport->params.sink.arg, lane->peer, &lane->header, &body);

    if (status < 0) {
        lane_break(transport, lane, lnt_last_error()->cause);
    }
    if (status != LNT_OK) {
        return 0;
    }
    lane->body = body;
    lane->have = 0;
    lane->stage = LNT_LANE_BODY;
    arrive_if_whole(transport, lane);
    return 1;
}

static uint64_t pull_body(lnt_transport_t *transport, lnt_lane_t *lane)
{
    uint64_t got = take(transport, lane, lane->body + lane->have, body_bytes(lane) - lane->have);

    lane->have += got;
    if (got > 0) {
        arrive_if_whole(transport, lane);
    }
    return got;
}

bool lnt_lane_pull(lnt_transport_t *transport, lnt_lane_t *lane)
{
    static uint64_t (*const stages[])(lnt_transport_t *, lnt_lane_t *) = {
        [LNT_LANE_HEADER] = pull_header, [LNT_LANE_LOCATE] = pull_place, [LNT_LANE_BODY] = pull_body};
    uint64_t moved = 0, step = 1;

    while ((step > 0) && !lane->broken && (moved < budget_bytes)) {
        step = stages[lane->stage](transport, lane);
        moved += step;
    }
    return moved > 0;
}

/* A wait that ends by itself: not "now", and not "nobody was refused". */
static bool sleep_worthy(uint64_t wait_ns)
{
    return (wait_ns != 0) && (wait_ns != UINT64_MAX);
}

static bool push_busy(lnt_transport_t *transport, lnt_lane_t *lane)
{
    uint64_t room = 0;

    if (lane->queue == NULL) {
        return false;
    }
    if (!lnt_ring_room(&lane->out, &room)) {
        return true; /* the next progress reports it */
    }
    if (room == 0) {
        lnt_ring_starve(&lane->out);
        return !lnt_ring_room(&lane->out, &room) || (room > 0);
    }
    /* Room, and yet the frame is here: if the pacer refused, the sleeper asks it how long. */
    return !paced(transport, lane) || !sleep_worthy(lnt_pacer_wait_ns(transport->params.pacer));
}

bool lnt_lane_busy(lnt_transport_t *transport, lnt_lane_t *lane)
{
    uint64_t ready = 0;
    bool pull;

    if (lane->broken) {
        return false;
    }
    /* A frame whose place is not there yet waits for this rank's own work, not for the ring. */
    pull = (lane->stage != LNT_LANE_LOCATE) && (!lnt_ring_ready(&lane->in, &ready) || (ready > 0));
    return push_busy(transport, lane) || pull;
}
