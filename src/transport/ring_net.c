/* The ring transport as a whole: areas and lanes at set-up, the walk over the lanes afterwards, the sleeping protocol.
 *
 * Sleeping: arm() publishes "this rank sleeps" and then looks at every lane once more; a peer publishes data (or room)
 * and then looks whether this rank sleeps. One of the two sees the other. After close a peer may still hold the area:
 * the memory table sees to it that it stays mapped there.
 */
#include "ring_net.h"

#include <string.h>
#include <unistd.h>

#include "../base/error.h"
#include "../base/memory.h"

/* Set-up blob, little-endian like everything else. */
typedef struct ring_offer {
    uint32_t magic, memory_bytes;
    uint64_t capacity;
    uint8_t memory[LNT_RING_BLOB_BYTES];
} ring_offer_t;

static const uint32_t offer_magic = 0x31474e52; /* "RNG1" */

static size_t ring_stride(uint64_t capacity)
{
    return (lnt_ring_footprint(capacity) + LNT_RING_PAGE_BYTES - 1) / LNT_RING_PAGE_BYTES * LNT_RING_PAGE_BYTES;
}

static size_t ring_offset(const lnt_transport_t *transport, uint32_t lane)
{
    return LNT_RING_PAGE_BYTES + lane * ring_stride(transport->capacity);
}

static void lane_init(lnt_transport_t *transport, uint32_t index, uint32_t peer)
{
    lnt_lane_t *lane = &transport->lanes[index];

    lane->peer = peer;
    lane->inter = transport->params.is_inter[peer] != 0;
    lane->bell = -1;
    lane->queue_end = &lane->queue;
    lnt_ring_reader_init(&lane->in,
                         (lnt_ring_t *)((unsigned char *)transport->area.base + ring_offset(transport, index)),
                         transport->capacity);
}

static uint32_t count_lanes(const lnt_transport_params_t *params)
{
    uint32_t n = 0;

    for (uint32_t peer = 0; peer < params->n_ranks; peer++) {
        n += (params->use[peer] != 0);
    }
    return n;
}

static void assign_lanes(lnt_transport_t *transport)
{
    uint32_t next = 0;

    for (uint32_t peer = 0; peer < transport->params.n_ranks; peer++) {
        transport->lane_of[peer] = transport->n_lanes;
        if (transport->params.use[peer] != 0) {
            transport->lane_of[peer] = next;
            lane_init(transport, next++, peer);
        }
    }
}

lnt_status_t lnt_ring_net_open(const lnt_transport_params_t *params, const lnt_ring_memory_t *memory,
                               lnt_transport_t **transport_p)
{
    lnt_transport_t *transport;
    lnt_status_t status = LNT_ERR_NO_MEMORY;

    transport = lnt_calloc(1, sizeof(*transport), "ring transport");
    if (transport == NULL) {
        return LNT_ERR_NO_MEMORY;
    }
    transport->params = *params;
    transport->memory = memory;
    transport->capacity = lnt_ring_capacity(params->ring_bytes);
    transport->n_lanes = count_lanes(params);
    transport->lanes = lnt_calloc(transport->n_lanes, sizeof(*transport->lanes), "ring lanes");
    if (transport->lanes == NULL) {
        goto err_free;
    }
    transport->lane_of = lnt_calloc(params->n_ranks, sizeof(*transport->lane_of), "ring lane index");
    if (transport->lane_of == NULL) {
        goto err_free_lanes;
    }
    LNT_TRY_GOTO(status, memory->create(ring_offset(transport, transport->n_lanes), &transport->area), err_free_index);
    transport->page = transport->area.base;
    assign_lanes(transport);
    *transport_p = transport;
    return LNT_OK;

err_free_index:
    lnt_free(transport->lane_of);
err_free_lanes:
    lnt_free(transport->lanes);
err_free:
    lnt_free(transport);
    return status;
}

