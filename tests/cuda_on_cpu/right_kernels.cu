/* See right_kernels.h. Plain CUDA over kernels/cuda_compat.h: nvcc compiles this file as well.
 */
#include "kernels/cuda_compat.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/int8_math.h"
#include "kernels/reduce_tree.h"

#include "right_kernels.h"

#define ALL 0xffffffffu

/* A lane of the tree's 32 groups has four of the 128 lanes; a block of 4 warps sums four trees, then these. */
LNT_DEVICE double warp_tree(const double *lanes)
{
    unsigned lane = threadIdx.x % 32;
    double sum = (lanes[4 * lane] + lanes[4 * lane + 1]) + (lanes[4 * lane + 2] + lanes[4 * lane + 3]);

    for (int half = LNT_TREE_GROUPS / 2; half > 0; half /= 2)
        sum += __shfl_down_sync(ALL, sum, half);
    return sum;
}

template <int n_warps> LNT_KERNEL void tree_sum(const double *lanes, double *sums, size_t n_blocks)
{
    __shared__ double partial[n_warps];

    for (size_t block = blockIdx.x; block < n_blocks; block += gridDim.x) {
        double sum = warp_tree(lanes + (block * n_warps + threadIdx.x / 32) * LNT_TREE_LANES);
        if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int w = 1; w < n_warps; w++)
                sum += partial[w];
            sums[block] = sum;
        }
        __syncthreads();
    }
}

lnt_status_t right_tree_sum(const double *lanes, double *sums, size_t n_blocks, void *stream)
{
    LNT_LAUNCH((tree_sum<4>), 3, 4 * 32, 0, stream, lanes, sums, n_blocks);
    return lnt_cuda_launch_status();
}

LNT_KERNEL void ballot_pack(const float *values, uint32_t *words, size_t n)
{
    size_t stride = (size_t)gridDim.x * blockDim.x;

    for (size_t first = (size_t)blockIdx.x * blockDim.x; first < n; first += stride) {
        size_t i = first + threadIdx.x;
        unsigned word = __ballot_sync(ALL, i < n && values[i] < 0.0f);
        if (threadIdx.x % 32 == 0 && i < n) words[i / 32] = word;
    }
}

lnt_status_t right_ballot_pack(const float *values, uint32_t *words, size_t n, void *stream)
{
    LNT_LAUNCH(ballot_pack, 3, RIGHT_BLOCK, 0, stream, values, words, n);
    return lnt_cuda_launch_status();
}

LNT_DEVICE float4 add4(float4 a, float4 b)
{
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

LNT_KERNEL void add_vectors(float *sums, const float *values, size_t n)
{
    size_t stride = (size_t)gridDim.x * blockDim.x, self = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    bool aligned = ((reinterpret_cast<uintptr_t>(sums) | reinterpret_cast<uintptr_t>(values)) & 15u) == 0;
    size_t n_vectors = aligned ? n / 4 : 0;
    float4 *sums4 = reinterpret_cast<float4 *>(sums);

    for (size_t i = self; i < n_vectors; i += stride)
        sums4[i] = add4(sums4[i], __ldg(reinterpret_cast<const float4 *>(values) + i));
    for (size_t i = 4 * n_vectors + self; i < n; i += stride)
        sums[i] = __fadd_rn(sums[i], __ldg(values + i));
}

lnt_status_t right_add(float *sums, const float *values, size_t n, void *stream)
{
    LNT_LAUNCH(add_vectors, 2, RIGHT_BLOCK, 0, stream, sums, values, n);
    return lnt_cuda_launch_status();
}

LNT_KERNEL void histogram(const uint8_t *bytes, size_t n, unsigned *counts)
{
    LNT_DYN_SHARED(unsigned, mine);

    for (unsigned i = threadIdx.x; i < 256; i += blockDim.x)
        mine[i] = 0;
    __syncthreads();
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        atomicAdd(&mine[bytes[i]], 1u);
    __syncthreads();
    for (unsigned i = threadIdx.x; i < 256; i += blockDim.x)
        atomicAdd(&counts[i], mine[i]);
}

lnt_status_t right_histogram(const uint8_t *bytes, size_t n, unsigned *counts, void *stream)
{
    LNT_LAUNCH(histogram, 3, 96, 256 * sizeof(unsigned), stream, bytes, n, counts);
    return lnt_cuda_launch_status();
}

/* The first look is atomic as well: a plain read beside somebody's exchange is a race. */
LNT_DEVICE void add_by_exchange(unsigned *sum, unsigned value)
{
    unsigned seen = atomicOr(sum, 0u), before;

    do {
        before = seen;
        seen = atomicCAS(sum, before, before + value);
    } while (seen != before);
}

LNT_KERNEL void atomics(const unsigned *values, size_t n, unsigned *results, float *float_sum, double *double_sum)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

    if (i >= n) return;
    atomicAdd(&results[0], values[i]);
    atomicMax(&results[1], values[i]);
    atomicMin(&results[2], values[i]);
    atomicAnd(&results[3], values[i]);
    atomicOr(&results[4], values[i]);
    atomicXor(&results[5], values[i]);
    add_by_exchange(&results[6], values[i]);
    atomicAdd(&results[7], atomicExch(&results[8], 1u));
    atomicAdd(float_sum, (float)(values[i] % 256));
    atomicAdd(double_sum, (double)values[i]);
}

