/* Phases as pure functions of counters, walked without ranks; names and options of the algorithms. */
#include <string.h>

#include "../../optim/freeze.h"
#include "testing.h"

START_TEST(plain_algorithms_have_one_phase)
{
    for (uint64_t step = 0; step < 10; step++) {
        lnt_phase_stats_t stats = {.committed = step, .compression = true};
        ck_assert_int_eq(lnt_optim_phase_row(lnt_adam_row.phases, &stats)->phase, LNT_PHASE_PLAIN);
        ck_assert_int_eq(lnt_optim_phase_row(lnt_adamw_row.phases, &stats)->phase, LNT_PHASE_PLAIN);
    }
}
END_TEST

/* Commits one after the other; the freeze follows number f exactly. */
START_TEST(onebit_adam_walks_through_its_phases)
{
    const uint64_t f = 1 + test_random_below(20);

    for (int compression = 0; compression <= 1; compression++) {
        lnt_phase_stats_t stats = {.compression = compression != 0};
        for (uint64_t step = 0; step < 2 * f; step++) {
            lnt_phase_t expected = step < f ? LNT_PHASE_WARMUP : compression ? LNT_PHASE_COMPRESSED : LNT_PHASE_FROZEN;
            uint32_t programs = lnt_optim_phase_row(lnt_onebit_adam_row.phases, &stats)->programs;
            ck_assert_int_eq(lnt_optim_phase_row(lnt_onebit_adam_row.phases, &stats)->phase, expected);
            ck_assert_uint_eq(programs, step < f ? 1 : 6);
            stats.committed++;
            ck_assert_int_eq(lnt_freeze_due(&stats, f), stats.committed == f);
            if (lnt_freeze_due(&stats, f)) stats.frozen = true;
        }
    }
}
END_TEST

START_TEST(a_refused_freeze_stays_due)
{
    lnt_phase_stats_t stats = {.committed = 7, .compression = true};

    ck_assert(lnt_freeze_due(&stats, 7));
    stats.committed++;
    ck_assert(lnt_freeze_due(&stats, 7));
    ck_assert_int_eq(lnt_optim_phase_row(lnt_onebit_adam_row.phases, &stats)->phase, LNT_PHASE_WARMUP);
}
END_TEST

START_TEST(every_listed_algorithm_has_a_row_and_options)
{
    size_t n = 0;

    for (; lnt_optim_list()[n] != NULL; n++) {
        lnt_optim_option_t option;
        size_t i = 0;
        ck_assert_ptr_nonnull(lnt_optim_row_by_name(lnt_optim_list()[n]));
        ck_assert_str_eq(lnt_optim_row_by_name(lnt_optim_list()[n])->name, lnt_optim_list()[n]);
        for (; lnt_optim_option_get(lnt_optim_list()[n], i, &option) == LNT_OK; i++) {
            lnt_optim_options_t options;
            char text[128];
            ck_assert_int_gt(strlen(option.help), 0);
            ck_assert_int_eq(lnt_config_defaults(lnt_optim_row_by_name(lnt_optim_list()[n])->options, &options),
                             LNT_OK);
            (void)snprintf(text, sizeof(text), "%s=%s", option.name, option.default_text);
            ck_assert_int_eq(
                lnt_config_from_text(lnt_optim_row_by_name(lnt_optim_list()[n])->options, "test", text, &options),
                LNT_OK);
        }
        ck_assert_uint_ge(i, 4);
        ck_assert_int_eq(lnt_optim_option_get(lnt_optim_list()[n], i, &option), LNT_ERR_OUT_OF_RANGE);
    }
    ck_assert_uint_ge(n, 3);
    ck_assert_ptr_null(lnt_optim_row_by_name("sgd"));
}
END_TEST

