/* Internals shared by the files of optim/. An optimizer is a client of the public plan and stage interfaces.
 *
 * What an algorithm is: a row (optim_table.c) with options, exchange programs and a table of phases; the phase of the
 * next step is a pure function of a few counters. Moments exist in full on every rank and are written in the commit
 * pass only.
 */
#ifndef LNT_OPTIM_IMPL_H
#define LNT_OPTIM_IMPL_H

#include <linnet/optim.h>
#include <linnet/stage.h>

#include "../kernels/codec.h"
#include "../src/base/config.h"
#include "../src/base/error.h"
#include "adam_math.h"
#include "clip.h"
#include "loss_scale.h"

/* Options of all algorithms; a row's table says which of them it has. */
typedef enum lnt_freeze_criterion { LNT_FREEZE_ON_STEP, LNT_FREEZE_ON_VARIANCE } lnt_freeze_criterion_t;
typedef enum lnt_feedback { LNT_FEEDBACK_FULL, LNT_FEEDBACK_WORKER, LNT_FEEDBACK_NONE } lnt_feedback_t;

typedef struct lnt_optim_options {
    uint64_t freeze_step;
    uint64_t var_update_scaler, local_step_scaler, local_step_clipper;
    int codec;            /* index into lnt_exchange_codec_words; of the warm-up where there is one */
    uint32_t codec_block; /* 0: see docs/optimizers.md */
    uint32_t block;       /* of signs, norms and the test for dead coordinates */
    double clip;          /* 0: off */
    int clip_mode;        /* lnt_clip_mode_t */
    int scale_rule;       /* lnt_scale_rule_t */
    bool compression;
    int error_feedback; /* lnt_feedback_t */
    double max_dead_share;
    double loss_scale; /* 0: dynamic */
    uint32_t initial_scale_power, loss_scale_window, hysteresis;
    bool consecutive_hysteresis;
    double min_loss_scale;
    int freeze_criterion; /* lnt_freeze_criterion_t */
    double freeze_threshold;
    uint64_t freeze_window; /* 0: 1 / (1 - beta2) */
    uint64_t lr_warmup_steps;
    uint64_t lane_updates; /* of a late comer, before it may join the signs */
    int late_idle;         /* lnt_late_idle_t */
    int compat;            /* these two choose a row: lnt_optim_variant_t */
    int amsgrad;
    int unit;                    /* lnt_unit_t, of compat rows */
    double max_coeff, min_coeff; /* of a trust ratio; max_coeff 0: no limit */
    double clamp_value;          /* largest norm of parameters in a trust ratio; 0: no limit */
    double coeff_beta, factor_max, factor_min, factor_threshold; /* of 1-bit LAMB */
    bool bias_correction, always_adapt, trust_clip, grad_averaging, debias;
    bool momentum_scaling;                    /* of 1-bit LAMB */
    double beta3, eps1, eps2, clip_threshold; /* of CAME */
} lnt_optim_options_t;

extern const char *const lnt_exchange_codec_words[];

/* What a phase may depend on. */
typedef struct lnt_phase_stats {
    uint64_t committed; /* steps */
    bool frozen;        /* the freeze has happened */
    bool compression;
} lnt_phase_stats_t;

typedef struct lnt_phase_row {
    lnt_phase_t phase;
    bool (*may_enter)(const lnt_phase_stats_t *stats);
    uint32_t programs; /* bit mask of what a step runs, unless row->prepare chooses */
} lnt_phase_row_t;

/* An array of an algorithm's state, one element per parameter. Adding a row is all it takes: allocation, views, hashes,
 * saving and loading walk the table. */
typedef struct lnt_state_array {
    const char *name;    /* of the view, and of the section in saved state: shorter than LNT_STATE_NAME_BYTES */
    size_t elem_bytes;   /* 4: f32; 1: a mask of 0 and 1 */
    bool from_freeze;    /* holds nothing before the freeze */
    bool local;          /* differs between ranks: every rank saves its own, and nobody compares them */
    bool never_negative; /* means of squares, denominators */
} lnt_state_array_t;

