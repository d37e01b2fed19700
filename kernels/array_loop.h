/* Loops over arrays of any length by vectors (vec.h): the body stands once, for whole vectors and for what is left.
 *
 * A step takes `some` elements from `at` on: VEC of them, which compilers see, or the last few. Lanes behind them read
 * as +0 and are not stored.
 */
#ifndef LNT_KERNELS_ARRAY_LOOP_H
#define LNT_KERNELS_ARRAY_LOOP_H

#include "vec.h"

/* `_step` is a statement of `at` and `some`, `_before` one of `at` for every whole strip. */
#define LNT_EACH_STRIP(_n, _before, _step)                                                                             \
    do {                                                                                                               \
        uint64_t at_ = 0;                                                                                              \
        for (; at_ + STRIP <= (_n); at_ += STRIP) {                                                                    \
            {                                                                                                          \
                const uint64_t at = at_;                                                                               \
                _before;                                                                                               \
            }                                                                                                          \
            LNT_UNROLL                                                                                                 \
            for (int v_ = 0; v_ < STRIP_VECS; v_++) {                                                                  \
                const uint64_t at = at_ + (uint64_t)v_ * VEC;                                                          \
                const size_t some = VEC;                                                                               \
                _step;                                                                                                 \
            }                                                                                                          \
        }                                                                                                              \
        for (; at_ < (_n); at_ += VEC) {                                                                               \
            const uint64_t at = at_;                                                                                   \
            const size_t some = (_n)-at < VEC ? (size_t)((_n)-at) : (size_t)VEC;                                       \
            _step;                                                                                                     \
        }                                                                                                              \
    } while (0)

#define LNT_EACH_VECTOR(_n, _step) LNT_EACH_STRIP(_n, (void)at, _step)

/* Asks for the strip, of elements of `size` bytes, that lies half a page of f32 behind `from`: hints, which may lie
 * behind the end of everything. Where several arrays are read in turn, or a piece of one at a time, the processor's own
 * looking ahead begins too late. A whole page was worse: everything then lies at the same place of its page. */
LNT_INLINE void strip_ahead(const void *from, size_t size)
{
    enum { AHEAD = 512, LINE = 64 };
    uintptr_t address = (uintptr_t)from + AHEAD * size;
    LNT_UNROLL
    for (size_t at = 0; at < STRIP * size; at += LINE)
        __builtin_prefetch((const void *)(address + at));
}

LNT_INLINE vf load_some(const float *from, size_t some)
{
    return some >= VEC ? vf_load(from) : vf_load_part(from, some);
}

LNT_INLINE void store_some(float *to, vf x, size_t some)
{
    if (some >= VEC)
        vf_store(to, x);
    else
        vf_store_part(to, x, some);
}

/* The magnitudes of x, or what was there before: as integers, so NaN and Inf are largest. */
LNT_INLINE vi keep_largest(vi largest, vf x)
{
    return vi_max(largest, vf_magnitude_bits(x));
}

#endif
