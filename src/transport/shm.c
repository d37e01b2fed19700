/* shm: ranks that are processes of one host. An area is a memfd; its descriptor travels in the set-up message.
 *
 * Nothing has a name, so nothing is left behind after kill -9, and /dev/shm is not used. The memory is reserved when
 * it is created (an error here instead of SIGBUS later) and sealed against resizing, so that no peer can pull it away.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../base/error.h"
#include "ring_net.h"

typedef struct shm_blob {
    uint64_t offset;
} shm_blob_t;

static const char *const memory_cure = "raise the memory limit (container, cgroup, ulimit), or lower LINNET_RING_BYTES";

static lnt_status_t shm_refused(const char *what, size_t bytes, int error)
{
    bool memory = (error == ENOMEM) || (error == ENOSPC);

    return lnt_error(memory ? LNT_ERR_NO_MEMORY : LNT_ERR_SYSTEM, memory ? memory_cure : NULL,
                     "shm: %s for rings of %zu bytes failed: %s", what, bytes, strerror(error));
}

static lnt_status_t shm_map(int fd, size_t offset, size_t bytes, void **base_p)
{
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);

    if (base == MAP_FAILED) {
        return shm_refused("mmap", bytes, errno);
    }
    *base_p = base;
    return LNT_OK;
}

static lnt_status_t shm_create(size_t bytes, lnt_ring_area_t *area_p)
{
    lnt_ring_area_t area = {.bytes = bytes, .fd = memfd_create("linnet-rings", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
    lnt_status_t status;
    int error;

    if (area.fd < 0) {
        return shm_refused("memfd_create", bytes, errno);
    }
    do {
        error = posix_fallocate(area.fd, 0, (off_t)bytes);
    } while (error == EINTR);
    if (error != 0) {
        status = shm_refused("reserving memory", bytes, error);
        goto err_close;
    }
    if (fcntl(area.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        status = shm_refused("sealing", bytes, errno);
        goto err_close;
    }
    LNT_TRY_GOTO(status, shm_map(area.fd, 0, bytes, &area.base), err_close);
    *area_p = area;
    return LNT_OK;

err_close:
    close(area.fd);
    return status;
}

static void shm_destroy(lnt_ring_area_t *area)
{
    munmap(area->base, area->bytes);
    close(area->fd);
}

static lnt_status_t shm_show(lnt_ring_area_t *area, size_t offset, void *blob, size_t *bytes_p, int *fd_p)
{
    shm_blob_t shown = {.offset = offset};

    memcpy(blob, &shown, sizeof(shown));
    *bytes_p = sizeof(shown);
    *fd_p = area->fd;
    return LNT_OK;
}

/* Would touching these bytes be safe for as long as they are mapped? */
static bool shm_covers(int fd, size_t offset, size_t footprint)
{
    const int needed = F_SEAL_SHRINK;
    struct stat info;

    return (fstat(fd, &info) == 0) && (offset >= LNT_RING_PAGE_BYTES) && (offset % LNT_RING_PAGE_BYTES == 0) &&
           ((uint64_t)info.st_size >= offset) && ((uint64_t)info.st_size - offset >= footprint) &&
           ((fcntl(fd, F_GET_SEALS) & needed) == needed);
}

static lnt_status_t shm_attach(const void *blob, size_t bytes, int fd, size_t footprint, lnt_ring_view_t *view_p)
{
    shm_blob_t shown = {0};
    void *page = NULL, *ring = NULL;
    lnt_status_t status;

    if (bytes == sizeof(shown)) {
        memcpy(&shown, blob, sizeof(shown));
    }
    if ((fd < 0) || !shm_covers(fd, shown.offset, footprint)) {
        status = lnt_error(LNT_ERR_TRANSPORT, NULL, "shm: a peer sent a descriptor that does not hold its rings");
        goto out;
    }
    LNT_TRY_GOTO(status, shm_map(fd, 0, LNT_RING_PAGE_BYTES, &page), out);
    status = shm_map(fd, shown.offset, footprint, &ring);
    if (status < 0) {
        munmap(page, LNT_RING_PAGE_BYTES);
        goto out;
    }
    *view_p = (lnt_ring_view_t){.page = page, .ring = ring, .mapping = ring, .mapping_bytes = footprint};

out:
    if (fd >= 0) {
        close(fd); /* the mapping keeps the memory */
    }
    return status;
}

static void shm_detach(lnt_ring_view_t *view)
{
    munmap(view->page, LNT_RING_PAGE_BYTES);
    munmap(view->mapping, view->mapping_bytes);
}

static const lnt_ring_memory_t shm_memory = {.name = "shm",
                                             .create = shm_create,
                                             .destroy = shm_destroy,
                                             .show = shm_show,
                                             .attach = shm_attach,
                                             .detach = shm_detach};

static bool shm_usable(char *why, size_t size)
{
    int fd = memfd_create("linnet-probe", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0) {
        (void)snprintf(why, size, "memfd_create: %s", strerror(errno));
        return false;
    }
    close(fd);
    return true;
}

static bool shm_reachable(const lnt_peer_id_t *me, const lnt_peer_id_t *peer)
{
    return me->host_hash == peer->host_hash;
}

static lnt_status_t shm_open_rings(const lnt_transport_params_t *params, lnt_transport_t **transport_p)
{
    return lnt_ring_net_open(params, &shm_memory, transport_p);
}

const lnt_transport_ops_t lnt_transport_shm = {.name = "shm",
                                               .doc = "ranks as processes of one host: rings in passed memory",
                                               .usable = shm_usable,
                                               .reachable = shm_reachable,
                                               .open = shm_open_rings,
                                               LNT_RING_NET_OPS};
