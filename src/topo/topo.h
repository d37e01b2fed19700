/* Topology: which rank sits on which node. A pure function of all-gathered labels, so every rank gets the same answer
 * and tests can invent any map. Nodes are numbered by their smallest rank; local indices follow rank order.
 * The flat form is not a special case: it is the map in which every rank is a node of its own. */
#ifndef LNT_TOPO_H
#define LNT_TOPO_H

#include <linnet/types.h>

typedef struct lnt_topo {
    uint32_t n_ranks;
    uint32_t n_nodes;     /* M */
    uint32_t n_shards;    /* S: smallest local size over nodes */
    uint32_t *node_of;    /* [n_ranks] */
    uint32_t *local_of;   /* [n_ranks] */
    uint32_t *node_begin; /* [n_nodes + 1]: ranks of node a are ranks[node_begin[a] .. node_begin[a + 1]) */
    uint32_t *ranks;      /* [n_ranks] by node, ascending inside a node */
} lnt_topo_t;

/* labels[r] are equal for ranks of the same node. n_ranks >= 1. */
lnt_status_t lnt_topo_create(const uint64_t *labels, uint32_t n_ranks, lnt_topo_t **topo_p);
void lnt_topo_destroy(lnt_topo_t *topo);

/* Rank that owns shard d (< n_shards) on node a. */
static inline uint32_t lnt_topo_owner(const lnt_topo_t *topo, uint32_t node, uint32_t shard)
{
    return topo->ranks[topo->node_begin[node] + shard];
}

static inline uint32_t lnt_topo_local_size(const lnt_topo_t *topo, uint32_t node)
{
    return topo->node_begin[node + 1] - topo->node_begin[node];
}

/* Identity of the host this process runs on: machine, UTS name, network namespace. Equal text = same node. */
lnt_status_t lnt_topo_host_id(char *text, size_t size);

#endif
