/* The codec table and sizes. Pure: no errors are reported and nothing is allocated
 * here (creation and the checked public calls are src/core/codec_api.c).
 */
#include "codec.h"

#include <string.h>

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
    {.name = "int4",
     .doc = "symmetric codes -7..7, scale = block maximum / 7",
     .id = LNT_CODEC_INT4,
     .bits = 4,
     .has_scales = true,
     .has_feedback = true,
     .default_block = 128},
    {.name = "int4_hadamard",
     .doc = "int4 of values whose groups of 32 were rotated, which spreads peaks",
     .id = LNT_CODEC_INT4_HADAMARD,
     .bits = 4,
     .has_scales = true,
     .has_feedback = true,
     .default_block = 128},
    {.name = "f16",
     .doc = "IEEE half precision, rounded to nearest even; values above 65504 cannot be sent",
     .id = LNT_CODEC_F16,
     .bits = 16,
     .has_feedback = true,
     .default_block = 1024},
    {.name = "bf16_sr",
     .doc = "bf16, rounded by chance: unbiased, so that no error is kept",
     .id = LNT_CODEC_BF16_SR,
     .bits = 16,
     .default_block = 1024},
    {.name = "f16_sr",
     .doc = "f16, rounded by chance: unbiased, so that no error is kept",
     .id = LNT_CODEC_F16_SR,
     .bits = 16,
     .default_block = 1024},
};

static const char *const codec_names[LNT_CODEC_COUNT + 1] = {"f32",           "bf16", "sign1",   "int8",   "int4",
                                                             "int4_hadamard", "f16",  "bf16_sr", "f16_sr", NULL};

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
