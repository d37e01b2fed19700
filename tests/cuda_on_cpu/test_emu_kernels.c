/* Right kernels give what plain C gives, in whatever order ctest asks for. The references are written from the CUDA
 * manual and from arithmetic, without a look at the layer.
 */
#include <math.h>
#include <stdbool.h>

#include "emu_testing.h"
#include "right_kernels.h"

#include "kernels/int8_math.h"
#include "kernels/reduce_tree.h"

enum { MANY = 10007 };

static void random_words(uint32_t *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        words[i] = (uint32_t)test_random();
}

static void random_floats(float *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        values[i] = (float)(test_random_unit() * 2.0 - 1.0);
}

START_TEST(two_level_sum)
{
    enum { BLOCKS = 5, LANES = BLOCKS * 4 * LNT_TREE_LANES };
    double lanes[LANES], sums[BLOCKS];
    void *in, *out = emu_on_device(sizeof(sums));

    for (size_t i = 0; i < LANES; i++)
        lanes[i] = test_random_unit() - 0.5;
    in = emu_to_device(lanes, sizeof(lanes));
    ck_assert_int_eq(right_tree_sum(in, out, BLOCKS, NULL), LNT_OK);
    emu_from_device(sums, out, sizeof(sums));
    for (size_t b = 0; b < BLOCKS; b++) {
        double expected = lnt_tree_combine(lanes + b * 4 * LNT_TREE_LANES);
        for (size_t w = 1; w < 4; w++)
            expected += lnt_tree_combine(lanes + (b * 4 + w) * LNT_TREE_LANES);
        ck_assert(expected == sums[b]);
    }
    emu_free(in);
}
END_TEST

START_TEST(ballot_packs_signs)
{
    static float values[MANY];
    static uint32_t words[MANY / 32 + 1];
    void *in, *out = emu_zeros(sizeof(words));

    random_floats(values, MANY);
    in = emu_to_device(values, sizeof(values));
    ck_assert_int_eq(right_ballot_pack(in, out, MANY, NULL), LNT_OK);
    emu_from_device(words, out, sizeof(words));
    for (size_t i = 0; i < MANY; i++)
        ck_assert_uint_eq((words[i / 32] >> (i % 32)) & 1u, values[i] < 0.0f);
    ck_assert_uint_eq(words[MANY / 32] >> (MANY % 32), 0);
    emu_free(in);
}
END_TEST

/* _i: elements that the second operand is shifted by. */
START_TEST(vectors_and_tail)
{
    static float sums[MANY], values[MANY + 3], out[MANY];
    float *device_sums, *device_values;

    random_floats(sums, MANY);
    random_floats(values, MANY + 3);
    device_sums = emu_to_device(sums, sizeof(sums));
    device_values = emu_to_device(values, sizeof(values));
    ck_assert_int_eq(right_add(device_sums, device_values + _i, MANY, NULL), LNT_OK);
    emu_from_device(out, device_sums, sizeof(out));
    for (size_t i = 0; i < MANY; i++)
        ck_assert(out[i] == sums[i] + values[i + (size_t)_i]);
    emu_free(device_values);
}
END_TEST

START_TEST(shared_histogram)
{
    static uint8_t bytes[MANY];
    unsigned counts[256], expected[256] = {0};
    void *in, *out = emu_zeros(sizeof(counts));

    for (size_t i = 0; i < MANY; i++)
        expected[bytes[i] = (uint8_t)test_random()]++;
    in = emu_to_device(bytes, sizeof(bytes));
    ck_assert_int_eq(right_histogram(in, MANY, out, NULL), LNT_OK);
    emu_from_device(counts, out, sizeof(counts));
    ck_assert_mem_eq(counts, expected, sizeof(counts));
    emu_free(in);
}
END_TEST

typedef struct totals {
    unsigned words[9];
    float float_sum;
    double double_sum;
} totals_t;

