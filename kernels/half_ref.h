/* Loops of the 16-bit formats: round every element, by a rule of the codec's own. No scales; blocks matter for the
 * report of poison only.
 *
 * A codec brings <codec>_strip, which codes LNT_PAD elements of a chunk from element i on, and its format, whose header
 * has lnt_<format>_value and LNT_<FORMAT>_INF, the code of +Inf.
 */
#ifndef LNT_HALF_REF_H
#define LNT_HALF_REF_H

#include <stdalign.h>

#include "block_ref.h"
#include "chance_math.h"

/* The random numbers of a strip; those whose indices share their upper half share a key. */
static inline void lnt_half_chance(const lnt_chunk_t *chunk, size_t i, uint32_t *restrict random)
{
    for (size_t k = 0; k < LNT_PAD;) {
        uint64_t index = chunk->index + i + k, left = (UINT64_C(1) << 32) - (uint32_t)index;
        size_t end = left < LNT_PAD - k ? k + (size_t)left : LNT_PAD;
        lnt_chance_key_t key = lnt_chance_key(chunk->seed, index);
        for (uint32_t low = (uint32_t)index; k < end; k++, low++)
            random[k] = lnt_chance_u32(key, low);
    }
}

#define LNT_HALF_LOOPS(_codec, _format, _inf)                                                                          \
    static bool _codec##_overflows(const lnt_chunk_t *chunk)                                                           \
    {                                                                                                                  \
        alignas(64) uint16_t strip[LNT_PAD];                                                                           \
        uint32_t any = 0;                                                                                              \
        for (size_t i = 0; i < chunk->n; i += LNT_PAD) {                                                               \
            _codec##_strip(chunk, i, strip);                                                                           \
            for (size_t k = 0; k < LNT_PAD; k++)                                                                       \
                any |= (strip[k] & 0x7fffu) + (0x8000u - _inf);                                                        \
        }                                                                                                              \
        return (any >> 15) & 1;                                                                                        \
    }                                                                                                                  \
    static void _codec##_code(const lnt_chunk_t *chunk, float scale, uint8_t *restrict codes, float *restrict error)   \
    {                                                                                                                  \
        (void)scale;                                                                                                   \
        alignas(64) uint16_t strip[LNT_PAD];                                                                           \
        for (size_t i = 0; i < chunk->n; i += LNT_PAD) {                                                               \
            _codec##_strip(chunk, i, strip);                                                                           \
            for (size_t k = 0; k < LNT_PAD; k++)                                                                       \
                error[i + k] = chunk->a[i + k] - lnt_##_format##_value(strip[k]);                                      \
            memcpy(codes + 2 * i, strip, sizeof(strip));                                                               \
        }                                                                                                              \
    }                                                                                                                  \
    static void _codec##_decode(const uint8_t *restrict codes, size_t n, const uint8_t *live, float scale,             \
                                float *restrict values)                                                                \
    {                                                                                                                  \
        (void)live;                                                                                                    \
        (void)scale;                                                                                                   \
        alignas(64) uint16_t halves[LNT_CHUNK + LNT_PAD] = {0};                                                        \
        memcpy(halves, codes, n * sizeof(*halves));                                                                    \
        for (size_t i = 0; i < n; i += LNT_PAD)                                                                        \
            for (size_t k = 0; k < LNT_PAD; k++)                                                                       \
                values[i + k] = lnt_##_format##_value(halves[i + k]);                                                  \
    }                                                                                                                  \
    static const lnt_ref_loops_t _codec##_loops = {                                                                    \
        .bits = 16, .overflows = _codec##_overflows, .code = _codec##_code, .decode = _codec##_decode};                \
    LNT_REF_OPS(_codec)

#endif
