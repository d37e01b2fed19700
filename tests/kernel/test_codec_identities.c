/* What the formulas promise about values: norms and errors of sign1, the half step of int8 and int4, the rounding of
 * bf16 and f16, and that error feedback loses nothing. Bounds are derived beside each check.
 */
#include "../../kernels/reduce_tree.h"
#include "codec_oracle.h"

enum { N = 4096 };

typedef struct coded {
    float decoded[N];
    float error[N];
    uint8_t scales[4 * (N / 64)];
    uint8_t codes[4 * N];
    bool poisoned;
} coded_t;

static coded_t coded;
static float input[N], zero[N];
static const double eps32 = 0x1p-24; /* one rounding of an f32 */

static void encode_decode(const char *name, uint32_t block, lnt_scale_rule_t rule, const float *error_in)
{
    lnt_codec_t codec;
    ck_assert_int_eq(lnt_codec_init(&codec, name, block, rule), LNT_OK);
    lnt_encode_in_t in = {.values = input, .dtype = LNT_F32, .n = N, .error_in = error_in};
    lnt_encode_out_t out = {.scales = coded.scales, .codes = coded.codes, .error_out = coded.error};
    codec.ops.encode(&codec.cfg, &in, &out);
    codec.ops.decode(&codec.cfg, coded.scales, coded.codes, N, NULL, coded.decoded);
    coded.poisoned = out.poisoned;
}

static double norm1(const float *v, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += fabs((double)v[i]);
    return sum;
}

static double norm2_squared(const float *v, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)v[i] * (double)v[i];
    return sum;
}

static double error_squared(const float *v, const float *w, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += ((double)v[i] - (double)w[i]) * ((double)v[i] - (double)w[i]);
    return sum;
}

/* Compared in f64, where another order shows at once: a scale in f32 would hide it. */
START_TEST(tree_follows_its_definition)
{
    double lanes[128];
    for (int round = 0; round < 1000; round++) {
        for (int i = 0; i < 128; i++)
            lanes[i] = rng_normal() * (double)(1 + rng_below(1000));
        double got = lnt_tree_combine(lanes), want = oracle_group(lanes, 0, 1);
        ck_assert_mem_eq(&got, &want, sizeof(got));
    }
}
END_TEST

/* With rho = |a|_1 / (sqrt(n) |a|_2): the L2 scale keeps the norm and has relative squared error 2(1 - rho), the L1
 * scale has 1 - rho^2. The only rounding is that of the scale to f32: relative 2^-24, at most 4 times that here. */
START_TEST(sign1_identities)
{
    const data_kind_t kinds[] = {DATA_NORMAL, DATA_SPIKE, DATA_SPARSE, DATA_TINY, DATA_HUGE, DATA_CONSTANT};
    data_fill(kinds[_i], input, N);
    double n1 = norm1(input, N), n2 = norm2_squared(input, N), rho = n1 / sqrt(N * n2);
    encode_decode("sign1", N, LNT_SCALE_L2, zero);
    ck_assert_double_le(fabs(sqrt(norm2_squared(coded.decoded, N) / n2) - 1), 4 * eps32);
    ck_assert_double_le(fabs(error_squared(input, coded.decoded, N) / n2 - 2 * (1 - rho)), 8 * eps32);
    encode_decode("sign1", N, LNT_SCALE_L1, zero);
    ck_assert_double_le(fabs(error_squared(input, coded.decoded, N) / n2 - (1 - rho * rho)), 8 * eps32);
}
END_TEST

/* Codes of int8 and int4, of which there are top on either side. */
typedef struct ints {
    const char *name;
    uint32_t block;
    int top;
} ints_t;

static const ints_t ints[] = {{"int8", 256, 127}, {"int4", 128, 7}};

static int code_at(const ints_t *kind, size_t i)
{
    if (kind->top == 127) return (int8_t)coded.codes[i];
    int nibble = coded.codes[i / 2] >> (i % 2 * 4) & 15;
    return nibble < 8 ? nibble : nibble - 16;
}

static float scale_at(uint32_t block, size_t i)
{
    float scale;
    memcpy(&scale, coded.scales + 4 * (i / block), 4);
    return scale;
}

/* Half a step, plus one rounding each of the scale, the quotient and the product (at most `top` scales). */
START_TEST(ints_half_step)
{
    const data_kind_t kinds[] = {DATA_NORMAL, DATA_PLUS_MINUS_MAX, DATA_TIES, DATA_HUGE, DATA_TINY, DATA_SPARSE};
    const ints_t *kind = &ints[_i % 2];
    data_fill(kinds[_i / 2], input, N);
    encode_decode(kind->name, kind->block, LNT_SCALE_L2, zero);
    ck_assert(!coded.poisoned);
    for (size_t i = 0; i < N; i++) {
        double step = (double)scale_at(kind->block, i);
        ck_assert_double_le(fabs((double)input[i] - (double)coded.decoded[i]), step * (0.5 + kind->top * 4 * eps32));
        ck_assert_int_le(abs(code_at(kind, i)), kind->top);
    }
}
END_TEST

START_TEST(ints_reach_both_ends)
{
    const ints_t *kind = &ints[_i];
    data_fill(DATA_NORMAL, input, N);
    input[10] = 100.0f;
    input[301] = -100.0f;
    encode_decode(kind->name, kind->block, LNT_SCALE_L2, zero);
    ck_assert_int_eq(code_at(kind, 10), kind->top);
    ck_assert_int_eq(code_at(kind, 301), -kind->top);
}
END_TEST

