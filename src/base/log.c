/* Logging: one finished line per event, to a callback, a file or stderr; never to stdout.
 *
 * A logger is used by several threads (the caller's and the progress thread), so a lock orders its lines and guards
 * the memory of repeats. A line is written by one write(2): lines of several processes in one file stay whole.
 * The logger never reports errors about itself through itself.
 */
#include "log.h"

#include <ctype.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "clock.h"
#include "error.h"
#include "hash.h"
#include "memory.h"

enum { LINE_MAX_BYTES = 1280, PATH_MAX_BYTES = 1024, HOST_MAX_BYTES = 64, REPEAT_SLOTS = 16, REPEAT_LIMIT = 5 };

static const uint64_t REPEAT_WINDOW_NS = UINT64_C(10000000000);

/* Words of LOG_LEVEL: the levels in order, then aliases known from other libraries. */
static const char *const level_words[] = {"default", "error", "warn",    "info",  "debug",
                                          "trace",   "fatal", "version", "abort", NULL};

static const lnt_log_level_t level_of_word[] = {LNT_LOG_WARN,  LNT_LOG_ERROR, LNT_LOG_WARN, LNT_LOG_INFO, LNT_LOG_DEBUG,
                                                LNT_LOG_TRACE, LNT_LOG_ERROR, LNT_LOG_WARN, LNT_LOG_ERROR};

static const char *const subsys_names[LNT_SUB_COUNT] = {"init", "topo", "coll", "codec", "opt", "net", "env", "fault"};

const lnt_cfg_row_t lnt_log_config_rows[] = {
    {"LOG_LEVEL", "warn", "how much is logged: error, warn, info, debug, trace", offsetof(lnt_log_config_t, level),
     LNT_CFG_ENUM, level_words, 0, 0},
    {"LOG_SUBSYS", "",
     "subsystems whose info, debug and trace lines are logged: comma list of init, topo, coll, codec, opt, net, env, "
     "fault; a leading ^ excludes the list; empty: all",
     offsetof(lnt_log_config_t, subsys), LNT_CFG_STRING, NULL, 0, 0},
    {"LOG_FILE", "", "file the log is appended to, %h = host, %p = process, %r = rank; empty: stderr",
     offsetof(lnt_log_config_t, file), LNT_CFG_STRING, NULL, 0, 0},
    {NULL, NULL, NULL, 0, LNT_CFG_STRING, NULL, 0, 0},
};

/* One recently seen line. Its window starts with its first appearance. */
typedef struct repeat_slot {
    uint64_t hash;
    uint64_t start_ns;
    uint32_t seen;
} repeat_slot_t;

struct lnt_logger {
    pthread_mutex_t lock; /* guards repeats and dropped, and orders lines */
    lnt_log_level_t level;
    uint32_t subsys_mask;
    _Atomic int64_t rank;
    _Atomic int fd; /* where lines go; STDERR_FILENO or a file of our own */
    lnt_log_fn_t fn;
    void *arg;
    char *file_pattern;
    char host[HOST_MAX_BYTES];
    uint64_t dropped;
    repeat_slot_t repeats[REPEAT_SLOTS];
};

/* A logger may be destroyed while other threads remember it as their current one. They cannot be told, so they compare:
 * whatever was set before the last destruction counts as forgotten until it is set again. */
static _Atomic uint64_t loggers_destroyed;
static _Thread_local lnt_logger_t *current_logger;
static _Thread_local uint64_t current_since; /* loggers_destroyed when it was set */

static lnt_status_t find_subsys(const char *word, size_t length, uint32_t *mask)
{
    char name[32];
    const char *near;

    (void)snprintf(name, sizeof(name), "%.*s", (int)length, word);
    if (strcasecmp(name, "all") == 0) {
        *mask |= (1u << LNT_SUB_COUNT) - 1u;
        return LNT_OK;
    }
    for (int i = 0; i < LNT_SUB_COUNT; i++) {
        if (strcasecmp(name, subsys_names[i]) == 0) {
            *mask |= 1u << i;
            return LNT_OK;
        }
    }
    near = lnt_nearest_name(name, subsys_names, LNT_SUB_COUNT);
    return lnt_error(LNT_ERR_CONFIG, "use a comma list of init, topo, coll, codec, opt, net, env, fault",
                     "LINNET_LOG_SUBSYS names the unknown subsystem \"%s\"%s%s", name,
                     (near != NULL) ? ", nearest is " : "", (near != NULL) ? near : "");
}

