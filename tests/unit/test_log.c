/* Logging: levels, subsystems, file names, repeats, errors through the current logger, nothing on stdout. */
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

#include "../../src/base/error.h"
#include "../../src/base/log.h"
#include "../../src/base/memory.h"
#include "testing.h"

typedef struct sink {
    int lines;
    lnt_log_level_t level;
    char last[2048];
} sink_t;

static void keep_line(void *arg, lnt_log_level_t level, const char *line)
{
    sink_t *sink = arg;

    sink->lines++;
    sink->level = level;
    (void)snprintf(sink->last, sizeof(sink->last), "%s", line);
}

static lnt_logger_t *make_logger(int level, const char *subsys, sink_t *sink)
{
    lnt_log_config_t config = {.level = level, .subsys = (char *)(uintptr_t)subsys};
    lnt_logger_t *logger = NULL;

    ck_assert_int_eq(lnt_logger_create(&config, keep_line, sink, &logger), LNT_OK);
    return logger;
}

START_TEST(levels_filter)
{
    for (int level = LNT_LOG_ERROR; level <= LNT_LOG_TRACE; level++) {
        sink_t sink = {0};
        lnt_logger_t *logger = make_logger(level, NULL, &sink);

        for (int at = LNT_LOG_ERROR; at <= LNT_LOG_TRACE; at++) {
            ck_assert_int_eq(lnt_log_enabled(logger, (lnt_log_level_t)at, LNT_SUB_COLL), at <= level);
            lnt_log(logger, (lnt_log_level_t)at, LNT_SUB_COLL, "level %d", at);
        }
        ck_assert_int_eq(sink.lines, level);
        lnt_logger_destroy(logger);
    }
    ck_assert(!lnt_log_enabled(NULL, LNT_LOG_ERROR, LNT_SUB_INIT));
    lnt_log(NULL, LNT_LOG_ERROR, LNT_SUB_INIT, "goes nowhere");
}
END_TEST

START_TEST(lines_name_rank_host_process_and_subsystem)
{
    sink_t sink = {0};
    lnt_logger_t *logger = make_logger(LNT_LOG_INFO, NULL, &sink);
    char process[32];

    (void)snprintf(process, sizeof(process), " pid %ld ", (long)getpid());
    lnt_log(logger, LNT_LOG_INFO, LNT_SUB_TOPO, "nodes %d\nranks %d", 2, 4);
    ck_assert_ptr_nonnull(strstr(sink.last, "linnet info rank ? host "));
    lnt_logger_set_rank(logger, 3);
    ck_assert_int_eq(lnt_logger_rank(logger), 3);
    lnt_log(logger, LNT_LOG_WARN, LNT_SUB_TOPO, "nodes %d\nranks %d", 2, 4);
    ck_assert_int_eq(sink.level, LNT_LOG_WARN);
    ck_assert_int_eq(strncmp(sink.last, "linnet warn rank 3 host ", 24), 0);
    ck_assert_ptr_nonnull(strstr(sink.last, process));
    ck_assert_ptr_nonnull(strstr(sink.last, " [topo] nodes 2 ranks 4"));
    lnt_logger_destroy(logger);
}
END_TEST

START_TEST(subsystems_filter_what_is_not_a_warning)
{
    sink_t sink = {0};
    lnt_logger_t *logger = make_logger(LNT_LOG_TRACE, "NET,coll", &sink);

    ck_assert(lnt_log_enabled(logger, LNT_LOG_INFO, LNT_SUB_NET));
    ck_assert(lnt_log_enabled(logger, LNT_LOG_TRACE, LNT_SUB_COLL));
    ck_assert(!lnt_log_enabled(logger, LNT_LOG_INFO, LNT_SUB_INIT));
    ck_assert(lnt_log_enabled(logger, LNT_LOG_WARN, LNT_SUB_INIT));
    lnt_logger_destroy(logger);
    logger = make_logger(LNT_LOG_TRACE, "^net", &sink);
    ck_assert(!lnt_log_enabled(logger, LNT_LOG_INFO, LNT_SUB_NET));
    ck_assert(lnt_log_enabled(logger, LNT_LOG_INFO, LNT_SUB_INIT));
    lnt_logger_destroy(logger);
    logger = make_logger(LNT_LOG_TRACE, "ALL", &sink);
    ck_assert(lnt_log_enabled(logger, LNT_LOG_INFO, LNT_SUB_NET));
    lnt_logger_destroy(logger);
}
END_TEST

