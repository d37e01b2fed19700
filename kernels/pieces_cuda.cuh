/* The two-step form of encode, for blocks that are larger than what is coded at a time: measure pieces, finish the
 * block, code the pieces under its scale. Rare, so the element type is looked up at run time.
 */
#ifndef LNT_PIECES_CUDA_CUH
#define LNT_PIECES_CUDA_CUH

#include "run_cuda.cuh"

/* Adds what a warp saw of a piece. Lanes are added to by their threads. */
template <class CODEC> LNT_DEVICE void lnt_dev_add_measure(lnt_measure_t *to, const lnt_dev_measure_t &m)
{
    bool bad = lnt_dev_any(m.bad);
    uint32_t count = __reduce_add_sync(LNT_WHOLE_WARP, m.count);
    uint32_t amax_bits = __reduce_max_sync(LNT_WHOLE_WARP, m.amax_bits);
    if (CODEC::MEASURE == LNT_MEASURE_TREE) {
        double *lanes = to->lanes + lnt_dev_thread_in_warp() * LNT_QUAD;
        lanes[0] = m.lanes[0], lanes[1] = m.lanes[1], lanes[2] = m.lanes[2], lanes[3] = m.lanes[3];
    }
    if (lnt_dev_thread_in_warp() != 0) return;
    to->count += count;
    if (amax_bits > to->amax_bits) to->amax_bits = amax_bits;
    if (bad) to->poisoned = true;
}

/* A warp takes a piece. Lanes follow the place in the block: in a piece that starts inside a round the first threads
 * lie before it, and its first chunk is shorter. */
template <class CODEC> LNT_DEVICE void lnt_dev_measure_piece(const lnt_cuda_run_t &run, const lnt_dev_call_t &call)
{
    const double *lanes = run.measure->lanes + lnt_dev_thread_in_warp() * LNT_QUAD;
    lnt_dev_measure_t m = {{lanes[0], lanes[1], lanes[2], lanes[3]}, 0, 0, 0, 0};
    uint32_t shift = (uint32_t)(run.first % LNT_TREE_LANES);
    for (uint64_t at = 0; at < run.n;) {
        lnt_dev_chunk_t chunk = lnt_dev_chunk(run, 0, at, lnt_dev_rest(at, run.n, LNT_CUDA_CHUNK - shift));
        float a[LNT_ROUNDS_CHUNK][LNT_QUAD];
        chunk.e -= (int)shift;
        lnt_from_any::load<CODEC, LNT_ROUNDS_CHUNK>(run, chunk, call, a);
        lnt_dev_form<CODEC, LNT_ROUNDS_CHUNK>(chunk, a, &m);
        lnt_dev_measure<CODEC, LNT_ROUNDS_CHUNK>(chunk, call.rule, a, &m);
        at += chunk.n;
        shift = 0;
    }
    lnt_dev_add_measure<CODEC>(run.measure, m);
}

template <class CODEC>
LNT_KERNEL void __launch_bounds__(LNT_CUDA_THREADS, LNT_CUDA_RESIDENT)
    lnt_measure_pieces(const __grid_constant__ lnt_cuda_batch_t batch, const lnt_dev_call_t call)
{
    for (uint64_t r = lnt_dev_warp(); r < batch.cut.n_runs; r += lnt_dev_warps())
        lnt_dev_measure_piece<CODEC>(lnt_dev_run(batch, r), call);
}

template <class CODEC>
LNT_KERNEL void __launch_bounds__(LNT_CUDA_THREADS, LNT_CUDA_RESIDENT)
    lnt_finish_blocks(const __grid_constant__ lnt_cuda_batch_t batch, const lnt_dev_call_t call)
{
    for (uint64_t r = lnt_dev_warp(); r < batch.cut.n_runs; r += lnt_dev_warps()) {
        lnt_cuda_run_t run = lnt_dev_run(batch, r);
        const double *lanes = run.measure->lanes + lnt_dev_thread_in_warp() * LNT_QUAD;
        lnt_dev_measure_t m = {{lanes[0], lanes[1], lanes[2], lanes[3]},
                               run.measure->amax_bits,
                               0,
                               run.measure->poisoned ? 0x80000000u : 0,
                               0};
        float scale;
        bool clean = lnt_dev_finish<CODEC>(m, run.measure->count, call.rule, &scale);
        if (lnt_dev_thread_in_warp() == 0) *run.scale = scale;
        lnt_dev_poison(run.poisoned, !clean);
    }
}

/* Is an element of the piece bad? Before any of it is coded. */
template <class CODEC>
LNT_KERNEL void __launch_bounds__(LNT_CUDA_THREADS, LNT_CUDA_RESIDENT)
    lnt_check_pieces(const __grid_constant__ lnt_cuda_batch_t batch, const lnt_dev_call_t call)
{
    lnt_dev_each_block(batch, [&](const lnt_cuda_run_t &run, uint64_t block, uint64_t begin, uint64_t end) {
        lnt_dev_measure_t m = lnt_dev_measure_zero();
        lnt_dev_each_chunk(run, block, begin, end, [&](const lnt_dev_chunk_t &chunk) {
            float a[LNT_ROUNDS_CHUNK][LNT_QUAD];
            lnt_from_any::load<CODEC, LNT_ROUNDS_CHUNK>(run, chunk, call, a);
            lnt_dev_form<CODEC, LNT_ROUNDS_CHUNK>(chunk, a, &m);
        });
        lnt_dev_poison(run.poisoned, lnt_dev_any(m.bad));
    });
}

/* Codes what a warp has of a piece. Codecs without scales are checked here, as they pass bad values on. */
template <class CODEC>
LNT_DEVICE void lnt_dev_code_piece(const lnt_cuda_run_t &run, uint64_t block, uint64_t begin, uint64_t end,
                                   const lnt_dev_call_t &call)
{
    bool poisoned = CODEC::HAS_SCALES && *run.poisoned != 0;
    float scale = CODEC::HAS_SCALES ? *run.scale : 0.0f;
    lnt_dev_measure_t m = lnt_dev_measure_zero();
    lnt_dev_each_chunk(run, block, begin, end, [&](const lnt_dev_chunk_t &chunk) {
        float a[LNT_ROUNDS_CHUNK][LNT_QUAD];
        lnt_from_any::load<CODEC, LNT_ROUNDS_CHUNK>(run, chunk, call, a);
        lnt_dev_form<CODEC, LNT_ROUNDS_CHUNK>(chunk, a, &m);
        (void)lnt_dev_code<CODEC, LNT_ROUNDS_CHUNK>(chunk, scale, poisoned, a, lnt_dev_codes<CODEC>(run, chunk.at),
                                                    lnt_dev_error_out(run, chunk.at));
    });
    if (!CODEC::HAS_SCALES)
        lnt_dev_poison(run.poisoned, lnt_dev_any(m.bad));
    else if (block == 0)
        lnt_dev_store_scale(run.scales, poisoned ? 0.0f : scale);
}

template <class CODEC>
LNT_KERNEL void __launch_bounds__(LNT_CUDA_THREADS, LNT_CUDA_RESIDENT)
    lnt_code_pieces(const __grid_constant__ lnt_cuda_batch_t batch, const lnt_dev_call_t call)
{
    lnt_dev_each_block(batch, [&](const lnt_cuda_run_t &run, uint64_t block, uint64_t begin, uint64_t end) {
        lnt_dev_code_piece<CODEC>(run, block, begin, end, call);
    });
}

#endif
