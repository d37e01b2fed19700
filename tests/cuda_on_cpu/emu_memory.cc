/* Device memory. An allocation ends (to 16 bytes) at a guard page, is filled with 0xFF, and belongs to kernels and
 * copies only: at any other time its pages cannot be touched. The bytes around it are checked after each launch.
 *
 * Under ASan it is malloc's, which has red zones of its own, and poisoned where the pages would be closed.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "emu_machine.h"
#include "emu_report.h"
#include "emu_sanitizer.h"

enum : size_t { PAGE = 4096, ALIGNMENT = 16, DYNAMIC_MAX = 227 * 1024, CANARY = 0xFF };

struct allocation {
    char *base; /* NULL: the slot is free */
    size_t base_bytes;
    char *user;
    size_t bytes;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static allocation *table;
static size_t n_slots;

void lnt_emu_lock()
{
    pthread_mutex_lock(&mutex);
}

void lnt_emu_unlock()
{
    pthread_mutex_unlock(&mutex);
}

/* The barrier keeps the compiler from making a call of memset of it, which the sanitizers would watch. */
void lnt_emu_fill(void *p, size_t bytes)
{
    unsigned char *to = (unsigned char *)p;

    for (size_t i = 0; i < bytes; i++) {
        to[i] = CANARY;
        if (i % 64 == 63) __asm__ volatile("" ::: "memory");
    }
}

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static void set_access(const allocation *a, bool open)
{
    if (LNT_EMU_HAS_ASAN) {
        if (open)
            lnt_emu_unpoison(a->user, a->bytes);
        else
            lnt_emu_poison(a->user, a->bytes);
    } else {
        mprotect(a->base, a->base_bytes - PAGE, open ? PROT_READ | PROT_WRITE : PROT_NONE);
    }
}

static void set_all(bool open)
{
    for (size_t i = 0; i < n_slots; i++)
        if (table[i].base != nullptr) set_access(&table[i], open);
}

void lnt_emu_memory_open()
{
    set_all(true);
}

void lnt_emu_memory_close()
{
    set_all(false);
}

static bool all_canary(const char *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)p[i] != CANARY) return false;
    return true;
}

/* What a kernel wrote just before or just behind an allocation, on its own pages. */
void lnt_emu_memory_check()
{
    for (size_t i = 0; i < n_slots && !LNT_EMU_HAS_ASAN; i++) {
        const allocation *a = &table[i];
        const char *end = a->user + a->bytes;
        if (a->base == nullptr) continue;
        if (!all_canary(a->base, (size_t)(a->user - a->base)))
            lnt_emu_fail(nullptr, "bytes before a device buffer of %zu bytes were written", a->bytes);
        if (!all_canary(end, (size_t)(a->base + a->base_bytes - PAGE - end)))
            lnt_emu_fail(nullptr, "bytes behind a device buffer of %zu bytes were written", a->bytes);
    }
}

