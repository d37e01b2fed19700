/* The runtime that the layer plays: memory, copies, errors, properties, events, and what a launcher does with a failed
 * launch.
 */
#include <pthread.h>

#include "emu_testing.h"
#include "right_kernels.h"

/* Values that nobody wrote are 0xFF; a copy takes any part. */
START_TEST(memory_and_copies)
{
    unsigned char host[100], expected[100];
    char *device = emu_on_device(sizeof(host)), *second = emu_on_device(sizeof(host));

    ck_assert_uint_eq((uintptr_t)device % 16, 0);
    ck_assert_uint_eq(lnt_emu_live_allocations(), 2);
    ck_assert_int_eq(cudaMemcpy(host, device, sizeof(host), cudaMemcpyDeviceToHost), cudaSuccess);
    memset(expected, 0xFF, sizeof(expected));
    ck_assert_mem_eq(host, expected, sizeof(host));
    for (size_t i = 0; i < sizeof(host); i++)
        host[i] = expected[i] = (unsigned char)test_random();
    ck_assert_int_eq(cudaMemcpyAsync(device, host, sizeof(host), cudaMemcpyDefault, NULL), cudaSuccess);
    ck_assert_int_eq(cudaMemcpy(second + 10, device, 90, cudaMemcpyDeviceToDevice), cudaSuccess);
    ck_assert_int_eq(cudaMemsetAsync(second, 7, 10, NULL), cudaSuccess);
    emu_from_device(host, second, sizeof(host));
    ck_assert_mem_eq(host + 10, expected, 90);
    ck_assert_uint_eq(host[0], 7);
    emu_free(device);
    ck_assert_uint_eq(lnt_emu_live_allocations(), 0);
}
END_TEST

