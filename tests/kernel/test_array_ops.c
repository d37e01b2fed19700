/* Elementwise work on arrays: every implementation against formulas of this file's own, byte for byte, at all sizes
 * around a vector, any alignment, in guarded memory.
 */
#include "array_testing.h"
#include "half_oracle.h"

enum { N_DTYPES = LNT_DTYPE_COUNT };

static const lnt_dtype_t dtypes[] = {LNT_F32, LNT_BF16, LNT_F16};

/* ---- expected ---- */

static float half_value(lnt_dtype_t dtype, uint16_t code)
{
    return dtype == LNT_BF16 ? oracle_bf16_value(code) : oracle_f16_value(code);
}

static uint16_t half_code(lnt_dtype_t dtype, float value)
{
    return dtype == LNT_BF16 ? oracle_bf16(value) : oracle_f16(value);
}

static size_t size_of(lnt_dtype_t dtype)
{
    return dtype == LNT_F32 ? 4 : 2;
}

static float value_at(lnt_dtype_t dtype, const void *values, uint64_t i)
{
    uint16_t code;
    if (dtype == LNT_F32) return ((const float *)values)[i];
    memcpy(&code, (const uint8_t *)values + 2 * i, sizeof(code));
    return half_value(dtype, code);
}

/* ---- one round: an implementation, a size, a place, a kind of data ---- */

typedef struct round {
    lnt_array_ops_t ops;
    uint64_t n;
    guarded_place_t place, other_place; /* of a and c, of b */
    array_kind_t kind;
    argument_t a, b, c;
    float *expected;
} round_t;

static const void *fill_dtype(round_t *round, lnt_dtype_t dtype)
{
    uint8_t *codes = argument_place(&round->a, round->n, size_of(dtype), round->place);
    for (uint64_t i = 0; i < round->n; i++) {
        float value = array_value(round->kind);
        uint16_t code = round->kind == ARRAY_BITS ? (uint16_t)rng_next() : half_code(dtype, value);
        if (dtype == LNT_F32)
            memcpy(codes + 4 * i, &value, 4);
        else
            memcpy(codes + 2 * i, &code, 2);
    }
    argument_note(&round->a);
    return codes;
}

static bool all_finite(const float *values, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (!isfinite(values[i])) return false;
    return true;
}

static void check_widen(round_t *round)
{
    for (int d = 0; d < N_DTYPES; d++) {
        const void *in = fill_dtype(round, dtypes[d]);
        float *out = argument_fill(&round->b, round->n, round->other_place, ARRAY_NORMAL);
        round->ops.widen[dtypes[d]](in, round->n, out);
        for (uint64_t i = 0; i < round->n; i++)
            ck_assert_uint_eq(bits_of(out[i]), bits_of(value_at(dtypes[d], in, i)));
        ck_assert(argument_unchanged(&round->a) && argument_tidy(&round->b));
    }
}

static void check_widen_scaled(round_t *round)
{
    const float factor = array_value(rng_below(4) ? ARRAY_NORMAL : ARRAY_EDGES);
    for (int d = 0; d < N_DTYPES; d++) {
        const void *in = fill_dtype(round, dtypes[d]);
        float *out = argument_fill(&round->b, round->n, round->other_place, ARRAY_NORMAL);
        bool finite = round->ops.widen_scaled[dtypes[d]](in, round->n, factor, out);
        for (uint64_t i = 0; i < round->n; i++)
            round->expected[i] = (float)((double)value_at(dtypes[d], in, i) * (double)factor);
        CK_SAME_VALUES("widen_scaled", out, round->expected, round->n)
        ck_assert_int_eq(finite, all_finite(round->expected, round->n));
        ck_assert(argument_unchanged(&round->a) && argument_tidy(&round->b));
    }
}

static void check_widen_add(round_t *round)
{
    for (int d = 0; d < N_DTYPES; d++) {
        const void *in = fill_dtype(round, dtypes[d]);
        float *sum = argument_fill(&round->b, round->n, round->other_place, round->kind);
        round->ops.widen_add[dtypes[d]](in, round->n, sum);
        for (uint64_t i = 0; i < round->n; i++)
            round->expected[i] = (float)((double)argument_old(&round->b)[i] + (double)value_at(dtypes[d], in, i));
        CK_SAME_VALUES("widen_add", sum, round->expected, round->n)
        ck_assert(argument_unchanged(&round->a) && argument_tidy(&round->b));
    }
}

