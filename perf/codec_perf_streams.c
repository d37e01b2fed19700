/* The third yardstick: the arrays of the case itself, read and written together in one loop that does next to nothing
 * else. What memory gives at most for an operation that touches just these; a += b has two arrays, in place.
 *
 * It works on the second arena, where the arrays lie as they do in the first. What is written and not read goes around
 * the caches if the operation is told to. Arrays of less than a bit per element, which is the scales, are left out.
 */
#include "codec_perf.h"

enum { STEP = 256, WIDE = 32, WORD = 8 }; /* elements of a step; bytes of a vector and of what is left */

typedef enum stream_kind { STREAM_READ, STREAM_UPDATE, STREAM_WRITE, STREAM_AROUND } stream_kind_t;

typedef struct stream {
    uint8_t *at;
    uint64_t bytes; /* of a step */
    stream_kind_t kind;
} stream_t;

typedef uint64_t wide_t __attribute__((vector_size(WIDE), aligned(WORD), may_alias));
typedef uint64_t word_t __attribute__((aligned(1), may_alias));

#if defined(__x86_64__)
#include <immintrin.h>
#define WIDEST __attribute__((target("avx2")))
WIDEST static void store_around(wide_t *to, wide_t x)
{
    _mm256_stream_si256((__m256i *)(void *)to, (__m256i)x);
}
static bool usable(void)
{
    return __builtin_cpu_supports("avx2");
}
#else
#define WIDEST
static void store_around(wide_t *to, wide_t x)
{
    *to = x;
}
static bool usable(void)
{
    return true;
}
#endif

/* Element by element all streams would be read and written together; a step of each in turn is as good, and leaves a
 * loop of vectors. What is stored depends on what was loaded, so nothing can be left out. */
#define TOUCH(_kind, _do)                                                                                              \
    if (stream->kind == (_kind)) {                                                                                     \
        for (; i + 4 * WIDE <= stream->bytes; i += 4 * WIDE) {                                                         \
            for (int k = 0; k < 4; k++) {                                                                              \
                wide_t *to = (wide_t *)(void *)(at + i + k * WIDE);                                                    \
                _do;                                                                                                   \
            }                                                                                                          \
        }                                                                                                              \
    }

WIDEST static wide_t touch(const stream_t *stream, uint64_t step, wide_t all)
{
    uint8_t *at = stream->at + step * stream->bytes;
    uint64_t i = 0;

    TOUCH(STREAM_READ, all ^= *to)
    TOUCH(STREAM_UPDATE, *to ^= all)
    TOUCH(STREAM_WRITE, *to = all)
    TOUCH(STREAM_AROUND, store_around(to, all))
    for (; i + WORD <= stream->bytes; i += WORD) {
        if (stream->kind == STREAM_READ)
            all[0] ^= *(const word_t *)(const void *)(at + i);
        else
            *(word_t *)(void *)(at + i) = all[0];
    }
    return all;
}

static uint32_t streams_of(const codec_case_t *test, const codec_part_t *part, stream_t streams[ARRAYS])
{
    uint32_t n_streams = 0;

    for (codec_array_t id = 0; id < ARRAYS; id++) {
        const bool reads = test->op->reads >> id & 1u, writes = test->op->writes >> id & 1u;
        const uint64_t bytes = test->array_bytes[id] * STEP / test->n / WORD * WORD;

        if (bytes == 0) continue;
        streams[n_streams++] =
            (stream_t){.at = test->yard + (test->array[id] - test->arena) + part->first / STEP * bytes,
                       .bytes = bytes,
                       .kind = reads && writes                                 ? STREAM_UPDATE
                               : reads                                         ? STREAM_READ
                               : test->stream && bytes >= STEP * sizeof(float) ? STREAM_AROUND
                                                                               : STREAM_WRITE};
    }
    return n_streams;
}

WIDEST static void run_streams(const codec_case_t *test, const codec_lane_t *lane, const codec_part_t *part)
{
    stream_t streams[ARRAYS];
    const uint32_t n_streams = streams_of(test, part, streams);
    wide_t all = {0};

    (void)lane;
    for (uint64_t step = 0; step < part->n / STEP; step++) {
        for (uint32_t i = 0; i < n_streams; i++)
            all = touch(&streams[i], step, all);
    }
    streams[0].at[0] ^= (uint8_t)(all[0] ^ all[1] ^ all[2] ^ all[3]);
}

codec_lane_t codec_streams_lane(const codec_case_t *test)
{
    return (codec_lane_t){.name = "streams",
                          .run = usable() && test->n >= STEP ? run_streams : NULL,
                          .n = test->n,
                          .unit = 1024,
                          .counted_bytes = codec_counted_bytes(test)};
}
