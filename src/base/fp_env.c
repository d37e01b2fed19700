/* Entering and leaving the default floating-point environment.
 *
 * An application may flush subnormals (an option of its framework, or start files of -ffast-math) or have changed the
 * rounding; threads inherit both. On x86 the vector unit has a control register of its own, which fesetround sets
 * along with that of the x87 (libc rounds by the latter when it reads a number). Elsewhere one fenv_t has all.
 */
#include "fp_env.h"

#include <fenv.h>

#ifdef __SSE__
#include <immintrin.h>

enum { DEFAULT_MXCSR = 0x1f80, FLAGS = 0x3f }; /* all exceptions masked, nearest even, no FTZ, no DAZ */

lnt_fp_env_t lnt_fp_enter(void)
{
    const lnt_fp_env_t caller = {.mxcsr = _mm_getcsr(), .rounding = fegetround()};

    if (caller.rounding != FE_TONEAREST) (void)fesetround(FE_TONEAREST);
    if ((caller.mxcsr & ~(unsigned)FLAGS) != DEFAULT_MXCSR) _mm_setcsr(DEFAULT_MXCSR);
    return caller;
}

void lnt_fp_leave(const lnt_fp_env_t *caller)
{
    if (caller->rounding != FE_TONEAREST) (void)fesetround(caller->rounding);
    if (_mm_getcsr() != caller->mxcsr) _mm_setcsr(caller->mxcsr);
}

#else

lnt_fp_env_t lnt_fp_enter(void)
{
    lnt_fp_env_t caller;

    (void)fegetenv(&caller);
    (void)fesetenv(FE_DFL_ENV);
    return caller;
}

void lnt_fp_leave(const lnt_fp_env_t *caller)
{
    (void)fesetenv(caller);
}

#endif
