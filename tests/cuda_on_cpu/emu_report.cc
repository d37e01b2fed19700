/* The one line of a fault, and the list of who waits where. Written to stderr at once, without stdio's buffers: the
 * program is about to end, perhaps inside a signal handler.
 */
#include "emu_report.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "emu_machine.h"

static const char *const warp_names[LNT_EMU_WARP_OPS] = {
    "__syncwarp",        "__shfl_sync",      "__shfl_up_sync",    "__shfl_down_sync",  "__shfl_xor_sync",
    "__ballot_sync",     "__any_sync",       "__all_sync",        "__match_any_sync",  "__reduce_add_sync",
    "__reduce_and_sync", "__reduce_or_sync", "__reduce_xor_sync", "__reduce_min_sync", "__reduce_max_sync"};

const char *lnt_emu_op_name(lnt_emu_warp_op op)
{
    return warp_names[op];
}

const char *lnt_emu_basename(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != nullptr ? slash + 1 : path;
}

static void put(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void put(const char *format, ...)
{
    char text[512];
    va_list args;
    int length;

    va_start(args, format);
    length = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (length >= (int)sizeof(text)) length = (int)sizeof(text) - 1;
    if (length > 0 && write(STDERR_FILENO, text, (size_t)length) < 0) return;
}

/* "kernel k, block (0,0,0), thread (5,0,0), file.cu:12: " as far as known. */
static void put_place(const lnt_emu_site *site)
{
    const lnt_emu_launch *launch = lnt_emu.launch;
    const lnt_emu_thread *thread = lnt_emu.current;

    put("lnt_emu: ");
    if (launch != nullptr) put("kernel %s, ", launch->kernel);
    if (thread != nullptr)
        put("block (%u,%u,%u), thread (%u,%u,%u), ", blockIdx.x, blockIdx.y, blockIdx.z, thread->index.x,
            thread->index.y, thread->index.z);
    if (site == nullptr && launch != nullptr) {
        put("launched at ");
        site = &launch->site;
    }
    if (site != nullptr) put("%s:%d: ", lnt_emu_basename(site->file), site->line);
}

static void put_fault(const lnt_emu_site *site, const char *format, va_list args)
{
    char text[512];

    vsnprintf(text, sizeof(text), format, args);
    put_place(site);
    put("%s\n", text);
}

/* Do two threads wait in the same thing? */
static bool wait_alike(const lnt_emu_thread *a, const lnt_emu_thread *b)
{
    if (a->state != b->state) return false;
    if (a->state == LNT_EMU_READY || a->state == LNT_EMU_EXITED) return true;
    return a->site.number == b->site.number && a->site.line == b->site.line &&
           (a->state == LNT_EMU_AT_BARRIER || a->call.mask == b->call.mask);
}

static void put_waiting(const lnt_emu_thread *first, unsigned n)
{
    put("lnt_emu:   %u thread%s from (%u,%u,%u) on: ", n, n == 1 ? "" : "s", first->index.x, first->index.y,
        first->index.z);
    if (first->state == LNT_EMU_READY)
        put("ready or running\n");
    else if (first->state == LNT_EMU_EXITED)
        put("returned from the kernel\n");
    else if (first->state == LNT_EMU_AT_BARRIER)
        put("wait in __syncthreads at %s:%d\n", lnt_emu_basename(first->site.file), first->site.line);
    else
        put("wait in %s, mask 0x%08x, at %s:%d\n", lnt_emu_op_name(first->call.op), first->call.mask,
            lnt_emu_basename(first->site.file), first->site.line);
}

/* Neighbours that do the same share a line; a long list is cut. */
static void put_all_waiting()
{
    unsigned first = 0, lines = 0;

    while (first < lnt_emu.n_threads && lines < 40) {
        unsigned end = first + 1;
        while (end < lnt_emu.n_threads && wait_alike(&lnt_emu.threads[first], &lnt_emu.threads[end]))
            end++;
        put_waiting(&lnt_emu.threads[first], end - first);
        first = end;
        lines++;
    }
    if (first < lnt_emu.n_threads) put("lnt_emu:   ... and %u more threads\n", lnt_emu.n_threads - first);
}

void lnt_emu_say(const lnt_emu_site *site, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    put_fault(site, format, args);
    va_end(args);
}

void lnt_emu_fail(const lnt_emu_site *site, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    put_fault(site, format, args);
    va_end(args);
    abort();
}

void lnt_emu_fail_waiting(const lnt_emu_site *site, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    put_fault(site, format, args);
    va_end(args);
    put_all_waiting();
    abort();
}
