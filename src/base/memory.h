/* Named allocation. All memory of the library comes from here, so that a test can count it, and can let the k-th
 * allocation fail. The step path allocates nothing. */
#ifndef LNT_BASE_MEMORY_H
#define LNT_BASE_MEMORY_H

#include <linnet/types.h>

/* NULL on failure, with lnt_error(LNT_ERR_NO_MEMORY) already reported. Zeroed. size 0 gives a valid pointer. */
void *lnt_calloc(size_t n, size_t size, const char *name);
/* 64-byte aligned, zeroed; larger than 64 KiB comes from mmap-friendly pages. Free with lnt_free. */
void *lnt_alloc_aligned(size_t bytes, const char *name);
char *lnt_strdup(const char *text, const char *name);
void lnt_free(void *memory); /* NULL is legal */

/* Checked arithmetic for sizes: false on overflow. */
bool lnt_size_mul(size_t a, size_t b, size_t *out);

/* Tests only. Fail the k-th allocation from now on in this process (1 = the next); 0 switches off. */
void lnt_memory_fail_after(uint64_t k);
bool lnt_memory_fault_fired(void);
uint64_t lnt_memory_live(void);       /* allocations not yet freed */
uint64_t lnt_memory_live_bytes(void); /* theirs, as the allocator rounded them */
uint64_t lnt_memory_total(void);      /* allocations ever made */

#endif