static void check_arrays(const lnt_optim_row_t *row)
{
    size_t i = 0;

    for (; row->arrays[i].name != NULL; i++) {
        ck_assert_uint_lt(i, LNT_ARRAYS_MAX);
        ck_assert_uint_lt(strlen(row->arrays[i].name), LNT_STATE_NAME_BYTES);
        ck_assert(row->arrays[i].elem_bytes == 4 || row->arrays[i].elem_bytes == 1);
    }
    ck_assert_uint_ge(i, LNT_ADAM_M + 1);
    ck_assert_str_eq(row->arrays[LNT_ADAM_M].name, "exp_avg");
    if (i > LNT_ADAM_V) ck_assert_str_eq(row->arrays[LNT_ADAM_V].name, "exp_avg_sq");
}

static void check_values(const lnt_optim_row_t *row)
{
    ck_assert_uint_le(lnt_optim_n_values(row), LNT_VALUES_MAX);
    for (uint32_t i = 0; i < lnt_optim_n_values(row); i++) {
        const lnt_state_values_t *values = lnt_optim_values_row(row, i);
        ck_assert_uint_lt(strlen(values->name), LNT_STATE_NAME_BYTES);
        ck_assert(values->count != NULL);
        if (values->low < values->high) {
            ck_assert_double_ge(values->initial, values->low);
            ck_assert_double_le(values->initial, values->high);
        }
    }
}

/* Also of rows that an option chooses; their names fit into the header of saved state. */
static void each_row(void (*check)(const lnt_optim_row_t *row))
{
    for (size_t n = 0; lnt_optim_list()[n] != NULL; n++) {
        const lnt_optim_row_t *row = lnt_optim_row_by_name(lnt_optim_list()[n]);
        check(row);
        for (const lnt_optim_variant_t *v = row->variants; v != NULL && v->row != NULL; v++) {
            ck_assert_uint_lt(strlen(v->row->name), 28);
            check(v->row);
        }
    }
}

START_TEST(state_arrays_fit_into_saved_state)
{
    each_row(check_arrays);
}
END_TEST

START_TEST(state_values_fit_into_saved_state)
{
    each_row(check_values);
}
END_TEST

static void look_for_options(const char *text, const char *algorithm)
{
    lnt_optim_option_t option;

    for (size_t i = 0; lnt_optim_option_get(algorithm, i, &option) == LNT_OK; i++) {
        char row[128];
        (void)snprintf(row, sizeof(row), "| `%s` | `%s` |", option.name, option.default_text);
        ck_assert_msg(strstr(text, row) != NULL, "docs/optimizers.md lacks %s of %s", row, algorithm);
    }
}

/* A table row of the docs is "| `name` | `default` |". */
START_TEST(the_docs_list_every_option_with_its_default)
{
    static char text[65536];
    FILE *file = fopen(LNT_SOURCE_DIR "/docs/optimizers.md", "r");

    ck_assert_ptr_nonnull(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    (void)fclose(file);
    for (size_t n = 0; lnt_optim_list()[n] != NULL; n++) {
        const lnt_optim_variant_t *variants = lnt_optim_row_by_name(lnt_optim_list()[n])->variants;
        look_for_options(text, lnt_optim_list()[n]);
        for (; variants != NULL && variants->row != NULL; variants++) {
            ck_assert_ptr_eq(lnt_optim_row_by_name(variants->row->name), variants->row);
            look_for_options(text, variants->row->name);
        }
    }
}
END_TEST

START_TEST(phases_have_names)
{
    ck_assert_str_eq(lnt_phase_name(LNT_PHASE_WARMUP), "warmup");
    ck_assert_str_eq(lnt_phase_name(LNT_PHASE_COMPRESSED), "compressed");
    ck_assert_str_eq(lnt_phase_name((lnt_phase_t)77), "unknown");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("optim_phases");
    TCase *tcase = tcase_create("phases");

    tcase_add_test(tcase, plain_algorithms_have_one_phase);
    tcase_add_test(tcase, onebit_adam_walks_through_its_phases);
    tcase_add_test(tcase, a_refused_freeze_stays_due);
    tcase_add_test(tcase, every_listed_algorithm_has_a_row_and_options);
    tcase_add_test(tcase, state_arrays_fit_into_saved_state);
    tcase_add_test(tcase, state_values_fit_into_saved_state);
    tcase_add_test(tcase, the_docs_list_every_option_with_its_default);
    tcase_add_test(tcase, phases_have_names);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