START_TEST(unknown_subsystem_is_an_error)
{
    lnt_log_config_t config = {.level = LNT_LOG_INFO, .subsys = (char *)(uintptr_t) "net,colll"};
    lnt_logger_t *logger = NULL;
    uint64_t live = lnt_memory_live();

    ck_assert_int_eq(lnt_logger_create(&config, NULL, NULL, &logger), LNT_ERR_CONFIG);
    ck_assert_ptr_null(logger);
    ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, "colll"));
    ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, "nearest is coll"));
    ck_assert_uint_eq(lnt_memory_live(), live);
}
END_TEST

START_TEST(level_words)
{
    static const struct {
        const char *word;
        lnt_log_level_t level;
    } words[] = {{"WARN", LNT_LOG_WARN},   {"Info", LNT_LOG_INFO},    {"TRACE", LNT_LOG_TRACE},
                 {"fatal", LNT_LOG_ERROR}, {"VERSION", LNT_LOG_WARN}, {"debug", LNT_LOG_DEBUG},
                 {"default", LNT_LOG_WARN}};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        lnt_log_config_t config;
        lnt_logger_t *logger = NULL;

        setenv("LINNET_LOG_LEVEL", words[i].word, 1);
        ck_assert_int_eq(lnt_config_from_env(lnt_log_config_rows, &config), LNT_OK);
        ck_assert_int_eq(lnt_logger_create(&config, NULL, NULL, &logger), LNT_OK);
        ck_assert(lnt_log_enabled(logger, words[i].level, LNT_SUB_INIT));
        ck_assert(words[i].level == LNT_LOG_TRACE || !lnt_log_enabled(logger, words[i].level + 1, LNT_SUB_INIT));
        lnt_logger_destroy(logger);
        lnt_config_release(lnt_log_config_rows, &config);
    }
    unsetenv("LINNET_LOG_LEVEL");
}
END_TEST

START_TEST(repeats_are_limited_and_counted)
{
    sink_t sink = {0};
    lnt_logger_t *logger = make_logger(LNT_LOG_DEBUG, NULL, &sink);
    int before;

    for (int i = 0; i < 100; i++) {
        lnt_log(logger, LNT_LOG_WARN, LNT_SUB_NET, "the same again");
    }
    ck_assert_int_lt(sink.lines, 20);
    before = sink.lines;
    lnt_log(logger, LNT_LOG_WARN, LNT_SUB_NET, "something else");
    ck_assert_int_eq(sink.lines, before + 1);
    for (int i = 0; i < 30; i++) {
        lnt_log(logger, LNT_LOG_DEBUG, LNT_SUB_NET, "debug is asked for and complete");
    }
    ck_assert_int_eq(sink.lines, before + 31);
    lnt_logger_destroy(logger);
    ck_assert_int_eq(sink.lines, before + 32);
    ck_assert_ptr_nonnull(strstr(sink.last, "95 repeated lines were not logged"));
}
END_TEST

