/* int8 for AVX-512; the body is int8_simd.h. */
#include "int8_simd.h"
