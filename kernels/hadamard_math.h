/* The rotation of int4_hadamard: the 32-point Walsh-Hadamard transform without its factor, as five stages of f32
 * additions and subtractions. It spreads a large element over its group, so that the scale of a block follows the
 * group's norm and not its peak; applied twice it multiplies by 32.
 *
 * The order is part of the format, because f32 sums round: stages with distance 1, 2, 4, 8, 16; in each, elements i and
 * i + distance (i without that bit) become x[i] + x[i + distance] and x[i] - x[i + distance]. Only whole groups whose
 * elements all live are rotated, which every rank knows: a dead element must neither leak in nor get a share.
 */
#ifndef LNT_HADAMARD_MATH_H
#define LNT_HADAMARD_MATH_H

#include "int4_math.h"

#define LNT_HADAMARD_GROUP 32
#define LNT_HADAMARD_INVERSE 0.03125f /* 1 / 32: what undoes a second rotation */

/* One stage as the lane of one element sees it: `other` is the value of lane ^ distance. */
LNT_HD float lnt_hadamard_stage(float mine, float other, uint32_t lane, uint32_t distance)
{
    return lane & distance ? other - mine : mine + other;
}

/* All stages over a group, in place: the same additions as lnt_hadamard_stage in 32 lanes. */
LNT_HD void lnt_hadamard_rotate(float *group)
{
    for (int distance = 1; distance < LNT_HADAMARD_GROUP; distance *= 2)
        for (int first = 0; first < LNT_HADAMARD_GROUP; first += 2 * distance)
            for (int i = first; i < first + distance; i++) {
                float low = group[i], high = group[i + distance];
                group[i] = low + high;
                group[i + distance] = low - high;
            }
}

/* Is the group from element i on (a multiple of 32, counted from the start of its block) of n elements rotated? */
LNT_HD bool lnt_hadamard_rotates(const uint8_t *live, uint64_t i, uint64_t n)
{
    if (n - i < LNT_HADAMARD_GROUP) return false;
    if (!live) return true;
    const uint8_t *bits = live + i / 8;
    return (bits[0] & bits[1] & bits[2] & bits[3]) == 0xff;
}

/* A decoded sum of 32 top codes must be finite; every partial sum is smaller. Also false for the scale of a maximum
 * that is not finite itself, so rotated values need no other check. */
LNT_HD bool lnt_hadamard_scale_decodes(float scale)
{
    return lnt_f32_is_finite(scale * LNT_INT4_TOP * (float)LNT_HADAMARD_GROUP);
}

#endif
