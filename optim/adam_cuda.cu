/* The update rules for device memory: elementwise, a warp takes a block of the batch, chunk by chunk. */
#include "../kernels/start_cuda.cuh"

#include "update_cuda.h"

enum { ROUNDS = LNT_ROUNDS_CHUNK };

typedef float lnt_dev_values_t[ROUNDS][LNT_QUAD];

/* RULE::chunk(run, k, at, e, n): elements at .. at + n - 1 of the run, of which e, e + 1, ... are the thread's.
 * RULE::complete(run), on the host: has the run the arrays that the rule needs? */
template <class RULE>
LNT_KERNEL void __launch_bounds__(LNT_CUDA_THREADS, LNT_CUDA_RESIDENT)
    lnt_update_blocks(const __grid_constant__ lnt_cuda_update_batch_t batch)
{
    int e = (int)lnt_dev_thread_in_warp() * LNT_QUAD;
    lnt_dev_each_block(batch, [&](const lnt_cuda_update_run_t &run, uint64_t, uint64_t begin, uint64_t end) {
        lnt_adam_consts_t k = *run.k;
        for (uint64_t at = begin; at < end; at += LNT_CUDA_CHUNK)
            RULE::chunk(run, k, at, e, lnt_dev_rest(at, end, LNT_CUDA_CHUNK));
    });
}

struct lnt_rule_adam {
    static bool complete(const lnt_cuda_update_run_t &run) { return run.k && run.g && run.m && run.v && run.x; }
    LNT_DEVICE void chunk(const lnt_cuda_update_run_t &run, const lnt_adam_consts_t &k, uint64_t at, int e, uint32_t n)
    {
        lnt_dev_values_t g, m, v, x;
        float clip = run.clip ? *run.clip : 1.0f;
        lnt_load_f32<ROUNDS>(run.g + at, e, n, g);
        lnt_load_f32<ROUNDS>(run.m + at, e, n, m);
        lnt_load_f32<ROUNDS>(run.v + at, e, n, v);
        lnt_load_f32<ROUNDS>(run.x + at, e, n, x);
        LNT_UNROLL
        for (int r = 0; r < ROUNDS; r++) {
            LNT_UNROLL
            for (int i = 0; i < LNT_QUAD; i++)
                lnt_adam_update(&k, run.clip ? g[r][i] * clip : g[r][i], &m[r][i], &v[r][i], &x[r][i]);
        }
        lnt_store_f32<ROUNDS>(run.m + at, e, n, m);
        lnt_store_f32<ROUNDS>(run.v + at, e, n, v);
        lnt_store_f32<ROUNDS>(run.x + at, e, n, x);
    }
};

struct lnt_rule_momentum {
    static bool complete(const lnt_cuda_update_run_t &run) { return run.k && run.m && run.value; }
    LNT_DEVICE void chunk(const lnt_cuda_update_run_t &run, const lnt_adam_consts_t &k, uint64_t at, int e, uint32_t n)
    {
        lnt_dev_values_t m, value;
        lnt_load_f32<ROUNDS>(run.m + at, e, n, m);
        lnt_load_f32<ROUNDS>(run.value + at, e, n, value);
        LNT_UNROLL
        for (int r = 0; r < ROUNDS; r++) {
            LNT_UNROLL
            for (int i = 0; i < LNT_QUAD; i++)
                value[r][i] = lnt_adam_momentum(&k, m[r][i], value[r][i]);
        }
        lnt_store_f32<ROUNDS>(run.value + at, e, n, value);
    }
};

/* Dead elements are written as they were read. */
struct lnt_rule_frozen {
    static bool complete(const lnt_cuda_update_run_t &run)
    {
        return run.k && run.value && run.denominator && run.m && run.x;
    }
    LNT_DEVICE void chunk(const lnt_cuda_update_run_t &run, const lnt_adam_consts_t &k, uint64_t at, int e, uint32_t n)
    {
        lnt_dev_values_t value, denominator, m, x;
        lnt_quad_code<8> dead[ROUNDS];
        lnt_load_f32<ROUNDS>(run.value + at, e, n, value);
        lnt_load_f32<ROUNDS>(run.denominator + at, e, n, denominator);
        lnt_load_f32<ROUNDS>(run.x + at, e, n, x);
        if (run.dead) {
            lnt_load_f32<ROUNDS>(run.m + at, e, n, m);
            lnt_load_codes<8, ROUNDS>(run.dead + at, e, n, dead);
        }
        LNT_UNROLL
        for (int r = 0; r < ROUNDS; r++) {
            LNT_UNROLL
            for (int i = 0; i < LNT_QUAD; i++) {
                if (run.dead && (dead[r].w[0] >> (8 * i) & 255u)) continue;
                m[r][i] = value[r][i];
                x[r][i] = lnt_adam_move(&k, x[r][i], m[r][i], denominator[r][i]);
            }
        }
        lnt_store_f32<ROUNDS>(run.m + at, e, n, m);
        lnt_store_f32<ROUNDS>(run.x + at, e, n, x);
    }
};

template <class RULE> static lnt_status_t start(const lnt_cuda_update_batch_t *batch, void *stream)
{
    return lnt_cuda_start(lnt_update_blocks<RULE>, batch->cut.n_blocks, batch, RULE::complete, stream);
}

extern "C" {

lnt_status_t lnt_cuda_update_adam(const lnt_cuda_update_batch_t *batch, void *stream)
{
    return start<lnt_rule_adam>(batch, stream);
}

lnt_status_t lnt_cuda_update_momentum(const lnt_cuda_update_batch_t *batch, void *stream)
{
    return start<lnt_rule_momentum>(batch, stream);
}

lnt_status_t lnt_cuda_update_frozen(const lnt_cuda_update_batch_t *batch, void *stream)
{
    return start<lnt_rule_frozen>(batch, stream);
}
}