/* Numbers of an algorithm's state, all f64: one per tensor, one per group, a ring of fixed length, or a single one. The
 * same walks as over arrays. They must be finite at the end of every step. */
typedef struct lnt_state_values {
    const char *name; /* of lnt_optim_values, and of the section in saved state */
    /* Fixed by tensors, groups (their first values included), options and shapes: asked once, at creation. */
    uint64_t (*count)(const lnt_optim_t *optim);
    double initial;
    double low, high;        /* what a saved number must lie in; both 0: any */
    bool from_freeze, local; /* as of arrays */
    bool skips_change;       /* a skipped step may change them: no part of lnt_optim_hash */
    uint64_t n_counters;     /* so many of the first ones are whole and below 2^53; local ones may be means */
    const char *sized_by;    /* the options that say how many there are, if there are such */
} lnt_state_values_t;

#define LNT_ALL_COUNTERS UINT64_MAX
enum { LNT_ARRAYS_MAX = 8, LNT_VALUES_MAX = 20, LNT_STATE_NAME_BYTES = 20 };
enum { LNT_ADAM_M, LNT_ADAM_V, LNT_ADAM_ARRAYS }; /* the first rows of Adam and all its relatives */

typedef struct lnt_freezing lnt_freezing_t;
typedef struct lnt_optim_row lnt_optim_row_t;

/* An option whose value chooses another row, with arrays, programs and options of its own, so that neither has branches
 * for the other. Its name is "<algorithm>/<value>". */
typedef struct lnt_optim_variant {
    const char *option, *word;
    const lnt_optim_row_t *row;
} lnt_optim_variant_t;

extern const char *const lnt_compat_words[], *const lnt_amsgrad_words[]; /* of the options that choose */

struct lnt_optim_row {
    const char *name;
    const char *doc;
    const lnt_cfg_row_t *options;
    const lnt_phase_row_t *phases;    /* the first that may be entered is the phase; the last always may */
    bool l2_decay;                    /* decay enters the gradient; else it is decoupled */
    bool own_masters;                 /* model copies differ from masters at times (lnt_plan_own_masters) */
    uint32_t keeps[2];                /* programs whose errors live before and after the freeze; 0: the phase's */
    bool one_world;                   /* saved state fits the world that saved it alone */
    bool masters_differ;              /* between ranks: every rank saves its own, and nobody compares them */
    const lnt_freezing_t *freezing;   /* freeze.h; NULL: has no freeze, or */
    bool freezes_itself;              /* one that is its own business */
    bool bias_option;                 /* has bias_correction, off of which is obeyed by late comers too */
    const lnt_state_array_t *arrays;  /* at most LNT_ARRAYS_MAX, then one without a name */
    const lnt_state_values_t *values; /* NULL: none. At most LNT_VALUES_MAX, then one without a name */
    lnt_status_t (*check)(const lnt_optim_options_t *options);
    lnt_status_t (*add_programs)(lnt_optim_t *optim);
    /* Before a step begins, constants of groups being ready: may change what it runs. Nothing durable may change; after
     * an error the step has not begun. NULL: nothing. */
    lnt_status_t (*prepare)(lnt_optim_t *optim, lnt_step_params_t *params);
    /* Changes the constants of the groups that lnt_optim_begin has prepared, and fills optim->work of the step; no
     * state. NULL: nothing. */
    void (*begin)(lnt_optim_t *optim);
    uint64_t (*work_count)(const lnt_optim_t *optim); /* numbers in optim->work; NULL: none */
    uint32_t n_scratch;                               /* pieces of scratch that a survey needs, without clipping too */
    /* After a committed step: it cannot be undone, so no errors but LNT_FREEZE_REFUSED and LNT_SKIPPED_LOCAL; must not
     * need the communicator. NULL: nothing. */
    lnt_status_t (*committed)(lnt_optim_t *optim);
    void (*skipped)(lnt_optim_t *optim); /* after a step that the vote skipped. NULL: nothing */
    /* After the freeze, when the user's mask of a tensor has changed. NULL: as 1-bit Adam. */
    lnt_status_t (*remask)(lnt_optim_t *optim, uint32_t tensor);
    lnt_status_t (*restored)(lnt_optim_t *optim); /* after an import; the same holds */
    const lnt_optim_variant_t *variants;          /* NULL: none; then one without a row */
    /* lnt_optim_set_mask, between steps; NULL: what mask.c does. */
    lnt_status_t (*set_mask)(lnt_optim_t *optim, uint32_t tensor, const uint8_t *mask);
};

