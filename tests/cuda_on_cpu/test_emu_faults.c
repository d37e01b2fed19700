/* Every fault that the layer must catch, run in a child process: how the child ends, and whether what it says names the
 * kernel, the block, the thread and the line of the source that is to blame.
 *
 * What a build can see depends on its sanitizers: one column of the table each. What it cannot see is said aloud.
 */
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>

#include <cuda_runtime.h>

#include "fault_kernels.h"
#include "testing.h"

typedef enum outcome {
    UNSEEN,  /* this build cannot find it */
    ABORTS,  /* the layer stops it with a message */
    CRASHES, /* a segmentation fault, explained by the layer */
    DIES,    /* a segmentation fault of the host */
    WRONG,   /* the result is wrong, in every order */
    ASAN,
    UBSAN,
    TSAN
} outcome_t;

enum { PLAIN_BUILD, ASAN_BUILD, TSAN_BUILD, N_BUILDS };

#if defined(__SANITIZE_THREAD__) || TEST_HAS_FEATURE(thread_sanitizer)
enum { THIS_BUILD = TSAN_BUILD };
#elif defined(__SANITIZE_ADDRESS__) || TEST_HAS_FEATURE(address_sanitizer)
enum { THIS_BUILD = ASAN_BUILD };
#else
enum { THIS_BUILD = PLAIN_BUILD };
#endif

typedef struct fault {
    const char *name;
    int (*run)(void);
    outcome_t outcomes[N_BUILDS];
    const char *marker;   /* a line with this comment must be named; NULL: no line is known */
    const char *texts[3]; /* what the message says besides */
    const char *setting;  /* NAME=value for the child */
} fault_t;

#define ROW(_name, _plain, _asan, _tsan, ...)                                                                          \
    {                                                                                                                  \
#_name, fault_##_name, {_plain, _asan, _tsan }, __VA_ARGS__                                                    \
    }
#define EVERYWHERE(_name, _outcome, ...) ROW(_name, _outcome, _outcome, _outcome, __VA_ARGS__)

