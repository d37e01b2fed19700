/* The kernels of sign1. */
#include "sign1_cuda.cuh"

LNT_CUDA_OPS(sign1, sign1)
