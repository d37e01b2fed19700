/* The floating-point environment that results depend on: round to nearest even, subnormals kept, nothing trapped. */
#ifndef LNT_BASE_FP_ENV_H
#define LNT_BASE_FP_ENV_H

#ifdef __SSE__
typedef struct lnt_fp_env {
    unsigned mxcsr;
    int rounding;
} lnt_fp_env_t;
#else
#include <fenv.h>
typedef fenv_t lnt_fp_env_t;
#endif

/* Sets the default environment and returns the caller's; leave restores that, exception flags included. They nest,
 * and cost a look at two registers where nothing differs. Not inline: a compiler moves no load or store of the caller's
 * across the change. */
lnt_fp_env_t lnt_fp_enter(void);
void lnt_fp_leave(const lnt_fp_env_t *caller);

/* A declaration: the block from here to its end, however it is left, runs in the default environment. */
#define LNT_FP_SCOPE() const lnt_fp_env_t fp_caller __attribute__((cleanup(lnt_fp_leave), unused)) = lnt_fp_enter()

#endif
