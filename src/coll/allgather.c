/* All-gather: every rank encodes its vector once and sends the frames to all; afterwards everybody decodes the same
 * bytes, the source too. Every rank sees all frames, so their flags are the vote. */
#include "../base/error.h"
#include "../base/hash.h"
#include "coll.h"

/* Frame of a segment of a source. */
static uint32_t frame_of(const lnt_coll_t *coll, uint32_t source, uint32_t segment)
{
    return coll->first_frame + source * coll->vector.n_segments + segment;
}

static void encode(lnt_graph_t *graph, uint32_t task, uint64_t segment)
{
    const lnt_coll_t *coll = graph->owner;

    (void)task;
    lnt_coll_vector_encode(&coll->vector, graph, frame_of(coll, coll->args.rank, (uint32_t)segment), (uint32_t)segment,
                           lnt_hash64_u64(coll->seed, coll->args.rank), coll->input);
}

static void add_sends(lnt_coll_t *coll, lnt_graph_builder_t *builder)
{
    for (uint32_t s = 0; s < coll->vector.n_segments; ++s) {
        uint32_t made = lnt_graph_add_run(builder, encode, s);

        lnt_graph_set_elems(builder, made, lnt_coll_vector_count(&coll->vector, s));
        for (uint32_t r = 0; r < coll->args.topo->n_ranks; ++r) {
            if (r != coll->args.rank) {
                lnt_graph_add_edge(builder, made, lnt_graph_add_send(builder, frame_of(coll, coll->args.rank, s), r));
            }
        }
    }
}

static lnt_status_t init(lnt_coll_t *coll)
{
    lnt_graph_builder_t *builder;

    LNT_TRY(lnt_coll_init_vector(coll));
    LNT_TRY(lnt_graph_begin(&builder));
    for (uint32_t r = 0; r < coll->args.topo->n_ranks; ++r) {
        uint32_t first = lnt_coll_vector_frames(&coll->vector, builder, r, 0);

        if (r == 0) {
            coll->first_frame = first;
        }
        if (r != coll->args.rank) {
            lnt_coll_vector_recvs(&coll->vector, builder, first, r, 0);
        }
    }
    add_sends(coll, builder);
    return lnt_graph_finish(builder, &coll->own_graph, NULL);
}

static void finish(lnt_coll_t *coll)
{
    const uint64_t bytes = coll->args.count * coll->vector.elem_bytes;

    for (uint32_t r = 0; r < coll->args.topo->n_ranks; ++r) {
        uint8_t *output = (uint8_t *)coll->output + r * bytes;

        for (uint32_t s = 0; s < coll->vector.n_segments; ++s) {
            lnt_coll_vector_restore(&coll->vector, coll->graph, frame_of(coll, r, s), s, output);
        }
    }
}

const lnt_coll_row_t lnt_coll_allgather = {
    .name = "allgather",
    .doc = "every rank sends its vector to all others",
    .op = LNT_COLL_ALLGATHER,
    .min_ranks = 1,
    .init = init,
    .finish = finish,
};
