/* f16 and f16_sr, reference loops: one format, rounded to nearest even or by chance (half_ref.h). */
#include "f16_math.h"
#include "half_ref.h"

static void f16_strip(const lnt_chunk_t *chunk, size_t i, uint16_t *restrict codes)
{
    for (size_t k = 0; k < LNT_PAD; k++)
        codes[k] = lnt_f16_code(chunk->a[i + k]);
}

static void f16_sr_strip(const lnt_chunk_t *chunk, size_t i, uint16_t *restrict codes)
{
    alignas(64) uint32_t random[LNT_PAD];
    lnt_half_chance(chunk, i, random);
    for (size_t k = 0; k < LNT_PAD; k++)
        codes[k] = lnt_f16_code_by_chance(chunk->a[i + k], random[k]);
}

LNT_HALF_LOOPS(f16, f16, LNT_F16_INF);
LNT_HALF_LOOPS(f16_sr, f16, LNT_F16_INF);
