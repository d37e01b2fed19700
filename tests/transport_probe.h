/* Is a row of the transport table usable on this machine? Asked in a process of its own: once UCX is loaded a process
 * can no longer fork. When it is not, the program says what it leaves out. */
#ifndef TESTS_TRANSPORT_PROBE_H
#define TESTS_TRANSPORT_PROBE_H

#include "../src/transport/transport.h"
#include "fork_ranks.h"
#include "testing.h"

enum { TRANSPORT_PROBE_MS = 60000 };

typedef struct transport_probe {
    const char *name, *what;
} transport_probe_t;

static inline int transport_probe_body(rank_self_t *self)
{
    const transport_probe_t *probe = self->arg;
    size_t n_rows;
    const lnt_transport_ops_t *const *rows = lnt_transport_rows(&n_rows);
    char why[160] = "no such row";

    for (size_t r = 0; r < n_rows; r++)
        if (strcmp(rows[r]->name, probe->name) == 0 && rows[r]->usable(why, sizeof(why))) return 0;
    test_say_skipped(probe->what, why);
    return 1;
}

/* what: the check that is left out when it is not. */
static inline bool transport_is_usable(const char *name, const char *what)
{
    transport_probe_t probe = {.name = name, .what = what};

    return fork_ranks(1, transport_probe_body, &probe, TRANSPORT_PROBE_MS, NULL) == 0;
}

#endif
