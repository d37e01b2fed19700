/* Warp operations. Each lane says what it calls, with which mask, and what it brings; the last lane of the mask lets
 * the library compute the results of all, so no lane sees what another has overwritten.
 */
#ifndef LNT_EMU_WARP_H
#define LNT_EMU_WARP_H

#include <string.h>

#include "lnt_emu_kernel.h"

enum lnt_emu_warp_op {
    LNT_EMU_SYNCWARP,
    LNT_EMU_SHFL,
    LNT_EMU_SHFL_UP,
    LNT_EMU_SHFL_DOWN,
    LNT_EMU_SHFL_XOR,
    LNT_EMU_BALLOT,
    LNT_EMU_ANY,
    LNT_EMU_ALL,
    LNT_EMU_MATCH_ANY,
    LNT_EMU_REDUCE_ADD,
    LNT_EMU_REDUCE_AND,
    LNT_EMU_REDUCE_OR,
    LNT_EMU_REDUCE_XOR,
    LNT_EMU_REDUCE_MIN,
    LNT_EMU_REDUCE_MAX,
    LNT_EMU_WARP_OPS
};

/* What one lane brings. `lane` is the operand of a shuffle: source, delta or lane mask. */
struct lnt_emu_warp_call {
    lnt_emu_warp_op op;
    unsigned mask;
    uint64_t value;
    unsigned lane;
    int width;
};

/* In the library: waits for the lanes of the mask and returns this lane's result. */
uint64_t lnt_emu_warp(const lnt_emu_site &site, const lnt_emu_warp_call &call);

template <typename T> static inline uint64_t lnt_emu_pack(T value)
{
    static_assert(sizeof(T) <= 8, "warp operations move 64 bits at most");
    uint64_t packed = 0;
    memcpy(&packed, &value, sizeof(value));
    return packed;
}

template <typename T> static inline T lnt_emu_unpack(uint64_t packed)
{
    T value;
    memcpy(&value, &packed, sizeof(value));
    return value;
}

/* Reductions order 64-bit integers: int keeps its sign, unsigned has none. */
template <typename T>
static inline T lnt_emu_reduce(const lnt_emu_site &site, lnt_emu_warp_op op, unsigned mask, T value)
{
    static_assert(sizeof(T) == 4, "__reduce_*_sync takes int and unsigned");
    return (T)lnt_emu_warp(site, {op, mask, (uint64_t)(int64_t)value, 0, 32});
}

inline void lnt_emu_site::syncwarp(unsigned mask) const
{
    lnt_emu_warp(*this, {LNT_EMU_SYNCWARP, mask, 0, 0, 32});
}

template <typename T> inline T lnt_emu_site::shfl(unsigned mask, T value, int lane, int width) const
{
    return lnt_emu_unpack<T>(lnt_emu_warp(*this, {LNT_EMU_SHFL, mask, lnt_emu_pack(value), (unsigned)lane, width}));
}

template <typename T> inline T lnt_emu_site::shfl_up(unsigned mask, T value, unsigned delta, int width) const
{
    return lnt_emu_unpack<T>(lnt_emu_warp(*this, {LNT_EMU_SHFL_UP, mask, lnt_emu_pack(value), delta, width}));
}

template <typename T> inline T lnt_emu_site::shfl_down(unsigned mask, T value, unsigned delta, int width) const
{
    return lnt_emu_unpack<T>(lnt_emu_warp(*this, {LNT_EMU_SHFL_DOWN, mask, lnt_emu_pack(value), delta, width}));
}

template <typename T> inline T lnt_emu_site::shfl_xor(unsigned mask, T value, int lanes, int width) const
{
    return lnt_emu_unpack<T>(
        lnt_emu_warp(*this, {LNT_EMU_SHFL_XOR, mask, lnt_emu_pack(value), (unsigned)lanes, width}));
}

inline unsigned lnt_emu_site::ballot(unsigned mask, int predicate) const
{
    return (unsigned)lnt_emu_warp(*this, {LNT_EMU_BALLOT, mask, predicate != 0, 0, 32});
}

inline int lnt_emu_site::any(unsigned mask, int predicate) const
{
    return (int)lnt_emu_warp(*this, {LNT_EMU_ANY, mask, predicate != 0, 0, 32});
}

inline int lnt_emu_site::all(unsigned mask, int predicate) const
{
    return (int)lnt_emu_warp(*this, {LNT_EMU_ALL, mask, predicate != 0, 0, 32});
}

template <typename T> inline unsigned lnt_emu_site::match_any(unsigned mask, T value) const
{
    return (unsigned)lnt_emu_warp(*this, {LNT_EMU_MATCH_ANY, mask, lnt_emu_pack(value), 0, 32});
}

template <typename T> inline T lnt_emu_site::reduce_add(unsigned mask, T value) const
{
    return lnt_emu_reduce(*this, LNT_EMU_REDUCE_ADD, mask, value);
}

template <typename T> inline T lnt_emu_site::reduce_min(unsigned mask, T value) const
{
    return lnt_emu_reduce(*this, LNT_EMU_REDUCE_MIN, mask, value);
}

template <typename T> inline T lnt_emu_site::reduce_max(unsigned mask, T value) const
{
    return lnt_emu_reduce(*this, LNT_EMU_REDUCE_MAX, mask, value);
}

inline unsigned lnt_emu_site::reduce_and(unsigned mask, unsigned value) const
{
    return lnt_emu_reduce(*this, LNT_EMU_REDUCE_AND, mask, value);
}

inline unsigned lnt_emu_site::reduce_or(unsigned mask, unsigned value) const
{
    return lnt_emu_reduce(*this, LNT_EMU_REDUCE_OR, mask, value);
}

inline unsigned lnt_emu_site::reduce_xor(unsigned mask, unsigned value) const
{
    return lnt_emu_reduce(*this, LNT_EMU_REDUCE_XOR, mask, value);
}

#define __syncwarp LNT_EMU_SITE.syncwarp
#define __shfl_sync LNT_EMU_SITE.shfl
#define __shfl_up_sync LNT_EMU_SITE.shfl_up
#define __shfl_down_sync LNT_EMU_SITE.shfl_down
#define __shfl_xor_sync LNT_EMU_SITE.shfl_xor
#define __ballot_sync LNT_EMU_SITE.ballot
#define __any_sync LNT_EMU_SITE.any
#define __all_sync LNT_EMU_SITE.all
#define __match_any_sync LNT_EMU_SITE.match_any
#define __reduce_add_sync LNT_EMU_SITE.reduce_add
#define __reduce_min_sync LNT_EMU_SITE.reduce_min
#define __reduce_max_sync LNT_EMU_SITE.reduce_max
#define __reduce_and_sync LNT_EMU_SITE.reduce_and
#define __reduce_or_sync LNT_EMU_SITE.reduce_or
#define __reduce_xor_sync LNT_EMU_SITE.reduce_xor

#endif
