/* a += b on the device, four elements per thread and step: what a codec is compared with. */
#include "../kernels/cuda_compat.h"
#include "codec_perf_device.h"

enum { THREADS = 256 };
static const uint64_t MAX_BLOCKS = 4096;

LNT_KERNEL __launch_bounds__(THREADS) void codec_add(float4 *a, const float4 *b, uint64_t n_quads)
{
    uint64_t step = (uint64_t)gridDim.x * THREADS;

    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < n_quads; i += step) {
        float4 sum = a[i], more = b[i];
        sum.x += more.x;
        sum.y += more.y;
        sum.z += more.z;
        sum.w += more.w;
        a[i] = sum;
    }
}

lnt_status_t codec_device_add(float *a, const float *b, uint64_t n, void *stream)
{
    uint64_t n_quads = n / 4, n_blocks = (n_quads + THREADS - 1) / THREADS;

    if (n_quads == 0) return LNT_OK;
    LNT_LAUNCH(codec_add, (unsigned)(n_blocks < MAX_BLOCKS ? n_blocks : MAX_BLOCKS), THREADS, 0, stream,
               reinterpret_cast<float4 *>(a), reinterpret_cast<const float4 *>(b), n_quads);
    return lnt_cuda_launch_status();
}
