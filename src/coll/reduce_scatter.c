/* Reduce-scatter: phases 0 and 1 of the flat exchange. Rank q gets part q from everybody, its own part coded like the
 * others, and adds in rank order in f32, whatever the timing.
 *
 * A rank sees only the frames of its own part, so coded runs end with a vote: what a rank found in all its parts, and
 * in the sums of its own, travels in headers to all. They add inside the graph for that; plain runs add afterwards.
 */
#include "../base/error.h"
#include "../base/hash.h"
#include "../base/memory.h"
#include "coll.h"

/* Frame of a segment of a part that this rank makes, and of this rank's part as made by `source`. */
static uint32_t frame_made(const lnt_coll_t *coll, uint32_t part, uint32_t segment)
{
    return coll->first_frame + part * coll->vector.n_segments + segment;
}

static uint32_t frame_got(const lnt_coll_t *coll, uint32_t source, uint32_t segment)
{
    if (source == coll->args.rank) {
        return frame_made(coll, source, segment);
    }
    source -= (source > coll->args.rank) ? 1 : 0;
    return coll->first_recv + source * coll->vector.n_segments + segment;
}

/* arg: part * n_segments + segment, so the number of the frame behind the first. */
static void encode(lnt_graph_t *graph, uint32_t task, uint64_t arg)
{
    const lnt_coll_t *coll = graph->owner;
    const uint64_t part = arg / coll->vector.n_segments;
    const uint32_t segment = (uint32_t)(arg % coll->vector.n_segments);
    const uint8_t *input = (const uint8_t *)coll->input + part * coll->args.count * coll->vector.elem_bytes;

    (void)task;
    lnt_coll_vector_encode(&coll->vector, graph, frame_made(coll, (uint32_t)part, segment), segment,
                           lnt_hash64_u64(lnt_hash64_u64(coll->seed, coll->args.rank), part), input);
}

/* Same arithmetic as a server of the exchange: sum from the first on, then one product. */
static void reduce(const lnt_coll_t *coll, uint32_t segment, float *sum)
{
    const uint64_t n = lnt_coll_vector_count(&coll->vector, segment);
    const float factor = (float)(1.0 / coll->args.topo->n_ranks);

    lnt_coll_vector_decode(&coll->vector, coll->graph, frame_got(coll, 0, segment), segment, sum);
    for (uint32_t r = 1; r < coll->args.topo->n_ranks; ++r) {
        lnt_coll_vector_add(&coll->vector, coll->graph, frame_got(coll, r, segment), segment, sum);
    }
    if (coll->args.redop == LNT_MEAN) {
        (void)lnt_arrays()->scale(sum, n, factor); /* what is not finite: add_up, or it passes on */
    }
}

static float *sums_of(const lnt_coll_t *coll, uint32_t segment)
{
    return coll->tile + lnt_coll_vector_begin(&coll->vector, segment);
}

/* Coded runs. A sum that is too large is told through this rank's own frame of the segment, which stays here. */
static void add_up(lnt_graph_t *graph, uint32_t task, uint64_t arg)
{
    const lnt_coll_t *coll = graph->owner;
    const uint32_t segment = (uint32_t)arg;
    float *sum = sums_of(coll, segment);

    (void)task;
    reduce(coll, segment, sum);
    if (!lnt_arrays()->fits[coll->args.dtype](sum, lnt_coll_vector_count(&coll->vector, segment))) {
        lnt_graph_header(graph, frame_made(coll, coll->args.rank, segment))->flags |= LNT_FRAME_POISONED;
    }
}

static void vote(lnt_graph_t *graph, uint32_t task, uint64_t arg)
{
    const lnt_coll_t *coll = graph->owner;
    const uint32_t n = coll->args.topo->n_ranks * coll->vector.n_segments;
    uint8_t flags = 0;

    (void)task;
    (void)arg;
    for (uint32_t f = 0; f < n; ++f) {
        flags |= lnt_graph_header(graph, coll->first_frame + f)->flags;
    }
    lnt_graph_header(graph, coll->vote_frame)->flags = flags;
}

