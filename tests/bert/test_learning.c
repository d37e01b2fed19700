/* The model learns: a plain f32 AdamW in this file, one process with the batch of four ranks, on text made here in
 * which every second word follows from the one before. Says nothing about the library: a failing convergence gate with
 * this test passing means that the model is not to blame. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "counter_rng.h"
#include "evaluate.h"
#include "gemm.h"
#include "schedule.h"
#include "tokens.h"

typedef struct adam {
    float *m, *v;
    double beta1_power, beta2_power;
} adam_t;

static void adam_step(adam_t *adam, bert_model_t *model, double lr)
{
    adam->beta1_power *= 0.9;
    adam->beta2_power *= 0.999;
    for (int t = 0; t < bert_model_n_tensors(model); t++) {
        const bert_tensor_t *tensor = bert_model_tensor(model, t);
        float *x = bert_model_param(model, t), decay = tensor->decay ? 0.01f : 0;
        const float *g = bert_model_grad(model, t);
        float *m = adam->m + tensor->offset, *v = adam->v + tensor->offset;

        for (size_t i = 0; i < tensor->count; i++) {
            m[i] = 0.9f * m[i] + 0.1f * g[i];
            v[i] = 0.999f * v[i] + 0.001f * g[i] * g[i];
            double move = m[i] / (1 - adam->beta1_power) / (sqrt(v[i] / (1 - adam->beta2_power)) + 1e-8);
            x[i] -= (float)(lr * (move + (double)(decay * x[i])));
        }
    }
}

static void train(bert_model_t *model, bert_batch_t *batch, const bert_stream_t *stream, int vocab, uint64_t seed,
                  int from, int to, int n_steps, adam_t *adam)
{
    for (int step = from; step < to; step++) {
        bert_batch_fill(batch, stream, vocab, rng_key(seed, RNG_TRAIN, (uint64_t)step, 0));
        bert_model_forward(model, batch);
        bert_model_backward(model, batch, NULL, NULL);
        adam_step(adam, model, 4e-3 * bert_schedule(step, n_steps));
    }
}

static bert_score_t score_of(bert_model_t *model, const bert_stream_t *stream, const float *minus_log, int vocab,
                             int seq, int n_chunks)
{
    bert_batch_t *batch = bert_batch_create(EVAL_CHUNK, seq, 2);
    bert_score_t score = {0};

    ck_assert(batch != NULL);
    bert_evaluate(model, batch, stream, minus_log, vocab, n_chunks, 0, 1, &score);
    bert_batch_destroy(batch);
    return score;
}

/* Pairs (word, partner of the word): a masked word is known from its neighbour. */
static void pairs_text(uint64_t seed, int vocab, uint16_t *token, size_t count)
{
    int words = vocab - TOKEN_FIRST_WORD;

    for (size_t i = 0; i + 1 < count; i += 2) {
        int word = (int)rng_below(seed, i, (uint32_t)words);
        token[i] = (uint16_t)(TOKEN_FIRST_WORD + word);
        token[i + 1] = (uint16_t)(TOKEN_FIRST_WORD + (word * 7 + 3) % words);
    }
}

START_TEST(learns_pairs)
{
    const bert_config_t config = {.vocab = 64,
                                  .positions = 16,
                                  .types = 2,
                                  .hidden = 32,
                                  .layers = 2,
                                  .heads = 2,
                                  .ff = 64,
                                  .seq = 12,
                                  .targets = 2,
                                  .batch = 64};
    static uint16_t text[20000];
    static float minus_log[64];
    const char *given = getenv("LNT_TEST_SEED");
    uint64_t seed = (given != NULL) ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    bert_stream_t stream = {text, 20000};
    bert_model_t *model = bert_model_create(&config, seed);
    bert_batch_t *batch = bert_batch_create(64, config.seq, 2);
    bert_score_t score;
    adam_t adam = {.beta1_power = 1, .beta2_power = 1};

    printf("seed %llu (repeat with LNT_TEST_SEED)\n", (unsigned long long)seed);
    ck_assert((model != NULL) && (batch != NULL));
    adam.m = calloc(bert_model_n_params(model), sizeof(float));
    adam.v = calloc(bert_model_n_params(model), sizeof(float));
    pairs_text(seed, config.vocab, text, stream.count);
    bert_unigram(&stream, config.vocab, minus_log);
    train(model, batch, &stream, config.vocab, seed, 0, 1000, 1000, &adam);
    score = score_of(model, &stream, minus_log, config.vocab, config.seq, 8);
    printf("[MASK] loss %.3f, unigram %.3f, accuracy %.3f\n", score.loss_mask / score.n_mask,
           score.unigram_mask / score.n_mask, score.hits_mask / score.n_mask);
    ck_assert(score.loss_mask < 0.5 * score.unigram_mask);
    free(adam.m);
    free(adam.v);
    bert_model_destroy(model);
    bert_batch_destroy(batch);
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("learning");
    TCase *tcase = tcase_create("learning");
    SRunner *runner = srunner_create(suite);
    int failed;

    (void)argc;
    if (!gemm_prepare(argv, 64, 32, 64, 64, 16)) {
        return 1;
    }
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, learns_pairs);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? 0 : 1;
}
