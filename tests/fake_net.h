/* A network in memory for tests of executors: n endpoints, queues per pair, everything delivered by the test's own
 * thread in an order drawn at random. Frames may overtake each other inside a pair (executors must not care), a held
 * frame stays, sends complete some time after delivery, and the sender's memory is read only at delivery. */
#ifndef TESTS_FAKE_NET_H
#define TESTS_FAKE_NET_H

#include <stdlib.h>
#include <string.h>

#include "../src/coll/exec.h"

enum { FAKE_RANKS = 16, FAKE_QUEUE = 65536 };

typedef struct fake_item {
    lnt_send_t *send;
    uint32_t src;
    bool delivered;
} fake_item_t;

typedef struct fake_net {
    uint32_t n_ranks;
    lnt_exec_t *exec[FAKE_RANKS];
    lnt_sink_t sink[FAKE_RANKS];
    uint32_t node[FAKE_RANKS];
    uint64_t intra[FAKE_RANKS], inter[FAKE_RANKS];
    fake_item_t items[FAKE_QUEUE];
    uint32_t n_items, held;
    uint64_t random;
    bool has_failed[FAKE_RANKS];
    lnt_error_info_t record[FAKE_RANKS];
} fake_net_t;

typedef struct fake_rank {
    fake_net_t *net;
    uint32_t rank;
} fake_rank_t;

static inline uint64_t fake_random(fake_net_t *net)
{
    net->random ^= net->random << 13;
    net->random ^= net->random >> 7;
    net->random ^= net->random << 17;
    return net->random;
}

static inline void fake_send(void *arg, lnt_send_t *send)
{
    fake_rank_t *from = arg;
    fake_net_t *net = from->net;
    bool near = net->node[from->rank] == net->node[send->peer];

    if (net->n_items == FAKE_QUEUE || send->peer == from->rank) {
        abort();
    }
    (near ? net->intra : net->inter)[from->rank] += send->bytes;
    net->items[net->n_items++] = (fake_item_t){send, from->rank, false};
}

static inline void fake_wake(void *arg)
{
    (void)arg;
}

static inline void fake_fail(void *arg, const lnt_error_info_t *record)
{
    fake_rank_t *at = arg;

    at->net->has_failed[at->rank] = true;
    at->net->record[at->rank] = *record;
}

/* One random step: deliver a frame or complete a send. False: nothing can move. */
static inline bool fake_step(fake_net_t *net)
{
    uint32_t first = net->n_items == 0 ? 0 : (uint32_t)(fake_random(net) % net->n_items);

    for (uint32_t k = 0; k < net->n_items; k++) {
        uint32_t i = (first + k) % net->n_items;
        fake_item_t *item = &net->items[i];

        if (item->delivered) {
            fake_item_t done = *item;

            *item = net->items[--net->n_items];
            net->sink[done.src].sent(net->sink[done.src].arg, done.send);
            return true;
        }
        lnt_sink_t *sink = &net->sink[item->send->peer];
        lnt_frame_header_t header;
        void *body = NULL;
        lnt_status_t status;

        memcpy(&header, item->send->frame, sizeof(header));
        status = sink->locate(sink->arg, item->src, &header, &body);
        if (status != LNT_OK) {
            net->held++;
            continue;
        }
        memcpy(body, (const uint8_t *)item->send->frame + LNT_FRAME_HEADER_BYTES,
               item->send->bytes - LNT_FRAME_HEADER_BYTES);
        item->delivered = true;
        sink->arrived(sink->arg, item->src, &header, body);
        return true;
    }
    return false;
}

#endif
