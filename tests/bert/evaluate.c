/* Windows are drawn per chunk from a key of their own: any split of the chunks over ranks gives the same ones. */
#include "evaluate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "counter_rng.h"

static const uint64_t EVAL_SEED = 20211;

void bert_unigram(const bert_stream_t *stream, int vocab, float *minus_log)
{
    double total = log((double)stream->count + vocab);

    for (int w = 0; w < vocab; w++) {
        minus_log[w] = 1;
    }
    for (size_t i = 0; i < stream->count; i++) {
        minus_log[stream->token[i]] += 1;
    }
    for (int w = 0; w < vocab; w++) {
        minus_log[w] = (float)(total - log((double)minus_log[w]));
    }
}

static void add_target(const bert_model_t *model, const bert_batch_t *batch, const float *minus_log, int target,
                       bert_score_t *score)
{
    double loss = (double)bert_model_losses(model)[target];

    score->n_all += 1;
    score->loss_all += loss;
    if (batch->masked[target]) {
        score->n_mask += 1;
        score->loss_mask += loss;
        score->hits_mask += bert_model_hits(model)[target];
        score->unigram_mask += (double)minus_log[batch->label[target]];
    }
}

void bert_evaluate(bert_model_t *model, bert_batch_t *batch, const bert_stream_t *stream, const float *minus_log,
                   int vocab, int n_chunks, int first, int step, bert_score_t *score)
{
    for (int chunk = first; chunk < n_chunks; chunk += step) {
        bert_batch_fill(batch, stream, vocab, rng_key(EVAL_SEED, RNG_EVAL, (uint64_t)chunk, 0));
        bert_model_forward(model, batch);
        for (int i = 0; i < batch->targets; i++) {
            add_target(model, batch, minus_log, i, score);
        }
    }
}
