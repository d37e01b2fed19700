/* The language of kernels for an ordinary C++17 compiler: qualifiers, built-in variables, shared memory, barriers and
 * the launch. Every CUDA thread of a block is a fiber; blocks run one after another on the calling thread.
 *
 * Code here is compiled into kernels and seen by sanitizers. What switches threads is in the library, out of their
 * sight.
 */
#ifndef LNT_EMU_KERNEL_H
#define LNT_EMU_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#include "lnt_emu_vector.h"

#define __host__
#define __device__
#define __global__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(_bytes) __attribute__((aligned(_bytes)))

/* One linker section holds all shared memory of a program or library, so that it can be poisoned for each block. */
#define __shared__ static __attribute__((section("lnt_emu_shared")))

extern "C" {
extern char __start_lnt_emu_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_lnt_emu_shared[] __attribute__((weak, visibility("hidden")));
}

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
enum { warpSize = 32 };

/* Where something is called. The number tells calls on one line apart. */
struct lnt_emu_site {
    const char *file;
    int line;
    int number;

    inline void barrier() const;
    inline int barrier_count(int predicate) const;
    inline int barrier_or(int predicate) const;
    inline int barrier_and(int predicate) const;
    inline void syncwarp(unsigned mask = 0xffffffffu) const;
    template <typename T> inline T shfl(unsigned mask, T value, int lane, int width = 32) const;
    template <typename T> inline T shfl_up(unsigned mask, T value, unsigned delta, int width = 32) const;
    template <typename T> inline T shfl_down(unsigned mask, T value, unsigned delta, int width = 32) const;
    template <typename T> inline T shfl_xor(unsigned mask, T value, int lanes, int width = 32) const;
    inline unsigned ballot(unsigned mask, int predicate) const;
    inline int any(unsigned mask, int predicate) const;
    inline int all(unsigned mask, int predicate) const;
    template <typename T> inline unsigned match_any(unsigned mask, T value) const;
    template <typename T> inline T reduce_add(unsigned mask, T value) const;
    template <typename T> inline T reduce_min(unsigned mask, T value) const;
    template <typename T> inline T reduce_max(unsigned mask, T value) const;
    inline unsigned reduce_and(unsigned mask, unsigned value) const;
    inline unsigned reduce_or(unsigned mask, unsigned value) const;
    inline unsigned reduce_xor(unsigned mask, unsigned value) const;
};

/* What a launch is, before its arguments. */
struct lnt_emu_launch {
    const char *kernel;
    struct lnt_emu_site site;
    const void *function;
    dim3 grid, block;
    size_t dynamic_bytes;
    char *shared_begin, *shared_end;
};

enum lnt_emu_vote { LNT_EMU_VOTE_NONE, LNT_EMU_VOTE_COUNT, LNT_EMU_VOTE_OR, LNT_EMU_VOTE_AND };

/* In the library. `body` is called once for each CUDA thread. */
void lnt_emu_run(const lnt_emu_launch &launch, void (*body)(void *argument), void *argument);
int lnt_emu_barrier(const lnt_emu_site &site, lnt_emu_vote vote, int predicate);
void *lnt_emu_dynamic_shared();

inline void lnt_emu_site::barrier() const
{
    lnt_emu_barrier(*this, LNT_EMU_VOTE_NONE, 0);
}

inline int lnt_emu_site::barrier_count(int predicate) const
{
    return lnt_emu_barrier(*this, LNT_EMU_VOTE_COUNT, predicate);
}

inline int lnt_emu_site::barrier_or(int predicate) const
{
    return lnt_emu_barrier(*this, LNT_EMU_VOTE_OR, predicate);
}

inline int lnt_emu_site::barrier_and(int predicate) const
{
    return lnt_emu_barrier(*this, LNT_EMU_VOTE_AND, predicate);
}

#define LNT_EMU_SITE                                                                                                   \
    lnt_emu_site                                                                                                       \
    {                                                                                                                  \
        __FILE__, __LINE__, __COUNTER__                                                                                \
    }
#define __syncthreads LNT_EMU_SITE.barrier
#define __syncthreads_count LNT_EMU_SITE.barrier_count
#define __syncthreads_or LNT_EMU_SITE.barrier_or
#define __syncthreads_and LNT_EMU_SITE.barrier_and

/* A kernel with its launch shape: called with the arguments, which are converted and copied once, as by a real launch.
 * Each thread then has parameters of its own. */
template <typename... Params> struct lnt_emu_prepared {
    lnt_emu_launch launch;
    void (*kernel)(Params...);

    void operator()(Params... args) const
    {
        auto body = [this, args...] { kernel(args...); };
        lnt_emu_run(launch, call<decltype(body)>, &body);
    }

    template <typename Body> static void call(void *body) { (*static_cast<Body *>(body))(); }
};

template <typename... Params>
static inline lnt_emu_prepared<Params...> lnt_emu_prepare(const char *name, const lnt_emu_site &site,
                                                          void (*kernel)(Params...), dim3 grid, dim3 block,
                                                          size_t dynamic_bytes)
{
    return {
        {name, site, (const void *)kernel, grid, block, dynamic_bytes, __start_lnt_emu_shared, __stop_lnt_emu_shared},
        kernel};
}

#endif
