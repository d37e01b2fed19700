/* Configuration tables: every type, every way to be malformed, options in one text, unknown names. */
#include <locale.h>
#include <string.h>

#include "../../src/base/config.h"
#include "../../src/base/error.h"
#include "../../src/base/memory.h"
#include "testing.h"

typedef struct sample {
    uint32_t count;
    uint64_t big;
    double ratio;
    bool on;
    uint64_t bytes;
    uint32_t time_ms;
    int color;
    char *text;
} sample_t;

static const char *const colors[] = {"red", "green", "blue", NULL};

static const lnt_cfg_row_t rows[] = {
    {"T_COUNT", "3", "a count", offsetof(sample_t, count), LNT_CFG_U32, NULL, 1, 1000},
    {"T_BIG", "18446744073709551615", "a big count", offsetof(sample_t, big), LNT_CFG_U64, NULL, 0, 0},
    {"T_RATIO", "0.5", "a ratio", offsetof(sample_t, ratio), LNT_CFG_F64, NULL, 0, 1},
    {"T_ON", "y", "a switch", offsetof(sample_t, on), LNT_CFG_BOOL, NULL, 0, 0},
    {"T_BYTES", "25m", "a size", offsetof(sample_t, bytes), LNT_CFG_BYTES, NULL, 0, 0},
    {"T_TIME", "10min", "a time", offsetof(sample_t, time_ms), LNT_CFG_TIME_MS, NULL, 0, 0},
    {"T_COLOR", "green", "a color", offsetof(sample_t, color), LNT_CFG_ENUM, colors, 0, 0},
    {"T_TEXT", "", "a text", offsetof(sample_t, text), LNT_CFG_STRING, NULL, 0, 0},
    {NULL, NULL, NULL, 0, LNT_CFG_STRING, NULL, 0, 0},
};

START_TEST(defaults_fill_every_field)
{
    sample_t s;

    memset(&s, 0xff, sizeof(s));
    ck_assert_int_eq(lnt_config_from_env(rows, &s), LNT_OK);
    ck_assert_uint_eq(s.count, 3);
    ck_assert(s.big == UINT64_MAX);
    ck_assert(s.ratio == 0.5);
    ck_assert(s.on);
    ck_assert_uint_eq(s.bytes, 25u << 20);
    ck_assert_uint_eq(s.time_ms, 600000);
    ck_assert_int_eq(s.color, 1);
    ck_assert_ptr_null(s.text);
    lnt_config_release(rows, &s);
}
END_TEST

START_TEST(environment_goes_before_defaults)
{
    sample_t s;
    uint64_t live = lnt_memory_live();

    ck_assert_int_eq(setenv("LINNET_T_COUNT", "77", 1), 0);
    ck_assert_int_eq(setenv("LINNET_T_TEXT", "node a", 1), 0);
    ck_assert_int_eq(lnt_config_from_env(rows, &s), LNT_OK);
    ck_assert_uint_eq(s.count, 77);
    ck_assert_str_eq(s.text, "node a");
    ck_assert_str_eq(lnt_config_env("T_COUNT"), "77");
    ck_assert_str_eq(lnt_config_getenv("LINNET_T_COUNT"), "77");
    ck_assert_ptr_null(lnt_config_env("T_BIG"));
    lnt_config_release(rows, &s);
    ck_assert_ptr_null(s.text);
    ck_assert_uint_eq(lnt_memory_live(), live);
    ck_assert_int_eq(lnt_config_defaults(rows, &s), LNT_OK);
    ck_assert_uint_eq(s.count, 3);
    lnt_config_release(rows, &s);
    unsetenv("LINNET_T_COUNT");
    unsetenv("LINNET_T_TEXT");
}
END_TEST

