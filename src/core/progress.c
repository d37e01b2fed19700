/* The progress loop of a context: one epoll set, one thread (or the callers, when there is none).
 *
 * `lock` is held by whoever makes progress, while it works and while it sleeps. Others who need it (add, remove) count
 * themselves in `visitors` and ring; the loop hands the lock over at its next turn. Callers on the step path never
 * take it when there is a thread: they post to an inbox and ring.
 *
 * No wake-up is lost: the sleeper exchanges `sleeping` to 1, looks at everything once more, and sleeps on the doorbell;
 * who posts exchanges it to 0 after posting. Exchanges of one word are ordered: either the poster's comes first, and
 * what it posted is seen by the last look, or it reads the 1 and rings.
 */
#include "progress.h"

#include <errno.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "../base/fp_env.h"
#include "../base/thread.h"
#include "cpu_list.h"

enum { MAX_EVENTS = 16, FOLLOWER_SLICE_NS = 2000000, WAIT_SLICE_NS = 200000000 };

struct lnt_progress {
    lnt_logger_t *logger;
    int epoll_fd, doorbell;
    uint64_t spin_ns;
    bool has_thread;
    pthread_t thread;
    cpu_set_t cpus;
    bool pinned;
    pthread_mutex_t lock;
    pthread_cond_t turn; /* a visitor left */
    _Atomic uint32_t visitors, sleeping, stop;
    bool woken; /* progress side: first pass after a sleep */
    lnt_progress_item_t *items;
};

/* ---- one turn ---- */

static bool pass(lnt_progress_t *progress)
{
    bool moved = false;

    for (lnt_progress_item_t *item = progress->items; item != NULL; item = item->next) {
        moved |= item->progress(item->arg, progress->woken);
    }
    progress->woken = false;
    return moved;
}

static bool spin(lnt_progress_t *progress)
{
    uint64_t end_ns;

    if (progress->spin_ns == 0) return false;
    end_ns = lnt_now_ns() + progress->spin_ns;
    do {
        if (pass(progress)) return true;
    } while (lnt_now_ns() < end_ns);
    return false;
}

static bool arm_all(lnt_progress_t *progress)
{
    bool quiet = true;

    for (lnt_progress_item_t *item = progress->items; item != NULL; item = item->next) {
        quiet &= item->arm(item->arg);
    }
    return quiet;
}

static void disarm_all(lnt_progress_t *progress)
{
    for (lnt_progress_item_t *item = progress->items; item != NULL; item = item->next) {
        item->disarm(item->arg);
    }
}

static uint64_t max_sleep_ns(const lnt_progress_t *progress)
{
    uint64_t sleep_ns = UINT64_MAX;

    for (lnt_progress_item_t *item = progress->items; item != NULL; item = item->next) {
        uint64_t wanted = item->max_sleep_ns(item->arg);

        if (wanted < sleep_ns) sleep_ns = wanted;
    }
    return sleep_ns;
}

static void wait_events(const lnt_progress_t *progress, uint64_t sleep_ns)
{
    const uint64_t ns_per_s = 1000000000;
    struct timespec timeout = {.tv_sec = (time_t)(sleep_ns / ns_per_s), .tv_nsec = (long)(sleep_ns % ns_per_s)};
    struct epoll_event events[MAX_EVENTS];
    int n = epoll_pwait2(progress->epoll_fd, events, MAX_EVENTS, (sleep_ns == UINT64_MAX) ? NULL : &timeout, NULL);

    if (n < 0 && errno != EINTR) { /* kernels before 5.11, and sandboxes that do not know the call: milliseconds */
        const uint64_t ms = (sleep_ns / 1000000) + 1;

        n = epoll_wait(progress->epoll_fd, events, MAX_EVENTS,
                       (sleep_ns == UINT64_MAX) ? -1 : (int)((ms > 1000) ? 1000 : ms));
    }
    for (int i = 0; i < n; i++) {
        if (events[i].data.fd == progress->doorbell) {
            eventfd_t count;

            (void)eventfd_read(progress->doorbell, &count); /* empty already: somebody else's ring, no harm */
        }
    }
}