lnt_status_t right_atomics(const unsigned *values, size_t n, unsigned *results, float *float_sum, double *double_sum,
                           void *stream)
{
    unsigned grid = (unsigned)((n + RIGHT_BLOCK - 1) / RIGHT_BLOCK);

    LNT_LAUNCH(atomics, grid, RIGHT_BLOCK, 0, stream, values, n, results, float_sum, double_sum);
    return lnt_cuda_launch_status();
}

LNT_KERNEL void shuffles(const uint64_t *values, unsigned operand, uint64_t *results)
{
    unsigned lane = threadIdx.x;
    unsigned long long value = values[lane];

    for (int log_width = 0; log_width < 6; log_width++, results += 32) {
        int width = 1 << log_width;
        results[lane] = __shfl_sync(ALL, value, (int)operand, width);
        results[6 * 32 + lane] = __shfl_up_sync(ALL, value, operand, width);
        results[12 * 32 + lane] = __shfl_down_sync(ALL, value, operand, width);
        results[18 * 32 + lane] = __shfl_xor_sync(ALL, value, (int)operand, width);
    }
}

lnt_status_t right_shuffles(const uint64_t *values, unsigned operand, uint64_t *results, void *stream)
{
    LNT_LAUNCH(shuffles, 1, 32, 0, stream, values, operand, results);
    return lnt_cuda_launch_status();
}

LNT_KERNEL void float_shuffles(const double *values, unsigned operand, float *floats, double *doubles)
{
    floats[threadIdx.x] = __shfl_xor_sync(ALL, (float)values[threadIdx.x], (int)operand);
    doubles[threadIdx.x] = __shfl_xor_sync(ALL, values[threadIdx.x], (int)operand);
}

lnt_status_t right_float_shuffles(const double *values, unsigned operand, float *floats, double *doubles, void *stream)
{
    LNT_LAUNCH(float_shuffles, 1, 32, 0, stream, values, operand, floats, doubles);
    return lnt_cuda_launch_status();
}

/* Groups reach the same call one after another or interleaved; each waits for its own lanes only. */
LNT_KERNEL void submasks(const unsigned *values, unsigned *sums)
{
    unsigned present = threadIdx.x / 32 < blockDim.x / 32 ? ALL : (1u << blockDim.x % 32) - 1;
    unsigned value = values[threadIdx.x], group = value % 3, sum = 0;
    unsigned mask = __match_any_sync(present, group);

    if (group != 2) {
        for (unsigned rest = mask; rest != 0; rest &= rest - 1)
            sum += __shfl_sync(mask, value, __ffs((int)rest) - 1);
    } else {
        sum = __reduce_add_sync(mask, value);
        __syncwarp(mask);
    }
    sums[threadIdx.x] = sum;
}

lnt_status_t right_submasks(const unsigned *values, unsigned *sums, unsigned n_threads, void *stream)
{
    LNT_LAUNCH(submasks, 1, n_threads, 0, stream, values, sums);
    return lnt_cuda_launch_status();
}

