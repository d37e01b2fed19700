/* f32 for AVX2; the body is f32_simd.h. */
#include "f32_simd.h"
