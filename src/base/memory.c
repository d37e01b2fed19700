/* Named allocation with counters and a fault hook.
 *
 * The counters and the hook are the only global state of the library: atomics, shared by all contexts of the process.
 * Every block can be given to free(3) directly, so there is no header in front of it and alignment costs nothing.
 */
#include "memory.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"

enum { CACHE_LINE = 64, PAGE = 4096, PAGE_THRESHOLD = 64 * 1024 };

static _Atomic uint64_t live_blocks;
static _Atomic uint64_t live_bytes;
static _Atomic uint64_t total_blocks;
static _Atomic uint64_t fail_countdown; /* 0: the hook is off */
static _Atomic bool fault_fired;

/* Counts down to the allocation that has to fail; true for that one only. */
static bool fault_due(void)
{
    uint64_t left = atomic_load(&fail_countdown);

    while (left != 0) {
        if (atomic_compare_exchange_weak(&fail_countdown, &left, left - 1)) {
            if (left == 1) {
                atomic_store(&fault_fired, true);
            }
            return left == 1;
        }
    }
    return false;
}

static void *account(void *memory, size_t bytes, const char *name)
{
    if (memory == NULL) {
        (void)lnt_error(LNT_ERR_NO_MEMORY, "free memory, or use fewer or smaller tensors and buckets",
                        "allocation of %zu bytes for %s failed", bytes, name);
        return NULL;
    }
    atomic_fetch_add_explicit(&live_blocks, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&live_bytes, malloc_usable_size(memory), memory_order_relaxed);
    atomic_fetch_add_explicit(&total_blocks, 1, memory_order_relaxed);
    return memory;
}

void *lnt_calloc(size_t n, size_t size, const char *name)
{
    size_t bytes = SIZE_MAX;

    if (!lnt_size_mul(n, size, &bytes) || fault_due()) {
        return account(NULL, bytes, name);
    }
    return account(calloc(1, (bytes > 0) ? bytes : 1), bytes, name);
}

void *lnt_alloc_aligned(size_t bytes, const char *name)
{
    size_t alignment = (bytes > PAGE_THRESHOLD) ? PAGE : CACHE_LINE;
    void *memory = NULL;

    if (fault_due() || posix_memalign(&memory, alignment, (bytes > 0) ? bytes : 1) != 0) {
        return account(NULL, bytes, name);
    }
    memset(memory, 0, (bytes > 0) ? bytes : 1);
    return account(memory, bytes, name);
}

char *lnt_strdup(const char *text, const char *name)
{
    size_t bytes = strlen(text) + 1;
    char *copy = lnt_calloc(bytes, 1, name);

    if (copy != NULL) {
        memcpy(copy, text, bytes);
    }
    return copy;
}

void lnt_free(void *memory)
{
    if (memory != NULL) {
        atomic_fetch_sub_explicit(&live_blocks, 1, memory_order_relaxed);
        atomic_fetch_sub_explicit(&live_bytes, malloc_usable_size(memory), memory_order_relaxed);
        free(memory);
    }
}

bool lnt_size_mul(size_t a, size_t b, size_t *out)
{
    size_t product;

    if (__builtin_mul_overflow(a, b, &product)) {
        return false;
    }
    *out = product;
    return true;
}

void lnt_memory_fail_after(uint64_t k)
{
    atomic_store(&fault_fired, false);
    atomic_store(&fail_countdown, k);
}

bool lnt_memory_fault_fired(void)
{
    return atomic_load(&fault_fired);
}

uint64_t lnt_memory_live(void)
{
    return atomic_load(&live_blocks);
}

uint64_t lnt_memory_live_bytes(void)
{
    return atomic_load(&live_bytes);
}

uint64_t lnt_memory_total(void)
{
    return atomic_load(&total_blocks);
}
