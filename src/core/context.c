/* Contexts: configuration, logger and progress of one rank. */
#include "core.h"

#include <unistd.h>

#include <linnet/version.h>

#include "codec_api.h"
#include "progress.h"
#include "threads.h"

enum { VERSION_PER_MAJOR = 10000 };

static lnt_status_t check_version(uint32_t header_version)
{
    if (header_version / VERSION_PER_MAJOR != LINNET_VERSION_MAJOR) {
        return lnt_error(LNT_ERR_VERSION, "compile with the headers of the library that is loaded",
                         "header version %u.%u, library version %s", header_version / VERSION_PER_MAJOR,
                         header_version % VERSION_PER_MAJOR / 100, LINNET_VERSION_STRING);
    }
    return LNT_OK;
}

static lnt_status_t check_params(const lnt_context_params_t *params)
{
    LNT_CHECK_STRUCT(params);
    LNT_CHECK_ARG(params->log_level >= LNT_LOG_DEFAULT && params->log_level <= LNT_LOG_TRACE);
    LNT_CHECK_ARG(params->progress_thread >= LNT_DEFAULT && params->progress_thread <= LNT_OFF);
    LNT_CHECK_ARG(params->threads <= LNT_POOL_THREADS_MAX);
    return LNT_OK;
}

static lnt_status_t create_logger(lnt_context_t *context, const lnt_context_params_t *params)
{
    LNT_TRY(lnt_config_from_env(lnt_log_config_rows, &context->log_config));
    if (params->log_level != LNT_LOG_DEFAULT) context->log_config.level = (int)params->log_level;
    LNT_TRY(lnt_logger_create(&context->log_config, params->log, params->log_arg, &context->logger));
    (void)lnt_log_set_current(context->logger);
    return LNT_OK;
}

static void warn_unknown(void *arg, const char *name, const char *nearest)
{
    lnt_context_t *context = arg;

    lnt_log(context->logger, LNT_LOG_WARN, LNT_SUB_ENV, "%s is not a variable of this library%s%s", name,
            (nearest != NULL) ? "; did you mean " : "", (nearest != NULL) ? nearest : "");
}

static void check_unknown(lnt_context_t *context)
{
    size_t n_tables;
    const lnt_cfg_table_t *tables = lnt_config_tables(&n_tables);

    lnt_config_unknown(tables, n_tables, warn_unknown, context);
}

static lnt_status_t create_progress(lnt_context_t *context, const lnt_context_params_t *params)
{
    const lnt_core_config_t *config = &context->config;
    const char *cpus = (params->cpus != NULL) ? params->cpus : config->cpus;
    bool thread = config->progress_thread;

    if (params->progress_thread != LNT_DEFAULT) thread = (params->progress_thread == LNT_ON);
    if (params->threads != 0) context->config.threads = params->threads;
    LNT_TRY(lnt_progress_create(context->logger, thread, config->spin_us, cpus, &context->progress));
    return lnt_threads_create(context);
}

static void release(lnt_context_t *context)
{
    lnt_pool_destroy(context->pool);
    lnt_progress_destroy(context->progress);
    lnt_logger_destroy(context->logger);
    lnt_config_release(lnt_log_config_rows, &context->log_config);
    lnt_config_release(lnt_core_config_rows, &context->config);
    lnt_free(context);
}

lnt_status_t lnt_context_create_versioned(const lnt_context_params_t *params, uint32_t header_version,
                                          lnt_context_t **context_p)
{
    const lnt_context_params_t defaults = {.struct_size = sizeof(defaults)};
    lnt_logger_t *previous = lnt_log_current();
    lnt_status_t status;
    lnt_context_t *context;

    if (params == NULL) params = &defaults;
    LNT_CHECK_ARG(context_p != NULL);
    LNT_TRY(check_version(header_version));
    LNT_TRY(check_params(params));

    context = lnt_calloc(1, sizeof(*context), "context");
    if (context == NULL) return LNT_ERR_NO_MEMORY;
    context->pid = (uint32_t)getpid();
    LNT_TRY_GOTO(status, create_logger(context, params), err_release);
    LNT_TRY_GOTO(status, lnt_config_from_env(lnt_core_config_rows, &context->config), err_release);
    check_unknown(context);
    LNT_TRY_GOTO(status, lnt_kernels_configure(), err_release);
    LNT_TRY_GOTO(status, create_progress(context, params), err_release);

    (void)lnt_log_set_current(previous);
    *context_p = context;
    return LNT_OK;

err_release:
    (void)lnt_log_set_current(previous);
    release(context);
    return status;
}

lnt_status_t lnt_context_enter(lnt_context_t *context)
{
    LNT_CHECK_ARG(context != NULL);
    if (context->pid != (uint32_t)getpid()) {
        return lnt_error(LNT_ERR_INVALID_USAGE, "create new objects in the child, or fork before creating any",
                         "this process was forked from the one that created the context");
    }
    (void)lnt_log_set_current(context->logger);
    return LNT_OK;
}

lnt_status_t lnt_context_destroy(lnt_context_t *context)
{
    if (context == NULL) return LNT_OK;
    LNT_TRY(lnt_context_enter(context));
    if (atomic_load(&context->n_objects) != 0) {
        return lnt_error(LNT_ERR_INVALID_USAGE, "destroy its communicators first",
                         "the context still has %u communicators", atomic_load(&context->n_objects));
    }
    release(context);
    return LNT_OK;
}