static lnt_status_t parse_subsys(const char *list, uint32_t *mask_p)
{
    const uint32_t all = (1u << LNT_SUB_COUNT) - 1u;
    uint32_t mask = 0;
    bool exclude = (list != NULL) && (list[0] == '^');

    if (list == NULL) {
        *mask_p = all;
        return LNT_OK;
    }
    for (const char *word = list + (exclude ? 1 : 0);;) {
        size_t length = strcspn(word, ",");

        LNT_TRY(find_subsys(word, length, &mask));
        if (word[length] == '\0') {
            break;
        }
        word += length + 1;
    }
    *mask_p = exclude ? (all & ~mask) : mask;
    return LNT_OK;
}

static size_t expand_one(const lnt_logger_t *logger, char key, char *out, size_t room)
{
    int n;

    if (key == 'h') {
        n = snprintf(out, room, "%s", logger->host);
    } else if (key == 'p') {
        n = snprintf(out, room, "%ld", (long)getpid());
    } else if (key == 'r') {
        n = snprintf(out, room, "%lld", (long long)atomic_load(&logger->rank));
    } else {
        n = snprintf(out, room, "%c", key);
    }
    return (size_t)n;
}

/* False when the result does not fit. "%%" stands for a percent sign. */
static bool expand_path(const lnt_logger_t *logger, char *path, size_t room)
{
    size_t used = 0;

    for (const char *c = logger->file_pattern; *c != '\0'; c++) {
        bool special = (c[0] == '%') && (c[1] != '\0');

        if (special) {
            c++;
            used += expand_one(logger, *c, path + used, room - used);
        } else {
            path[used++] = *c;
        }
        if (used + 1 >= room) {
            return false;
        }
    }
    path[used] = '\0';
    return true;
}

static bool needs_rank(const char *pattern)
{
    for (const char *c = pattern; *c != '\0'; c++) {
        if (*c == '%') {
            c++;
            if (*c == 'r') {
                return true;
            }
            if (*c == '\0') {
                break;
            }
        }
    }
    return false;
}

static lnt_status_t open_file(lnt_logger_t *logger)
{
    char path[PATH_MAX_BYTES];
    int fd;

    if (!expand_path(logger, path, sizeof(path))) {
        return lnt_error(LNT_ERR_CONFIG, "use a shorter path", "LINNET_LOG_FILE is longer than %d bytes",
                         PATH_MAX_BYTES);
    }
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0) {
        return lnt_error(LNT_ERR_CONFIG, "name a file that can be written, or unset LINNET_LOG_FILE",
                         "LINNET_LOG_FILE: cannot open %s: %m", path);
    }
    atomic_store(&logger->fd, fd);
    return LNT_OK;
}

static void find_host(char *host, size_t room)
{
    if (gethostname(host, room) != 0) {
        (void)snprintf(host, room, "unknown");
    }
    host[room - 1] = '\0';
    host[strcspn(host, ".")] = '\0';
}

lnt_status_t lnt_logger_create(const lnt_log_config_t *config, lnt_log_fn_t fn, void *arg, lnt_logger_t **logger_p)
{
    lnt_status_t status;
    lnt_logger_t *logger = lnt_calloc(1, sizeof(*logger), "logger");

    if (logger == NULL) {
        return LNT_ERR_NO_MEMORY;
    }
    (void)pthread_mutex_init(&logger->lock, NULL);
    logger->level = level_of_word[config->level];
    logger->fn = fn;
    logger->arg = arg;
    atomic_store(&logger->rank, -1);
    atomic_store(&logger->fd, STDERR_FILENO);
    find_host(logger->host, sizeof(logger->host));
    LNT_TRY_GOTO(status, parse_subsys(config->subsys, &logger->subsys_mask), err_destroy);
    if ((config->file != NULL) && (fn == NULL)) {
        logger->file_pattern = lnt_strdup(config->file, "log file name");
        if (logger->file_pattern == NULL) {
            status = LNT_ERR_NO_MEMORY;
            goto err_destroy;
        }
        if (!needs_rank(config->file)) {
            LNT_TRY_GOTO(status, open_file(logger), err_destroy);
        }
    }
    *logger_p = logger;
    return LNT_OK;

err_destroy:
    lnt_logger_destroy(logger);
    return status;
}

/* Logs how many repeats were held back since the last such report. Lock not held. */
static void report_dropped(lnt_logger_t *logger)
{
    uint64_t dropped;

    (void)pthread_mutex_lock(&logger->lock);
    dropped = logger->dropped;
    logger->dropped = 0;
    (void)pthread_mutex_unlock(&logger->lock);
    if (dropped > 0) {
        lnt_log(logger, LNT_LOG_WARN, LNT_SUB_FAULT, "%llu repeated lines were not logged",
                (unsigned long long)dropped);
    }
}

