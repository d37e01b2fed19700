/* What an exchange must give, from the texts alone: plain loops over whole arrays, no frames, no library code.
 *
 * Node sum in rank order times the factor; worker error; coding; server's sum in node order times its factor; server
 * error; coding. Every operation is one f32 rounding. Sums of squares: 128 lanes in f64, combined in fours, then
 * halved. */
#ifndef TESTS_EXCHANGE_ORACLE_H
#define TESTS_EXCHANGE_ORACLE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/hadamard_oracle.h"
#include "kernel/half_oracle.h"

enum { ORACLE_RANKS = 16, ORACLE_EXTENTS = 12, ORACLE_BLOCKS = 4096 };
enum {
    ORACLE_F32,
    ORACLE_BF16,
    ORACLE_SIGN1,
    ORACLE_INT8,
    ORACLE_INT4,
    ORACLE_INT4_HADAMARD,
    ORACLE_F16,
    ORACLE_CODECS
};
static const uint32_t oracle_bits[ORACLE_CODECS] = {32, 16, 1, 8, 4, 4, 16};
enum { ORACLE_BAD = 1, ORACLE_VETO = 2 };

typedef struct oracle {
    uint32_t n, M, S, node[ORACLE_RANKS], ranks[ORACLE_RANKS][ORACLE_RANKS], size[ORACLE_RANKS];
    uint32_t n_extents;
    uint64_t count[ORACLE_EXTENTS];
    uint32_t block, scale_block; /* scale_block 0: the same */
    uint64_t segment, N;
    int codec;
    bool packed, l1, feeds_v, feedback;
    float factor, server_factor;
    const uint8_t *live;        /* [N] */
    const float *bias;          /* produce_wire adds it and hides what is not finite; NULL: no produce_wire */
    float *input[ORACLE_RANKS]; /* [N] what enters the node sum */
    bool veto[ORACLE_RANKS];

    uint32_t n_blocks;
    uint64_t pos[ORACLE_BLOCKS], len[ORACLE_BLOCKS];
    uint32_t shard[ORACLE_BLOCKS], chunk[ORACLE_BLOCKS], extent[ORACLE_BLOCKS];
    float *e[ORACLE_RANKS], *e_new[ORACLE_RANKS], *E, *E_new; /* by node, [N] */

    float *out, *wire[ORACLE_RANKS]; /* [N], by node */
    int flags;
    uint8_t active[ORACLE_BLOCKS];
    uint64_t intra[ORACLE_RANKS], inter[ORACLE_RANKS];
} oracle_t;

static inline void oracle_map(oracle_t *o, const uint64_t *label, uint32_t n)
{
    o->n = n;
    for (uint32_t r = 0; r < n; r++) {
        uint32_t q = 0;

        while (label[q] != label[r]) {
            q++;
        }
        o->node[r] = q == r ? o->M++ : o->node[q];
        o->ranks[o->node[r]][o->size[o->node[r]]++] = r;
    }
    o->S = n;
    for (uint32_t a = 0; a < o->M; a++) {
        o->S = o->size[a] < o->S ? o->size[a] : o->S;
    }
}

static inline void oracle_add_block(oracle_t *o, uint64_t at, uint64_t n, uint32_t extent)
{
    if (o->n_blocks == ORACLE_BLOCKS) {
        abort();
    }
    o->pos[o->n_blocks] = at;
    o->len[o->n_blocks] = n;
    o->extent[o->n_blocks++] = extent;
}

static inline void oracle_cut_run(oracle_t *o, uint64_t at, uint64_t n, uint32_t extent)
{
    for (uint64_t i = 0; i < n; i += o->block) {
        oracle_add_block(o, at + i, n - i < o->block ? n - i : o->block, extent);
    }
}

/* Block k of those with part[.] == which goes to floor(o_k * n / N). */
static inline void oracle_split(oracle_t *o, const uint32_t *part, uint32_t which, uint32_t n, uint32_t *owner)
{
    uint64_t total = 0, offset = 0;

    for (uint32_t k = 0; k < o->n_blocks; k++) {
        total += part == NULL || part[k] == which ? o->len[k] : 0;
    }
    for (uint32_t k = 0; k < o->n_blocks; k++) {
        if (part == NULL || part[k] == which) {
            owner[k] = (uint32_t)(offset * n / total);
            offset += o->len[k];
        }
    }
}

static inline float *oracle_floats(uint64_t n)
{
    return calloc(n + 1, sizeof(float));
}

