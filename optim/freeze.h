/* What every optimizer with a freeze shares: after it the variance stands, and the momentum of long tensors travels in
 * a sign program beside an f32 lane of the others (tensors shorter than LNT_LANE_MIN, groups marked non_freeze).
 *
 * An algorithm names its arrays and programs in its row (row->freezing) and calls the whole (lnt_freeze_*_programs,
 * lnt_freeze_committed, lnt_freeze_restored) or the pieces. Nothing here needs the communicator: v is equal on all
 * ranks, so every decision is.
 */
#ifndef LNT_FREEZE_H
#define LNT_FREEZE_H

#include "../src/base/log.h"
#include "freeze_options.h"
#include "late.h"
#include "optim_impl.h"

enum { LNT_LANE_MIN = 64 }; /* shorter tensors have no sign blocks */

/* Arrays and programs of an algorithm by their numbers. */
struct lnt_freezing {
    uint32_t denominator; /* f32: sqrt(v_hat) + eps of the freeze */
    uint32_t dead;        /* mask: 1 = dead, or masked by the user */
    uint32_t masked;      /* mask of the user: 1 = masked */
    uint32_t warm, sign, lane;
    bool short_too;   /* tensors under LNT_LANE_MIN have denominators too */
    bool late_comers; /* the table of values begins with LNT_LATE_VALUE_ROWS */
    bool late_apart;  /* `lane` carries late comers alone, no tensors that are plain Adam for ever */
};

/* The programs and arrays of 1-bit Adam's relatives that need no others. */
enum { LNT_FREEZE_WARM, LNT_FREEZE_SIGN, LNT_FREEZE_LANE };
enum { LNT_FREEZE_DENOMINATOR = LNT_ADAM_ARRAYS, LNT_FREEZE_DEAD, LNT_FREEZE_MASKED, LNT_FREEZE_ARRAYS };
extern const lnt_freezing_t lnt_freezing_default;
/* The first rows of such an algorithm's table of arrays; its own follow from LNT_FREEZE_ARRAYS on. */
#define LNT_FREEZE_ARRAY_ROWS                                                                                          \
    [LNT_ADAM_M] = {.name = "exp_avg", .elem_bytes = sizeof(float)},                                                   \
    [LNT_ADAM_V] = {.name = "exp_avg_sq", .elem_bytes = sizeof(float), .never_negative = true},                        \
    [LNT_FREEZE_DENOMINATOR] = {.name = "denominator",                                                                 \
                                .elem_bytes = sizeof(float),                                                           \
                                .from_freeze = true,                                                                   \
                                .never_negative = true},                                                               \
    [LNT_FREEZE_DEAD] = {.name = "dead", .elem_bytes = 1, .from_freeze = true},                                        \
    [LNT_FREEZE_MASKED] = {.name = "masked", .elem_bytes = 1}

/* The first rows of its table of values where late comers are taken back; its own follow from LNT_LATE_VALUES on. Per
 * block of tensors with denominators: own updates of a latched block (-1: not latched) and its own powers of beta; how
 * often a block was latched. */
enum {
    LNT_FREEZE_LATE_UPDATES,
    LNT_FREEZE_LATE_POWER1,
    LNT_FREEZE_LATE_POWER2,
    LNT_FREEZE_LATE_TOUCHED,
    LNT_LATE_VALUES
};
#define LNT_LATE_VALUE_ROWS                                                                                            \
    [LNT_FREEZE_LATE_UPDATES] = {.name = "late_updates",                                                               \
                                 .count = lnt_late_n_blocks,                                                           \
                                 .initial = -1,                                                                        \
                                 .low = -1,                                                                            \
                                 .high = 1e18,                                                                         \
                                 .from_freeze = true,                                                                  \
                                 .n_counters = LNT_ALL_COUNTERS},                                                      \
    [LNT_FREEZE_LATE_POWER1] =                                                                                         \
        {.name = "late_power1", .count = lnt_late_n_blocks, .initial = 1, .low = 0, .high = 1, .from_freeze = true},   \
    [LNT_FREEZE_LATE_POWER2] =                                                                                         \
        {.name = "late_power2", .count = lnt_late_n_blocks, .initial = 1, .low = 0, .high = 1, .from_freeze = true},   \
    [LNT_FREEZE_LATE_TOUCHED] = {                                                                                      \
        .name = "late_touched", .count = lnt_values_one, .low = 0, .high = 1e18, .from_freeze = true, .n_counters = 1}

/* Those and what the freeze criterion remembers; an algorithm's own follow from LNT_FREEZE_VALUES on. */
enum { LNT_FREEZE_HISTORY = LNT_LATE_VALUES, LNT_FREEZE_PASSED, LNT_FREEZE_VALUES };
#define LNT_FREEZE_VALUE_ROWS                                                                                          \
    LNT_LATE_VALUE_ROWS,                                                                                               \
        [LNT_FREEZE_HISTORY] = {.name = "freeze_history",                                                              \
                                .count = lnt_freeze_window,                                                            \
                                .low = 0,                                                                              \
                                .high = 1e300,                                                                         \
                                .sized_by = "freeze_criterion, freeze_window or beta2"},                               \
        [LNT_FREEZE_PASSED] = {                                                                                        \
            .name = "freeze_passed", .count = lnt_values_one, .low = 0, .high = 1e18, .n_counters = 1}

