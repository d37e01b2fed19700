/* Starting threads that leave an application's signals alone and compute in the default environment: a thread inherits
 * both from who starts it. Names and cores are the business of who starts them. */
#include "thread.h"

#include <signal.h>

#include "fp_env.h"

int lnt_thread_start(pthread_t *thread_p, void *(*body)(void *arg), void *arg)
{
    LNT_FP_SCOPE();
    sigset_t all, before;
    int error;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(thread_p, NULL, body, arg);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}