lnt_status_t lnt_ring_net_offer(lnt_transport_t *transport, uint32_t peer, void *buffer, size_t *bytes_p, int *fds,
                                size_t *n_fds_p)
{
    uint32_t lane = transport->lane_of[peer];
    ring_offer_t offer = {.magic = offer_magic, .capacity = transport->capacity};
    size_t bytes = 0;
    int fd = -1;

    LNT_TRY(transport->memory->show(&transport->area, ring_offset(transport, lane), offer.memory, &bytes, &fd));
    offer.memory_bytes = (uint32_t)bytes;
    memcpy(buffer, &offer, sizeof(offer));
    *bytes_p = sizeof(offer);
    fds[0] = transport->params.doorbell;
    fds[1] = fd;
    *n_fds_p = (fd >= 0) ? 2 : 1;
    return LNT_OK;
}

static bool offer_sane(const ring_offer_t *offer)
{
    return (offer->magic == offer_magic) && (offer->memory_bytes <= LNT_RING_BLOB_BYTES) &&
           (offer->capacity == lnt_ring_capacity(offer->capacity));
}

static void close_fds(const int *fds, size_t n_fds)
{
    for (size_t i = 0; i < n_fds; i++) {
        close(fds[i]);
    }
}

lnt_status_t lnt_ring_net_accept(lnt_transport_t *transport, uint32_t peer, const void *buffer, size_t bytes,
                                 const int *fds, size_t n_fds)
{
    lnt_lane_t *lane = &transport->lanes[transport->lane_of[peer]];
    ring_offer_t offer = {0};
    lnt_status_t status;

    if (bytes == sizeof(offer)) {
        memcpy(&offer, buffer, sizeof(offer));
    }
    if (!offer_sane(&offer) || (n_fds < 1) || (n_fds > 2) || lane->up) {
        close_fds(fds, n_fds);
        return lnt_error(LNT_ERR_TRANSPORT, "use the same library on all ranks",
                         "%s: the set-up message of rank %u is malformed", transport->memory->name, peer);
    }
    status = transport->memory->attach(offer.memory, offer.memory_bytes, (n_fds == 2) ? fds[1] : -1,
                                       lnt_ring_footprint(offer.capacity), &lane->view);
    if (status < 0) {
        close(fds[0]);
        return status;
    }
    lane->bell = fds[0];
    lnt_ring_writer_init(&lane->out, lane->view.ring, offer.capacity);
    lane->up = true;
    return LNT_OK;
}

void lnt_ring_net_send(lnt_transport_t *transport, lnt_send_t *send)
{
    lnt_lane_t *lane = &transport->lanes[transport->lane_of[send->peer]];

    send->next = NULL;
    send->sent = 0;
    *lane->queue_end = send;
    lane->queue_end = &send->next;
}

bool lnt_ring_net_progress(lnt_transport_t *transport)
{
    bool moved = false;

    for (uint32_t i = 0; i < transport->n_lanes; i++) {
        lnt_lane_t *lane = &transport->lanes[i];

        if (lane->up && !lane->broken) {
            moved |= lnt_lane_pull(transport, lane);
            moved |= lnt_lane_push(transport, lane);
        }
    }
    return moved;
}

bool lnt_ring_net_arm(lnt_transport_t *transport)
{
    bool busy = false;

    atomic_store(&transport->page->sleeping, 1);
    for (uint32_t i = 0; i < transport->n_lanes; i++) {
        busy |= transport->lanes[i].up && lnt_lane_busy(transport, &transport->lanes[i]);
    }
    if (busy) {
        lnt_ring_net_disarm(transport);
    }
    return !busy;
}

void lnt_ring_net_disarm(lnt_transport_t *transport)
{
    atomic_store(&transport->page->sleeping, 0);
}

int lnt_ring_net_event_fd(lnt_transport_t *transport)
{
    (void)transport; /* peers ring the rank's doorbell */
    return -1;
}

static void lane_close(lnt_transport_t *transport, lnt_lane_t *lane)
{
    if (lane->up) {
        transport->memory->detach(&lane->view);
        close(lane->bell);
    }
}

void lnt_ring_net_close(lnt_transport_t *transport)
{
    if (transport == NULL) {
        return;
    }
    atomic_store(&transport->page->closed, 1);
    for (uint32_t i = 0; i < transport->n_lanes; i++) {
        lane_close(transport, &transport->lanes[i]);
    }
    transport->memory->destroy(&transport->area);
    lnt_free(transport->lane_of);
    lnt_free(transport->lanes);
    lnt_free(transport);
}
