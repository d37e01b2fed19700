/* Chunks into scratch for AVX2; the body is chunk_simd.h. */
#include "chunk_simd.h"
