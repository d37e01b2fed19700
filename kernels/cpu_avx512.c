/* Are there AVX-512 F, BW, DQ and VL, and does the system keep their registers? Nothing else belongs into this file:
 * the test that runs emulated AVX-512 kernels brings its own.
 */
#include "cpu.h"
#include "cpu_x86.h"

#if defined(__x86_64__)

static bool ask(void)
{
    const uint32_t wanted = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31; /* F, DQ, BW, VL */
    return lnt_cpu_has_avx2() && lnt_cpu_keeps(LNT_CPU_ZMM) && (lnt_cpu_leaf(7).ebx & wanted) == wanted;
}

bool lnt_cpu_has_avx512(void)
{
    static _Atomic int answer;
    return lnt_cpu_once(&answer, ask);
}

#else

bool lnt_cpu_has_avx512(void)
{
    return false;
}

#endif