static void check_narrow(round_t *round)
{
    for (int d = 0; d < N_DTYPES; d++) {
        const float *in = argument_fill(&round->a, round->n, round->place, round->kind);
        uint8_t *out = argument_place(&round->b, round->n, size_of(dtypes[d]), round->other_place);
        bool fit = round->ops.fits[dtypes[d]](in, round->n), expected = true;
        round->ops.narrow[dtypes[d]](in, round->n, out);
        ck_assert(argument_unchanged(&round->a) && argument_tidy(&round->b));
        for (uint64_t i = 0; i < round->n; i++) {
            uint16_t code;
            memcpy(&code, out + i * size_of(dtypes[d]), sizeof(code));
            if (dtypes[d] != LNT_F32) ck_assert_uint_eq(code, half_code(dtypes[d], in[i]));
            expected = expected && isfinite(value_at(dtypes[d], out, i));
        }
        if (dtypes[d] == LNT_F32 && round->n) ck_assert(!memcmp(out, in, round->n * sizeof(*in)));
        ck_assert_int_eq(fit, expected);
    }
}

static void check_add_scale(round_t *round)
{
    const float *more = argument_fill(&round->a, round->n, round->place, round->kind);
    float *sum = argument_fill(&round->b, round->n, round->other_place, round->kind);
    const float factor = array_value(rng_below(4) ? ARRAY_NORMAL : ARRAY_EDGES);
    bool finite;
    round->ops.add(sum, more, round->n);
    for (uint64_t i = 0; i < round->n; i++)
        round->expected[i] = (float)((double)argument_old(&round->b)[i] + (double)more[i]);
    CK_SAME_VALUES("add", sum, round->expected, round->n)
    ck_assert_int_eq(round->ops.finite(sum, round->n), all_finite(round->expected, round->n));
    finite = round->ops.scale(sum, round->n, factor);
    for (uint64_t i = 0; i < round->n; i++)
        round->expected[i] = (float)((double)round->expected[i] * (double)factor);
    CK_SAME_VALUES("scale", sum, round->expected, round->n)
    ck_assert_int_eq(finite, all_finite(round->expected, round->n));
    ck_assert(argument_unchanged(&round->a) && argument_tidy(&round->b));
}

static bool squares_expected(const float *values, const float *error, const uint8_t *live, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        float value = error ? (float)((double)values[i] + (double)error[i]) : values[i];
        if (live && !(live[i / 8] >> i % 8 & 1)) continue;
        if (!isfinite((float)((double)value * (double)value))) return false;
    }
    return true;
}

static void check_squares_fit(round_t *round)
{
    const float *values = argument_fill(&round->a, round->n, round->place, round->kind);
    const float *error = argument_fill(&round->b, round->n, round->other_place, round->kind);
    uint8_t *live = argument_place(&round->c, (round->n + 7) / 8, 1, round->place);
    for (size_t i = 0; i < round->c.bytes; i++)
        live[i] = (uint8_t)(rng_next() | rng_next());
    argument_note(&round->c);
    for (int variant = 0; variant < 4; variant++) {
        const float *e = variant & 1 ? error : NULL;
        const uint8_t *l = variant & 2 ? live : NULL;
        ck_assert_int_eq(round->ops.squares_fit(values, e, l, round->n), squares_expected(values, e, l, round->n));
    }
    ck_assert(argument_unchanged(&round->a) && argument_unchanged(&round->b) && argument_unchanged(&round->c));
}

/* The tree from its description: groups of four lanes, then group l and group l + n/2 of the n that are left. */
static double tree(const double *lanes, int l, int groups)
{
    const double *lane = lanes + 4 * l;
    if (groups == 32) return (lane[0] + lane[1]) + (lane[2] + lane[3]);
    return tree(lanes, l, 2 * groups) + tree(lanes, l + groups, 2 * groups);
}