/* FLT_MAX / top rounds so that top times it may overflow: either the block is poisoned, or all values are finite. */
START_TEST(ints_at_the_top_of_f32)
{
    const ints_t *kind = &ints[_i];
    const float n = (float)kind->top;
    uint32_t bits = 0x7f7fffffu;
    for (int i = 0; i < 300; i++, bits--) {
        float top;
        memcpy(&top, &bits, 4);
        data_fill(DATA_NORMAL, input, N);
        input[5] = top;
        encode_decode(kind->name, kind->block, LNT_SCALE_L2, zero);
        ck_assert_int_eq(coded.poisoned, !isfinite(top / n * n));
        bool finite = true;
        for (size_t k = 0; k < N; k++)
            finite = finite && isfinite(coded.decoded[k]);
        ck_assert(finite);
    }
}
END_TEST

/* bf16 keeps 8 significant bits: relative error 2^-8 at most over the normal range, 1e30 and 1e-30 alike. f16 keeps 11,
 * half of 2^-24 below 2^-14. */
START_TEST(halves_round_trip)
{
    const struct {
        const char *name;
        data_kind_t data;
        double factor, relative, least;
    } cases[] = {{"bf16", DATA_NORMAL, 1, 0x1p-8, 0},         {"bf16", DATA_HUGE, 1, 0x1p-8, 0},
                 {"bf16", DATA_TINY, 1, 0x1p-8, 0},           {"f16", DATA_NORMAL, 1, 0x1p-11, 0x1p-25},
                 {"f16", DATA_NORMAL, 1e4, 0x1p-11, 0x1p-25}, {"f16", DATA_NORMAL, 1e-6, 0x1p-11, 0x1p-25}};
    data_fill(cases[_i].data, input, N);
    for (size_t i = 0; i < N; i++)
        input[i] *= (float)cases[_i].factor;
    encode_decode(cases[_i].name, 0, LNT_SCALE_L2, zero);
    ck_assert(!coded.poisoned);
    for (size_t i = 0; i < N; i++)
        ck_assert_double_le(fabs((double)input[i] - (double)coded.decoded[i]),
                            fmax(fabs((double)input[i]) * cases[_i].relative, cases[_i].least));
    memcpy(input, coded.decoded, sizeof(input));
    encode_decode(cases[_i].name, 0, LNT_SCALE_L2, NULL); /* -0 + 0 would be another number */
    ck_assert_mem_eq(input, coded.decoded, sizeof(input));
}
END_TEST

/* Values without a scale are handed on as they are, reported or not. */
START_TEST(overflow_is_reported_and_passed_on)
{
    const char *name = _i ? "f16" : "bf16";
    data_fill(DATA_NORMAL, input, N);
    encode_decode(name, 1024, LNT_SCALE_L2, zero);
    ck_assert(!coded.poisoned);
    for (size_t i = 0; i < N; i++)
        input[i] = coded.decoded[i];
    input[1030] = _i ? -65520.0f : -FLT_MAX;
    memcpy(&input[1031], &(uint32_t){0x7f800001u}, sizeof(float)); /* a NaN whose upper half alone would be Inf */
    encode_decode(name, 1024, LNT_SCALE_L2, zero);
    ck_assert(coded.poisoned);
    ck_assert(isinf(coded.decoded[1030]) && coded.decoded[1030] < 0);
    ck_assert(isnan(coded.decoded[1031]));
    ck_assert_mem_eq(coded.decoded, input, 1030 * sizeof(float));
    ck_assert_mem_eq(coded.decoded + 1032, input + 1032, (N - 1032) * sizeof(float));
}
END_TEST

/* Sum of decoded = sum of inputs - last error. Each step rounds twice (input + error, a - decoded), each by at most
 * 2^-24 of the operands, whose magnitude is at most `top`. */
START_TEST(error_feedback_telescopes)
{
    const char *names[] = {"bf16", "sign1", "int8", "int4", "int4_hadamard", "f16"};
    static double sum_in[N], sum_out[N];
    enum { STEPS = 100 };
    double top = 0;
    memset(sum_in, 0, sizeof(sum_in));
    memset(sum_out, 0, sizeof(sum_out));
    memset(coded.error, 0, sizeof(coded.error));
    for (int step = 0; step < STEPS; step++) {
        data_fill(DATA_NORMAL, input, N);
        encode_decode(names[_i], 0, LNT_SCALE_L2, coded.error);
        for (size_t i = 0; i < N; i++) {
            sum_in[i] += (double)input[i];
            sum_out[i] += (double)coded.decoded[i];
            top = fmax(top, fabs((double)coded.error[i]) + fabs((double)input[i]) + fabs((double)coded.decoded[i]));
        }
    }
    for (size_t i = 0; i < N; i++)
        ck_assert_double_le(fabs(sum_out[i] + (double)coded.error[i] - sum_in[i]), STEPS * 2 * eps32 * 2 * top);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("codec_identities");
    TCase *all = tcase_create("all");
    tcase_add_test(all, tree_follows_its_definition);
    tcase_add_loop_test(all, sign1_identities, 0, 6);
    tcase_add_loop_test(all, ints_half_step, 0, 12);
    tcase_add_loop_test(all, ints_reach_both_ends, 0, 2);
    tcase_add_loop_test(all, ints_at_the_top_of_f32, 0, 2);
    tcase_add_loop_test(all, halves_round_trip, 0, 6);
    tcase_add_loop_test(all, overflow_is_reported_and_passed_on, 0, 2);
    tcase_add_loop_test(all, error_feedback_telescopes, 0, 6);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}
