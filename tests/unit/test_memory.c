/* Named allocation: zeroed, aligned, counted, and failing exactly where the hook says. */
#include <string.h>

#include "../../src/base/error.h"
#include "../../src/base/memory.h"
#include "testing.h"

static bool all_zero(const uint8_t *memory, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (memory[i] != 0) {
            return false;
        }
    }
    return true;
}

START_TEST(blocks_are_zeroed_aligned_and_counted)
{
    uint64_t live = lnt_memory_live(), total = lnt_memory_total(), live_bytes = lnt_memory_live_bytes();

    for (int round = 0; round < 50; round++) {
        size_t bytes = test_random_below(200000);
        uint8_t *plain = lnt_calloc(bytes, 1, "plain"), *aligned = lnt_alloc_aligned(bytes, "aligned");

        ck_assert_ptr_nonnull(plain);
        ck_assert_ptr_nonnull(aligned);
        ck_assert_uint_eq((uintptr_t)aligned % 64, 0);
        ck_assert(all_zero(plain, bytes) && all_zero(aligned, bytes));
        memset(plain, 0xa5, bytes);
        memset(aligned, 0xa5, bytes);
        ck_assert_uint_eq(lnt_memory_live(), live + 2);
        ck_assert_uint_ge(lnt_memory_live_bytes(), live_bytes + 2 * bytes);
        lnt_free(plain);
        lnt_free(aligned);
    }
    ck_assert_uint_eq(lnt_memory_live(), live);
    ck_assert_uint_eq(lnt_memory_live_bytes(), live_bytes);
    ck_assert_uint_eq(lnt_memory_total(), total + 100);
    lnt_free(NULL);
    ck_assert_uint_eq(lnt_memory_live(), live);
}
END_TEST

START_TEST(size_zero_is_a_block)
{
    void *plain = lnt_calloc(0, 8, "nothing"), *aligned = lnt_alloc_aligned(0, "nothing");

    ck_assert_ptr_nonnull(plain);
    ck_assert_ptr_nonnull(aligned);
    lnt_free(plain);
    lnt_free(aligned);
}
END_TEST

START_TEST(overflow_is_out_of_memory)
{
    ck_assert_ptr_null(lnt_calloc(SIZE_MAX / 4, 8, "the impossible"));
    ck_assert_int_eq(lnt_last_error()->status, LNT_ERR_NO_MEMORY);
    ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, "the impossible"));
}
END_TEST

START_TEST(kth_allocation_fails)
{
    uint64_t live = lnt_memory_live();

    for (uint64_t k = 1; k <= 9; k++) {
        lnt_memory_fail_after(k);
        for (uint64_t i = 1; i <= 12; i++) {
            void *memory = (i % 3 == 0)   ? lnt_calloc(1, 8, "a")
                           : (i % 3 == 1) ? lnt_alloc_aligned(8, "b")
                                          : lnt_strdup("text", "c");

            ck_assert_int_eq(memory == NULL, i == k);
            ck_assert_int_eq(lnt_memory_fault_fired(), i >= k);
            lnt_free(memory);
        }
    }
    lnt_memory_fail_after(1);
    lnt_memory_fail_after(0);
    ck_assert(!lnt_memory_fault_fired());
    lnt_free(lnt_calloc(1, 1, "works again"));
    ck_assert(!lnt_memory_fault_fired());
    ck_assert_uint_eq(lnt_memory_live(), live);
}
END_TEST

START_TEST(strdup_copies)
{
    char *copy = lnt_strdup("node a", "text");

    ck_assert_str_eq(copy, "node a");
    lnt_free(copy);
}
END_TEST

START_TEST(checked_arithmetic)
{
    for (int round = 0; round < 2000; round++) {
        size_t a = test_random() >> test_random_below(64), b = test_random() >> test_random_below(64), out = 42;
        unsigned __int128 product = (unsigned __int128)a * b;

        ck_assert_int_eq(lnt_size_mul(a, b, &out), product <= SIZE_MAX);
        ck_assert_uint_eq(out, (product <= SIZE_MAX) ? (size_t)product : 42);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("memory");
    TCase *tcase = tcase_create("memory");

    tcase_add_test(tcase, blocks_are_zeroed_aligned_and_counted);
    tcase_add_test(tcase, size_zero_is_a_block);
    tcase_add_test(tcase, overflow_is_out_of_memory);
    tcase_add_test(tcase, kth_allocation_fails);
    tcase_add_test(tcase, strdup_copies);
    tcase_add_test(tcase, checked_arithmetic);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
