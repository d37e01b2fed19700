/* Fibers on mmap'ed stacks with a guard page below each. On x86-64 the switch is eight instructions written by hand;
 * elsewhere, and with LNT_EMU_UCONTEXT, it is swapcontext.
 */
#include "emu_fiber.h"

#include <sys/mman.h>

#include "emu_report.h"
#include "emu_sanitizer.h"

/* Sanitizers make frames several times larger. */
enum : size_t {
    STACK_BYTES = (LNT_EMU_HAS_ASAN + LNT_EMU_HAS_TSAN > 0) ? 256 * 1024 : 64 * 1024,
    GUARD_BYTES = 64 * 1024,
    SLOT_BYTES = GUARD_BYTES + STACK_BYTES
};

static lnt_emu_fiber *previous; /* the fiber that switched to the running one */
static char *stacks;

#if defined(__x86_64__) && !defined(LNT_EMU_UCONTEXT)
extern "C" void lnt_emu_switch_stacks(void **save, void *load);

/* Saves what the calling convention lets a function keep, changes the stack, restores. The section is pushed and
 * popped: the compiler goes on where it was. */
__asm__(".pushsection .text\n"
        ".globl lnt_emu_switch_stacks\n"
        ".hidden lnt_emu_switch_stacks\n"
        ".type lnt_emu_switch_stacks, @function\n"
        "lnt_emu_switch_stacks:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n"
        ".size lnt_emu_switch_stacks, . - lnt_emu_switch_stacks\n"
        ".popsection\n");

/* Six registers and the entry as return address, then a zero where the entry's own return address would lie: entered
 * with the stack 8 below a multiple of 16, as after a call. */
static void prepare(lnt_emu_fiber *fiber, unsigned number, void (*entry)())
{
    size_t stagger = (number % 32) * 2 * 64; /* otherwise the tops of all stacks would share the same cache sets */
    void **top = (void **)(fiber->stack + fiber->stack_bytes - stagger - 16);

    top[0] = top[1] = nullptr;
    *--top = nullptr;
    *--top = (void *)entry;
    for (int i = 0; i < 6; i++)
        *--top = nullptr;
    fiber->context = top;
}

static void change_stacks(lnt_emu_fiber *from, lnt_emu_fiber *to)
{
    lnt_emu_switch_stacks(&from->context, to->context);
}
#else
static void prepare(lnt_emu_fiber *fiber, unsigned number, void (*entry)())
{
    (void)number;
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = fiber->stack_bytes;
    fiber->context.uc_link = nullptr;
    makecontext(&fiber->context, entry, 0);
}

static void change_stacks(lnt_emu_fiber *from, lnt_emu_fiber *to)
{
    swapcontext(&from->context, &to->context);
}
#endif

/* Address space for the stacks of all fibers there can be; what is not touched costs nothing. */
static void reserve_stacks()
{
    void *all;

    if (stacks != nullptr) return;
    all = mmap(nullptr, LNT_EMU_FIBERS * SLOT_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) lnt_emu_fail(nullptr, "no address space for the stacks of %d threads", LNT_EMU_FIBERS);
    stacks = (char *)all;
}

void lnt_emu_fiber_adopt(lnt_emu_fiber *fiber)
{
    fiber->stack = nullptr; /* ASan tells when we first leave it */
    fiber->stack_bytes = 0;
#if defined(LNT_EMU_TSAN)
    fiber->tsan_fiber = __tsan_get_current_fiber();
#endif
}

void lnt_emu_fiber_create(lnt_emu_fiber *fiber, unsigned number, void (*entry)())
{
    reserve_stacks();
    fiber->stack = stacks + number * SLOT_BYTES + GUARD_BYTES;
    fiber->stack_bytes = STACK_BYTES;
    if (mprotect(fiber->stack, STACK_BYTES, PROT_READ | PROT_WRITE) != 0)
        lnt_emu_fail(nullptr, "no memory for the stack of thread %u", number);
    fiber->asan_stack = nullptr;
#if defined(LNT_EMU_TSAN)
    fiber->tsan_fiber = __tsan_create_fiber(0);
#endif
    prepare(fiber, number, entry);
}

/* On the new stack: ASan learns that it is one, and we learn where the old one lies. */
void lnt_emu_fiber_entered(lnt_emu_fiber *fiber)
{
#if defined(LNT_EMU_ASAN)
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(fiber->asan_stack, &bottom, &bytes);
    previous->stack = (char *)const_cast<void *>(bottom);
    previous->stack_bytes = bytes;
#endif
    (void)fiber;
}

void lnt_emu_fiber_switch(lnt_emu_fiber *from, lnt_emu_fiber *to)
{
    previous = from;
#if defined(LNT_EMU_ASAN)
    __sanitizer_start_switch_fiber(&from->asan_stack, to->stack, to->stack_bytes);
#endif
#if defined(LNT_EMU_TSAN)
    __tsan_switch_to_fiber(to->tsan_fiber, __tsan_switch_to_fiber_no_sync);
#endif
    change_stacks(from, to);
    lnt_emu_fiber_entered(from);
}

bool lnt_emu_fiber_overflowed(const void *address)
{
    size_t offset = (size_t)((const char *)address - stacks);

    return stacks != nullptr && offset < LNT_EMU_FIBERS * SLOT_BYTES && offset % SLOT_BYTES < GUARD_BYTES;
}
