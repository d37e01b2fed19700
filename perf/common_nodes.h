/* Which rank plays on which node: from "--nodes M" or from a map such as 0,0,0,1,1. */
#ifndef PERF_COMMON_NODES_H
#define PERF_COMMON_NODES_H

#include <stdbool.h>
#include <stdint.h>

enum { NODES_RANKS_MAX = 4096 };

typedef struct node_map {
    uint32_t n_ranks, n_nodes;
    uint32_t node_of[NODES_RANKS_MAX];
} node_map_t;

/* text: a number of nodes (ranks are dealt out in equal runs), or one label per rank, separated by commas. n_ranks 0:
 * as many as the map has labels (one rank per node for a number). False with a reason. */
bool node_map_read(node_map_t *map, uint32_t n_ranks, const char *text, char *why, uint32_t why_bytes);

/* "flat" (one rank per node), "local" (one node), "hier". */
const char *node_map_algo(const node_map_t *map);

/* "0,0,1,1" */
void node_map_text(const node_map_t *map, char *text, uint32_t bytes);

#endif
