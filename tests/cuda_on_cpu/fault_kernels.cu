/* See fault_kernels.h. None of these is code to follow.
 */
#include "kernels/cuda_compat.h"

#include "fault_kernels.h"

#define ALL 0xffffffffu

/* Runs a kernel of (int *out) and returns out[0], which is 0 before it. */
template <typename Launch> static int run_on_ints(int n, Launch launch)
{
    int *out = nullptr, first = -1;

    if (cudaMalloc(&out, sizeof(int) * n) != cudaSuccess) return -1;
    cudaMemset(out, 0, sizeof(int) * n);
    launch(out);
    cudaMemcpy(&first, out, sizeof(first), cudaMemcpyDeviceToHost);
    cudaFree(out);
    return first;
}

#define FAULT(_name, _block)                                                                                           \
    extern "C" int fault_##_name(void)                                                                                 \
    {                                                                                                                  \
        return run_on_ints(4096, [](int *out) { LNT_LAUNCH(_name, 2, (_block), 0, 0, out); });                         \
    }

/* Of 64 threads the first 40 wait, the rest return. */
LNT_KERNEL void exit_while_waiting(int *out)
{
    if (threadIdx.x >= 40) return;
    __syncthreads(); /* @exit_while_waiting */
    out[threadIdx.x] = 1;
}
FAULT(exit_while_waiting, 64)

LNT_KERNEL void barrier_after_exit(int *out)
{
    if (threadIdx.x == 0) return;
    __syncthreads(); /* @barrier_after_exit */
    out[threadIdx.x] = 1;
}
FAULT(barrier_after_exit, 64)

LNT_KERNEL void two_barriers(int *out)
{
    if (threadIdx.x < 32)
        __syncthreads(); /* @two_barriers */
    else
        __syncthreads(); /* @two_barriers */
    out[threadIdx.x] = 1;
}
FAULT(two_barriers, 64)

#define BARRIER_A __syncthreads()
#define BARRIER_B __syncthreads()
LNT_KERNEL void two_barriers_one_line(int *out)
{
    threadIdx.x < 32 ? BARRIER_A : BARRIER_B; /* @two_barriers_one_line */
    out[threadIdx.x] = 1;
}
FAULT(two_barriers_one_line, 64)

/* The others go on to a barrier: nobody returns, and nobody comes. */
LNT_KERNEL void missed_shuffle(int *out)
{
    int value = (int)threadIdx.x;
    if (threadIdx.x != 7) value = __shfl_down_sync(ALL, value, 1); /* @missed_shuffle */
    __syncthreads();
    out[threadIdx.x] = value;
}
FAULT(missed_shuffle, 32)

LNT_KERNEL void missed_ballot(int *out)
{
    unsigned bits = 0;
    if (threadIdx.x % 2 == 0) bits = __ballot_sync(ALL, 1); /* @missed_ballot */
    out[threadIdx.x] = (int)bits;
}
FAULT(missed_ballot, 32)

/* The first lanes return before the others call. */
LNT_KERNEL void returned_lane(int *out)
{
    if (threadIdx.x < 3 || threadIdx.x > 28) return;
    out[threadIdx.x] = (int)__ballot_sync(ALL, 1); /* @returned_lane */
}
FAULT(returned_lane, 32)

/* Half a warp waits for its other half, which waits for everybody. */
LNT_KERNEL void deadlock(int *out)
{
    if (threadIdx.x < 48)
        __syncthreads(); /* @deadlock */
    else
        __syncwarp(); /* @deadlock */
    out[threadIdx.x] = 1;
}
FAULT(deadlock, 64)

LNT_KERNEL void other_op(int *out)
{
    if (threadIdx.x < 16)
        out[threadIdx.x] = __shfl_up_sync(ALL, 1, 1); /* @other_op */
    else
        out[threadIdx.x] = __shfl_down_sync(ALL, 1, 1); /* @other_op */
}
FAULT(other_op, 32)

LNT_KERNEL void other_mask(int *out)
{
    unsigned mask = threadIdx.x < 16 ? 0x0001ffffu : 0xffff8000u;
    out[threadIdx.x] = __shfl_xor_sync(mask, 1, 1); /* @other_mask */
}
FAULT(other_mask, 32)

LNT_KERNEL void other_site(int *out)
{
    if (threadIdx.x < 16)
        out[threadIdx.x] = __shfl_xor_sync(ALL, 1, 1); /* @other_site */
    else
        out[threadIdx.x] = __shfl_xor_sync(ALL, 2, 1); /* @other_site */
}
FAULT(other_site, 32)

LNT_KERNEL void not_in_mask(int *out)
{
    out[threadIdx.x] = (int)__ballot_sync(0x0000ffffu, 1); /* @not_in_mask */
}
FAULT(not_in_mask, 32)

