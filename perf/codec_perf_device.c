/* Lanes on a GPU: the launchers of kernels/cuda_kernels.h, timed by events, beside a += b and a copy on the device.
 *
 * Arrays are filled and judged on the host; the device has both arenas once more, with everything at the same place.
 * Compiled only where device kernels are, or where they are played on the host (tests/cuda_on_cpu).
 */
#include <cuda_runtime.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../kernels/cuda_kernels.h"
#include "../src/base/error.h"
#include "codec_perf.h"
#include "codec_perf_device.h"

typedef struct device_case device_case_t;
typedef lnt_status_t (*launch_fn_t)(const codec_case_t *test, const device_case_t *device);

struct device_case {
    uint8_t *arena, *yard;
    lnt_coded_run_t *inputs; /* device memory */
    cudaStream_t stream;
    cudaEvent_t begin, end;
    const lnt_cuda_codec_ops_t *ops;
    launch_fn_t launch; /* of the operation */
};

static lnt_status_t checked(cudaError_t error, const char *what)
{
    return error == cudaSuccess ? LNT_OK : lnt_error(LNT_ERR_DEVICE, NULL, "%s: %s", what, cudaGetErrorString(error));
}

/* ---- launches ---- */

static void *device_array(const codec_case_t *test, const device_case_t *device, codec_array_t id)
{
    return test->array[id] == NULL ? NULL : device->arena + (test->array[id] - test->arena);
}

/* One run with all arrays of the case; launchers ignore what their operation does not have. */
static lnt_cuda_batch_t batch_of(const codec_case_t *test, const device_case_t *device)
{
    bool in_place = (test->op->writes >> ARRAY_ERROR & 1u) != 0;
    lnt_cuda_run_t run = {.n = test->n,
                          .values = device_array(test, device, ARRAY_INPUT),
                          .error_in = device_array(test, device, ARRAY_ERROR),
                          .error_out = device_array(test, device, in_place ? ARRAY_ERROR : ARRAY_SHADOW),
                          .scales = device_array(test, device, ARRAY_SCALES),
                          .codes = device_array(test, device, ARRAY_CODES),
                          .inputs = device->inputs,
                          .n_inputs = device->inputs != NULL ? test->n_runs : 0,
                          .out = device_array(test, device, ARRAY_OUTPUT),
                          .seed = CODEC_CHANCE_SEED};

    return lnt_cuda_batch_one(&run, test->cfg.block);
}

static lnt_status_t launch_encode(const codec_case_t *test, const device_case_t *device)
{
    lnt_cuda_batch_t batch = batch_of(test, device);

    return device->ops->encode(&test->cfg, &batch, test->dtype, false, device->stream);
}

static lnt_status_t launch_decode(const codec_case_t *test, const device_case_t *device)
{
    lnt_cuda_batch_t batch = batch_of(test, device);
    bool add = (test->op->reads >> ARRAY_OUTPUT & 1u) != 0;

    return device->ops->decode_sum(&test->cfg, &batch, add, device->stream);
}

static lnt_status_t launch_serve(const codec_case_t *test, const device_case_t *device)
{
    lnt_cuda_batch_t batch = batch_of(test, device);

    return device->ops->serve(&test->cfg, &batch, CODEC_FACTOR, false, device->stream);
}

static const struct {
    const char *op;
    launch_fn_t launch;
} launches[] = {
    {"encode", launch_encode}, {"encode_ef", launch_encode},  {"encode_ef_shadow", launch_encode},
    {"decode", launch_decode}, {"decode_add", launch_decode}, {"server", launch_serve},
};

static launch_fn_t find_launch(const codec_case_t *test)
{
    for (size_t i = 0; i < sizeof(launches) / sizeof(launches[0]); i++) {
        if (strcmp(launches[i].op, test->op->name) == 0) return launches[i].launch;
    }
    return NULL;
}

/* ---- life ---- */

static const char *device_absent(void)
{
    int n = 0;
    cudaError_t error = cudaGetDeviceCount(&n);

    if (error != cudaSuccess) return cudaGetErrorString(error);
    return n > 0 ? NULL : "there is no GPU";
}

static const char *device_describe(void)
{
    static struct cudaDeviceProp properties;

    return cudaGetDeviceProperties(&properties, 0) == cudaSuccess ? properties.name : "unknown GPU";
}

static lnt_status_t open_memory(const codec_case_t *test, device_case_t *device)
{
    LNT_TRY(checked(cudaMalloc((void **)&device->arena, test->arena_bytes), "device memory"));
    LNT_TRY(checked(cudaMalloc((void **)&device->yard, test->arena_bytes), "device memory"));
    LNT_TRY(checked(cudaMemset(device->yard, 0, test->arena_bytes), "clearing device memory"));
    LNT_TRY(checked(cudaStreamCreate(&device->stream), "a stream"));
    LNT_TRY(checked(cudaEventCreate(&device->begin), "an event"));
    return checked(cudaEventCreate(&device->end), "an event");
}

