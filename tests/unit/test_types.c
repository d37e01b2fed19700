/* Element types: every enumerator has a size and a name of its own, unknown numbers have neither. */
#include <string.h>

#include <linnet/types.h>

#include "testing.h"

START_TEST(sizes_and_names)
{
    ck_assert_uint_eq(lnt_dtype_size(LNT_F32), sizeof(float));
    ck_assert_uint_eq(lnt_dtype_size(LNT_BF16), sizeof(uint16_t));
    ck_assert_uint_eq(lnt_dtype_size(LNT_F16), sizeof(uint16_t));
    ck_assert_str_eq(lnt_dtype_name(LNT_F32), "f32");
    ck_assert_str_eq(lnt_dtype_name(LNT_BF16), "bf16");
    ck_assert_str_eq(lnt_dtype_name(LNT_F16), "f16");
}
END_TEST

START_TEST(unknown_types)
{
    ck_assert_uint_eq(lnt_dtype_size(LNT_DTYPE_COUNT), 0);
    ck_assert_uint_eq(lnt_dtype_size((lnt_dtype_t)-1), 0);
    ck_assert_str_eq(lnt_dtype_name((lnt_dtype_t)1000), "unknown");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("types");
    TCase *tcase = tcase_create("types");

    tcase_add_test(tcase, sizes_and_names);
    tcase_add_test(tcase, unknown_types);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
