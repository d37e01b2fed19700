/* The one summation order: 128 virtual lanes in f64, and the tree that combines them.
 *
 * Element i of a block belongs to lane i mod 128 and is added in increasing i. Then lanes 4l..4l+3 are combined
 * ((0 + 1) + (2 + 3)) and the 32 groups are halved (16, 8, 4, 2, 1): the order of a warp that reads float4, and one
 * that every vector width can follow. The f64 product of two f32 is exact, so contraction could not change a square.
 */
#ifndef LNT_REDUCE_TREE_H
#define LNT_REDUCE_TREE_H

#include "lnt_hd.h"

enum { LNT_TREE_LANES = 128, LNT_TREE_GROUPS = 32 };

LNT_HD double lnt_tree_combine(const double *lanes)
{
    double groups[LNT_TREE_GROUPS];
    for (int l = 0; l < LNT_TREE_GROUPS; l++) {
        const double *lane = lanes + 4 * l;
        groups[l] = (lane[0] + lane[1]) + (lane[2] + lane[3]);
    }
    for (int half = LNT_TREE_GROUPS / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            groups[l] += groups[l + half];
    return groups[0];
}

#endif