LNT_KERNEL void outside_mask(int *out)
{
    if (threadIdx.x < 16) out[threadIdx.x] = __shfl_down_sync(0x0000ffffu, 1, 8); /* @outside_mask */
}
FAULT(outside_mask, 32)

LNT_KERNEL void partial_block(int *out)
{
    out[threadIdx.x] = __shfl_xor_sync(ALL, 1, 1); /* @partial_block */
}
FAULT(partial_block, 48)

LNT_KERNEL void bad_width(int *out)
{
    out[threadIdx.x] = __shfl_xor_sync(ALL, 1, 1, 12); /* @bad_width */
}
FAULT(bad_width, 32)

/* Sums what nobody wrote. Zeros, which another machine may have there, would give 0. */
LNT_KERNEL void unwritten_shared(int *out)
{
    __shared__ float sums[64];
    if (threadIdx.x > 0) sums[threadIdx.x] = 0.0f;
    __syncthreads();
    out[threadIdx.x] = !(sums[0] == 0.0f);
}
FAULT(unwritten_shared, 64)

LNT_KERNEL void unwritten_dynamic(int *out)
{
    LNT_DYN_SHARED(int, counts);
    atomicAdd(&counts[threadIdx.x], 1);
    out[threadIdx.x] = counts[threadIdx.x] != 1;
}

extern "C" int fault_unwritten_dynamic(void)
{
    return run_on_ints(4096, [](int *out) { LNT_LAUNCH(unwritten_dynamic, 1, 64, 64 * sizeof(int), 0, out); });
}

/* Each thread reads what its mirror image wrote. */
LNT_KERNEL void missing_barrier(int *out)
{
    __shared__ int tile[64];
    tile[threadIdx.x] = (int)threadIdx.x; /* @missing_barrier */
    int seen = tile[63 - threadIdx.x];    /* @missing_barrier */
    if (seen != 63 - (int)threadIdx.x) atomicAdd(out, 1);
}
FAULT(missing_barrier, 64)

/* The next round overwrites what slow threads have still to read. */
LNT_KERNEL void missing_loop_barrier(int *out)
{
    __shared__ int tile[64];
    for (int round = 0; round < 3; round++) {
        tile[threadIdx.x] = (int)threadIdx.x + 1000 * round; /* @missing_loop_barrier */
        __syncthreads();
        int seen = tile[63 - threadIdx.x]; /* @missing_loop_barrier */
        if (seen != 63 - (int)threadIdx.x + 1000 * round) atomicAdd(out, 1);
    }
}
FAULT(missing_loop_barrier, 64)

LNT_KERNEL void missing_syncwarp(int *out)
{
    __shared__ int tile[32];
    tile[threadIdx.x] = (int)threadIdx.x; /* @missing_syncwarp */
    int seen = tile[threadIdx.x ^ 1];     /* @missing_syncwarp */
    if (seen != (int)(threadIdx.x ^ 1)) atomicAdd(out, 1);
}
FAULT(missing_syncwarp, 32)

/* A count without an atomic: right here by luck, as one thread runs after the other. */
LNT_KERNEL void global_race(int *out)
{
    out[0] = out[0] + 1; /* @global_race */
}

extern "C" int fault_global_race(void)
{
    return run_on_ints(4096, [](int *out) { LNT_LAUNCH(global_race, 1, 64, 0, 0, out); });
}

/* Thread 0 of every block writes the same word. */
LNT_KERNEL void grid_race(int *out)
{
    if (threadIdx.x == blockIdx.x) out[0] = out[0] + 1; /* @grid_race */
}
FAULT(grid_race, 32)

LNT_KERNEL void static_bounds(int *out)
{
    __shared__ int tile[32];
    __shared__ int behind[64];
    behind[threadIdx.x] = 0;
    tile[threadIdx.x + (unsigned)out[1]] = 1; /* @static_bounds */
    __syncthreads();
    out[threadIdx.x] = tile[0] + behind[0];
}
FAULT(static_bounds, 64)

LNT_KERNEL void dynamic_bounds(int *out)
{
    LNT_DYN_SHARED(int, tile);
    tile[threadIdx.x] = 1; /* @dynamic_bounds */
    out[threadIdx.x] = tile[threadIdx.x];
}

extern "C" int fault_dynamic_bounds(void)
{
    return run_on_ints(4096, [](int *out) { LNT_LAUNCH(dynamic_bounds, 1, 64, 48 * sizeof(int), 0, out); });
}

LNT_KERNEL void write_at(char *out, long offset)
{
    if (threadIdx.x == 5) out[offset] = 1; /* @write_at */
}

