/* Options that optimizers with a freeze share, one macro per row of an option table (freeze_programs.c has their
 * words).
 */
#ifndef LNT_FREEZE_OPTIONS_H
#define LNT_FREEZE_OPTIONS_H

#include <stddef.h>

#include "optim_impl.h"

extern const char *const lnt_scale_words[], *const lnt_feedback_words[];

// clang-format off
#define LNT_OPTION_FREEZE_STEP \
    {"freeze_step", "100000", "the freeze follows the commit with this number; v has had that many updates", \
     offsetof(lnt_optim_options_t, freeze_step), LNT_CFG_U64, NULL, 1, 1e18}
#define LNT_OPTION_WARMUP_CODEC \
    {"warmup_codec", "f32", \
     "what the mean gradient travels in before the freeze: f32, bf16, f16, bf16_sr, f16_sr, int8, int4 or " \
     "int4_hadamard", \
     offsetof(lnt_optim_options_t, codec), LNT_CFG_ENUM, lnt_exchange_codec_words, 0, 0}
#define LNT_OPTION_WARMUP_BLOCK \
    {"warmup_block", "0", \
     "elements per scale of warmup_codec; 0: the codec's default where it has scales, else `block`", \
     offsetof(lnt_optim_options_t, codec_block), LNT_CFG_U32, NULL, 0, LNT_SPAN_MAX}
#define LNT_OPTION_BLOCK \
    {"block", "1024", \
     "elements per scale of the signs, per partial sum of norms, and of the test for dead coordinates; a multiple of " \
     "64", \
     offsetof(lnt_optim_options_t, block), LNT_CFG_U32, NULL, 64, LNT_SPAN_MAX}
#define LNT_OPTION_SCALE_RULE \
    {"scale_rule", "l2", "scale of a block of signs: l2 = root of the mean square, l1 = mean magnitude", \
     offsetof(lnt_optim_options_t, scale_rule), LNT_CFG_ENUM, lnt_scale_words, 0, 0}
#define LNT_OPTION_COMPRESSION \
    {"compression", "on", "off: after the freeze the momentum travels in f32, the uncompressed twin", \
     offsetof(lnt_optim_options_t, compression), LNT_CFG_BOOL, NULL, 0, 0}
#define LNT_OPTION_MAX_DEAD_SHARE \
    {"max_dead_share", "0.1", "the freeze is refused while a larger share of all elements is dead", \
     offsetof(lnt_optim_options_t, max_dead_share), LNT_CFG_F64, NULL, 0, 1}
#define LNT_OPTION_ERROR_FEEDBACK \
    {"error_feedback", "full", "for experiments: full, worker (drop the server's error), none", \
     offsetof(lnt_optim_options_t, error_feedback), LNT_CFG_ENUM, lnt_feedback_words, 0, 0}
// clang-format on

/* All of them. */
#define LNT_FREEZE_OPTIONS                                                                                             \
    LNT_OPTION_FREEZE_STEP, LNT_OPTION_WARMUP_CODEC, LNT_OPTION_WARMUP_BLOCK, LNT_OPTION_BLOCK, LNT_OPTION_CLIP,       \
        LNT_OPTION_CLIP_MODE, LNT_OPTION_SCALE_RULE, LNT_OPTION_COMPRESSION, LNT_OPTION_MAX_DEAD_SHARE,                \
        LNT_OPTION_ERROR_FEEDBACK, LNT_SCALING_OPTIONS

#endif