START_TEST(failure_leaves_nothing_behind)
{
    sample_t s;
    uint64_t live = lnt_memory_live();

    setenv("LINNET_T_TEXT", "kept nowhere", 1);
    setenv("LINNET_T_COUNT", "12 apples", 1);
    ck_assert_int_eq(lnt_config_from_env(rows, &s), LNT_ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, "LINNET_T_COUNT"));
    ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, "12 apples"));
    ck_assert_ptr_nonnull(strstr(lnt_last_error()->cure, "from 1 to 1000"));
    unsetenv("LINNET_T_COUNT");
    lnt_memory_fail_after(1);
    ck_assert_int_eq(lnt_config_from_env(rows, &s), LNT_ERR_NO_MEMORY);
    lnt_memory_fail_after(0);
    ck_assert_uint_eq(lnt_memory_live(), live);
    unsetenv("LINNET_T_TEXT");
}
END_TEST

typedef struct value_case {
    size_t row;
    const char *text;
    double value; /* what the field then holds, as a number */
} value_case_t;

static const value_case_t legal[] = {
    {0, "1", 1},
    {0, "1000", 1000},
    {1, "0", 0},
    {1, "9007199254740992", 9007199254740992.0},
    {2, "0", 0},
    {2, "1e0", 1},
    {2, "2.5e-1", 0.25},
    {3, "No", 0},
    {3, "TRUE", 1},
    {3, "0", 0},
    {3, "on", 1},
    {4, "0", 0},
    {4, "17", 17},
    {4, "4K", 4096},
    {4, "1g", 1073741824.0},
    {5, "0", 0},
    {5, "7", 7000},
    {5, "500ms", 500},
    {5, "30S", 30000},
    {5, "2min", 120000},
    {5, "1h", 3600000},
    {6, "RED", 0},
    {6, "blue", 2},
};

static const value_case_t malformed[] = {
    {0, "", 0},       {0, "0", 0},      {0, "1001", 0},   {0, "-1", 0},         {0, " 5", 0},
    {0, "5 ", 0},     {0, "0x10", 0},   {0, "1.5", 0},    {0, "4294967297", 0}, {1, "18446744073709551616", 0},
    {1, "+1", 0},     {1, "7k", 0},     {2, "1.0001", 0}, {2, "nan", 0},        {2, "inf", 0},
    {2, "0x1p-1", 0}, {2, "0.5.", 0},   {2, "1e999", 0},  {2, "0,5", 0},        {3, "2", 0},
    {3, "yess", 0},   {4, "1.5m", 0},   {4, "25mm", 0},   {4, "16777216t", 0},  {4, "m", 0},
    {5, "10 min", 0}, {5, "1193h1", 0}, {5, "1194h", 0},  {5, "-1s", 0},        {6, "purple", 0},
    {6, "redd", 0},   {6, "", 0},
};

static double field_as_number(size_t row, const sample_t *s)
{
    const double values[] = {(double)s->count, (double)s->big,     s->ratio, s->on,
                             (double)s->bytes, (double)s->time_ms, s->color};

    return values[row];
}

START_TEST(legal_values)
{
    const value_case_t *c = &legal[_i];
    sample_t s = {0};

    ck_assert_int_eq(lnt_config_set(&rows[c->row], "test", c->text, &s), LNT_OK);
    ck_assert_msg(field_as_number(c->row, &s) == c->value, "%s = \"%s\" gives %g", rows[c->row].name, c->text,
                  field_as_number(c->row, &s));
}
END_TEST

START_TEST(malformed_values)
{
    const value_case_t *c = &malformed[_i];
    sample_t s, before;

    memset(&s, 0x11, sizeof(s));
    s.on = false;
    before = s;
    ck_assert_msg(lnt_config_set(&rows[c->row], "option x", c->text, &s) == LNT_ERR_CONFIG, "%s accepts \"%s\"",
                  rows[c->row].name, c->text);
    ck_assert_int_eq(memcmp(&s, &before, sizeof(s)), 0);
    ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, "option x"));
    ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, c->text));
    ck_assert_uint_gt(strlen(lnt_last_error()->cure), 0);
}
END_TEST

START_TEST(enum_cure_lists_the_words)
{
    sample_t s;

    ck_assert_int_eq(lnt_config_set(&rows[6], "LINNET_T_COLOR", "pink", &s), LNT_ERR_CONFIG);
    for (int i = 0; colors[i] != NULL; i++) {
        ck_assert_ptr_nonnull(strstr(lnt_last_error()->cure, colors[i]));
    }
}
END_TEST

