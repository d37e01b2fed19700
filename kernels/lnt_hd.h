/* The qualifier of functions that are compiled for the host and for CUDA devices. Nothing else. An ordinary compiler
 * that plays the device (tests/cuda_on_cpu) takes them as plain inline functions, C++ included. */
#ifndef LNT_HD_H
#define LNT_HD_H

#if defined(__CUDACC__)
#define LNT_HD __host__ __device__ __forceinline__
#else
#define LNT_HD static inline
#endif

#endif