/* Returns the first RECV task; the others follow it, source by source. */
static uint32_t add_frames(lnt_coll_t *coll, lnt_graph_builder_t *builder)
{
    uint32_t first_task = 0;
    bool first = true;

    for (uint32_t q = 0; q < coll->args.topo->n_ranks; ++q) {
        uint32_t made = lnt_coll_vector_frames(&coll->vector, builder, coll->args.rank, (uint16_t)q);

        coll->first_frame = (q == 0) ? made : coll->first_frame;
    }
    for (uint32_t q = 0; q < coll->args.topo->n_ranks; ++q) {
        if (q != coll->args.rank) {
            uint32_t got = lnt_coll_vector_frames(&coll->vector, builder, q, (uint16_t)coll->args.rank);
            uint32_t task = lnt_coll_vector_recvs(&coll->vector, builder, got, q, (uint16_t)coll->args.rank);

            coll->first_recv = first ? got : coll->first_recv;
            first_task = first ? task : first_task;
            first = false;
        }
    }
    return first_task;
}

/* Encodes, and what is sent of it. Returns the first RUN task; number i makes frame i. Sends follow in tasks of their
 * own. */
static uint32_t add_encodes(lnt_coll_t *coll, lnt_graph_builder_t *builder)
{
    const uint32_t n = coll->args.topo->n_ranks * coll->vector.n_segments;
    uint32_t first = 0;

    for (uint32_t i = 0; i < n; ++i) {
        uint32_t made = lnt_graph_add_run(builder, encode, i);

        lnt_graph_set_elems(builder, made, lnt_coll_vector_count(&coll->vector, i % coll->vector.n_segments));
        first = (i == 0) ? made : first;
    }
    for (uint32_t i = 0; i < n; ++i) {
        const uint32_t part = i / coll->vector.n_segments;

        if (part != coll->args.rank) {
            lnt_graph_add_edge(builder, first + i, lnt_graph_add_send(builder, coll->first_frame + i, part));
        }
    }
    return first;
}

/* Sums of the own part as soon as its frames are here, then the vote. */
static void add_vote(lnt_coll_t *coll, lnt_graph_builder_t *builder, uint32_t first_recv, uint32_t first_encode)
{
    const uint32_t n_segments = coll->vector.n_segments, n_ranks = coll->args.topo->n_ranks;
    const uint32_t vote_task = lnt_graph_add_run(builder, vote, 0);

    for (uint32_t i = 0; i < n_ranks * n_segments; ++i) {
        lnt_graph_add_edge(builder, first_encode + i, vote_task);
    }
    for (uint32_t s = 0; s < n_segments; ++s) {
        const uint32_t sum = lnt_graph_add_run(builder, add_up, s);

        lnt_graph_set_elems(builder, sum, lnt_coll_vector_count(&coll->vector, s));
        lnt_graph_add_edge(builder, first_encode + coll->args.rank * n_segments + s, sum);
        for (uint32_t q = 0; q + 1 < n_ranks; ++q) {
            lnt_graph_add_edge(builder, first_recv + q * n_segments + s, sum);
        }
        lnt_graph_add_edge(builder, sum, vote_task);
    }
    coll->vote_frame = lnt_coll_add_vote(builder, &coll->args, &vote_task);
}

static lnt_status_t init(lnt_coll_t *coll)
{
    lnt_graph_builder_t *builder;
    uint32_t first_recv, first_encode;

    LNT_TRY(lnt_coll_init_vector(coll));
    if (coll->args.coded && (coll->args.count > 0)) {
        coll->tile = lnt_alloc_aligned(coll->args.count * sizeof(float), "sums of a reduce-scatter");
        if (coll->tile == NULL) {
            return LNT_ERR_NO_MEMORY;
        }
    }
    LNT_TRY(lnt_graph_begin(&builder));
    first_recv = add_frames(coll, builder);
    first_encode = add_encodes(coll, builder);
    if (coll->tile != NULL) {
        add_vote(coll, builder, first_recv, first_encode);
    }
    return lnt_graph_finish(builder, &coll->own_graph, NULL);
}

static void finish(lnt_coll_t *coll)
{
    for (uint32_t s = 0; s < coll->vector.n_segments; ++s) {
        float *sum = coll->vector.tile;

        if (coll->tile != NULL) {
            sum = sums_of(coll, s);
        } else {
            if (sum == NULL) {
                sum = (float *)coll->output + lnt_coll_vector_begin(&coll->vector, s);
            }
            reduce(coll, s, sum);
        }
        lnt_coll_vector_store(&coll->vector, s, sum, coll->output);
    }
}

const lnt_coll_row_t lnt_coll_reduce_scatter = {
    .name = "reduce_scatter",
    .doc = "rank q gets the mean or sum of part q over all ranks",
    .op = LNT_COLL_REDUCE_SCATTER,
    .min_ranks = 1,
    .init = init,
    .finish = finish,
};
