/* A kernel that crashes or never ends says which it was. While blocks run, SIGSEGV and SIGBUS are explained before they
 * end the program, and a timer of CPU seconds (LNT_EMU_SECONDS, default 60) finds a block that does not come to its
 * end: threads here never wait for a flag that another one sets, so a loop on one is endless.
 *
 * ASan and TSan explain crashes themselves; TSan also holds back the timer's signal, so there is no timer under it.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "emu_machine.h"
#include "emu_report.h"
#include "emu_sanitizer.h"

enum { DEFAULT_SECONDS = 60, HANDLER_STACK_BYTES = 64 * 1024 };

static const int signals[] = {SIGSEGV, SIGBUS, SIGVTALRM};
enum { N_SIGNALS = 3, CRASHES = 2 };

static struct sigaction before[N_SIGNALS];
static stack_t stack_before;
static char handler_stack[HANDLER_STACK_BYTES] __attribute__((aligned(16)));
static volatile uint64_t block_seen;

/* With the default action restored the fault happens again on return, and ends the program as it should. */
static void explain_crash(int number, siginfo_t *info, void *)
{
    if (lnt_emu_fiber_overflowed(info->si_addr))
        lnt_emu_say(nullptr, "stack overflow: a thread's local variables need too much");
    else
        lnt_emu_say(nullptr, "%s at address %p", number == SIGSEGV ? "segmentation fault" : "bus error", info->si_addr);
    lnt_emu_memory_describe(info->si_addr);
    signal(number, SIG_DFL);
}

static void look_for_progress(int, siginfo_t *, void *)
{
    if (lnt_emu.blocks_run == block_seen && lnt_emu.current != nullptr)
        lnt_emu_fail_waiting(nullptr,
                             "a block does not end within its CPU seconds (LNT_EMU_SECONDS): an endless loop?");
    block_seen = lnt_emu.blocks_run;
}

static bool watches(int signal_index)
{
    return !LNT_EMU_HAS_TSAN && !(LNT_EMU_HAS_ASAN && signal_index < CRASHES);
}

static void set_timer(double seconds)
{
    struct timeval period = {(time_t)seconds, (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6)};
    struct itimerval interval = {period, period};

    if (watches(CRASHES)) setitimer(ITIMER_VIRTUAL, &interval, nullptr);
}

static double seconds_allowed()
{
    const char *text = getenv("LNT_EMU_SECONDS");
    double seconds = text != nullptr ? strtod(text, nullptr) : 0.0;

    return seconds > 0.0 ? seconds : (double)DEFAULT_SECONDS;
}

/* On a stack of their own: the faulty one may be full. */
void lnt_emu_watch_begin()
{
    struct sigaction action = {};
    stack_t stack = {};

    stack.ss_sp = handler_stack;
    stack.ss_size = sizeof(handler_stack);
    if (!LNT_EMU_HAS_ASAN && !LNT_EMU_HAS_TSAN) sigaltstack(&stack, &stack_before);
    action.sa_flags = SA_SIGINFO | (LNT_EMU_HAS_ASAN ? 0 : SA_ONSTACK);
    for (int i = 0; i < N_SIGNALS; i++) {
        action.sa_sigaction = i < CRASHES ? explain_crash : look_for_progress;
        if (watches(i)) sigaction(signals[i], &action, &before[i]);
    }
    block_seen = lnt_emu.blocks_run;
    set_timer(seconds_allowed());
}

void lnt_emu_watch_end()
{
    set_timer(0.0);
    for (int i = 0; i < N_SIGNALS; i++)
        if (watches(i)) sigaction(signals[i], &before[i], nullptr);
    if (!LNT_EMU_HAS_ASAN && !LNT_EMU_HAS_TSAN) sigaltstack(&stack_before, nullptr);
}
