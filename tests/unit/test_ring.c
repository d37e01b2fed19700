/* The byte ring alone: random pieces against the stream they were cut from, the ends of the ring, positions a broken
 * peer might publish, and two threads. */
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "../../src/base/memory.h"
#include "../../src/transport/frame.h"
#include "../../src/transport/ring.h"
#include "../testing.h"

static lnt_ring_t *make_ring(uint64_t capacity)
{
    lnt_ring_t *ring = lnt_alloc_aligned(lnt_ring_footprint(capacity), "ring");

    ck_assert_ptr_nonnull(ring);
    return ring;
}

/* Byte number n of the stream. */
static unsigned char stream_byte(uint64_t n)
{
    return (unsigned char)((n * UINT64_C(0x9e3779b97f4a7c15)) >> 56);
}

START_TEST(capacity_is_a_power_of_two)
{
    ck_assert_uint_eq(lnt_ring_capacity(0), 4096);
    ck_assert_uint_eq(lnt_ring_capacity(4097), 8192);
    ck_assert_uint_eq(lnt_ring_capacity(1 << 20), 1 << 20);
    ck_assert_uint_eq(lnt_ring_capacity(UINT64_MAX), UINT64_C(1) << 30);
}
END_TEST

START_TEST(random_pieces_keep_the_stream)
{
    const uint64_t capacity = 4096, total = 300000;
    lnt_ring_t *ring = make_ring(capacity);
    lnt_ring_writer_t writer;
    lnt_ring_reader_t reader;
    unsigned char piece[4096];
    uint64_t written = 0, read = 0, wrong = 0;

    lnt_ring_writer_init(&writer, ring, capacity);
    lnt_ring_reader_init(&reader, ring, capacity);
    while (read < total) {
        uint64_t room, ready, n;

        ck_assert(lnt_ring_room(&writer, &room));
        ck_assert_uint_eq(room, capacity - (written - read));
        n = test_random_below((room < total - written ? room : total - written) + 1);
        for (uint64_t i = 0; i < n; i++) {
            piece[i] = stream_byte(written + i);
        }
        lnt_ring_write(&writer, piece, n);
        written += n;
        ck_assert(lnt_ring_ready(&reader, &ready));
        ck_assert_uint_eq(ready, written - read);
        n = test_random_below(ready + 1);
        lnt_ring_read(&reader, piece, n);
        for (uint64_t i = 0; i < n; i++) {
            wrong += piece[i] != stream_byte(read + i);
        }
        read += n;
    }
    ck_assert_uint_eq(wrong, 0);
    lnt_free(ring);
}
END_TEST

START_TEST(impossible_positions_are_reported)
{
    lnt_ring_t *ring = make_ring(4096);
    lnt_ring_writer_t writer;
    lnt_ring_reader_t reader;
    unsigned char bytes[100] = {0};
    uint64_t n;

    lnt_ring_writer_init(&writer, ring, 4096);
    lnt_ring_reader_init(&reader, ring, 4096);
    lnt_ring_write(&writer, bytes, 100);
    ck_assert(lnt_ring_ready(&reader, &n));
    atomic_store(&ring->head, 50); /* went back */
    ck_assert(!lnt_ring_ready(&reader, &n));
    atomic_store(&ring->head, 4097); /* more than fits */
    ck_assert(!lnt_ring_ready(&reader, &n));
    atomic_store(&ring->head, UINT64_MAX);
    ck_assert(!lnt_ring_ready(&reader, &n));
    atomic_store(&ring->tail, 101); /* read what was never written */
    ck_assert(!lnt_ring_room(&writer, &n));
    atomic_store(&ring->tail, 60);
    ck_assert(lnt_ring_room(&writer, &n));
    atomic_store(&ring->tail, 59); /* went back */
    ck_assert(!lnt_ring_room(&writer, &n));
    lnt_free(ring);
}
END_TEST

