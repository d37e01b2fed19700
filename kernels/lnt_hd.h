/* The qualifier of functions that are compiled for the host and for CUDA devices. Nothing else. */
#ifndef LNT_HD_H
#define LNT_HD_H

#if defined(__CUDACC__)
#define LNT_HD __host__ __device__ __forceinline__
#else
#define LNT_HD static inline
#endif

#endif
