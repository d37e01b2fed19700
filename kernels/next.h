/* What the loops that form a piece in cache will read for the next one. They note it here, per thread, and an encode
 * that stores around the caches asks for it while it codes.
 *
 * Such stores come in a burst, once per chunk, and memory does nothing else for as long unless reads are on their way:
 * sign1 from gradient, momentum and error went from 0.42 to 0.52 of a += b by this. Only hints: they may lie behind the
 * end of everything, and no byte depends on them.
 */
#ifndef LNT_KERNELS_NEXT_H
#define LNT_KERNELS_NEXT_H

#include <stdint.h>

enum { LNT_NEXT_VALUES, LNT_NEXT_MOMENTUM, LNT_NEXTS };

/* Where the next piece begins in each array, which is f32; 0: nothing is known. */
typedef struct lnt_next {
    uintptr_t at[LNT_NEXTS];
} lnt_next_t;

extern _Thread_local lnt_next_t lnt_next;

/* `end`: behind what was read. */
static inline void lnt_next_note(int which, const float *end)
{
    lnt_next.at[which] = (uintptr_t)end;
}

/* Of one piece, so they are forgotten. */
static inline lnt_next_t lnt_next_take(void)
{
    lnt_next_t next = lnt_next;
    lnt_next = (lnt_next_t){{0}};
    return next;
}

#endif
