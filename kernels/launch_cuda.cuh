/* The launchers of a codec: which kernel for which block and element type. LNT_CUDA_OPS(name, class) at the end of a
 * <codec>_cuda.cu makes the table.
 */
#ifndef LNT_LAUNCH_CUDA_CUH
#define LNT_LAUNCH_CUDA_CUH

#include "codec_cuda.cuh"
#include "pieces_cuda.cuh"
#include "start_cuda.cuh"

typedef void (*lnt_cuda_kernel_t)(lnt_cuda_batch_t batch, lnt_dev_call_t call);

static inline bool lnt_cuda_batch_fits(const lnt_codec_cfg_t *cfg, const lnt_cuda_batch_t *batch)
{
    return batch->cut.block == cfg->block;
}

/* ---- has a run what an op needs? ---- */

template <class CODEC> static bool lnt_cuda_has_codes(const lnt_cuda_run_t &run)
{
    return run.codes && (!CODEC::HAS_SCALES || run.scales);
}

template <class CODEC> static bool lnt_cuda_may_encode(const lnt_cuda_run_t &run)
{
    return run.values && lnt_cuda_has_codes<CODEC>(run);
}

template <class CODEC> static bool lnt_cuda_may_serve(const lnt_cuda_run_t &run)
{
    return (run.inputs || run.n_inputs == 0) && lnt_cuda_has_codes<CODEC>(run);
}

template <class CODEC> static bool lnt_cuda_may_decode(const lnt_cuda_run_t &run)
{
    return run.out && (run.n_inputs ? run.inputs != NULL : lnt_cuda_has_codes<CODEC>(run));
}

static inline bool lnt_cuda_may_measure(const lnt_cuda_run_t &run)
{
    return run.measure && (run.values || run.n == 0);
}

static inline bool lnt_cuda_may_finish(const lnt_cuda_run_t &run)
{
    return run.measure && run.scale;
}

template <class CODEC> static bool lnt_cuda_may_encode_scaled(const lnt_cuda_run_t &run)
{
    return lnt_cuda_may_encode<CODEC>(run) && (!CODEC::HAS_SCALES || (run.scale && run.poisoned));
}

/* ---- the launchers ---- */

static inline lnt_dev_call_t lnt_cuda_call(const lnt_codec_cfg_t *cfg, lnt_dtype_t dtype)
{
    lnt_dev_call_t call = {cfg->scale_rule, dtype, 1.0f, false, false};
    return call;
}

/* Blocks up to 1024 stay in registers; without a scale there is nothing to stay for. */
template <class CODEC, class SOURCE> static lnt_cuda_kernel_t lnt_cuda_encode_kernel(uint32_t block)
{
    if constexpr (CODEC::HAS_SCALES) {
        if (block <= LNT_ROUNDS_FEW * LNT_ROUND) return lnt_encode_blocks<CODEC, SOURCE, LNT_ROUNDS_FEW>;
        if (block <= LNT_ROUNDS_MANY * LNT_ROUND) return lnt_encode_blocks<CODEC, SOURCE, LNT_ROUNDS_MANY>;
    }
    return lnt_encode_chunks<CODEC, SOURCE>;
}

template <class CODEC>
static lnt_status_t lnt_cuda_encode(const lnt_codec_cfg_t *cfg, const lnt_cuda_batch_t *batch, lnt_dtype_t dtype,
                                    bool squares, void *stream)
{
    lnt_dev_call_t call = lnt_cuda_call(cfg, dtype);
    lnt_cuda_kernel_t kernel;
    call.squares = squares;
    if (!lnt_cuda_batch_fits(cfg, batch) || (unsigned)dtype >= LNT_DTYPE_COUNT) return LNT_ERR_INVALID_ARG;
    if (dtype == LNT_F32)
        kernel = lnt_cuda_encode_kernel<CODEC, lnt_from_values<lnt_type_f32>>(cfg->block);
    else if (dtype == LNT_BF16)
        kernel = lnt_cuda_encode_kernel<CODEC, lnt_from_values<lnt_type_bf16>>(cfg->block);
    else
        kernel = lnt_cuda_encode_kernel<CODEC, lnt_from_values<lnt_type_f16>>(cfg->block);
    return lnt_cuda_start(kernel, batch->cut.n_blocks, batch, lnt_cuda_may_encode<CODEC>, stream, call);
}

