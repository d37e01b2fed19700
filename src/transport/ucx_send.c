/* UCX module, sending side: frames wait for the pacer in order, then become one active message each. */
#include <string.h>

#include "ucx.h"

static void finish_send(lnt_ucx_post_t *post, ucs_status_t status);

static void on_done(void *request, ucs_status_t status, void *arg)
{
    lnt_ucx_post_t *post = arg;

    post->ucx->in_flight--;
    ucp_request_free(request);
    finish_send(post, status);
}

static ucp_request_param_t params_of(lnt_ucx_post_t *post)
{
    return (ucp_request_param_t){.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                 .cb.send = on_done,
                                 .user_data = post};
}

/* UCX sends the first messages while it still sets up the connection, and (1.13) ends the process when the peer dies in
 * the middle of that. So the first frame counts as sent only when it is flushed: then creation has it behind it. */
static bool flush_first(lnt_ucx_post_t *post)
{
    lnt_ucx_peer_t *peer = &post->ucx->peers[post->send->peer];
    const ucp_request_param_t param = params_of(post);
    ucs_status_ptr_t request;

    if (peer->wired) {
        return false;
    }
    peer->wired = true;
    request = ucp_ep_flush_nbx(peer->ep, &param);
    if (request == NULL || UCS_PTR_IS_ERR(request)) {
        return false; /* a broken endpoint tells so itself */
    }
    post->ucx->in_flight++;
    return true;
}

static void finish_send(lnt_ucx_post_t *post, ucs_status_t status)
{
    lnt_ucx_t *ucx = post->ucx;
    const lnt_sink_t *sink = &ucx->params.sink;
    lnt_send_t *send = post->send;

    if (status == UCS_OK && flush_first(post)) {
        return;
    }
    lnt_ucx_give_post(ucx, post);
    ucx->moved = true;
    if (status != UCS_OK) {
        lnt_ucx_break(ucx, send->peer, ucs_status_string(status));
        return;
    }
    sink->sent(sink->arg, send);
}

static void post_frame(lnt_ucx_t *ucx, lnt_ucx_peer_t *peer, lnt_send_t *send)
{
    lnt_ucx_post_t *post = lnt_ucx_take_post(ucx, peer);
    const uint8_t *frame = send->frame;
    ucp_request_param_t param;
    ucs_status_ptr_t request;

    if (post == NULL) {
        return;
    }
    post->ucx = ucx;
    post->send = send;
    post->header.magic = LNT_UCX_MAGIC;
    post->header.sender = ucx->params.rank;
    memcpy(&post->header.frame, frame, LNT_FRAME_HEADER_BYTES);
    lnt_transport_count(&ucx->params.wire_bytes[ucx->params.is_inter[peer->rank] ? 1 : 0], send->bytes);
    param = params_of(post);
    request = ucp_am_send_nbx(peer->ep, LNT_UCX_AM_ID, &post->header, sizeof(post->header),
                              frame + LNT_FRAME_HEADER_BYTES, (size_t)send->bytes - LNT_FRAME_HEADER_BYTES, &param);
    if (request == NULL || UCS_PTR_IS_ERR(request)) {
        finish_send(post, UCS_PTR_STATUS(request));
    } else {
        ucx->in_flight++;
    }
}

/* Tokens for the rest of the frame; true when it may go. */
static bool paced(lnt_ucx_t *ucx, const lnt_ucx_peer_t *peer, lnt_send_t *send)
{
    if (ucx->params.pacer == NULL || !ucx->params.is_inter[peer->rank]) {
        return true;
    }
    send->sent += ucx->host->pacer_take(ucx->params.pacer, send->bytes - send->sent);
    return send->sent == send->bytes;
}

static bool push_peer(lnt_ucx_t *ucx, lnt_ucx_peer_t *peer)
{
    bool any = false;

    while (peer->queue != NULL && !peer->broken && paced(ucx, peer, peer->queue)) {
        lnt_send_t *send = peer->queue;

        peer->queue = send->next;
        if (peer->queue == NULL) {
            peer->queue_last = NULL;
        }
        post_frame(ucx, peer, send);
        any = true;
    }
    return any;
}

bool lnt_ucx_push(lnt_ucx_t *ucx)
{
    bool any = false;

    for (uint32_t rank = 0; rank < ucx->params.n_ranks; rank++) {
        any |= push_peer(ucx, &ucx->peers[rank]);
    }
    return any;
}

void lnt_ucx_send(lnt_transport_t *transport, lnt_send_t *send)
{
    lnt_ucx_t *ucx = (lnt_ucx_t *)(void *)transport;
    lnt_ucx_peer_t *peer = &ucx->peers[send->peer];

    send->next = NULL;
    send->sent = 0;
    if (peer->queue_last != NULL) {
        peer->queue_last->next = send;
    } else {
        peer->queue = send;
    }
    peer->queue_last = send;
}
