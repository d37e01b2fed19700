/* CRC-32C against a bit-by-bit division and published vectors; the 64-bit hash against the properties it is used for.
 */
#include <string.h>

#include "../../src/base/hash.h"
#include "testing.h"

/* The definition: polynomial division, one bit at a time. */
static uint32_t crc_by_bits(const uint8_t *data, size_t bytes)
{
    uint32_t crc = 0xffffffffu;

    for (size_t i = 0; i < bytes; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc & 1u) ? (crc >> 1) ^ 0x82f63b78u : crc >> 1;
        }
    }
    return ~crc;
}

static void fill_random(uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (uint8_t)test_random();
    }
}

START_TEST(crc_known_vectors)
{
    uint8_t zeros[32] = {0}, ones[32];

    memset(ones, 0xff, sizeof(ones));
    ck_assert_uint_eq(lnt_crc32c(0, "123456789", 9), 0xe3069283u);
    ck_assert_uint_eq(lnt_crc32c(0, zeros, 32), 0x8a9136aau); /* RFC 3720 B.4 */
    ck_assert_uint_eq(lnt_crc32c(0, ones, 32), 0x62a8ab43u);
    ck_assert_uint_eq(lnt_crc32c(0, NULL, 0), 0u);
}
END_TEST

START_TEST(crc_random_and_chained)
{
    uint8_t data[300];

    for (int round = 0; round < 200; round++) {
        size_t bytes = test_random_below(sizeof(data) + 1);
        size_t cut = test_random_below(bytes + 1);

        fill_random(data, bytes);
        ck_assert_uint_eq(lnt_crc32c(0, data, bytes), crc_by_bits(data, bytes));
        ck_assert_uint_eq(lnt_crc32c(lnt_crc32c(0, data, cut), data + cut, bytes - cut), crc_by_bits(data, bytes));
    }
}
END_TEST

START_TEST(hash_sees_every_bit)
{
    uint8_t data[64];

    for (int round = 0; round < 50; round++) {
        size_t bytes = 1 + test_random_below(sizeof(data));
        uint64_t seed = test_random(), before;

        fill_random(data, bytes);
        before = lnt_hash64(seed, data, bytes);
        ck_assert(before == lnt_hash64(seed, data, bytes));
        for (size_t bit = 0; bit < 8 * bytes; bit++) {
            data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
            ck_assert(lnt_hash64(seed, data, bytes) != before);
            data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        }
    }
}
END_TEST

START_TEST(hash_tells_lengths_seeds_and_order)
{
    const uint8_t zeros[24] = {0};
    uint64_t a = test_random(), b = test_random();

    for (size_t n = 0; n < 24; n++) {
        ck_assert(lnt_hash64(0, zeros, n) != lnt_hash64(0, zeros, n + 1));
    }
    ck_assert(lnt_hash64(1, zeros, 24) != lnt_hash64(2, zeros, 24));
    ck_assert(lnt_hash64_u64(lnt_hash64_u64(0, a), b) != lnt_hash64_u64(lnt_hash64_u64(0, b), a));
    ck_assert(lnt_hash64_text(0, "ab") != lnt_hash64_text(0, "ba"));
    ck_assert(lnt_hash64_text(7, "tensor") == lnt_hash64(7, "tensor", 6));
}
END_TEST

START_TEST(hash_ignores_alignment)
{
    uint8_t data[80], shifted[88];
    uint64_t expected;

    fill_random(data, sizeof(data));
    expected = lnt_hash64(3, data, sizeof(data));
    for (size_t shift = 0; shift < 8; shift++) {
        memcpy(shifted + shift, data, sizeof(data));
        ck_assert(lnt_hash64(3, shifted + shift, sizeof(data)) == expected);
    }
}
END_TEST

/* Stored in state blobs and compared between builds: the value itself must never change. Computed with Python integers
 * from the definition in hash.c. */
START_TEST(hash_value_is_fixed)
{
    ck_assert(lnt_hash64(0, "", 0) == UINT64_C(0x860389c57a9c1205));
    ck_assert(lnt_hash64_text(1, "linnet exchange") == UINT64_C(0xfae2fd41c4335f7e));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("hash");
    TCase *tcase = tcase_create("hash");

    tcase_add_test(tcase, crc_known_vectors);
    tcase_add_test(tcase, crc_random_and_chained);
    tcase_add_test(tcase, hash_sees_every_bit);
    tcase_add_test(tcase, hash_tells_lengths_seeds_and_order);
    tcase_add_test(tcase, hash_ignores_alignment);
    tcase_add_test(tcase, hash_value_is_fixed);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
