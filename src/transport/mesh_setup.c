/* Rounds that every rank takes part in: the exchange of set-up messages, and votes.
 *
 * A round always runs to its end on every rank, with a refusal in place of what a rank could not prepare, so that all
 * ranks stay in step and the vote that follows can tell everybody. Only a lost peer or the deadline ends it early.
 */
#include <stdio.h>
#include <string.h>

#include "../base/clock.h"
#include "../base/error.h"
#include "mesh_internal.h"

typedef struct mesh_round {
    lnt_msg_kind_t kind;
    const char *doing;
    void *arg;
    void (*got)(void *arg, lnt_mesh_t *mesh, lnt_mesh_link_t *link, const lnt_msg_header_t *header, const void *body);
} mesh_round_t;

/* Outstanding in this round: its message, or room for ours. */
static bool is_outstanding(const lnt_mesh_link_t *link)
{
    return link->awaited || lnt_mesh_link_pending(link);
}

static void begin_round(lnt_mesh_t *mesh)
{
    for (uint32_t i = 0; i < mesh->n_links; i++) {
        mesh->links[i].awaited = (i != mesh->me.rank);
    }
}

static void out_of_step(lnt_mesh_t *mesh, lnt_mesh_link_t *link, const mesh_round_t *round)
{
    lnt_error_info_t record;

    lnt_error_fill(&record, LNT_ERR_MISMATCH, "all ranks must create the communicator with the same settings",
                   "rank %u is in another set-up step than this rank (%s)", link->peer, round->doing);
    record.rank = mesh->me.rank;
    record.peer = link->peer;
    lnt_mesh_fail(mesh, &record);
}

static void take_message(lnt_mesh_t *mesh, lnt_mesh_link_t *link, const mesh_round_t *round)
{
    lnt_msg_header_t header;

    memcpy(&header, link->in, sizeof(header));
    if (header.kind != round->kind) {
        out_of_step(mesh, link, round);
        return;
    }
    link->awaited = false;
    round->got(round->arg, mesh, link, &header, link->in + sizeof(header));
    lnt_mesh_link_release(mesh, link);
}

/* Take what lies ready; true when nothing is outstanding, in or out. */
static bool round_done(lnt_mesh_t *mesh, const mesh_round_t *round)
{
    bool done = true;

    for (uint32_t i = 0; (i < mesh->n_links) && !mesh->failed; i++) {
        lnt_mesh_link_t *link = &mesh->links[i];

        if (link->awaited && link->held) {
            take_message(mesh, link, round);
        }
        if (link->awaited && (link->state == LNT_LINK_GONE)) {
            lnt_mesh_link_lost(mesh, link, "it left the communicator during set-up");
        }
        done &= !is_outstanding(link);
    }
    return done;
}

static lnt_status_t run_round(lnt_mesh_t *mesh, const mesh_round_t *round, uint32_t timeout_ms)
{
    const uint64_t ns_per_ms = 1000 * 1000;
    const uint64_t nap_ms = 100; /* events end it at once; the bound is for the deadline */
    uint64_t deadline = lnt_now_ns() + timeout_ms * ns_per_ms;

    while (!mesh->failed && !round_done(mesh, round)) {
        uint64_t now = lnt_now_ns(), left_ms;

        if (now >= deadline) {
            lnt_mesh_fail_timeout(mesh, round->doing, is_outstanding, timeout_ms);
            break;
        }
        left_ms = (deadline - now) / ns_per_ms + 1;
        (void)lnt_mesh_poll(mesh, (int)((left_ms < nap_ms) ? left_ms : nap_ms));
    }
    return mesh->failed ? lnt_mesh_report(mesh) : LNT_OK;
}

/* Exchange. */

typedef struct exchange_state {
    const lnt_mesh_setup_t *setup;
    lnt_status_t status; /* first error of this rank or told by a peer */
    lnt_error_info_t error;
} exchange_state_t;

static void keep_error(exchange_state_t *state, lnt_status_t status)
{
    if ((status < 0) && (state->status == LNT_OK)) {
        state->status = status;
        state->error = *lnt_last_error();
    }
}

static void got_setup(void *arg, lnt_mesh_t *mesh, lnt_mesh_link_t *link, const lnt_msg_header_t *header,
                      const void *body)
{
    exchange_state_t *state = arg;
    size_t n_fds = link->n_in_fds;

    (void)mesh;
    if (header->refused) {
        keep_error(state, lnt_error(LNT_ERR_TRANSPORT, "see that rank's log", "rank %u failed in set-up: %.*s",
                                    link->peer, (int)header->bytes, (const char *)body));
        return;
    }
    link->n_in_fds = 0; /* they are the callback's now */
    keep_error(state, state->setup->in(state->setup->arg, link->peer, body, header->bytes, link->in_fds, n_fds));
}

