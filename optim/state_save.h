/* A save as a whole: the blobs of all ranks of the world that wrote it, checked against each other. What a state
 * becomes in another world is computed from this, by pure functions: the same for lnt_optim_state_import_world and
 * linnet-ckpt.
 */
#ifndef LNT_STATE_SAVE_H
#define LNT_STATE_SAVE_H

#include "state_format.h"

/* A saved extent and where its values lie (any alignment of 4). */
typedef struct lnt_state_piece {
    lnt_state_extent_t extent;
    const uint8_t *values;
} lnt_state_piece_t;

typedef struct lnt_state_save {
    lnt_state_blob_t *blobs; /* [world], in order of ranks; payloads lie in the caller's bytes */
    uint32_t world, n_tensors;
    const lnt_optim_row_t *row; /* of the algorithm, NULL if this library does not know it */
    bool sparse;                /* errors that are not listed are zero */
    uint64_t *counts;           /* [n_tensors] elements */
    lnt_state_piece_t *pieces; /* of all ranks; sorted by program, tensor, worker before server, codec worker, offset */
    size_t n_pieces;
    uint32_t workers[LNT_PROGRAMS_MAX]; /* codec workers of a program */
    uint32_t programs;                  /* that have pieces */
} lnt_state_save_t;

/* LNT_ERR_CORRUPT, LNT_ERR_VERSION, or LNT_ERR_STATE_MISMATCH when a rank's blob is missing, given twice or of another
 * save. The blobs may come in any order. Nothing to close after a failure. */
lnt_status_t lnt_state_save_open(const void *const *blobs, const uint64_t *bytes, uint32_t n, lnt_state_save_t *save_p);
void lnt_state_save_close(lnt_state_save_t *save);

/* Pieces of one tensor in one program: [*first_p, *end_p). */
void lnt_state_pieces_of(const lnt_state_save_t *save, uint32_t program, uint32_t tensor, size_t *first_p,
                         size_t *end_p);

/* Sums over elements of E + (1/K) sum of e, in f64: as saved, and rounded to f32 as it is in another world; the sums of
 * magnitudes and squares of the former. */
typedef struct lnt_state_mass {
    double before, after, magnitude, squares;
} lnt_state_mass_t;

/* The server error of elements of a tensor in a world of other nodes: fl(E + (1/K) sum of e), e in the order of nodes,
 * in f64, rounded once; worker errors are zero there. sums: room for the tensor; *mass_p grows; out may be NULL. */
void lnt_state_residual(const lnt_state_save_t *save, uint32_t program, uint32_t tensor, double *sums, float *out,
                        lnt_state_mass_t *mass_p);

/* Saved errors are finite, but their sum in another world may overflow: LNT_ERR_CORRUPT, reported, names the element.
 * `offset`: of values[0] in the tensor. */
lnt_status_t lnt_state_sums_check(const float *values, uint64_t n, uint32_t program, uint32_t tensor, uint64_t offset);

/* The same sums for all of a save, as it is. sums: room for the longest tensor. */
lnt_state_mass_t lnt_state_total_mass(const lnt_state_save_t *save, double *sums);
uint64_t lnt_state_longest(const lnt_state_save_t *save); /* elements of the longest tensor */

/* A section that differs between ranks, in another world: the mean over ranks, in their order, in f64, rounded once;
 * for masks, what any rank has. size: bytes of an element, 1, 4 (f32) or 8 (f64). Elements [first, first + n). */
void lnt_state_mean(const lnt_state_save_t *save, const char *section, size_t size, uint64_t first, uint64_t n,
                    void *out);
size_t lnt_state_local_size(const lnt_state_save_t *save, const char *section); /* of an element; 0: not local */

/* The blob of one rank of another world; nodes[n_ranks] numbered by their smallest rank. blob NULL: only *bytes_p. */
lnt_status_t lnt_state_repartition(const lnt_state_save_t *save, uint32_t n_ranks, const uint32_t *nodes, uint32_t rank,
                                   void *blob, uint64_t *bytes_p);
/* Is it the map of the world that saved? Then nothing changes. */
bool lnt_state_same_nodes(const lnt_state_save_t *save, uint32_t n_ranks, const uint32_t *nodes);

#endif
