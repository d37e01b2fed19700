/* The ops of codec.h and array.h for device memory: launchers, callable from C, as tables like the CPU's. They give the
 * CPU's bytes (docs/numerics.md); NaN bits and the error of a poisoned block are unspecified, as there.
 *
 * Every launcher takes a batch, hundreds of runs in one launch if need be, and a stream (a cudaStream_t). Nothing is
 * allocated, waited for or read back, so launches may be captured into a graph. All pointers are device memory with
 * the alignment of their element; scales and codes may lie anywhere. What goes wrong on the device shows when the
 * stream is waited for; a launcher reports what keeps a launch from starting, as a bare status. LNT_ERR_INVALID_ARG:
 * what the host sees to be no batch (blocks of 0 elements or not the codec's, more elements than memory can have, a
 * number of blocks that is not the run's, no table of blocks), no such dtype, or, in a batch of one, which the host can
 * look at, an array missing that the op needs. What lies in device memory is not looked at.
 */
#ifndef LNT_CUDA_KERNELS_H
#define LNT_CUDA_KERNELS_H

#include "codec.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One run. An op reads the fields that it names and ignores the others. */
typedef struct lnt_cuda_run {
    uint64_t n;
    const void *values;            /* elements of the launch's dtype */
    const float *error_in;         /* NULL: no error feedback */
    float *error_out;              /* NULL, error_in (in place) or another array (a shadow) */
    const uint8_t *live;           /* as in codec.h; NULL: all live */
    uint8_t *scales;               /* ops that encode write them, ops that decode read them */
    uint8_t *codes;                /* likewise */
    const lnt_coded_run_t *inputs; /* n_inputs coded runs of the same n, an array in device memory */
    uint32_t n_inputs;             /* 0: the one input is {scales, codes} */
    uint32_t *poisoned;     /* NULL or a word that is OR-ed with 1; several runs may share it, but see encode_scaled */
    void *out;              /* decoded values and sums: f32; narrow: elements of the launch's dtype */
    uint64_t seed, index;   /* as in lnt_encode_in_t */
    uint64_t first;         /* measure: place of the run's first element in its block */
    lnt_measure_t *measure; /* measure adds to it, finish reads it */
    float *scale;           /* finish writes it, encode_scaled reads it */
    double *sums;           /* square_sums: one per block of the batch's size */
    const float *momentum;  /* optim/update_cuda.h */
    const void *consts;     /* likewise */
} lnt_cuda_run_t;

/* How the runs of a batch are cut into blocks: run r has the blocks first_block[r] .. first_block[r + 1] - 1. */
typedef struct lnt_cuda_cut {
    const uint64_t *first_block; /* device memory, n_runs + 1 numbers; not used where there is one run */
    uint32_t n_runs;
    uint32_t block; /* elements, a multiple of 64: the codec's block; for array ops any */
    uint64_t n_blocks;
} lnt_cuda_cut_t;

/* lnt_cuda_batch_one makes a batch of one that travels with the launch; a larger one lies in device memory and is
 * laid out once (lnt_cuda_batch_blocks). Other runs (optim/update_cuda.h) have batches of the same fields. */
typedef struct lnt_cuda_batch {
    const lnt_cuda_run_t *runs; /* device memory; NULL: `one` */
    lnt_cuda_cut_t cut;
    lnt_cuda_run_t one;
} lnt_cuda_batch_t;

/* More elements than memory has addresses for are a mistake. Also keeps sums of places from overflowing. */
#define LNT_CUDA_ELEMS_MAX ((uint64_t)1 << 60)

static inline bool lnt_cuda_may_cut(uint64_t n, uint32_t block)
{
    return block != 0 && n <= LNT_CUDA_ELEMS_MAX;
}

/* Of one run. A cut that cannot be (blocks of 0 elements, too many elements) has blocks of 0, and every launcher
 * refuses it. */
static inline lnt_cuda_cut_t lnt_cuda_cut_one(uint64_t n, uint32_t block)
{
    const bool legal = lnt_cuda_may_cut(n, block);
    lnt_cuda_cut_t cut;
    cut.first_block = NULL;
    cut.n_runs = 1;
    cut.block = legal ? block : 0;
    cut.n_blocks = legal ? n / block + (n % block != 0) : 0;
    return cut;
}

static inline lnt_cuda_batch_t lnt_cuda_batch_one(const lnt_cuda_run_t *run, uint32_t block)
{
    lnt_cuda_batch_t batch;
    batch.runs = NULL;
    batch.cut = lnt_cuda_cut_one(run->n, block);
    batch.one = *run;
    return batch;
}