/* A missing barrier is a wrong result, and under TSan a named line. */
static const fault_t faults[] = {
    EVERYWHERE(exit_while_waiting, ABORTS, "@exit_while_waiting", {"kernel exit_while_waiting", "block ("}, NULL),
    EVERYWHERE(barrier_after_exit, ABORTS, "@barrier_after_exit", {"kernel barrier_after_exit", "thread ("}, NULL),
    EVERYWHERE(two_barriers, ABORTS, "@two_barriers", {"kernel two_barriers", "different __syncthreads"}, NULL),
    EVERYWHERE(two_barriers_one_line, ABORTS, "@two_barriers_one_line", {"different __syncthreads", "thread ("}, NULL),
    EVERYWHERE(missed_shuffle, ABORTS, "@missed_shuffle", {"deadlock", "wait in __shfl_down_sync", "(7,0,0)"}, NULL),
    EVERYWHERE(missed_ballot, ABORTS, "@missed_ballot", {"kernel missed_ballot", "__ballot_sync"}, NULL),
    EVERYWHERE(returned_lane, ABORTS, "@returned_lane", {"kernel returned_lane", "return", "thread ("}, NULL),
    EVERYWHERE(deadlock, ABORTS, "@deadlock", {"deadlock", "wait in __syncwarp", "wait in __syncthreads"}, NULL),
    EVERYWHERE(other_op, ABORTS, "@other_op", {"__shfl_up_sync", "__shfl_down_sync", "thread ("}, NULL),
    EVERYWHERE(other_mask, ABORTS, "@other_mask", {"kernel other_mask", "overlaps", "thread ("}, NULL),
    EVERYWHERE(other_site, ABORTS, "@other_site", {"kernel other_site", "another call", "thread ("}, NULL),
    EVERYWHERE(not_in_mask, ABORTS, "@not_in_mask", {"kernel not_in_mask", "does not name it", "thread ("}, NULL),
    EVERYWHERE(outside_mask, ABORTS, "@outside_mask", {"kernel outside_mask", "reads lane", "thread ("}, NULL),
    EVERYWHERE(partial_block, ABORTS, "@partial_block", {"does not have", "block (", "thread ("}, NULL),
    EVERYWHERE(bad_width, ABORTS, "@bad_width", {"kernel bad_width", "width 12"}, NULL),
    EVERYWHERE(unwritten_shared, WRONG, NULL, {NULL}, NULL),
    EVERYWHERE(unwritten_dynamic, WRONG, NULL, {NULL}, NULL),
    ROW(missing_barrier, WRONG, WRONG, TSAN, "@missing_barrier", {NULL}, NULL),
    ROW(missing_loop_barrier, WRONG, WRONG, TSAN, "@missing_loop_barrier", {NULL}, NULL),
    ROW(missing_syncwarp, WRONG, WRONG, TSAN, "@missing_syncwarp", {NULL}, NULL),
    ROW(global_race, UNSEEN, UNSEEN, TSAN, "@global_race", {"data race"}, NULL),
    ROW(grid_race, UNSEEN, UNSEEN, TSAN, "@grid_race", {"data race"}, "LNT_EMU_GRIDRACE=1"),
    ROW(static_bounds, UNSEEN, UBSAN, UNSEEN, "@static_bounds", {"out of bounds"}, NULL),
    ROW(dynamic_bounds, UNSEEN, ASAN, UNSEEN, "@dynamic_bounds", {"use-after-poison"}, NULL),
    ROW(global_bounds, CRASHES, ASAN, UNSEEN, NULL, {"kernel write_at", "buffer"}, NULL),
    ROW(global_bounds_near, ABORTS, ASAN, ABORTS, NULL, {"kernel write_at", "behind a device buffer"}, NULL),
    ROW(global_before, ABORTS, ASAN, ABORTS, NULL, {"kernel write_at", "before a device buffer"}, NULL),
    ROW(misaligned, UNSEEN, UBSAN, UNSEEN, "@misaligned", {"misaligned address"}, NULL),
    EVERYWHERE(misaligned_ldg, ABORTS, "@misaligned_ldg", {"kernel misaligned_ldg", "thread (", "misaligned"}, NULL),
    ROW(host_read, DIES, ASAN, DIES, NULL, {NULL}, NULL),
    ROW(host_write, DIES, ASAN, DIES, NULL, {NULL}, NULL),
    EVERYWHERE(copy_kind, WRONG, NULL, {NULL}, NULL),
    EVERYWHERE(copy_length, WRONG, NULL, {NULL}, NULL),
    EVERYWHERE(big_block, ABORTS, "@big_block", {"kernel one", "(33,32,1) threads"}, NULL),
    EVERYWHERE(empty_grid, ABORTS, "@empty_grid", {"kernel one", "(0,1,1) blocks"}, NULL),
    EVERYWHERE(much_shared, ABORTS, "@much_shared", {"kernel one", "65536 bytes"}, NULL),
    ROW(endless, ABORTS, ABORTS, UNSEEN, NULL, {"kernel endless", "thread (3,0,0)", "endless"}, "LNT_EMU_SECONDS=0.3"),
    ROW(deep_stack, CRASHES, UNSEEN, UNSEEN, NULL, {"kernel deep_stack", "stack overflow"}, NULL),
    EVERYWHERE(trap, ABORTS, NULL, {"kernel trap", "thread (9,0,0)"}, NULL),
    EVERYWHERE(nested_launch, ABORTS, "@nested_launch", {"kernel nested_launch", "inside a kernel"}, NULL),
};
enum { N_FAULTS = sizeof(faults) / sizeof(faults[0]) };

static const char *const orders[] = {"forward", "reverse", NULL}; /* NULL: at random */
enum { N_ORDERS = 3, RIGHT = 10, WRONG_RESULT = 11 };

/* What a child said, and how it ended. */
typedef struct ending {
    char said[1 << 16];
    int status;
} ending_t;

static void be_the_child(const fault_t *fault, const char *order, int said)
{
    char name[64];
    const char *value = (fault->setting != NULL) ? strchr(fault->setting, '=') : NULL;

    dup2(said, STDERR_FILENO);
    if (value != NULL) {
        snprintf(name, sizeof(name), "%.*s", (int)(value - fault->setting), fault->setting);
        setenv(name, value + 1, 1);
    }
    lnt_emu_set_order(order);
    _exit((fault->run() == 0) ? RIGHT : WRONG_RESULT);
}

static void run_fault(const fault_t *fault, const char *order, ending_t *ending)
{
    int said[2];
    size_t length = 0;
    ssize_t got;
    pid_t child;

    ck_assert_int_eq(pipe(said), 0);
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) be_the_child(fault, order, said[1]);
    close(said[1]);
    while ((got = read(said[0], ending->said + length, sizeof(ending->said) - 1 - length)) > 0)
        length += (size_t)got;
    ending->said[length] = '\0';
    close(said[0]);
    ck_assert_int_eq(waitpid(child, &ending->status, 0), child);
}