static bool map_pages(allocation *a)
{
    void *base;

    a->base_bytes = round_up(a->bytes, PAGE) + PAGE;
    base = mmap(nullptr, a->base_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return false;
    a->base = (char *)base;
    a->user = a->base + a->base_bytes - PAGE - round_up(a->bytes, ALIGNMENT);
    memset(a->base, CANARY, a->base_bytes - PAGE);
    mprotect(a->base + a->base_bytes - PAGE, PAGE, PROT_NONE);
    return true;
}

static bool take_from_heap(allocation *a)
{
    a->base = a->user = (char *)malloc(a->bytes);
    if (a->base == nullptr) return false;
    memset(a->base, CANARY, a->bytes);
    return true;
}

static allocation *free_slot()
{
    for (size_t i = 0; i < n_slots; i++)
        if (table[i].base == nullptr) return &table[i];
    allocation *grown = (allocation *)realloc(table, (2 * n_slots + 16) * sizeof(*table));
    if (grown == nullptr) return nullptr;
    memset(grown + n_slots, 0, (n_slots + 16) * sizeof(*table));
    table = grown;
    n_slots = 2 * n_slots + 16;
    return &table[n_slots / 2 - 8];
}

/* The allocation that holds all of [p, p + bytes), or the one that holds p if whole is not asked for. */
static allocation *find(const void *p, size_t bytes, bool whole)
{
    const char *from = (const char *)p;

    for (size_t i = 0; i < n_slots; i++) {
        allocation *a = &table[i];
        if (a->base == nullptr || from < a->user || from > a->user + a->bytes) continue;
        if (whole ? bytes <= (size_t)(a->user + a->bytes - from) : from < a->user + a->bytes) return a;
    }
    return nullptr;
}

static cudaError_t allocate(void **p, size_t bytes)
{
    allocation *a = free_slot(), made = {};

    made.bytes = bytes;
    if (a == nullptr || !(LNT_EMU_HAS_ASAN ? take_from_heap(&made) : map_pages(&made)))
        return cudaErrorMemoryAllocation;
    *a = made;
    set_access(a, false);
    *p = a->user;
    return cudaSuccess;
}

cudaError_t lnt_emu_malloc(void **p, size_t bytes)
{
    cudaError_t error;

    if (p == nullptr) return lnt_emu_result(cudaErrorInvalidValue);
    *p = nullptr;
    if (bytes == 0) return cudaSuccess;
    if (bytes > LNT_EMU_DEVICE_BYTES) return lnt_emu_result(cudaErrorMemoryAllocation);
    lnt_emu_lock();
    error = allocate(p, bytes);
    lnt_emu_unlock();
    return lnt_emu_result(error);
}

static void release(allocation *a)
{
    if (LNT_EMU_HAS_ASAN) {
        set_access(a, true);
        free(a->base);
    } else {
        munmap(a->base, a->base_bytes);
    }
    a->base = nullptr;
}

cudaError_t cudaFree(void *p)
{
    allocation *a;

    if (p == nullptr) return cudaSuccess;
    lnt_emu_lock();
    a = find(p, 0, false);
    if (a != nullptr && a->user == p)
        release(a);
    else
        a = nullptr;
    lnt_emu_unlock();
    return lnt_emu_result(a != nullptr ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaFreeAsync(void *p, cudaStream_t)
{
    return cudaFree(p);
}

cudaError_t lnt_emu_malloc_host(void **p, size_t bytes)
{
    *p = malloc(bytes);
    return lnt_emu_result(*p != nullptr || bytes == 0 ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void *p)
{
    free(p);
    return cudaSuccess;
}

/* Is this side of a copy on the device, and may it be there? A device range must lie in one allocation. */
static cudaError_t check_side(const void *p, size_t bytes, bool any, bool device)
{
    bool is_device = find(p, 0, false) != nullptr || find(p, 0, true) != nullptr;

    if (!any && is_device != device) return device ? cudaErrorInvalidValue : cudaErrorInvalidMemcpyDirection;
    return is_device && find(p, bytes, true) == nullptr ? cudaErrorInvalidValue : cudaSuccess;
}

static cudaError_t copy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    bool any = kind == cudaMemcpyDefault;
    cudaError_t error = check_side(to, bytes, any, kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice);

    if (error == cudaSuccess)
        error = check_side(from, bytes, any, kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice);
    if (error != cudaSuccess) return error;
    set_all(true);
    memmove(to, from, bytes);
    set_all(false);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    cudaError_t error;

    if (bytes == 0) return cudaSuccess;
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return lnt_emu_result(cudaErrorInvalidMemcpyDirection);
    lnt_emu_lock();
    error = copy(to, from, bytes, kind);
    lnt_emu_unlock();
    return lnt_emu_result(error);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t)
{
    return cudaMemcpy(to, from, bytes, kind);
}

cudaError_t cudaMemset(void *to, int byte, size_t bytes)
{
    allocation *a;

    if (bytes == 0) return cudaSuccess;
    lnt_emu_lock();
    a = find(to, bytes, true);
    if (a != nullptr) {
        set_access(a, true);
        memset(to, byte, bytes);
        set_access(a, false);
    }
    lnt_emu_unlock();
    return lnt_emu_result(a != nullptr ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t)
{
    return cudaMemset(to, byte, bytes);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *p)
{
    bool device;

    lnt_emu_lock();
    device = find(p, 0, false) != nullptr;
    lnt_emu_unlock();
    memset(attributes, 0, sizeof(*attributes));
    attributes->type = device ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
    attributes->devicePointer = device ? const_cast<void *>(p) : nullptr;
    attributes->hostPointer = device ? nullptr : const_cast<void *>(p);
    return cudaSuccess;
}

size_t lnt_emu_live_allocations(void)
{
    size_t n = 0;

    lnt_emu_lock();
    for (size_t i = 0; i < n_slots; i++)
        n += table[i].base != nullptr;
    lnt_emu_unlock();
    return n;
}

/* In a signal handler: no lock, the program is about to end. */
void lnt_emu_memory_describe(const void *address)
{
    const char *at = (const char *)address;

    for (size_t i = 0; i < n_slots; i++) {
        const allocation *a = &table[i];
        if (a->base != nullptr && at >= a->base && at < a->base + a->base_bytes)
            lnt_emu_say(nullptr, "address %p is %td bytes after the begin of a device buffer of %zu bytes", address,
                        at - a->user, a->bytes);
    }
}

/* Dynamic shared memory: one arena, of which a launch gets the first bytes. */
static char dynamic_arena[DYNAMIC_MAX + PAGE] __attribute__((aligned(128)));

char *lnt_emu_dynamic_open(size_t bytes)
{
    lnt_emu_poison(dynamic_arena + bytes, sizeof(dynamic_arena) - bytes);
    return dynamic_arena;
}

void lnt_emu_dynamic_close()
{
    lnt_emu_unpoison(dynamic_arena, sizeof(dynamic_arena));
}
