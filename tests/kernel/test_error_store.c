/* How errors are kept: every way against its definition in f64, and what saved state relies on: what was read is kept
 * again without a change, whatever of it was set to zero in between.
 */
#include <float.h>
#include <math.h>

#include "../../kernels/error_store.h"
#include "half_oracle.h"
#include "testing.h"

enum { LONGEST = 1000, GUARD = 64, TRIES = TEST_SANITIZED ? 200 : 3000, SCALES = LONGEST / LNT_ERROR_BLOCK + 2 };

typedef struct kept {
    uint64_t n;
    float values[LONGEST], got[LONGEST + 1], again[LONGEST + 1];
    uint8_t codes[4 * LONGEST + GUARD], other[4 * LONGEST + GUARD];
    float scales[SCALES], other_scales[SCALES];
} kept_t;

/* Any magnitude f32 has, or a narrow band of them, with zeros and signs. */
static float draw_value(int kind)
{
    uint32_t bits = (uint32_t)test_random();
    float value;

    if (kind == 0) return (float)ldexp((double)(int32_t)bits, -40);
    if (kind == 1) return (bits & 7) == 0 ? (float)ldexp((double)(int32_t)bits, -30) : 0.0f;
    if (kind == 2) bits &= 0x80ffffffu; /* around the smallest normal numbers */
    memcpy(&value, &bits, sizeof(value));
    if (kind == 4) value = (bits & 1) != 0 ? FLT_MAX : -FLT_MAX * 0.999f;
    return isfinite(value) ? value : FLT_MAX;
}

static void draw(kept_t *kept)
{
    int kind = (int)(test_random() % 5);

    kept->n = test_random() % (LONGEST + 1);
    if (test_random() % 8 == 0) kept->n = test_random() % 3 * LNT_ERROR_BLOCK;
    for (uint64_t i = 0; i < kept->n; i++)
        kept->values[i] = draw_value(kind);
    kept->got[kept->n] = kept->again[kept->n] = 77;
}

static void keep(const lnt_error_row_t *row, kept_t *kept)
{
    memset(kept->codes, 0xa5, sizeof(kept->codes));
    row->write(kept->values, kept->n, kept->codes, kept->scales);
    row->read(kept->codes, kept->scales, kept->n, kept->got);
    for (uint64_t i = kept->n * row->elem_bytes; i < kept->n * row->elem_bytes + GUARD; i++)
        ck_assert_uint_eq(kept->codes[i], 0xa5);
    ck_assert(kept->got[kept->n] == 77);
}

static void expect_kept_again(const lnt_error_row_t *row, kept_t *kept)
{
    row->write(kept->got, kept->n, kept->other, kept->other_scales);
    row->read(kept->other, kept->other_scales, kept->n, kept->again);
    ck_assert(kept->again[kept->n] == 77);
    ck_assert(memcmp(kept->again, kept->got, kept->n * sizeof(kept->got[0])) == 0);
}

/* The step of a block: 1/127 of the largest magnitude, cut to 17 bits, 2^-126 at least. */
static double step_of(const float *values, uint64_t n)
{
    float largest = 0;
    int exponent;
    double fraction;

    for (uint64_t i = 0; i < n; i++)
        largest = fmaxf(largest, fabsf(values[i]));
    fraction = frexp((double)(largest / 127.0f), &exponent);
    return fmax(ldexp(1, -126), ldexp(floor(ldexp(fraction, 17)), exponent - 17));
}