static void forget_logger(const lnt_logger_t *logger)
{
    lnt_logger_t *mine = lnt_log_current();

    (void)atomic_fetch_add(&loggers_destroyed, 1);
    (void)lnt_log_set_current((mine != logger) ? mine : NULL);
}

void lnt_logger_destroy(lnt_logger_t *logger)
{
    if (logger == NULL) {
        return;
    }
    report_dropped(logger);
    forget_logger(logger);
    if (atomic_load(&logger->fd) != STDERR_FILENO) {
        (void)close(atomic_load(&logger->fd));
    }
    (void)pthread_mutex_destroy(&logger->lock);
    lnt_free(logger->file_pattern);
    lnt_free(logger);
}

void lnt_logger_set_rank(lnt_logger_t *logger, int64_t rank)
{
    atomic_store(&logger->rank, rank);
    if ((logger->file_pattern != NULL) && (atomic_load(&logger->fd) == STDERR_FILENO)) {
        (void)open_file(logger); /* reported; lines go on to stderr */
    }
}

int64_t lnt_logger_rank(const lnt_logger_t *logger)
{
    return (logger != NULL) ? atomic_load(&logger->rank) : -1;
}

bool lnt_log_enabled(const lnt_logger_t *logger, lnt_log_level_t level, lnt_subsys_t subsys)
{
    if ((logger == NULL) || (level > logger->level)) {
        return false;
    }
    return (level <= LNT_LOG_WARN) || ((logger->subsys_mask >> subsys) & 1u) != 0;
}

/* Lets a text through REPEAT_LIMIT times per window. Lock held. A text that takes another's slot forgets the other:
 * then more is logged, never less. */
static bool admit(lnt_logger_t *logger, uint64_t hash)
{
    repeat_slot_t *slot = &logger->repeats[hash % REPEAT_SLOTS];
    uint64_t now = lnt_now_ns();

    if ((slot->hash != hash) || (now - slot->start_ns > REPEAT_WINDOW_NS)) {
        *slot = (repeat_slot_t){.hash = hash, .start_ns = now};
    }
    slot->seen++;
    if (slot->seen > REPEAT_LIMIT) {
        logger->dropped++;
        return false;
    }
    return true;
}

/* Writes `linnet warn rank 3 host a pid 12 [subsys] ` and returns its length. */
static size_t write_prefix(const lnt_logger_t *logger, lnt_log_level_t level, lnt_subsys_t subsys, char *line,
                           size_t room)
{
    int n;
    int64_t rank = atomic_load(&logger->rank);

    if (rank >= 0) {
        n = snprintf(line, room, "linnet %s rank %lld host %s pid %ld [%s] ", level_words[level], (long long)rank,
                     logger->host, (long)getpid(), subsys_names[subsys]);
    } else {
        n = snprintf(line, room, "linnet %s rank ? host %s pid %ld [%s] ", level_words[level], logger->host,
                     (long)getpid(), subsys_names[subsys]);
    }
    return (size_t)n;
}

static void emit(lnt_logger_t *logger, lnt_log_level_t level, char *line, size_t length)
{
    if (logger->fn != NULL) {
        logger->fn(logger->arg, level, line);
        return;
    }
    line[length] = '\n';
    /* A log that cannot be written must not stop training, and there is nowhere to say so. */
    if (write(atomic_load(&logger->fd), line, length + 1) < 0) {
        return;
    }
}

void lnt_log(lnt_logger_t *logger, lnt_log_level_t level, lnt_subsys_t subsys, const char *format, ...)
{
    char line[LINE_MAX_BYTES];
    size_t prefix, length;
    va_list args;

    if (!lnt_log_enabled(logger, level, subsys)) {
        return;
    }
    prefix = write_prefix(logger, level, subsys, line, sizeof(line));
    va_start(args, format);
    (void)vsnprintf(line + prefix, sizeof(line) - 1 - prefix, format, args); /* one byte stays free for the newline */
    va_end(args);
    length = strlen(line);
    for (size_t i = prefix; i < length; i++) {
        line[i] = iscntrl((unsigned char)line[i]) ? ' ' : line[i];
    }
    (void)pthread_mutex_lock(&logger->lock);
    if ((level > LNT_LOG_INFO) || admit(logger, lnt_hash64((uint64_t)level, line + prefix, length - prefix))) {
        emit(logger, level, line, length);
    }
    (void)pthread_mutex_unlock(&logger->lock);
}

lnt_logger_t *lnt_log_set_current(lnt_logger_t *logger)
{
    lnt_logger_t *previous = lnt_log_current();

    current_logger = logger;
    current_since = atomic_load(&loggers_destroyed);
    return previous;
}

lnt_logger_t *lnt_log_current(void)
{
    return (current_since == atomic_load(&loggers_destroyed)) ? current_logger : NULL;
}
