/* bf16, reference loops: round every element to its upper half. No scales; blocks matter for the report of poison only.
 */
#include <stdalign.h>

#include "bf16_math.h"
#include "block_ref.h"

enum { STRIP = LNT_PAD };

static bool bf16_overflows(const float *a, size_t n)
{
    uint32_t any = 0;
    for (size_t i = 0; i < n; i += STRIP)
        for (size_t k = 0; k < STRIP; k++)
            any |= lnt_bf16_overflow_bit(a[i + k]);
    return any >> 31;
}

static void bf16_code(const float *restrict a, size_t n, float scale, uint8_t *restrict codes, float *restrict error)
{
    (void)scale;
    alignas(64) uint16_t strip[STRIP];
    for (size_t i = 0; i < n; i += STRIP) {
        for (size_t k = 0; k < STRIP; k++) {
            strip[k] = lnt_bf16_code(a[i + k]);
            error[i + k] = a[i + k] - lnt_bf16_value(strip[k]);
        }
        memcpy(codes + 2 * i, strip, sizeof(strip));
    }
}

static void bf16_decode(const uint8_t *restrict codes, size_t n, float scale, float *restrict values)
{
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
