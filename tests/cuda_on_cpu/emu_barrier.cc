/* __syncthreads and its votes. All threads of the block must arrive in the same call; in strict mode a thread that has
 * returned, or returns while others wait, is a fault, though newer devices let it pass.
 */
#include <string.h>

#include "emu_machine.h"
#include "emu_report.h"
#include "emu_sanitizer.h"

bool lnt_emu_same_site(const lnt_emu_site &a, const lnt_emu_site &b)
{
    return a.number == b.number && a.line == b.line && (a.file == b.file || strcmp(a.file, b.file) == 0);
}

static void check_arrival(const lnt_emu_site &site)
{
    lnt_emu_barrier_state *barrier = &lnt_emu.barrier;

    if (lnt_emu.n_exited > 0 && lnt_emu_strict())
        lnt_emu_fail_waiting(&site, "__syncthreads after %u threads of the block have returned", lnt_emu.n_exited);
    if (barrier->arrived > 0 && !lnt_emu_same_site(barrier->site, site))
        lnt_emu_fail_waiting(&site,
                             "threads of one block are in different __syncthreads: %u wait at %s:%d (call %d), "
                             "this one is call %d",
                             barrier->arrived, lnt_emu_basename(barrier->site.file), barrier->site.line,
                             barrier->site.number, site.number);
}

/* Wakes everybody, in the order of the policy, the running thread included. */
static void open_barrier()
{
    lnt_emu_barrier_state *barrier = &lnt_emu.barrier;
    bool reverse = lnt_emu_order() == LNT_EMU_REVERSE;

    barrier->counts[barrier->phase & 1] = barrier->count;
    barrier->voters[barrier->phase & 1] = barrier->arrived;
    barrier->phase++;
    barrier->arrived = 0;
    barrier->count = 0;
    for (unsigned i = 0; i < lnt_emu.n_threads; i++) {
        lnt_emu_thread *thread = &lnt_emu.threads[reverse ? lnt_emu.n_threads - 1 - i : i];
        if (thread->state == LNT_EMU_AT_BARRIER) lnt_emu_wake(thread);
    }
}

static bool all_arrived()
{
    return lnt_emu.barrier.arrived == lnt_emu.n_threads - lnt_emu.n_exited;
}

static int vote_result(lnt_emu_vote vote, unsigned phase)
{
    int count = lnt_emu.barrier.counts[phase];

    switch (vote) {
    case LNT_EMU_VOTE_COUNT:
        return count;
    case LNT_EMU_VOTE_OR:
        return count > 0;
    case LNT_EMU_VOTE_AND:
        return (unsigned)count == lnt_emu.barrier.voters[phase];
    default:
        return 0;
    }
}

int lnt_emu_barrier(const lnt_emu_site &site, lnt_emu_vote vote, int predicate)
{
    lnt_emu_barrier_state *barrier = &lnt_emu.barrier;
    unsigned phase = barrier->phase & 1;

    if (lnt_emu.current == nullptr) lnt_emu_fail(&site, "__syncthreads outside a kernel");
    check_arrival(site);
    lnt_emu_release(&barrier->tokens[phase]);
    lnt_emu.current->state = LNT_EMU_AT_BARRIER;
    lnt_emu.current->site = barrier->site = site;
    barrier->arrived++;
    barrier->count += predicate != 0;
    if (all_arrived()) {
        open_barrier();
        lnt_emu_step_aside();
    } else {
        lnt_emu_wait();
    }
    lnt_emu_acquire(&barrier->tokens[phase]);
    return vote_result(vote, phase);
}

void lnt_emu_barrier_exit(lnt_emu_thread *thread)
{
    lnt_emu_barrier_state *barrier = &lnt_emu.barrier;

    (void)thread;
    if (barrier->arrived == 0) return;
    if (lnt_emu_strict())
        lnt_emu_fail_waiting(&barrier->site, "this thread returns while %u threads wait in __syncthreads",
                             barrier->arrived);
    if (all_arrived()) open_barrier();
}
