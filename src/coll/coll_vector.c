/* Vectors of flat collectives: segments, frames, and the way from elements to frames and back. */
#include "coll_vector.h"

#include <string.h>

#include "../base/error.h"
#include "../base/memory.h"

enum { PLAIN_BLOCK = 64, PHASE_DATA = 3 };

/* The last segment may take one more block than the others, a short one. */
static uint64_t largest_segment(const lnt_coll_vector_t *vector)
{
    const uint64_t most = (vector->segment_elems > vector->grid.block) ? vector->segment_elems : vector->grid.block;

    return (most < vector->grid.n_elems) ? most : vector->grid.n_elems;
}

lnt_status_t lnt_coll_vector_init(lnt_coll_vector_t *vector, const lnt_coll_vector_params_t *params)
{
    const lnt_extent_t extent = {0, 0, params->count};
    lnt_coll_vector_t made = {
        .coded = (params->codec != NULL), .dtype = params->dtype, .segment_elems = params->segment_elems};
    lnt_range_t all;

    made.elem_bytes = params->raw ? 1 : lnt_dtype_size(params->dtype);
    if (params->codec != NULL) {
        made.codec = *params->codec;
    } else {
        LNT_TRY(lnt_codec_init(&made.codec, lnt_dtype_name(params->dtype), 0, LNT_SCALE_L2));
    }
    LNT_TRY(lnt_grid_init(&made.grid, &extent, 1, made.coded ? made.codec.cfg.block : PLAIN_BLOCK, false));
    all = (lnt_range_t){0, made.grid.n_blocks};
    made.n_segments = lnt_layout_n_segments(&made.grid, all, made.segment_elems);
    made.segment_blocks = (made.n_segments > 0) ? lnt_layout_segment(&made.grid, all, 0, made.segment_elems).end : 0;
    if (made.dtype != LNT_F32) {
        made.tile = lnt_alloc_aligned(largest_segment(&made) * sizeof(float), "tile of a collective");
        if (made.tile == NULL) {
            lnt_grid_release(&made.grid);
            return LNT_ERR_NO_MEMORY;
        }
    }
    *vector = made;
    return LNT_OK;
}

void lnt_coll_vector_release(lnt_coll_vector_t *vector)
{
    lnt_free(vector->tile);
    lnt_grid_release(&vector->grid);
    vector->tile = NULL;
}

static lnt_range_t blocks_of(const lnt_coll_vector_t *vector, uint32_t segment)
{
    const lnt_range_t all = {0, vector->grid.n_blocks};

    return lnt_layout_segment(&vector->grid, all, segment * vector->segment_blocks, vector->segment_elems);
}

uint64_t lnt_coll_vector_begin(const lnt_coll_vector_t *vector, uint32_t segment)
{
    return lnt_grid_pos(&vector->grid, segment * vector->segment_blocks);
}

uint64_t lnt_coll_vector_count(const lnt_coll_vector_t *vector, uint32_t segment)
{
    return lnt_range_elems(&vector->grid, blocks_of(vector, segment));
}

static uint64_t payload_bytes(const lnt_coll_vector_t *vector, uint32_t segment)
{
    const lnt_range_t blocks = blocks_of(vector, segment);

    if (!vector->coded) {
        return lnt_range_elems(&vector->grid, blocks) * vector->elem_bytes;
    }
    return lnt_layout_scale_bytes(&vector->codec, &vector->grid, blocks) +
           lnt_layout_code_bytes(&vector->codec, &vector->grid, blocks);
}

uint32_t lnt_coll_vector_frames(const lnt_coll_vector_t *vector, lnt_graph_builder_t *builder, uint32_t source,
                                uint16_t part)
{
    uint32_t first = 0;

    for (uint32_t s = 0; s < vector->n_segments; ++s) {
        const lnt_frame_header_t header = {
            .phase = PHASE_DATA,
            .codec = (uint8_t)vector->codec.row->id,
            .chunk = part,
            .source = source,
            .segment = s,
            .block = vector->grid.block,
            .count = (uint32_t)lnt_coll_vector_count(vector, s),
        };
        uint32_t frame = lnt_graph_add_frame(builder, (uint32_t)payload_bytes(vector, s), 0);

        lnt_graph_set_header(builder, frame, &header);
        first = (s == 0) ? frame : first;
    }
    return first;
}