const lnt_optim_row_t *lnt_optim_row_by_name(const char *name); /* variants too; NULL if unknown */
/* The row that the text of options (may be NULL) asks for: `row` itself or a variant of it. */
lnt_status_t lnt_optim_choose_row(const lnt_optim_row_t *row, const char *text, const lnt_optim_row_t **row_p);
/* Options with two names: LNT_ERR_INVALID_ARG if both are given, with different values. */
lnt_status_t lnt_optim_check_names(const lnt_optim_row_t *row, const char *text);
/* Tells the plan what must be equal on all ranks; the last piece of creation. */
lnt_status_t lnt_optim_set_settings(lnt_optim_t *optim);
/* Rows of its table of values, and those that all algorithms have. */
uint32_t lnt_optim_n_values(const lnt_optim_row_t *row);
const lnt_state_values_t *lnt_optim_values_row(const lnt_optim_row_t *row, uint32_t number);

/* Counts of values. */
uint64_t lnt_values_one(const lnt_optim_t *optim);
uint64_t lnt_values_per_tensor(const lnt_optim_t *optim);
uint64_t lnt_values_per_group(const lnt_optim_t *optim);

/* lnt_optim_create with the row at hand, or the variant of it that the options choose; params->algorithm is not looked
 * at. */
lnt_status_t lnt_optim_create_row(lnt_plan_t *plan, const lnt_optim_row_t *row, const lnt_optim_params_t *params,
                                  lnt_optim_t **optim_p);

typedef struct lnt_optim_tensor {
    uint64_t base, count;              /* first element in the moments */
    uint64_t rows, cols;               /* shape; 0: a vector */
    uint64_t row_at, col_at, whole_at; /* first one in lists of all rows, of all columns, of all elements of vectors */
    uint32_t group;
    float *x;             /* master */
    bool any_dead;        /* coordinates, since the freeze */
    bool mask_stale;      /* the sign program has another mask of live coordinates */
    uint64_t first_block; /* number of its first block among those that may have late comers */
    uint64_t mask_hash;   /* of the user's mask, 0: nothing is masked */
} lnt_optim_tensor_t;

typedef struct lnt_optim_group {
    lnt_group_t values;
    double power1, power2;           /* beta^t */
    double next_power1, next_power2; /* if this step commits */
    lnt_adam_consts_t k;             /* of this step */
} lnt_optim_group_t;

/* What every rank tells in a vote of an import: status, hash of what must be equal, bytes of its errors section. */
typedef struct lnt_state_vote {
    int64_t status;
    uint64_t common, error_bytes;
} lnt_state_vote_t;

struct lnt_zero_one; /* working memory of zero_one_adam */

/* Sums of residuals, as lnt_optim_info_t has them. */
typedef struct lnt_optim_imported {
    double before, after, magnitude;
} lnt_optim_imported_t;

struct lnt_optim {
    lnt_plan_t *plan;
    const lnt_optim_row_t *row;
    lnt_optim_options_t options;
    lnt_optim_group_t *groups;
    uint32_t n_groups;
    lnt_optim_tensor_t *tensors;
    uint32_t n_tensors;
    uint64_t n_elems; /* without the gaps of `base` */
    uint64_t room;    /* elements in the arrays, gaps included */

