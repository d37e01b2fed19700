/* Node maps as texts. Nodes are numbered by their smallest rank, as the library numbers them. */
#include "common_nodes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LABEL_BYTES = 32 };

static bool refuse(char *why, uint32_t why_bytes, const char *text, const char *reason)
{
    (void)snprintf(why, why_bytes, "\"%s\" is no node map for these ranks: %s", text, reason);
    return false;
}

static bool deal_out(node_map_t *map, uint32_t n_ranks, const char *text, char *why, uint32_t why_bytes)
{
    char *end;
    unsigned long n_nodes = strtoul(text, &end, 10);

    if (n_ranks == 0) n_ranks = (uint32_t)((n_nodes <= NODES_RANKS_MAX) ? n_nodes : 0);
    if (*end != '\0' || n_nodes == 0 || n_nodes > n_ranks)
        return refuse(why, why_bytes, text, "give 1 to as many nodes as ranks");
    map->n_ranks = n_ranks;
    map->n_nodes = (uint32_t)n_nodes;
    for (uint32_t r = 0; r < n_ranks; r++)
        map->node_of[r] = (uint32_t)((uint64_t)r * n_nodes / n_ranks);
    return true;
}

static uint32_t number_of(node_map_t *map, char (*labels)[LABEL_BYTES], const char *label)
{
    uint32_t node = 0;

    while (node < map->n_nodes && strcmp(labels[node], label) != 0)
        node++;
    if (node == map->n_nodes) {
        (void)snprintf(labels[node], LABEL_BYTES, "%s", label);
        map->n_nodes++;
    }
    return node;
}

static bool read_labels(node_map_t *map, uint32_t n_ranks, const char *text, char *why, uint32_t why_bytes)
{
    static char labels[NODES_RANKS_MAX][LABEL_BYTES];
    const char *at = text;

    map->n_ranks = map->n_nodes = 0;
    for (;;) {
        size_t length = strcspn(at, ",");
        char label[LABEL_BYTES];

        if (length == 0 || length >= LABEL_BYTES) return refuse(why, why_bytes, text, "labels have 1 to 31 characters");
        if (map->n_ranks == NODES_RANKS_MAX) return refuse(why, why_bytes, text, "too many ranks");
        (void)snprintf(label, sizeof(label), "%.*s", (int)length, at);
        map->node_of[map->n_ranks++] = number_of(map, labels, label);
        if (at[length] == '\0') break;
        at += length + 1;
    }
    if (n_ranks != 0 && n_ranks != map->n_ranks) return refuse(why, why_bytes, text, "it needs one label per rank");
    return true;
}

bool node_map_read(node_map_t *map, uint32_t n_ranks, const char *text, char *why, uint32_t why_bytes)
{
    if (n_ranks > NODES_RANKS_MAX) return refuse(why, why_bytes, text, "too many ranks");
    if (strchr(text, ',') == NULL) return deal_out(map, n_ranks, text, why, why_bytes);
    return read_labels(map, n_ranks, text, why, why_bytes);
}

const char *node_map_algo(const node_map_t *map)
{
    if (map->n_nodes == 1) return "local";
    return (map->n_nodes == map->n_ranks) ? "flat" : "hier";
}

void node_map_text(const node_map_t *map, char *text, uint32_t bytes)
{
    uint32_t used = 0;

    text[0] = '\0';
    for (uint32_t r = 0; r < map->n_ranks && used < bytes; r++) {
        used += (uint32_t)snprintf(text + used, bytes - used, "%s%u", (r > 0) ? "," : "", map->node_of[r]);
    }
}
