/* The algorithms: one row each. Names, options, creation and the docs test read this list. */
#include <math.h>
#include <string.h>

#include "compat.h"
#include "optim_impl.h"

static const lnt_optim_row_t *const rows[] = {&lnt_adam_row,        &lnt_adamw_row,       &lnt_lamb_row,
                                              &lnt_lambc_row,       &lnt_lans_row,        &lnt_came_row,
                                              &lnt_onebit_adam_row, &lnt_onebit_lamb_row, &lnt_zero_one_adam_row};

enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

const char *const lnt_exchange_codec_words[] = {"f32",           "bf16", "int8",    "sign1",  "int4",
                                                "int4_hadamard", "f16",  "bf16_sr", "f16_sr", NULL};

const char *const lnt_compat_words[] = {"off", "deepspeed", NULL};
const char *const lnt_amsgrad_words[] = {"off", "on", NULL};

const lnt_optim_row_t *lnt_optim_row_by_name(const char *name)
{
    for (size_t i = 0; i < N_ROWS; i++) {
        if (strcmp(rows[i]->name, name) == 0) return rows[i];
        for (const lnt_optim_variant_t *v = rows[i]->variants; v != NULL && v->row != NULL; v++) {
            if (strcmp(v->row->name, name) == 0) return v->row;
        }
    }
    return NULL;
}

static const lnt_cfg_row_t *option_of(const lnt_optim_row_t *row, const char *name)
{
    const lnt_cfg_row_t *option = row->options;

    while (strcmp(option->name, name) != 0)
        option++;
    return option;
}

/* The value of the option that chooses, by the parser that reads all options: blanks, case and repetition are its
 * business. */
static lnt_status_t is_chosen(const lnt_optim_row_t *row, const lnt_optim_variant_t *variant, const char *text,
                              bool *chosen_p)
{
    const lnt_cfg_row_t *option = option_of(row, variant->option);
    const lnt_cfg_row_t table[2] = {*option, {.name = NULL}};
    lnt_optim_options_t options = {0};
    int value;

    LNT_TRY(lnt_config_defaults(table, &options));
    LNT_TRY(lnt_config_pick(table, row->name, text, &options));
    memcpy(&value, (const uint8_t *)&options + option->offset, sizeof(value));
    *chosen_p = strcmp(option->words[value], variant->word) == 0;
    return LNT_OK;
}

lnt_status_t lnt_optim_choose_row(const lnt_optim_row_t *row, const char *text, const lnt_optim_row_t **row_p)
{
    bool chosen = false;

    *row_p = row;
    for (const lnt_optim_variant_t *v = row->variants; v != NULL && v->row != NULL && !chosen; v++) {
        LNT_TRY(is_chosen(row, v, text, &chosen));
        if (chosen) *row_p = v->row;
    }
    return LNT_OK;
}

/* NaN: the text does not give it. */
static lnt_status_t given(const lnt_optim_row_t *row, const lnt_cfg_row_t *option, const char *text, double *value_p)
{
    const lnt_cfg_row_t table[2] = {*option, {.name = NULL}};
    lnt_optim_options_t options = {0};
    uint8_t *field = (uint8_t *)&options + option->offset;

    *value_p = NAN;
    memcpy(field, value_p, sizeof(*value_p));
    LNT_TRY(lnt_config_pick(table, row->name, text, &options));
    memcpy(value_p, field, sizeof(*value_p));
    return LNT_OK;
}

static lnt_status_t check_pair(const lnt_optim_row_t *row, const lnt_cfg_row_t *one, const lnt_cfg_row_t *other,
                               const char *text)
{
    double values[2];

    LNT_TRY(given(row, one, text, &values[0]));
    LNT_TRY(given(row, other, text, &values[1]));
    if (isnan(values[0]) || isnan(values[1]) || values[0] == values[1]) return LNT_OK;
    return lnt_error(LNT_ERR_INVALID_ARG, "give one of the two",
                     "%s and %s are names of one option, and differ: %g, %g", one->name, other->name, values[0],
                     values[1]);
}

lnt_status_t lnt_optim_check_names(const lnt_optim_row_t *row, const char *text)
{
    for (const lnt_cfg_row_t *one = row->options; one->name != NULL; one++) {
        for (const lnt_cfg_row_t *other = one + 1; other->name != NULL; other++) {
            if (one->offset == other->offset && one->type == LNT_CFG_F64) LNT_TRY(check_pair(row, one, other, text));
        }
    }
    return LNT_OK;
}

