/* The one device: what it can do, the last error, streams and events that have nothing to wait for, and the limits of a
 * launch. The figures are those of compute capability 8.0, but for few multiprocessors: grids stay small and
 * grid-stride loops go round.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "emu_machine.h"
#include "emu_report.h"

enum { MULTIPROCESSORS = 4, THREADS_PER_MULTIPROCESSOR = 2048, BLOCKS_PER_MULTIPROCESSOR = 32 };
enum { SHARED_BYTES = 48 * 1024, SHARED_BYTES_OPTIN = 163 * 1024, SHARED_BYTES_MULTIPROCESSOR = 164 * 1024 };

static __thread cudaError_t last_error;
static cudaError_t next_launch_error;

cudaError_t lnt_emu_result(cudaError_t error)
{
    if (error != cudaSuccess) last_error = error;
    return error;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;

    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

static const struct {
    cudaError_t error;
    const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const char *cudaGetErrorName(cudaError_t error)
{
    for (const auto &row : errors)
        if (row.error == error) return row.name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (const auto &row : errors)
        if (row.error == error) return row.text;
    return "unrecognized error code";
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    return lnt_emu_result(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

static const struct {
    cudaDeviceAttr attribute;
    int value;
} attributes[] = {
    {cudaDevAttrMaxThreadsPerBlock, LNT_EMU_MAX_THREADS},
    {cudaDevAttrMaxBlockDimX, 1024},
    {cudaDevAttrMaxBlockDimY, 1024},
    {cudaDevAttrMaxBlockDimZ, 64},
    {cudaDevAttrMaxGridDimX, INT32_MAX},
    {cudaDevAttrMaxGridDimY, 65535},
    {cudaDevAttrMaxGridDimZ, 65535},
    {cudaDevAttrMaxSharedMemoryPerBlock, SHARED_BYTES},
    {cudaDevAttrWarpSize, LNT_EMU_WARP},
    {cudaDevAttrMultiProcessorCount, MULTIPROCESSORS},
    {cudaDevAttrMaxThreadsPerMultiProcessor, THREADS_PER_MULTIPROCESSOR},
    {cudaDevAttrComputeCapabilityMajor, 8},
    {cudaDevAttrComputeCapabilityMinor, 0},
    {cudaDevAttrMaxSharedMemoryPerMultiprocessor, SHARED_BYTES_MULTIPROCESSOR},
    {cudaDevAttrMaxSharedMemoryPerBlockOptin, SHARED_BYTES_OPTIN},
};

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device)
{
    if (device != 0) return lnt_emu_result(cudaErrorInvalidDevice);
    for (const auto &row : attributes)
        if (row.attribute == attribute) {
            *value = row.value;
            return cudaSuccess;
        }
    return lnt_emu_result(cudaErrorInvalidValue);
}

static int attribute_of(cudaDeviceAttr attribute)
{
    int value = 0;

    cudaDeviceGetAttribute(&value, attribute, 0);
    return value;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *prop, int device)
{
    if (device != 0) return lnt_emu_result(cudaErrorInvalidDevice);
    memset(prop, 0, sizeof(*prop));
    strncpy(prop->name, "CUDA on CPU", sizeof(prop->name) - 1);
    prop->totalGlobalMem = LNT_EMU_DEVICE_BYTES;
    prop->sharedMemPerBlock = SHARED_BYTES;
    prop->sharedMemPerBlockOptin = SHARED_BYTES_OPTIN;
    prop->sharedMemPerMultiprocessor = SHARED_BYTES_MULTIPROCESSOR;
    prop->regsPerBlock = 65536;
    prop->warpSize = LNT_EMU_WARP;
    prop->maxThreadsPerBlock = LNT_EMU_MAX_THREADS;
    for (int i = 0; i < 3; i++) {
        prop->maxThreadsDim[i] = attribute_of((cudaDeviceAttr)(cudaDevAttrMaxBlockDimX + i));
        prop->maxGridSize[i] = attribute_of((cudaDeviceAttr)(cudaDevAttrMaxGridDimX + i));
    }
    prop->major = 8;
    prop->multiProcessorCount = MULTIPROCESSORS;
    prop->maxThreadsPerMultiProcessor = THREADS_PER_MULTIPROCESSOR;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = 12000;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    return cudaDriverGetVersion(version);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    *free_bytes = *total_bytes = LNT_EMU_DEVICE_BYTES;
    return cudaSuccess;
}

struct CUstream_st {
    unsigned flags;
};

struct CUevent_st {
    struct timespec recorded;
};

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    *stream = (cudaStream_t)calloc(1, sizeof(**stream));
    if (*stream == nullptr) return lnt_emu_result(cudaErrorMemoryAllocation);
    (*stream)->flags = flags;
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    free(stream);
    return lnt_emu_result(stream != nullptr ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaStreamSynchronize(cudaStream_t)
{
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t)
{
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    *event = (cudaEvent_t)calloc(1, sizeof(**event));
    return lnt_emu_result(*event != nullptr ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return lnt_emu_result(event != nullptr ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    return lnt_emu_result(event != nullptr ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return cudaEventSynchronize(event);
}

cudaError_t lnt_emu_event_record(cudaEvent_t event, cudaStream_t)
{
    if (event == nullptr) return lnt_emu_result(cudaErrorInvalidResourceHandle);
    clock_gettime(CLOCK_MONOTONIC, &event->recorded);
    return cudaSuccess;
}

cudaError_t lnt_emu_stream_wait_event(cudaStream_t, cudaEvent_t event)
{
    return cudaEventSynchronize(event);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    if (from == nullptr || to == nullptr) return lnt_emu_result(cudaErrorInvalidResourceHandle);
    *ms = (float)((double)(to->recorded.tv_sec - from->recorded.tv_sec) * 1e3 +
                  (double)(to->recorded.tv_nsec - from->recorded.tv_nsec) * 1e-6);
    return cudaSuccess;
}

/* Kernels that were allowed more than 48 KiB of dynamic shared memory. */
enum { MAX_GRANTS = 256 };

