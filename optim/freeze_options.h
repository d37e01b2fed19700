/* Options that optimizers with a freeze share, one macro per row of an option table (freeze_programs.c has their
 * words).
 */
#ifndef LNT_FREEZE_OPTIONS_H
#define LNT_FREEZE_OPTIONS_H

#include <stddef.h>

#include "optim_impl.h"

extern const char *const lnt_scale_words[], *const lnt_feedback_words[], *const lnt_criterion_words[],
                                                                             *const lnt_late_idle_words[];

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
#define LNT_OPTION_FREEZE_CRITERION \
    {"freeze_criterion", "fixed", \
     "fixed: freeze after freeze_step; variance: as soon as the variance has settled, at the latest after freeze_step", \
     offsetof(lnt_optim_options_t, freeze_criterion), LNT_CFG_ENUM, lnt_criterion_words, 0, 0}
#define LNT_OPTION_FREEZE_THRESHOLD \
    {"freeze_threshold", "0.04", \
     "freeze_criterion=variance: largest relative change of |v_hat| over the window, in two tests running", \
     offsetof(lnt_optim_options_t, freeze_threshold), LNT_CFG_F64, NULL, 0, 1e18}
#define LNT_OPTION_FREEZE_WINDOW \
    {"freeze_window", "0", "steps between the two compared variances, at most 1 / (1 - beta2); 0: that", \
     offsetof(lnt_optim_options_t, freeze_window), LNT_CFG_U64, NULL, 0, 1e6}
#define LNT_OPTION_LR_WARMUP_STEPS \
    {"lr_warmup_steps", "0", \
     "steps in which the learning rate rises: freeze_criterion=variance never freezes before, a freeze_step before is " \
     "warned about", \
     offsetof(lnt_optim_options_t, lr_warmup_steps), LNT_CFG_U64, NULL, 0, 1e18}
#define LNT_OPTION_LANE_UPDATES \
    {"lane_updates", "100", "updates of a late comer in the f32 lane before it may join the signs", \
     offsetof(lnt_optim_options_t, lane_updates), LNT_CFG_U64, NULL, 1, 1e18}
#define LNT_OPTION_LATE_IDLE \
    {"late_idle", "leave", \
     "after lane_updates, a block whose remaining dead coordinates had no gradient: leave the lane, or stay in it", \
     offsetof(lnt_optim_options_t, late_idle), LNT_CFG_ENUM, lnt_late_idle_words, 0, 0}
// clang-format on

/* All of them. */
#define LNT_FREEZE_OPTIONS                                                                                             \
    LNT_OPTION_FREEZE_STEP, LNT_OPTION_WARMUP_CODEC, LNT_OPTION_WARMUP_BLOCK, LNT_OPTION_BLOCK, LNT_OPTION_CLIP,       \
        LNT_OPTION_CLIP_MODE, LNT_OPTION_SCALE_RULE, LNT_OPTION_COMPRESSION, LNT_OPTION_MAX_DEAD_SHARE,                \
        LNT_OPTION_ERROR_FEEDBACK, LNT_OPTION_FREEZE_CRITERION, LNT_OPTION_FREEZE_THRESHOLD, LNT_OPTION_FREEZE_WINDOW, \
        LNT_OPTION_LR_WARMUP_STEPS, LNT_OPTION_LANE_UPDATES, LNT_OPTION_LATE_IDLE, LNT_SCALING_OPTIONS

#endif
