/* Barrier: a header without payload from every rank to every other. The same frames serve as a vote elsewhere. */
#include "../base/error.h"
#include "coll.h"

enum { PHASE_DATA = 3, VOTE_CHUNK = UINT16_MAX }; /* no part has this number: there are at most 65535 ranks */

static uint32_t add_header(lnt_graph_builder_t *builder, uint32_t source)
{
    const lnt_frame_header_t header = {.phase = PHASE_DATA, .chunk = VOTE_CHUNK, .source = source};
    uint32_t frame = lnt_graph_add_frame(builder, 0, 0);

    lnt_graph_set_header(builder, frame, &header);
    return frame;
}

uint32_t lnt_coll_add_vote(lnt_graph_builder_t *builder, const lnt_coll_args_t *args, const uint32_t *gate)
{
    const uint32_t own = add_header(builder, args->rank);

    for (uint32_t r = 0; r < args->topo->n_ranks; ++r) {
        if (r != args->rank) {
            uint32_t sent = lnt_graph_add_send(builder, own, r);

            if (gate != NULL) {
                lnt_graph_add_edge(builder, *gate, sent);
            }
            lnt_graph_add_recv(builder, add_header(builder, r), r, lnt_graph_key(PHASE_DATA, 0, VOTE_CHUNK, r, 0));
        }
    }
    return own;
}

static lnt_status_t init(lnt_coll_t *coll)
{
    lnt_graph_builder_t *builder;

    LNT_TRY(lnt_graph_begin(&builder));
    lnt_coll_add_vote(builder, &coll->args, NULL);
    return lnt_graph_finish(builder, &coll->own_graph, NULL);
}

const lnt_coll_row_t lnt_coll_barrier = {
    .name = "barrier",
    .doc = "nobody leaves before all have come",
    .op = LNT_COLL_BARRIER,
    .min_ranks = 1,
    .init = init,
};
