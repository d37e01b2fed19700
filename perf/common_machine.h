/* Facts of this machine that belong beside every measurement: model of the CPU, L1 data cache, governor, distance of
 * two cores.
 */
#ifndef PERF_COMMON_MACHINE_H
#define PERF_COMMON_MACHINE_H

#include <stdint.h>

typedef struct machine {
    char cpu[96];
    uint64_t l1d_bytes; /* 0: unknown */
    uint32_t n_cores;   /* this process may use */
    char governor[32];  /* of the first core's clock; "" where it cannot be read, as in most guests */
    double c2c_ns;      /* one way between two cores through a cache line; 0: unknown (one core) */
} machine_t;

void machine_look(machine_t *machine); /* does not measure c2c_ns */

/* Ping-pong of one cache line between the first two cores: about 10 ms. The smallest of several rounds, since a busy
 * core makes any single one too long. 0 where there is one core. */
double machine_core_to_core_ns(void);

#endif