START_TEST(long_lines_are_cut)
{
    sink_t sink = {0};
    lnt_logger_t *logger = make_logger(LNT_LOG_INFO, NULL, &sink);
    char text[4000];

    memset(text, 'y', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    lnt_log(logger, LNT_LOG_INFO, LNT_SUB_INIT, "%s", text);
    ck_assert_int_eq(sink.lines, 1);
    ck_assert_uint_gt(strlen(sink.last), 1000);
    lnt_logger_destroy(logger);
}
END_TEST

START_TEST(errors_use_the_current_logger)
{
    sink_t sink = {0};
    lnt_logger_t *logger = make_logger(LNT_LOG_WARN, "net", &sink);

    lnt_logger_set_rank(logger, 5);
    ck_assert_ptr_null(lnt_log_set_current(logger));
    ck_assert_ptr_eq(lnt_log_current(), logger);
    (void)lnt_error(LNT_ERR_CORRUPT, "load another file", "section %d is damaged", 2);
    ck_assert_int_eq(sink.lines, 1);
    ck_assert_int_eq(sink.level, LNT_LOG_ERROR);
    ck_assert_ptr_nonnull(strstr(sink.last, "section 2 is damaged"));
    ck_assert_ptr_nonnull(strstr(sink.last, "load another file"));
    ck_assert_ptr_nonnull(strstr(sink.last, lnt_status_string(LNT_ERR_CORRUPT)));
    ck_assert_int_eq(lnt_last_error()->rank, 5);
    lnt_logger_destroy(logger);
    ck_assert_ptr_null(lnt_log_current());
    (void)lnt_error(LNT_ERR_CORRUPT, NULL, "not logged anywhere");
}
END_TEST

static void read_whole(const char *path, char *text, size_t room)
{
    FILE *file = fopen(path, "r");
    size_t n;

    ck_assert_ptr_nonnull(file);
    n = fread(text, 1, room - 1, file);
    text[n] = '\0';
    (void)fclose(file);
}

START_TEST(file_name_has_host_process_and_rank)
{
    char directory[] = "/tmp/lnt-log-XXXXXX", pattern[128], host[64], path[256], text[4096];
    lnt_log_config_t config = {.level = LNT_LOG_INFO, .file = pattern};
    lnt_logger_t *logger = NULL;

    ck_assert_ptr_nonnull(mkdtemp(directory));
    (void)snprintf(pattern, sizeof(pattern), "%s/%%h-%%p-%%r-%%%%.log", directory);
    ck_assert_int_eq(lnt_logger_create(&config, NULL, NULL, &logger), LNT_OK);
    lnt_logger_set_rank(logger, 11);
    lnt_log(logger, LNT_LOG_INFO, LNT_SUB_INIT, "hello");
    lnt_log(logger, LNT_LOG_INFO, LNT_SUB_INIT, "world");
    lnt_logger_destroy(logger);
    ck_assert_int_eq(gethostname(host, sizeof(host)), 0);
    host[strcspn(host, ".")] = '\0';
    (void)snprintf(path, sizeof(path), "%s/%s-%ld-11-%%.log", directory, host, (long)getpid());
    read_whole(path, text, sizeof(text));
    ck_assert_ptr_nonnull(strstr(text, "[init] hello\n"));
    ck_assert_ptr_nonnull(strstr(text, "[init] world\n"));
    (void)unlink(path);
    (void)rmdir(directory);
}
END_TEST

START_TEST(unusable_file_is_an_error)
{
    lnt_log_config_t config = {.level = LNT_LOG_INFO, .file = (char *)(uintptr_t) "/nonexistent-directory/x.log"};
    lnt_logger_t *logger = NULL;
    uint64_t live = lnt_memory_live();

    ck_assert_int_eq(lnt_logger_create(&config, NULL, NULL, &logger), LNT_ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, "LINNET_LOG_FILE"));
    ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, "/nonexistent-directory/x.log"));
    ck_assert_uint_eq(lnt_memory_live(), live);
}
END_TEST