    void *arrays[LNT_ARRAYS_MAX];   /* [room] each, in the order of row->arrays */
    double *values[LNT_VALUES_MAX]; /* [n_values] each, lnt_optim_values_row */
    uint64_t n_values[LNT_VALUES_MAX];
    float *scratch; /* for norms: [LNT_SPAN_MAX] times n_scratch; NULL if that is 0 */
    uint32_t n_scratch;
    double *work; /* [n_work] what a survey leaves for consume and committed: of the running step, no state */
    uint64_t n_work;
    lnt_state_vote_t *votes; /* [n_ranks] here and next: an import votes even when memory has run out */
    uint64_t *error_bytes;

    uint32_t norm_block; /* grid of partial sums */
    uint32_t read_block; /* grid on which the gradient program can be read */
    double loss_scale;
    uint32_t micro_steps;
    bool in_step;
    bool frozen;
    uint64_t step, skipped; /* committed, skipped */
    uint64_t mask_hash;     /* of all masks of the user: must be equal on all ranks in every step */

    bool clipped; /* this step's mean gradient is multiplied by clip_scale */
    float clip_scale;
    double grad_norm, clip_factor, next_norm; /* of the last committed step; of the running one */
    lnt_clip_t clip;
    double dead_share, dropped_norm;
    lnt_optim_imported_t imported;
    uint64_t lane_elems;
    uint64_t n_latched; /* blocks with late comers in the lane */
    bool lane_parts;    /* the lane carries parts chosen by late.c, no longer its members */
    bool lane_stale;    /* it does not carry what it must from the next step on */
    struct lnt_zero_one *zero_one;
    uint64_t zero_one_bytes;
};

/* When phases may be entered. */
bool lnt_phase_always(const lnt_phase_stats_t *stats);
bool lnt_phase_frozen(const lnt_phase_stats_t *stats);
const lnt_phase_row_t *lnt_optim_phase_row(const lnt_phase_row_t *rows, const lnt_phase_stats_t *stats);
const lnt_phase_row_t *lnt_optim_current_phase(const lnt_optim_t *optim);
/* Programs whose errors live in a phase: those that are saved. */
uint32_t lnt_optim_keeps(const lnt_optim_row_t *row, const lnt_phase_stats_t *stats);
/* LNT_ERR_INVALID_USAGE in a step. */
lnt_status_t lnt_optim_check_idle(const lnt_optim_t *optim, const char *call);

/* The mask of a tensor has changed: its part of mask_hash anew. */
void lnt_optim_note_mask(lnt_optim_t *optim, uint32_t number);

/* Arrays start on 64-byte borders at every tensor. */
static inline const lnt_optim_tensor_t *lnt_optim_span(const lnt_optim_t *optim, const lnt_span_t *span, uint64_t *at_p)
{
    *at_p = optim->tensors[span->tensor].base + span->offset;
    return &optim->tensors[span->tensor];
}

static inline float *lnt_optim_f32(const lnt_optim_t *optim, uint32_t array)
{
    return optim->arrays[array];
}

static inline bool lnt_optim_holds(const lnt_optim_t *optim, const lnt_state_array_t *array)
{
    return !array->from_freeze || optim->frozen;
}

static inline bool lnt_optim_holds_values(const lnt_optim_t *optim, const lnt_state_values_t *values)
{
    return !values->from_freeze || optim->frozen;
}

/* Plain Adam on a span: consume of warm-up programs and f32 lanes. */
void lnt_adam_consume(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live);

/* What algorithms with one program and one phase share: it carries the mean gradient in options.codec, and is the one
 * to be surveyed. Signs are refused. */
lnt_status_t lnt_adam_check(const lnt_optim_options_t *options);
lnt_status_t lnt_adam_add_program(lnt_optim_t *optim, lnt_stage_t stage);
extern const lnt_phase_row_t lnt_adam_phases[];

extern const lnt_optim_row_t lnt_lamb_row, lnt_lambc_row, lnt_onebit_lamb_row, lnt_lans_row, lnt_came_row;
extern const lnt_optim_row_t lnt_adam_row, lnt_adamw_row, lnt_onebit_adam_row, lnt_zero_one_adam_row;

#endif
