/* What is kept of the health of one bucket in one program. */
#ifndef LNT_CORE_PLAN_HEALTH_H
#define LNT_CORE_PLAN_HEALTH_H

#include "../coll/exchange.h"

typedef struct lnt_plan_watch {
    lnt_exchange_health_t health; /* as measured last */
    uint64_t step;                /* after which commit, 0: never */
    double ratio;                 /* error over input */
    uint32_t growing, expanding;  /* measurements running */
    uint32_t causes;              /* lnt_health_cause_t of this bucket so far */
} lnt_plan_watch_t;

#endif
