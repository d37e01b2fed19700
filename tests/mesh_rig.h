/* A mesh of ranks for tests: opens, gathers, connects. Ranks sit on one host (local sockets) or are told that they do
 * not (TCP over whatever interface there is), by the host hash they announce.
 */
#ifndef TESTS_MESH_RIG_H
#define TESTS_MESH_RIG_H

#include "../src/transport/mesh.h"
#include "rank_common.h"

typedef struct mesh_rig {
    lnt_mesh_t *mesh;
    lnt_peer_id_t me;
    lnt_peer_id_t peers[RANKS_MAX];
} mesh_rig_t;

/* Open and gather, without connecting. */
static inline int mesh_rig_open(mesh_rig_t *rig, rank_self_t *self, bool tcp)
{
    memset(rig, 0, sizeof(*rig));
    rig->me.rank = self->rank;
    rig->me.n_ranks = self->n_ranks;
    rig->me.cookie = (uint64_t)getpid();
    rig->me.host_hash = tcp ? self->rank : 1;
    RANK_OK(lnt_mesh_open(&rig->me, tcp ? "lo" : NULL, &rig->mesh));
    RANK_CHECK(self->bootstrap.allgather(self, &rig->me, rig->peers, sizeof(rig->me)) == 0);
    return 0;
}

static inline int mesh_rig_connect(mesh_rig_t *rig, rank_self_t *self, bool tcp, uint32_t timeout_ms)
{
    RANK_PASS(mesh_rig_open(rig, self, tcp));
    RANK_OK(lnt_mesh_connect(rig->mesh, rig->peers, timeout_ms));
    return 0;
}

/* Everybody meets; also used to keep ranks from leaving early. */
static inline int rank_barrier(rank_self_t *self)
{
    unsigned char one = 1, all[RANKS_MAX];

    return self->bootstrap.allgather(self, &one, all, 1);
}

/* Entries of /proc/self/fd. */
static inline int count_fds(void)
{
    int n = 0;

    for (int fd = 0; fd < 1024; fd++) {
        char path[32];

        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        n += access(path, F_OK) == 0;
    }
    return n;
}

#endif