template <class CODEC>
static lnt_status_t lnt_cuda_serve(const lnt_codec_cfg_t *cfg, const lnt_cuda_batch_t *batch, float factor,
                                   bool squares, void *stream)
{
    lnt_dev_call_t call = lnt_cuda_call(cfg, LNT_F32);
    call.factor = factor;
    call.squares = squares;
    if (!lnt_cuda_batch_fits(cfg, batch)) return LNT_ERR_INVALID_ARG;
    return lnt_cuda_start(lnt_cuda_encode_kernel<CODEC, lnt_from_inputs>(cfg->block), batch->cut.n_blocks, batch,
                          lnt_cuda_may_serve<CODEC>, stream, call);
}

template <class CODEC>
static lnt_status_t lnt_cuda_decode_sum(const lnt_codec_cfg_t *cfg, const lnt_cuda_batch_t *batch, bool add,
                                        void *stream)
{
    lnt_dev_call_t call = lnt_cuda_call(cfg, LNT_F32);
    call.add = add;
    if (!lnt_cuda_batch_fits(cfg, batch)) return LNT_ERR_INVALID_ARG;
    return lnt_cuda_start(lnt_decode_blocks<CODEC>, batch->cut.n_blocks, batch, lnt_cuda_may_decode<CODEC>, stream,
                          call);
}

template <class CODEC>
static lnt_status_t lnt_cuda_measure(const lnt_codec_cfg_t *cfg, const lnt_cuda_batch_t *batch, lnt_dtype_t dtype,
                                     void *stream)
{
    if ((unsigned)dtype >= LNT_DTYPE_COUNT) return LNT_ERR_INVALID_ARG;
    return lnt_cuda_start(lnt_measure_pieces<CODEC>, batch->cut.n_runs, batch, lnt_cuda_may_measure, stream,
                          lnt_cuda_call(cfg, dtype));
}

template <class CODEC>
static lnt_status_t lnt_cuda_finish(const lnt_codec_cfg_t *cfg, const lnt_cuda_batch_t *batch, void *stream)
{
    return lnt_cuda_start(lnt_finish_blocks<CODEC>, batch->cut.n_runs, batch, lnt_cuda_may_finish, stream,
                          lnt_cuda_call(cfg, LNT_F32));
}

template <class CODEC>
static lnt_status_t lnt_cuda_encode_scaled(const lnt_codec_cfg_t *cfg, const lnt_cuda_batch_t *batch, lnt_dtype_t dtype,
                                           void *stream)
{
    lnt_dev_call_t call = lnt_cuda_call(cfg, dtype);
    lnt_status_t status = LNT_OK;
    if ((unsigned)dtype >= LNT_DTYPE_COUNT) return LNT_ERR_INVALID_ARG;
    if (CODEC::HAS_SCALES)
        status = lnt_cuda_start(lnt_check_pieces<CODEC>, batch->cut.n_blocks, batch, lnt_cuda_may_encode_scaled<CODEC>,
                                stream, call);
    if (status != LNT_OK) return status;
    return lnt_cuda_start(lnt_code_pieces<CODEC>, batch->cut.n_blocks, batch, lnt_cuda_may_encode_scaled<CODEC>, stream,
                          call);
}

#define LNT_CUDA_OPS(_name, _class)                                                                                    \
    extern "C" {                                                                                                       \
    extern const lnt_cuda_codec_ops_t lnt_##_name##_ops_cuda;                                                          \
    const lnt_cuda_codec_ops_t lnt_##_name##_ops_cuda = {lnt_cuda_encode<_class>,     lnt_cuda_serve<_class>,          \
                                                         lnt_cuda_decode_sum<_class>, lnt_cuda_measure<_class>,        \
                                                         lnt_cuda_finish<_class>,     lnt_cuda_encode_scaled<_class>}; \
    }

#endif