/* Where the coded runs that are input lie on the device. */
static lnt_status_t open_inputs(const codec_case_t *test, device_case_t *device)
{
    lnt_coded_run_t runs[CODEC_RUNS_MAX];
    size_t bytes = test->n_runs * sizeof(runs[0]);
    uint8_t *scales = device_array(test, device, ARRAY_RUN_SCALES),
            *codes = device_array(test, device, ARRAY_RUN_CODES);

    if (codes == NULL) return LNT_OK;
    for (uint32_t r = 0; r < test->n_runs; r++) {
        runs[r].scales = scales == NULL ? NULL : scales + r * (test->array_bytes[ARRAY_RUN_SCALES] / test->n_runs);
        runs[r].codes = codes + r * (test->array_bytes[ARRAY_RUN_CODES] / test->n_runs);
    }
    LNT_TRY(checked(cudaMalloc((void **)&device->inputs, bytes), "device memory"));
    return checked(cudaMemcpy(device->inputs, runs, bytes, cudaMemcpyHostToDevice), "a copy to the device");
}

static lnt_status_t device_open(codec_case_t *test)
{
    device_case_t *device = calloc(1, sizeof(*device));

    test->device = device;
    if (device == NULL) return lnt_error(LNT_ERR_NO_MEMORY, NULL, "no memory");
    device->ops = test->row != NULL ? lnt_cuda_codec_ops(test->row->id) : NULL;
    device->launch = find_launch(test);
    for (uint32_t i = 0; i < test->n_lanes; i++)
        test->lanes[i].timed = i == LANE_ADD || i == LANE_COPY;
    if (device->ops == NULL || device->launch == NULL) return LNT_OK;
    codec_lane_add(test, "cuda", NULL)->timed = true;
    LNT_TRY(open_memory(test, device));
    return open_inputs(test, device);
}

static void device_close(codec_case_t *test)
{
    device_case_t *device = test->device;

    if (device == NULL) return;
    (void)cudaFree(device->arena);
    (void)cudaFree(device->yard);
    (void)cudaFree(device->inputs);
    if (device->begin != NULL) (void)cudaEventDestroy(device->begin);
    if (device->end != NULL) (void)cudaEventDestroy(device->end);
    if (device->stream != NULL) (void)cudaStreamDestroy(device->stream);
    free(device);
    test->device = NULL;
}

/* ---- running ---- */

static lnt_status_t device_put(codec_case_t *test)
{
    const device_case_t *device = test->device;

    return checked(cudaMemcpy(device->arena, test->arena, test->arena_bytes, cudaMemcpyHostToDevice),
                   "a copy to the device");
}

static lnt_status_t device_get(codec_case_t *test)
{
    const device_case_t *device = test->device;

    return checked(cudaMemcpy(test->arena, device->arena, test->arena_bytes, cudaMemcpyDeviceToHost),
                   "a copy from the device");
}

/* A bare status: the caller reports. */
static lnt_status_t run_lane(const codec_case_t *test, const codec_lane_t *lane)
{
    const device_case_t *device = test->device;
    float *a = (float *)(void *)device->yard, *b = a + lane->n + CODEC_YARD_APART;

    if (lane == &test->lanes[LANE_ADD]) return codec_device_add(a, b, lane->n, device->stream);
    if (lane == &test->lanes[LANE_COPY])
        return cudaMemcpyAsync(a, b, lane->n * sizeof(float), cudaMemcpyDeviceToDevice, device->stream) == cudaSuccess
                   ? LNT_OK
                   : LNT_ERR_DEVICE;
    return device->launch(test, device);
}

static lnt_status_t device_time(codec_case_t *test, const codec_lane_t *lane, uint64_t repeats, double *seconds_p)
{
    const device_case_t *device = test->device;
    float ms = 0;

    LNT_TRY(checked(cudaEventRecord(device->begin, device->stream), "an event"));
    for (uint64_t i = 0; i < repeats; i++) {
        if (run_lane(test, lane) < 0)
            return lnt_error(LNT_ERR_DEVICE, NULL, "%s %s: the launch failed", test->codec, lane->name);
    }
    LNT_TRY(checked(cudaEventRecord(device->end, device->stream), "an event"));
    LNT_TRY(checked(cudaEventSynchronize(device->end), test->op->name));
    LNT_TRY(checked(cudaEventElapsedTime(&ms, device->begin, device->end), "elapsed time"));
    *seconds_p = ms * 1e-3;
    return LNT_OK;
}

static bool device_disturbed(const codec_case_t *test)
{
    (void)test;
    return false;
}

const codec_space_t codec_space_cuda = {.name = "cuda",
                                        .absent = device_absent,
                                        .describe = device_describe,
                                        .open = device_open,
                                        .close = device_close,
                                        .put = device_put,
                                        .get = device_get,
                                        .time = device_time,
                                        .disturbed = device_disturbed};
