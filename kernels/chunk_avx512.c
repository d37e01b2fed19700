/* Chunks into scratch for AVX-512; the body is chunk_simd.h. */
#include "chunk_simd.h"