/* A program in a locale with a decimal comma must read the same numbers. */
START_TEST(numbers_ignore_the_locale)
{
    sample_t s = {0};

    (void)(setlocale(LC_ALL, "de_DE.UTF-8") || setlocale(LC_ALL, "fr_FR.UTF-8"));
    ck_assert_int_eq(lnt_config_set(&rows[2], "test", "0.25", &s), LNT_OK);
    ck_assert(s.ratio == 0.25);
    setlocale(LC_ALL, "C");
}
END_TEST

START_TEST(options_in_one_text)
{
    sample_t s;

    ck_assert_int_eq(lnt_config_defaults(rows, &s), LNT_OK);
    ck_assert_int_eq(lnt_config_from_text(rows, "sample", "t_count=9, T_COLOR = blue,t_text=a b,", &s), LNT_OK);
    ck_assert_uint_eq(s.count, 9);
    ck_assert_int_eq(s.color, 2);
    ck_assert_str_eq(s.text, "a b");
    ck_assert(s.ratio == 0.5);
    ck_assert_int_eq(lnt_config_from_text(rows, "sample", NULL, &s), LNT_OK);
    ck_assert_int_eq(lnt_config_from_text(rows, "sample", "", &s), LNT_OK);
    lnt_config_release(rows, &s);
}
END_TEST

START_TEST(option_errors_name_what_is_wrong)
{
    sample_t s;

    ck_assert_int_eq(lnt_config_defaults(rows, &s), LNT_OK);
    ck_assert_int_eq(lnt_config_from_text(rows, "sample", "t_conut=9", &s), LNT_ERR_INVALID_ARG);
    ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, "t_conut"));
    ck_assert_ptr_nonnull(strstr(lnt_last_error()->cure, "T_COUNT"));
    ck_assert_int_eq(lnt_config_from_text(rows, "sample", "zzzzzzzzzzzzzzzzzzz=9", &s), LNT_ERR_INVALID_ARG);
    ck_assert_int_eq(lnt_config_from_text(rows, "sample", "t_count", &s), LNT_ERR_CONFIG);
    ck_assert_int_eq(lnt_config_from_text(rows, "sample", "t_count=9,,t_on=n", &s), LNT_ERR_CONFIG);
    ck_assert_int_eq(lnt_config_from_text(rows, "sample", "t_count=1=2", &s), LNT_ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, "1=2"));
    lnt_config_release(rows, &s);
}
END_TEST

START_TEST(the_last_of_equal_keys_counts)
{
    sample_t s;

    ck_assert_int_eq(lnt_config_defaults(rows, &s), LNT_OK);
    ck_assert_int_eq(lnt_config_from_text(rows, "sample", "t_count=9,t_on=n,T_COUNT = 8", &s), LNT_OK);
    ck_assert_uint_eq(s.count, 8);
    lnt_config_release(rows, &s);
}
END_TEST

/* Every value comes back as a text that reads as the same value, also where the locale has a decimal comma. */
START_TEST(values_go_back_to_text)
{
    static const char *const texts[] = {"17", "12345678901234567890", "0.1", "off", "4096", "1500ms", "blue", "a b"};
    sample_t s, again;
    char text[64];

    ck_assert_int_eq(lnt_config_defaults(rows, &s), LNT_OK);
    ck_assert_int_eq(lnt_config_defaults(rows, &again), LNT_OK);
    (void)(setlocale(LC_ALL, "de_DE.UTF-8") || setlocale(LC_ALL, "fr_FR.UTF-8"));
    for (int i = 0; i < 8; i++) {
        ck_assert_int_eq(lnt_config_set(&rows[i], "test", texts[i], &s), LNT_OK);
        lnt_config_get(&rows[i], &s, text, sizeof(text));
        ck_assert_str_eq(text, texts[i]);
    }
    s.ratio = 1.0 / 3;
    lnt_config_get(&rows[2], &s, text, sizeof(text));
    ck_assert_int_eq(lnt_config_set(&rows[2], "test", text, &again), LNT_OK);
    ck_assert(again.ratio == s.ratio);
    setlocale(LC_ALL, "C");
    lnt_config_release(rows, &s);
    lnt_config_release(rows, &again);
}
END_TEST

