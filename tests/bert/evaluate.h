/* Held-out evaluation with fixed windows and masks: the same for every seed, optimizer and number of ranks. */
#ifndef BERT_EVALUATE_H
#define BERT_EVALUATE_H

#include "model.h"

enum { EVAL_CHUNK = 64 }; /* windows of one forward pass; the model must hold that many */

/* Sums over targets, so that ranks can add theirs up. */
typedef struct bert_score {
    double n_all, loss_all;   /* all targets */
    double n_mask, loss_mask; /* those where the model sees [MASK]: elsewhere it can copy */
    double hits_mask;         /* of those, the right word had the largest logit */
    double unigram_mask;      /* of those, loss of the word frequencies of the training text */
} bert_score_t;

/* -log frequency of every word in the stream (every word counted once more, so that none is infinite). */
void bert_unigram(const bert_stream_t *stream, int vocab, float *minus_log);

/* Adds the chunks first, first + step, ... below n_chunks to the score. */
void bert_evaluate(bert_model_t *model, bert_batch_t *batch, const bert_stream_t *stream, const float *minus_log,
                   int vocab, int n_chunks, int first, int step, bert_score_t *score);

#endif
