/* bf16 and f16 for AVX-512; the body is half_simd.h. */
#include "half_simd.h"
