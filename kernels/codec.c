/* The codec table, the table of implementations, and sizes. Pure: no errors are reported and nothing is allocated
 * here (creation and the checked public calls are src/core/codec_api.c).
 */
#include "codec.h"

#include <string.h>

#include "impl.h"

static const lnt_codec_row_t codec_rows[LNT_CODEC_COUNT] = {
    {.name = "f32", .doc = "no compression", .id = LNT_CODEC_F32, .bits = 32, .default_block = 1024},
    {.name = "bf16",
     .doc = "upper half of an f32, rounded to nearest even",
     .id = LNT_CODEC_BF16,
     .bits = 16,
     .has_feedback = true,
     .default_block = 1024},
    {.name = "sign1",
     .doc = "one sign bit per element, one scale per block (root mean square, or mean magnitude)",
     .id = LNT_CODEC_SIGN1,
     .bits = 1,
     .has_scales = true,
     .has_feedback = true,
     .has_scale_rule = true,
     .default_block = 1024},
    {.name = "int8",
     .doc = "symmetric codes -127..127, scale = block maximum / 127",
     .id = LNT_CODEC_INT8,
     .bits = 8,
     .has_scales = true,
     .has_feedback = true,
     .default_block = 256},
};

static const char *const codec_names[LNT_CODEC_COUNT + 1] = {"f32", "bf16", "sign1", "int8", NULL};

static bool always(void)
{
    return true;
}

static const lnt_kernel_impl_t impls[] = {
    {.name = "ref",
     .doc = "plain C, normative",
     .usable = always,
     .ops = {&lnt_f32_ops_ref, &lnt_bf16_ops_ref, &lnt_sign1_ops_ref, &lnt_int8_ops_ref}},
};

const lnt_codec_row_t *lnt_codec_rows(size_t *n_rows_p)
{
    *n_rows_p = LNT_CODEC_COUNT;
    return codec_rows;
}

const lnt_codec_row_t *lnt_codec_row_by_name(const char *name)
{
    for (size_t i = 0; i < LNT_CODEC_COUNT; i++)
        if (!strcmp(codec_rows[i].name, name)) return &codec_rows[i];
    return NULL;
}

const char *const *lnt_codec_list(void)
{
    return codec_names;
}

const lnt_kernel_impl_t *lnt_kernel_impls(size_t *n_impls_p)
{
    *n_impls_p = sizeof(impls) / sizeof(impls[0]);
    return impls;
}

const lnt_kernel_impl_t *lnt_kernel_impl_by_name(const char *name)
{
    bool any = !strcmp(name, "auto");
    for (size_t i = sizeof(impls) / sizeof(impls[0]); i-- > 0;)
        if (any ? impls[i].usable() : !strcmp(impls[i].name, name)) return &impls[i];
    return NULL;
}

void lnt_codec_ops_override(lnt_codec_ops_t *ops, const lnt_codec_ops_t *more)
{
    if (more->encode) ops->encode = more->encode;
    if (more->decode) ops->decode = more->decode;
    if (more->decode_add) ops->decode_add = more->decode_add;
    if (more->measure) ops->measure = more->measure;
    if (more->finish) ops->finish = more->finish;
    if (more->encode_scaled) ops->encode_scaled = more->encode_scaled;
}

lnt_codec_ops_t lnt_kernel_ops(const lnt_kernel_impl_t *impl, lnt_codec_id_t id)
{
    lnt_codec_ops_t ops = *impls[0].ops[id];
    for (const lnt_kernel_impl_t *row = impls + 1; row <= impl; row++)
        if (row->ops[id] && row->usable()) lnt_codec_ops_override(&ops, row->ops[id]);
    return ops;
}

const char *lnt_codec_name(const lnt_codec_t *codec)
{
    return codec != NULL ? codec->row->name : "none";
}

uint32_t lnt_codec_block(const lnt_codec_t *codec)
{
    return codec != NULL ? codec->cfg.block : 0;
}

/* Every full block is whole bytes, so only the last one is rounded. */
uint64_t lnt_codec_encoded_size(const lnt_codec_t *codec, uint64_t n)
{
    if (codec == NULL) return UINT64_MAX;
    uint64_t block = codec->cfg.block, rest = n % block, total;
    uint64_t scale_bytes = codec->row->has_scales ? 4 : 0;
    uint64_t block_bytes = scale_bytes + lnt_codec_code_bytes(codec, block);
    uint64_t rest_bytes = rest ? scale_bytes + lnt_codec_code_bytes(codec, rest) : 0;
    if (__builtin_mul_overflow(n / block, block_bytes, &total) || __builtin_add_overflow(total, rest_bytes, &total))
        return UINT64_MAX;
    return total;
}
