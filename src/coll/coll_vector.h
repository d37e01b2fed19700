/* One vector of a flat collective: `count` elements of one source, cut into blocks from its first element and into
 * segments at block borders, one frame per segment. Without a codec a frame holds the elements as they are.
 *
 * Segments are equal but for the last, so nothing is stored per segment.
 */
#ifndef LNT_COLL_VECTOR_H
#define LNT_COLL_VECTOR_H

#include "graph.h"
#include "layout.h"

typedef struct lnt_coll_vector {
    lnt_grid_t grid;
    lnt_codec_t codec; /* of the frames; where not coded, the one that reads elements of the dtype */
    bool coded;
    lnt_dtype_t dtype; /* of the caller's elements */
    size_t elem_bytes; /* of them; 1 where they are bytes */
    uint64_t segment_elems;
    uint64_t segment_blocks;
    uint32_t n_segments;
    float *tile; /* one segment in f32, where results need a conversion; else NULL */
} lnt_coll_vector_t;

typedef struct lnt_coll_vector_params {
    uint64_t count;
    lnt_dtype_t dtype;
    bool raw;                 /* elements are bytes */
    const lnt_codec_t *codec; /* NULL: not coded */
    uint64_t segment_elems;
} lnt_coll_vector_params_t;

lnt_status_t lnt_coll_vector_init(lnt_coll_vector_t *vector, const lnt_coll_vector_params_t *params);
void lnt_coll_vector_release(lnt_coll_vector_t *vector);

/* First element and number of elements of a segment. */
uint64_t lnt_coll_vector_begin(const lnt_coll_vector_t *vector, uint32_t segment);
uint64_t lnt_coll_vector_count(const lnt_coll_vector_t *vector, uint32_t segment);

/* Adds the frames of a vector that `source` makes for `part` (0 where it goes to all); returns the number of the first.
 */
uint32_t lnt_coll_vector_frames(const lnt_coll_vector_t *vector, lnt_graph_builder_t *builder, uint32_t source,
                                uint16_t part);
/* Adds a RECV for every frame from `first` on; returns the task of the first, the others follow it. */
uint32_t lnt_coll_vector_recvs(const lnt_coll_vector_t *vector, lnt_graph_builder_t *builder, uint32_t first,
                               uint32_t source, uint16_t part);

/* Elements -> frame, with its flags. `elements` is the whole vector; no two vectors of a run have the same seed. */
void lnt_coll_vector_encode(const lnt_coll_vector_t *vector, lnt_graph_t *graph, uint32_t frame, uint32_t segment,
                            uint64_t seed, const void *elements);
/* Frame -> f32 values of the segment: stored, or added to what is there. */
void lnt_coll_vector_decode(const lnt_coll_vector_t *vector, const lnt_graph_t *graph, uint32_t frame, uint32_t segment,
                            float *out);
void lnt_coll_vector_add(const lnt_coll_vector_t *vector, const lnt_graph_t *graph, uint32_t frame, uint32_t segment,
                         float *sum);
/* Frame -> elements of the whole vector at `elements`. */
void lnt_coll_vector_restore(const lnt_coll_vector_t *vector, const lnt_graph_t *graph, uint32_t frame,
                             uint32_t segment, void *elements);
/* f32 values of a segment -> elements of the whole vector. */
void lnt_coll_vector_store(const lnt_coll_vector_t *vector, uint32_t segment, const float *values, void *elements);

#endif