static totals_t totals_of(const uint32_t *values, size_t n)
{
    totals_t t = {.words = {0, 0, UINT32_MAX, UINT32_MAX, 0, 0, 0, 0, 1}};

    for (size_t i = 0; i < n; i++) {
        t.words[0] += values[i];
        t.words[1] = (values[i] > t.words[1]) ? values[i] : t.words[1];
        t.words[2] = (values[i] < t.words[2]) ? values[i] : t.words[2];
        t.words[3] &= values[i];
        t.words[4] |= values[i];
        t.words[5] ^= values[i];
        t.float_sum += (float)(values[i] % 256);
        t.double_sum += (double)values[i];
    }
    t.words[6] = t.words[0];
    t.words[7] = (unsigned)n - 1;
    return t;
}

/* All sums are exact, so the order of the atomics does not show. */
START_TEST(atomics_of_all_kinds)
{
    enum { N = 1000 };
    uint32_t values[N], start[9] = {0, 0, UINT32_MAX, UINT32_MAX, 0, 0, 0, 0, 0};
    void *in, *words = emu_to_device(start, sizeof(start)), *one = emu_zeros(4), *two = emu_zeros(8);
    totals_t got, expected;

    random_words(values, N);
    for (size_t i = 0; i < N; i++)
        values[i] |= (i % 2) ? 0x10u : 0x30u;
    expected = totals_of(values, N);
    in = emu_to_device(values, sizeof(values));
    ck_assert_int_eq(right_atomics(in, N, words, one, two, NULL), LNT_OK);
    emu_from_device(got.words, words, sizeof(got.words));
    emu_from_device(&got.float_sum, one, 4);
    emu_from_device(&got.double_sum, two, 8);
    ck_assert_mem_eq(got.words, expected.words, sizeof(got.words));
    ck_assert(got.float_sum == expected.float_sum && got.double_sum == expected.double_sum);
    emu_free(in);
}
END_TEST

/* From the manual: segments of width lanes behave as warps of their own with lanes counted from 0; a source outside the
 * segment leaves the lane its own value, but idx wraps around and xor may read earlier segments. */
static size_t manual_source(int kind, size_t lane, size_t operand, size_t width)
{
    size_t base = lane / width * width, place = lane % width;

    switch (kind) {
    case 0:
        return base + operand % width;
    case 1:
        return (place >= operand) ? lane - operand : lane;
    case 2:
        return (place + operand < width) ? lane + operand : lane;
    default:
        return ((lane ^ operand) < base + width) ? lane ^ operand : lane;
    }
}

/* _i: the operand, 0 to 31. */
START_TEST(shuffles_of_every_width)
{
    uint64_t values[32], results[RIGHT_SHUFFLES * 6 * 32];
    void *in, *out = emu_on_device(sizeof(results));

    for (size_t i = 0; i < 32; i++)
        values[i] = test_random();
    in = emu_to_device(values, sizeof(values));
    ck_assert_int_eq(right_shuffles(in, (unsigned)_i, out, NULL), LNT_OK);
    emu_from_device(results, out, sizeof(results));
    for (int kind = 0; kind < RIGHT_SHUFFLES; kind++)
        for (size_t log_width = 0; log_width < 6; log_width++)
            for (size_t lane = 0; lane < 32; lane++) {
                size_t source = manual_source(kind, lane, (size_t)_i, (size_t)1 << log_width);
                ck_assert_uint_eq(results[((size_t)kind * 6 + log_width) * 32 + lane], values[source]);
            }
    emu_free(in);
}
END_TEST