/* After oracle_map and the parameters. */
static inline void oracle_start(oracle_t *o)
{
    for (uint32_t t = 0; t < o->n_extents; t++) {
        if (!o->packed) {
            oracle_cut_run(o, o->N, o->count[t], t);
        }
        o->N += o->count[t];
    }
    if (o->packed) {
        oracle_cut_run(o, 0, o->N, 0);
    }
    oracle_split(o, NULL, 0, o->S, o->shard);
    for (uint32_t d = 0; d < o->S; d++) {
        oracle_split(o, o->shard, d, o->M, o->chunk);
    }
    o->E = oracle_floats(o->N);
    o->E_new = oracle_floats(o->N);
    o->out = oracle_floats(o->N);
    for (uint32_t a = 0; a < o->n; a++) {
        o->e[a] = oracle_floats(o->N);
        o->e_new[a] = oracle_floats(o->N);
        o->wire[a] = oracle_floats(o->N);
        o->input[a] = oracle_floats(o->N);
    }
}

static inline void oracle_end(oracle_t *o)
{
    free(o->E);
    free(o->E_new);
    free(o->out);
    for (uint32_t a = 0; a < o->n; a++) {
        free(o->e[a]);
        free(o->e_new[a]);
        free(o->wire[a]);
        free(o->input[a]);
    }
}

/* --- codecs ------------------------------------------------------------------------------------------------------- */

static inline double oracle_tree(const float *a, const uint8_t *live, uint64_t n, bool l1)
{
    double lane[128] = {0};

    for (uint64_t i = 0; i < n; i++) {
        double x = live[i] ? a[i] : 0;

        lane[i % 128] += l1 ? fabs(x) : x * x;
    }
    for (int l = 0; l < 32; l++) {
        lane[l] = (lane[4 * l] + lane[4 * l + 1]) + (lane[4 * l + 2] + lane[4 * l + 3]);
    }
    for (int half = 16; half > 0; half /= 2) {
        for (int l = 0; l < half; l++) {
            lane[l] += lane[l + half];
        }
    }
    return lane[0];
}

static inline bool oracle_finite(const float *a, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        if (!isfinite(a[i])) {
            return false;
        }
    }
    return true;
}

/* What a 16-bit codec makes of a. */
static inline float oracle_half(int codec, float a)
{
    return codec == ORACLE_BF16 ? oracle_bf16_value(oracle_bf16(a)) : oracle_f16_value(oracle_f16(a));
}

/* Top code; 0 where codes are not whole numbers. */
static inline float oracle_top(int codec)
{
    return codec == ORACLE_INT8 ? 127 : codec == ORACLE_INT4 || codec == ORACLE_INT4_HADAMARD ? 7 : 0;
}

/* Rotates whole groups of 32 live elements of a block, in place. */
static inline void oracle_turn(int codec, float *v, const uint8_t *live, uint64_t n, float factor)
{
    for (uint64_t i = 0; codec == ORACLE_INT4_HADAMARD && i + 32 <= n; i += 32) {
        if (memchr(live + i, 0, 32) != NULL) {
            continue;
        }
        oracle_hadamard(v + i, 32);
        for (uint64_t k = i; k < i + 32; k++) {
            v[k] *= factor;
        }
    }
}

static inline float oracle_int_scale(int codec, const float *a, const uint8_t *live, uint64_t n, bool *bad)
{
    float top = 0, scale, *v = oracle_floats(n);

    for (uint64_t i = 0; i < n; i++) {
        v[i] = live[i] ? a[i] : 0;
    }
    oracle_turn(codec, v, live, n, 1);
    for (uint64_t i = 0; i < n; i++) {
        *bad = *bad || !isfinite(v[i]);
        top = fabsf(v[i]) > top ? fabsf(v[i]) : top;
    }
    free(v);
    scale = top / oracle_top(codec);
    *bad = *bad || !isfinite(scale * oracle_top(codec) * (codec == ORACLE_INT4_HADAMARD ? 32 : 1));
    return *bad ? 0 : scale;
}

/* The scale of a block, and whether it can be coded at all. */
static inline float oracle_scale(const oracle_t *o, int codec, const float *a, const uint8_t *live, uint64_t n,
                                 bool *bad)
{
    uint64_t count = 0;
    double mean;

    *bad = *bad || !oracle_finite(a, n);
    for (uint64_t i = 0; i < n; i++) {
        count += live[i];
        *bad = *bad || (oracle_bits[codec] == 16 && live[i] && !isfinite(oracle_half(codec, a[i])));
    }
    if (*bad || count == 0 || oracle_bits[codec] >= 16) {
        return 0;
    }
    if (codec != ORACLE_SIGN1) {
        return oracle_int_scale(codec, a, live, n, bad);
    }
    mean = oracle_tree(a, live, n, o->l1) / (double)count;
    return (float)(o->l1 ? mean : sqrt(mean));
}

