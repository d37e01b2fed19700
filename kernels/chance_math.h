/* Counter-based random numbers for codecs that round by chance: a pure function of (seed, index), so results depend on
 * neither pieces, threads nor vector width. 32-bit operations only, which every vector unit has.
 *
 * The mixing steps are multiplications by odd constants and xor-shifts, each a bijection of 32-bit words.
 */
#ifndef LNT_CHANCE_MATH_H
#define LNT_CHANCE_MATH_H

#include <stdint.h>

#include "lnt_hd.h"

/* What elements with the same upper half of the index share. */
typedef struct lnt_chance_key {
    uint32_t before, between;
} lnt_chance_key_t;

LNT_HD lnt_chance_key_t lnt_chance_key(uint64_t seed, uint64_t index)
{
    uint64_t x = seed + (index >> 32) * 0x9e3779b97f4a7c15u;
    lnt_chance_key_t key;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    key.before = (uint32_t)x;
    key.between = (uint32_t)(x >> 32);
    return key;
}

LNT_HD uint32_t lnt_chance_mix(uint32_t x)
{
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

/* The number of element `index`, whose lower half is `low`; key of its upper half. */
LNT_HD uint32_t lnt_chance_u32(lnt_chance_key_t key, uint32_t low)
{
    return lnt_chance_mix(lnt_chance_mix(low ^ key.before) + key.between);
}

#endif