/* Fills first_block (host memory, n_runs + 1 numbers, to be copied to the device) and the number of blocks.
 * LNT_ERR_INVALID_ARG: blocks of 0 elements, no runs where there should be, or too many elements in them. */
static inline lnt_status_t lnt_cuda_batch_blocks(const lnt_cuda_run_t *runs, uint32_t n_runs, uint32_t block,
                                                 uint64_t *first_block, uint64_t *n_blocks_p)
{
    uint64_t n = 0;
    if (block == 0 || first_block == NULL || (runs == NULL && n_runs != 0)) return LNT_ERR_INVALID_ARG;
    first_block[0] = 0;
    for (uint32_t r = 0; r < n_runs; r++) {
        if (!lnt_cuda_may_cut(runs[r].n, block) || !lnt_cuda_may_cut(n += runs[r].n, block)) return LNT_ERR_INVALID_ARG;
        first_block[r + 1] = first_block[r] + lnt_cuda_cut_one(runs[r].n, block).n_blocks;
    }
    *n_blocks_p = first_block[n_runs];
    return LNT_OK;
}

/* As lnt_codec_ops_t. `squares`: also poison the word (not the block) when the f32 square of a live value + error, or
 * of a decoded value, is not finite: what programs ask that square the mean. */
typedef struct lnt_cuda_codec_ops {
    /* values, error_in, error_out, live, seed, index -> scales, codes, error_out, poisoned. Blocks up to 1024 are read
     * once, larger ones twice. */
    lnt_status_t (*encode)(const lnt_codec_cfg_t *cfg, const lnt_cuda_batch_t *batch, lnt_dtype_t dtype, bool squares,
                           void *stream);
    /* encode of factor * (input 0 + input 1 + ...), without the sums passing through memory: what a server does.
     * inputs, error_in, ... -> as encode */
    lnt_status_t (*serve)(const lnt_codec_cfg_t *cfg, const lnt_cuda_batch_t *batch, float factor, bool squares,
                          void *stream);
    /* inputs, live -> out = [out +] input 0 + input 1 + ... One input: decode and decode_add. */
    lnt_status_t (*decode_sum)(const lnt_codec_cfg_t *cfg, const lnt_cuda_batch_t *batch, bool add, void *stream);
    /* The two-step form, for blocks in pieces. Every run is a piece; no two of a batch belong to the same block.
     * values, error_in, live, first -> measure (zeroed before the first piece), poisoned */
    lnt_status_t (*measure)(const lnt_codec_cfg_t *cfg, const lnt_cuda_batch_t *batch, lnt_dtype_t dtype, void *stream);
    /* measure -> scale, poisoned */
    lnt_status_t (*finish)(const lnt_codec_cfg_t *cfg, const lnt_cuda_batch_t *batch, void *stream);
    /* As encode, but under *scale; batch->block only says how a piece is shared out. Two launches for codecs with
     * scales: the word `poisoned` passes the news, so it must be given, be zero before and be the run's own. */
    lnt_status_t (*encode_scaled)(const lnt_codec_cfg_t *cfg, const lnt_cuda_batch_t *batch, lnt_dtype_t dtype,
                                  void *stream);
} lnt_cuda_codec_ops_t;

/* The ops of a codec; NULL for numbers that are none. */
LNT_API const lnt_cuda_codec_ops_t *lnt_cuda_codec_ops(lnt_codec_id_t id);

/* As lnt_array_ops_t: what a step does outside the codecs. `poisoned` is set where an array op of the CPU says false.
 */
typedef struct lnt_cuda_array_ops {
    /* values -> out = [out +] factor * value, poisoned. A factor of 1 leaves bits alone. */
    lnt_status_t (*widen)(const lnt_cuda_batch_t *batch, lnt_dtype_t dtype, float factor, bool add, void *stream);
    /* values (f32) -> out, elements of dtype; poisoned: one of those is not finite */
    lnt_status_t (*narrow)(const lnt_cuda_batch_t *batch, lnt_dtype_t dtype, void *stream);
    /* values (f32) -> poisoned: one is not finite, or with `squares` the f32 square of a live value + error */
    lnt_status_t (*check)(const lnt_cuda_batch_t *batch, bool squares, void *stream);
    /* values (f32) -> sums: of squares, for each block, in the order of reduce_tree.h */
    lnt_status_t (*square_sums)(const lnt_cuda_batch_t *batch, void *stream);
} lnt_cuda_array_ops_t;

LNT_API const lnt_cuda_array_ops_t *lnt_cuda_array_ops(void);

#ifdef __cplusplus
}
#endif
#endif