static inline float oracle_decoded(int codec, float a, float scale)
{
    float q, top = oracle_top(codec);

    if (codec == ORACLE_F32) {
        return a;
    }
    if (oracle_bits[codec] == 16) {
        return oracle_half(codec, a);
    }
    if (scale == 0) {
        return 0;
    }
    if (codec == ORACLE_SIGN1) {
        return a >= 0 ? scale : -scale;
    }
    q = rintf(a / scale);
    q = q > top ? top : q < -top ? -top : q;
    return (float)(int)q * scale;
}

/* Codes a[n] with a given scale; y and, where err is not NULL, the error. Returns flags. */
static inline int oracle_code(const oracle_t *o, int codec, const float *a, const uint8_t *live, uint64_t n,
                              float scale, bool bad, float *y, float *err)
{
    int flags = bad ? ORACLE_BAD : 0;

    for (uint64_t i = 0; i < n; i++) {
        y[i] = live[i] ? a[i] : 0;
    }
    oracle_turn(codec, y, live, n, 1);
    for (uint64_t i = 0; i < n; i++) {
        y[i] = bad || !live[i] ? 0 : oracle_decoded(codec, y[i], scale);
    }
    oracle_turn(codec, y, live, n, 1.0f / 32);
    for (uint64_t i = 0; i < n; i++) {
        if (err != NULL) {
            err[i] = live[i] ? a[i] - y[i] : 0;
        }
        if (o->feeds_v && (!isfinite(a[i] * a[i]) || !isfinite(y[i] * y[i]))) {
            flags |= ORACLE_BAD;
        }
    }
    return flags;
}

/* --- the exchange ------------------------------------------------------------------------------------------------- */

static inline int oracle_wire_codec(const oracle_t *o)
{
    return o->M > 1 ? o->codec : ORACLE_F32;
}

static inline bool oracle_errors(const oracle_t *o)
{
    return o->feedback && oracle_wire_codec(o) != ORACLE_F32;
}

static inline float oracle_masked(const oracle_t *o, uint64_t p, float a)
{
    return o->live[p] || !isfinite(a) ? a : 0;
}

/* The value node a codes at block k, into v; notes flags and activity. */
static inline void oracle_form(oracle_t *o, uint32_t a, uint32_t k, float *v)
{
    for (uint64_t p = o->pos[k]; p < o->pos[k] + o->len[k]; p++) {
        float z = o->input[o->ranks[a][0]][p];

        for (uint32_t j = 1; j < o->size[a]; j++) {
            z = z + o->input[o->ranks[a][j]][p];
        }
        z = z * o->factor;
        if (!isfinite(z)) {
            o->flags |= ORACLE_BAD;
        }
        o->active[k] |= !o->live[p] && z != 0;
        if (o->bias != NULL) {
            z = (isfinite(z) ? z : 0) + o->bias[p];
        }
        if (oracle_errors(o)) {
            z = z + o->e[a][p];
        }
        v[p] = oracle_masked(o, p, z);
    }
}

/* End of the worker's scale block that begins with block k: same shard, same extent, same multiple of scale_block. */
static inline uint32_t oracle_scale_end(const oracle_t *o, uint32_t k)
{
    uint64_t size = o->scale_block != 0 ? o->scale_block : o->block, begin = 0;
    uint32_t end = k + 1;

    for (uint32_t b = 0; b < k && !o->packed; b++) {
        begin += o->extent[b] != o->extent[k] ? o->len[b] : 0;
    }
    while (end < o->n_blocks && o->shard[end] == o->shard[k] && o->extent[end] == o->extent[k] &&
           (o->pos[end] - begin) / size == (o->pos[k] - begin) / size) {
        end++;
    }
    return end;
}

static inline void oracle_worker(oracle_t *o, uint32_t a)
{
    int codec = oracle_wire_codec(o);
    float *v = oracle_floats(o->N);

    for (uint32_t k = 0; k < o->n_blocks; k++) {
        oracle_form(o, a, k, v);
    }
    for (uint32_t k = 0, end; k < o->n_blocks; k = end) {
        uint64_t p, n;
        bool bad = false;
        float scale;

        end = o->M > 1 ? oracle_scale_end(o, k) : k + 1;
        p = o->pos[k];
        n = o->pos[end - 1] + o->len[end - 1] - p;
        scale = oracle_scale(o, codec, v + p, o->live + p, n, &bad);
        o->flags |= oracle_code(o, codec, v + p, o->live + p, n, scale, bad, o->wire[a] + p,
                                oracle_errors(o) ? o->e_new[a] + p : NULL);
    }
    free(v);
}

