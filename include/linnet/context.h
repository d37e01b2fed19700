/* Context: one per rank. Holds configuration, logging and the progress thread.
 *
 * A process may hold several contexts (ranks as threads, the `loop` transport). Nothing in the library is global
 * except the atomics of the memory accounting; it installs no signal handlers, never exits and never prints to stdout.
 * fork: a child must not use objects of its parent (calls return LNT_ERR_INVALID_USAGE); destroy nothing there.
 * atexit: nothing is registered; destroy what you created, in any order.
 */
#ifndef LINNET_CONTEXT_H
#define LINNET_CONTEXT_H

#include <linnet/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum lnt_log_level {
    LNT_LOG_DEFAULT = 0, /* from LINNET_LOG_LEVEL, else warn */
    LNT_LOG_ERROR,
    LNT_LOG_WARN,
    LNT_LOG_INFO,
    LNT_LOG_DEBUG,
    LNT_LOG_TRACE
} lnt_log_level_t;

/* Receives finished lines without newline. May be called from any thread of the library, one call at a time per
 * context; must not call back into the library. */
typedef void (*lnt_log_fn_t)(void *arg, lnt_log_level_t level, const char *line);

typedef enum lnt_switch { LNT_DEFAULT = 0, LNT_ON = 1, LNT_OFF = 2 } lnt_switch_t;

typedef struct lnt_context_params {
    size_t struct_size; /* sizeof(lnt_context_params_t) */
    lnt_log_level_t log_level;
    lnt_log_fn_t log; /* NULL: stderr or LINNET_LOG_FILE */
    void *log_arg;
    lnt_switch_t progress_thread; /* default on. Off: work happens inside test, wait and step calls only */
    uint32_t threads; /* that encode and add up, the progress thread included; 0: LINNET_THREADS. Helpers asked for
                       * without a progress thread may finish what a call began after it has returned */
    const char *cpus; /* cores of the progress thread and its helpers, e.g. "2,4-5"; NULL: not pinned */
} lnt_context_params_t;

/* Creates a context. params may be NULL. Reads LINNET_* variables (docs/config.md): a malformed value is
 * LNT_ERR_CONFIG naming the variable, an unknown LINNET_* name warns with the nearest one. */
LNT_API lnt_status_t lnt_context_create_versioned(const lnt_context_params_t *params, uint32_t header_version,
                                                  lnt_context_t **context_p);
/* Communicators, plans and optimizers must be destroyed first: otherwise LNT_ERR_INVALID_USAGE and nothing is done.
 * NULL is legal. */
LNT_API lnt_status_t lnt_context_destroy(lnt_context_t *context);

/* Run-time version of the library, as major * 10000 + minor * 100 + patch. */
LNT_API uint32_t lnt_version(void);
LNT_API const char *lnt_version_string(void);
/* One line: version, compiler, build type, optional parts. Static. */
LNT_API const char *lnt_build_info(void);

/* Every LINNET_* knob: name, default, current value, help. Index from 0; LNT_ERR_OUT_OF_RANGE ends the list. */
typedef struct lnt_knob {
    const char *name; /* with the LINNET_ prefix */
    const char *default_text;
    const char *value; /* what the environment says, or NULL */
    const char *help;
    const char *module;
} lnt_knob_t;
LNT_API lnt_status_t lnt_knob_get(size_t index, lnt_knob_t *knob_p);

#ifdef __cplusplus
}
#endif

#include <linnet/version.h>

static inline lnt_status_t lnt_context_create(const lnt_context_params_t *params, lnt_context_t **context_p)
{
    return lnt_context_create_versioned(params, LINNET_VERSION, context_p);
}
#endif
