/* A launch: its shape is checked, device memory opened, and its blocks run one after another on the calling thread,
 * each on shared memory full of 0xFF. Other threads that launch wait.
 */
#include <string.h>

#include "emu_machine.h"
#include "emu_report.h"
#include "emu_sanitizer.h"

static __thread bool launching; /* on this OS thread; others may well launch meanwhile, and wait */

static void begin_thread(lnt_emu_thread *thread, unsigned number, const dim3 &block)
{
    thread->state = LNT_EMU_READY;
    thread->number = number;
    thread->fiber = nullptr;
    thread->index = {number % block.x, number / block.x % block.y, number / block.x / block.y};
}

static void begin_warp(lnt_emu_warp_state *warp, unsigned first, unsigned n_threads)
{
    unsigned n = min(n_threads - first, (unsigned)LNT_EMU_WARP);

    warp->lanes = &lnt_emu.threads[first];
    warp->present = n == LNT_EMU_WARP ? 0xffffffffu : (1u << n) - 1;
    warp->exited = warp->claimed = 0;
    memset(warp->groups, 0, sizeof(warp->groups));
}

static void begin_block(const lnt_emu_launch *launch, uint64_t number)
{
    unsigned n_threads = launch->block.x * launch->block.y * launch->block.z;

    blockIdx.x = (unsigned)(number % launch->grid.x);
    blockIdx.y = (unsigned)(number / launch->grid.x % launch->grid.y);
    blockIdx.z = (unsigned)(number / launch->grid.x / launch->grid.y);
    lnt_emu.n_threads = n_threads;
    lnt_emu.n_exited = 0;
    memset(&lnt_emu.barrier, 0, sizeof(lnt_emu.barrier));
    for (unsigned i = 0; i < n_threads; i++)
        begin_thread(&lnt_emu.threads[i], i, launch->block);
    for (unsigned first = 0; first < n_threads; first += LNT_EMU_WARP)
        begin_warp(&lnt_emu.warps[first / LNT_EMU_WARP], first, n_threads);
    lnt_emu_fill(launch->shared_begin, (size_t)(launch->shared_end - launch->shared_begin));
    lnt_emu_fill(lnt_emu.dynamic, launch->dynamic_bytes);
}

/* Every thread of a block comes after the host, and after the blocks before unless races between blocks are looked for.
 */
static void run_blocks(const lnt_emu_launch *launch)
{
    uint64_t n_blocks = (uint64_t)launch->grid.x * launch->grid.y * launch->grid.z;
    bool ordered = !lnt_emu_races_between_blocks();

    lnt_emu_release(&lnt_emu.start_token);
    for (uint64_t n = 0; n < n_blocks; n++) {
        begin_block(launch, lnt_emu_nth_block(n, n_blocks));
        lnt_emu_threads_run();
        lnt_emu.blocks_run++;
        if (ordered) {
            lnt_emu_acquire(&lnt_emu.exit_token);
            lnt_emu_release(&lnt_emu.start_token);
        }
    }
    lnt_emu_acquire(&lnt_emu.exit_token);
}

/* Only the bytes that the launch asked for may be touched. */
static void begin_launch(const lnt_emu_launch *launch, void (*body)(void *), void *argument)
{
    lnt_emu.launch = launch;
    lnt_emu.body = body;
    lnt_emu.argument = argument;
    gridDim.x = launch->grid.x, gridDim.y = launch->grid.y, gridDim.z = launch->grid.z;
    blockDim.x = launch->block.x, blockDim.y = launch->block.y, blockDim.z = launch->block.z;
    lnt_emu.dynamic = lnt_emu_dynamic_open(launch->dynamic_bytes);
    lnt_emu_fiber_adopt(&lnt_emu.host);
    lnt_emu_memory_open();
    lnt_emu_watch_begin();
}

static void end_launch()
{
    lnt_emu_watch_end();
    lnt_emu_memory_check();
    lnt_emu_memory_close();
    lnt_emu_dynamic_close();
    lnt_emu.launch = nullptr;
}

void lnt_emu_run(const lnt_emu_launch &launch, void (*body)(void *argument), void *argument)
{
    if (launching) lnt_emu_fail(&launch.site, "a launch inside a kernel");
    lnt_emu_lock();
    launching = true;
    lnt_emu_check_launch(&launch);
    if (!lnt_emu_take_failure()) {
        begin_launch(&launch, body, argument);
        run_blocks(&launch);
        end_launch();
    }
    launching = false;
    lnt_emu_unlock();
}

void *lnt_emu_dynamic_shared()
{
    return lnt_emu.dynamic;
}
