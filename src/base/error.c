/* Status texts and the thread's last error.
 *
 * The record is thread-local and static: reporting an error allocates nothing, so it works when memory is what ran out.
 * New text is made in a copy first, because its arguments may point into the record it replaces.
 */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "log.h"

typedef struct status_row {
    lnt_status_t status;
    const char *text;
} status_row_t;

static const status_row_t status_texts[] = {
    {LNT_OK, "success"},
    {LNT_IN_PROGRESS, "in progress"},
    {LNT_SKIPPED_NONFINITE, "step skipped on all ranks: a value is not finite"},
    {LNT_SKIPPED_VETO, "step skipped on all ranks: a rank vetoed it"},
    {LNT_COMPRESSION_DISABLED, "the exchange ran uncompressed"},
    {LNT_FREEZE_REFUSED, "step committed, freeze refused"},
    {LNT_SKIPPED_LOCAL, "step committed, this rank took no local step"},
    {LNT_ERR_INVALID_ARG, "invalid argument"},
    {LNT_ERR_INVALID_USAGE, "call not legal in this state"},
    {LNT_ERR_UNSUPPORTED, "not supported"},
    {LNT_ERR_NO_MEMORY, "out of memory"},
    {LNT_ERR_OUT_OF_RANGE, "out of range"},
    {LNT_ERR_CONFIG, "malformed option or environment variable"},
    {LNT_ERR_SYSTEM, "the operating system refused a request"},
    {LNT_ERR_VERSION, "versions do not fit together"},
    {LNT_ERR_INTERNAL, "internal error of the library"},
    {LNT_ERR_DEAD_SHARE, "too many dead coordinates: the freeze is refused"},
    {LNT_ERR_NONFINITE, "optimizer state holds a value that is not finite"},
    {LNT_ERR_DIVERGED, "too many skipped steps in a row"},
    {LNT_ERR_CORRUPT, "corrupt data"},
    {LNT_ERR_STATE_MISMATCH, "saved state belongs to another model, codec or world"},
    {LNT_ERR_PEER_LOST, "a peer was lost"},
    {LNT_ERR_TIMED_OUT, "timed out"},
    {LNT_ERR_MISMATCH, "ranks disagree"},
    {LNT_ERR_ABORTED, "the communicator was aborted"},
    {LNT_ERR_TRANSPORT, "the transport failed"},
    {LNT_ERR_AUTH, "authentication failed"},
    {LNT_ERR_BOOTSTRAP, "the bootstrap failed"},
    {LNT_ERR_DEVICE, "the device failed"},
};

static _Thread_local lnt_error_info_t last_error = {.rank = -1, .peer = -1, .tensor = -1, .step = -1};

const char *lnt_status_string(lnt_status_t status)
{
    for (size_t i = 0; i < sizeof(status_texts) / sizeof(status_texts[0]); i++) {
        if (status_texts[i].status == status) {
            return status_texts[i].text;
        }
    }
    return "unknown status";
}

static void fill(lnt_error_info_t *info, lnt_status_t status, const char *cure, const char *format, va_list args)
{
    lnt_error_info_t fresh = {.status = status, .rank = -1, .peer = -1, .tensor = -1, .step = -1};

    (void)vsnprintf(fresh.cause, sizeof(fresh.cause), format, args);
    (void)snprintf(fresh.cure, sizeof(fresh.cure), "%s", (cure != NULL) ? cure : "");
    *info = fresh;
}

lnt_status_t lnt_error(lnt_status_t status, const char *cure, const char *format, ...)
{
    lnt_logger_t *logger = lnt_log_current();
    va_list args;

    va_start(args, format);
    fill(&last_error, status, cure, format, args);
    va_end(args);
    last_error.rank = lnt_logger_rank(logger);
    lnt_log(logger, LNT_LOG_ERROR, LNT_SUB_FAULT, "%s: %s%s%s", lnt_status_string(status), last_error.cause,
            (last_error.cure[0] != '\0') ? "; cure: " : "", last_error.cure);
    return status;
}

void lnt_error_fill(lnt_error_info_t *info, lnt_status_t status, const char *cure, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fill(info, status, cure, format, args);
    va_end(args);
}

lnt_status_t lnt_error_restore(const lnt_error_info_t *info)
{
    if (info != &last_error) {
        last_error = *info;
    }
    return info->status;
}

lnt_error_info_t *lnt_error_mutable(void)
{
    return &last_error;
}

const lnt_error_info_t *lnt_last_error(void)
{
    return &last_error;
}

enum { STRUCT_GROWTH_MAX = 1024 }; /* more than that is a field nobody set */

lnt_status_t lnt_check_struct(const char *function, const void *params, size_t known)
{
    const uint8_t *bytes = params;
    size_t size;

    memcpy(&size, bytes, sizeof(size));
    if (size < known || size - known > STRUCT_GROWTH_MAX) {
        return lnt_error(LNT_ERR_VERSION, "set struct_size = sizeof(the struct) and rebuild with this header",
                         "%s: struct_size is %zu, this library knows %zu", function, size, known);
    }
    for (size_t i = known; i < size; i++) {
        if (bytes[i] == 0) continue;
        return lnt_error(LNT_ERR_VERSION, "leave fields this library does not know zero, or use a newer library",
                         "%s: byte %zu of a struct of %zu is set, this library knows %zu", function, i, size, known);
    }
    return LNT_OK;
}
