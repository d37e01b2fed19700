/* The ucx row: forwards to liblinnet_ucx.so, which is loaded when ucx is chosen, or when somebody asks whether it is
 * usable.
 *
 * A module instead of a link dependency, because loading libucp has side effects (it installs signal handlers) that a
 * program which never leaves its host should not get, and because it need not be installed.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "../base/module.h"
#include "host_ops.h"
#include "transport_rows.h"

static pthread_once_t module_once = PTHREAD_ONCE_INIT;
static const lnt_transport_ops_t *module_ops; /* NULL: not there, module_why says why */
static char module_why[256];

static void load_module(void)
{
    void *symbol = lnt_module_symbol("liblinnet_ucx.so", "lnt_ucx_transport_ops", module_why, sizeof(module_why));
    lnt_transport_module_fn_t ops;

    if (symbol == NULL) {
        return;
    }
    memcpy(&ops, &symbol, sizeof(ops)); /* ISO C has no cast from object to function pointers */
    module_ops = ops(&lnt_host_ops);
    if (module_ops == NULL) {
        (void)snprintf(module_why, sizeof(module_why), "the module refuses to work here");
    }
}

static bool ucx_usable(char *why, size_t size)
{
    pthread_once(&module_once, load_module);
    if (module_ops == NULL) {
        (void)snprintf(why, size, "%s", module_why);
        return false;
    }
    return module_ops->usable(why, size);
}

/* Any two ranks. Asked before the module is loaded: it is loaded only where it is chosen. */
static bool ucx_reachable(const lnt_peer_id_t *me, const lnt_peer_id_t *peer)
{
    (void)me;
    (void)peer;
    return true;
}

/* The rest is called only after ucx_usable said yes. */

static lnt_status_t ucx_open(const lnt_transport_params_t *params, lnt_transport_t **transport_p)
{
    return module_ops->open(params, transport_p);
}

static lnt_status_t ucx_offer(lnt_transport_t *transport, uint32_t peer, void *buffer, size_t *bytes_p, int *fds,
                              size_t *n_fds_p)
{
    return module_ops->offer(transport, peer, buffer, bytes_p, fds, n_fds_p);
}

static lnt_status_t ucx_accept(lnt_transport_t *transport, uint32_t peer, const void *buffer, size_t bytes,
                               const int *fds, size_t n_fds)
{
    return module_ops->accept(transport, peer, buffer, bytes, fds, n_fds);
}

static void ucx_send(lnt_transport_t *transport, lnt_send_t *send)
{
    module_ops->send(transport, send);
}

static bool ucx_progress(lnt_transport_t *transport)
{
    return module_ops->progress(transport);
}

static bool ucx_arm(lnt_transport_t *transport)
{
    return module_ops->arm(transport);
}

static void ucx_disarm(lnt_transport_t *transport)
{
    module_ops->disarm(transport);
}

static int ucx_event_fd(lnt_transport_t *transport)
{
    return module_ops->event_fd(transport);
}

static void ucx_close(lnt_transport_t *transport)
{
    if (transport != NULL) {
        module_ops->close(transport);
    }
}

const lnt_transport_ops_t lnt_transport_ucx = {.name = "ucx",
                                               .doc = "ranks on any hosts, over UCX (module liblinnet_ucx.so)",
                                               .usable = ucx_usable,
                                               .reachable = ucx_reachable,
                                               .open = ucx_open,
                                               .offer = ucx_offer,
                                               .accept = ucx_accept,
                                               .send = ucx_send,
                                               .progress = ucx_progress,
                                               .arm = ucx_arm,
                                               .disarm = ucx_disarm,
                                               .event_fd = ucx_event_fd,
                                               .close = ucx_close};
