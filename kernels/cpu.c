/* Is there AVX2, FMA and F16C, and does the system keep their registers? */
#include "cpu.h"
#include "cpu_x86.h"

#if defined(__x86_64__)

static bool ask(void)
{
    const uint32_t fma = 1u << 12, f16c = 1u << 29, avx2 = 1u << 5;
    lnt_cpu_leaf_t basic = lnt_cpu_leaf(1), extended = lnt_cpu_leaf(7);
    return lnt_cpu_keeps(LNT_CPU_YMM) && (basic.ecx & fma) && (basic.ecx & f16c) && (extended.ebx & avx2);
}

bool lnt_cpu_has_avx2(void)
{
    static _Atomic int answer;
    return lnt_cpu_once(&answer, ask);
}

#else

bool lnt_cpu_has_avx2(void)
{
    return false;
}

#endif
