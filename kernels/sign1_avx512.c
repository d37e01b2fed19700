/* sign1 for AVX-512; the body is sign1_simd.h. */
#include "sign1_simd.h"
