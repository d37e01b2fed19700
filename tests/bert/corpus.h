/* Clean paragraphs out of a text file. */
#ifndef BERT_CORPUS_H
#define BERT_CORPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Change with any change of the cleaning: part of the cache's key. */
enum { CORPUS_RULES_VERSION = 1 };

typedef struct corpus {
    char *text;    /* paragraphs, each ending in a newline */
    size_t *begin; /* n + 1 offsets into text */
    size_t n;
} corpus_t;

/* The whole file, decompressed if it is gzip; NULL after a message. The caller frees. Ends in a zero byte. */
char *corpus_read_file(const char *path, size_t *bytes_p);

/* Cleans `raw`; dictionary: the markup of the GCIDE dictionary is removed. False after a message. */
bool corpus_clean(const char *raw, size_t bytes, bool dictionary, corpus_t *corpus);
void corpus_free(corpus_t *corpus);

/* Every 25th block of 200 consecutive paragraphs (shorter blocks for short texts) is kept from training. */
bool corpus_held_out(const corpus_t *corpus, size_t paragraph);

#endif