extern const lnt_phase_row_t lnt_freeze_phases[]; /* warm-up, then sign and lane */

/* ---- options and programs (freeze_programs.c) ---- */

/* Warm-up codec: refuses signs. */
lnt_status_t lnt_freeze_check(const lnt_optim_options_t *options);

bool lnt_freeze_in_lane(const lnt_optim_t *optim, uint32_t tensor);
/* Plain Adam for ever: the tensor has no denominators, and nothing of it is dead but what is masked. */
bool lnt_freeze_is_plain(const lnt_optim_t *optim, uint32_t tensor);

/* Programs without their stages' functions, and adding one: its number must be the expected one. `members`: one byte
 * per tensor. */
lnt_program_params_t lnt_freeze_warm_program(const lnt_optim_t *optim);
lnt_program_params_t lnt_freeze_sign_program(const lnt_optim_t *optim, const uint8_t *members);
lnt_program_params_t lnt_freeze_lane_program(const lnt_optim_t *optim, const uint8_t *members);
lnt_status_t lnt_freeze_add_program(lnt_optim_t *optim, lnt_program_params_t params, uint32_t expected);
/* All three in the order of their numbers, and the grids of norms; `arg` of the stages is the optimizer. */
lnt_status_t lnt_freeze_add_programs(lnt_optim_t *optim, const lnt_stage_t *warm, const lnt_stage_t *sign,
                                     const lnt_stage_t *lane);

/* ---- the freeze (freeze.c) ---- */

/* After a commit: is it time to freeze? A refused freeze stays due. */
bool lnt_freeze_due(const lnt_phase_stats_t *stats, uint64_t freeze_step);

/* The criterion that looks at the variance (freeze_criterion.c). Window: steps between two compared variances, 0 where
 * the option does not ask for it. Looks at v after a commit of the warm-up: is it time? */
uint64_t lnt_freeze_window(const lnt_optim_t *optim);
bool lnt_freeze_settled(lnt_optim_t *optim);
void lnt_freeze_warn(const lnt_optim_t *optim); /* at creation: of options that do not go together */

uint8_t *lnt_freeze_dead(const lnt_optim_t *optim); /* the mask */
uint8_t *lnt_freeze_masked(const lnt_optim_t *optim);
/* The dead coordinates of a span; NULL: the tensor has none. */
const uint8_t *lnt_freeze_dead_span(const lnt_optim_t *optim, const lnt_optim_tensor_t *tensor, uint64_t at);

/* LNT_FREEZE_REFUSED if v is not finite; the last error of the thread names the element. */
lnt_status_t lnt_freeze_check_variance(const lnt_optim_t *optim);
/* Denominators and the dead coordinates of one tensor from v, with k->i2 and k->eps, whatever the user has masked. */
void lnt_freeze_tensor(lnt_optim_t *optim, uint32_t tensor, const lnt_adam_consts_t *k);
uint64_t lnt_freeze_count_dead(const lnt_optim_t *optim, uint32_t tensor); /* without those that are masked */
void lnt_freeze_add_masked(lnt_optim_t *optim, uint32_t tensor);           /* the masked are dead from now on */
/* LNT_FREEZE_REFUSED if too many elements are dead. */
lnt_status_t lnt_freeze_check_share(lnt_optim_t *optim, uint64_t n_dead);
/* Denominators and the mask from v, of all tensors outside the lane; returns the number of dead coordinates. */
uint64_t lnt_freeze_find_dead(lnt_optim_t *optim);
/* Tells the sign program which coordinates of a tensor take part. */
lnt_status_t lnt_freeze_set_mask(lnt_optim_t *optim, uint32_t tensor);
lnt_status_t lnt_freeze_note_dead(lnt_optim_t *optim, uint32_t tensor); /* the tensor's mask has changed */
/* Dead coordinates stand still: m = v = 0, out of the sign exchange. */
lnt_status_t lnt_freeze_retire_dead(lnt_optim_t *optim, uint32_t tensor);
lnt_logger_t *lnt_freeze_logger(void); /* of the calling thread */
void lnt_freeze_announce(const lnt_optim_t *optim);

/* The whole freeze, with the limit on dead coordinates. */
lnt_status_t lnt_freeze(lnt_optim_t *optim);
/* Hooks of a row: the freeze where it is due, then late comers; after an import. */
lnt_status_t lnt_freeze_committed(lnt_optim_t *optim);
lnt_status_t lnt_freeze_restored(lnt_optim_t *optim);

#endif