uint32_t lnt_coll_vector_recvs(const lnt_coll_vector_t *vector, lnt_graph_builder_t *builder, uint32_t first,
                               uint32_t source, uint16_t part)
{
    uint32_t first_task = 0;

    for (uint32_t s = 0; s < vector->n_segments; ++s) {
        uint32_t task = lnt_graph_add_recv(builder, first + s, source, lnt_graph_key(PHASE_DATA, 0, part, source, s));

        first_task = (s == 0) ? task : first_task;
    }
    return first_task;
}

/* Scales and codes of a frame. */
static uint8_t *codes_of(const lnt_coll_vector_t *vector, const lnt_graph_t *graph, uint32_t frame, uint32_t segment)
{
    uint64_t scales =
        vector->coded ? lnt_layout_scale_bytes(&vector->codec, &vector->grid, blocks_of(vector, segment)) : 0;

    return lnt_graph_payload(graph, frame) + scales;
}

void lnt_coll_vector_encode(const lnt_coll_vector_t *vector, lnt_graph_t *graph, uint32_t frame, uint32_t segment,
                            uint64_t seed, const void *elements)
{
    const uint64_t n = lnt_coll_vector_count(vector, segment), begin = lnt_coll_vector_begin(vector, segment);
    const uint8_t *first = (const uint8_t *)elements + begin * vector->elem_bytes;
    lnt_encode_in_t in = {.values = first, .dtype = vector->dtype, .n = n, .seed = seed, .index = begin};
    lnt_encode_out_t out = {.scales = lnt_graph_payload(graph, frame),
                            .codes = codes_of(vector, graph, frame, segment)};

    if (vector->coded) {
        vector->codec.ops.encode(&vector->codec.cfg, &in, &out);
    } else {
        memcpy(out.codes, first, n * vector->elem_bytes);
    }
    lnt_graph_header(graph, frame)->flags = out.poisoned ? LNT_FRAME_POISONED : 0;
}

void lnt_coll_vector_decode(const lnt_coll_vector_t *vector, const lnt_graph_t *graph, uint32_t frame, uint32_t segment,
                            float *out)
{
    vector->codec.ops.decode(&vector->codec.cfg, lnt_graph_payload(graph, frame),
                             codes_of(vector, graph, frame, segment), lnt_coll_vector_count(vector, segment), NULL,
                             out);
}

void lnt_coll_vector_add(const lnt_coll_vector_t *vector, const lnt_graph_t *graph, uint32_t frame, uint32_t segment,
                         float *sum)
{
    vector->codec.ops.decode_add(&vector->codec.cfg, lnt_graph_payload(graph, frame),
                                 codes_of(vector, graph, frame, segment), lnt_coll_vector_count(vector, segment), NULL,
                                 sum);
}

void lnt_coll_vector_store(const lnt_coll_vector_t *vector, uint32_t segment, const float *values, void *elements)
{
    const uint64_t n = lnt_coll_vector_count(vector, segment);
    uint8_t *first = (uint8_t *)elements + lnt_coll_vector_begin(vector, segment) * vector->elem_bytes;

    if ((const uint8_t *)values != first) {
        lnt_arrays()->narrow[vector->dtype](values, n, first);
    }
}

void lnt_coll_vector_restore(const lnt_coll_vector_t *vector, const lnt_graph_t *graph, uint32_t frame,
                             uint32_t segment, void *elements)
{
    uint8_t *first = (uint8_t *)elements + lnt_coll_vector_begin(vector, segment) * vector->elem_bytes;
    float *tile = (vector->dtype == LNT_F32) ? (float *)(void *)first : vector->tile;

    if (!vector->coded) {
        memcpy(first, lnt_graph_payload(graph, frame), lnt_coll_vector_count(vector, segment) * vector->elem_bytes);
        return;
    }
    lnt_coll_vector_decode(vector, graph, frame, segment, tile);
    lnt_coll_vector_store(vector, segment, tile, elements);
}
