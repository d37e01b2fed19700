/* Status codes and the error record. Shared by every layer, kernels included.
 *
 * 0 is success, a positive value is a benign state, a negative one an error. Errors are grouped by what is
 * lost: -1... this call, -20... this buffer, -40... the communicator (rebuild it), -60... the device.
 * Numbers are never reused.
 */
#ifndef LINNET_STATUS_H
#define LINNET_STATUS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define LNT_API __attribute__((visibility("default")))
#define LNT_PRINTF(_fmt, _args) __attribute__((format(printf, _fmt, _args)))
#else
#define LNT_API
#define LNT_PRINTF(_fmt, _args)
#endif

typedef enum lnt_status {
    LNT_OK = 0,

    LNT_IN_PROGRESS = 1,          /* not finished: test again or wait */
    LNT_SKIPPED_NONFINITE = 2,    /* a non-finite value on some rank: nothing was changed on any rank */
    LNT_SKIPPED_VETO = 3,         /* some caller vetoed the step: nothing was changed on any rank */
    LNT_COMPRESSION_DISABLED = 4, /* the exchange ran uncompressed, by policy or because there is one node */
    LNT_FREEZE_REFUSED = 5,       /* the step is committed, the freeze was refused: lnt_last_error has the reason */
    LNT_SKIPPED_LOCAL = 6,        /* the step is committed, but this rank's own share of it, a local step, was left out:
                                     its gradient was not finite */

    LNT_ERR_INVALID_ARG = -1,
    LNT_ERR_INVALID_USAGE = -2, /* legal arguments, wrong moment: see the state table of the object */
    LNT_ERR_UNSUPPORTED = -3,
    LNT_ERR_NO_MEMORY = -4,
    LNT_ERR_OUT_OF_RANGE = -5,
    LNT_ERR_CONFIG = -6, /* a malformed option or LINNET_* variable; the text names it */
    LNT_ERR_SYSTEM = -7, /* the operating system refused something */
    LNT_ERR_VERSION = -8,
    LNT_ERR_INTERNAL = -9,
    LNT_ERR_DEAD_SHARE = -10, /* too many dead coordinates: the freeze is refused */
    LNT_ERR_NONFINITE = -11,  /* optimizer state holds non-finite values */
    LNT_ERR_DIVERGED = -12,   /* too many skipped steps in a row */

    LNT_ERR_CORRUPT = -20,        /* bytes that cannot be what they claim to be */
    LNT_ERR_STATE_MISMATCH = -21, /* a sound blob of another model, codec or world */

    LNT_ERR_PEER_LOST = -40,
    LNT_ERR_TIMED_OUT = -41,
    LNT_ERR_MISMATCH = -42, /* ranks disagree about order, size, codec, layout or step */
    LNT_ERR_ABORTED = -43,
    LNT_ERR_TRANSPORT = -44,
    LNT_ERR_AUTH = -45,
    LNT_ERR_BOOTSTRAP = -46,

    LNT_ERR_DEVICE = -60
} lnt_status_t;

/* One static, lower-case line for a status; never NULL, also for unknown numbers. Any thread. */
LNT_API const char *lnt_status_string(lnt_status_t status);

enum { LNT_ERROR_TEXT_MAX = 384 };

/* Who, what, where and the cure. -1 stands for "does not apply". */
typedef struct lnt_error_info {
    lnt_status_t status;
    int64_t rank;   /* rank that reports */
    int64_t peer;   /* rank that is to blame */
    int64_t tensor; /* tensor number in its plan */
    int64_t step;   /* transaction number */
    char cause[LNT_ERROR_TEXT_MAX];
    char cure[LNT_ERROR_TEXT_MAX];
} lnt_error_info_t;

/* The last error of the calling thread. Never NULL; status LNT_OK when there was none. The record belongs to the
 * library and is overwritten by the next failing call of the same thread. Errors that happened on the progress
 * thread are copied to the thread that waits for the request. */
LNT_API const lnt_error_info_t *lnt_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
