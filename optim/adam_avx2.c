/* Update rules with AVX2: the loops of adam_simd.h at this width. */
#define LNT_UPDATE_OPS lnt_update_ops_avx2
#include "adam_simd.h"
