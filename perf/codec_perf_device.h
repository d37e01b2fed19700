/* The yardstick that the runtime of a device does not bring along. */
#ifndef PERF_CODEC_PERF_DEVICE_H
#define PERF_CODEC_PERF_DEVICE_H

#include <linnet/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* a += b; both 16-byte aligned device memory. */
lnt_status_t codec_device_add(float *a, const float *b, uint64_t n, void *stream);

#ifdef __cplusplus
}
#endif
#endif
