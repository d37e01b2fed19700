/* Progress of one context: who moves the data of its communicators, and how that thread sleeps. */
#ifndef LNT_CORE_PROGRESS_H
#define LNT_CORE_PROGRESS_H

#include "core.h"

typedef struct lnt_progress lnt_progress_t;

/* One communicator as the progress loop sees it; embedded in its owner. All functions are called by the thread that
 * makes progress, one at a time. */
typedef struct lnt_progress_item {
    void *arg;
    bool (*progress)(void *arg, bool woken); /* true when something moved; woken: first time after a sleep */
    bool (*arm)(void *arg);                  /* before a sleep; false: something came, do not sleep */
    void (*disarm)(void *arg);
    uint64_t (*max_sleep_ns)(void *arg); /* UINT64_MAX: until somebody rings */
    struct lnt_progress_item *next;
} lnt_progress_item_t;

/* cpus: list for the thread, or NULL. Without a thread the caller makes progress through lnt_progress_wait and _poll.
 */
lnt_status_t lnt_progress_create(lnt_logger_t *logger, bool thread, uint32_t spin_us, const char *cpus,
                                 lnt_progress_t **progress_p);
void lnt_progress_destroy(lnt_progress_t *progress); /* NULL is legal; no items left */

/* While these run no item is in progress. After remove returns, nothing of the item is touched any more. */
void lnt_progress_add(lnt_progress_t *progress, lnt_progress_item_t *item);
void lnt_progress_remove(lnt_progress_t *progress, lnt_progress_item_t *item);

/* Descriptor the loop also sleeps on. */
lnt_status_t lnt_progress_watch_fd(lnt_progress_t *progress, int fd);
void lnt_progress_unwatch_fd(lnt_progress_t *progress, int fd);

/* Any thread: make sure the loop looks again. Cheap when it does not sleep. */
void lnt_progress_wake(lnt_progress_t *progress);
int lnt_progress_doorbell(const lnt_progress_t *progress);

/* In a thread of the library: its name, and the cores it may run on. */
void lnt_progress_place(const lnt_progress_t *progress, const char *name);
bool lnt_progress_has_thread(const lnt_progress_t *progress);
uint32_t lnt_progress_cpu_count(const lnt_progress_t *progress); /* cores its threads may use, at least 1 */

/* More threads than cores on this host: never spin. */
void lnt_progress_crowded(lnt_progress_t *progress);

/* Caller side: until *word == value (somebody wakes it with lnt_wake_word), with or without a thread. */
void lnt_progress_wait(lnt_progress_t *progress, _Atomic uint32_t *word, uint32_t value);
/* Without a thread: one pass, unless another thread is at it. With one: nothing. */
void lnt_progress_poll(lnt_progress_t *progress);

#endif
