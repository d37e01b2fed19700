/* sign1 for AVX2; the body is sign1_simd.h. */
#include "sign1_simd.h"