static int write_outside(size_t bytes, long offset)
{
    char *out = nullptr;

    if (cudaMalloc(&out, bytes) != cudaSuccess) return -1;
    LNT_LAUNCH(write_at, 1, 32, 0, 0, out, offset);
    cudaFree(out);
    return 0;
}

extern "C" int fault_global_bounds(void)
{
    return write_outside(1000, 1008);
}

extern "C" int fault_global_bounds_near(void)
{
    return write_outside(1000, 1000);
}

extern "C" int fault_global_before(void)
{
    return write_outside(1000, -1);
}

LNT_KERNEL void misaligned(const float *in, float4 *out)
{
    const float4 *four = reinterpret_cast<const float4 *>(in + 1);
    out->x = four->x; /* @misaligned */
}

LNT_KERNEL void misaligned_ldg(const float *in, float4 *out)
{
    *out = __ldg(reinterpret_cast<const float4 *>(in + 1)); /* @misaligned_ldg */
}

extern "C" int fault_misaligned_ldg(void)
{
    return run_on_ints(64, [](int *out) {
        LNT_LAUNCH(misaligned_ldg, 1, 1, 0, 0, reinterpret_cast<const float *>(out),
                   reinterpret_cast<float4 *>(out + 16));
    });
}

extern "C" int fault_misaligned(void)
{
    return run_on_ints(64, [](int *out) {
        LNT_LAUNCH(misaligned, 1, 1, 0, 0, reinterpret_cast<const float *>(out), reinterpret_cast<float4 *>(out + 16));
    });
}

extern "C" int fault_host_read(void)
{
    return run_on_ints(64, [](int *out) { (void)*(volatile int *)out; });
}

extern "C" int fault_host_write(void)
{
    return run_on_ints(64, [](int *out) { *(volatile int *)out = 1; });
}

/* Error codes: the run is "wrong" when the copy says what it should. */
extern "C" int fault_copy_kind(void)
{
    return run_on_ints(64, [](int *out) {
        int host = 5, wrong = cudaMemcpy(&host, out, sizeof(host), cudaMemcpyHostToDevice) != cudaSuccess &&
                              cudaMemcpy(out, &host, sizeof(host), cudaMemcpyDeviceToHost) != cudaSuccess &&
                              cudaGetLastError() != cudaSuccess && host == 5;
        cudaMemcpy(out, &wrong, sizeof(wrong), cudaMemcpyHostToDevice);
    });
}

extern "C" int fault_copy_length(void)
{
    return run_on_ints(64, [](int *out) {
        int host[65] = {0}, wrong = cudaMemcpy(out, host, sizeof(host), cudaMemcpyHostToDevice) != cudaSuccess &&
                                    cudaMemset(out + 1, 0, 64 * sizeof(int)) != cudaSuccess;
        cudaMemcpy(out, &wrong, sizeof(wrong), cudaMemcpyHostToDevice);
    });
}

LNT_KERNEL void one(int *out)
{
    out[0] = 1;
}

extern "C" int fault_big_block(void)
{
    return run_on_ints(64, [](int *out) {
        LNT_LAUNCH(one, 1, dim3(33, 32), 0, 0, out); /* @big_block */
    });
}

extern "C" int fault_empty_grid(void)
{
    return run_on_ints(64, [](int *out) {
        LNT_LAUNCH(one, 0, 32, 0, 0, out); /* @empty_grid */
    });
}

extern "C" int fault_much_shared(void)
{
    return run_on_ints(64, [](int *out) {
        LNT_LAUNCH(one, 1, 32, 64 * 1024, 0, out); /* @much_shared */
    });
}

/* Waits for a flag of another block, which runs later. */
LNT_KERNEL void endless(int *out)
{
    volatile int *flag = out;
    while (threadIdx.x == 3 && *flag == 0) {
    }
}
FAULT(endless, 32)

/* Deeper than a stack; the compiler may not make a loop of it. */
static __noinline__ int descend(volatile int *depth, int *out)
{
    volatile char frame[4096];
    frame[0] = (char)*depth;
    *depth = *depth + 1;
    return *depth < 100000 ? descend(depth, out) + frame[0] : frame[0];
}

LNT_KERNEL void deep_stack(int *out)
{
    volatile int depth = 0;
    out[0] = descend(&depth, out);
}
FAULT(deep_stack, 32)

LNT_KERNEL void trap(int *out)
{
    if (out[0] == 0 && threadIdx.x == 9) __trap();
}
FAULT(trap, 32)

LNT_KERNEL void nested_launch(int *out)
{
    LNT_LAUNCH(one, 1, 1, 0, 0, out); /* @nested_launch */
}
FAULT(nested_launch, 32)