static uint64_t scaler_numbers(const lnt_optim_t *optim)
{
    (void)optim;
    return LNT_SCALER_STATE;
}

static uint64_t clip_ratios(const lnt_optim_t *optim)
{
    (void)optim;
    return LNT_CLIP_RATIOS;
}

static uint64_t clip_numbers(const lnt_optim_t *optim)
{
    (void)optim;
    return LNT_CLIP_STATE;
}

/* What algorithms have beside their own; those without a freeze only the first N_PLAIN. */
enum { N_PLAIN = 1, N_COMMON = 3 };
static const lnt_state_values_t common_values[N_COMMON] = {
    {.name = "loss_scaler",
     .count = scaler_numbers,
     .high = 1e18,
     .skips_change = true,
     .n_counters = LNT_SCALER_STATE},
    {.name = "clip_ratios", .count = clip_ratios, .high = 1e300},
    {.name = "clip_state", .count = clip_numbers, .high = 1e300, .n_counters = 1},
};

static uint32_t n_own_values(const lnt_optim_row_t *row)
{
    uint32_t n = 0;

    while (row->values != NULL && row->values[n].name != NULL)
        n++;
    return n;
}

uint32_t lnt_optim_n_values(const lnt_optim_row_t *row)
{
    return n_own_values(row) + (row->freezing != NULL ? N_COMMON : N_PLAIN);
}

const lnt_state_values_t *lnt_optim_values_row(const lnt_optim_row_t *row, uint32_t number)
{
    const uint32_t n = n_own_values(row);

    return number < n ? &row->values[number] : &common_values[number - n];
}

const char *const *lnt_optim_list(void)
{
    /* In the order of `rows`; a test compares the two. */
    static const char *const names[N_ROWS + 1] = {"adam", "adamw",       "lamb",        "lambc",         "lans",
                                                  "came", "onebit_adam", "onebit_lamb", "zero_one_adam", NULL};

    return names;
}

lnt_status_t lnt_optim_option_get(const char *algorithm, size_t index, lnt_optim_option_t *option_p)
{
    const lnt_optim_row_t *row;
    size_t n = 0;

    LNT_CHECK_ARG(algorithm != NULL && option_p != NULL);
    row = lnt_optim_row_by_name(algorithm);
    if (row == NULL)
        return lnt_error(LNT_ERR_INVALID_ARG, "see lnt_optim_list", "there is no algorithm \"%s\"", algorithm);
    while (n < index && row->options[n].name != NULL)
        n++;
    if (row->options[n].name == NULL) return LNT_ERR_OUT_OF_RANGE; /* the end of the list */
    *option_p = (lnt_optim_option_t){row->options[n].name, row->options[n].default_text, row->options[n].help};
    return LNT_OK;
}

bool lnt_phase_always(const lnt_phase_stats_t *stats)
{
    (void)stats;
    return true;
}

bool lnt_phase_frozen(const lnt_phase_stats_t *stats)
{
    return stats->frozen;
}

const lnt_phase_row_t *lnt_optim_phase_row(const lnt_phase_row_t *phases, const lnt_phase_stats_t *stats)
{
    while (!phases->may_enter(stats))
        phases++;
    return phases;
}

uint32_t lnt_optim_keeps(const lnt_optim_row_t *row, const lnt_phase_stats_t *stats)
{
    uint32_t programs = row->keeps[stats->frozen];

    return programs != 0 ? programs : lnt_optim_phase_row(row->phases, stats)->programs;
}

const lnt_phase_row_t *lnt_optim_current_phase(const lnt_optim_t *optim)
{
    lnt_phase_stats_t stats = {optim->step, optim->frozen, optim->options.compression};

    return lnt_optim_phase_row(optim->row->phases, &stats);
}

const char *lnt_phase_name(lnt_phase_t phase)
{
    static const char *const names[] = {[LNT_PHASE_WARMUP] = "warmup",
                                        [LNT_PHASE_COMPRESSED] = "compressed",
                                        [LNT_PHASE_PLAIN] = "plain",
                                        [LNT_PHASE_FROZEN] = "frozen",
                                        [LNT_PHASE_LOCAL] = "local"};

    return (size_t)phase < sizeof(names) / sizeof(names[0]) ? names[phase] : "unknown";
}
