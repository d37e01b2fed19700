/* Momentum and sign1 in one pass over device memory: the values that are coded are formed in registers. */
#include "../kernels/sign1_cuda.cuh"

#include "update_cuda.h"

struct lnt_from_momentum {
    template <class CODEC, int ROUNDS>
    LNT_DEVICE void load(const lnt_cuda_run_t &run, const lnt_dev_chunk_t &chunk, const lnt_dev_call_t &,
                         float (*a)[LNT_QUAD])
    {
        const lnt_adam_consts_t k = *(const lnt_adam_consts_t *)run.consts;
        float m[ROUNDS][LNT_QUAD];
        lnt_load_f32<ROUNDS>((const float *)run.values + chunk.at, chunk.e, chunk.n, a);
        lnt_load_f32<ROUNDS>(run.momentum + chunk.at, chunk.e, chunk.n, m);
        LNT_UNROLL
        for (int r = 0; r < ROUNDS; r++) {
            LNT_UNROLL
            for (int i = 0; i < LNT_QUAD; i++)
                a[r][i] = lnt_adam_momentum(&k, m[r][i], a[r][i]);
        }
    }
};

static bool may_encode(const lnt_cuda_run_t &run)
{
    return run.momentum && run.consts && lnt_cuda_may_encode<sign1>(run);
}

extern "C" lnt_status_t lnt_cuda_encode_momentum(const lnt_codec_cfg_t *cfg, const lnt_cuda_batch_t *batch,
                                                 void *stream)
{
    if (!lnt_cuda_batch_fits(cfg, batch)) return LNT_ERR_INVALID_ARG;
    return lnt_cuda_start(lnt_cuda_encode_kernel<sign1, lnt_from_momentum>(cfg->block), batch->cut.n_blocks, batch,
                          may_encode, stream, lnt_cuda_call(cfg, LNT_F32));
}
