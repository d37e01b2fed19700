/* In which order threads and blocks run: forward, reverse, or at random from a seed. A right kernel gives the same
 * result in every order. Also the other switches of the environment.
 */
#include <stdlib.h>
#include <string.h>

#include "emu_machine.h"
#include "emu_report.h"

struct order {
    lnt_emu_policy policy;
    uint64_t seed;
};

static order chosen;
static bool is_chosen;
static uint64_t random_state;

static unsigned n_ready, first_ready;
static lnt_emu_thread *ready[LNT_EMU_MAX_THREADS]; /* a ring */

static order parse_order(const char *text)
{
    char *end;

    if (text == nullptr || strcmp(text, "forward") == 0) return {LNT_EMU_FORWARD, 0};
    if (strcmp(text, "reverse") == 0) return {LNT_EMU_REVERSE, 0};
    if (strncmp(text, "random:", 7) == 0 && text[7] != '\0') {
        uint64_t seed = strtoull(text + 7, &end, 10);
        if (*end == '\0') return {LNT_EMU_RANDOM, seed};
    }
    lnt_emu_fail(nullptr, "order \"%s\": it is forward, reverse or random:SEED", text);
}

void lnt_emu_set_order(const char *text)
{
    chosen = parse_order(text != nullptr ? text : getenv("LNT_EMU_ORDER"));
    random_state = chosen.seed;
    is_chosen = true;
}

lnt_emu_policy lnt_emu_order()
{
    if (!is_chosen) lnt_emu_set_order(nullptr);
    return chosen.policy;
}

static bool switched_on(const char *name, bool otherwise)
{
    const char *text = getenv(name);

    return text != nullptr && text[0] != '\0' ? strcmp(text, "0") != 0 : otherwise;
}

bool lnt_emu_strict()
{
    static const bool strict = switched_on("LNT_EMU_STRICT", true);

    return strict;
}

bool lnt_emu_races_between_blocks()
{
    static const bool races = switched_on("LNT_EMU_GRIDRACE", false);

    return races;
}

/* splitmix64 */
static uint64_t next_random()
{
    uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

void lnt_emu_queue_reset()
{
    n_ready = first_ready = 0;
}

void lnt_emu_queue_push(lnt_emu_thread *thread)
{
    ready[(first_ready + n_ready++) % LNT_EMU_MAX_THREADS] = thread;
}

lnt_emu_thread *lnt_emu_queue_pop()
{
    lnt_emu_thread *thread, **first = &ready[first_ready];

    if (n_ready == 0) return nullptr;
    if (chosen.policy == LNT_EMU_RANDOM) {
        lnt_emu_thread **pick = &ready[(first_ready + next_random() % n_ready) % LNT_EMU_MAX_THREADS];
        thread = *pick;
        *pick = *first;
    } else {
        thread = *first;
    }
    first_ready = (first_ready + 1) % LNT_EMU_MAX_THREADS;
    n_ready--;
    return thread;
}

static uint64_t greatest_common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Random blocks: from a random one on by steps that share no divisor with the count, so that each comes once. A launch
 * keeps its steps; the state moves on when its first block is asked for. */
static uint64_t random_block(uint64_t n, uint64_t n_blocks)
{
    static uint64_t start, step;

    if (n == 0) {
        start = next_random() % n_blocks;
        step = next_random() % n_blocks;
        while (greatest_common_divisor(step, n_blocks) != 1)
            step = (step + 1) % n_blocks;
    }
    return (uint64_t)((start + (unsigned __int128)n * step) % n_blocks);
}

uint64_t lnt_emu_nth_block(uint64_t n, uint64_t n_blocks)
{
    switch (lnt_emu_order()) {
    case LNT_EMU_REVERSE:
        return n_blocks - 1 - n;
    case LNT_EMU_RANDOM:
        return random_block(n, n_blocks);
    default:
        return n;
    }
}
