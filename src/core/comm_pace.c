/* The emulated link: one token bucket per played node, in memory that the node's ranks share.
 *
 * The first rank of a node makes a memfd and passes it over the mesh; threads of one process are no special case. The
 * memory outlives its communicator as long as a split of it uses the same link.
 */
#include "comm_net.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BURST_BYTES = 65536 };

struct lnt_pace {
    _Atomic uint32_t refs;
    int fd; /* only while the memory is handed round */
    void *memory;
    lnt_pacer_t *pacer;
};

/* Arguments of the mesh's exchange. */
typedef struct pace_setup {
    const lnt_comm_t *comm;
    lnt_pace_t *pace;
} pace_setup_t;

static uint32_t leader_of(const lnt_comm_t *comm, uint32_t rank)
{
    return lnt_topo_owner(comm->topo, comm->topo->node_of[rank], 0);
}

static lnt_status_t map_memory(lnt_pace_t *pace, int fd)
{
    void *memory = mmap(NULL, LNT_PACER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (memory == MAP_FAILED) return lnt_error(LNT_ERR_NO_MEMORY, NULL, "cannot map the emulated link's memory: %m");
    pace->memory = memory;
    return LNT_OK;
}

static lnt_status_t make_memory(lnt_pace_t *pace)
{
    int error;

    pace->fd = memfd_create("linnet-pace", MFD_CLOEXEC);
    if (pace->fd < 0) return lnt_error(LNT_ERR_SYSTEM, NULL, "memfd_create: %m");
    error = posix_fallocate(pace->fd, 0, LNT_PACER_BYTES);
    if (error != 0) {
        errno = error;
        return lnt_error(LNT_ERR_NO_MEMORY, NULL, "cannot reserve the emulated link's memory: %m");
    }
    return map_memory(pace, pace->fd);
}

static lnt_status_t put_memory(void *arg, uint32_t peer, void *buffer, size_t *bytes_p, int *fds, size_t *n_fds_p)
{
    const pace_setup_t *setup = arg;
    const uint32_t rank = setup->comm->rank;

    (void)buffer;
    *bytes_p = 0;
    *n_fds_p = 0;
    if (leader_of(setup->comm, rank) == rank && leader_of(setup->comm, peer) == rank) {
        fds[0] = setup->pace->fd;
        *n_fds_p = 1;
    }
    return LNT_OK;
}

static lnt_status_t take_memory(void *arg, uint32_t peer, const void *buffer, size_t bytes, const int *fds,
                                size_t n_fds)
{
    const pace_setup_t *setup = arg;
    lnt_status_t status = LNT_OK;

    (void)buffer;
    (void)bytes;
    if (peer == leader_of(setup->comm, setup->comm->rank)) {
        status = (n_fds == 1)
                     ? map_memory(setup->pace, fds[0])
                     : lnt_error(LNT_ERR_INTERNAL, NULL, "rank %u passed no memory for the emulated link", peer);
    }
    for (size_t i = 0; i < n_fds; i++)
        (void)close(fds[i]);
    return status;
}

static lnt_status_t share_memory(const lnt_comm_t *comm, lnt_pace_t *pace, uint32_t timeout_ms)
{
    pace_setup_t setup = {comm, pace};
    const lnt_mesh_setup_t exchange = {.arg = &setup, .out = put_memory, .in = take_memory};

    LNT_TRY(lnt_mesh_exchange(comm->mesh, &exchange, timeout_ms));
    return lnt_pacer_create(comm->emulate_gbps, BURST_BYTES, pace->memory, &pace->pacer);
}

/* This rank's own part; *pace_p is released by the caller, whatever comes out. */
static lnt_status_t prepare(const lnt_comm_t *comm, lnt_pace_t **pace_p)
{
    lnt_pace_t *pace = lnt_calloc(1, sizeof(*pace), "emulated link");

    if (pace == NULL) return LNT_ERR_NO_MEMORY;
    *pace_p = pace;
    atomic_store(&pace->refs, 1);
    pace->fd = -1;
    return (leader_of(comm, comm->rank) == comm->rank) ? make_memory(pace) : LNT_OK;
}

lnt_status_t lnt_pace_create(lnt_comm_t *comm, uint32_t timeout_ms, lnt_pace_t **pace_p)
{
    lnt_pace_t *pace = NULL;
    lnt_status_t status = lnt_mesh_vote(comm->mesh, prepare(comm, &pace), timeout_ms);

    if (status >= 0) status = lnt_mesh_vote(comm->mesh, share_memory(comm, pace, timeout_ms), timeout_ms);
    if (pace != NULL && pace->fd >= 0) (void)close(pace->fd);
    if (status < 0) {
        lnt_pace_drop(pace);
        return status;
    }
    *pace_p = pace;
    return LNT_OK;
}

lnt_pace_t *lnt_pace_hold(lnt_pace_t *pace)
{
    if (pace != NULL) atomic_fetch_add(&pace->refs, 1);
    return pace;
}

void lnt_pace_drop(lnt_pace_t *pace)
{
    if (pace == NULL || atomic_fetch_sub(&pace->refs, 1) != 1) return;
    lnt_pacer_destroy(pace->pacer);
    if (pace->memory != NULL) (void)munmap(pace->memory, LNT_PACER_BYTES);
    lnt_free(pace);
}

lnt_pacer_t *lnt_pace_pacer(lnt_pace_t *pace)
{
    return (pace != NULL) ? pace->pacer : NULL;
}
