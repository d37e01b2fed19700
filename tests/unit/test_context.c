/* Contexts: versions, parameters, environment, knobs, lists of cores, the progress thread. */
#include "../../src/core/core.h"
#include "../../src/core/cpu_list.h"
#include "../process_state.h"
#include "../testing.h"

#include <linnet/version.h>
#include <pthread.h>

typedef struct heard {
    uint32_t lines;
    lnt_log_level_t level;
    char text[1024]; /* the last line */
} heard_t;

static void hear(void *arg, lnt_log_level_t level, const char *line)
{
    heard_t *heard = arg;

    heard->lines++;
    heard->level = level;
    snprintf(heard->text, sizeof(heard->text), "%s", line);
}

static void forget_environment(void)
{
    size_t n_tables;
    const lnt_cfg_table_t *tables = lnt_config_tables(&n_tables);

    for (size_t t = 0; t < n_tables; t++) {
        for (const lnt_cfg_row_t *row = tables[t].rows; row->name != NULL; row++) {
            char name[64];

            snprintf(name, sizeof(name), "LINNET_%s", row->name);
            unsetenv(name);
        }
    }
}

START_TEST(headers_must_fit)
{
    lnt_context_t *context = NULL;

    ck_assert_int_eq(lnt_context_create_versioned(NULL, LINNET_VERSION + 10000, &context), LNT_ERR_VERSION);
    ck_assert_ptr_null(context);
    ck_assert_int_eq(lnt_context_create_versioned(NULL, LINNET_VERSION, NULL), LNT_ERR_INVALID_ARG);
    ck_assert_int_eq(lnt_context_create(NULL, &context), LNT_OK);
    ck_assert_int_eq(lnt_context_destroy(context), LNT_OK);
    ck_assert_int_eq(lnt_context_destroy(NULL), LNT_OK);
    ck_assert_uint_eq(lnt_version(), LINNET_VERSION);
    ck_assert_str_eq(lnt_version_string(), LINNET_VERSION_STRING);
    ck_assert_ptr_nonnull(strstr(lnt_build_info(), LINNET_VERSION_STRING));
}
END_TEST

START_TEST(malformed_parameters)
{
    const lnt_context_params_t wrong[] = {
        {.struct_size = 1},
        {.struct_size = sizeof(wrong[0]), .log_level = LNT_LOG_TRACE + 1},
        {.struct_size = sizeof(wrong[0]), .progress_thread = LNT_OFF + 1},
        {.struct_size = sizeof(wrong[0]), .cpus = "0,"},
        {.struct_size = sizeof(wrong[0]), .cpus = ""},
    };
    const lnt_status_t expected[] = {LNT_ERR_VERSION, LNT_ERR_INVALID_ARG, LNT_ERR_INVALID_ARG, LNT_ERR_CONFIG,
                                     LNT_ERR_CONFIG};
    const process_state_t before = process_state();

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        lnt_context_t *context = NULL;

        ck_assert_int_eq(lnt_context_create(&wrong[i], &context), expected[i]);
        ck_assert_ptr_null(context);
    }
    ck_assert(same_state(&before));
}
END_TEST

START_TEST(malformed_environment)
{
    static const struct {
        const char *name, *value;
    } wrong[] = {{"LINNET_TIMEOUT", "10 fortnights"}, {"LINNET_SPIN_US", "-1"},
                 {"LINNET_RING_BYTES", "1m!"},        {"LINNET_LOG_LEVEL", "loud"},
                 {"LINNET_PROGRESS_CPUS", "1-"},      {"LINNET_PROGRESS_THREAD", "perhaps"},
                 {"LINNET_EMULATE_GBPS", "nan"},      {"LINNET_TIMEOUT", "1ms"}};
    const process_state_t before = process_state();

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        lnt_context_t *context = NULL;

        setenv(wrong[i].name, wrong[i].value, 1);
        ck_assert_msg(lnt_context_create(NULL, &context) == LNT_ERR_CONFIG, "%s=%s", wrong[i].name, wrong[i].value);
        ck_assert_ptr_null(context);
        ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, wrong[i].name));
        unsetenv(wrong[i].name);
    }
    ck_assert(same_state(&before));
}
END_TEST

START_TEST(unknown_variable_is_told)
{
    heard_t heard = {0};
    const lnt_context_params_t params = {.struct_size = sizeof(params), .log = hear, .log_arg = &heard};
    lnt_context_t *context;

    setenv("LINNET_TIMOUT", "3s", 1);
    ck_assert_int_eq(lnt_context_create(&params, &context), LNT_OK);
    ck_assert_uint_eq(heard.lines, 1);
    ck_assert_int_eq(heard.level, LNT_LOG_WARN);
    ck_assert_ptr_nonnull(strstr(heard.text, "LINNET_TIMOUT"));
    ck_assert_ptr_nonnull(strstr(heard.text, "LINNET_TIMEOUT"));
    ck_assert_int_eq(lnt_context_destroy(context), LNT_OK);
    unsetenv("LINNET_TIMOUT");
}
END_TEST

