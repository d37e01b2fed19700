/* What the rotation of int4_hadamard promises: it keeps the norm, it is undone by doing it again, a warp can follow it,
 * and what is not rotated is int4.
 */
#include "../../kernels/hadamard_math.h"
#include "kernel_testing.h"

enum { N = 2048, GROUP = 32, BLOCK = 128 };

static const double eps32 = 0x1p-24; /* one rounding of an f32 */
static float input[N], decoded[N];
static uint8_t scales[4 * N / 64], codes[N / 2], plain_scales[4 * N / 64], plain_codes[N / 2];

static double magnitudes(const float *v)
{
    double sum = 0;
    for (int i = 0; i < GROUP; i++)
        sum += fabs((double)v[i]);
    return sum;
}

/* The matrix itself in f64: row i, column k has the sign of the parity of i & k. Five additions round each partial sum,
 * which is at most the sum of magnitudes. */
START_TEST(rotation_is_the_matrix)
{
    float v[GROUP];
    for (int round = 0; round < 1000; round++) {
        data_fill(_i ? DATA_SPIKE : DATA_NORMAL, input, GROUP);
        memcpy(v, input, sizeof(v));
        lnt_hadamard_rotate(v);
        for (unsigned i = 0; i < GROUP; i++) {
            double want = 0;
            for (unsigned k = 0; k < GROUP; k++)
                want += __builtin_parity(i & k) ? -(double)input[k] : (double)input[k];
            ck_assert_double_le(fabs((double)v[i] - want), 6 * eps32 * magnitudes(input));
        }
    }
}
END_TEST

/* Sum of squares times 32, and the group itself times 32; whole numbers, so exactly. */
START_TEST(energy_is_kept_and_twice_is_32_times)
{
    float v[GROUP];
    double before = 0, after = 0;
    for (int i = 0; i < GROUP; i++)
        input[i] = v[i] = (float)rng_below(2001) - 1000.0f;
    lnt_hadamard_rotate(v);
    for (int i = 0; i < GROUP; i++) {
        before += (double)input[i] * (double)input[i];
        after += (double)v[i] * (double)v[i];
    }
    ck_assert(after == 32 * before);
    lnt_hadamard_rotate(v);
    for (int i = 0; i < GROUP; i++)
        ck_assert(v[i] * LNT_HADAMARD_INVERSE == input[i]);
}
END_TEST

/* Lane by lane with exchanges between lanes: the same bytes. */
START_TEST(lanes_of_a_warp_give_the_same_bytes)
{
    float v[GROUP], lanes[GROUP], next[GROUP];
    for (int round = 0; round < 1000; round++) {
        data_fill(DATA_NORMAL, v, GROUP);
        memcpy(lanes, v, sizeof(v));
        lnt_hadamard_rotate(v);
        for (uint32_t distance = 1; distance < GROUP; distance *= 2) {
            for (uint32_t lane = 0; lane < GROUP; lane++)
                next[lane] = lnt_hadamard_stage(lanes[lane], lanes[lane ^ distance], lane, distance);
            memcpy(lanes, next, sizeof(lanes));
        }
        ck_assert_mem_eq(v, lanes, sizeof(v));
    }
}
END_TEST

static bool code(const char *name, uint64_t n, const uint8_t *live, uint8_t *to_scales, uint8_t *to_codes)
{
    lnt_codec_t codec;
    ck_assert_int_eq(lnt_codec_init(&codec, name, BLOCK, LNT_SCALE_L2), LNT_OK);
    lnt_encode_in_t in = {.values = input, .dtype = LNT_F32, .n = n, .live = live};
    lnt_encode_out_t out = {.scales = to_scales, .codes = to_codes};
    codec.ops.encode(&codec.cfg, &in, &out);
    codec.ops.decode(&codec.cfg, to_scales, to_codes, n, live, decoded);
    return out.poisoned;
}

