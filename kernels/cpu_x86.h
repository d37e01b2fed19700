/* cpuid and xgetbv. A processor may have registers that the system does not save: both are asked.
 */
#ifndef LNT_KERNELS_CPU_X86_H
#define LNT_KERNELS_CPU_X86_H

#if defined(__x86_64__)

#include <cpuid.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Register files in XCR0: xmm and ymm; these with masks and zmm. */
#define LNT_CPU_YMM 0x06u
#define LNT_CPU_ZMM 0xe6u

typedef struct lnt_cpu_leaf {
    uint32_t eax, ebx, ecx, edx;
} lnt_cpu_leaf_t;

/* All zero if the processor has no such leaf. */
static inline lnt_cpu_leaf_t lnt_cpu_leaf(uint32_t number)
{
    lnt_cpu_leaf_t leaf = {0};
    if (!__get_cpuid_count(number, 0, &leaf.eax, &leaf.ebx, &leaf.ecx, &leaf.edx)) leaf = (lnt_cpu_leaf_t){0};
    return leaf;
}

static inline bool lnt_cpu_keeps(uint32_t registers)
{
    const uint32_t osxsave = 1u << 27;
    uint32_t low, high;
    if (!(lnt_cpu_leaf(1).ecx & osxsave)) return false;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & registers) == registers;
}

/* ask() the first time; 0 in *answer: not asked yet, 1: no, 2: yes. Threads that race get the same answer. */
static inline bool lnt_cpu_once(_Atomic int *answer, bool (*ask)(void))
{
    int known = atomic_load_explicit(answer, memory_order_relaxed);
    if (!known) {
        known = ask() ? 2 : 1;
        atomic_store_explicit(answer, known, memory_order_relaxed);
    }
    return known == 2;
}

#endif

#endif
