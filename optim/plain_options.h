/* Options of optimizers whose one program carries the mean gradient, one macro per row of an option table. */
#ifndef LNT_PLAIN_OPTIONS_H
#define LNT_PLAIN_OPTIONS_H

#include "freeze_options.h"

// clang-format off
#define LNT_OPTION_CODEC \
    {"codec", "f32", "what the mean gradient travels in: f32, bf16, f16, bf16_sr, f16_sr, int8, int4 or int4_hadamard", \
     offsetof(lnt_optim_options_t, codec), LNT_CFG_ENUM, lnt_exchange_codec_words, 0, 0}
#define LNT_OPTION_CODEC_BLOCK \
    {"block", "0", "elements per scale and per partial sum of norms, a multiple of 64; 0: the codec's default", \
     offsetof(lnt_optim_options_t, block), LNT_CFG_U32, NULL, 0, LNT_SPAN_MAX}
// clang-format on

#endif