/* A rotated element is off by half a step, the roundings of code and value (7 steps at most), and those of its own five
 * additions. Rotating back keeps the norm of these 32 errors up to the factor sqrt(32) / 32, so none of the results is
 * off by more than one of them was at most; it rounds again, 7 steps times 32 at most, before the factor 1 / 32. */
START_TEST(half_a_step_of_the_rotated_block)
{
    const data_kind_t kinds[] = {DATA_NORMAL, DATA_SPARSE, DATA_SPIKE, DATA_CONSTANT, DATA_TINY};
    float scale;
    data_fill(kinds[_i], input, N);
    ck_assert(!code("int4_hadamard", N, NULL, scales, codes));
    for (size_t i = 0; i < N; i++) {
        memcpy(&scale, scales + 4 * (i / BLOCK), 4);
        double step = (double)scale, bound = step * (0.5 + 7 * 4 * eps32) + 6 * eps32 * magnitudes(input + i / 32 * 32);
        ck_assert_double_le(fabs((double)input[i] - (double)decoded[i]), bound + 6 * eps32 * 7 * step);
    }
}
END_TEST

/* A lone peak is what the rotation is for: int4 loses everything beside it, here all codes share it. */
START_TEST(a_peak_leaves_the_others_alive)
{
    double lost[2] = {0, 0};
    data_fill(DATA_NORMAL, input, N);
    for (size_t i = 0; i < N; i += BLOCK)
        input[i + rng_below(BLOCK)] = 50.0f;
    for (int k = 0; k < 2; k++) {
        code(k ? "int4_hadamard" : "int4", N, NULL, scales, codes);
        for (size_t i = 0; i < N; i++)
            lost[k] += ((double)input[i] - (double)decoded[i]) * ((double)input[i] - (double)decoded[i]);
    }
    ck_assert_double_lt(lost[1], lost[0] / 4);
}
END_TEST

/* Short groups, and groups with a dead element: the bytes of int4. */
START_TEST(what_is_not_rotated_is_int4)
{
    uint8_t live[N / 8];
    memset(live, 0xff, sizeof(live));
    for (size_t group = 0; group < N / GROUP; group++)
        live[group * 4 + rng_below(4)] &= (uint8_t) ~(1u << rng_below(8));
    data_fill(DATA_NORMAL, input, N);
    for (int masked = 0; masked < 2; masked++) {
        uint64_t n = masked ? N : 31;
        code("int4", n, masked ? live : NULL, plain_scales, plain_codes);
        code("int4_hadamard", n, masked ? live : NULL, scales, codes);
        ck_assert_mem_eq(scales, plain_scales, 4 * ((n + BLOCK - 1) / BLOCK));
        ck_assert_mem_eq(codes, plain_codes, (n + 1) / 2);
    }
}
END_TEST

/* Finite values whose sums are not: poisoned, and so is a scale that 32 top codes overflow. */
START_TEST(sums_that_overflow_poison)
{
    for (int i = 0; i < GROUP; i++)
        input[i] = _i == 0 ? 2e37f : 1e37f; /* 32 of them: 6.4e38, 3.2e38 */
    ck_assert_int_eq(code("int4_hadamard", GROUP, NULL, scales, codes),
                     _i == 0 || !isfinite(3.2e38f / 7.0f * 7.0f * 32));
    ck_assert(!code("int4", GROUP, NULL, scales, codes));
    for (int i = 0; i < GROUP; i++)
        input[i] /= 64.0f;
    ck_assert(!code("int4_hadamard", GROUP, NULL, scales, codes));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("codec_hadamard");
    TCase *all = tcase_create("all");
    tcase_add_loop_test(all, rotation_is_the_matrix, 0, 2);
    tcase_add_test(all, energy_is_kept_and_twice_is_32_times);
    tcase_add_test(all, lanes_of_a_warp_give_the_same_bytes);
    tcase_add_loop_test(all, half_a_step_of_the_rotated_block, 0, 5);
    tcase_add_test(all, a_peak_leaves_the_others_alive);
    tcase_add_test(all, what_is_not_rotated_is_int4);
    tcase_add_loop_test(all, sums_that_overflow_poison, 0, 2);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}
