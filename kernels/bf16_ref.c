/* bf16, reference loops: round every element to its upper half. No scales; blocks matter for the report of poison only.
 */
#include <stdalign.h>

#include "bf16_math.h"
#include "block_ref.h"

enum { STRIP = LNT_PAD };

static bool bf16_overflows(const lnt_chunk_t *chunk)
{
    uint32_t any = 0;
    for (size_t i = 0; i < chunk->n; i += STRIP)
        for (size_t k = 0; k < STRIP; k++)
            any |= lnt_bf16_overflow_bit(chunk->a[i + k]);
    return any >> 31;
}

static void bf16_code(const lnt_chunk_t *chunk, float scale, uint8_t *restrict codes, float *restrict error)
{
    (void)scale;
    const float *restrict a = chunk->a;
    alignas(64) uint16_t strip[STRIP];
    for (size_t i = 0; i < chunk->n; i += STRIP) {
        for (size_t k = 0; k < STRIP; k++) {
            strip[k] = lnt_bf16_code(a[i + k]);
            error[i + k] = a[i + k] - lnt_bf16_value(strip[k]);
        }
        memcpy(codes + 2 * i, strip, sizeof(strip));
    }
}

static void bf16_decode(const uint8_t *restrict codes, size_t n, const uint8_t *live, float scale,
                        float *restrict values)
{
    (void)live;
    (void)scale;
    alignas(64) uint16_t halves[LNT_CHUNK + LNT_PAD] = {0};
    memcpy(halves, codes, n * sizeof(*halves));
    for (size_t i = 0; i < n; i += STRIP)
        for (size_t k = 0; k < STRIP; k++)
            values[i + k] = lnt_bf16_value(halves[i + k]);
}

static const lnt_ref_loops_t bf16_loops = {
    .bits = 16, .overflows = bf16_overflows, .code = bf16_code, .decode = bf16_decode};

LNT_REF_OPS(bf16);
