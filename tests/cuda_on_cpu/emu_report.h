/* How a fault ends the program: one line that names kernel, block, thread and place, then abort.
 */
#ifndef LNT_EMU_REPORT_H
#define LNT_EMU_REPORT_H

#include "lnt_emu_warp.h"

/* site: where the running thread is, NULL if unknown. */
void lnt_emu_fail(const lnt_emu_site *site, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));

/* The same, and then who waits where. */
void lnt_emu_fail_waiting(const lnt_emu_site *site, const char *format, ...)
    __attribute__((noreturn, format(printf, 2, 3)));

/* Prints the line without ending the program; callable from a signal handler. */
void lnt_emu_say(const lnt_emu_site *site, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "__shfl_sync" and the like. */
const char *lnt_emu_op_name(lnt_emu_warp_op op);

/* The last part of a path. */
const char *lnt_emu_basename(const char *path);

#endif
