/* CPU model and caches from /proc and /sys, and the core-to-core ping-pong of two pinned threads.
 *
 * Waits in the ping-pong are bounded by a deadline: on one core, or under load, the answer is "unknown" rather than a
 * hang.
 */
#include "common_machine.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../src/base/clock.h"

enum { ROUNDS = 5, TURNS = 4000, ROUND_LIMIT_NS = 20000000 };

typedef struct table_tennis {
    _Alignas(64) _Atomic uint32_t ball;
    _Alignas(64) int cores[2];
    uint64_t deadline_ns;
    _Atomic bool given_up;
} table_tennis_t;

static void pin(int core)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(core, &set);
    (void)pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

/* Plays the turns of one parity. */
static void play(table_tennis_t *game, uint32_t parity)
{
    for (uint32_t turn = parity; turn < TURNS; turn += 2) {
        uint32_t looks = 0;

        while (atomic_load_explicit(&game->ball, memory_order_acquire) != turn) {
            if ((++looks % 4096 == 0 && lnt_now_ns() > game->deadline_ns) ||
                atomic_load_explicit(&game->given_up, memory_order_relaxed)) {
                atomic_store(&game->given_up, true);
                return;
            }
        }
        atomic_store_explicit(&game->ball, turn + 1, memory_order_release);
    }
}

static void *second_player(void *arg)
{
    table_tennis_t *game = arg;

    pin(game->cores[1]);
    play(game, 1);
    return NULL;
}

/* One way in ns, 0 if it was given up. */
static double play_round(table_tennis_t *game)
{
    pthread_t other;
    uint64_t start_ns;

    atomic_store(&game->ball, TURNS); /* nobody's turn */
    atomic_store(&game->given_up, false);
    game->deadline_ns = lnt_now_ns() + ROUND_LIMIT_NS;
    if (pthread_create(&other, NULL, second_player, game) != 0) return 0;
    start_ns = lnt_now_ns();
    atomic_store(&game->ball, 0);
    play(game, 0);
    (void)pthread_join(other, NULL);
    return atomic_load(&game->given_up) ? 0 : (double)(lnt_now_ns() - start_ns) / TURNS;
}

static bool two_cores(const cpu_set_t *set, int cores[2])
{
    int n = 0;

    for (int core = 0; core < CPU_SETSIZE && n < 2; core++) {
        if (CPU_ISSET(core, set)) cores[n++] = core;
    }
    return n == 2;
}

double machine_core_to_core_ns(void)
{
    table_tennis_t game = {.ball = 0};
    cpu_set_t mine;
    double best = 0;

    if (sched_getaffinity(0, sizeof(mine), &mine) != 0 || !two_cores(&mine, game.cores)) return 0;
    pin(game.cores[0]);
    for (int i = 0; i < ROUNDS; i++) {
        double ns = play_round(&game);
        if (ns > 0 && (best == 0 || ns < best)) best = ns;
    }
    (void)pthread_setaffinity_np(pthread_self(), sizeof(mine), &mine);
    return best;
}

/* Value of the first line "key : value" of /proc/cpuinfo. */
static void read_cpu_model(char *model, size_t bytes)
{
    static const char key[] = "model name";
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "re");

    (void)snprintf(model, bytes, "unknown");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, key, sizeof(key) - 1) != 0 || colon == NULL) continue;
        line[strcspn(line, "\n")] = '\0';
        (void)snprintf(model, bytes, "%s", colon + 1 + strspn(colon + 1, " "));
        break;
    }
    if (file != NULL) (void)fclose(file);
}

static void read_governor(char *governor, size_t bytes)
{
    FILE *file = fopen("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "re");

    if (file == NULL || fgets(governor, (int)bytes, file) == NULL) governor[0] = '\0';
    governor[strcspn(governor, "\n")] = '\0';
    if (file != NULL) (void)fclose(file);
}

void machine_look(machine_t *machine)
{
    cpu_set_t set;
    long l1d = sysconf(_SC_LEVEL1_DCACHE_SIZE);

    *machine = (machine_t){.l1d_bytes = (l1d > 0) ? (uint64_t)l1d : 0, .n_cores = 1};
    read_cpu_model(machine->cpu, sizeof(machine->cpu));
    read_governor(machine->governor, sizeof(machine->governor));
    if (sched_getaffinity(0, sizeof(set), &set) == 0) machine->n_cores = (uint32_t)CPU_COUNT(&set);
}
