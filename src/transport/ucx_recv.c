/* UCX module, receiving side. */
#include <string.h>

#include "ucx.h"

/* Runs inside ucp_worker_progress: only notes what came. Returning UCS_INPROGRESS keeps the data for us. */
ucs_status_t lnt_ucx_on_message(void *arg, const void *header, size_t header_bytes, void *data, size_t bytes,
                                const ucp_am_recv_param_t *param)
{
    lnt_ucx_t *ucx = arg;
    lnt_ucx_header_t head;
    lnt_ucx_peer_t *peer;
    lnt_ucx_note_t *note;
    bool keep = (param->recv_attr & (UCP_AM_RECV_ATTR_FLAG_DATA | UCP_AM_RECV_ATTR_FLAG_RNDV)) != 0;

    if (header_bytes != sizeof(head)) {
        return UCS_OK;
    }
    memcpy(&head, header, sizeof(head));
    if (head.magic != LNT_UCX_MAGIC || head.sender >= ucx->params.n_ranks || !ucx->params.use[head.sender]) {
        return UCS_OK; /* not one of ours */
    }
    peer = &ucx->peers[head.sender];
    if (!lnt_frame_header_valid(&head.frame) || (bytes > 0 && !keep) ||
        bytes != (size_t)head.frame.payload_bytes + head.frame.section_bytes) {
        lnt_ucx_break(ucx, head.sender, "a frame that is not well formed");
        return UCS_OK;
    }
    note = lnt_ucx_take_note(ucx, peer);
    if (note == NULL) {
        return UCS_OK;
    }
    *note = (lnt_ucx_note_t){.ucx = ucx,
                             .header = head.frame,
                             .peer = head.sender,
                             .data = keep ? data : NULL,
                             .bytes = bytes,
                             .rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0};
    if (peer->last != NULL) {
        peer->last->next = note;
    } else {
        peer->first = note;
    }
    peer->last = note;
    ucx->moved = true;
    return keep ? UCS_INPROGRESS : UCS_OK;
}

static void arrived(lnt_ucx_t *ucx, lnt_ucx_note_t *note)
{
    const lnt_sink_t *sink = &ucx->params.sink;

    ucx->moved = true;
    sink->arrived(sink->arg, note->peer, &note->header, note->body);
    lnt_ucx_give_note(ucx, note);
}

static void on_fetched(void *request, ucs_status_t status, size_t bytes, void *arg)
{
    lnt_ucx_note_t *note = arg;
    lnt_ucx_t *ucx = note->ucx;

    ucx->in_flight--;
    if (request != NULL) {
        ucp_request_free(request);
    }
    if (status != UCS_OK || bytes != note->bytes) {
        lnt_ucx_break(ucx, note->peer, ucs_status_string(status));
        lnt_ucx_give_note(ucx, note);
        return;
    }
    arrived(ucx, note);
}

/* Brings the body to its place. */
static void fetch(lnt_ucx_t *ucx, lnt_ucx_note_t *note)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                 .cb.recv_am = on_fetched,
                                 .user_data = note};
    ucs_status_ptr_t request;

    if (!note->rendezvous) {
        if (note->bytes > 0) {
            memcpy(note->body, note->data, note->bytes);
        }
        if (note->data != NULL) {
            ucp_am_data_release(ucx->worker, note->data);
        }
        arrived(ucx, note);
        return;
    }
    ucx->in_flight++;
    request = ucp_am_recv_data_nbx(ucx->worker, note->data, note->body, note->bytes, &param);
    if (request == NULL || UCS_PTR_IS_ERR(request)) { /* finished at once: no callback */
        on_fetched(NULL, UCS_PTR_STATUS(request), note->bytes, note);
    }
}

/* First undelivered frame of one peer; false when there is none or the sink is not ready for it. */
static bool deliver_one(lnt_ucx_t *ucx, lnt_ucx_peer_t *peer)
{
    const lnt_sink_t *sink = &ucx->params.sink;
    lnt_ucx_note_t *note = peer->first;

    if (note == NULL || sink->locate(sink->arg, peer->rank, &note->header, &note->body) != LNT_OK) {
        return false; /* an error has been reported by the sink; the communicator is failing */
    }
    peer->first = note->next;
    if (peer->first == NULL) {
        peer->last = NULL;
    }
    note->next = NULL;
    fetch(ucx, note);
    return true;
}

bool lnt_ucx_deliver(lnt_ucx_t *ucx)
{
    bool any = false;

    for (uint32_t rank = 0; rank < ucx->params.n_ranks; rank++) {
        while (deliver_one(ucx, &ucx->peers[rank])) {
            any = true;
        }
    }
    return any;
}

void lnt_ucx_drop_notes(lnt_ucx_t *ucx)
{
    for (uint32_t rank = 0; rank < ucx->params.n_ranks; rank++) {
        lnt_ucx_peer_t *peer = &ucx->peers[rank];

        while (peer->first != NULL) {
            lnt_ucx_note_t *note = peer->first;

            peer->first = note->next;
            if (note->data != NULL) {
                ucp_am_data_release(ucx->worker, note->data);
            }
            lnt_ucx_give_note(ucx, note);
        }
        peer->last = NULL;
    }
}
