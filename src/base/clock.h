/* Monotonic time and sleeping waits on a word. */
#ifndef LNT_BASE_CLOCK_H
#define LNT_BASE_CLOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

uint64_t lnt_now_ns(void);

/* Sleep until *word != expected, somebody calls lnt_wake, or timeout_ns passes. Spurious returns are legal. Within one
 * process. */
void lnt_wait_word(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ns);
void lnt_wake_word(_Atomic uint32_t *word);

#endif
