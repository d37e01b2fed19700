/* Shared by the tests of elementwise functions: sizes around every vector width, values at the edges of f32, and
 * arguments in guarded memory, at any alignment their elements allow.
 *
 * Expected results are computed in f64 and rounded once. Products are exact there, and for + - / and the root of two
 * f32 the second rounding changes nothing (f64 has more than twice the bits and two).
 */
#ifndef ARRAY_TESTING_H
#define ARRAY_TESTING_H

#include "kernel_testing.h"

static const uint64_t array_sizes[] = {0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 1000, 4099};
enum { N_ARRAY_SIZES = sizeof(array_sizes) / sizeof(array_sizes[0]), ARRAY_MAX = 4099 };

static inline float of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* Small and large, limits of the 16-bit types and of squares, ties of both roundings; the last ones are not finite. */
static inline float edge_value(uint64_t which)
{
    static const uint32_t edges[] = {0x00000000, 0x00000001, 0x000fffff, 0x007fffff, 0x00800000, 0x1fffffff, 0x33000000,
                                     0x33000001, 0x387fc000, 0x387fe000, 0x38800000, 0x3f800000, 0x3f801000, 0x3f803000,
                                     0x3f808000, 0x3f818000, 0x3f80ffff, 0x477fe000, 0x477fefff, 0x477ff000, 0x5f7fffff,
                                     0x5f800000, 0x5f800001, 0x7f7effff, 0x7f7f0000, 0x7f7f7fff, 0x7f7f8000, 0x7f7fffff,
                                     0x7f800000, 0x7fc00000, 0x7f800001, 0x7fbfe000, 0x7fffffff};
    enum { N_EDGES = sizeof(edges) / sizeof(edges[0]) };
    return of_bits(edges[which % N_EDGES] | (uint32_t)(rng_next() & 1) << 31);
}

typedef enum array_kind {
    ARRAY_NORMAL,
    ARRAY_WIDE,
    ARRAY_FINITE_EDGES,
    ARRAY_EDGES,
    ARRAY_BITS,
    ARRAY_KINDS
} array_kind_t;

static inline float array_value(array_kind_t kind)
{
    float value = edge_value(rng_next());
    if (kind == ARRAY_NORMAL) return (float)rng_normal();
    if (kind == ARRAY_WIDE) return (float)ldexp(rng_normal(), (int)rng_below(240) - 120);
    if (kind == ARRAY_BITS) return of_bits((uint32_t)rng_next());
    if (kind == ARRAY_FINITE_EDGES && !isfinite(value)) return of_bits(bits_of(value) & 0x80ffffffu);
    return value;
}

/* ---- arguments ---- */

/* An array argument in memory of its own, and a copy of it as it was. */
typedef struct argument {
    guarded_t memory;
    uint8_t *at, *before;
    size_t bytes;
} argument_t;

static inline argument_t argument_create(void)
{
    argument_t argument = {.memory = guarded_create(ARRAY_MAX * sizeof(float))};
    argument.before = calloc(ARRAY_MAX, sizeof(float));
    ck_assert_ptr_nonnull(argument.before);
    return argument;
}

static inline void argument_destroy(argument_t *argument)
{
    guarded_destroy(&argument->memory);
    free(argument->before);
}

/* n elements of `size` bytes, which is also their alignment. */
static inline void *argument_place(argument_t *argument, uint64_t n, size_t size, guarded_place_t place)
{
    argument->bytes = (size_t)n * size;
    argument->at = guarded_take_at(&argument->memory, argument->bytes, place, size);
    return argument->at;
}

static inline void argument_note(argument_t *argument)
{
    memcpy(argument->before, argument->at, argument->bytes);
}

static inline float *argument_fill(argument_t *argument, uint64_t n, guarded_place_t place, array_kind_t kind)
{
    float *values = argument_place(argument, n, sizeof(*values), place);
    for (uint64_t i = 0; i < n; i++)
        values[i] = array_value(kind);
    argument_note(argument);
    return values;
}

static inline float *argument_old(const argument_t *argument)
{
    return (float *)(void *)argument->before;
}

/* Nothing around it was written. */
static inline bool argument_tidy(const argument_t *argument)
{
    return guarded_intact(&argument->memory);
}

static inline bool argument_unchanged(const argument_t *argument)
{
    return argument_tidy(argument) && !memcmp(argument->at, argument->before, argument->bytes);
}

/* Byte for byte; of a NaN only that it is one, since machines differ in which of two NaN an operation hands on. */
static inline bool same_value(float value, float expected)
{
    return isnan(expected) ? isnan(value) : bits_of(value) == bits_of(expected);
}

#define CK_SAME_VALUES(_name, _values, _expected, _n)                                                                  \
    for (uint64_t i_ = 0; i_ < (_n); i_++) {                                                                           \
        ck_assert_msg(same_value((_values)[i_], (_expected)[i_]), "%s: element %llu of %llu is %08x, not %08x", _name, \
                      (unsigned long long)i_, (unsigned long long)(_n), bits_of((_values)[i_]),                        \
                      bits_of((_expected)[i_]));                                                                       \
    }

#endif
