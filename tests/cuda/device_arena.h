/* Memory of a device test: many small arrays side by side in one piece, with gaps of known bytes between them. Whatever
 * a kernel writes is compared byte for byte with what the reference writes into the same layout on the host, so a
 * store beside an array shows as well. Runs on a GPU and on the layer that plays one (tests/cuda_on_cpu), as both have
 * the runtime's calls; there the piece also ends at an inaccessible page.
 */
#ifndef DEVICE_ARENA_H
#define DEVICE_ARENA_H

#include <check.h>
#include <cuda_runtime.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../kernel/kernel_rng.h"

enum { ARENA_GAP = 16, ARENA_GAP_BYTE = 0xa5 };

typedef struct arena {
    uint8_t *device, *given, *want, *got;
    size_t room, used;
} arena_t;

/* Under a sanitizer of the device (LNT_TEST_SMALL) 15 of 16 cases are left out. */
static inline bool device_case_left_out(void)
{
    return getenv("LNT_TEST_SMALL") != NULL && rng_below(16) != 0;
}

static inline void device_ok(cudaError_t error)
{
    if (error != cudaSuccess) ck_abort_msg("CUDA: %s", cudaGetErrorString(error));
}

/* Says so, for exit 77. */
static inline bool device_absent(void)
{
    int n_devices = 0;

    if (cudaGetDeviceCount(&n_devices) == cudaSuccess && n_devices != 0) return false;
    printf("skipped: no CUDA device\n");
    return true;
}

static inline uint8_t *arena_host_memory(size_t bytes)
{
    uint8_t *memory = malloc(bytes);
    ck_assert_ptr_nonnull(memory);
    return memory;
}

static inline arena_t arena_create(size_t room)
{
    arena_t a = {.room = room, .used = ARENA_GAP};
    a.given = arena_host_memory(room);
    a.want = arena_host_memory(room);
    a.got = arena_host_memory(room);
    device_ok(cudaMalloc((void **)&a.device, room));
    return a;
}

static inline void arena_destroy(arena_t *a)
{
    device_ok(cudaFree(a->device));
    free(a->given);
    free(a->want);
    free(a->got);
}

static inline void arena_reset(arena_t *a)
{
    a->used = ARENA_GAP;
    memset(a->given, ARENA_GAP_BYTE, ARENA_GAP);
}

/* Room for an array that starts at some multiple of `unit`, mostly (one time in two) at a multiple of 16. Returns its
 * offset. */
static inline size_t arena_place(arena_t *a, size_t bytes, size_t unit)
{
    size_t at = (a->used + 15) / 16 * 16 + (rng_below(2) ? rng_below(16) / unit * unit : 0);
    size_t end = at + bytes + ARENA_GAP;
    ck_assert_uint_le(end, a->room);
    memset(a->given + a->used, ARENA_GAP_BYTE, end - a->used);
    a->used = end;
    return at;
}

/* Where the arrays lie in device memory: as far back as alignment allows. */
static inline uint8_t *arena_device(const arena_t *a)
{
    return a->device + (a->room - (a->used - ARENA_GAP)) / 16 * 16;
}

/* The last gap is not sent: it may lie behind the end of the device's memory. */
static inline void arena_send(arena_t *a)
{
    memcpy(a->want, a->given, a->used);
    device_ok(cudaMemcpy(arena_device(a), a->given, a->used - ARENA_GAP, cudaMemcpyHostToDevice));
}

static inline void arena_receive(arena_t *a)
{
    device_ok(cudaMemcpy(a->got, arena_device(a), a->used - ARENA_GAP, cudaMemcpyDeviceToHost));
}

/* Offset of the first difference, or -1. */
static inline int64_t arena_difference(const arena_t *a)
{
    size_t bytes = a->used - ARENA_GAP;
    if (!memcmp(a->got, a->want, bytes)) return -1;
    size_t i = 0;
    while (a->got[i] == a->want[i])
        i++;
    return (int64_t)i;
}

#endif