static void sleep_until_rung(lnt_progress_t *progress)
{
    uint64_t sleep_ns;
    bool quiet;

    (void)atomic_exchange(&progress->sleeping, 1);
    quiet = arm_all(progress);
    quiet = !pass(progress) && quiet;
    sleep_ns = quiet ? max_sleep_ns(progress) : 0;
    if (quiet && sleep_ns > 0 && atomic_load(&progress->stop) == 0 && atomic_load(&progress->visitors) == 0) {
        wait_events(progress, sleep_ns);
        progress->woken = true;
    }
    atomic_store(&progress->sleeping, 0);
    disarm_all(progress);
}

/* Lock held. */
static void take_turn(lnt_progress_t *progress)
{
    if (!pass(progress) && !spin(progress)) sleep_until_rung(progress);
}

void lnt_progress_place(const lnt_progress_t *progress, const char *name)
{
    (void)pthread_setname_np(pthread_self(), name);
    if (progress->pinned && pthread_setaffinity_np(pthread_self(), sizeof(progress->cpus), &progress->cpus) != 0) {
        lnt_log(progress->logger, LNT_LOG_WARN, LNT_SUB_INIT, "thread %s cannot be moved to the cores asked for", name);
    }
}

bool lnt_progress_has_thread(const lnt_progress_t *progress)
{
    return progress->has_thread;
}

uint32_t lnt_progress_cpu_count(const lnt_progress_t *progress)
{
    const uint32_t allowed = lnt_cpu_count();
    const uint32_t listed = progress->pinned ? (uint32_t)CPU_COUNT(&progress->cpus) : allowed;

    return (listed < allowed) ? listed : allowed;
}

static void *thread_main(void *arg)
{
    lnt_progress_t *progress = arg;

    lnt_progress_place(progress, "linnet");
    (void)pthread_mutex_lock(&progress->lock);
    while (atomic_load(&progress->stop) == 0) {
        (void)lnt_log_set_current(progress->logger); /* any logger's end makes all threads forget theirs */
        while (atomic_load(&progress->visitors) > 0)
            (void)pthread_cond_wait(&progress->turn, &progress->lock);
        take_turn(progress);
    }
    (void)pthread_mutex_unlock(&progress->lock);
    return NULL;
}

/* ---- other threads ---- */

void lnt_progress_wake(lnt_progress_t *progress)
{
    if (atomic_exchange(&progress->sleeping, 0) != 0) (void)eventfd_write(progress->doorbell, 1);
}

static void visit(lnt_progress_t *progress)
{
    atomic_fetch_add(&progress->visitors, 1);
    lnt_progress_wake(progress);
    (void)pthread_mutex_lock(&progress->lock);
}

static void leave(lnt_progress_t *progress)
{
    atomic_fetch_sub(&progress->visitors, 1);
    (void)pthread_cond_broadcast(&progress->turn);
    (void)pthread_mutex_unlock(&progress->lock);
}

void lnt_progress_add(lnt_progress_t *progress, lnt_progress_item_t *item)
{
    visit(progress);
    item->next = progress->items;
    progress->items = item;
    leave(progress);
}

void lnt_progress_remove(lnt_progress_t *progress, lnt_progress_item_t *item)
{
    visit(progress);
    for (lnt_progress_item_t **link = &progress->items; *link != NULL; link = &(*link)->next) {
        if (*link == item) {
            *link = item->next;
            break;
        }
    }
    leave(progress);
}

