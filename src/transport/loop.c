/* loop: ranks that are threads of one process. An area is a heap block; its address travels in the set-up message.
 *
 * The block counts its holders, the owner and every peer it was shown to, so either side may close first. A reference
 * belongs to the peer from the moment the address is sent; if a set-up dies in between, that block stays allocated.
 */
#include <string.h>

#include "../base/error.h"
#include "../base/memory.h"
#include "ring_net.h"

/* Behind the page's own words, on the page that the ring code leaves alone. */
typedef struct loop_page {
    lnt_ring_page_t page;
    _Atomic uint32_t holders;
} loop_page_t;

_Static_assert(sizeof(loop_page_t) <= LNT_RING_PAGE_BYTES, "the control page holds both");

typedef struct loop_blob {
    uint64_t base, offset;
} loop_blob_t;

static lnt_status_t loop_create(size_t bytes, lnt_ring_area_t *area_p)
{
    loop_page_t *page = lnt_alloc_aligned(bytes, "loop rings");

    if (page == NULL) {
        return LNT_ERR_NO_MEMORY;
    }
    atomic_init(&page->holders, 1);
    *area_p = (lnt_ring_area_t){.base = page, .bytes = bytes, .fd = -1};
    return LNT_OK;
}

static void loop_release(void *base)
{
    loop_page_t *page = base;

    if (atomic_fetch_sub(&page->holders, 1) == 1) {
        lnt_free(page);
    }
}

static void loop_destroy(lnt_ring_area_t *area)
{
    loop_release(area->base);
}

static lnt_status_t loop_show(lnt_ring_area_t *area, size_t offset, void *blob, size_t *bytes_p, int *fd_p)
{
    loop_page_t *page = area->base;
    loop_blob_t shown = {.base = (uintptr_t)area->base, .offset = offset};

    (void)fd_p; /* no descriptor besides the doorbell */
    atomic_fetch_add(&page->holders, 1);
    memcpy(blob, &shown, sizeof(shown));
    *bytes_p = sizeof(shown);
    return LNT_OK;
}

static lnt_status_t loop_attach(const void *blob, size_t bytes, int fd, size_t footprint, lnt_ring_view_t *view_p)
{
    loop_blob_t shown;

    (void)footprint;
    if ((bytes != sizeof(shown)) || (fd >= 0)) {
        return lnt_error(LNT_ERR_INTERNAL, NULL, "loop: a set-up message has the wrong size");
    }
    memcpy(&shown, blob, sizeof(shown));
    view_p->mapping = (void *)(uintptr_t)shown.base;
    view_p->mapping_bytes = 0;
    view_p->page = view_p->mapping;
    view_p->ring = (lnt_ring_t *)((unsigned char *)view_p->mapping + shown.offset);
    return LNT_OK;
}

static void loop_detach(lnt_ring_view_t *view)
{
    loop_release(view->mapping);
}

static const lnt_ring_memory_t loop_memory = {.name = "loop",
                                              .create = loop_create,
                                              .destroy = loop_destroy,
                                              .show = loop_show,
                                              .attach = loop_attach,
                                              .detach = loop_detach};

static bool loop_usable(char *why, size_t size)
{
    (void)why;
    (void)size;
    return true;
}

static bool loop_reachable(const lnt_peer_id_t *me, const lnt_peer_id_t *peer)
{
    return me->cookie == peer->cookie;
}

static lnt_status_t loop_open(const lnt_transport_params_t *params, lnt_transport_t **transport_p)
{
    return lnt_ring_net_open(params, &loop_memory, transport_p);
}

const lnt_transport_ops_t lnt_transport_loop = {.name = "loop",
                                                .doc = "ranks as threads of one process: rings in private memory",
                                                .usable = loop_usable,
                                                .reachable = loop_reachable,
                                                .open = loop_open,
                                                LNT_RING_NET_OPS};
