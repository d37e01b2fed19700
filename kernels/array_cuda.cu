/* Elementwise work of a step outside the codecs, for device memory. A warp takes a block of the batch, chunk by chunk.
 */
#include "start_cuda.cuh"

#include "bf16_math.h"
#include "f16_math.h"

typedef struct lnt_dev_array_call {
    float factor;
    bool add, squares;
} lnt_dev_array_call_t;

typedef void (*lnt_cuda_array_kernel_t)(lnt_cuda_batch_t batch, lnt_dev_array_call_t call);

enum { ROUNDS = LNT_ROUNDS_CHUNK };

/* WORK::chunk(run, chunk, call) for every chunk of the block; top bit of what it returns: poisoned. */
template <class WORK>
LNT_KERNEL void __launch_bounds__(LNT_CUDA_THREADS, LNT_CUDA_RESIDENT)
    lnt_array_blocks(const __grid_constant__ lnt_cuda_batch_t batch, const lnt_dev_array_call_t call)
{
    lnt_dev_each_block(batch, [&](const lnt_cuda_run_t &run, uint64_t block, uint64_t begin, uint64_t end) {
        uint32_t bad = 0;
        lnt_dev_each_chunk(run, block, begin, end,
                           [&](const lnt_dev_chunk_t &chunk) { bad |= WORK::chunk(run, chunk, call); });
        lnt_dev_poison(run.poisoned, lnt_dev_any(bad));
    });
}

template <class TYPE> struct lnt_widen {
    LNT_DEVICE uint32_t chunk(const lnt_cuda_run_t &run, const lnt_dev_chunk_t &chunk, const lnt_dev_array_call_t &call)
    {
        float a[ROUNDS][LNT_QUAD], sum[ROUNDS][LNT_QUAD] = {}, *out = (float *)run.out + chunk.at;
        uint32_t bad = 0;
        TYPE::template load<ROUNDS>((const uint8_t *)run.values + chunk.at * TYPE::BYTES, chunk.e, chunk.n, a);
        if (call.add) lnt_load_f32<ROUNDS>(out, chunk.e, chunk.n, sum);
        LNT_UNROLL
        for (int r = 0; r < ROUNDS; r++) {
            LNT_UNROLL
            for (int k = 0; k < LNT_QUAD; k++) {
                if (call.factor != 1.0f) a[r][k] *= call.factor;
                bad |= lnt_f32_nonfinite_bit(a[r][k]);
                if (call.add) a[r][k] = sum[r][k] + a[r][k];
            }
        }
        lnt_store_f32<ROUNDS>(out, chunk.e, chunk.n, a);
        return bad;
    }
};

/* CODE::code, CODE::overflow: of one element. */
template <class CODE> struct lnt_narrow_half {
    LNT_DEVICE uint32_t chunk(const lnt_cuda_run_t &run, const lnt_dev_chunk_t &chunk, const lnt_dev_array_call_t &)
    {
        float a[ROUNDS][LNT_QUAD];
        lnt_quad_code<16> c[ROUNDS];
        uint32_t bad = 0;
        lnt_load_f32<ROUNDS>((const float *)run.values + chunk.at, chunk.e, chunk.n, a);
        LNT_UNROLL
        for (int r = 0; r < ROUNDS; r++) {
            lnt_quad_clear(&c[r]);
            LNT_UNROLL
            for (int k = 0; k < LNT_QUAD; k++) {
                c[r].w[k / 2] |= (uint32_t)CODE::code(a[r][k]) << (16 * (k % 2));
                bad |= CODE::overflow(a[r][k]);
            }
        }
        lnt_store_codes<16, ROUNDS>((uint8_t *)run.out + 2 * chunk.at, chunk.e, chunk.n, c);
        return bad;
    }
};

struct lnt_narrow_bf16 {
    LNT_DEVICE uint16_t code(float a) { return lnt_bf16_code(a); }
    LNT_DEVICE uint32_t overflow(float a) { return lnt_bf16_overflow_bit(a); }
};

struct lnt_narrow_f16 {
    LNT_DEVICE uint16_t code(float a) { return lnt_f16_code(a); }
    LNT_DEVICE uint32_t overflow(float a) { return lnt_f16_overflow_bit(a); }
};

