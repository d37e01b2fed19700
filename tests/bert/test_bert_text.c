/* Cleaning, held-out blocks, windows and masks. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batch.h"
#include "corpus.h"
#include "counter_rng.h"

static corpus_t cleaned(const char *raw, bool dictionary)
{
    corpus_t corpus;

    ck_assert(corpus_clean(raw, strlen(raw), dictionary, &corpus));
    return corpus;
}

START_TEST(markup_goes)
{
    static const char raw[] =
        "00-database-info\n   something about the file itself that is no text of the dictionary\n\n"
        "Lark \\Lark\\ (l[aum]rk), n. [Perh fr. AS. l[=a]c\n   play. Cf. {Lake}, v. i.]\n"
        "   A frolic; -- a jolly time that one has. [Colloq.] --Dickens.\n   [1913 Webster]\n\n"
        "Lark \\Lark\\ (l[aum]rk), n.\n   A frolic; -- a jolly time that one has.\n\n"
        "Short one.\n\n"
        "1234 5678 9012 3456 7890 1234 5678 9012 3456 7890\n";
    corpus_t corpus = cleaned(raw, true);

    ck_assert_uint_eq(corpus.n, 1); /* the second is the first again, the others are too short and no words */
    ck_assert_str_eq(strtok(corpus.text, "\n"), "Lark , n. A frolic; -- a jolly time that one has.");
    corpus_free(&corpus);
}
END_TEST

START_TEST(bad_bytes_go)
{
    static const char raw[] = "one paragraph with \xff\xc3( bytes that are no text, of \xc3\xa9t\xc3\xa9 and so on\n\n"
                              "a second one [with brackets] that stays as it is, since this is no dictionary\n";
    corpus_t corpus = cleaned(raw, false);

    ck_assert_uint_eq(corpus.n, 2);
    ck_assert(strstr(corpus.text, "with ( bytes") != NULL);
    ck_assert(strstr(corpus.text, "\xc3\xa9t\xc3\xa9") != NULL);
    ck_assert(strstr(corpus.text, "[with brackets]") != NULL);
    corpus_free(&corpus);
}
END_TEST

START_TEST(held_out_in_blocks)
{
    corpus_t corpus = {.n = 20000};
    size_t held_out = 0, changes = 0;

    for (size_t i = 0; i < corpus.n; i++) {
        held_out += corpus_held_out(&corpus, i);
        changes += (i > 0) && (corpus_held_out(&corpus, i) != corpus_held_out(&corpus, i - 1));
    }
    ck_assert_uint_eq(held_out, 800); /* 4 of 100 blocks */
    ck_assert_uint_le(changes, 8);
}
END_TEST

START_TEST(masks_as_stated)
{
    enum { WORDS = 5000, VOCAB = 2048, SEQ = 16, ROUNDS = 100 };
    static uint16_t words[WORDS];
    bert_stream_t stream = {words, WORDS};
    bert_batch_t *batch = bert_batch_create(64, SEQ, 2);
    int n = 0, masked = 0, same = 0;

    ck_assert(batch != NULL);
    for (int i = 0; i < WORDS; i++) {
        words[i] = (uint16_t)(TOKEN_FIRST_WORD + i % (VOCAB - TOKEN_FIRST_WORD));
    }
    for (uint64_t round = 0; round < ROUNDS; round++) {
        bert_batch_fill(batch, &stream, VOCAB, rng_key(7, RNG_TRAIN, round, 0));
        for (int i = 0; i < batch->targets; i++) {
            int at = batch->where[i], seen = batch->token[at];

            ck_assert_int_eq(at / SEQ, i / 2);
            ck_assert((at % SEQ >= 1) && (at % SEQ <= SEQ - 2));
            ck_assert((i % 2 == 0) || (at > batch->where[i - 1]));
            ck_assert(batch->label[i] >= TOKEN_FIRST_WORD);
            ck_assert_int_eq(batch->masked[i], seen == TOKEN_MASK);
            n++;
            masked += batch->masked[i];
            same += seen == batch->label[i];
        }
        for (int s = 0; s < 64; s++) {
            ck_assert_int_eq(batch->token[s * SEQ], TOKEN_CLS);
            ck_assert_int_eq(batch->token[s * SEQ + SEQ - 1], TOKEN_SEP);
        }
    }
    ck_assert((masked > n * 79 / 100) && (masked < n * 81 / 100));
    ck_assert((same > n * 9 / 100) && (same < n * 11 / 100));
    bert_batch_destroy(batch);
}
END_TEST

START_TEST(batches_depend_on_the_key_alone)
{
    static uint16_t words[500];
    bert_stream_t stream = {words, 500};
    bert_batch_t *a = bert_batch_create(8, 16, 2), *b = bert_batch_create(8, 16, 2);
    size_t bytes = 8 * 16 * sizeof(int);

    ck_assert((a != NULL) && (b != NULL));
    for (int i = 0; i < 500; i++) {
        words[i] = (uint16_t)(TOKEN_FIRST_WORD + i);
    }
    bert_batch_fill(a, &stream, 600, rng_key(1, RNG_TRAIN, 5, 0));
    bert_batch_fill(b, &stream, 600, rng_key(1, RNG_TRAIN, 5, 1));
    ck_assert(memcmp(a->token, b->token, bytes) != 0);
    bert_batch_fill(b, &stream, 600, rng_key(1, RNG_TRAIN, 5, 0));
    ck_assert(memcmp(a->token, b->token, bytes) == 0);
    bert_batch_destroy(a);
    bert_batch_destroy(b);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bert_text");
    TCase *tcase = tcase_create("bert_text");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_test(tcase, markup_goes);
    tcase_add_test(tcase, bad_bytes_go);
    tcase_add_test(tcase, held_out_in_blocks);
    tcase_add_test(tcase, masks_as_stated);
    tcase_add_test(tcase, batches_depend_on_the_key_alone);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? 0 : 1;
}
