/* Batches of masked windows: [CLS] words [SEP], some words hidden, all chosen by counter-based random numbers. */
#ifndef BERT_BATCH_H
#define BERT_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Fixed by the tokenizer's settings (tokens.c). */
enum { TOKEN_PAD = 0, TOKEN_UNKNOWN = 1, TOKEN_CLS = 2, TOKEN_SEP = 3, TOKEN_MASK = 4, TOKEN_FIRST_WORD = 5 };

typedef struct bert_batch {
    int sequences, seq, targets_each;
    int targets;  /* sequences * targets_each */
    int *token;   /* [sequences][seq], as the model sees it */
    int *where;   /* [targets], index into token */
    int *label;   /* [targets], the word that was there */
    bool *masked; /* [targets], whether the model sees [MASK] there */
} bert_batch_t;

typedef struct bert_stream {
    const uint16_t *token;
    size_t count;
} bert_stream_t;

bert_batch_t *bert_batch_create(int sequences, int seq, int targets_each);
void bert_batch_destroy(bert_batch_t *batch);

/* Fills the batch with windows of the stream; the result depends on (stream, vocab, key) alone. */
void bert_batch_fill(bert_batch_t *batch, const bert_stream_t *stream, int vocab, uint64_t key);

#endif
