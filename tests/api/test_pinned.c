/* The binary interface: sizes of the structs users fill in, and the numbers of the status codes.
 *
 * Within one major version a number here may only be added, never changed: a program built with an older header must go
 * on working. Sizes are those of 64-bit machines. A struct that is in a header and not in the table fails the test.
 */
#include <dirent.h>
#include <string.h>

#include <linnet/linnet.h>
#include <linnet/stage.h>

#include "testing.h"

typedef struct size_row {
    const char *name;
    size_t size, pinned;
} size_row_t;

#define ROW(_type, _pinned)                                                                                            \
    {                                                                                                                  \
#_type, sizeof(_type), _pinned                                                                                 \
    }

static const size_row_t sizes[] = {
    ROW(lnt_error_info_t, 808),   ROW(lnt_context_params_t, 48), ROW(lnt_knob_t, 40),
    ROW(lnt_bootstrap_t, 40),     ROW(lnt_comm_params_t, 48),    ROW(lnt_comm_info_t, 80),
    ROW(lnt_comm_stats_t, 40),    ROW(lnt_codec_params_t, 24),   ROW(lnt_coll_params_t, 40),
    ROW(lnt_plan_params_t, 40),   ROW(lnt_tensor_params_t, 64),  ROW(lnt_plan_memory_t, 56),
    ROW(lnt_plan_info_t, 56),     ROW(lnt_plan_stats_t, 64),     ROW(lnt_group_t, 56),
    ROW(lnt_optim_params_t, 40),  ROW(lnt_optim_option_t, 24),   ROW(lnt_optim_info_t, 120),
    ROW(lnt_span_t, 24),          ROW(lnt_stage_t, 48),          ROW(lnt_program_params_t, 120),
    ROW(lnt_step_params_t, 72),   ROW(lnt_error_extent_t, 64),   ROW(lnt_step_hooks_t, 32),
    ROW(lnt_tensor_part_t, 24),   ROW(lnt_health_t, 56),         ROW(lnt_plan_health_t, 136),
    ROW(lnt_plan_settings_t, 32),
};
enum { N_SIZES = sizeof(sizes) / sizeof(sizes[0]) };

START_TEST(struct_sizes)
{
    if (sizeof(void *) != 8) {
        return;
    }
    ck_assert_msg(sizes[_i].size == sizes[_i].pinned, "%s has %zu bytes, pinned are %zu", sizes[_i].name,
                  sizes[_i].size, sizes[_i].pinned);
}
END_TEST

/* A field of that name that is not in front would make the check of every call read something else. */
START_TEST(struct_size_comes_first)
{
    ck_assert_uint_eq(offsetof(lnt_context_params_t, struct_size), 0);
    ck_assert_uint_eq(offsetof(lnt_bootstrap_t, struct_size), 0);
    ck_assert_uint_eq(offsetof(lnt_comm_params_t, struct_size), 0);
    ck_assert_uint_eq(offsetof(lnt_comm_info_t, struct_size), 0);
    ck_assert_uint_eq(offsetof(lnt_comm_stats_t, struct_size), 0);
    ck_assert_uint_eq(offsetof(lnt_codec_params_t, struct_size), 0);
    ck_assert_uint_eq(offsetof(lnt_coll_params_t, struct_size), 0);
    ck_assert_uint_eq(offsetof(lnt_plan_params_t, struct_size), 0);
    ck_assert_uint_eq(offsetof(lnt_tensor_params_t, struct_size), 0);
    ck_assert_uint_eq(offsetof(lnt_plan_memory_t, struct_size), 0);
    ck_assert_uint_eq(offsetof(lnt_plan_info_t, struct_size), 0);
    ck_assert_uint_eq(offsetof(lnt_plan_stats_t, struct_size), 0);
    ck_assert_uint_eq(offsetof(lnt_group_t, struct_size), 0);
    ck_assert_uint_eq(offsetof(lnt_optim_params_t, struct_size), 0);
    ck_assert_uint_eq(offsetof(lnt_optim_info_t, struct_size), 0);
    ck_assert_uint_eq(offsetof(lnt_stage_t, struct_size), 0);
    ck_assert_uint_eq(offsetof(lnt_program_params_t, struct_size), 0);
    ck_assert_uint_eq(offsetof(lnt_step_params_t, struct_size), 0);
    ck_assert_uint_eq(offsetof(lnt_plan_settings_t, struct_size), 0);
}
END_TEST

