/* The codec table: one row per wire format, one ops table per implementation.
 *
 * Ops work on runs (linnet/codec.h). Scales and codes are separate pointers, because a frame holds the scales of all
 * its blocks first and then all codes; a run's scales and codes are contiguous inside each. Every implementation of
 * an op gives the same bytes (docs/numerics.md).
 *
 * `live`, where not NULL, marks coordinates that take part (bit 1) and dead ones (bit 0). It is laid out like sign1
 * codes: every block starts on a byte, first element in the least significant bit. Dead ones enter no sum and no
 * count, have code 0, error +0 and decode to +0; but a non-finite dead element still poisons its block.
 *
 * `lnt_codec_cfg_t.block` is a multiple of 64, or of 8 in compat grids, so in a run the codes of block k start at k *
 * block * bits / 8.
 */
#ifndef LNT_KERNELS_CODEC_H
#define LNT_KERNELS_CODEC_H

#include <linnet/codec.h>

#include "array.h"
#include "dtype.h"
#include "error_store.h"

typedef enum lnt_codec_id {
    LNT_CODEC_F32 = 0,
    LNT_CODEC_BF16 = 1,
    LNT_CODEC_SIGN1 = 2,
    LNT_CODEC_INT8 = 3,
    LNT_CODEC_INT4 = 4,
    LNT_CODEC_INT4_HADAMARD = 5,
    LNT_CODEC_F16 = 6,
    LNT_CODEC_BF16_SR = 7,
    LNT_CODEC_F16_SR = 8
} lnt_codec_id_t;

enum { LNT_CODEC_COUNT = 9 }; /* rows in the table */

typedef struct lnt_codec_cfg {
    uint32_t block;
    lnt_scale_rule_t scale_rule;
} lnt_codec_cfg_t;

/* Input of an encode op. `values` are n elements of dtype. */
typedef struct lnt_encode_in {
    const void *values;
    lnt_dtype_t dtype;
    uint64_t n;
    const uint8_t *live;   /* NULL: all live */
    const float *error_in; /* NULL: no error feedback */
    uint64_t seed;  /* for codecs that round by chance: element i takes the random number of (seed, index + i) and */
    uint64_t index; /* nothing else, so results do not depend on pieces */
} lnt_encode_in_t;

typedef struct lnt_encode_out {
    uint8_t *scales; /* one little-endian f32 per block, any alignment; may be NULL for codecs without scales */
    uint8_t *codes;
    float *error_out; /* NULL or n floats; may equal error_in */
    bool poisoned;    /* set (never cleared) when any element was non-finite or cannot be coded */
    bool stream;      /* a hint: error_out is part of something far larger than the caches and not read soon, so stores
                       * may go around them. Changes no bytes */
} lnt_encode_out_t;

/* A coded run, for ops that take several. */
typedef struct lnt_coded_run {
    const uint8_t *scales; /* NULL for codecs without scales */
    const uint8_t *codes;
} lnt_coded_run_t;

/* Partial sums of one block, so that a block larger than a segment can be measured in pieces (compat grids).
 * `first` below is the index of the piece's first element in its block; lanes follow it. */
typedef struct lnt_measure {
    double lanes[128];  /* sums of squares (L2) or magnitudes (L1) */
    uint32_t amax_bits; /* largest |value| as bits, for integer codecs */
    uint64_t count;     /* live elements */
    bool poisoned;
} lnt_measure_t;

typedef struct lnt_codec_ops {
    void (*encode)(const lnt_codec_cfg_t *cfg, const lnt_encode_in_t *in, lnt_encode_out_t *out);
    void (*decode)(const lnt_codec_cfg_t *cfg, const uint8_t *scales, const uint8_t *codes, uint64_t n,
                   const uint8_t *live, float *out);
    void (*decode_add)(const lnt_codec_cfg_t *cfg, const uint8_t *scales, const uint8_t *codes, uint64_t n,
                       const uint8_t *live, float *acc);
    /* What a server does with the runs of all nodes, in one pass: out = run 0 + run 1 + ..., or with `add` out = out +
     * run 0 + ..., f32, in this order. Same bytes as decode (or decode_add) of run 0 and decode_add of the others. */
    void (*decode_sum)(const lnt_codec_cfg_t *cfg, const lnt_coded_run_t *runs, uint32_t n_runs, uint64_t n,
                       const uint8_t *live, bool add, float *out);
    /* The two-step form of encode. measure adds a piece to *m (zeroed by the caller); finish turns it into a scale;
     * encode_scaled codes a piece with that scale (one block, so one scale, whatever cfg->block says).
     * Pieces start on a multiple of 32 elements of their block. A clean piece of a poisoned block keeps its bits; the
     * scale +0 says zero. */
    void (*measure)(const lnt_codec_cfg_t *cfg, const lnt_encode_in_t *in, uint64_t first, lnt_measure_t *m);
    float (*finish)(const lnt_codec_cfg_t *cfg, const lnt_measure_t *m, bool *poisoned);
    void (*encode_scaled)(const lnt_codec_cfg_t *cfg, const lnt_encode_in_t *in, float scale, lnt_encode_out_t *out);
} lnt_codec_ops_t;

typedef struct lnt_codec_row {
    const char *name;
    const char *doc;
    lnt_codec_id_t id;
    uint32_t bits; /* per element */
    bool has_scales;
    bool has_feedback; /* keeps an error in the exchange (f32: no) */
    bool has_scale_rule;
    uint32_t default_block;
} lnt_codec_row_t;

struct lnt_codec {
    const lnt_codec_row_t *row;
    lnt_codec_ops_t ops; /* op by op the fastest this machine has, up to the implementation asked for */
    lnt_codec_cfg_t cfg;
};

/* Rows in wire-id order. */
const lnt_codec_row_t *lnt_codec_rows(size_t *n_rows_p);
const lnt_codec_row_t *lnt_codec_row_by_name(const char *name); /* NULL if unknown */

/* Fill a codec in place (no allocation): the form used inside the library. block 0 = default. */
lnt_status_t lnt_codec_init(lnt_codec_t *codec, const char *name, uint32_t block, lnt_scale_rule_t rule);

static inline uint64_t lnt_codec_code_bytes(const lnt_codec_t *codec, uint64_t n) /* one block of n elements */
{
    return (n * codec->row->bits + 7) / 8;
}

#endif
