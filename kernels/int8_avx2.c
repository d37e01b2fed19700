/* int8 for AVX2; the body is int8_simd.h. */
#include "int8_simd.h"
