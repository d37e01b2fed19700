/* The table of codecs for device memory, in wire-id order like codec.c's. */
#include "cuda_kernels.h"

extern "C" {

extern const lnt_cuda_codec_ops_t lnt_f32_ops_cuda, lnt_bf16_ops_cuda, lnt_sign1_ops_cuda, lnt_int8_ops_cuda,
    lnt_int4_ops_cuda, lnt_int4_hadamard_ops_cuda, lnt_f16_ops_cuda, lnt_bf16_sr_ops_cuda, lnt_f16_sr_ops_cuda;

const lnt_cuda_codec_ops_t *lnt_cuda_codec_ops(lnt_codec_id_t id)
{
    static const lnt_cuda_codec_ops_t *const table[LNT_CODEC_COUNT] = {
        &lnt_f32_ops_cuda,           &lnt_bf16_ops_cuda, &lnt_sign1_ops_cuda,   &lnt_int8_ops_cuda,  &lnt_int4_ops_cuda,
        &lnt_int4_hadamard_ops_cuda, &lnt_f16_ops_cuda,  &lnt_bf16_sr_ops_cuda, &lnt_f16_sr_ops_cuda};
    return (unsigned)id < LNT_CODEC_COUNT ? table[id] : NULL;
}
}