/* Dead elements count for the check of finite values, but not for that of squares. */
struct lnt_check {
    LNT_DEVICE uint32_t chunk(const lnt_cuda_run_t &run, const lnt_dev_chunk_t &chunk, const lnt_dev_array_call_t &call)
    {
        float a[ROUNDS][LNT_QUAD], error[ROUNDS][LNT_QUAD];
        uint32_t bad = 0;
        lnt_load_f32<ROUNDS>((const float *)run.values + chunk.at, chunk.e, chunk.n, a);
        if (call.squares && chunk.error_in) lnt_load_f32<ROUNDS>(chunk.error_in, chunk.e, chunk.n, error);
        LNT_UNROLL
        for (int r = 0; r < ROUNDS; r++) {
            uint32_t present = call.squares ? lnt_dev_present(lnt_dev_place(chunk, r)) : 15u;
            LNT_UNROLL
            for (int k = 0; k < LNT_QUAD; k++) {
                float value = call.squares && chunk.error_in ? a[r][k] + error[r][k] : a[r][k];
                if (call.squares) value = value * value;
                bad |= present >> k & 1u ? lnt_f32_nonfinite_bit(value) : 0u;
            }
        }
        return bad;
    }
};

LNT_KERNEL void __launch_bounds__(LNT_CUDA_THREADS, LNT_CUDA_RESIDENT)
    lnt_square_sum_blocks(const __grid_constant__ lnt_cuda_batch_t batch)
{
    lnt_dev_each_block(batch, [&](const lnt_cuda_run_t &run, uint64_t block, uint64_t begin, uint64_t end) {
        lnt_dev_measure_t m = lnt_dev_measure_zero();
        lnt_dev_each_chunk(run, block, begin, end, [&](const lnt_dev_chunk_t &chunk) {
            float a[ROUNDS][LNT_QUAD];
            lnt_load_f32<ROUNDS>((const float *)run.values + chunk.at, chunk.e, chunk.n, a);
            LNT_UNROLL
            for (int r = 0; r < ROUNDS; r++)
                lnt_dev_add_to_lanes(a[r], LNT_SCALE_L2, m.lanes);
        });
        double sum = lnt_dev_tree_combine(m.lanes);
        if (lnt_dev_thread_in_warp() == 0) run.sums[block] = sum;
    });
}

/* ---- launchers ---- */

static bool converts(const lnt_cuda_run_t &run)
{
    return run.values && run.out;
}

static bool checks(const lnt_cuda_run_t &run)
{
    return run.values != NULL;
}

static bool sums(const lnt_cuda_run_t &run)
{
    return run.values && run.sums;
}

static lnt_status_t widen(const lnt_cuda_batch_t *batch, lnt_dtype_t dtype, float factor, bool add, void *stream)
{
    static const lnt_cuda_array_kernel_t kernels[LNT_DTYPE_COUNT] = {lnt_array_blocks<lnt_widen<lnt_type_f32>>,
                                                                     lnt_array_blocks<lnt_widen<lnt_type_bf16>>,
                                                                     lnt_array_blocks<lnt_widen<lnt_type_f16>>};
    lnt_dev_array_call_t call = {factor, add, false};
    if ((unsigned)dtype >= LNT_DTYPE_COUNT) return LNT_ERR_INVALID_ARG;
    return lnt_cuda_start(kernels[dtype], batch->cut.n_blocks, batch, converts, stream, call);
}

static lnt_status_t narrow(const lnt_cuda_batch_t *batch, lnt_dtype_t dtype, void *stream)
{
    static const lnt_cuda_array_kernel_t kernels[LNT_DTYPE_COUNT] = {
        lnt_array_blocks<lnt_widen<lnt_type_f32>>, /* a copy */
        lnt_array_blocks<lnt_narrow_half<lnt_narrow_bf16>>, lnt_array_blocks<lnt_narrow_half<lnt_narrow_f16>>};
    lnt_dev_array_call_t call = {1.0f, false, false};
    if ((unsigned)dtype >= LNT_DTYPE_COUNT) return LNT_ERR_INVALID_ARG;
    return lnt_cuda_start(kernels[dtype], batch->cut.n_blocks, batch, converts, stream, call);
}

static lnt_status_t check(const lnt_cuda_batch_t *batch, bool squares, void *stream)
{
    lnt_dev_array_call_t call = {1.0f, false, squares};
    return lnt_cuda_start(lnt_array_blocks<lnt_check>, batch->cut.n_blocks, batch, checks, stream, call);
}

static lnt_status_t square_sums(const lnt_cuda_batch_t *batch, void *stream)
{
    return lnt_cuda_start(lnt_square_sum_blocks, batch->cut.n_blocks, batch, sums, stream);
}

extern "C" const lnt_cuda_array_ops_t *lnt_cuda_array_ops(void)
{
    static const lnt_cuda_array_ops_t ops = {widen, narrow, check, square_sums};
    return &ops;
}
