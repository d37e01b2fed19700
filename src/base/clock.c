/* Monotonic time and sleeping waits on a word (Linux futex, private to the process).
 *
 * A wait is always bounded: longer timeouts than MAX_WAIT_NS return early, which callers must allow for anyway.
 */
#include "clock.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const uint64_t MAX_WAIT_NS = UINT64_C(3600000000000);

uint64_t lnt_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

void lnt_wait_word(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ns)
{
    uint64_t ns = (timeout_ns < MAX_WAIT_NS) ? timeout_ns : MAX_WAIT_NS;
    struct timespec timeout = {(time_t)(ns / UINT64_C(1000000000)), (long)(ns % UINT64_C(1000000000))};

    if (atomic_load_explicit(word, memory_order_acquire) != expected) {
        return;
    }
    /* Every outcome (woken, word changed, timed out, interrupted) means the same to the caller: look again. */
    (void)syscall(SYS_futex, (void *)word, FUTEX_WAIT_PRIVATE, expected, &timeout, NULL, 0);
}

void lnt_wake_word(_Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, (void *)word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}