/* The nearest code; in f32, so that what lies in the middle to seven digits may go either way. */
static void expect_int8(const kept_t *kept)
{
    for (uint64_t i = 0; i < kept->n; i += LNT_ERROR_BLOCK) {
        uint64_t n = kept->n - i < LNT_ERROR_BLOCK ? kept->n - i : LNT_ERROR_BLOCK;
        double step = step_of(kept->values + i, n);
        for (uint64_t k = i; k < i + n; k++) {
            double code = (double)kept->values[k] / step, got = (double)kept->got[k] / step;
            bool nearest = fabs(got) <= 127 && got == nearbyint(got) && fabs(got - code) <= 0.5 + 127 * 0x1p-16;
            ck_assert_msg(nearest, "element %" PRIu64 " of %" PRIu64 ": %a kept as %a", k, kept->n,
                          (double)kept->values[k], (double)kept->got[k]);
        }
    }
}

static void expect_bf16(const kept_t *kept)
{
    for (uint64_t i = 0; i < kept->n; i++) {
        float wanted = oracle_bf16_value(oracle_bf16(kept->values[i]));
        if (isinf(wanted)) wanted = copysignf(oracle_bf16_value(0x7f7f), wanted);
        ck_assert(memcmp(&wanted, &kept->got[i], sizeof(wanted)) == 0);
    }
}

START_TEST(errors_are_kept_as_defined)
{
    static kept_t kept;

    for (int i = 0; i < TRIES; i++) {
        draw(&kept);
        keep(lnt_error_row(LNT_ERROR_F32), &kept);
        ck_assert(memcmp(kept.got, kept.values, kept.n * sizeof(kept.got[0])) == 0);
        keep(lnt_error_row(LNT_ERROR_BF16), &kept);
        expect_bf16(&kept);
        keep(lnt_error_row(LNT_ERROR_INT8), &kept);
        expect_int8(&kept);
    }
}
END_TEST

START_TEST(what_was_read_is_kept_unchanged)
{
    const lnt_error_row_t *row = lnt_error_row((lnt_error_dtype_t)_i);
    static kept_t kept;

    for (int i = 0; i < TRIES; i++) {
        draw(&kept);
        keep(row, &kept);
        expect_kept_again(row, &kept);
        for (uint64_t k = 0; k < kept.n; k++) { /* coordinates that died: perhaps the largest of their block */
            if (test_random() % 4 != 0) continue;
            memset(kept.codes + k * row->elem_bytes, 0, row->elem_bytes);
        }
        row->read(kept.codes, kept.scales, kept.n, kept.values);
        keep(row, &kept);
        expect_kept_again(row, &kept);
    }
}
END_TEST

/* They reach the shadows of a step that is then skipped. */
START_TEST(what_is_not_finite_is_defined)
{
    const lnt_error_row_t *row = lnt_error_row(LNT_ERROR_INT8);
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    static kept_t kept;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        draw(&kept);
        kept.n = 100;
        for (uint64_t k = 0; k < kept.n; k++)
            kept.values[k] = 1.0f;
        kept.values[test_random() % LNT_ERROR_BLOCK] = bad[i];
        kept.got[kept.n] = 77;
        keep(row, &kept);
        for (uint64_t k = 0; k < kept.n; k++)
            ck_assert_double_le(fabs((double)kept.got[k] - (k < LNT_ERROR_BLOCK ? 0 : 1)), 1e-4);
    }
}
END_TEST

START_TEST(rows_are_found)
{
    for (int i = 0; lnt_error_words[i] != NULL; i++)
        ck_assert_str_eq(lnt_error_row((lnt_error_dtype_t)(LNT_ERROR_F32 + i))->name, lnt_error_words[i]);
    ck_assert_ptr_null(lnt_error_row(LNT_ERROR_DEFAULT));
    ck_assert_ptr_null(lnt_error_row((lnt_error_dtype_t)(LNT_ERROR_INT8 + 1)));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("error_store");
    TCase *tcase = tcase_create("error_store");

    tcase_add_test(tcase, errors_are_kept_as_defined);
    tcase_add_loop_test(tcase, what_was_read_is_kept_unchanged, LNT_ERROR_F32, LNT_ERROR_INT8 + 1);
    tcase_add_test(tcase, what_is_not_finite_is_defined);
    tcase_add_test(tcase, rows_are_found);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
