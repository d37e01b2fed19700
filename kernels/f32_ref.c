/* f32, reference loops: the value is the code. Exists so that uncompressed lanes take the same path as coded ones. */
#include <string.h>

#include "block_ref.h"

static void f32_code(const lnt_chunk_t *chunk, float scale, uint8_t *restrict codes, float *restrict error)
{
    (void)scale;
    memcpy(codes, chunk->a, chunk->n * sizeof(*chunk->a));
    memset(error, 0, chunk->n * sizeof(*error));
}

static void f32_decode(const uint8_t *restrict codes, size_t n, const uint8_t *live, float scale,
                       float *restrict values)
{
    (void)live;
    (void)scale;
    memcpy(values, codes, n * sizeof(*values));
}

static const lnt_ref_loops_t f32_loops = {.bits = 32, .code = f32_code, .decode = f32_decode};

LNT_REF_OPS(f32);
