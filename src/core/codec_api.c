/* The public side of codecs: creation, argument checks, and what a receiver must not trust.
 *
 * Tables and arithmetic are in kernels/, which reports no errors. Inside the library codecs are filled in place
 * (lnt_codec_init) and their ops are called directly; frames are checked once, by whoever receives them.
 */
#include "codec_api.h"

#include <linnet/codec.h>

#include "../../kernels/codec.h"
#include "../../kernels/float_bits.h"
#include "../../kernels/impl.h"
#include "../base/error.h"
#include "../base/fp_env.h"
#include "../base/memory.h"

enum { MAX_BLOCK = 1 << 24, BLOCK_UNIT = 64 };

typedef struct kernels_config {
    int kernels; /* index into lnt_kernel_choices */
} kernels_config_t;

const lnt_cfg_row_t lnt_kernels_config_rows[] = {
    {.name = "KERNELS",
     .default_text = "auto",
     .help = "implementation of the kernels: auto (the fastest this machine can run), ref, avx2 or avx512; all give "
             "the same bytes. Read when a context is created. cuda is refused: kernels for device memory are called "
             "through kernels/cuda_kernels.h, collectives and plans work in host memory",
     .offset = offsetof(kernels_config_t, kernels),
     .type = LNT_CFG_ENUM,
     .words = lnt_kernel_choices},
    {.name = NULL},
};

lnt_status_t lnt_kernels_configure(void)
{
    kernels_config_t config = {0};
    LNT_TRY(lnt_config_from_env(lnt_kernels_config_rows, &config));
    const char *name = lnt_kernel_choices[config.kernels];
    const lnt_kernel_impl_t *impl = lnt_kernel_impl_by_name(name);
    if (!impl)
        return lnt_error(LNT_ERR_CONFIG, "use ref, avx2, avx512 or auto",
                         "LINNET_KERNELS=%s: kernels for device memory are called through kernels/cuda_kernels.h; "
                         "collectives and plans work in host memory",
                         name);
    if (!impl->usable())
        return lnt_error(LNT_ERR_CONFIG, "unset LINNET_KERNELS", "LINNET_KERNELS=%s: not usable on this machine (%s)",
                         name, impl->doc);
    lnt_kernels_select(impl);
    return LNT_OK;
}

static lnt_status_t unknown_codec(const char *name)
{
    const char *const *names = lnt_codec_list();
    size_t n_names = 0;
    while (names[n_names])
        n_names++;
    const char *nearest = lnt_nearest_name(name, names, n_names);
    return lnt_error(LNT_ERR_INVALID_ARG, "lnt_codec_list() has the names", "unknown codec \"%s\"%s%s", name,
                     nearest ? ", nearest is " : "", nearest ? nearest : "");
}

lnt_status_t lnt_codec_init(lnt_codec_t *codec, const char *name, uint32_t block, lnt_scale_rule_t rule)
{
    const lnt_codec_row_t *row = lnt_codec_row_by_name(name);
    if (!row) return unknown_codec(name);
    if (block == 0) block = row->default_block;
    if (block % BLOCK_UNIT || block > MAX_BLOCK)
        return lnt_error(LNT_ERR_INVALID_ARG, "use a multiple of 64 up to 2^24, or 0 for the default",
                         "codec %s: block %u", name, block);
    if (rule != LNT_SCALE_L2 && !(rule == LNT_SCALE_L1 && row->has_scale_rule))
        return lnt_error(LNT_ERR_INVALID_ARG, "only sign1 has LNT_SCALE_L1", "codec %s: scale rule %d", name,
                         (int)rule);
    if (!lnt_kernels_any_selected()) LNT_TRY(lnt_kernels_configure());
    codec->row = row;
    codec->ops = lnt_kernel_ops(lnt_kernels_selected(), row->id);
    codec->cfg = (lnt_codec_cfg_t){.block = block, .scale_rule = rule};
    return LNT_OK;
}

lnt_status_t lnt_codec_create(const lnt_codec_params_t *params, lnt_codec_t **codec_p)
{
    LNT_CHECK_ARG(params && codec_p);
    LNT_CHECK_STRUCT(params);
    LNT_CHECK_ARG(params->name);
    lnt_codec_t filled;
    LNT_TRY(lnt_codec_init(&filled, params->name, params->block, params->scale_rule));
    lnt_codec_t *codec = lnt_calloc(1, sizeof(*codec), "codec");
    if (!codec) return LNT_ERR_NO_MEMORY;
    *codec = filled;
    *codec_p = codec;
    return LNT_OK;
}

