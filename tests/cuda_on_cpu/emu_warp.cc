/* Warp operations: who belongs together, whether they agree, and the result of each lane. The last lane of a mask
 * computes the results of all from what each has left in its thread's record.
 */
#include "emu_machine.h"
#include "emu_report.h"
#include "emu_sanitizer.h"

/* The lane that a shuffle reads, as the PTX manual defines it; its own where there is none. */
static unsigned source_lane(const lnt_emu_warp_call *call, unsigned lane)
{
    unsigned width = (unsigned)call->width, first = lane & ~(width - 1), last = first + width - 1;
    unsigned operand = call->lane & 31u;

    switch (call->op) {
    case LNT_EMU_SHFL:
        return first | (operand & (width - 1));
    case LNT_EMU_SHFL_UP:
        return (int)lane - (int)operand >= (int)first ? lane - operand : lane;
    case LNT_EMU_SHFL_DOWN:
        return lane + operand <= last ? lane + operand : lane;
    default: /* XOR: segments before this one may be read, those behind it not */
        return (lane ^ operand) <= last ? lane ^ operand : lane;
    }
}

static void shuffle(const lnt_emu_warp_state *warp, unsigned mask, lnt_emu_thread *thread)
{
    unsigned source = source_lane(&thread->call, thread->number % LNT_EMU_WARP);

    if (!((mask >> source) & 1u)) {
        lnt_emu.current = thread;
        lnt_emu_fail(&thread->site, "%s reads lane %u, which mask 0x%08x does not name or which has returned",
                     lnt_emu_op_name(thread->call.op), source, mask);
    }
    thread->result = warp->lanes[source].call.value;
}

static unsigned lanes_alike(const lnt_emu_warp_state *warp, unsigned mask, uint64_t value)
{
    unsigned alike = 0;

    for (unsigned lane = 0; lane < LNT_EMU_WARP; lane++)
        if (((mask >> lane) & 1u) && warp->lanes[lane].call.value == value) alike |= 1u << lane;
    return alike;
}

static uint64_t combine(lnt_emu_warp_op op, uint64_t a, uint64_t b)
{
    switch (op) {
    case LNT_EMU_REDUCE_ADD:
        return a + b;
    case LNT_EMU_REDUCE_AND:
        return a & b;
    case LNT_EMU_REDUCE_OR:
        return a | b;
    case LNT_EMU_REDUCE_XOR:
        return a ^ b;
    case LNT_EMU_REDUCE_MIN:
        return (int64_t)a < (int64_t)b ? a : b;
    default:
        return (int64_t)a > (int64_t)b ? a : b;
    }
}

static uint64_t reduce(const lnt_emu_warp_state *warp, unsigned mask, lnt_emu_warp_op op)
{
    unsigned first = (unsigned)__builtin_ctz(mask);
    uint64_t sum = warp->lanes[first].call.value;

    for (unsigned lane = first + 1; lane < LNT_EMU_WARP; lane++)
        if ((mask >> lane) & 1u) sum = combine(op, sum, warp->lanes[lane].call.value);
    return sum;
}

/* The result that all lanes share. */
static uint64_t common_result(const lnt_emu_warp_state *warp, unsigned mask, lnt_emu_warp_op op)
{
    switch (op) {
    case LNT_EMU_SYNCWARP:
        return 0;
    case LNT_EMU_BALLOT:
        return lanes_alike(warp, mask, 1);
    case LNT_EMU_ANY:
        return lanes_alike(warp, mask, 1) != 0;
    case LNT_EMU_ALL:
        return lanes_alike(warp, mask, 1) == mask;
    default:
        return reduce(warp, mask, op);
    }
}

static void compute(const lnt_emu_warp_state *warp, unsigned mask, lnt_emu_warp_op op)
{
    bool shuffles = op >= LNT_EMU_SHFL && op <= LNT_EMU_SHFL_XOR;
    uint64_t common = shuffles || op == LNT_EMU_MATCH_ANY ? 0 : common_result(warp, mask, op);

    for (unsigned lane = 0; lane < LNT_EMU_WARP; lane++) {
        lnt_emu_thread *thread = &warp->lanes[lane];
        if (!((mask >> lane) & 1u)) continue;
        if (shuffles)
            shuffle(warp, mask, thread);
        else
            thread->result = op == LNT_EMU_MATCH_ANY ? lanes_alike(warp, mask, thread->call.value) : common;
    }
}

