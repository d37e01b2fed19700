/* In the place of the library's answer: emulated AVX-512 runs wherever AVX2 does. */
#include "../../kernels/cpu.h"

bool lnt_cpu_has_avx512(void)
{
    return lnt_cpu_has_avx2();
}
