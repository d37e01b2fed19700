/* int4 and int4_hadamard, reference loops (intq_ref.h): two codes to a byte, of values as they are or of groups of 32
 * that were rotated before (hadamard_math.h). Chunks, like pieces, start on whole groups.
 */
#include "hadamard_math.h"
#include "intq_ref.h"

enum { BYTES = LNT_PAD / 2 /* of a strip */, GROUP = LNT_HADAMARD_GROUP };

static void pack_strip(const int32_t *restrict strip, uint8_t *restrict codes)
{
    for (size_t k = 0; k < BYTES; k++)
        codes[k] = lnt_int4_pack(strip[2 * k], strip[2 * k + 1]);
}

static void unpack_strip(const uint8_t *restrict codes, float scale, float *restrict values)
{
    for (size_t k = 0; k < BYTES; k++) {
        values[2 * k] = lnt_int4_value(lnt_int4_unpack(codes[k]), scale);
        values[2 * k + 1] = lnt_int4_value(lnt_int4_unpack(codes[k] >> 4u), scale);
    }
}

/* ---- int4 ---- */

static float int4_finish(const lnt_codec_cfg_t *cfg, const lnt_measure_t *m, bool *codable_p)
{
    (void)cfg;
    float scale = lnt_int4_scale(m->amax_bits);
    if (!lnt_int4_scale_decodes(scale)) *codable_p = false;
    return scale;
}

static void int4_code(const lnt_chunk_t *chunk, float scale, uint8_t *restrict codes, float *restrict error)
{
    if (lnt_intq_code_zero(chunk, scale, (chunk->n + 1) / 2, codes, error)) return;
    alignas(64) int32_t strip[LNT_PAD];
    alignas(64) float values[LNT_PAD];
    for (size_t i = 0; i < chunk->n; i += LNT_PAD) {
        lnt_intq_code_strip(chunk->a + i, scale, LNT_INT4_TOP, strip, values);
        lnt_intq_error_strip(chunk->a + i, values, error + i);
        pack_strip(strip, codes + i / 2);
    }
}

static void int4_decode(const uint8_t *restrict codes, size_t n, const uint8_t *live, float scale,
                        float *restrict values)
{
    (void)live;
    alignas(64) uint8_t strips[(LNT_CHUNK + LNT_PAD) / 2] = {0};
    memcpy(strips, codes, (n + 1) / 2);
    for (size_t i = 0; i < n; i += LNT_PAD)
        unpack_strip(strips + i / 2, scale, values + i);
}

static const lnt_ref_loops_t int4_loops = {.bits = 4,
                                           .has_scales = true,
                                           .measure = lnt_intq_measure,
                                           .finish = int4_finish,
                                           .code = int4_code,
                                           .decode = int4_decode};

LNT_REF_OPS(int4);

/* ---- int4_hadamard ---- */

/* The strip of a chunk from element i on, its groups rotated. */
static void rotate_strip(const lnt_chunk_t *chunk, size_t i, float *restrict rotated)
{
    memcpy(rotated, chunk->a + i, LNT_PAD * sizeof(*rotated));
    for (size_t k = 0; k < LNT_PAD && i + k < chunk->n; k += GROUP)
        if (lnt_hadamard_rotates(chunk->live, i + k, chunk->n)) lnt_hadamard_rotate(rotated + k);
}

/* Elements from i on of n decoded ones: their groups rotated back. */
static void rotate_back(float *restrict values, const uint8_t *live, size_t i, size_t n)
{
    for (size_t k = 0; k < LNT_PAD && i + k < n; k += GROUP) {
        if (!lnt_hadamard_rotates(live, i + k, n)) continue;
        lnt_hadamard_rotate(values + k);
        for (size_t j = k; j < k + GROUP; j++)
            values[j] *= LNT_HADAMARD_INVERSE;
    }
}

static void int4_hadamard_measure(const lnt_codec_cfg_t *cfg, const lnt_chunk_t *chunk, size_t shift, lnt_measure_t *m)
{
    (void)cfg;
    (void)shift;
    alignas(64) float rotated[LNT_PAD];
    for (size_t i = 0; i < chunk->n; i += LNT_PAD) {
        rotate_strip(chunk, i, rotated);
        lnt_intq_measure_strip(rotated, m);
    }
}

static float int4_hadamard_finish(const lnt_codec_cfg_t *cfg, const lnt_measure_t *m, bool *codable_p)
{
    (void)cfg;
    float scale = lnt_int4_scale(m->amax_bits);
    if (!lnt_hadamard_scale_decodes(scale)) *codable_p = false;
    return scale;
}

static void int4_hadamard_code(const lnt_chunk_t *chunk, float scale, uint8_t *restrict codes, float *restrict error)
{
    if (lnt_intq_code_zero(chunk, scale, (chunk->n + 1) / 2, codes, error)) return;
    alignas(64) int32_t strip[LNT_PAD];
    alignas(64) float rotated[LNT_PAD], values[LNT_PAD];
    for (size_t i = 0; i < chunk->n; i += LNT_PAD) {
        rotate_strip(chunk, i, rotated);
        lnt_intq_code_strip(rotated, scale, LNT_INT4_TOP, strip, values);
        rotate_back(values, chunk->live, i, chunk->n);
        lnt_intq_error_strip(chunk->a + i, values, error + i);
        pack_strip(strip, codes + i / 2);
    }
}

static void int4_hadamard_decode(const uint8_t *restrict codes, size_t n, const uint8_t *live, float scale,
                                 float *restrict values)
{
    int4_decode(codes, n, live, scale, values);
    for (size_t i = 0; i < n; i += LNT_PAD)
        rotate_back(values + i, live, i, n);
}

static const lnt_ref_loops_t int4_hadamard_loops = {.bits = 4,
                                                    .has_scales = true,
                                                    .measure = int4_hadamard_measure,
                                                    .finish = int4_hadamard_finish,
                                                    .code = int4_hadamard_code,
                                                    .decode = int4_hadamard_decode};

LNT_REF_OPS(int4_hadamard);