static void check_call(const lnt_emu_warp_state *warp, const lnt_emu_site &site, const lnt_emu_warp_call &call)
{
    const char *name = lnt_emu_op_name(call.op);
    unsigned lane = lnt_emu.current->number % LNT_EMU_WARP, width = (unsigned)call.width;

    if (!((call.mask >> lane) & 1u))
        lnt_emu_fail(&site, "%s: lane %u calls with mask 0x%08x, which does not name it", name, lane, call.mask);
    if (call.mask & ~warp->present)
        lnt_emu_fail(&site, "%s: mask 0x%08x names lanes that this block does not have (it has 0x%08x)", name,
                     call.mask, warp->present);
    if ((call.mask & warp->exited) && lnt_emu_strict())
        lnt_emu_fail_waiting(&site, "%s: mask 0x%08x names lanes that have returned from the kernel (0x%08x)", name,
                             call.mask, call.mask & warp->exited);
    if (call.width < 1 || call.width > LNT_EMU_WARP || (width & (width - 1)) != 0)
        lnt_emu_fail(&site, "%s: width %d is no power of two up to 32", name, call.width);
}

/* Somebody waits already: is it for this call? */
static void check_agreement(const lnt_emu_warp_state *warp, const lnt_emu_group *group, const lnt_emu_site &site,
                            const lnt_emu_warp_call &call)
{
    const char *name = lnt_emu_op_name(call.op);

    if (group->mask != call.mask) {
        if (warp->claimed & call.mask)
            lnt_emu_fail_waiting(&site, "%s: mask 0x%08x overlaps a mask that other lanes of the warp wait with", name,
                                 call.mask);
        return;
    }
    if (group->op != call.op)
        lnt_emu_fail_waiting(&site, "%s: other lanes of the mask are in %s at %s:%d", name, lnt_emu_op_name(group->op),
                             lnt_emu_basename(group->site.file), group->site.line);
    if (!lnt_emu_same_site(group->site, site))
        lnt_emu_fail_waiting(
            &site, "%s: other lanes of the mask are in another call of it, at %s:%d (call %d, this is %d)", name,
            lnt_emu_basename(group->site.file), group->site.line, group->site.number, site.number);
}

static void join(lnt_emu_warp_state *warp, lnt_emu_group *group, const lnt_emu_site &site,
                 const lnt_emu_warp_call &call)
{
    lnt_emu_thread *self = lnt_emu.current;

    if (group->mask == 0) {
        group->mask = call.mask;
        group->arrived = 0;
        group->op = call.op;
        group->site = site;
        warp->claimed |= call.mask;
    }
    group->arrived |= 1u << (self->number % LNT_EMU_WARP);
    self->state = LNT_EMU_AT_WARP_OP;
    self->site = site;
    self->call = call;
}

/* If all lanes of the mask that are left have arrived: computes, and wakes them. */
static bool complete(lnt_emu_warp_state *warp, lnt_emu_group *group)
{
    bool reverse = lnt_emu_order() == LNT_EMU_REVERSE;
    unsigned arrived = group->arrived;

    if ((arrived | warp->exited) != (group->mask | warp->exited)) return false;
    compute(warp, arrived, group->op);
    warp->claimed &= ~group->mask;
    group->mask = 0;
    group->phase++;
    for (unsigned i = 0; i < LNT_EMU_WARP; i++) {
        unsigned lane = reverse ? LNT_EMU_WARP - 1 - i : i;
        if ((arrived >> lane) & 1u) lnt_emu_wake(&warp->lanes[lane]);
    }
    return true;
}

uint64_t lnt_emu_warp(const lnt_emu_site &site, const lnt_emu_warp_call &call)
{
    lnt_emu_thread *self = lnt_emu.current;
    lnt_emu_warp_state *warp;
    lnt_emu_group *group;
    char *token;

    if (self == nullptr) lnt_emu_fail(&site, "%s outside a kernel", lnt_emu_op_name(call.op));
    warp = lnt_emu_warp_of(self);
    check_call(warp, site, call);
    group = &warp->groups[__builtin_ctz(call.mask)];
    check_agreement(warp, group, site, call);
    token = &group->tokens[group->phase & 1];
    if (call.op == LNT_EMU_SYNCWARP) lnt_emu_release(token);
    join(warp, group, site, call);
    if (complete(warp, group))
        lnt_emu_step_aside();
    else
        lnt_emu_wait();
    if (call.op == LNT_EMU_SYNCWARP) lnt_emu_acquire(token);
    return self->result;
}

/* A lane that returns may be the one that others wait for. */
void lnt_emu_warp_exit(lnt_emu_thread *thread)
{
    lnt_emu_warp_state *warp = lnt_emu_warp_of(thread);
    unsigned bit = 1u << (thread->number % LNT_EMU_WARP);

    if (!(warp->claimed & bit)) return;
    for (unsigned lane = 0; lane < LNT_EMU_WARP; lane++) {
        lnt_emu_group *group = &warp->groups[lane];
        if (!(group->mask & bit)) continue;
        if (lnt_emu_strict())
            lnt_emu_fail_waiting(&group->site, "this thread returns while lanes 0x%08x wait for it in %s",
                                 group->arrived, lnt_emu_op_name(group->op));
        complete(warp, group);
    }
}
