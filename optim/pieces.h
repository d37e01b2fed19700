/* What a survey reads: the decoded values of one tensor, piece by piece into scratch, and f64 sums of squares over
 * blocks, added in block order: the same for every bucketing.
 */
#ifndef LNT_PIECES_H
#define LNT_PIECES_H

#include "optim_impl.h"

typedef struct lnt_piece {
    const lnt_optim_tensor_t *tensor;
    uint64_t offset, count; /* in the tensor; begins at a block border */
    uint64_t at;            /* first element in the state's arrays */
    float *value;           /* [count], in optim->scratch: may be overwritten */
} lnt_piece_t;

typedef void (*lnt_piece_fn_t)(lnt_optim_t *optim, const lnt_piece_t *piece, void *arg);

/* Inside a survey of `program`. Elements that the program does not carry hold anything. */
lnt_status_t lnt_pieces_each(lnt_optim_t *optim, uint32_t program, uint32_t tensor, lnt_piece_fn_t each, void *arg);

/* *sum_p += sums of squares of the blocks of a piece. */
void lnt_pieces_add_squares(const lnt_optim_t *optim, const float *values, uint64_t n, double *sum_p);

/* What gradients are multiplied by in this step; exact where nothing is clipped. */
static inline float lnt_pieces_clip(const lnt_optim_t *optim)
{
    return optim->clipped ? optim->clip_scale : 1.0f;
}

#endif
