/* int4 and int4_hadamard for AVX2; the body is int4_simd.h. */
#include "int4_simd.h"
