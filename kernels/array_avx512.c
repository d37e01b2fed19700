/* Elementwise work on arrays with AVX-512: the loops of array_simd.h at this width. */
#define LNT_ARRAY_OPS lnt_array_ops_avx512
#include "array_simd.h"
