/* What every launcher does: refuse what no launch can be made of, as far as the host sees it (cuda_kernels.h), and
 * start the kernel.
 */
#ifndef LNT_START_CUDA_CUH
#define LNT_START_CUDA_CUH

#include "run_cuda.cuh"

static inline unsigned lnt_cuda_grid(uint64_t n_warps)
{
    uint64_t grid = n_warps / LNT_CUDA_WARPS + (n_warps % LNT_CUDA_WARPS != 0);
    return grid < LNT_CUDA_GRID_MAX ? (unsigned)grid : (unsigned)LNT_CUDA_GRID_MAX;
}

/* Do the numbers of the batch agree? */
template <class BATCH> static bool lnt_cuda_cut_legal(const BATCH *batch)
{
    const lnt_cuda_cut_t &cut = batch->cut;
    if (cut.block == 0) return false;
    if (cut.n_runs == 0) return cut.n_blocks == 0;
    if (batch->runs) return cut.first_block != NULL;
    return cut.n_runs == 1 && lnt_cuda_may_cut(batch->one.n, cut.block) &&
           cut.n_blocks == lnt_cuda_cut_one(batch->one.n, cut.block).n_blocks;
}

/* `complete`: has the run the arrays that the op needs? Asked only if a warp has something to do. */
template <class BATCH, class RUN, class... CALL>
static lnt_status_t lnt_cuda_start(void (*kernel)(BATCH, CALL...), uint64_t n_warps, const BATCH *batch,
                                   bool (*complete)(const RUN &run), void *stream, const CALL &...call)
{
    if (!lnt_cuda_cut_legal(batch)) return LNT_ERR_INVALID_ARG;
    if (n_warps == 0) return LNT_OK;
    if (!batch->runs && !complete(batch->one)) return LNT_ERR_INVALID_ARG;
    LNT_LAUNCH(kernel, lnt_cuda_grid(n_warps), LNT_CUDA_THREADS, 0, stream, *batch, call...);
    return lnt_cuda_launch_status();
}

#endif
