/* What the fuzz targets share: reading numbers off the input, memory whose end is watched, and the check that ends the
 * program. A target is one file with LLVMFuzzerTestOneInput; any bytes must give data or a named error, and nothing
 * outside the buffers may be touched.
 */
#ifndef FUZZ_TARGET_H
#define FUZZ_TARGET_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void fuzz_check(bool holds, const char *what)
{
    if (holds) return;
    fprintf(stderr, "does not hold: %s\n", what);
    abort();
}

typedef struct fuzz_input {
    const uint8_t *at;
    size_t left;
} fuzz_input_t;

/* The next bytes as a little-endian number; 0 where the input is over. */
static inline uint64_t fuzz_number(fuzz_input_t *in, size_t bytes)
{
    uint64_t number = 0;
    size_t have = bytes < in->left ? bytes : in->left;
    memcpy(&number, in->at, have);
    in->at += have;
    in->left -= have;
    return number;
}

/* Fills a buffer with the rest of the input, again and again from a place that differs between buffers. */
static inline void fuzz_fill(const fuzz_input_t *in, size_t first, uint8_t *out, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        out[i] = in->left ? in->at[(first + i) % in->left] : 0;
}

#if defined(__has_feature)
#define FUZZ_HAS_FEATURE(_feature) __has_feature(_feature)
#else
#define FUZZ_HAS_FEATURE(_feature) 0
#endif

/* The address sanitizer watches both ends of heap memory; without it, an inaccessible page behind the last byte does.
 */
#if defined(__SANITIZE_ADDRESS__) || FUZZ_HAS_FEATURE(address_sanitizer)
static inline void *fuzz_alloc(size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);
    fuzz_check(memory != NULL, "there is memory");
    return bytes ? memory : (uint8_t *)memory + 1;
}

static inline void fuzz_free(void *memory, size_t bytes)
{
    free(bytes ? memory : (uint8_t *)memory - 1);
}
#else
static inline size_t fuzz_room(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

static inline void *fuzz_alloc(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = fuzz_room(bytes);
    uint8_t *map = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fuzz_check(map != MAP_FAILED && mprotect(map + room, page, PROT_NONE) == 0, "there is memory");
    return map + room - bytes;
}

static inline void fuzz_free(void *memory, size_t bytes)
{
    munmap((uint8_t *)memory - (fuzz_room(bytes) - bytes), fuzz_room(bytes) + (size_t)sysconf(_SC_PAGESIZE));
}
#endif

#endif