START_TEST(a_starved_producer_is_fed_once_half_is_free)
{
    lnt_ring_t *ring = make_ring(4096);
    lnt_ring_writer_t writer;
    lnt_ring_reader_t reader;
    unsigned char bytes[4096] = {0};
    uint64_t n;

    lnt_ring_writer_init(&writer, ring, 4096);
    lnt_ring_reader_init(&reader, ring, 4096);
    lnt_ring_write(&writer, bytes, 4096);
    ck_assert(lnt_ring_ready(&reader, &n));
    lnt_ring_read(&reader, bytes, 4000);
    ck_assert(!lnt_ring_feed(&reader)); /* nobody asked */
    lnt_ring_read(&reader, bytes, 96);
    ck_assert(lnt_ring_room(&writer, &n));
    lnt_ring_write(&writer, bytes, 4096);
    lnt_ring_starve(&writer);
    ck_assert(lnt_ring_ready(&reader, &n));
    lnt_ring_read(&reader, bytes, 2047);
    ck_assert(!lnt_ring_feed(&reader));
    lnt_ring_read(&reader, bytes, 1);
    ck_assert(lnt_ring_feed(&reader));
    ck_assert(!lnt_ring_feed(&reader));
    lnt_free(ring);
}
END_TEST

enum { THREAD_TOTAL = 600000 };

static void *produce(void *arg)
{
    lnt_ring_writer_t writer;
    unsigned char piece[1000];
    uint64_t written = 0;

    lnt_ring_writer_init(&writer, arg, 4096);
    while (written < THREAD_TOTAL) {
        uint64_t room, n;

        if (!lnt_ring_room(&writer, &room)) {
            return NULL;
        }
        n = (written * 7919) % 1000 + 1;
        n = (n < room) ? n : room;
        n = (n < THREAD_TOTAL - written) ? n : THREAD_TOTAL - written;
        for (uint64_t i = 0; i < n; i++) {
            piece[i] = stream_byte(written + i);
        }
        lnt_ring_write(&writer, piece, n);
        written += n;
        if (n == 0) {
            sched_yield();
        }
    }
    return arg;
}

START_TEST(two_threads)
{
    lnt_ring_t *ring = make_ring(4096);
    lnt_ring_reader_t reader;
    unsigned char piece[777];
    uint64_t read = 0, wrong = 0;
    pthread_t thread;
    void *result;

    lnt_ring_reader_init(&reader, ring, 4096);
    ck_assert_int_eq(pthread_create(&thread, NULL, produce, ring), 0);
    while (read < THREAD_TOTAL) {
        uint64_t ready;

        if (!lnt_ring_ready(&reader, &ready)) { /* asserts in a loop are slow */
            wrong++;
            break;
        }
        ready = (ready < sizeof(piece)) ? ready : sizeof(piece);
        lnt_ring_read(&reader, piece, ready);
        for (uint64_t i = 0; i < ready; i++) {
            wrong += piece[i] != stream_byte(read + i);
        }
        read += ready;
        if (ready == 0) {
            sched_yield();
        }
    }
    pthread_join(thread, &result);
    ck_assert_ptr_nonnull(result);
    ck_assert_uint_eq(wrong, 0);
    lnt_free(ring);
}
END_TEST

START_TEST(frame_headers)
{
    const lnt_frame_header_t good = {.magic = LNT_FRAME_MAGIC,
                                     .version = LNT_FRAME_VERSION,
                                     .phase = 3,
                                     .flags = 3,
                                     .payload_bytes = INT32_MAX,
                                     .section_bytes = INT32_MAX};
    lnt_frame_header_t bad[7];

    ck_assert(lnt_frame_header_valid(&good));
    for (size_t i = 0; i < 7; i++) {
        bad[i] = good;
    }
    bad[0].magic ^= 1;
    bad[1].version++;
    bad[2].phase = 4;
    bad[3].flags = 4;
    bad[4].reserved = 1;
    bad[5].payload_bytes++;
    bad[6].section_bytes++;
    for (size_t i = 0; i < 7; i++) {
        ck_assert_msg(!lnt_frame_header_valid(&bad[i]), "header %zu", i);
    }
}
END_TEST

static Suite *ring_suite(void)
{
    Suite *suite = suite_create("ring");
    TCase *tcase = tcase_create("ring");

    tcase_add_test(tcase, capacity_is_a_power_of_two);
    tcase_add_test(tcase, random_pieces_keep_the_stream);
    tcase_add_test(tcase, impossible_positions_are_reported);
    tcase_add_test(tcase, a_starved_producer_is_fed_once_half_is_free);
    tcase_add_test(tcase, two_threads);
    tcase_add_test(tcase, frame_headers);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return test_main(ring_suite());
}
