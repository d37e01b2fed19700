/* How many threads a rank runs tasks with, and their start. */
#ifndef LNT_CORE_THREADS_H
#define LNT_CORE_THREADS_H

#include "core.h"

/* asked: LINNET_THREADS. n_cores: that the library's threads may use; n_local: ranks on this host. */
uint32_t lnt_threads_choose(uint32_t asked, bool progress_thread, uint32_t n_cores, uint32_t n_local);

/* Makes the context's pool, without helpers. */
lnt_status_t lnt_threads_create(lnt_context_t *context);
/* For a communicator with that many ranks on this host: the context's first one decides and starts the helpers, a later
 * one with more ranks uses fewer of them. */
lnt_status_t lnt_threads_start(lnt_context_t *context, uint32_t n_local);

#endif
