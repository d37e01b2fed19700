/* What a transport module gets from the library. A module is loaded with dlopen and cannot see the library's hidden
 * symbols, so it is handed these functions instead. */
#ifndef LNT_TRANSPORT_HOST_OPS_H
#define LNT_TRANSPORT_HOST_OPS_H

#include "transport.h"

typedef struct lnt_host_ops {
    void *(*calloc)(size_t n, size_t size, const char *name);
    void (*free)(void *memory);
    lnt_status_t (*error)(lnt_status_t status, const char *cure, const char *format, ...) LNT_PRINTF(3, 4);
    void (*log)(lnt_logger_t *logger, lnt_log_level_t level, lnt_subsys_t subsys, const char *format, ...)
        LNT_PRINTF(4, 5);
    uint64_t (*now_ns)(void);
    uint64_t (*pacer_take)(lnt_pacer_t *pacer, uint64_t want);
} lnt_host_ops_t;

extern const lnt_host_ops_t lnt_host_ops; /* the library's own */

/* What a module exports, e.g. lnt_ucx_transport_ops. NULL: it cannot be used. */
typedef const lnt_transport_ops_t *(*lnt_transport_module_fn_t)(const lnt_host_ops_t *host);

#endif