static void check_square_sum(round_t *round)
{
    const float *values = argument_fill(&round->a, round->n, round->place, round->kind);
    double sum = round->ops.square_sum(values, round->n), lanes[128] = {0}, expected;
    for (uint64_t lane = 0; lane < 128; lane++)
        for (uint64_t i = lane; i < round->n; i += 128)
            lanes[lane] += (double)values[i] * (double)values[i];
    expected = tree(lanes, 0, 1);
    ck_assert_msg(isnan(expected) ? isnan(sum) : !memcmp(&sum, &expected, sizeof(sum)), "square_sum %a, not %a", sum,
                  expected);
    ck_assert(argument_unchanged(&round->a));
}

/* A block of errors from its description: 1/127 of the largest magnitude, cut to 17 bits, 2^-126 at least; nothing is
 * kept where anything is not finite. */
static float error_step(const float *values, uint64_t n)
{
    double largest = 0;
    uint32_t bits;
    for (uint64_t i = 0; i < n; i++) {
        if (!isfinite(values[i])) return 0;
        largest = fmax(largest, fabs((double)values[i]));
    }
    if (largest == 0) return 0;
    bits = bits_of((float)(largest / 127)) & 0xffffff80u;
    return bits < 0x00800000u ? of_bits(0x00800000u) : of_bits(bits);
}

static int error_code(float value, float step)
{
    const float inverse = step != 0 ? (float)(1 / (double)step) : 0;
    return step != 0 ? (int)nearbyint((double)(float)((double)value * (double)inverse)) : 0;
}

static void check_int8_errors(round_t *round)
{
    const float *values = argument_fill(&round->a, round->n, round->place, round->kind);
    int8_t *codes = (int8_t *)argument_place(&round->b, round->n, 1, round->other_place);
    float *scales = (float *)(void *)argument_place(&round->c, (round->n + 63) / 64, sizeof(*scales), round->place);
    float *kept = round->expected;
    round->ops.keep_int8(values, round->n, codes, scales);
    ck_assert(argument_unchanged(&round->a) && argument_tidy(&round->b) && argument_tidy(&round->c));
    round->ops.kept_int8(codes, scales, round->n, kept);
    for (uint64_t i = 0; i < round->n; i++) {
        const uint64_t block = i / 64, first = block * 64, n = round->n - first < 64 ? round->n - first : 64;
        const float step = i == first ? error_step(values + first, n) : scales[block];
        ck_assert_uint_eq(bits_of(scales[block]), bits_of(step));
        ck_assert_int_eq(codes[i], error_code(values[i], step));
        ck_assert(kept[i] == (float)((double)codes[i] * (double)step));
    }
}

/* The other way, in guarded memory too. */
static void check_kept_errors(round_t *round)
{
    int8_t *codes = (int8_t *)argument_place(&round->a, round->n, 1, round->place);
    float *out = argument_fill(&round->b, round->n, round->other_place, ARRAY_NORMAL), scales[ARRAY_MAX / 64 + 1];
    for (uint64_t i = 0; i < round->n; i++)
        codes[i] = (int8_t)((int)rng_below(255) - 127);
    argument_note(&round->a);
    for (uint64_t b = 0; b < ARRAY_MAX / 64 + 1; b++)
        scales[b] = of_bits(bits_of(fabsf((float)rng_normal())) & 0xffffff80u);
    round->ops.kept_int8(codes, scales, round->n, out);
    for (uint64_t i = 0; i < round->n; i++)
        ck_assert(out[i] == (float)((double)codes[i] * (double)scales[i / 64]));
    ck_assert(argument_unchanged(&round->a) && argument_tidy(&round->b));
}

/* ---- rounds ---- */

static void walk_places(round_t *round, void (*check)(round_t *round))
{
    for (int place = 0; place < GUARDED_PLACES; place++) {
        round->place = place;
        round->other_place = (guarded_place_t)rng_below(GUARDED_PLACES);
        check(round);
    }
}

static void walk(void (*check)(round_t *round))
{
    size_t n_impls;
    const lnt_kernel_impl_t *impls = lnt_kernel_impls(&n_impls);
    round_t round = {.a = argument_create(), .b = argument_create(), .c = argument_create()};
    round.expected = calloc(ARRAY_MAX, sizeof(*round.expected));
    for (size_t r = 0; r < n_impls; r++) {
        if (!impls[r].usable()) continue;
        round.ops = lnt_kernel_arrays(&impls[r]);
        for (size_t s = 0; s < N_ARRAY_SIZES; s++) {
            round.n = array_sizes[s];
            for (int kind = 0; kind < ARRAY_KINDS; kind++) {
                round.kind = kind;
                walk_places(&round, check);
            }
        }
    }
    free(round.expected);
    argument_destroy(&round.a);
    argument_destroy(&round.b);
    argument_destroy(&round.c);
}