START_TEST(shuffles_of_floats)
{
    double values[32], doubles[32];
    float floats[32];
    void *in, *out_f = emu_on_device(sizeof(floats)), *out_d = emu_on_device(sizeof(doubles));
    unsigned operand = (unsigned)test_random_below(32);

    for (size_t i = 0; i < 32; i++)
        values[i] = test_random_unit();
    in = emu_to_device(values, sizeof(values));
    ck_assert_int_eq(right_float_shuffles(in, operand, out_f, out_d, NULL), LNT_OK);
    emu_from_device(floats, out_f, sizeof(floats));
    emu_from_device(doubles, out_d, sizeof(doubles));
    for (size_t i = 0; i < 32; i++)
        ck_assert(doubles[i] == values[i ^ operand] && floats[i] == (float)values[i ^ operand]);
    emu_free(in);
}
END_TEST

/* Also the last warp, which is not whole. */
START_TEST(groups_of_lanes_apart)
{
    enum { N = 83 };
    uint32_t values[N], sums[N];
    void *in, *out = emu_on_device(sizeof(sums));

    random_words(values, N);
    in = emu_to_device(values, sizeof(values));
    ck_assert_int_eq(right_submasks(in, out, N, NULL), LNT_OK);
    emu_from_device(sums, out, sizeof(sums));
    for (size_t i = 0; i < N; i++) {
        uint32_t expected = 0;
        for (size_t k = i / 32 * 32; k < N && k < i / 32 * 32 + 32; k++)
            expected += (values[k] % 3 == values[i] % 3) ? values[k] : 0;
        ck_assert_uint_eq(sums[i], expected);
    }
    emu_free(in);
}
END_TEST

/* What the lanes of one warp share, from lane `self`'s point of view. */
static void expect_warp(const uint32_t *values, size_t self, uint32_t *r)
{
    int32_t top = (int32_t)values[0];

    memset(r, 0, 9 * sizeof(*r));
    r[2] = r[4] = UINT32_MAX;
    r[8] = 1;
    for (size_t k = 0; k < 32; k++) {
        r[0] |= (uint32_t)(values[k] % 5 == values[self] % 5) << k;
        r[1] += values[k];
        r[2] = (values[k] < r[2]) ? values[k] : r[2];
        top = ((int32_t)values[k] > top) ? (int32_t)values[k] : top;
        r[4] &= values[k] | 0xffu;
        r[5] |= values[k] & 0xff00u;
        r[6] ^= values[k];
        r[7] |= values[k] % 64 == 0;
        r[8] &= values[k] % 64 != 0;
    }
    r[3] = (uint32_t)top;
}

/* _i: 0 as it comes, 1 with no multiple of 64 anywhere. */
START_TEST(votes_and_reductions)
{
    enum { N = 96 };
    uint32_t values[N], results[N * RIGHT_VOTES], expected[9], odd = 0, any = 0;
    void *in, *out = emu_on_device(sizeof(results));

    random_words(values, N);
    for (size_t i = 0; i < N; i++) {
        values[i] |= (uint32_t)_i;
        odd += values[i] & 1u;
        any |= values[i] % 64 == 0;
    }
    in = emu_to_device(values, sizeof(values));
    ck_assert_int_eq(right_votes(in, out, N, NULL), LNT_OK);
    emu_from_device(results, out, sizeof(results));
    for (size_t i = 0; i < N; i++) {
        const uint32_t *r = results + i * RIGHT_VOTES;
        expect_warp(values + i / 32 * 32, i % 32, expected);
        ck_assert_mem_eq(r, expected, sizeof(expected));
        ck_assert(r[9] == odd && r[10] == any && r[11] == !any);
    }
    emu_free(in);
}
END_TEST

START_TEST(blocks_of_two_dimensions)
{
    enum { ROWS = 19, COLUMNS = 37 };
    int in[ROWS][COLUMNS], out[COLUMNS][ROWS];
    void *device_in, *device_out = emu_on_device(sizeof(out));

    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++)
            in[r][c] = (int)test_random();
    device_in = emu_to_device(in, sizeof(in));
    ck_assert_int_eq(right_transpose(device_in, device_out, ROWS, COLUMNS, NULL), LNT_OK);
    emu_from_device(out, device_out, sizeof(out));
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++)
            ck_assert_int_eq(in[r][c], out[c][r]);
    emu_free(device_in);
}
END_TEST

