/* f16 alone: every code, and of the 2^32 floats every one at a border of rounding and a dense sample of the others,
 * against the definition in half_oracle.h and, where the compiler has the type, against _Float16.
 */
#include "../../kernels/f16_math.h"
#include "half_oracle.h"
#include "kernel_testing.h"

#ifdef __SSE__
#include <immintrin.h>
#endif

enum { N_CODES = 1 << 16, STRIDE = 499 };

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

static void check_code(float value)
{
    uint16_t got = lnt_f16_code(value), want = oracle_f16(value);
    bool lost = (got & 0x7fff) >= 0x7c00;
    if (got != want) ck_abort_msg("%a: code %04x, not %04x", (double)value, got, want);
    if (lnt_f16_overflow_bit(value) >> 31 != lost) ck_abort_msg("%a: overflow is not %d", (double)value, lost);
}

START_TEST(every_code_has_its_value)
{
    for (uint32_t code = 0; code < N_CODES; code++) {
        float got = lnt_f16_value((uint16_t)code), want = oracle_f16_value((uint16_t)code);
        if (bits_of(got) != bits_of(want)) ck_abort_msg("%04x: %a, not %a", code, (double)got, (double)want);
        if (lnt_f16_code(got) != (code | (isnan(got) ? 0x200u : 0))) ck_abort_msg("%04x comes back as another", code);
        if (lnt_f16_code_by_chance(got, UINT32_MAX) != lnt_f16_code(got)) ck_abort_msg("%04x: chance moves it", code);
    }
}
END_TEST

/* Subnormal codes are no subnormal operands: a machine that flushes reads them all the same. */
START_TEST(every_code_where_subnormals_are_flushed)
{
#ifdef __SSE__
    const unsigned before = _mm_getcsr();
    for (uint32_t code = 0; code < N_CODES; code++) {
        volatile uint16_t given = (uint16_t)code; /* read and computed between the two */
        volatile uint32_t got;
        _mm_setcsr(before | 0x8040);
        got = bits_of(lnt_f16_value(given));
        _mm_setcsr(before);
        if (got != bits_of(oracle_f16_value((uint16_t)code))) ck_abort_msg("%04x: bits %08x", code, got);
    }
#else
    test_say_skipped("f16", "flushing of subnormals is set by hand on x86 only");
#endif
}
END_TEST

/* Both sides of each number of the type, and of each middle between two; 65520 is the last one. */
START_TEST(every_border_of_rounding)
{
    for (uint32_t code = 0; code < 0x7c00; code++) {
        float low = oracle_f16_value((uint16_t)code),
              high = code == 0x7bff ? 65536.0f : oracle_f16_value((uint16_t)(code + 1));
        uint32_t at[2] = {bits_of(low), bits_of(low / 2 + high / 2)};
        for (int k = 0; k < 2; k++)
            for (uint32_t d = 0; d < 5; d++) {
                uint32_t bits = at[k] + 2 < d ? 0 : at[k] + 2 - d;
                check_code(from_bits(bits));
                check_code(from_bits(bits | 0x80000000u));
            }
    }
}
END_TEST

START_TEST(a_sample_of_all_floats)
{
    for (uint64_t bits = rng_below(STRIDE); bits <= UINT32_MAX; bits += STRIDE)
        check_code(from_bits((uint32_t)bits));
}
END_TEST

/* A NaN is one for both; its bits are the definition's affair. */
START_TEST(the_compilers_type)
{
#ifdef __FLT16_MAX__
    for (uint64_t bits = rng_below(STRIDE); bits <= UINT32_MAX; bits += STRIDE) {
        float value = from_bits((uint32_t)bits);
        _Float16 half = (_Float16)value;
        uint16_t want, got = lnt_f16_code(value);
        memcpy(&want, &half, 2);
        if (isnan(value) ? (got & 0x7fff) <= 0x7c00 : got != want)
            ck_abort_msg("%a: %04x, not %04x", (double)value, got, want);
        if (!isnan(value) && bits_of(lnt_f16_value(got)) != bits_of((float)half)) ck_abort_msg("value of %04x", got);
    }
#else
    printf("skipped: comparison with _Float16, which this compiler does not have\n");
#endif
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("f16");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 120);
    tcase_add_test(all, every_code_has_its_value);
    tcase_add_test(all, every_code_where_subnormals_are_flushed);
    tcase_add_test(all, every_border_of_rounding);
    tcase_add_test(all, a_sample_of_all_floats);
    tcase_add_test(all, the_compilers_type);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}
