/* Topology from labels: a pure function, so every rank computes the same answer from the same all-gathered labels.
 *
 * One allocation holds the object and its four arrays. Nodes are numbered in order of their smallest rank, which is
 * the order in which labels appear; a counting sort by node keeps ranks ascending inside a node.
 */
#include "topo.h"

#include "../base/error.h"
#include "../base/memory.h"

enum { MAX_RANKS = UINT16_MAX }; /* shard and chunk are 16 bits wide in frames */

static lnt_topo_t *allocate(uint32_t n_ranks)
{
    size_t n_words = 4 * (size_t)n_ranks + 1;
    lnt_topo_t *topo = lnt_calloc(1, sizeof(*topo) + n_words * sizeof(uint32_t), "topology");

    if (topo == NULL) {
        return NULL;
    }
    topo->n_ranks = n_ranks;
    topo->node_of = (uint32_t *)(void *)(topo + 1);
    topo->local_of = topo->node_of + n_ranks;
    topo->ranks = topo->local_of + n_ranks;
    topo->node_begin = topo->ranks + n_ranks;
    return topo;
}

/* Uses ranks[a] as scratch for the smallest rank of node a. */
static void number_nodes(lnt_topo_t *topo, const uint64_t *labels)
{
    uint32_t *smallest = topo->ranks;

    for (uint32_t r = 0; r < topo->n_ranks; ++r) {
        uint32_t a = 0;

        while ((a < topo->n_nodes) && (labels[smallest[a]] != labels[r])) {
            ++a;
        }
        if (a == topo->n_nodes) {
            smallest[a] = r;
            ++topo->n_nodes;
        }
        topo->node_of[r] = a;
    }
}

static void place_ranks(lnt_topo_t *topo)
{
    uint32_t *size = topo->node_begin + 1; /* node sizes, then their running sums */

    for (uint32_t r = 0; r < topo->n_ranks; ++r) {
        topo->local_of[r] = size[topo->node_of[r]]++;
    }
    topo->n_shards = topo->n_ranks;
    for (uint32_t a = 0; a < topo->n_nodes; ++a) {
        topo->n_shards = (size[a] < topo->n_shards) ? size[a] : topo->n_shards;
        topo->node_begin[a + 1] += topo->node_begin[a];
    }
    for (uint32_t r = 0; r < topo->n_ranks; ++r) {
        topo->ranks[topo->node_begin[topo->node_of[r]] + topo->local_of[r]] = r;
    }
}

lnt_status_t lnt_topo_create(const uint64_t *labels, uint32_t n_ranks, lnt_topo_t **topo_p)
{
    lnt_topo_t *topo;

    LNT_CHECK_ARG((labels != NULL) && (n_ranks >= 1) && (topo_p != NULL));
    if (n_ranks > MAX_RANKS) {
        return lnt_error(LNT_ERR_UNSUPPORTED, "use fewer ranks in one communicator",
                         "%u ranks: frames number at most %d", n_ranks, MAX_RANKS);
    }
    topo = allocate(n_ranks);
    if (topo == NULL) {
        return LNT_ERR_NO_MEMORY;
    }
    number_nodes(topo, labels);
    place_ranks(topo);
    *topo_p = topo;
    return LNT_OK;
}

void lnt_topo_destroy(lnt_topo_t *topo)
{
    lnt_free(topo);
}
