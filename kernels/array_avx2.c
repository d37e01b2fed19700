/* Elementwise work on arrays with AVX2: the loops of array_simd.h at this width. */
#define LNT_ARRAY_OPS lnt_array_ops_avx2
#include "array_simd.h"
