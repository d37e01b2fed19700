/* The byte ring of ring.h: copying in and out around the end, publishing positions, and nothing else. */
#include "ring.h"

#include <string.h>

static const uint64_t capacity_min = UINT64_C(1) << 12;
static const uint64_t capacity_max = UINT64_C(1) << 30;

uint64_t lnt_ring_capacity(uint64_t bytes)
{
    uint64_t capacity = capacity_min;

    while ((capacity < bytes) && (capacity < capacity_max)) {
        capacity *= 2;
    }
    return capacity;
}

size_t lnt_ring_footprint(uint64_t capacity)
{
    return offsetof(lnt_ring_t, data) + (size_t)capacity;
}

void lnt_ring_writer_init(lnt_ring_writer_t *writer, lnt_ring_t *ring, uint64_t capacity)
{
    *writer = (lnt_ring_writer_t){.ring = ring, .capacity = capacity};
}

void lnt_ring_reader_init(lnt_ring_reader_t *reader, lnt_ring_t *ring, uint64_t capacity)
{
    *reader = (lnt_ring_reader_t){.ring = ring, .capacity = capacity};
}

bool lnt_ring_room(lnt_ring_writer_t *writer, uint64_t *room_p)
{
    uint64_t tail = atomic_load(&writer->ring->tail);

    /* The tail only grows, and not past what was written. */
    if ((tail - writer->seen_tail) > (writer->head - writer->seen_tail)) {
        return false;
    }
    writer->seen_tail = tail;
    *room_p = writer->capacity - (writer->head - tail);
    return true;
}

void lnt_ring_write(lnt_ring_writer_t *writer, const void *bytes, uint64_t count)
{
    uint64_t at = writer->head & (writer->capacity - 1);
    uint64_t until_end = writer->capacity - at;
    uint64_t first = (count < until_end) ? count : until_end;

    memcpy(writer->ring->data + at, bytes, first);
    memcpy(writer->ring->data, (const unsigned char *)bytes + first, count - first);
    writer->head += count;
    atomic_store(&writer->ring->head, writer->head);
}

bool lnt_ring_ready(lnt_ring_reader_t *reader, uint64_t *ready_p)
{
    uint64_t head = atomic_load(&reader->ring->head);

    /* The head only grows, and not past a full ring. */
    if ((head - reader->tail > reader->capacity) || (head - reader->tail < reader->seen_head - reader->tail)) {
        return false;
    }
    reader->seen_head = head;
    *ready_p = head - reader->tail;
    return true;
}

void lnt_ring_read(lnt_ring_reader_t *reader, void *bytes, uint64_t count)
{
    uint64_t at = reader->tail & (reader->capacity - 1);
    uint64_t until_end = reader->capacity - at;
    uint64_t first = (count < until_end) ? count : until_end;

    memcpy(bytes, reader->ring->data + at, first);
    memcpy((unsigned char *)bytes + first, reader->ring->data, count - first);
    reader->tail += count;
    atomic_store(&reader->ring->tail, reader->tail);
}

void lnt_ring_starve(lnt_ring_writer_t *writer)
{
    atomic_store(&writer->ring->starved, 1);
}

bool lnt_ring_feed(lnt_ring_reader_t *reader)
{
    uint64_t used = reader->seen_head - reader->tail;

    /* A wish that is withdrawn too early is repeated by the producer before it sleeps again. */
    if ((atomic_load(&reader->ring->starved) == 0) || (used > reader->capacity / 2)) {
        return false;
    }
    return atomic_exchange(&reader->ring->starved, 0) != 0;
}