static struct {
    const void *function;
    size_t bytes;
} grants[MAX_GRANTS];
static unsigned n_grants;

static size_t granted_bytes(const void *function)
{
    for (unsigned i = 0; i < n_grants; i++)
        if (grants[i].function == function) return grants[i].bytes;
    return SHARED_BYTES;
}

static void grant(const void *function, size_t bytes)
{
    unsigned i = 0;

    while (i < n_grants && grants[i].function != function)
        i++;
    if (i == MAX_GRANTS) lnt_emu_fail(nullptr, "more than %d kernels with a grant of shared memory", MAX_GRANTS);
    n_grants = i < n_grants ? n_grants : i + 1;
    grants[i] = {function, bytes > SHARED_BYTES ? bytes : (size_t)SHARED_BYTES};
}

cudaError_t lnt_emu_func_set_attribute(const void *function, cudaFuncAttribute attribute, int value)
{
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || value > SHARED_BYTES_OPTIN)
        return lnt_emu_result(cudaErrorInvalidValue);
    lnt_emu_lock();
    grant(function, (size_t)value);
    lnt_emu_unlock();
    return cudaSuccess;
}

/* Registers are unknown here: by threads, blocks and shared memory alone. */
cudaError_t lnt_emu_occupancy(int *n_blocks, const void *function, int block, size_t dynamic_bytes)
{
    int by_shared = BLOCKS_PER_MULTIPROCESSOR;

    if (n_blocks == nullptr || function == nullptr || block < 1 || block > LNT_EMU_MAX_THREADS)
        return lnt_emu_result(cudaErrorInvalidValue);
    if (dynamic_bytes > 0) by_shared = (int)(SHARED_BYTES_MULTIPROCESSOR / dynamic_bytes);
    *n_blocks = min(min(THREADS_PER_MULTIPROCESSOR / block, (int)BLOCKS_PER_MULTIPROCESSOR), by_shared);
    return cudaSuccess;
}

/* Where the runtime would return an error from the launch, a test had better stop. */
void lnt_emu_check_launch(const lnt_emu_launch *launch)
{
    const dim3 &grid = launch->grid, &block = launch->block;
    uint64_t n_threads = (uint64_t)block.x * block.y * block.z;

    if (n_threads < 1 || n_threads > LNT_EMU_MAX_THREADS || block.z > 64)
        lnt_emu_fail(&launch->site, "kernel %s: bad launch shape, a block of (%u,%u,%u) threads", launch->kernel,
                     block.x, block.y, block.z);
    if (grid.x < 1 || grid.y < 1 || grid.z < 1 || grid.x > INT32_MAX || grid.y > 65535 || grid.z > 65535)
        lnt_emu_fail(&launch->site, "kernel %s: bad launch shape, a grid of (%u,%u,%u) blocks", launch->kernel, grid.x,
                     grid.y, grid.z);
    if (launch->dynamic_bytes > granted_bytes(launch->function))
        lnt_emu_fail(&launch->site, "kernel %s: bad launch shape, %zu bytes of dynamic shared memory, %zu are granted",
                     launch->kernel, launch->dynamic_bytes, granted_bytes(launch->function));
}

void lnt_emu_fail_next_launch(cudaError_t error)
{
    next_launch_error = error;
}

bool lnt_emu_take_failure()
{
    bool fails = next_launch_error != cudaSuccess;

    lnt_emu_result(next_launch_error);
    next_launch_error = cudaSuccess;
    return fails;
}

uint64_t lnt_emu_blocks_run(void)
{
    return lnt_emu.blocks_run;
}

void __trap()
{
    lnt_emu_fail(nullptr, "__trap");
}

void lnt_emu_misaligned(const char *file, int line, const void *p, size_t alignment)
{
    lnt_emu_site site = {file, line, 0};

    lnt_emu_fail(&site, "misaligned access: %p is no multiple of %zu", p, alignment);
}

void __nanosleep(unsigned) {}