lnt_status_t lnt_progress_watch_fd(lnt_progress_t *progress, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

    if (epoll_ctl(progress->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        return lnt_error(LNT_ERR_SYSTEM, NULL, "cannot watch a descriptor: %m");
    }
    return LNT_OK;
}

void lnt_progress_unwatch_fd(lnt_progress_t *progress, int fd)
{
    (void)epoll_ctl(progress->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

int lnt_progress_doorbell(const lnt_progress_t *progress)
{
    return progress->doorbell;
}

void lnt_progress_crowded(lnt_progress_t *progress)
{
    visit(progress);
    progress->spin_ns = 0;
    leave(progress);
}

void lnt_progress_poll(lnt_progress_t *progress)
{
    LNT_FP_SCOPE();
    if (progress->has_thread || pthread_mutex_trylock(&progress->lock) != 0) return;
    (void)pass(progress);
    (void)pthread_mutex_unlock(&progress->lock);
}

/* Without a thread one of the waiting callers makes progress for all; the others, and visitors, get their chance when
 * it has what it wants or sees a visitor. */
static void drive(lnt_progress_t *progress, _Atomic uint32_t *word, uint32_t value)
{
    uint32_t seen;

    if (pthread_mutex_trylock(&progress->lock) == 0) {
        while (atomic_load(word) != value && atomic_load(&progress->visitors) == 0)
            take_turn(progress);
        (void)pthread_mutex_unlock(&progress->lock);
    }
    seen = atomic_load(word);
    if (seen != value) lnt_wait_word(word, seen, FOLLOWER_SLICE_NS);
}

void lnt_progress_wait(lnt_progress_t *progress, _Atomic uint32_t *word, uint32_t value)
{
    LNT_FP_SCOPE();
    uint32_t seen;

    while ((seen = atomic_load(word)) != value) {
        if (progress->has_thread) {
            lnt_wait_word(word, seen, WAIT_SLICE_NS);
        } else {
            drive(progress, word, value);
        }
    }
}

/* ---- life ---- */

static lnt_status_t open_descriptors(lnt_progress_t *progress)
{
    progress->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    progress->doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (progress->epoll_fd < 0 || progress->doorbell < 0) {
        return lnt_error(LNT_ERR_SYSTEM, "raise the limit of open files (ulimit -n)",
                         "cannot create epoll or eventfd: %m");
    }
    return lnt_progress_watch_fd(progress, progress->doorbell);
}

static lnt_status_t start_thread(lnt_progress_t *progress)
{
    int error = lnt_thread_start(&progress->thread, thread_main, progress);

    if (error != 0) {
        errno = error;
        return lnt_error(LNT_ERR_SYSTEM, "raise the limit of threads, or set LINNET_PROGRESS_THREAD=off",
                         "cannot start the progress thread: %m");
    }
    progress->has_thread = true;
    return LNT_OK;
}

lnt_status_t lnt_progress_create(lnt_logger_t *logger, bool thread, uint32_t spin_us, const char *cpus,
                                 lnt_progress_t **progress_p)
{
    lnt_status_t status;
    lnt_progress_t *progress = lnt_calloc(1, sizeof(*progress), "progress");

    if (progress == NULL) return LNT_ERR_NO_MEMORY;
    progress->logger = logger;
    progress->spin_ns = (uint64_t)spin_us * 1000;
    progress->epoll_fd = progress->doorbell = -1;
    (void)pthread_mutex_init(&progress->lock, NULL);
    (void)pthread_cond_init(&progress->turn, NULL);
    if (cpus != NULL) LNT_TRY_GOTO(status, lnt_cpu_list_parse(cpus, &progress->cpus), err_destroy);
    progress->pinned = (cpus != NULL);
    LNT_TRY_GOTO(status, open_descriptors(progress), err_destroy);
    if (thread) LNT_TRY_GOTO(status, start_thread(progress), err_destroy);
    *progress_p = progress;
    return LNT_OK;

err_destroy:
    lnt_progress_destroy(progress);
    return status;
}

void lnt_progress_destroy(lnt_progress_t *progress)
{
    if (progress == NULL) return;
    if (progress->has_thread) {
        atomic_store(&progress->stop, 1);
        lnt_progress_wake(progress);
        (void)pthread_join(progress->thread, NULL);
    }
    if (progress->doorbell >= 0) (void)close(progress->doorbell);
    if (progress->epoll_fd >= 0) (void)close(progress->epoll_fd);
    (void)pthread_cond_destroy(&progress->turn);
    (void)pthread_mutex_destroy(&progress->lock);
    lnt_free(progress);
}
