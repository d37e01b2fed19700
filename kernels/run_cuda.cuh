/* From batches to chunks: which block a warp works on, where its elements lie, and where their values come from. */
#ifndef LNT_RUN_CUDA_CUH
#define LNT_RUN_CUDA_CUH

#include "block_cuda.cuh"

/* Threads of a thread block, and how many of those a launch has at most: warps step over the rest (a grid of this size
 * fills any GPU several times). */
enum { LNT_CUDA_THREADS = 128, LNT_CUDA_GRID_MAX = 8192, LNT_CUDA_WARPS = LNT_CUDA_THREADS / LNT_WARP };

/* Thread blocks per multiprocessor that the registers must leave room for: 128 registers. Asked for less, the assembler
 * spills to have more of them; these kernels keep enough loads in flight without (docs/perf_gpu.md). */
enum { LNT_CUDA_RESIDENT = 4 };

/* Rounds in registers: of blocks up to 256, of blocks up to 1024, and of what is taken chunk by chunk. */
enum { LNT_ROUNDS_FEW = 2, LNT_ROUNDS_MANY = 8, LNT_ROUNDS_CHUNK = 2, LNT_CUDA_CHUNK = LNT_ROUNDS_CHUNK * LNT_ROUND };

/* What a launch says about all its runs. */
typedef struct lnt_dev_call {
    lnt_scale_rule_t rule;
    lnt_dtype_t dtype;
    float factor;
    bool squares, add;
} lnt_dev_call_t;

LNT_DEVICE uint64_t lnt_dev_warp(void)
{
    return (uint64_t)blockIdx.x * LNT_CUDA_WARPS + threadIdx.x / LNT_WARP;
}

LNT_DEVICE uint64_t lnt_dev_warps(void)
{
    return (uint64_t)gridDim.x * LNT_CUDA_WARPS;
}

/* The run with block b of the batch; *b_p becomes its number in that run. Batches of other runs (optim/update_cuda.h)
 * look the same. */
template <class BATCH> LNT_DEVICE auto lnt_dev_run_of_block(const BATCH &batch, uint64_t *b_p)
{
    if (!batch.runs) return batch.one;
    uint32_t low = 0, high = batch.cut.n_runs; /* first_block[low] <= b < first_block[high] */
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (batch.cut.first_block[middle] <= *b_p)
            low = middle;
        else
            high = middle;
    }
    *b_p -= batch.cut.first_block[low];
    return batch.runs[low];
}

LNT_DEVICE lnt_cuda_run_t lnt_dev_run(const lnt_cuda_batch_t &batch, uint64_t r)
{
    return batch.runs ? batch.runs[r] : batch.one;
}

/* The chunk of n elements from `at` on. */
LNT_DEVICE lnt_dev_chunk_t lnt_dev_chunk(const lnt_cuda_run_t &run, uint64_t block, uint64_t at, uint32_t n)
{
    lnt_dev_chunk_t chunk = {run.live ? run.live + at / 8 : NULL,
                             run.error_in ? run.error_in + at : NULL,
                             run.seed,
                             run.index + at,
                             at,
                             block,
                             n,
                             (int)lnt_dev_thread_in_warp() * LNT_QUAD};
    return chunk;
}

LNT_DEVICE uint32_t lnt_dev_rest(uint64_t at, uint64_t end, uint32_t most)
{
    return end - at < most ? (uint32_t)(end - at) : most;
}

/* work(run, block, begin, end) for every block of the batch that falls to this warp: its number in the run, and the
 * run's elements in it. */
template <class BATCH, class WORK> LNT_DEVICE void lnt_dev_each_block(const BATCH &batch, const WORK &work)
{
    for (uint64_t b = lnt_dev_warp(); b < batch.cut.n_blocks; b += lnt_dev_warps()) {
        uint64_t block = b;
        auto run = lnt_dev_run_of_block(batch, &block);
        uint64_t begin = block * batch.cut.block;
        work(run, block, begin, begin + lnt_dev_rest(begin, run.n, batch.cut.block));
    }
}

/* work(chunk) for the chunks of elements begin .. end - 1 of the run's block. */
template <class WORK>
LNT_DEVICE void lnt_dev_each_chunk(const lnt_cuda_run_t &run, uint64_t block, uint64_t begin, uint64_t end,
                                   const WORK &work)
{
    for (uint64_t at = begin; at < end; at += LNT_CUDA_CHUNK)
        work(lnt_dev_chunk(run, block, at, lnt_dev_rest(at, end, LNT_CUDA_CHUNK)));
}

