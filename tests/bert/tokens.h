/* The text as token numbers: cleaned, split, tokenised by SentencePiece, once, in a cache. */
#ifndef BERT_TOKENS_H
#define BERT_TOKENS_H

#include <stdbool.h>

#include "batch.h"

typedef struct bert_tokens {
    bert_stream_t train, held_out; /* mapped files */
} bert_tokens_t;

/* text NULL: the GCIDE dictionary of the Debian package dict-gcide. False after a message. Processes that need the
 * same text at once wait for the one that prepares it. */
bool bert_tokens_open(const char *text, const char *cache, int vocab, bert_tokens_t *tokens);
void bert_tokens_close(bert_tokens_t *tokens);

#endif