void lnt_codec_destroy(lnt_codec_t *codec)
{
    lnt_free(codec);
}

/* Bytes of all scales: codes start behind them. */
static uint64_t scales_size(const lnt_codec_t *codec, uint64_t n)
{
    if (!codec->row->has_scales) return 0;
    return 4 * (n / codec->cfg.block + (n % codec->cfg.block != 0));
}

lnt_status_t lnt_codec_encode(const lnt_codec_t *codec, const void *input, lnt_dtype_t dtype, uint64_t n,
                              const float *error_in, float *error_out, void *wire)
{
    return lnt_codec_encode_seeded(codec, input, dtype, n, 0, 0, error_in, error_out, wire);
}

lnt_status_t lnt_codec_encode_seeded(const lnt_codec_t *codec, const void *input, lnt_dtype_t dtype, uint64_t n,
                                     uint64_t seed, uint64_t index, const float *error_in, float *error_out, void *wire)
{
    LNT_FP_SCOPE();
    LNT_CHECK_ARG(codec);
    LNT_CHECK_ARG(n == 0 || (input && wire));
    LNT_CHECK_ARG(error_in || !error_out);
    LNT_CHECK_ARG(lnt_codec_encoded_size(codec, n) != UINT64_MAX);
    if (!lnt_dtype_supported(dtype))
        return lnt_error(LNT_ERR_UNSUPPORTED, "convert to f32, bf16 or f16", "codec %s: element type %d",
                         codec->row->name, (int)dtype);
    if (n == 0) return LNT_OK;
    lnt_encode_in_t in = {.values = input, .dtype = dtype, .n = n, .error_in = error_in, .seed = seed, .index = index};
    lnt_encode_out_t out = {.scales = wire, .codes = (uint8_t *)wire + scales_size(codec, n), .error_out = error_out};
    codec->ops.encode(&codec->cfg, &in, &out);
    return out.poisoned ? LNT_SKIPPED_NONFINITE : LNT_OK;
}

/* One unsigned comparison finds NaN, Inf and everything with a sign bit. */
static lnt_status_t check_wire(const lnt_codec_t *codec, const uint8_t *wire, uint64_t wire_bytes, uint64_t n)
{
    uint64_t expected = lnt_codec_encoded_size(codec, n);
    if (expected == UINT64_MAX || wire_bytes != expected)
        return lnt_error(LNT_ERR_CORRUPT, "codec, block and count of sender and receiver must agree",
                         "codec %s: %llu bytes for %llu elements", codec->row->name, (unsigned long long)wire_bytes,
                         (unsigned long long)n);
    for (uint64_t i = 0; i < scales_size(codec, n); i += 4)
        if (lnt_f32_bits(lnt_wire_load_f32(wire + i)) > LNT_F32_MAX_BITS)
            return lnt_error(LNT_ERR_CORRUPT, NULL, "codec %s: the scale of block %llu is negative or not finite",
                             codec->row->name, (unsigned long long)(i / 4));
    return LNT_OK;
}

lnt_status_t lnt_codec_decode(const lnt_codec_t *codec, const void *wire, uint64_t wire_bytes, uint64_t n,
                              float *output)
{
    LNT_FP_SCOPE();
    LNT_CHECK_ARG(codec);
    LNT_CHECK_ARG(n == 0 || (wire && output));
    LNT_TRY(check_wire(codec, wire, wire_bytes, n));
    if (n == 0) return LNT_OK;
    codec->ops.decode(&codec->cfg, wire, (const uint8_t *)wire + scales_size(codec, n), n, NULL, output);
    return LNT_OK;
}

lnt_status_t lnt_codec_decode_add(const lnt_codec_t *codec, const void *wire, uint64_t wire_bytes, uint64_t n,
                                  float *output)
{
    LNT_FP_SCOPE();
    LNT_CHECK_ARG(codec);
    LNT_CHECK_ARG(n == 0 || (wire && output));
    LNT_TRY(check_wire(codec, wire, wire_bytes, n));
    if (n == 0) return LNT_OK;
    codec->ops.decode_add(&codec->cfg, wire, (const uint8_t *)wire + scales_size(codec, n), n, NULL, output);
    return LNT_OK;
}
