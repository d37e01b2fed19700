/* The decoder's fuzz target as a plain regression program: a small corpus and random bytes. */
#include "../fuzz/fuzz_decode.c"
#include "kernel_testing.h"

/* Header bytes: codec, block / 64 - 1, count low, count high, length choice (0: as given). */
static const struct {
    size_t size;
    uint8_t bytes[24];
} corpus[] = {
    {0, {0}},
    {5, {2, 0, 0, 0, 0}},                                  /* empty run, empty wire */
    {5, {2, 0, 1, 0, 0}},                                  /* one element, no bytes */
    {10, {2, 0, 3, 0, 0, 0, 0, 128, 63, 5}},               /* sign1, scale 1 */
    {10, {2, 0, 3, 0, 0, 0, 0, 128, 191, 5}},              /* scale -1 */
    {10, {2, 0, 3, 0, 0, 0, 0, 0, 128, 5}},                /* scale -0 */
    {10, {2, 0, 3, 0, 0, 0, 0, 128, 127, 5}},              /* scale Inf */
    {10, {2, 0, 3, 0, 0, 0, 0, 192, 127, 5}},              /* scale NaN */
    {11, {3, 0, 2, 0, 0, 255, 255, 127, 127, 128, 127}},   /* int8, largest scale, code -128 */
    {11, {2, 0, 3, 0, 0, 0, 0, 128, 63, 5, 0}},            /* one byte too many */
    {13, {0, 0, 2, 0, 0, 0, 0, 192, 127, 0, 0, 128, 255}}, /* f32: NaN and -Inf are data */
};

START_TEST(corpus_decodes_or_is_refused)
{
    for (size_t i = 0; i < sizeof(corpus) / sizeof(corpus[0]); i++)
        LLVMFuzzerTestOneInput(corpus[i].bytes, corpus[i].size);
}
END_TEST

START_TEST(random_bytes_decode_or_are_refused)
{
    static uint8_t bytes[8192];
    for (int round = 0; round < 3000; round++) {
        size_t size = rng_below(rng_next() % 2 ? 40 : sizeof(bytes));
        for (size_t i = 0; i < size; i++)
            bytes[i] = (uint8_t)rng_next();
        for (size_t i = 8; i < size && round % 2; i += 4)
            bytes[i] &= 0x3f; /* half of them: scales that pass */
        LLVMFuzzerTestOneInput(bytes, size);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fuzz_decode");
    TCase *all = tcase_create("all");
    tcase_add_test(all, corpus_decodes_or_is_refused);
    tcase_add_test(all, random_bytes_decode_or_are_refused);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}