LNT_DEVICE void warp_votes(unsigned value, unsigned *r)
{
    r[0] = __match_any_sync(ALL, value % 5);
    r[1] = __reduce_add_sync(ALL, value);
    r[2] = __reduce_min_sync(ALL, value);
    r[3] = (unsigned)__reduce_max_sync(ALL, (int)value);
    r[4] = __reduce_and_sync(ALL, value | 0xffu);
    r[5] = __reduce_or_sync(ALL, value & 0xff00u);
    r[6] = __reduce_xor_sync(ALL, value);
    r[7] = (unsigned)__any_sync(ALL, value % 64 == 0);
    r[8] = (unsigned)__all_sync(ALL, (int)(value % 64));
}

LNT_KERNEL void votes(const unsigned *values, unsigned *results)
{
    unsigned value = values[threadIdx.x], *r = results + threadIdx.x * RIGHT_VOTES;

    warp_votes(value, r);
    r[9] = (unsigned)__syncthreads_count((int)(value & 1u));
    r[10] = (unsigned)__syncthreads_or(value % 64 == 0);
    r[11] = (unsigned)__syncthreads_and((int)(value % 64));
}

lnt_status_t right_votes(const unsigned *values, unsigned *results, unsigned n_threads, void *stream)
{
    LNT_LAUNCH(votes, 1, n_threads, 0, stream, values, results);
    return lnt_cuda_launch_status();
}

LNT_KERNEL void transpose(const int *in, int *out, unsigned rows, unsigned columns)
{
    __shared__ int tile[RIGHT_TILE][RIGHT_TILE + 1];
    unsigned row = blockIdx.y * RIGHT_TILE + threadIdx.y, column = blockIdx.x * RIGHT_TILE + threadIdx.x;

    if (row < rows && column < columns) tile[threadIdx.y][threadIdx.x] = in[row * columns + column];
    __syncthreads();
    row = blockIdx.y * RIGHT_TILE + threadIdx.x;
    column = blockIdx.x * RIGHT_TILE + threadIdx.y;
    if (row < rows && column < columns) out[column * rows + row] = tile[threadIdx.x][threadIdx.y];
}

lnt_status_t right_transpose(const int *in, int *out, unsigned rows, unsigned columns, void *stream)
{
    dim3 grid((columns + RIGHT_TILE - 1) / RIGHT_TILE, (rows + RIGHT_TILE - 1) / RIGHT_TILE);

    LNT_LAUNCH(transpose, grid, dim3(RIGHT_TILE, RIGHT_TILE), 0, stream, in, out, rows, columns);
    return lnt_cuda_launch_status();
}

LNT_DEVICE void intrinsics_of(uint32_t a, uint32_t b, uint32_t *r)
{
    r[0] = (uint32_t)__popc(a);
    r[1] = (uint32_t)__clz((int)a);
    r[2] = (uint32_t)__ffs((int)a);
    r[3] = __brev(a);
    r[4] = __byte_perm(a, b, a ^ b);
    r[5] = __umulhi(a, b);
    r[6] = __float_as_uint(__fmaf_rn((float)a, (float)b, 1.0f));
    r[7] = __float_as_uint(__fmul_rn((float)a, (float)b));
    r[8] = (uint32_t)__double_as_longlong(__dadd_rn((double)a, __dmul_rn((double)b, 0.1)));
    r[9] = __float_as_uint(rintf((float)(a % 4096) / 8.0f));
    r[10] = __float_as_uint(sqrtf((float)b));
    r[11] = __funnelshift_l(a, b, a % 32);
}

LNT_KERNEL void intrinsics(const uint32_t *pairs, size_t n, uint32_t *results)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n) intrinsics_of(pairs[2 * i], pairs[2 * i + 1], results + i * RIGHT_INTRINSICS);
}

lnt_status_t right_intrinsics(const uint32_t *pairs, size_t n, uint32_t *results, void *stream)
{
    LNT_LAUNCH(intrinsics, (unsigned)(n / RIGHT_BLOCK + 1), RIGHT_BLOCK, 0, stream, pairs, n, results);
    return lnt_cuda_launch_status();
}

/* Two codes of 16 bits in one store: ushort2. */
LNT_KERNEL void conversions(const float *in, size_t n, ushort2 *codes, float2 *values)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        __half h = __float2half_rn(in[i]);
        __nv_bfloat16 b = __float2bfloat16_rn(in[i]);
        codes[i] = make_ushort2(__half_as_ushort(h), __bfloat16_as_ushort(b));
        values[i] = make_float2(__half2float(h), __bfloat162float(b));
    }
}