START_TEST(nearest_name)
{
    const char *const names[] = {"TIMEOUT", "LOG_LEVEL", "TLS"};

    ck_assert_str_eq(lnt_nearest_name("TIMEOUTT", names, 3), "TIMEOUT");
    ck_assert_str_eq(lnt_nearest_name("timout", names, 3), "TIMEOUT");
    ck_assert_str_eq(lnt_nearest_name("LOGLEVEL", names, 3), "LOG_LEVEL");
    ck_assert_str_eq(lnt_nearest_name("TSL", names + 2, 1), "TLS"); /* two letters in the wrong order: one mistake */
    ck_assert_str_eq(lnt_nearest_name("atuo", &(const char *){"auto"}, 1), "auto");
    ck_assert_ptr_null(lnt_nearest_name("TXY", names + 2, 1)); /* 2 of 3 letters differ */
    ck_assert_ptr_null(lnt_nearest_name("COMPLETELY_DIFFERENT", names, 3));
    ck_assert_ptr_null(lnt_nearest_name("X", names, 0));
    ck_assert_ptr_null(lnt_nearest_name("max_grad_norm", &(const char *){"max_dead_share"}, 1));
}
END_TEST

typedef struct warning {
    int count;
    char name[64], near[64];
} warning_t;

static void keep_warning(void *arg, const char *name, const char *near)
{
    warning_t *warning = arg;

    warning->count++;
    (void)snprintf(warning->name, sizeof(warning->name), "%s", name);
    (void)snprintf(warning->near, sizeof(warning->near), "%s", (near != NULL) ? near : "-");
}

START_TEST(unknown_variables_warn)
{
    const lnt_cfg_table_t tables[] = {{"sample", rows}};
    warning_t warning = {0};

    ck_assert_int_eq(clearenv(), 0); /* whoever runs the tests may have set variables of the library */
    setenv("LINNET_T_COUNT", "3", 1);
    lnt_config_unknown(tables, 1, keep_warning, &warning);
    ck_assert_int_eq(warning.count, 0);
    setenv("LINNET_T_COLUR", "red", 1);
    lnt_config_unknown(tables, 1, keep_warning, &warning);
    ck_assert_int_eq(warning.count, 1);
    ck_assert_str_eq(warning.name, "LINNET_T_COLUR");
    ck_assert_str_eq(warning.near, "LINNET_T_COLOR");
    unsetenv("LINNET_T_COLUR");
    setenv("LINNET_QQQQQQQQQQQQ", "", 1);
    lnt_config_unknown(tables, 1, keep_warning, &warning);
    ck_assert_int_eq(warning.count, 2);
    ck_assert_str_eq(warning.near, "-");
    unsetenv("LINNET_QQQQQQQQQQQQ");
    unsetenv("LINNET_T_COUNT");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("config");
    TCase *tcase = tcase_create("config");

    tcase_add_test(tcase, defaults_fill_every_field);
    tcase_add_test(tcase, environment_goes_before_defaults);
    tcase_add_test(tcase, failure_leaves_nothing_behind);
    tcase_add_loop_test(tcase, legal_values, 0, (int)(sizeof(legal) / sizeof(legal[0])));
    tcase_add_loop_test(tcase, malformed_values, 0, (int)(sizeof(malformed) / sizeof(malformed[0])));
    tcase_add_test(tcase, enum_cure_lists_the_words);
    tcase_add_test(tcase, numbers_ignore_the_locale);
    tcase_add_test(tcase, options_in_one_text);
    tcase_add_test(tcase, option_errors_name_what_is_wrong);
    tcase_add_test(tcase, the_last_of_equal_keys_counts);
    tcase_add_test(tcase, values_go_back_to_text);
    tcase_add_test(tcase, nearest_name);
    tcase_add_test(tcase, unknown_variables_warn);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
