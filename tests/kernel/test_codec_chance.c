/* Rounding by chance: to a neighbour, fair, and a function of seed and index alone. */
#include <linnet/codec.h>

#include "codec_oracle.h"

enum { N = 4096 };

static const char *const names[] = {"bf16_sr", "f16_sr"};
static float input[N], decoded[N], again[N];
static uint8_t wire[2 * N];

static lnt_codec_t *create(int i)
{
    lnt_codec_params_t params = {.struct_size = sizeof(params), .name = names[i % 2]};
    lnt_codec_t *codec = NULL;
    ck_assert_int_eq(lnt_codec_create(&params, &codec), LNT_OK);
    return codec;
}

/* Elements [from, to) as if the run began at element 0. */
static void roll(const lnt_codec_t *codec, uint64_t seed, uint64_t index, size_t from, size_t to, float *out)
{
    size_t n = to - from;
    ck_assert_int_eq(lnt_codec_encode_seeded(codec, input + from, LNT_F32, n, seed, index + from, NULL, NULL, wire),
                     LNT_OK);
    ck_assert_int_eq(lnt_codec_decode(codec, wire, 2 * n, n, out + from), LNT_OK);
}

/* Values in reach of both formats: of all magnitudes from subnormal f16 to its largest numbers. */
static float draw_value(void)
{
    return ldexpf(0.5f + 0.5f * (float)rng_below(1u << 20) * 0x1p-20f, (int)rng_below(36) - 21) *
           (rng_below(2) ? 1.0f : -1.0f);
}

static double unit_of(int i, double v)
{
    int exponent = ilogb(v);
    return i % 2 ? ldexp(1, (exponent < -14 ? -14 : exponent) - 10) : ldexp(1, exponent - 7);
}

/* n copies of one value come out as its two neighbours; their mean is off by at most 6 sigma, sigma = unit / 2 /
 * sqrt(n) or less: one run in 10^7 fails (64 values). */
START_TEST(fair_and_to_a_neighbour)
{
    lnt_codec_t *codec = create(_i);
    for (int round = 0; round < 32; round++) {
        float value = draw_value();
        double sum = 0, unit = unit_of(_i, (double)value), worst = 0;
        for (size_t i = 0; i < N; i++)
            input[i] = value;
        roll(codec, rng_next(), rng_next(), 0, N, decoded);
        for (size_t i = 0; i < N; i++) {
            double off = (double)decoded[i] - (double)value;
            sum += off;
            worst = fmax(worst, fabs(off));
        }
        ck_assert_double_lt(worst, unit);
        ck_assert_double_le(fabs(sum / N), 6 * unit / 2 / sqrt(N));
    }
    lnt_codec_destroy(codec);
}
END_TEST

/* The same for one seed and index, whatever the pieces; other seeds and indices, also 2^32 apart, give others: two
 * agree where both round the same way, in half of N places, +- 16 sqrt(N) / 2. */
START_TEST(a_function_of_seed_and_index)
{
    const uint64_t seed = rng_next(), index = (rng_next() << 32) - rng_below(N);
    const uint64_t others[][2] = {{seed + 1, index},
                                  {seed ^ 1ull << 40, index},
                                  {seed, index + N},
                                  {seed, index + (1ull << 32)},
                                  {seed, index - (1ull << 32)}};
    lnt_codec_t *codec = create(_i);
    for (size_t i = 0; i < N; i++) {
        double v = (double)draw_value();
        input[i] = (float)((floor(v / unit_of(_i, v)) + 0.5) * unit_of(_i, v));
    }
    roll(codec, seed, index, 0, N, decoded);
    for (size_t at = 0, n; at < N; at += n) {
        n = 1 + rng_below(N - at < 300 ? N - at : 300);
        roll(codec, seed, index, at, at + n, again);
    }
    ck_assert_mem_eq(decoded, again, sizeof(decoded));
    for (size_t k = 0; k < sizeof(others) / sizeof(others[0]); k++) {
        int same = 0;
        roll(codec, others[k][0], others[k][1], 0, N, again);
        for (size_t i = 0; i < N; i++)
            same += memcmp(&decoded[i], &again[i], 4) == 0;
        ck_assert_int_lt(abs(same - N / 2), 8 * 64);
    }
    lnt_codec_destroy(codec);
}
END_TEST

/* Numbers of the format stay, whatever the seed; and encode without a seed is seed 0, index 0. */
START_TEST(numbers_of_the_format_stay)
{
    lnt_codec_t *codec = create(_i);
    uint8_t plain[2 * N];
    for (size_t i = 0; i < N; i++)
        input[i] = _i % 2 ? oracle_f16_value(oracle_f16(draw_value())) : oracle_bf16_value(oracle_bf16(draw_value()));
    roll(codec, rng_next(), rng_next(), 0, N, decoded);
    ck_assert_mem_eq(decoded, input, sizeof(input));
    for (size_t i = 0; i < N; i++)
        input[i] = draw_value();
    roll(codec, 0, 0, 0, N, decoded);
    ck_assert_int_eq(lnt_codec_encode(codec, input, LNT_F32, N, NULL, NULL, plain), LNT_OK);
    ck_assert_mem_eq(plain, wire, sizeof(plain));
    lnt_codec_destroy(codec);
}
END_TEST

/* Above the largest number chance may give Inf, which is reported; no more than it should. */
START_TEST(overflow_by_chance)
{
    const float top = _i % 2 ? 65504.0f : 0x1.fep127f;
    lnt_codec_t *codec = create(_i);
    int up = 0;
    for (int round = 0; round < 1000; round++) {
        float value = top + top * (_i % 2 ? 0x1p-13f : 0x1p-10f); /* a quarter of the unit, nearly */
        lnt_status_t status = lnt_codec_encode_seeded(codec, &value, LNT_F32, 1, rng_next(), 0, NULL, NULL, wire);
        ck_assert(status == LNT_OK || status == LNT_SKIPPED_NONFINITE);
        ck_assert_int_eq(lnt_codec_decode(codec, wire, 2, 1, decoded), LNT_OK);
        ck_assert((status == LNT_OK) == (decoded[0] == top) && (status == LNT_OK || isinf(decoded[0])));
        up += status != LNT_OK;
    }
    ck_assert_int_lt(abs(up - 250), 110); /* 1 in 4, 8 sigma */
    lnt_codec_destroy(codec);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("codec_chance");
    TCase *all = tcase_create("all");
    tcase_add_loop_test(all, fair_and_to_a_neighbour, 0, 2);
    tcase_add_loop_test(all, a_function_of_seed_and_index, 0, 2);
    tcase_add_loop_test(all, numbers_of_the_format_stay, 0, 2);
    tcase_add_loop_test(all, overflow_by_chance, 0, 2);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}
