/* The state of the block that is being executed: its threads, warps, barrier and ready queue. One block at a time in a
 * process; whoever launches holds the lock.
 */
#ifndef LNT_EMU_MACHINE_H
#define LNT_EMU_MACHINE_H

#include "cuda_runtime.h"

#include "emu_fiber.h"

enum { LNT_EMU_MAX_THREADS = 1024, LNT_EMU_WARP = 32, LNT_EMU_WARPS = LNT_EMU_MAX_THREADS / LNT_EMU_WARP };

enum lnt_emu_state { LNT_EMU_READY, LNT_EMU_AT_BARRIER, LNT_EMU_AT_WARP_OP, LNT_EMU_EXITED };

struct lnt_emu_thread {
    lnt_emu_state state;
    unsigned number; /* linear index in the block */
    uint3 index;
    lnt_emu_fiber *fiber; /* NULL until the thread starts */
    lnt_emu_site site;    /* of what it waits in */
    lnt_emu_warp_call call;
    uint64_t result;
};

/* Lanes that wait for one another under one mask. Masks of pending groups do not overlap, so the lowest lane of the
 * mask numbers the group. Tokens alternate: a quick lane may enter the next round before a slow one has left this one.
 */
struct lnt_emu_group {
    unsigned mask; /* 0: nobody waits */
    unsigned arrived;
    lnt_emu_warp_op op;
    lnt_emu_site site;
    unsigned phase;
    char tokens[2];
};

struct lnt_emu_warp_state {
    lnt_emu_thread *lanes;
    unsigned present; /* lanes that exist: fewer than 32 in the last warp of some blocks */
    unsigned exited;
    unsigned claimed; /* union of the masks of pending groups */
    lnt_emu_group groups[LNT_EMU_WARP];
};

struct lnt_emu_barrier_state {
    unsigned arrived;
    lnt_emu_site site;
    int count;
    int counts[2];      /* of finished rounds, by phase */
    unsigned voters[2]; /* who took part: some may have returned before others look at the result */
    unsigned phase;
    char tokens[2];
};

struct lnt_emu_machine {
    const lnt_emu_launch *launch; /* NULL: no kernel runs */
    void (*body)(void *argument);
    void *argument;
    unsigned n_threads, n_exited;
    lnt_emu_thread *current; /* NULL: the host */
    lnt_emu_thread threads[LNT_EMU_MAX_THREADS];
    lnt_emu_warp_state warps[LNT_EMU_WARPS];
    lnt_emu_barrier_state barrier;
    lnt_emu_fiber host, *running, *idle;
    char start_token, exit_token;
    char *dynamic;
    uint64_t blocks_run;
};

extern lnt_emu_machine lnt_emu;

static inline lnt_emu_warp_state *lnt_emu_warp_of(const lnt_emu_thread *thread)
{
    return &lnt_emu.warps[thread->number / LNT_EMU_WARP];
}

/* emu_order.cc: which thread or block comes next. */
enum lnt_emu_policy { LNT_EMU_FORWARD, LNT_EMU_REVERSE, LNT_EMU_RANDOM };
lnt_emu_policy lnt_emu_order();
bool lnt_emu_strict();
bool lnt_emu_races_between_blocks();
void lnt_emu_queue_reset();
void lnt_emu_queue_push(lnt_emu_thread *thread);
lnt_emu_thread *lnt_emu_queue_pop(); /* NULL: nobody is ready */
uint64_t lnt_emu_nth_block(uint64_t n, uint64_t n_blocks);

/* emu_threads.cc: fibers for threads, and waiting. */
void lnt_emu_threads_run(); /* all threads of the block, from start to exit */
void lnt_emu_wait();        /* the current thread waits until it is woken */
void lnt_emu_wake(lnt_emu_thread *thread);
void lnt_emu_step_aside(); /* the last to arrive woke the others: in some orders they go first */

/* Two records of the same call in the source? */
bool lnt_emu_same_site(const lnt_emu_site &a, const lnt_emu_site &b);

/* emu_barrier.cc and emu_warp.cc: what they must know about a thread that returns from the kernel. */
void lnt_emu_barrier_exit(lnt_emu_thread *thread);
void lnt_emu_warp_exit(lnt_emu_thread *thread);

/* emu_memory.cc: device memory and shared memory around a launch. */
void lnt_emu_lock();
void lnt_emu_unlock();
void lnt_emu_memory_open();
void lnt_emu_memory_close();
void lnt_emu_memory_check();
void lnt_emu_memory_describe(const void *address);
char *lnt_emu_dynamic_open(size_t bytes);
void lnt_emu_dynamic_close();
void lnt_emu_fill(void *p, size_t bytes); /* with 0xFF, unseen by sanitizers */

/* A figure that no test may reach; address space is what it costs. */
#define LNT_EMU_DEVICE_BYTES ((size_t)16 << 30)

/* emu_device.cc: limits that a launch must respect, and errors that launches leave behind. */
void lnt_emu_check_launch(const lnt_emu_launch *launch);
bool lnt_emu_take_failure();                   /* shall this launch fail? */
cudaError_t lnt_emu_result(cudaError_t error); /* notes an error for cudaGetLastError */

/* emu_watch.cc: crashes and endless loops inside kernels get a name. */
void lnt_emu_watch_begin();
void lnt_emu_watch_end();

#endif
