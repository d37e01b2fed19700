/* Atomic operations on global and shared memory: the compiler's own, so that sanitizers know them as such. Relaxed, as
 * the device's are: they order nothing else.
 */
#ifndef LNT_EMU_ATOMICS_H
#define LNT_EMU_ATOMICS_H

#include <stdint.h>
#include <string.h>

/* The type of a parameter that does not take part in template deduction: atomicAdd(&some_unsigned, 1) is legal. */
template <typename T> struct lnt_emu_same {
    typedef T type;
};

template <size_t bytes> struct lnt_emu_bits;
template <> struct lnt_emu_bits<2> {
    typedef uint16_t type;
};
template <> struct lnt_emu_bits<4> {
    typedef uint32_t type;
};
template <> struct lnt_emu_bits<8> {
    typedef uint64_t type;
};

template <typename T>
static inline T atomicCAS(T *p, typename lnt_emu_same<T>::type expected, typename lnt_emu_same<T>::type wanted)
{
    __atomic_compare_exchange(p, &expected, &wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}

/* Any update as a loop of compare and exchange on the bits, as the device does what it has no instruction for. */
template <typename T, typename Update> static inline T lnt_emu_atomic(T *p, Update update)
{
    typedef typename lnt_emu_bits<sizeof(T)>::type bits_t;
    bits_t *word = (bits_t *)(void *)p;
    bits_t seen = __atomic_load_n(word, __ATOMIC_RELAXED), wanted;
    T old;

    do {
        memcpy(&old, &seen, sizeof(old));
        T updated = update(old);
        memcpy(&wanted, &updated, sizeof(wanted));
    } while (!__atomic_compare_exchange_n(word, &seen, wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return old;
}

template <typename T> static inline T atomicExch(T *p, typename lnt_emu_same<T>::type value)
{
    return lnt_emu_atomic(p, [value](T) { return value; });
}

template <typename T> static inline T atomicAdd(T *p, typename lnt_emu_same<T>::type value)
{
    return lnt_emu_atomic(p, [value](T old) { return (T)(old + value); });
}

template <typename T> static inline T atomicSub(T *p, typename lnt_emu_same<T>::type value)
{
    return lnt_emu_atomic(p, [value](T old) { return (T)(old - value); });
}

template <typename T> static inline T atomicMin(T *p, typename lnt_emu_same<T>::type value)
{
    return lnt_emu_atomic(p, [value](T old) { return value < old ? value : old; });
}

template <typename T> static inline T atomicMax(T *p, typename lnt_emu_same<T>::type value)
{
    return lnt_emu_atomic(p, [value](T old) { return value > old ? value : old; });
}

template <typename T> static inline T atomicAnd(T *p, typename lnt_emu_same<T>::type value)
{
    return __atomic_fetch_and(p, value, __ATOMIC_RELAXED);
}

template <typename T> static inline T atomicOr(T *p, typename lnt_emu_same<T>::type value)
{
    return __atomic_fetch_or(p, value, __ATOMIC_RELAXED);
}

template <typename T> static inline T atomicXor(T *p, typename lnt_emu_same<T>::type value)
{
    return __atomic_fetch_xor(p, value, __ATOMIC_RELAXED);
}

/* One OS thread runs all: nothing to order but the compiler. A missing fence is invisible here. */
static inline void __threadfence()
{
    __asm__ volatile("" ::: "memory");
}

static inline void __threadfence_block()
{
    __asm__ volatile("" ::: "memory");
}

static inline void __threadfence_system()
{
    __asm__ volatile("" ::: "memory");
}

#endif