/* Every wrong call says so, does nothing, and is remembered once. */
START_TEST(wrong_copies_are_refused)
{
    int host[4] = {1, 2, 3, 4}, other[4];
    char *device = emu_on_device(sizeof(host));

    ck_assert_int_eq(cudaMemcpy(host, device, 16, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    ck_assert_int_eq(cudaMemcpy(device, host, 16, cudaMemcpyHostToHost), cudaErrorInvalidMemcpyDirection);
    ck_assert_int_eq(cudaMemcpy(host, other, 16, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    ck_assert_int_eq(cudaMemcpy(device + 1, host, 16, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    ck_assert_int_eq(cudaMemcpy(host, device, 17, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    ck_assert_int_eq(cudaMemset(device, 0, 17), cudaErrorInvalidValue);
    ck_assert_int_eq(cudaMemset(host, 0, 4), cudaErrorInvalidValue);
    ck_assert_int_eq(cudaFree(device + 1), cudaErrorInvalidValue);
    ck_assert_int_eq(host[0], 1);
    ck_assert_int_eq(cudaGetLastError(), cudaErrorInvalidValue);
    ck_assert_int_eq(cudaGetLastError(), cudaSuccess);
    emu_free(device);
    ck_assert_int_eq(cudaFree(device), cudaErrorInvalidValue);
    ck_assert_int_eq(cudaGetLastError(), cudaErrorInvalidValue);
}
END_TEST

START_TEST(too_much_memory)
{
    void *device = &device;

    ck_assert_int_eq(cudaMalloc(&device, (size_t)1 << 50), cudaErrorMemoryAllocation);
    ck_assert_ptr_null(device);
    ck_assert_int_eq(cudaGetLastError(), cudaErrorMemoryAllocation);
    ck_assert_int_eq(cudaMalloc(&device, 0), cudaSuccess);
    ck_assert_ptr_null(device);
    ck_assert_int_eq(cudaFree(NULL), cudaSuccess);
}
END_TEST

/* A launcher passes the error on and leaves none behind; nothing ran. */
START_TEST(failed_launches_become_a_status)
{
    static const struct {
        cudaError_t error;
        lnt_status_t status;
    } rows[] = {{cudaErrorInvalidConfiguration, LNT_ERR_DEVICE},
                {cudaErrorMemoryAllocation, LNT_ERR_NO_MEMORY},
                {cudaErrorLaunchFailure, LNT_ERR_DEVICE}};
    float host[8] = {0}, *device = emu_to_device(host, sizeof(host));
    uint64_t before = lnt_emu_blocks_run();

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        lnt_emu_fail_next_launch(rows[i].error);
        ck_assert_int_eq(right_add(device, device, 8, NULL), rows[i].status);
        ck_assert_int_eq(cudaGetLastError(), cudaSuccess);
    }
    ck_assert_uint_eq(lnt_emu_blocks_run(), before);
    ck_assert_int_eq(right_add(device, device, 8, NULL), LNT_OK);
    ck_assert_uint_eq(lnt_emu_blocks_run(), before + 2);
    ck_assert_int_eq(right_large_shared((unsigned *)device, 1 << 20, NULL), LNT_ERR_DEVICE);
    emu_free(device);
}
END_TEST

START_TEST(properties_agree)
{
    cudaDeviceProp prop;
    cudaPointerAttributes attributes;
    int value = 0, count = 0;
    void *device = emu_on_device(1);

    ck_assert_int_eq(cudaGetDeviceCount(&count), cudaSuccess);
    ck_assert_int_eq(count, 1);
    ck_assert_int_eq(cudaSetDevice(1), cudaErrorInvalidDevice);
    ck_assert_int_eq(cudaGetDeviceProperties(&prop, 0), cudaSuccess);
    ck_assert_int_eq(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0), cudaSuccess);
    ck_assert_int_eq(value, prop.multiProcessorCount);
    ck_assert_int_eq(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0), cudaSuccess);
    ck_assert_uint_eq((size_t)value, prop.sharedMemPerBlockOptin);
    ck_assert_int_eq(prop.maxGridSize[1], 65535);
    ck_assert_int_eq(cudaPointerGetAttributes(&attributes, device), cudaSuccess);
    ck_assert_int_eq(attributes.type, cudaMemoryTypeDevice);
    ck_assert_int_eq(cudaPointerGetAttributes(&attributes, &value), cudaSuccess);
    ck_assert_int_eq(attributes.type, cudaMemoryTypeUnregistered);
    ck_assert_str_eq(cudaGetErrorName(cudaErrorInvalidValue), "cudaErrorInvalidValue");
    emu_free(device);
}
END_TEST

START_TEST(streams_and_events)
{
    cudaStream_t stream;
    cudaEvent_t from, to;
    float ms = -1.0f;

    ck_assert_int_eq(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    ck_assert_int_eq(cudaEventCreate(&from), cudaSuccess);
    ck_assert_int_eq(cudaEventCreateWithFlags(&to, cudaEventDefault), cudaSuccess);
    ck_assert_int_eq(cudaEventRecord(from, stream), cudaSuccess);
    ck_assert_int_eq(cudaEventRecord(to, stream), cudaSuccess);
    ck_assert_int_eq(cudaStreamWaitEvent(stream, to, 0), cudaSuccess);
    ck_assert_int_eq(cudaStreamSynchronize(stream), cudaSuccess);
    ck_assert_int_eq(cudaEventElapsedTime(&ms, from, to), cudaSuccess);
    ck_assert(ms >= 0.0f);
    ck_assert_int_eq(cudaEventDestroy(from), cudaSuccess);
    ck_assert_int_eq(cudaEventDestroy(to), cudaSuccess);
    ck_assert_int_eq(cudaStreamDestroy(stream), cudaSuccess);
    ck_assert_int_eq(cudaDeviceSynchronize(), cudaSuccess);
}
END_TEST

enum { LAUNCHERS = 4, LAUNCHES = 20, ELEMENTS = 1000 };

/* Adds ones to its own buffer, again and again. */
static void *launch_often(void *sum_p)
{
    float ones[ELEMENTS], sums[ELEMENTS], *sum = sum_p;
    void *device_ones = NULL, *device_sums = NULL;

    for (int i = 0; i < ELEMENTS; i++)
        ones[i] = 1.0f;
    cudaMalloc(&device_ones, sizeof(ones));
    cudaMalloc(&device_sums, sizeof(sums));
    cudaMemcpy(device_ones, ones, sizeof(ones), cudaMemcpyHostToDevice);
    cudaMemset(device_sums, 0, sizeof(sums));
    for (int i = 0; i < LAUNCHES; i++)
        *sum += (float)right_add(device_sums, device_ones, ELEMENTS, NULL);
    cudaMemcpy(sums, device_sums, sizeof(sums), cudaMemcpyDeviceToHost);
    for (int i = 0; i < ELEMENTS; i++)
        *sum += sums[i];
    cudaFree(device_ones);
    cudaFree(device_sums);
    return NULL;
}

/* Ranks may be threads: launches of several take turns. */
START_TEST(threads_that_launch)
{
    pthread_t threads[LAUNCHERS];
    float sums[LAUNCHERS] = {0};

    for (size_t i = 0; i < LAUNCHERS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, launch_often, &sums[i]), 0);
    for (size_t i = 0; i < LAUNCHERS; i++) {
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        ck_assert(sums[i] == (float)(LAUNCHES * ELEMENTS));
    }
    ck_assert_uint_eq(lnt_emu_live_allocations(), 0);
}
END_TEST

static Suite *emu_runtime_suite(void)
{
    Suite *suite = suite_create("emu_runtime");
    TCase *tcase = tcase_create("runtime");

    tcase_add_checked_fixture(tcase, emu_choose_order, NULL);
    tcase_add_test(tcase, memory_and_copies);
    tcase_add_test(tcase, wrong_copies_are_refused);
    tcase_add_test(tcase, too_much_memory);
    tcase_add_test(tcase, failed_launches_become_a_status);
    tcase_add_test(tcase, properties_agree);
    tcase_add_test(tcase, streams_and_events);
    tcase_add_test(tcase, threads_that_launch);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return test_main(emu_runtime_suite());
}
