/* A byte ring with one producer and one consumer, in memory that both can see (one process or two).
 *
 * Positions count bytes for ever and are masked on use. Each side keeps its own position privately and only publishes
 * it, so the other side can at worst stop the traffic: a published position that is impossible is reported, never used.
 * Publishing and looking are sequentially consistent: "publish, then look whether the other sleeps" on one side and
 * "announce sleep, then look again" on the other cannot miss each other.
 */
#ifndef LNT_TRANSPORT_RING_H
#define LNT_TRANSPORT_RING_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LNT_CACHE_LINE = 64 };

/* In shared memory, all zero at first; `capacity` bytes of data follow. */
typedef struct lnt_ring {
    alignas(LNT_CACHE_LINE) _Atomic uint64_t head;    /* bytes written, by the producer */
    alignas(LNT_CACHE_LINE) _Atomic uint64_t tail;    /* bytes read, by the consumer */
    alignas(LNT_CACHE_LINE) _Atomic uint32_t starved; /* the producer sleeps until there is room */
    alignas(LNT_CACHE_LINE) unsigned char data[];
} lnt_ring_t;

typedef struct lnt_ring_writer {
    lnt_ring_t *ring;
    uint64_t capacity; /* a power of two */
    uint64_t head, seen_tail;
} lnt_ring_writer_t;

typedef struct lnt_ring_reader {
    lnt_ring_t *ring;
    uint64_t capacity;
    uint64_t tail, seen_head;
} lnt_ring_reader_t;

/* Smallest power of two >= bytes, within the limits of a ring. */
uint64_t lnt_ring_capacity(uint64_t bytes);
size_t lnt_ring_footprint(uint64_t capacity);

void lnt_ring_writer_init(lnt_ring_writer_t *writer, lnt_ring_t *ring, uint64_t capacity);
void lnt_ring_reader_init(lnt_ring_reader_t *reader, lnt_ring_t *ring, uint64_t capacity);

/* Room for new bytes; false when the consumer's position is impossible. */
bool lnt_ring_room(lnt_ring_writer_t *writer, uint64_t *room_p);
/* Copy and publish; bytes <= room. */
void lnt_ring_write(lnt_ring_writer_t *writer, const void *bytes, uint64_t count);

/* Bytes to read; false when the producer's position is impossible. */
bool lnt_ring_ready(lnt_ring_reader_t *reader, uint64_t *ready_p);
/* Copy and free; count <= ready. */
void lnt_ring_read(lnt_ring_reader_t *reader, void *bytes, uint64_t count);

/* Producer: ask to be woken when there is room again. Consumer: true when the producer asked and half of the ring is
 * free (or more), and withdraws the wish. */
void lnt_ring_starve(lnt_ring_writer_t *writer);
bool lnt_ring_feed(lnt_ring_reader_t *reader);

#endif