lnt_status_t right_conversions(const float *in, size_t n, uint16_t *codes, float *values, void *stream)
{
    LNT_LAUNCH(conversions, 5, RIGHT_BLOCK, 0, stream, in, n, reinterpret_cast<ushort2 *>(codes),
               reinterpret_cast<float2 *>(values));
    return lnt_cuda_launch_status();
}

LNT_DEVICE unsigned block_sum(unsigned value)
{
    __shared__ unsigned partial[RIGHT_BLOCK / 32];
    unsigned sum = 0;

    value = __reduce_add_sync(ALL, value);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    for (int w = 0; w < RIGHT_BLOCK / 32; w++)
        sum += partial[w];
    __syncthreads();
    return sum;
}

LNT_KERNEL void last_block(const unsigned *values, size_t n, unsigned *partial, unsigned *n_done, unsigned *sum)
{
    __shared__ bool is_last;
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    unsigned mine = block_sum(i < n ? values[i] : 0), rest = 0;

    if (threadIdx.x == 0) {
        partial[blockIdx.x] = mine;
        __threadfence();
        is_last = atomicAdd(n_done, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!is_last) return;
    for (unsigned k = threadIdx.x; k < gridDim.x; k += blockDim.x)
        rest += __ldcg(&partial[k]);
    rest = block_sum(rest);
    if (threadIdx.x == 0) *sum = rest;
}

lnt_status_t right_last_block(const unsigned *values, size_t n, unsigned *partial, unsigned *n_done, unsigned *sum,
                              void *stream)
{
    unsigned grid = (unsigned)((n + RIGHT_BLOCK - 1) / RIGHT_BLOCK);

    LNT_LAUNCH(last_block, grid, RIGHT_BLOCK, 0, stream, values, n, partial, n_done, sum);
    return lnt_cuda_launch_status();
}

LNT_KERNEL void quantise(const float *values, size_t n_blocks, float *scales, int8_t *codes)
{
    size_t warp = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / 32, n_warps = (size_t)gridDim.x * blockDim.x / 32;
    unsigned lane = threadIdx.x % 32;

    for (size_t block = warp; block < n_blocks; block += n_warps) {
        const float *in = values + block * 256;
        uint32_t top = 0;
        for (unsigned i = lane; i < 256; i += 32)
            top = max(top, lnt_f32_abs_bits(in[i]));
        float scale = lnt_int8_scale(__reduce_max_sync(ALL, top));
        for (unsigned i = lane; i < 256; i += 32)
            codes[block * 256 + i] = (int8_t)lnt_int8_code(in[i], scale);
        if (lane == 0) scales[block] = scale;
    }
}

lnt_status_t right_quantise(const float *values, size_t n_blocks, float *scales, int8_t *codes, void *stream)
{
    LNT_LAUNCH(quantise, 2, RIGHT_BLOCK, 0, stream, values, n_blocks, scales, codes);
    return lnt_cuda_launch_status();
}

LNT_KERNEL void large_shared(unsigned *out, unsigned n)
{
    LNT_DYN_SHARED(unsigned, words);

    for (unsigned i = threadIdx.x; i < n; i += blockDim.x)
        words[i] = i;
    __syncthreads();
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x)
        out[i] = words[n - 1 - i];
}

lnt_status_t right_large_shared(unsigned *out, size_t bytes, void *stream)
{
    cudaError_t error = cudaFuncSetAttribute(large_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);

    if (error != cudaSuccess) return lnt_cuda_status(error);
    LNT_LAUNCH(large_shared, 1, RIGHT_BLOCK, bytes, stream, out, (unsigned)(bytes / sizeof(unsigned)));
    return lnt_cuda_launch_status();
}

/* Every third thread returns at once; the others meet, and lane 0 of each warp counts those of its warp. */
LNT_KERNEL void if_relaxed(unsigned *out)
{
    if (threadIdx.x % 3 == 2) return;
    __syncthreads();
    out[threadIdx.x] = (unsigned)__popc(__ballot_sync(ALL, 1));
    __syncthreads();
}

lnt_status_t right_if_relaxed(unsigned *out, void *stream)
{
    LNT_LAUNCH(if_relaxed, 1, RIGHT_BLOCK, 0, stream, out);
    return lnt_cuda_launch_status();
}
