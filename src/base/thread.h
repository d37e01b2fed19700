/* Threads of the library. */
#ifndef LNT_BASE_THREAD_H
#define LNT_BASE_THREAD_H

#include <pthread.h>

/* Like pthread_create, but the thread takes no signals: an application's handlers run on the application's threads; and
 * it has the floating-point environment of fp_env.h, whatever the caller's is. Returns 0 or an errno. */
int lnt_thread_start(pthread_t *thread_p, void *(*body)(void *arg), void *arg);

#endif
