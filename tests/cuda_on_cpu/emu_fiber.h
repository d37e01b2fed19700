/* Fibers: stacks and the switch between them, announced to the sanitizers. Knows nothing about CUDA.
 */
#ifndef LNT_EMU_FIBER_H
#define LNT_EMU_FIBER_H

#include <stddef.h>
#include <ucontext.h>

#if defined(__x86_64__) && !defined(LNT_EMU_UCONTEXT)
typedef void *lnt_emu_context_t; /* the saved stack pointer */
#else
typedef ucontext_t lnt_emu_context_t;
#endif

enum { LNT_EMU_FIBERS = 1024 }; /* as many as a block may have threads */

struct lnt_emu_fiber {
    lnt_emu_context_t context;
    char *stack;
    size_t stack_bytes;
    void *asan_stack; /* ASan's fake stack while the fiber rests */
    void *tsan_fiber;
    lnt_emu_fiber *next_idle;
};

/* Makes the calling OS thread's own stack a fiber, at the start of each launch: the thread may be another each time. */
void lnt_emu_fiber_adopt(lnt_emu_fiber *fiber);

/* Fiber number `number`; the first switch to it calls entry, which never returns. */
void lnt_emu_fiber_create(lnt_emu_fiber *fiber, unsigned number, void (*entry)());

/* `from` is the running fiber and not `to`. */
void lnt_emu_fiber_switch(lnt_emu_fiber *from, lnt_emu_fiber *to);

/* The first thing an entry does. */
void lnt_emu_fiber_entered(lnt_emu_fiber *fiber);

/* Does an address lie in the guard page below some fiber's stack? */
bool lnt_emu_fiber_overflowed(const void *address);

#endif
