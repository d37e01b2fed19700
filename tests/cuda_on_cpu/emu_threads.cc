/* The threads of a block on fibers. A fiber whose thread has returned takes the next thread that has not started, on
 * the same stack and without a switch: a kernel without barriers costs one stack. Fibers live on for the next block.
 *
 * Under TSan thread n has fiber n and no stack is used twice in a block: TSan would see two threads in one memory.
 */
#include "emu_machine.h"
#include "emu_report.h"
#include "emu_sanitizer.h"

lnt_emu_machine lnt_emu;
uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

static lnt_emu_fiber fibers[LNT_EMU_FIBERS];
static unsigned n_fibers;

static void set_current(lnt_emu_thread *thread)
{
    lnt_emu.current = thread;
    if (thread != nullptr) threadIdx = thread->index;
}

static void switch_to(lnt_emu_fiber *fiber)
{
    lnt_emu_fiber *from = lnt_emu.running;

    if (fiber == from) return;
    lnt_emu.running = fiber;
    lnt_emu_fiber_switch(from, fiber);
}

static void thread_exit(lnt_emu_thread *thread)
{
    lnt_emu_release(&lnt_emu.exit_token);
    thread->state = LNT_EMU_EXITED;
    lnt_emu.n_exited++;
    lnt_emu_warp_of(thread)->exited |= 1u << (thread->number % LNT_EMU_WARP);
    lnt_emu_warp_exit(thread);
    lnt_emu_barrier_exit(thread);
}

static void run_current()
{
    lnt_emu_thread *thread = lnt_emu.current;

    thread->fiber = lnt_emu.running;
    lnt_emu_unpoison(thread->fiber->stack, thread->fiber->stack_bytes);
    lnt_emu_acquire(&lnt_emu.start_token);
    lnt_emu.body(lnt_emu.argument);
    thread_exit(thread);
}

static void fiber_main();

static lnt_emu_fiber *new_fiber()
{
    lnt_emu_fiber *fiber = &fibers[n_fibers];

    lnt_emu_fiber_create(fiber, n_fibers++, fiber_main);
    return fiber;
}

/* By the host, before anybody runs: for TSan a fiber comes after whatever its creator did. */
static void make_fibers_of_all()
{
    while (LNT_EMU_HAS_TSAN && n_fibers < lnt_emu.n_threads)
        new_fiber();
}

static lnt_emu_fiber *fiber_for(const lnt_emu_thread *thread)
{
    lnt_emu_fiber *fiber = lnt_emu.idle;

    if (LNT_EMU_HAS_TSAN) return &fibers[thread->number];
    if (fiber == nullptr) return new_fiber();
    lnt_emu.idle = fiber->next_idle;
    return fiber;
}

static lnt_emu_thread *next_thread()
{
    lnt_emu_thread *thread = lnt_emu_queue_pop();

    if (thread == nullptr && lnt_emu.n_exited < lnt_emu.n_threads) {
        set_current(nullptr);
        lnt_emu_fail_waiting(nullptr, "block (%u,%u,%u): deadlock, every thread waits for others", blockIdx.x,
                             blockIdx.y, blockIdx.z);
    }
    return thread;
}

/* Lends the fiber to whoever comes next. Nobody: back to the host. */
static void fiber_rest(lnt_emu_fiber *self, lnt_emu_thread *next)
{
    if (!LNT_EMU_HAS_TSAN) {
        self->next_idle = lnt_emu.idle;
        lnt_emu.idle = self;
    }
    set_current(next);
    if (next == nullptr)
        switch_to(&lnt_emu.host);
    else
        switch_to(next->fiber != nullptr ? next->fiber : fiber_for(next));
}

static void fiber_main()
{
    lnt_emu_fiber *self = lnt_emu.running;

    lnt_emu_fiber_entered(self);
    for (;;) {
        run_current();
        lnt_emu_thread *next = next_thread();
        if (!LNT_EMU_HAS_TSAN && next != nullptr && next->fiber == nullptr)
            set_current(next);
        else
            fiber_rest(self, next);
    }
}

void lnt_emu_wait()
{
    lnt_emu_thread *next = next_thread();

    set_current(next);
    switch_to(next->fiber != nullptr ? next->fiber : fiber_for(next));
}

void lnt_emu_wake(lnt_emu_thread *thread)
{
    thread->state = LNT_EMU_READY;
    if (thread != lnt_emu.current || lnt_emu_order() != LNT_EMU_FORWARD) lnt_emu_queue_push(thread);
}

void lnt_emu_step_aside()
{
    if (lnt_emu_order() != LNT_EMU_FORWARD) lnt_emu_wait();
}

static void queue_all()
{
    bool reverse = lnt_emu_order() == LNT_EMU_REVERSE;

    lnt_emu_queue_reset();
    for (unsigned i = 0; i < lnt_emu.n_threads; i++)
        lnt_emu_queue_push(&lnt_emu.threads[reverse ? lnt_emu.n_threads - 1 - i : i]);
}

void lnt_emu_threads_run()
{
    lnt_emu_thread *first;

    make_fibers_of_all();
    queue_all();
    first = next_thread();
    set_current(first);
    lnt_emu.running = &lnt_emu.host;
    switch_to(fiber_for(first));
    set_current(nullptr);
}
