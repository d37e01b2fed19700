/* Logging. A logger belongs to a context; the calling thread's current logger is used by lnt_error.
 *
 * Levels by volume: error and warn per event, info per object, debug per step, trace per message.
 * Lines: `linnet warn rank 3 host a pid 12 [subsys] text`. Nothing ever goes to stdout.
 */
#ifndef LNT_BASE_LOG_H
#define LNT_BASE_LOG_H

#include <linnet/context.h>

#include "config.h"

typedef enum lnt_subsys {
    LNT_SUB_INIT,
    LNT_SUB_TOPO,
    LNT_SUB_COLL,
    LNT_SUB_CODEC,
    LNT_SUB_OPT,
    LNT_SUB_NET,
    LNT_SUB_ENV,
    LNT_SUB_FAULT,
    LNT_SUB_COUNT
} lnt_subsys_t;

typedef struct lnt_logger lnt_logger_t;

typedef struct lnt_log_config { /* parsed from LINNET_LOG_* by lnt_log_config_rows */
    int level;                  /* lnt_log_level_t, or one of the aliases in log.c */
    char *subsys;               /* comma list, NULL: all */
    char *file;                 /* %h host %p pid %r rank; NULL: stderr */
} lnt_log_config_t;

extern const lnt_cfg_row_t lnt_log_config_rows[];

/* fn may be NULL (file or stderr). rank is -1 until known. */
lnt_status_t lnt_logger_create(const lnt_log_config_t *config, lnt_log_fn_t fn, void *arg, lnt_logger_t **logger_p);
void lnt_logger_destroy(lnt_logger_t *logger);
void lnt_logger_set_rank(lnt_logger_t *logger, int64_t rank); /* also opens a file whose name has %r */

bool lnt_log_enabled(const lnt_logger_t *logger, lnt_log_level_t level, lnt_subsys_t subsys);
void lnt_log(lnt_logger_t *logger, lnt_log_level_t level, lnt_subsys_t subsys, const char *format, ...)
    LNT_PRINTF(4, 5);

/* The logger lnt_error uses on this thread; set by public entry points and by the progress thread. NULL: errors are
 * recorded, not logged. Returns the previous one. */
lnt_logger_t *lnt_log_set_current(lnt_logger_t *logger);
lnt_logger_t *lnt_log_current(void);
int64_t lnt_logger_rank(const lnt_logger_t *logger); /* -1: unknown, or no logger */

#endif