static void (*const checks[])(round_t *round) = {check_widen,      check_widen_scaled, check_widen_add,
                                                 check_narrow,     check_add_scale,    check_squares_fit,
                                                 check_square_sum, check_int8_errors,  check_kept_errors};
enum { N_CHECKS = sizeof(checks) / sizeof(checks[0]) };

START_TEST(arrays_follow_the_formulas)
{
    rng_fork((uint64_t)_i);
    walk(checks[_i]);
}
END_TEST

/* One bad element, wherever it stands, is seen: by every check, in every implementation. */
static void one_bad_element(const lnt_array_ops_t *ops, argument_t *argument, uint64_t n)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (uint64_t at = 0; at < n; at++) {
        float *values = argument_fill(argument, n, (guarded_place_t)(at % GUARDED_PLACES), ARRAY_NORMAL),
              *copy = argument_old(argument);
        values[at] = bad[rng_below(3)];
        ck_assert(!ops->finite(values, n) && !ops->squares_fit(values, NULL, NULL, n));
        ck_assert(!ops->widen_scaled[LNT_F32](values, n, 0.5f, copy));
        for (int d = 0; d < N_DTYPES; d++)
            ck_assert(!ops->fits[dtypes[d]](values, n));
        ck_assert(!ops->scale(values, n, 0.5f));
        values[at] = 0;
        ck_assert(ops->finite(values, n) && ops->squares_fit(values, NULL, NULL, n) && ops->scale(values, n, 2.0f));
    }
}

START_TEST(one_bad_element_is_enough)
{
    size_t n_impls;
    const lnt_kernel_impl_t *impls = lnt_kernel_impls(&n_impls);
    argument_t argument = argument_create();
    for (size_t r = 0; r < n_impls; r++) {
        if (!impls[r].usable()) continue;
        lnt_array_ops_t ops = lnt_kernel_arrays(&impls[r]);
        for (size_t s = 0; s < N_ARRAY_SIZES && array_sizes[s] <= 129; s++)
            one_bad_element(&ops, &argument, array_sizes[s]);
    }
    argument_destroy(&argument);
}
END_TEST

/* All 65536 codes widen to their values and come back; NaN as a quiet NaN. */
START_TEST(all_codes_of_16_bits)
{
    enum { ALL = 65536 };
    size_t n_impls;
    const lnt_kernel_impl_t *impls = lnt_kernel_impls(&n_impls);
    uint16_t *codes = calloc(2 * ALL, sizeof(*codes)), *back = codes + ALL;
    float *wide = calloc(ALL, sizeof(*wide));
    for (uint32_t i = 0; i < ALL; i++)
        codes[i] = (uint16_t)i;
    for (size_t r = 0; r < n_impls; r++) {
        if (!impls[r].usable()) continue;
        lnt_array_ops_t ops = lnt_kernel_arrays(&impls[r]);
        for (int d = 1; d < N_DTYPES; d++) {
            ops.widen[dtypes[d]](codes, ALL, wide);
            ops.narrow[dtypes[d]](wide, ALL, back);
            for (uint32_t i = 0; i < ALL; i++) {
                ck_assert_uint_eq(bits_of(wide[i]), bits_of(half_value(dtypes[d], codes[i])));
                ck_assert_uint_eq(back[i], half_code(dtypes[d], wide[i]));
                ck_assert(isnan(wide[i]) || back[i] == codes[i]);
            }
        }
    }
    free(codes);
    free(wide);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("array_ops");
    TCase *tcase = tcase_create("arrays");

    say_unusable_impls();
    tcase_add_loop_test(tcase, arrays_follow_the_formulas, 0, N_CHECKS);
    tcase_add_test(tcase, one_bad_element_is_enough);
    tcase_add_test(tcase, all_codes_of_16_bits);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
