/* What the sanitizers want to be told. The library itself is compiled without them, so the build says which are on:
 * LNT_EMU_ASAN and LNT_EMU_TSAN. Without them all of this is nothing.
 */
#ifndef LNT_EMU_SANITIZER_H
#define LNT_EMU_SANITIZER_H

#include <stddef.h>

#if defined(LNT_EMU_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
enum { LNT_EMU_HAS_ASAN = 1 };
#else
enum { LNT_EMU_HAS_ASAN = 0 };
#endif

#if defined(LNT_EMU_TSAN)
#include <sanitizer/tsan_interface.h>
enum { LNT_EMU_HAS_TSAN = 1 };
#else
enum { LNT_EMU_HAS_TSAN = 0 };
#endif

/* Nobody may touch these bytes / everybody may again. */
static inline void lnt_emu_poison(const void *p, size_t bytes)
{
#if defined(LNT_EMU_ASAN)
    __asan_poison_memory_region(p, bytes);
#endif
    (void)p;
    (void)bytes;
}

static inline void lnt_emu_unpoison(const void *p, size_t bytes)
{
#if defined(LNT_EMU_ASAN)
    __asan_unpoison_memory_region(p, bytes);
#endif
    (void)p;
    (void)bytes;
}

/* What happened before a release of a token happened before what follows an acquire of it. */
static inline void lnt_emu_release(void *token)
{
#if defined(LNT_EMU_TSAN)
    __tsan_release(token);
#endif
    (void)token;
}

static inline void lnt_emu_acquire(void *token)
{
#if defined(LNT_EMU_TSAN)
    __tsan_acquire(token);
#endif
    (void)token;
}

#endif