/* Bit by bit. */
static void expect_bits(uint32_t a, uint32_t b, uint32_t *r)
{
    uint8_t bytes[8];

    memcpy(bytes, &a, 4);
    memcpy(bytes + 4, &b, 4);
    memset(r, 0, 5 * sizeof(*r));
    for (unsigned bit = 0; bit < 32; bit++) {
        r[0] += (a >> bit) & 1u;
        r[1] = ((a >> bit) & 1u) ? 0 : r[1] + 1;
        r[2] = (r[2] == 0 && ((a >> bit) & 1u)) ? bit + 1 : r[2];
        r[3] |= ((a >> bit) & 1u) << (31 - bit);
    }
    for (unsigned k = 0; k < 4; k++) {
        unsigned choice = ((a ^ b) >> (4 * k)) & 15u;
        uint8_t byte = bytes[choice % 8];
        r[4] |= (uint32_t)((choice >= 8) ? ((byte >= 128) ? 255 : 0) : byte) << (8 * k);
    }
}

static uint32_t float_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static void expect_arithmetic(uint32_t a, uint32_t b, uint32_t *r)
{
    volatile double product = (double)b * 0.1;
    double sum = (double)a + product;
    uint64_t sum_bits, pair = ((uint64_t)b << 32) | a;

    memcpy(&sum_bits, &sum, sizeof(sum_bits));
    r[5] = (uint32_t)(((uint64_t)a * b) >> 32);
    r[6] = float_bits(fmaf((float)a, (float)b, 1.0f));
    r[7] = float_bits((float)a * (float)b);
    r[8] = (uint32_t)sum_bits;
    r[9] = float_bits((float)nearbyint((double)(a % 4096) / 8.0));
    r[10] = float_bits((float)sqrt((double)(float)b));
    r[11] = (uint32_t)((pair << (a % 32)) >> 32);
}

START_TEST(intrinsics_of_one_thread)
{
    enum { N = 1000 };
    static uint32_t pairs[2 * N], results[N * RIGHT_INTRINSICS];
    uint32_t expected[RIGHT_INTRINSICS];
    void *in, *out = emu_on_device(sizeof(results));

    random_words(pairs, 2 * N);
    for (size_t i = 0; i < N; i++)
        pairs[2 * i] >>= test_random_below(32);
    pairs[0] = 0;
    in = emu_to_device(pairs, sizeof(pairs));
    ck_assert_int_eq(right_intrinsics(in, N, out, NULL), LNT_OK);
    emu_from_device(results, out, sizeof(results));
    for (size_t i = 0; i < N; i++) {
        expect_bits(pairs[2 * i], pairs[2 * i + 1], expected);
        expect_arithmetic(pairs[2 * i], pairs[2 * i + 1], expected);
        ck_assert_mem_eq(results + i * RIGHT_INTRINSICS, expected, sizeof(expected));
    }
    emu_free(in);
}
END_TEST

/* The value of a code, from the definition: fraction_bits behind the point, a bias, the top exponent for Inf and NaN.
 */
