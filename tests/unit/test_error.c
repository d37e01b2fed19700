/* Status texts and the thread's record: who sees what, and that a record survives being quoted into itself. */
#include <pthread.h>
#include <string.h>

#include "../../src/base/error.h"
#include "testing.h"

static const lnt_status_t all_statuses[] = {
    LNT_OK,
    LNT_IN_PROGRESS,
    LNT_SKIPPED_NONFINITE,
    LNT_SKIPPED_VETO,
    LNT_COMPRESSION_DISABLED,
    LNT_FREEZE_REFUSED,
    LNT_SKIPPED_LOCAL,
    LNT_ERR_INVALID_ARG,
    LNT_ERR_INVALID_USAGE,
    LNT_ERR_UNSUPPORTED,
    LNT_ERR_NO_MEMORY,
    LNT_ERR_OUT_OF_RANGE,
    LNT_ERR_CONFIG,
    LNT_ERR_SYSTEM,
    LNT_ERR_VERSION,
    LNT_ERR_INTERNAL,
    LNT_ERR_DEAD_SHARE,
    LNT_ERR_NONFINITE,
    LNT_ERR_DIVERGED,
    LNT_ERR_CORRUPT,
    LNT_ERR_STATE_MISMATCH,
    LNT_ERR_PEER_LOST,
    LNT_ERR_TIMED_OUT,
    LNT_ERR_MISMATCH,
    LNT_ERR_ABORTED,
    LNT_ERR_TRANSPORT,
    LNT_ERR_AUTH,
    LNT_ERR_BOOTSTRAP,
    LNT_ERR_DEVICE,
};
enum { N_STATUSES = sizeof(all_statuses) / sizeof(all_statuses[0]) };

START_TEST(every_status_has_its_own_text)
{
    const char *unknown = lnt_status_string((lnt_status_t)-12345);

    ck_assert_ptr_nonnull(unknown);
    for (int i = 0; i < N_STATUSES; i++) {
        const char *text = lnt_status_string(all_statuses[i]);

        ck_assert_str_ne(text, unknown);
        ck_assert_ptr_null(strchr(text, '\n'));
        for (int j = 0; j < i; j++) {
            ck_assert_str_ne(text, lnt_status_string(all_statuses[j]));
        }
    }
    for (int number = -100; number < 100; number++) {
        ck_assert_ptr_nonnull(lnt_status_string((lnt_status_t)number));
    }
}
END_TEST

static void *look_at_fresh_record(void *arg)
{
    const lnt_error_info_t *record = lnt_last_error();

    *(bool *)arg = (record->status == LNT_OK) && (record->rank == -1) && (record->peer == -1) &&
                   (record->tensor == -1) && (record->step == -1) && (record->cause[0] == '\0');
    return NULL;
}

START_TEST(record_belongs_to_the_thread)
{
    pthread_t thread;
    bool fresh = false;

    ck_assert_int_eq(lnt_error(LNT_ERR_TIMED_OUT, "wait", "rank %d is late", 7), LNT_ERR_TIMED_OUT);
    lnt_error_mutable()->peer = 7;
    ck_assert_int_eq(pthread_create(&thread, NULL, look_at_fresh_record, &fresh), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert(fresh);
    ck_assert_int_eq(lnt_last_error()->status, LNT_ERR_TIMED_OUT);
    ck_assert_int_eq(lnt_last_error()->peer, 7);
    ck_assert_str_eq(lnt_last_error()->cause, "rank 7 is late");
    ck_assert_str_eq(lnt_last_error()->cure, "wait");
}
END_TEST

START_TEST(next_error_starts_clean)
{
    (void)lnt_error(LNT_ERR_PEER_LOST, "restart", "gone");
    lnt_error_mutable()->tensor = 3;
    lnt_error_mutable()->step = 4;
    (void)lnt_error(LNT_ERR_CONFIG, NULL, "bad");
    ck_assert_int_eq(lnt_last_error()->tensor, -1);
    ck_assert_int_eq(lnt_last_error()->step, -1);
    ck_assert_str_eq(lnt_last_error()->cure, "");
}
END_TEST

START_TEST(record_may_be_quoted_into_itself)
{
    (void)lnt_error(LNT_ERR_SYSTEM, "look at the disk", "write failed");
    (void)lnt_error(LNT_ERR_BOOTSTRAP, lnt_last_error()->cure, "rank 2 said: %s", lnt_last_error()->cause);
    ck_assert_str_eq(lnt_last_error()->cause, "rank 2 said: write failed");
    ck_assert_str_eq(lnt_last_error()->cure, "look at the disk");
}
END_TEST

START_TEST(long_texts_are_cut)
{
    char text[2 * LNT_ERROR_TEXT_MAX];

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    (void)lnt_error(LNT_ERR_INTERNAL, text, "%s", text);
    ck_assert_uint_eq(strlen(lnt_last_error()->cause), LNT_ERROR_TEXT_MAX - 1);
    ck_assert_uint_eq(strlen(lnt_last_error()->cure), LNT_ERROR_TEXT_MAX - 1);
}
END_TEST

START_TEST(fill_and_restore)
{
    lnt_error_info_t info;

    (void)lnt_error(LNT_ERR_CONFIG, NULL, "before");
    lnt_error_fill(&info, LNT_ERR_PEER_LOST, "restart rank 2", "rank %d is gone", 2);
    info.peer = 2;
    ck_assert_str_eq(lnt_last_error()->cause, "before");
    ck_assert_int_eq(lnt_error_restore(&info), LNT_ERR_PEER_LOST);
    ck_assert_int_eq(memcmp(lnt_last_error(), &info, sizeof(info)), 0);
    ck_assert_int_eq(lnt_error_restore(lnt_last_error()), LNT_ERR_PEER_LOST);
}
END_TEST

static lnt_status_t needs_positive(int value)
{
    LNT_CHECK_ARG(value > 0);
    return LNT_IN_PROGRESS;
}

static lnt_status_t try_twice(int first, int second)
{
    LNT_TRY(needs_positive(first));
    LNT_TRY(needs_positive(second));
    return LNT_OK;
}

START_TEST(macros_pass_errors_only)
{
    ck_assert_int_eq(try_twice(1, 1), LNT_OK);
    ck_assert_int_eq(try_twice(1, 0), LNT_ERR_INVALID_ARG);
    ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, "value > 0"));
    ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, "needs_positive"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("error");
    TCase *tcase = tcase_create("error");

    tcase_add_test(tcase, every_status_has_its_own_text);
    tcase_add_test(tcase, record_belongs_to_the_thread);
    tcase_add_test(tcase, next_error_starts_clean);
    tcase_add_test(tcase, record_may_be_quoted_into_itself);
    tcase_add_test(tcase, long_texts_are_cut);
    tcase_add_test(tcase, fill_and_restore);
    tcase_add_test(tcase, macros_pass_errors_only);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
