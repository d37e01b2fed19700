/* The kernels of a codec that take whole runs: encode, serve, decode_sum. A warp takes a block; what the grid leaves
 * over it takes in steps of the grid. Templates over the codec's class (block_cuda.cuh) and the source of values.
 */
#ifndef LNT_CODEC_CUDA_CUH
#define LNT_CODEC_CUDA_CUH

#include "run_cuda.cuh"

/* What a codec without rotation, and with a code for every finite value, says. */
struct lnt_plain_codec {
    LNT_DEVICE uint32_t overflow(const float *, const lnt_dev_place_t &) { return 0; }
    LNT_DEVICE void rotate(float *, const lnt_dev_place_t &) {}
    LNT_DEVICE void unrotate(float *, const lnt_dev_place_t &) {}
};

/* A block that fits the registers: one pass over memory. */
template <class CODEC, class SOURCE, int ROUNDS>
LNT_DEVICE void lnt_dev_encode_block(const lnt_cuda_run_t &run, const lnt_dev_chunk_t &chunk,
                                     const lnt_dev_call_t &call)
{
    float a[ROUNDS][LNT_QUAD], scale;
    lnt_dev_measure_t m = lnt_dev_measure_zero();
    uint32_t count = chunk.n;
    SOURCE::template load<CODEC, ROUNDS>(run, chunk, call, a);
    lnt_dev_form<CODEC, ROUNDS>(chunk, a, &m);
    lnt_dev_measure<CODEC, ROUNDS>(chunk, call.rule, a, &m);
    if (chunk.live) count = __reduce_add_sync(LNT_WHOLE_WARP, m.count);
    bool clean = lnt_dev_finish<CODEC>(m, count, call.rule, &scale);
    m.squares |= lnt_dev_code<CODEC, ROUNDS>(chunk, scale, !clean, a, lnt_dev_codes<CODEC>(run, chunk.at),
                                             lnt_dev_error_out(run, chunk.at));
    if (CODEC::HAS_SCALES) lnt_dev_store_scale(run.scales + 4 * chunk.block, scale);
    lnt_dev_poison(run.poisoned, !clean || (call.squares && lnt_dev_any(m.squares)));
}

template <class CODEC, class SOURCE, int ROUNDS>
LNT_KERNEL void __launch_bounds__(LNT_CUDA_THREADS, LNT_CUDA_RESIDENT)
    lnt_encode_blocks(const __grid_constant__ lnt_cuda_batch_t batch, const lnt_dev_call_t call)
{
    lnt_dev_each_block(batch, [&](const lnt_cuda_run_t &run, uint64_t block, uint64_t begin, uint64_t end) {
        lnt_dev_chunk_t chunk = lnt_dev_chunk(run, block, begin, (uint32_t)(end - begin));
        lnt_dev_encode_block<CODEC, SOURCE, ROUNDS>(run, chunk, call);
    });
}

/* A block of any size, chunk by chunk: first measured, if the codec measures, then coded. */
template <class CODEC, class SOURCE>
LNT_DEVICE void lnt_dev_encode_chunks(const lnt_cuda_run_t &run, uint64_t block, uint64_t begin, uint64_t end,
                                      const lnt_dev_call_t &call)
{
    float a[LNT_ROUNDS_CHUNK][LNT_QUAD], scale = 0.0f;
    lnt_dev_measure_t m = lnt_dev_measure_zero();
    bool clean = true;
    if (CODEC::HAS_SCALES) {
        lnt_dev_each_chunk(run, block, begin, end, [&](const lnt_dev_chunk_t &chunk) {
            SOURCE::template load<CODEC, LNT_ROUNDS_CHUNK>(run, chunk, call, a);
            lnt_dev_form<CODEC, LNT_ROUNDS_CHUNK>(chunk, a, &m);
            lnt_dev_measure<CODEC, LNT_ROUNDS_CHUNK>(chunk, call.rule, a, &m);
        });
        clean = lnt_dev_finish<CODEC>(m, __reduce_add_sync(LNT_WHOLE_WARP, m.count), call.rule, &scale);
    }
    lnt_dev_each_chunk(run, block, begin, end, [&](const lnt_dev_chunk_t &chunk) {
        SOURCE::template load<CODEC, LNT_ROUNDS_CHUNK>(run, chunk, call, a);
        lnt_dev_form<CODEC, LNT_ROUNDS_CHUNK>(chunk, a, &m);
        m.squares |= lnt_dev_code<CODEC, LNT_ROUNDS_CHUNK>(chunk, scale, !clean, a, lnt_dev_codes<CODEC>(run, chunk.at),
                                                           lnt_dev_error_out(run, chunk.at));
    });
    if (CODEC::HAS_SCALES) lnt_dev_store_scale(run.scales + 4 * block, scale);
    lnt_dev_poison(run.poisoned, lnt_dev_any(m.bad | (call.squares ? m.squares : 0)) || !clean);
}

template <class CODEC, class SOURCE>
LNT_KERNEL void __launch_bounds__(LNT_CUDA_THREADS, LNT_CUDA_RESIDENT)
    lnt_encode_chunks(const __grid_constant__ lnt_cuda_batch_t batch, const lnt_dev_call_t call)
{
    lnt_dev_each_block(batch, [&](const lnt_cuda_run_t &run, uint64_t block, uint64_t begin, uint64_t end) {
        lnt_dev_encode_chunks<CODEC, SOURCE>(run, block, begin, end, call);
    });
}

template <class CODEC>
LNT_DEVICE void lnt_dev_decode_chunk(const lnt_cuda_run_t &run, const lnt_dev_chunk_t &chunk, bool add)
{
    constexpr int ROUNDS = LNT_ROUNDS_CHUNK;
    float a[ROUNDS][LNT_QUAD];
    float *out = (float *)run.out + chunk.at;
    lnt_dev_clear<ROUNDS>(a);
    if (add) lnt_load_f32<ROUNDS>(out, chunk.e, chunk.n, a);
    if (run.n_inputs)
        lnt_dev_decode_sum<CODEC, ROUNDS>(run, chunk, add, a);
    else
        lnt_dev_decode<CODEC, ROUNDS>(chunk, run.scales, run.codes, add, a);
    lnt_store_f32<ROUNDS>(out, chunk.e, chunk.n, a);
}

template <class CODEC>
LNT_KERNEL void __launch_bounds__(LNT_CUDA_THREADS, LNT_CUDA_RESIDENT)
    lnt_decode_blocks(const __grid_constant__ lnt_cuda_batch_t batch, const lnt_dev_call_t call)
{
    lnt_dev_each_block(batch, [&](const lnt_cuda_run_t &run, uint64_t block, uint64_t begin, uint64_t end) {
        lnt_dev_each_chunk(run, block, begin, end,
                           [&](const lnt_dev_chunk_t &chunk) { lnt_dev_decode_chunk<CODEC>(run, chunk, call.add); });
    });
}

#endif
