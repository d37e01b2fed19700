/* What plain codecs share (block_ref.h): the chunk formed in scratch, codes of dead elements cleared, decoded values
 * masked and added. Knows no codec.
 */
#include "block_ref.h"
#include "impl.h"

enum { LANES = LNT_PAD };

static bool live_bit(const uint8_t *live, size_t i)
{
    return (live[i / 8] >> (i % 8)) & 1;
}

static uint32_t top_magnitude(const float *a, size_t n)
{
    int32_t top = 0;
    for (size_t i = 0; i < n; i += LANES)
        for (size_t k = 0; k < LANES; k++) {
            int32_t bits = (int32_t)lnt_f32_abs_bits(a[i + k]);
            top = bits > top ? bits : top;
        }
    return (uint32_t)top;
}

/* a += error, for any n: what is not whole rounds goes through padded scratch. */
static void add_error(float *restrict a, const float *error, size_t n)
{
    alignas(64) float last[LANES] = {0};
    size_t whole = n - n % LANES;
    for (size_t i = 0; i < whole; i += LANES)
        for (size_t k = 0; k < LANES; k++)
            a[i + k] += error[i + k];
    memcpy(last, error + whole, (n - whole) * sizeof(*error));
    for (size_t k = 0; k < LANES; k++)
        a[whole + k] += last[k];
}

static void zero_dead(float *a, size_t n, const uint8_t *live)
{
    for (size_t i = 0; i < n; i++)
        if (!live_bit(live, i)) a[i] = 0.0f;
}

void lnt_ref_load(const lnt_encode_in_t *in, uint64_t first, size_t n, float *room, lnt_chunk_t *chunk)
{
    const uint8_t *values = (const uint8_t *)in->values + first * lnt_dtype_size(in->dtype);
    lnt_array_ops_ref.widen[in->dtype](values, n, room);
    memset(room + n, 0, LNT_PAD * sizeof(*room));
    if (in->error_in) add_error(room, in->error_in + first, n);
    chunk->a = room;
    chunk->n = n;
    chunk->tops[0].all = chunk->tops[0].live = top_magnitude(room, n);
    if (!chunk->live) return;
    zero_dead(room, n, chunk->live);
    chunk->tops[0].live = top_magnitude(room, n);
}

float lnt_ref_finish(const lnt_ref_loops_t *loops, const lnt_codec_cfg_t *cfg, const lnt_measure_t *m, bool *poisoned)
{
    bool codable = !m->poisoned;
    float scale = codable && loops->finish ? loops->finish(cfg, m, &codable) : 0.0f;
    if (!codable) *poisoned = true;
    return codable ? scale : 0.0f;
}

/* Padding coded as live elements and dead ones coded by their +0 must not show. */
static void clear_codes(const lnt_ref_loops_t *loops, const uint8_t *live, size_t n, uint8_t *codes, float *error)
{
    if (loops->bits >= 8) return; /* +0 has code 0 and error +0 there */
    size_t bytes = (n * loops->bits + 7) / 8;
    if (n * loops->bits % 8) codes[bytes - 1] &= (uint8_t)((1u << (n * loops->bits % 8)) - 1);
    if (!live) return;
    for (size_t i = 0; i < n; i++) {
        if (live_bit(live, i)) continue;
        size_t bit = i * loops->bits;
        codes[bit / 8] &= (uint8_t) ~(((1u << loops->bits) - 1) << (bit % 8));
        error[i] = 0.0f;
    }
}

void lnt_ref_code(const lnt_ref_loops_t *loops, const lnt_chunk_t *chunk, uint8_t *codes, float *error)
{
    alignas(64) float unwanted[LNT_CHUNK + LNT_PAD];
    if (!error) error = unwanted;
    loops->code(chunk, chunk->scales[0], codes, error);
    clear_codes(loops, chunk->live, chunk->n, codes, error);
}

static void add_values(float *restrict acc, const float *restrict values, size_t n)
{
    size_t whole = n - n % LANES;
    for (size_t i = 0; i < whole; i += LANES)
        for (size_t k = 0; k < LANES; k++)
            acc[i + k] += values[i + k];
    for (size_t i = whole; i < n; i++)
        acc[i] += values[i];
}

/* Through scratch, unless the chunk is whole rounds that may be decoded in place. */
static void decode_chunk(const lnt_ref_loops_t *loops, const uint8_t *codes, const uint8_t *live, size_t n, float scale,
                         bool add, float *out)
{
    alignas(64) float scratch[LNT_CHUNK + LNT_PAD];
    float *values = add || n % LANES ? scratch : out;
    loops->decode(codes, n, live, scale, values);
    if (live) zero_dead(values, n, live);
    if (add)
        add_values(out, scratch, n);
    else if (values != out)
        memcpy(out, values, n * sizeof(*out));
}

void lnt_ref_sum(const lnt_ref_loops_t *loops, const uint8_t *const *codes, const float *scales, uint32_t n_runs,
                 size_t n, const uint8_t *live, bool add, float *out)
{
    for (uint32_t r = 0; r < n_runs; r++)
        decode_chunk(loops, codes[r], live, n, scales[r], add || r > 0, out);
}