static bool ended_by(const ending_t *ending, int number)
{
    return WIFSIGNALED(ending->status) && WTERMSIG(ending->status) == number;
}

static bool exited_with(const ending_t *ending, int code)
{
    return WIFEXITED(ending->status) && WEXITSTATUS(ending->status) == code;
}

/* Is the end the one of the table? A sanitizer's own exit code is neither of ours. */
static bool ended_as(const ending_t *ending, outcome_t outcome)
{
    bool reported = !exited_with(ending, RIGHT) && !exited_with(ending, WRONG_RESULT);

    switch (outcome) {
    case ABORTS:
        return ended_by(ending, SIGABRT) && strstr(ending->said, "lnt_emu: ") != NULL;
    case CRASHES:
        return ended_by(ending, SIGSEGV) && strstr(ending->said, "lnt_emu: ") != NULL;
    case DIES:
        return ended_by(ending, SIGSEGV) || strstr(ending->said, "SEGV") != NULL;
    case WRONG:
        return exited_with(ending, WRONG_RESULT);
    case ASAN:
        return reported && strstr(ending->said, "AddressSanitizer") != NULL;
    case UBSAN:
        return reported && strstr(ending->said, "runtime error") != NULL;
    case TSAN:
        return strstr(ending->said, "ThreadSanitizer: data race") != NULL;
    default:
        return false;
    }
}

/* The lines of fault_kernels.cu, read once. */
static bool line_has(long number, const char *marker)
{
    static char lines[600][160];
    FILE *file;

    if (lines[0][0] == '\0') {
        file = fopen(LNT_SOURCE_DIR "/tests/cuda_on_cpu/fault_kernels.cu", "r");
        ck_assert_ptr_nonnull(file);
        for (size_t i = 0; i < 600 && fgets(lines[i], sizeof(lines[i]), file) != NULL; i++)
            continue;
        fclose(file);
    }
    return number >= 1 && number <= 600 && strstr(lines[number - 1], marker) != NULL;
}

/* Some fault_kernels.cu:N in the text, and line N carries the marker. */
static bool names_line(const char *said, const char *marker)
{
    static const char file[] = "fault_kernels.cu:";

    for (const char *at = strstr(said, file); at != NULL; at = strstr(at + 1, file))
        if (line_has(strtol(at + strlen(file), NULL, 10), marker)) return true;
    return false;
}

static void check_message(const fault_t *fault, outcome_t outcome, const ending_t *ending)
{
    if (fault->marker != NULL && strstr(ending->said, "fault_kernels.cu:") != NULL)
        ck_assert_msg(names_line(ending->said, fault->marker), "%s names another line:\n%s", fault->name, ending->said);
    else if (fault->marker != NULL && outcome >= ASAN)
        test_say_skipped(fault->name, "the sanitizer's report has no lines here (llvm-symbolizer)");
    else
        ck_assert_msg(fault->marker == NULL || outcome == WRONG, "%s names no line:\n%s", fault->name, ending->said);
    for (size_t i = 0; i < 3 && fault->texts[i] != NULL && outcome != ASAN; i++)
        ck_assert_msg(strstr(ending->said, fault->texts[i]) != NULL, "%s does not say \"%s\":\n%s", fault->name,
                      fault->texts[i], ending->said);
}

static void check_fault(const fault_t *fault, const char *order)
{
    static ending_t ending;
    outcome_t outcome = fault->outcomes[THIS_BUILD];

    run_fault(fault, order, &ending);
    ck_assert_msg(ended_as(&ending, outcome), "%s, order %s: status 0x%x, it said:\n%s", fault->name, order,
                  ending.status, ending.said);
    check_message(fault, outcome, &ending);
}

START_TEST(each_fault_is_caught)
{
    const fault_t *fault = &faults[_i];
    char random_order[32];

    if (fault->outcomes[THIS_BUILD] == UNSEEN) {
        test_say_skipped(fault->name, "another build than this one finds it: plain, ASan + UBSan, or TSan");
        return;
    }
    snprintf(random_order, sizeof(random_order), "random:%" PRIu64, test_random());
    for (size_t i = 0; i < N_ORDERS; i++)
        check_fault(fault, (orders[i] != NULL) ? orders[i] : random_order);
}
END_TEST

static Suite *emu_faults_suite(void)
{
    Suite *suite = suite_create("emu_faults");
    TCase *tcase = tcase_create("faults");

    tcase_add_loop_test(tcase, each_fault_is_caught, 0, N_FAULTS);
    tcase_set_timeout(tcase, 120);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return test_main(emu_faults_suite());
}
