/* Right kernels over everything the layer plays, and their launchers. Pointers are device memory.
 */
#ifndef LNT_TESTS_RIGHT_KERNELS_H
#define LNT_TESTS_RIGHT_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include <linnet/status.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { RIGHT_BLOCK = 128, RIGHT_SHUFFLES = 4, RIGHT_VOTES = 12, RIGHT_INTRINSICS = 12, RIGHT_TILE = 8 };

/* The sum of one block of values in the order of kernels/reduce_tree.h, by warps, then over warps: 4 warps. */
lnt_status_t right_tree_sum(const double *lanes, double *sums, size_t n_blocks, void *stream);
/* out bit i = (values[i] < 0), 32 to a word. */
lnt_status_t right_ballot_pack(const float *values, uint32_t *words, size_t n, void *stream);
/* sums += values by float4 where both are aligned, the rest one by one. */
lnt_status_t right_add(float *sums, const float *values, size_t n, void *stream);
/* Counts of bytes, by a histogram in dynamic shared memory of each block. */
lnt_status_t right_histogram(const uint8_t *bytes, size_t n, unsigned *counts, void *stream);
/* results[0] sum, [1] maximum, [2] minimum, [3] and, [4] or, [5] xor, [6] sum by a loop of compare and exchange, [7]
 * how often the exchange chain passed values on. */
lnt_status_t right_atomics(const unsigned *values, size_t n, unsigned *results, float *float_sum, double *double_sum,
                           void *stream);
/* All four shuffles of 64-bit values in every width: results[(kind * 6 + log2(width)) * 32 + lane]. */
lnt_status_t right_shuffles(const uint64_t *values, unsigned operand, uint64_t *results, void *stream);
/* The same of floats and doubles, width 32 by the operand, XOR: floats[lane], doubles[lane]. */
lnt_status_t right_float_shuffles(const double *values, unsigned operand, float *floats, double *doubles, void *stream);
/* Lanes of a warp split by value mod 3; each group reduces among itself by a mask. sums[thread] of its group. */
lnt_status_t right_submasks(const unsigned *values, unsigned *sums, unsigned n_threads, void *stream);
/* match, reductions, votes of warp and block, RIGHT_VOTES words for each of n_threads of one block. */
lnt_status_t right_votes(const unsigned *values, unsigned *results, unsigned n_threads, void *stream);
/* out[column][row] = in[row][column] through a tile in shared memory; blocks and grids of two dimensions. */
lnt_status_t right_transpose(const int *in, int *out, unsigned rows, unsigned columns, void *stream);
/* RIGHT_INTRINSICS words for each of n pairs. */
lnt_status_t right_intrinsics(const uint32_t *pairs, size_t n, uint32_t *results, void *stream);
/* To f16 and bf16 and back: codes[2 i], codes[2 i + 1] and values likewise. */
lnt_status_t right_conversions(const float *in, size_t n, uint16_t *codes, float *values, void *stream);
/* The sum of all values by the block that finishes last; *n_done must be 0 before. */
lnt_status_t right_last_block(const unsigned *values, size_t n, unsigned *partial, unsigned *n_done, unsigned *sum,
                              void *stream);
/* One int8 block of 256 to a warp: shared arithmetic of kernels/int8_math.h. */
lnt_status_t right_quantise(const float *values, size_t n_blocks, float *scales, int8_t *codes, void *stream);
/* More dynamic shared memory than a kernel has without asking. */
lnt_status_t right_large_shared(unsigned *out, size_t bytes, void *stream);
/* Threads that return before the others meet at a barrier, which LNT_EMU_STRICT=0 lets pass. */
lnt_status_t right_if_relaxed(unsigned *out, void *stream);

#ifdef __cplusplus
}
#endif
#endif
