/* The emulated link: a token bucket that all ranks of one played node share.
 *
 * The shared state is one word, the time at which the link will have sent everything granted so far, in 1/64 ns of
 * the monotonic clock (which all processes of a host share). Tokens are the time since then, at most one burst's
 * worth; taking some moves the word forward by compare-and-swap. Small remainders are not given out piecemeal: a
 * grant is what was asked for or at least a quarter of a burst, so that a waiting sender wakes for something useful.
 */
#include <stdatomic.h>

#include "../base/clock.h"
#include "../base/error.h"
#include "../base/memory.h"
#include "transport.h"

static const double ticks_per_ns = 64.0;

typedef struct pacer_shared {
    _Atomic uint64_t sent_until; /* in ticks */
} pacer_shared_t;

_Static_assert(sizeof(pacer_shared_t) <= LNT_PACER_BYTES, "the room that callers provide");

struct lnt_pacer {
    pacer_shared_t *shared;
    double ticks_per_byte;
    uint64_t burst_bytes, burst_ticks;
    uint64_t least_grant;
    bool refused; /* somebody of this rank got less than asked for */
};

lnt_status_t lnt_pacer_create(double gbps, uint64_t burst_bytes, void *shared, lnt_pacer_t **pacer_p)
{
    lnt_pacer_t *pacer;

    LNT_CHECK_ARG((shared != NULL) && (pacer_p != NULL));
    LNT_CHECK_ARG((burst_bytes >= 4) && (burst_bytes <= (UINT64_C(1) << 32)));
    if (!((gbps >= 1e-6) && (gbps <= 1e6))) {
        return lnt_error(LNT_ERR_INVALID_ARG, "LINNET_EMULATE_GBPS (emulate_gbps) is 0 for off, or from 1e-6 to 1e6",
                         "a link of %g Gbit/s cannot be emulated", gbps);
    }

    pacer = lnt_calloc(1, sizeof(*pacer), "pacer");
    if (pacer == NULL) {
        return LNT_ERR_NO_MEMORY;
    }
    pacer->shared = shared;
    pacer->ticks_per_byte = ticks_per_ns * 8.0 / gbps;
    pacer->burst_bytes = burst_bytes;
    pacer->burst_ticks = (uint64_t)((double)burst_bytes * pacer->ticks_per_byte);
    pacer->least_grant = burst_bytes / 4;
    *pacer_p = pacer;
    return LNT_OK;
}

void lnt_pacer_destroy(lnt_pacer_t *pacer)
{
    lnt_free(pacer);
}

/* From when on unused link time counts: an idle link saves up one burst and no more. */
static uint64_t credit_since(const lnt_pacer_t *pacer, uint64_t sent_until, uint64_t now)
{
    uint64_t oldest = (now > pacer->burst_ticks) ? now - pacer->burst_ticks : 0;

    return (sent_until > oldest) ? sent_until : oldest;
}

static uint64_t pacer_now(void)
{
    return lnt_now_ns() * (uint64_t)ticks_per_ns;
}

uint64_t lnt_pacer_take(lnt_pacer_t *pacer, uint64_t want)
{
    uint64_t seen = atomic_load_explicit(&pacer->shared->sent_until, memory_order_relaxed);
    uint64_t least = (want < pacer->least_grant) ? want : pacer->least_grant;
    uint64_t granted, until;

    do {
        uint64_t now = pacer_now();
        uint64_t since = credit_since(pacer, seen, now);
        uint64_t tokens = (now > since) ? (uint64_t)((double)(now - since) / pacer->ticks_per_byte) : 0;

        if (tokens < least) {
            pacer->refused = true;
            return 0;
        }
        granted = (want < tokens) ? want : tokens;
        until = since + (uint64_t)((double)granted * pacer->ticks_per_byte + 0.5);
    } while (!atomic_compare_exchange_weak_explicit(&pacer->shared->sent_until, &seen, until, memory_order_relaxed,
                                                    memory_order_relaxed));
    if (granted < want) {
        pacer->refused = true;
    }
    return granted;
}

uint64_t lnt_pacer_wait_ns(lnt_pacer_t *pacer)
{
    uint64_t now, ready;

    if (!pacer->refused) {
        return UINT64_MAX;
    }
    now = pacer_now();
    ready = credit_since(pacer, atomic_load_explicit(&pacer->shared->sent_until, memory_order_relaxed), now) +
            (uint64_t)((double)pacer->least_grant * pacer->ticks_per_byte);
    if (ready <= now) {
        pacer->refused = false; /* whoever still wants more will ask again, and be refused again */
        return 0;
    }
    return (ready - now) / (uint64_t)ticks_per_ns + 1;
}