static double value_of(uint32_t code, int fraction_bits, int bias)
{
    int top = 2 * bias + 1, exponent = (int)(code >> fraction_bits) & top;
    int fraction = (int)(code & ((1u << fraction_bits) - 1));
    double sign = (code & 0x8000u) ? -1.0 : 1.0;

    if (exponent == top) return (fraction != 0) ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexp(fraction, 1 - bias - fraction_bits);
    return sign * ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

/* No neighbour is nearer, and of two as near this one is even. What rounds beyond the largest finite code is Inf. */
static bool is_nearest(float value, uint32_t code, int fraction_bits, int bias)
{
    uint32_t magnitude = code & 0x7fffu, top = (uint32_t)(2 * bias + 1) << fraction_bits;
    double goal = fabs((double)value), here = value_of(magnitude, fraction_bits, bias);
    double step = ldexp(1.0, bias - fraction_bits);

    if (isnan(value)) return isnan(here);
    if (((code & 0x8000u) != 0) != (signbit(value) != 0)) return false;
    if (magnitude == top) return goal >= value_of(top - 1, fraction_bits, bias) + 0.5 * step;
    if (magnitude + 1 == top && goal >= here + 0.5 * step) return false;
    for (uint32_t other = magnitude ? magnitude - 1 : 1; other <= magnitude + 1 && other < top; other += 2) {
        double near = fabs(here - goal), far = fabs(value_of(other, fraction_bits, bias) - goal);
        if (far < near || (far == near && (magnitude & 1u))) return false;
    }
    return true;
}

/* One assertion, and only where it fails: libcheck writes each of them down. */
static void check_conversion(float in, const uint16_t *codes, const float *values)
{
    double half = value_of(codes[0], 10, 15), bfloat = value_of(codes[1], 7, 127);
    bool right = is_nearest(in, codes[0], 10, 15) && is_nearest(in, codes[1], 7, 127) &&
                 (isnan(half) ? isnan(values[0]) : (double)values[0] == half) &&
                 (isnan(bfloat) ? isnan(values[1]) : (double)values[1] == bfloat);

    if (!right)
        ck_abort_msg("%a became f16 0x%04x, %a, and bf16 0x%04x, %a", (double)in, codes[0], (double)values[0], codes[1],
                     (double)values[1]);
}

/* Random bits, every f16 value (every 16th where a sanitizer slows us down), the middles between neighbours, and what
 * overflows. */
START_TEST(conversions_to_halves)
{
    enum { STEP = TEST_SANITIZED ? 16 : 1, CODES = 65536 / STEP, N = 3 * CODES };
    static float in[N], values[2 * N];
    static uint16_t codes[2 * N];
    void *device_in, *device_codes = emu_on_device(sizeof(codes)), *device_values = emu_on_device(sizeof(values));

    for (uint32_t i = 0; i < CODES; i++) {
        uint32_t bits = (uint32_t)test_random(), code = i * STEP;
        memcpy(&in[3 * i], &bits, 4);
        in[3 * i + 1] = (float)value_of(code, 10, 15);
        in[3 * i + 2] = (float)(0.5 * (value_of(code, 10, 15) + value_of(code + 1, 10, 15)));
    }
    in[0] = 65520.0f;
    in[3] = 65519.996f;
    device_in = emu_to_device(in, sizeof(in));
    ck_assert_int_eq(right_conversions(device_in, N, device_codes, device_values, NULL), LNT_OK);
    emu_from_device(codes, device_codes, sizeof(codes));
    emu_from_device(values, device_values, sizeof(values));
    for (size_t i = 0; i < N; i++)
        check_conversion(in[i], codes + 2 * i, values + 2 * i);
    emu_free(device_in);
}
END_TEST

START_TEST(last_block_sums)
{
    enum { N = 2000, BLOCKS = (N + RIGHT_BLOCK - 1) / RIGHT_BLOCK };
    uint32_t values[N], sum, expected = 0;
    void *in, *partial = emu_on_device(BLOCKS * 4), *n_done = emu_zeros(4), *out = emu_on_device(4);

    random_words(values, N);
    for (size_t i = 0; i < N; i++)
        expected += values[i];
    in = emu_to_device(values, sizeof(values));
    ck_assert_int_eq(right_last_block(in, N, partial, n_done, out, NULL), LNT_OK);
    emu_from_device(&sum, out, sizeof(sum));
    ck_assert_uint_eq(sum, expected);
    emu_free(in);
    emu_free(partial);
    emu_free(n_done);
}
END_TEST

START_TEST(int8_blocks)
{
    enum { BLOCKS = 11, N = BLOCKS * 256 };
    static float values[N];
    float scales[BLOCKS];
    int8_t codes[N];
    void *in, *out_scales = emu_on_device(sizeof(scales)), *out_codes = emu_on_device(sizeof(codes));

    random_floats(values, N);
    in = emu_to_device(values, sizeof(values));
    ck_assert_int_eq(right_quantise(in, BLOCKS, out_scales, out_codes, NULL), LNT_OK);
    emu_from_device(scales, out_scales, sizeof(scales));
    emu_from_device(codes, out_codes, sizeof(codes));
    for (size_t b = 0; b < BLOCKS; b++) {
        uint32_t top = 0;
        for (size_t i = b * 256; i < (b + 1) * 256; i++)
            top = (lnt_f32_abs_bits(values[i]) > top) ? lnt_f32_abs_bits(values[i]) : top;
        ck_assert(scales[b] == lnt_int8_scale(top));
        for (size_t i = b * 256; i < (b + 1) * 256; i++)
            ck_assert_int_eq(codes[i], lnt_int8_code(values[i], scales[b]));
    }
    emu_free(in);
}
END_TEST

START_TEST(shared_memory_beyond_the_default)
{
    enum { BYTES = 100 * 1024, WORDS = BYTES / 4 };
    static unsigned words[WORDS];
    void *out = emu_on_device(BYTES);

    ck_assert_int_eq(right_large_shared(out, BYTES, NULL), LNT_OK);
    emu_from_device(words, out, BYTES);
    for (unsigned i = 0; i < WORDS; i++)
        ck_assert_uint_eq(words[i], WORDS - 1 - i);
}
END_TEST

/* In a process of its own: the switch is read once. */
START_TEST(relaxed_rules)
{
    unsigned out[RIGHT_BLOCK];
    void *device = emu_zeros(sizeof(out));

    if (getenv("CK_FORK") != NULL && strcmp(getenv("CK_FORK"), "no") == 0) {
        test_say_skipped("relaxed_rules", "needs a process of its own, which sanitizers do not allow");
        emu_free(device);
        return;
    }
    setenv("LNT_EMU_STRICT", "0", 1);
    ck_assert_int_eq(right_if_relaxed(device, NULL), LNT_OK);
    emu_from_device(out, device, sizeof(out));
    for (unsigned i = 0; i < RIGHT_BLOCK; i++) {
        unsigned first = i / 32 * 32, staying = 0;
        for (unsigned k = first; k < first + 32; k++)
            staying += k % 3 != 2;
        ck_assert_uint_eq(out[i], (i % 3 != 2) ? staying : 0);
    }
}
END_TEST

static Suite *emu_kernels_suite(void)
{
    Suite *suite = suite_create("emu_kernels");
    TCase *tcase = tcase_create("right kernels");

    tcase_add_checked_fixture(tcase, emu_choose_order, NULL);
    tcase_add_test(tcase, two_level_sum);
    tcase_add_test(tcase, ballot_packs_signs);
    tcase_add_loop_test(tcase, vectors_and_tail, 0, 4);
    tcase_add_test(tcase, shared_histogram);
    tcase_add_test(tcase, atomics_of_all_kinds);
    tcase_add_loop_test(tcase, shuffles_of_every_width, 0, 32);
    tcase_add_test(tcase, shuffles_of_floats);
    tcase_add_test(tcase, groups_of_lanes_apart);
    tcase_add_loop_test(tcase, votes_and_reductions, 0, 2);
    tcase_add_test(tcase, blocks_of_two_dimensions);
    tcase_add_test(tcase, intrinsics_of_one_thread);
    tcase_add_test(tcase, conversions_to_halves);
    tcase_add_test(tcase, last_block_sums);
    tcase_add_test(tcase, int8_blocks);
    tcase_add_test(tcase, shared_memory_beyond_the_default);
    tcase_add_test(tcase, relaxed_rules);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return test_main(emu_kernels_suite());
}
