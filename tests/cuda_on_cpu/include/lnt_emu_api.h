/* The part of the CUDA runtime that launchers and their tests call, played on the host. C and C++.
 *
 * Names, values and meanings are the runtime's own. There is one device; streams run synchronously. Device memory is
 * filled with 0xFF, ends at a guard page, and can be touched by kernels and copies only. What is wrong about a copy
 * is an error code, what is wrong about a launch ends the program. The lnt_emu_ calls at the end are ours.
 */
#ifndef LNT_EMU_API_H
#define LNT_EMU_API_H

#include <stddef.h>
#include <stdint.h>

#include "lnt_emu_vector.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidMemcpyDirection = 21,
    cudaErrorInvalidDeviceFunction = 98,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchFailure = 719,
    cudaErrorUnknown = 999
} cudaError_t;

enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4
};

enum cudaMemoryType {
    cudaMemoryTypeUnregistered = 0,
    cudaMemoryTypeHost = 1,
    cudaMemoryTypeDevice = 2,
    cudaMemoryTypeManaged = 3
};

enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxBlockDimX = 2,
    cudaDevAttrMaxBlockDimY = 3,
    cudaDevAttrMaxBlockDimZ = 4,
    cudaDevAttrMaxGridDimX = 5,
    cudaDevAttrMaxGridDimY = 6,
    cudaDevAttrMaxGridDimZ = 7,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrMaxThreadsPerMultiProcessor = 39,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};

enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9
};

enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1 };
enum { cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2 };
enum { cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2 };

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;

typedef struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem;
    size_t sharedMemPerBlock;
    size_t sharedMemPerBlockOptin;
    size_t sharedMemPerMultiprocessor;
    int regsPerBlock;
    int warpSize;
    int maxThreadsPerBlock;
    int maxThreadsDim[3];
    int maxGridSize[3];
    int major;
    int minor;
    int multiProcessorCount;
    int maxThreadsPerMultiProcessor;
} cudaDeviceProp;

typedef struct cudaPointerAttributes {
    enum cudaMemoryType type;
    int device;
    void *devicePointer;
    void *hostPointer;
} cudaPointerAttributes;

cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);

cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *prop, int device);
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);

cudaError_t lnt_emu_malloc(void **p, size_t bytes);
cudaError_t lnt_emu_malloc_host(void **p, size_t bytes);
cudaError_t cudaFree(void *p);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaFreeAsync(void *p, cudaStream_t stream);
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemset(void *to, int byte, size_t bytes);
cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *p);

cudaError_t cudaStreamCreate(cudaStream_t *stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);

cudaError_t lnt_emu_event_record(cudaEvent_t event, cudaStream_t stream);
cudaError_t lnt_emu_stream_wait_event(cudaStream_t stream, cudaEvent_t event);
cudaError_t lnt_emu_func_set_attribute(const void *function, enum cudaFuncAttribute attribute, int value);
cudaError_t lnt_emu_occupancy(int *n_blocks, const void *function, int block, size_t dynamic_bytes);

/* "forward", "reverse" or "random:SEED": the order of threads and blocks from the next launch on. The environment's
 * LNT_EMU_ORDER is the order until somebody calls this; NULL returns to it. An unknown text ends the program. */
void lnt_emu_set_order(const char *text);

/* The next launch does not run and leaves this error behind, as a broken device would. */
void lnt_emu_fail_next_launch(cudaError_t error);

/* Blocks run since the start of the program: tells a test that a launcher launched. */
uint64_t lnt_emu_blocks_run(void);

/* Device allocations that nobody has freed. */
size_t lnt_emu_live_allocations(void);

#ifdef __cplusplus
}

/* The toolkit's C++ headers take any pointer type and default streams here; so do these. */
template <typename T> static inline cudaError_t cudaMalloc(T **p, size_t bytes)
{
    return lnt_emu_malloc((void **)p, bytes);
}

template <typename T> static inline cudaError_t cudaMallocHost(T **p, size_t bytes, unsigned int = 0)
{
    return lnt_emu_malloc_host((void **)p, bytes);
}

template <typename T> static inline cudaError_t cudaMallocAsync(T **p, size_t bytes, cudaStream_t)
{
    return lnt_emu_malloc((void **)p, bytes);
}

static inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr)
{
    return lnt_emu_event_record(event, stream);
}

static inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int = 0)
{
    return lnt_emu_stream_wait_event(stream, event);
}

template <typename F>
static inline cudaError_t cudaFuncSetAttribute(F *function, cudaFuncAttribute attribute, int value)
{
    return lnt_emu_func_set_attribute((const void *)function, attribute, value);
}

template <typename F>
static inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n_blocks, F *function, int block,
                                                                        size_t dynamic_bytes)
{
    return lnt_emu_occupancy(n_blocks, (const void *)function, block, dynamic_bytes);
}
#else
#define cudaMalloc(_p, _bytes) lnt_emu_malloc((void **)(_p), _bytes)
#define cudaMallocHost(_p, _bytes) lnt_emu_malloc_host((void **)(_p), _bytes)
#define cudaMallocAsync(_p, _bytes, _stream) ((void)(_stream), lnt_emu_malloc((void **)(_p), _bytes))
#define cudaEventRecord(_event, _stream) lnt_emu_event_record(_event, _stream)
#define cudaStreamWaitEvent(_stream, _event, _flags) ((void)(_flags), lnt_emu_stream_wait_event(_stream, _event))
#endif

#endif