static void send_setup(lnt_mesh_t *mesh, lnt_mesh_link_t *link, exchange_state_t *state)
{
    unsigned char body[LNT_MESH_SETUP_BYTES];
    int fds[LNT_MESH_SETUP_FDS] = {-1, -1, -1, -1};
    size_t bytes = 0, n_fds = 0;
    lnt_msg_header_t header = {.kind = LNT_MSG_SETUP};
    lnt_status_t status = state->setup->out(state->setup->arg, link->peer, body, &bytes, fds, &n_fds);

    if ((status >= 0) && ((bytes > sizeof(body)) || (n_fds > LNT_MESH_SETUP_FDS))) {
        status = lnt_error(LNT_ERR_INTERNAL, NULL, "a set-up message of %zu bytes and %zu descriptors is too large",
                           bytes, n_fds);
    }
    if (status < 0) {
        keep_error(state, status);
        header.refused = 1;
        n_fds = 0;
        bytes = (size_t)snprintf((char *)body, sizeof(body), "%s", lnt_last_error()->cause);
    }
    header.bytes = (uint32_t)bytes;
    header.n_fds = (uint16_t)n_fds;
    (void)lnt_mesh_link_queue(mesh, link, &header, body, fds); /* a dead link shows when it is read */
}

lnt_status_t lnt_mesh_exchange(lnt_mesh_t *mesh, const lnt_mesh_setup_t *setup, uint32_t timeout_ms)
{
    exchange_state_t state = {.setup = setup, .status = LNT_OK};
    mesh_round_t round = {
        .kind = LNT_MSG_SETUP, .doing = "exchanging set-up messages", .arg = &state, .got = got_setup};

    LNT_CHECK_ARG((mesh != NULL) && (setup != NULL) && (mesh->links != NULL));
    begin_round(mesh);
    for (uint32_t i = 0; (i < mesh->n_links) && !mesh->failed; i++) {
        if (mesh->links[i].state == LNT_LINK_UP) {
            send_setup(mesh, &mesh->links[i], &state);
        }
    }
    LNT_TRY(run_round(mesh, &round, timeout_ms));
    return (state.status < 0) ? lnt_error_restore(&state.error) : LNT_OK;
}

/* Vote. */

typedef struct vote_state {
    int64_t objector; /* smallest rank that passed an error, -1: none */
    lnt_msg_vote_t objection;
} vote_state_t;

static void got_vote(void *arg, lnt_mesh_t *mesh, lnt_mesh_link_t *link, const lnt_msg_header_t *header,
                     const void *body)
{
    vote_state_t *state = arg;
    lnt_msg_vote_t vote;

    (void)mesh;
    (void)header;
    memcpy(&vote, body, sizeof(vote));
    if ((vote.status >= 0) || ((state->objector >= 0) && (state->objector < link->peer))) {
        return;
    }
    vote.cause[LNT_ERROR_TEXT_MAX - 1] = '\0';
    vote.cure[LNT_ERROR_TEXT_MAX - 1] = '\0';
    state->objector = link->peer;
    state->objection = vote;
}

static void send_votes(lnt_mesh_t *mesh, lnt_status_t mine, const lnt_error_info_t *error)
{
    lnt_msg_header_t header = {.kind = LNT_MSG_VOTE, .bytes = sizeof(lnt_msg_vote_t)};
    lnt_msg_vote_t vote = {.status = (int32_t)mine};

    if (mine < 0) {
        memcpy(vote.cause, error->cause, sizeof(vote.cause));
        memcpy(vote.cure, error->cure, sizeof(vote.cure));
    }
    for (uint32_t i = 0; (i < mesh->n_links) && !mesh->failed; i++) {
        if (mesh->links[i].state == LNT_LINK_UP) {
            (void)lnt_mesh_link_queue(mesh, &mesh->links[i], &header, &vote, NULL);
        }
    }
}

lnt_status_t lnt_mesh_vote(lnt_mesh_t *mesh, lnt_status_t mine, uint32_t timeout_ms)
{
    vote_state_t state = {.objector = -1};
    mesh_round_t round = {.kind = LNT_MSG_VOTE, .doing = "agreeing on the set-up", .arg = &state, .got = got_vote};
    lnt_error_info_t own = *lnt_last_error();
    lnt_status_t status;

    LNT_CHECK_ARG((mesh != NULL) && (mesh->links != NULL));
    begin_round(mesh);
    send_votes(mesh, mine, &own);
    status = run_round(mesh, &round, timeout_ms);
    if (mine < 0) {
        (void)lnt_error_restore(&own); /* this rank knows its own trouble best */
        return mine;
    }
    LNT_TRY(status);
    if (state.objector < 0) {
        return LNT_OK;
    }
    status = lnt_error((lnt_status_t)state.objection.status, state.objection.cure, "rank %lld: %s",
                       (long long)state.objector, state.objection.cause);
    lnt_error_mutable()->peer = state.objector;
    return status;
}
