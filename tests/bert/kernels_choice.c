/* Chooses the row of kernels for this CPU. */
#include "kernels.h"

const bert_kernels_t *bert_kernels_get(void)
{
#ifdef BERT_HAVE_AVX2
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return &bert_kernels_avx2;
    }
#endif
    return &bert_kernels_base;
}
