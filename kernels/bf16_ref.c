/* bf16 and bf16_sr, reference loops: one format, rounded to nearest even or by chance (half_ref.h). */
#include "bf16_math.h"
#include "half_ref.h"

static void bf16_strip(const lnt_chunk_t *chunk, size_t i, uint16_t *restrict codes)
{
    for (size_t k = 0; k < LNT_PAD; k++)
        codes[k] = lnt_bf16_code(chunk->a[i + k]);
}

static void bf16_sr_strip(const lnt_chunk_t *chunk, size_t i, uint16_t *restrict codes)
{
    alignas(64) uint32_t random[LNT_PAD];
    lnt_half_chance(chunk, i, random);
    for (size_t k = 0; k < LNT_PAD; k++)
        codes[k] = lnt_bf16_code_by_chance(chunk->a[i + k], random[k]);
}

LNT_HALF_LOOPS(bf16, bf16, LNT_BF16_INF);
LNT_HALF_LOOPS(bf16_sr, bf16, LNT_BF16_INF);
