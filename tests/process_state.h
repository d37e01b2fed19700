/* What a test must not leave behind in its process: descriptors, threads, shared memory, allocations. */
#ifndef TESTS_PROCESS_STATE_H
#define TESTS_PROCESS_STATE_H

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "../src/base/memory.h"

static inline uint32_t count_entries(const char *folder)
{
    DIR *dir = opendir(folder);
    uint32_t count = 0;

    if (dir == NULL) return UINT32_MAX;
    while (readdir(dir) != NULL)
        count++;
    closedir(dir);
    return count;
}

/* Threads of the library carry its name; sanitizers have threads of their own. */
static inline uint32_t count_threads(void)
{
    DIR *dir = opendir("/proc/self/task");
    struct dirent *entry;
    char path[300], name[32];
    uint32_t count = 0;

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        FILE *comm;

        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
        comm = fopen(path, "r");
        if (comm == NULL) continue;
        count += (fgets(name, sizeof(name), comm) != NULL && strncmp(name, "linnet", 6) == 0);
        fclose(comm);
    }
    if (dir != NULL) closedir(dir);
    return count;
}

/* Shared memory of the library: its memfds carry its name. */
static inline uint32_t count_memfds(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    uint32_t count = 0;

    if (maps == NULL) return UINT32_MAX;
    while (fgets(line, sizeof(line), maps) != NULL)
        count += (strstr(line, "memfd:linnet") != NULL);
    fclose(maps);
    return count;
}

typedef struct process_state {
    uint32_t fds, threads, memfds;
    uint64_t allocations;
} process_state_t;

static inline process_state_t process_state(void)
{
    return (process_state_t){.fds = count_entries("/proc/self/fd"),
                             .threads = count_threads(),
                             .memfds = count_memfds(),
                             .allocations = lnt_memory_live()};
}

static inline bool equal_states(const process_state_t *a, const process_state_t *b)
{
    return a->fds == b->fds && a->threads == b->threads && a->memfds == b->memfds && a->allocations == b->allocations;
}

/* The kernel lists a thread for a moment after it was joined. */
static inline bool same_state(const process_state_t *before)
{
    const struct timespec nap = {.tv_nsec = 2000000};
    process_state_t now = process_state();
    bool same;

    for (int i = 0; i < 500 && !equal_states(&now, before); i++) {
        nanosleep(&nap, NULL);
        now = process_state();
    }
    same = equal_states(&now, before);
    if (!same) {
        fprintf(stderr, "left behind: fds %u -> %u, threads %u -> %u, memfds %u -> %u, allocations %llu -> %llu\n",
                before->fds, now.fds, before->threads, now.threads, before->memfds, now.memfds,
                (unsigned long long)before->allocations, (unsigned long long)now.allocations);
    }
    return same;
}

#endif