static inline void oracle_server(oracle_t *o, uint32_t k)
{
    int codec = oracle_wire_codec(o);
    uint64_t p = o->pos[k], n = o->len[k];
    float *z = oracle_floats(n), scale;
    bool bad = false;

    for (uint64_t i = 0; i < n; i++) {
        z[i] = o->wire[0][p + i];
        for (uint32_t a = 1; a < o->M; a++) {
            z[i] = z[i] + o->wire[a][p + i];
        }
        z[i] = z[i] * o->server_factor;
        if (oracle_errors(o)) {
            z[i] = z[i] + o->E[p + i];
        }
    }
    scale = oracle_scale(o, codec, z, o->live + p, n, &bad);
    o->flags |=
        oracle_code(o, codec, z, o->live + p, n, scale, bad, o->out + p, oracle_errors(o) ? o->E_new + p : NULL);
    free(z);
}

/* --- bytes -------------------------------------------------------------------------------------------------------- */

static inline bool oracle_in(const oracle_t *o, uint32_t k, uint32_t d, int64_t c)
{
    return o->shard[k] == d && (c < 0 || o->chunk[k] == (uint32_t)c);
}

/* Bytes of all frames of shard d, or of its chunk c. */
static inline uint64_t oracle_part_bytes(const oracle_t *o, uint32_t d, int64_t c, int codec, bool section)
{
    uint64_t bytes = 0, elems = 0, dead = 0;

    for (uint32_t k = 0; k < o->n_blocks; k++) {
        uint64_t n = o->len[k];

        if (!oracle_in(o, k, d, c)) {
            continue;
        }
        if (elems == 0 || elems + n > o->segment) {
            bytes += 64 + (dead + 7) / 8;
            elems = dead = 0;
        }
        elems += n;
        dead += section && memchr(o->live + o->pos[k], 0, n) != NULL;
        bytes += (oracle_bits[codec] < 16 ? 4 : 0) + (n * oracle_bits[codec] + 7) / 8;
    }
    return bytes + (dead + 7) / 8;
}

static inline void oracle_bytes(oracle_t *o)
{
    memset(o->intra, 0, sizeof(o->intra));
    memset(o->inter, 0, sizeof(o->inter));
    for (uint32_t d = 0; d < o->S; d++) {
        for (uint32_t a = 0; a < o->M; a++) {
            uint32_t owner = o->ranks[a][d];

            for (uint32_t j = 0; j < o->size[a]; j++) {
                o->intra[o->ranks[a][j]] += j == d ? 0 : oracle_part_bytes(o, d, -1, ORACLE_F32, false);
            }
            for (uint32_t c = 0; c < o->M; c++) {
                uint64_t bytes = oracle_part_bytes(o, d, c, oracle_wire_codec(o), true);

                o->intra[owner] += (o->size[a] - 1) * bytes;
                o->inter[owner] += c == a ? (o->M - 1) * bytes : bytes;
            }
        }
    }
}

/* One round. Afterwards oracle_commit if flags are 0. */
static inline void oracle_run(oracle_t *o)
{
    o->flags = 0;
    memset(o->active, 0, sizeof(o->active));
    for (uint32_t r = 0; r < o->n && o->N != 0; r++) {
        o->flags |= (o->veto[r] ? ORACLE_VETO : 0) | (oracle_finite(o->input[r], o->N) ? 0 : ORACLE_BAD);
    }
    for (uint32_t a = 0; a < o->M; a++) {
        oracle_worker(o, a);
    }
    for (uint32_t k = 0; k < o->n_blocks; k++) {
        oracle_server(o, k);
    }
    oracle_bytes(o);
}

static inline void oracle_commit(oracle_t *o)
{
    for (uint32_t a = 0; a < o->M; a++) {
        memcpy(o->e[a], o->e_new[a], o->N * sizeof(float));
    }
    memcpy(o->E, o->E_new, o->N * sizeof(float));
}

/* The mask changed: errors of dead coordinates are +0. */
static inline void oracle_mask(oracle_t *o)
{
    for (uint64_t p = 0; p < o->N; p++) {
        for (uint32_t a = 0; a < o->M && !o->live[p]; a++) {
            o->e[a][p] = 0;
        }
        o->E[p] = o->live[p] ? o->E[p] : 0;
    }
}

#endif