template <class CODEC> LNT_DEVICE uint8_t *lnt_dev_codes(const lnt_cuda_run_t &run, uint64_t at)
{
    return run.codes + at * CODEC::BITS / 8;
}

LNT_DEVICE float *lnt_dev_error_out(const lnt_cuda_run_t &run, uint64_t at)
{
    return run.error_out ? run.error_out + at : NULL;
}

/* ---- sources: where the values of a chunk come from ---- */

template <class TYPE> struct lnt_from_values {
    template <class CODEC, int ROUNDS>
    LNT_DEVICE void load(const lnt_cuda_run_t &run, const lnt_dev_chunk_t &chunk, const lnt_dev_call_t &,
                         float (*a)[LNT_QUAD])
    {
        TYPE::template load<ROUNDS>((const uint8_t *)run.values + chunk.at * TYPE::BYTES, chunk.e, chunk.n, a);
    }
};

/* The type is looked up: for kernels that are not worth one copy per type. */
struct lnt_from_any {
    template <class CODEC, int ROUNDS>
    LNT_DEVICE void load(const lnt_cuda_run_t &run, const lnt_dev_chunk_t &chunk, const lnt_dev_call_t &call,
                         float (*a)[LNT_QUAD])
    {
        if (call.dtype == LNT_F32)
            lnt_from_values<lnt_type_f32>::load<CODEC, ROUNDS>(run, chunk, call, a);
        else if (call.dtype == LNT_BF16)
            lnt_from_values<lnt_type_bf16>::load<CODEC, ROUNDS>(run, chunk, call, a);
        else
            lnt_from_values<lnt_type_f16>::load<CODEC, ROUNDS>(run, chunk, call, a);
    }
};

/* a = [a +] decoded. Dead elements decode to +0. */
template <class CODEC, int ROUNDS>
LNT_DEVICE void lnt_dev_decode(const lnt_dev_chunk_t &chunk, const uint8_t *scales, const uint8_t *codes, bool add,
                               float (*a)[LNT_QUAD])
{
    lnt_quad_code<CODEC::BITS> c[ROUNDS];
    codes += chunk.at * CODEC::BITS / 8;
    if constexpr (CODEC::BITS == 1)
        lnt_load_bits<ROUNDS>(codes, chunk.e, chunk.n, c);
    else
        lnt_load_codes<CODEC::BITS, ROUNDS>(codes, chunk.e, chunk.n, c);
    float scale = CODEC::HAS_SCALES ? lnt_dev_load_scale(scales + 4 * chunk.block) : 0.0f;
    LNT_UNROLL
    for (int r = 0; r < ROUNDS; r++) {
        lnt_dev_place_t place = lnt_dev_place(chunk, r);
        uint32_t present = lnt_dev_present(place);
        float v[LNT_QUAD];
        CODEC::decode(c[r], scale, v);
        CODEC::unrotate(v, place);
        LNT_UNROLL
        for (int k = 0; k < LNT_QUAD; k++) {
            float value = present >> k & 1u ? v[k] : 0.0f;
            a[r][k] = add ? a[r][k] + value : value;
        }
    }
}

template <class CODEC, int ROUNDS>
LNT_DEVICE void lnt_dev_decode_sum(const lnt_cuda_run_t &run, const lnt_dev_chunk_t &chunk, bool add,
                                   float (*a)[LNT_QUAD])
{
    for (uint32_t i = 0; i < run.n_inputs; i++)
        lnt_dev_decode<CODEC, ROUNDS>(chunk, run.inputs[i].scales, run.inputs[i].codes, add || i > 0, a);
}

struct lnt_from_inputs {
    template <class CODEC, int ROUNDS>
    LNT_DEVICE void load(const lnt_cuda_run_t &run, const lnt_dev_chunk_t &chunk, const lnt_dev_call_t &call,
                         float (*a)[LNT_QUAD])
    {
        lnt_dev_clear<ROUNDS>(a);
        lnt_dev_decode_sum<CODEC, ROUNDS>(run, chunk, false, a);
        LNT_UNROLL
        for (int r = 0; r < ROUNDS; r++) {
            LNT_UNROLL
            for (int k = 0; k < LNT_QUAD; k++)
                a[r][k] *= call.factor;
        }
    }
};

#endif
