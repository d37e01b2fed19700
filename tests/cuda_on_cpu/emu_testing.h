/* What tests of kernels on the host share: the order that ctest asks for, and device buffers.
 *
 * LNT_EMU_ORDER=random takes its seed from the test's own, so LNT_TEST_SEED repeats the order as well.
 */
#ifndef LNT_TESTS_EMU_TESTING_H
#define LNT_TESTS_EMU_TESTING_H

#include <string.h>

#include <cuda_runtime.h>

#include "testing.h"

/* A checked fixture: runs before each test, in its process. */
static inline void emu_choose_order(void)
{
    const char *text = getenv("LNT_EMU_ORDER");
    char order[32];

    if (text != NULL && strcmp(text, "random") == 0) {
        snprintf(order, sizeof(order), "random:%" PRIu64, test_random());
        text = order;
    }
    lnt_emu_set_order((text != NULL) ? text : "forward");
}

static inline void *emu_on_device(size_t bytes)
{
    void *device = NULL;

    ck_assert_int_eq(cudaMalloc(&device, bytes), cudaSuccess);
    return device;
}

static inline void *emu_to_device(const void *host, size_t bytes)
{
    void *device = emu_on_device(bytes);

    ck_assert_int_eq(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), cudaSuccess);
    return device;
}

static inline void *emu_zeros(size_t bytes)
{
    void *device = emu_on_device(bytes);

    ck_assert_int_eq(cudaMemset(device, 0, bytes), cudaSuccess);
    return device;
}

/* Fetches, and frees the device's side. */
static inline void emu_from_device(void *host, void *device, size_t bytes)
{
    ck_assert_int_eq(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
    ck_assert_int_eq(cudaFree(device), cudaSuccess);
}

static inline void emu_free(void *device)
{
    ck_assert_int_eq(cudaFree(device), cudaSuccess);
}

#endif