START_TEST(environment_and_parameters)
{
    const lnt_context_params_t on = {.struct_size = sizeof(on), .progress_thread = LNT_ON};
    const process_state_t before = process_state();
    lnt_context_t *context;

    setenv("LINNET_TIMEOUT", "1500ms", 1);
    setenv("LINNET_PROGRESS_THREAD", "off", 1);
    ck_assert_int_eq(lnt_context_create(NULL, &context), LNT_OK);
    ck_assert_uint_eq(context->config.timeout_ms, 1500);
    ck_assert_uint_eq(count_threads(), before.threads);
    ck_assert_int_eq(lnt_context_destroy(context), LNT_OK);
    ck_assert_int_eq(lnt_context_create(&on, &context), LNT_OK); /* parameters go before the environment */
    for (int i = 0; i < 1000 && count_threads() != before.threads + 1; i++)
        usleep(1000);
    ck_assert_uint_eq(count_threads(), before.threads + 1);
    ck_assert_int_eq(lnt_context_destroy(context), LNT_OK);
    unsetenv("LINNET_TIMEOUT");
    unsetenv("LINNET_PROGRESS_THREAD");
    ck_assert(same_state(&before));
}
END_TEST

static void *destroy_main(void *context)
{
    return (void *)(intptr_t)lnt_context_destroy(context);
}

/* Another thread destroys what this one used last: an error without any context must not reach for its logger. */
START_TEST(logger_is_forgotten)
{
    lnt_context_t *context, *other;
    pthread_t thread;
    void *status;

    ck_assert_int_eq(lnt_context_create(NULL, &other), LNT_OK);
    ck_assert_int_eq(lnt_context_create(NULL, &context), LNT_OK);
    ck_assert_int_eq(lnt_context_enter(context), LNT_OK);
    ck_assert_ptr_eq(lnt_log_current(), context->logger);
    ck_assert_int_eq(pthread_create(&thread, NULL, destroy_main, context), 0);
    ck_assert_int_eq(pthread_join(thread, &status), 0);
    ck_assert_ptr_null(status);
    ck_assert_ptr_null(lnt_log_current());
    ck_assert_int_eq(lnt_knob_get(0, NULL), LNT_ERR_INVALID_ARG);
    ck_assert_int_eq(lnt_context_destroy(other), LNT_OK);
}
END_TEST

START_TEST(knobs_are_listed)
{
    size_t n_tables, n = 0, index = 0;
    const lnt_cfg_table_t *tables = lnt_config_tables(&n_tables);
    bool timeout_seen = false;
    lnt_knob_t knob;

    for (size_t t = 0; t < n_tables; t++) {
        for (const lnt_cfg_row_t *row = tables[t].rows; row->name != NULL; row++)
            n++;
    }
    setenv("LINNET_TIMEOUT", "7s", 1);
    while (lnt_knob_get(index, &knob) == LNT_OK) {
        ck_assert_int_eq(strncmp(knob.name, "LINNET_", 7), 0);
        ck_assert_uint_gt(strlen(knob.help), 10);
        ck_assert_ptr_nonnull(knob.default_text);
        ck_assert_ptr_nonnull(knob.module);
        if (strcmp(knob.name, "LINNET_TIMEOUT") == 0) {
            timeout_seen = true;
            ck_assert_str_eq(knob.value, "7s");
        }
        index++;
    }
    unsetenv("LINNET_TIMEOUT");
    ck_assert(timeout_seen);
    ck_assert_uint_eq(index, n);
    ck_assert_int_eq(lnt_knob_get(n, &knob), LNT_ERR_OUT_OF_RANGE);
    ck_assert_int_eq(lnt_knob_get(0, NULL), LNT_ERR_INVALID_ARG);
}
END_TEST

START_TEST(lists_of_cores)
{
    static const char *const wrong[] = {"",    ",",  "1,", ",1",   "a",     "1-",  "-1",
                                        "3-2", "1 ", " 1", "1,,2", "99999", "0x1", "1-2-3"};
    cpu_set_t cpus;

    ck_assert_int_eq(lnt_cpu_list_parse("2,4-6", &cpus), LNT_OK);
    for (size_t cpu = 0; cpu < 16; cpu++) {
        ck_assert_int_eq(CPU_ISSET(cpu, &cpus) != 0, cpu == 2 || (cpu >= 4 && cpu <= 6));
    }
    ck_assert_int_eq(CPU_COUNT(&cpus), 4);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        ck_assert_msg(lnt_cpu_list_parse(wrong[i], &cpus) == LNT_ERR_CONFIG, "\"%s\"", wrong[i]);
    }
    ck_assert_int_eq(CPU_COUNT(&cpus), 4); /* untouched */
    ck_assert_uint_ge(lnt_cpu_count(), 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("context");
    TCase *tcase = tcase_create("context");

    forget_environment();
    tcase_add_test(tcase, headers_must_fit);
    tcase_add_test(tcase, malformed_parameters);
    tcase_add_test(tcase, malformed_environment);
    tcase_add_test(tcase, unknown_variable_is_told);
    tcase_add_test(tcase, environment_and_parameters);
    tcase_add_test(tcase, logger_is_forgotten);
    tcase_add_test(tcase, knobs_are_listed);
    tcase_add_test(tcase, lists_of_cores);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
