/* The thread's last error, and the one way to report one.
 *
 * Who detects an error calls lnt_error once (it logs at error level and fills the record) and returns its value;
 * everybody above passes the status on. Errors detected on the progress thread are kept in an lnt_error_info_t of the
 * object that failed and handed to the waiting thread with lnt_error_restore.
 */
#ifndef LNT_BASE_ERROR_H
#define LNT_BASE_ERROR_H

#include <linnet/types.h>

/* Record and log; returns status. cure may be NULL. Format: cause. */
lnt_status_t lnt_error(lnt_status_t status, const char *cure, const char *format, ...) LNT_PRINTF(3, 4);

/* Fill a record without touching the thread's own. rank, peer, tensor, step become -1. */
void lnt_error_fill(lnt_error_info_t *info, lnt_status_t status, const char *cure, const char *format, ...)
    LNT_PRINTF(4, 5);

/* Make `info` the calling thread's last error; returns its status. Does not log. */
lnt_status_t lnt_error_restore(const lnt_error_info_t *info);

/* The calling thread's record, to add peer, tensor or step after lnt_error. */
lnt_error_info_t *lnt_error_mutable(void);

#define LNT_TRY(_call)                                                                                                 \
    do {                                                                                                               \
        lnt_status_t lnt_try_ = (_call);                                                                               \
        if (lnt_try_ < 0) return lnt_try_;                                                                             \
    } while (0)

#define LNT_TRY_GOTO(_status, _call, _label)                                                                           \
    do {                                                                                                               \
        (_status) = (_call);                                                                                           \
        if ((_status) < 0) goto _label;                                                                                \
    } while (0)

#define LNT_CHECK_ARG(_condition)                                                                                      \
    do {                                                                                                               \
        if (!(_condition))                                                                                             \
            return lnt_error(LNT_ERR_INVALID_ARG, "see the function's comment in the linnet header",                   \
                             "%s: condition %s does not hold", __func__, #_condition);                                 \
    } while (0)

/* Structs that begin with struct_size. The caller's may be larger (a newer header) if all that this library does not
 * know is zero; LNT_ERR_VERSION else. Version 0.1 is the first, so nothing smaller exists yet. */
lnt_status_t lnt_check_struct(const char *function, const void *params, size_t known);
#define LNT_CHECK_STRUCT(_params) LNT_TRY(lnt_check_struct(__func__, (_params), sizeof(*(_params))))

#endif
