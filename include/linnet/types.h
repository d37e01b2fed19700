/* Plain types every other header uses: element types, memory types, counts. */
#ifndef LINNET_TYPES_H
#define LINNET_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <linnet/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum lnt_dtype {
    LNT_F32 = 0,
    LNT_BF16 = 1, /* upper half of an f32; uint16_t in memory */
    LNT_F16 = 2,  /* IEEE half; uint16_t in memory */
    LNT_DTYPE_COUNT
} lnt_dtype_t;

/* Bytes of one element; 0 for an unknown type. */
LNT_API size_t lnt_dtype_size(lnt_dtype_t dtype);
LNT_API const char *lnt_dtype_name(lnt_dtype_t dtype);

typedef enum lnt_memtype {
    LNT_HOST = 0,
    LNT_CUDA = 1, /* reserved: LNT_ERR_UNSUPPORTED until the GPU runtime exists */
    LNT_MEMTYPE_COUNT
} lnt_memtype_t;

typedef enum lnt_redop { LNT_MEAN = 0, LNT_SUM = 1 } lnt_redop_t;

typedef struct lnt_context lnt_context_t;
typedef struct lnt_comm lnt_comm_t;
typedef struct lnt_codec lnt_codec_t;
typedef struct lnt_plan lnt_plan_t;
typedef struct lnt_optim lnt_optim_t;
typedef struct lnt_request lnt_request_t;

#ifdef __cplusplus
}
#endif
#endif
