/* The functions handed to transport modules. */
#include "host_ops.h"

#include "../base/clock.h"
#include "../base/error.h"
#include "../base/memory.h"

const lnt_host_ops_t lnt_host_ops = {
    .calloc = lnt_calloc,
    .free = lnt_free,
    .error = lnt_error,
    .log = lnt_log,
    .now_ns = lnt_now_ns,
    .pacer_take = lnt_pacer_take,
};
