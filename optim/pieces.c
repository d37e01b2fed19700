/* Pieces of a tensor in a survey. */
#include "pieces.h"

lnt_status_t lnt_pieces_each(lnt_optim_t *optim, uint32_t program, uint32_t tensor, lnt_piece_fn_t each, void *arg)
{
    const lnt_optim_tensor_t *of = &optim->tensors[tensor];
    const uint64_t longest = LNT_SPAN_MAX / optim->read_block * optim->read_block;

    for (uint64_t offset = 0; offset < of->count; offset += longest) {
        lnt_piece_t piece = {.tensor = of,
                             .offset = offset,
                             .count = of->count - offset < longest ? of->count - offset : longest,
                             .at = of->base + offset,
                             .value = optim->scratch};
        LNT_TRY(lnt_plan_read(optim->plan, program, tensor, offset, piece.count, piece.value));
        each(optim, &piece, arg);
    }
    return LNT_OK;
}

void lnt_pieces_add_squares(const lnt_optim_t *optim, const float *values, uint64_t n, double *sum_p)
{
    for (uint64_t i = 0; i < n; i += optim->norm_block)
        *sum_p += lnt_arrays()->square_sum(values + i, n - i < optim->norm_block ? n - i : optim->norm_block);
}
