/* f32 for AVX-512; the body is f32_simd.h. */
#include "f32_simd.h"
