/* Splits: a communicator made from another, whose all-gather takes the place of the bootstrap.
 *
 * Every rank of the parent takes part in the same two gathers, whatever its color and whatever failed, or the parent's
 * sequence would run apart. A child shares its parent's settings, node map and emulated link.
 */
#include "comm_net.h"

#include <stdlib.h>
#include <string.h>

typedef struct split_entry {
    int64_t color, key;
    uint32_t rank; /* in the parent */
    int32_t status;
} split_entry_t;

typedef struct split {
    lnt_comm_t *parent;
    split_entry_t *entries; /* [n_ranks of the parent] */
    uint32_t *members;      /* parent ranks in the child's order */
    uint32_t n_members, rank;
    uint8_t *all; /* output of the parent's gather: n_ranks greetings */
} split_t;

static int by_key(const void *a, const void *b)
{
    const split_entry_t *x = a, *y = b;

    if (x->key != y->key) return (x->key < y->key) ? -1 : 1;
    return (x->rank < y->rank) ? -1 : (x->rank > y->rank);
}

/* The child's bootstrap: everybody's greeting passes by, the members' are kept. */
static int gather_members(void *arg, const void *input, void *output, size_t bytes)
{
    const split_t *split = arg;
    uint8_t *out = output;
    lnt_status_t status = lnt_comm_gather_small(split->parent, input, split->all, bytes);

    if (status < 0) return (int)status;
    for (uint32_t i = 0; i < split->n_members; i++)
        memcpy(out + i * bytes, split->all + split->members[i] * bytes, bytes);
    return 0;
}

static lnt_status_t alloc_split(lnt_comm_t *parent, split_t *split)
{
    split->parent = parent;
    split->entries = lnt_calloc(parent->n_ranks, sizeof(*split->entries), "split");
    split->members = lnt_calloc(parent->n_ranks, sizeof(*split->members), "split members");
    split->all = lnt_calloc(parent->n_ranks, sizeof(lnt_greeting_t), "split greetings");
    return (split->entries != NULL && split->members != NULL && split->all != NULL) ? LNT_OK : LNT_ERR_NO_MEMORY;
}

static void free_split(split_t *split)
{
    lnt_free(split->entries);
    lnt_free(split->members);
    lnt_free(split->all);
}

static lnt_status_t gather_colors(split_t *split, int64_t color, int64_t key)
{
    const uint32_t n_ranks = split->parent->n_ranks;
    const split_entry_t mine = {.color = color, .key = key, .rank = split->parent->rank};

    LNT_TRY(lnt_comm_gather_small(split->parent, &mine, split->entries, sizeof(mine)));
    qsort(split->entries, n_ranks, sizeof(*split->entries), by_key);
    for (uint32_t i = 0; i < n_ranks; i++) {
        if (split->entries[i].color != color) continue;
        if (split->entries[i].rank == mine.rank) split->rank = split->n_members;
        split->members[split->n_members++] = split->entries[i].rank;
    }
    return LNT_OK;
}

static lnt_status_t build_child(split_t *split, lnt_comm_t **comm_p)
{
    const lnt_comm_t *parent = split->parent;
    const lnt_bootstrap_t bootstrap = {.struct_size = sizeof(bootstrap),
                                       .rank = split->rank,
                                       .n_ranks = split->n_members,
                                       .allgather = gather_members,
                                       .arg = split};
    const lnt_comm_settings_t settings = {.node_label = parent->peers[parent->rank].node_label,
                                          .usable = parent->peers[parent->rank].transports,
                                          .timeout_ms = parent->timeout_ms,
                                          .emulate_gbps = parent->emulate_gbps,
                                          .pace = parent->net->pace};

    return lnt_comm_build(parent->context, &bootstrap, &settings, comm_p);
}

/* A rank without a child takes part in the gather that the others' children greet by. */
static lnt_status_t stand_by(split_t *split)
{
    const lnt_greeting_t nobody = {.status = LNT_OK};

    return lnt_comm_gather_small(split->parent, &nobody, split->all, sizeof(nobody));
}

lnt_status_t lnt_comm_split(lnt_comm_t *comm, int64_t color, int64_t key, lnt_comm_t **comm_p)
{
    lnt_status_t status;
    split_t split = {.parent = NULL};
    lnt_comm_t *child = NULL;

    LNT_TRY(lnt_comm_enter(comm));
    LNT_CHECK_ARG(comm_p != NULL);
    status = alloc_split(comm, &split);
    if (status < 0) {
        lnt_comm_abort(comm, "a rank has no memory left for a split"); /* the others wait for its color */
        goto out;
    }
    LNT_TRY_GOTO(status, gather_colors(&split, color, key), out);
    LNT_TRY_GOTO(status, (color < 0) ? stand_by(&split) : build_child(&split, &child), out);
    *comm_p = child;
out:
    free_split(&split);
    return status;
}