/* stdout and stderr are exchanged for files while a logger without a file speaks. */
START_TEST(stderr_not_stdout)
{
    char out[] = "/tmp/lnt-out-XXXXXX", err[] = "/tmp/lnt-err-XXXXXX", text[4096];
    int out_fd = mkstemp(out), err_fd = mkstemp(err), old_out = dup(1), old_err = dup(2);
    lnt_log_config_t config = {.level = LNT_LOG_TRACE};
    lnt_logger_t *logger = NULL;
    struct stat info;

    (void)fflush(stdout);
    ck_assert((out_fd >= 0) && (err_fd >= 0) && (dup2(out_fd, 1) == 1) && (dup2(err_fd, 2) == 2));
    ck_assert_int_eq(lnt_logger_create(&config, NULL, NULL, &logger), LNT_OK);
    for (int level = LNT_LOG_ERROR; level <= LNT_LOG_TRACE; level++) {
        lnt_log(logger, (lnt_log_level_t)level, LNT_SUB_INIT, "spoken");
    }
    lnt_logger_destroy(logger);
    ck_assert((dup2(old_out, 1) == 1) && (dup2(old_err, 2) == 2));
    ck_assert_int_eq(fstat(out_fd, &info), 0);
    ck_assert_int_eq(info.st_size, 0);
    read_whole(err, text, sizeof(text));
    ck_assert_ptr_nonnull(strstr(text, "[init] spoken\n"));
    (void)close(out_fd);
    (void)close(err_fd);
    (void)unlink(out);
    (void)unlink(err);
}
END_TEST

START_TEST(creation_survives_failed_allocations)
{
    char pattern[] = "/tmp/never-opened-%r";
    lnt_log_config_t config = {.level = LNT_LOG_INFO, .file = pattern};
    uint64_t live = lnt_memory_live();
    lnt_status_t status;
    uint64_t k = 0;

    do {
        lnt_logger_t *logger = NULL;

        lnt_memory_fail_after(++k);
        status = lnt_logger_create(&config, NULL, NULL, &logger);
        lnt_memory_fail_after(0);
        ck_assert((status == LNT_OK) == (logger != NULL));
        lnt_logger_destroy(logger);
        ck_assert_uint_eq(lnt_memory_live(), live);
    } while (status < 0);
    ck_assert_uint_eq(k, 3);
}
END_TEST

enum { THREADS = 4, LINES_EACH = 500 };

static void *speak(void *arg)
{
    for (int i = 0; i < LINES_EACH; i++) {
        lnt_log(arg, LNT_LOG_DEBUG, LNT_SUB_INIT, "line %d", i);
    }
    return NULL;
}

START_TEST(lines_of_threads_come_one_at_a_time)
{
    sink_t sink = {0}; /* not atomic: the logger's promise is what keeps the count right */
    lnt_logger_t *logger = make_logger(LNT_LOG_DEBUG, NULL, &sink);
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++) {
        ck_assert_int_eq(pthread_create(&threads[i], NULL, speak, logger), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    }
    ck_assert_int_eq(sink.lines, THREADS * LINES_EACH);
    lnt_logger_destroy(logger);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("log");
    TCase *tcase = tcase_create("log");

    tcase_add_test(tcase, levels_filter);
    tcase_add_test(tcase, lines_name_rank_host_process_and_subsystem);
    tcase_add_test(tcase, subsystems_filter_what_is_not_a_warning);
    tcase_add_test(tcase, unknown_subsystem_is_an_error);
    tcase_add_test(tcase, level_words);
    tcase_add_test(tcase, repeats_are_limited_and_counted);
    tcase_add_test(tcase, long_lines_are_cut);
    tcase_add_test(tcase, errors_use_the_current_logger);
    tcase_add_test(tcase, file_name_has_host_process_and_rank);
    tcase_add_test(tcase, unusable_file_is_an_error);
    tcase_add_test(tcase, stderr_not_stdout);
    tcase_add_test(tcase, creation_survives_failed_allocations);
    tcase_add_test(tcase, lines_of_threads_come_one_at_a_time);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
