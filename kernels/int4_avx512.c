/* int4 and int4_hadamard for AVX-512; the body is int4_simd.h. */
#include "int4_simd.h"