static bool in_table(const char *name)
{
    for (int i = 0; i < N_SIZES; i++) {
        if (strcmp(sizes[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Looks for "typedef struct lnt_name {"; returns how many there are. */
static int check_header(const char *path)
{
    char line[512], name[128];
    int found = 0;
    FILE *file = fopen(path, "r");

    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "typedef struct %120[a-z0-9_] {", name) == 1 && strchr(line, '{') != NULL) {
            strcat(name, "_t");
            ck_assert_msg(in_table(name), "%s: %s is not pinned", path, name);
            found++;
        }
    }
    (void)fclose(file);
    return found;
}

START_TEST(every_struct_is_pinned)
{
    DIR *folder = opendir(LNT_SOURCE_DIR "/include/linnet");
    struct dirent *entry;
    int found = 0;

    ck_assert_ptr_nonnull(folder);
    while ((entry = readdir(folder)) != NULL) {
        char path[1024];

        if (strstr(entry->d_name, ".h") != NULL) {
            (void)snprintf(path, sizeof(path), "%s/%s", LNT_SOURCE_DIR "/include/linnet", entry->d_name);
            found += check_header(path);
        }
    }
    (void)closedir(folder);
    ck_assert_int_eq(found, N_SIZES);
}
END_TEST

START_TEST(status_numbers)
{
    static const struct {
        lnt_status_t status;
        int number;
    } pinned[] = {
        {LNT_OK, 0},
        {LNT_IN_PROGRESS, 1},
        {LNT_SKIPPED_NONFINITE, 2},
        {LNT_SKIPPED_VETO, 3},
        {LNT_COMPRESSION_DISABLED, 4},
        {LNT_FREEZE_REFUSED, 5},
        {LNT_SKIPPED_LOCAL, 6},
        {LNT_ERR_INVALID_ARG, -1},
        {LNT_ERR_INVALID_USAGE, -2},
        {LNT_ERR_UNSUPPORTED, -3},
        {LNT_ERR_NO_MEMORY, -4},
        {LNT_ERR_OUT_OF_RANGE, -5},
        {LNT_ERR_CONFIG, -6},
        {LNT_ERR_SYSTEM, -7},
        {LNT_ERR_VERSION, -8},
        {LNT_ERR_INTERNAL, -9},
        {LNT_ERR_DEAD_SHARE, -10},
        {LNT_ERR_NONFINITE, -11},
        {LNT_ERR_DIVERGED, -12},
        {LNT_ERR_CORRUPT, -20},
        {LNT_ERR_STATE_MISMATCH, -21},
        {LNT_ERR_PEER_LOST, -40},
        {LNT_ERR_TIMED_OUT, -41},
        {LNT_ERR_MISMATCH, -42},
        {LNT_ERR_ABORTED, -43},
        {LNT_ERR_TRANSPORT, -44},
        {LNT_ERR_AUTH, -45},
        {LNT_ERR_BOOTSTRAP, -46},
        {LNT_ERR_DEVICE, -60},
    };

    for (size_t i = 0; i < sizeof(pinned) / sizeof(pinned[0]); i++) {
        ck_assert_int_eq(pinned[i].status, pinned[i].number);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pinned");
    TCase *tcase = tcase_create("pinned");

    tcase_add_loop_test(tcase, struct_sizes, 0, N_SIZES);
    tcase_add_test(tcase, struct_size_comes_first);
    tcase_add_test(tcase, every_struct_is_pinned);
    tcase_add_test(tcase, status_numbers);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
