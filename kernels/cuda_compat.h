/* What a kernels/ *_cuda.cu includes first: one source for nvcc and, where tests/cuda_on_cpu executes kernels without a
 * GPU, for an ordinary C++17 compiler. Thin macros; everything else in a .cu is plain CUDA.
 *
 *   LNT_DEVICE float f(float x) {...}                        a device function (LNT_HD: of host and device)
 *   LNT_KERNEL __launch_bounds__(256) void k(...) {...}      a kernel of this file, template or not
 *   LNT_DYN_SHARED(float, tile);                             dynamic shared memory, 16-byte aligned, inside a kernel
 *   LNT_LAUNCH(k, grid, block, smem_bytes, stream, args...)  templates in brackets: LNT_LAUNCH((k<256>), ...)
 *   return lnt_cuda_launch_status();                         the launcher's result; clears the runtime's error
 *
 * The stream may be a cudaStream_t or the void * of the public interface. __shared__ arrays, threadIdx, __syncthreads,
 * the _sync functions of a warp, atomics, float4 and so on are written as CUDA writes them. Not to be used, as a CPU
 * cannot play them: inline PTX, `extern __shared__`, functions that are approximate (rsqrtf, __expf, __fdividef),
 * waiting for a flag of another thread or block, warp operations in lanes that the mask does not name or that have
 * returned.
 */
#ifndef LNT_CUDA_COMPAT_H
#define LNT_CUDA_COMPAT_H

/* The toolkit's header, or its stand-in of the same name in tests/cuda_on_cpu/include. */
#include <cuda_runtime.h>

#include <linnet/status.h>

#define LNT_DEVICE static __device__ __forceinline__
#define LNT_KERNEL static __global__

/* In front of a loop whose arrays are to live in registers. */
#if defined(__CUDACC__)
#define LNT_UNROLL _Pragma("unroll")
#else
#define LNT_UNROLL
#endif

#if defined(__CUDACC__)
#define LNT_LAUNCH(_kernel, _grid, _block, _smem, _stream, ...)                                                        \
    (_kernel)<<<(_grid), (_block), (_smem), (cudaStream_t)(_stream)>>>(__VA_ARGS__)
#define LNT_DYN_SHARED(_type, _name)                                                                                   \
    extern __shared__ __align__(16) unsigned char lnt_dyn_shared_bytes[];                                              \
    _type *_name = reinterpret_cast<_type *>(lnt_dyn_shared_bytes)
#else
#define LNT_LAUNCH(_kernel, _grid, _block, _smem, _stream, ...)                                                        \
    ((void)(_stream), lnt_emu_prepare(#_kernel, LNT_EMU_SITE, (_kernel), (_grid), (_block), (_smem))(__VA_ARGS__))
#define LNT_DYN_SHARED(_type, _name) _type *_name = static_cast<_type *>(lnt_emu_dynamic_shared())
#endif

/* The status of a call of the runtime. Who cares for the reason asks cudaGetErrorString before. */
static inline lnt_status_t lnt_cuda_status(cudaError_t error)
{
    if (error == cudaSuccess) return LNT_OK;
    return error == cudaErrorMemoryAllocation ? LNT_ERR_NO_MEMORY : LNT_ERR_DEVICE;
}

/* Did the launches since the last call start? What goes wrong while they run shows when the stream is synchronised. */
static inline lnt_status_t lnt_cuda_launch_status(void)
{
    return lnt_cuda_status(cudaGetLastError());
}

#endif
