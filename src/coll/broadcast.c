/* Broadcast: the root encodes and sends to all; everybody decodes the same bytes, the root too, and sees all flags. */
#include "../base/error.h"
#include "coll.h"

static void encode(lnt_graph_t *graph, uint32_t task, uint64_t segment)
{
    const lnt_coll_t *coll = graph->owner;

    (void)task;
    lnt_coll_vector_encode(&coll->vector, graph, coll->first_frame + (uint32_t)segment, (uint32_t)segment, coll->seed,
                           coll->output);
}

static void add_root(lnt_coll_t *coll, lnt_graph_builder_t *builder)
{
    for (uint32_t s = 0; s < coll->vector.n_segments; ++s) {
        uint32_t made = lnt_graph_add_run(builder, encode, s);

        lnt_graph_set_elems(builder, made, lnt_coll_vector_count(&coll->vector, s));
        for (uint32_t r = 0; r < coll->args.topo->n_ranks; ++r) {
            if (r != coll->args.root) {
                lnt_graph_add_edge(builder, made, lnt_graph_add_send(builder, coll->first_frame + s, r));
            }
        }
    }
}

static lnt_status_t init(lnt_coll_t *coll)
{
    lnt_graph_builder_t *builder;

    LNT_TRY(lnt_coll_init_vector(coll));
    LNT_TRY(lnt_graph_begin(&builder));
    coll->first_frame = lnt_coll_vector_frames(&coll->vector, builder, coll->args.root, 0);
    if (coll->args.rank == coll->args.root) {
        add_root(coll, builder);
    } else {
        lnt_coll_vector_recvs(&coll->vector, builder, coll->first_frame, coll->args.root, 0);
    }
    return lnt_graph_finish(builder, &coll->own_graph, NULL);
}

static void finish(lnt_coll_t *coll)
{
    for (uint32_t s = 0; s < coll->vector.n_segments; ++s) {
        lnt_coll_vector_restore(&coll->vector, coll->graph, coll->first_frame + s, s, coll->output);
    }
}

const lnt_coll_row_t lnt_coll_broadcast = {
    .name = "broadcast",
    .doc = "the root sends its vector to all others",
    .op = LNT_COLL_BROADCAST,
    .min_ranks = 1,
    .init = init,
    .finish = finish,
};
