/* Windows and masks. Of the chosen words 80 % become [MASK], 10 % another word, 10 % stay (Devlin et al. 2019, 3.1). */
#include "batch.h"

#include <stdlib.h>
#include <string.h>

#include "counter_rng.h"

enum { DRAWS_PER_SEQUENCE = 1024 }; /* counters reserved for one sequence */

bert_batch_t *bert_batch_create(int sequences, int seq, int targets_each)
{
    bert_batch_t *batch = calloc(1, sizeof(*batch));
    size_t targets = (size_t)sequences * (size_t)targets_each;

    if (batch == NULL) {
        return NULL;
    }
    *batch = (bert_batch_t){.sequences = sequences, .seq = seq, .targets_each = targets_each, .targets = (int)targets};
    batch->token = calloc((size_t)sequences * (size_t)seq, sizeof(int));
    batch->where = calloc(targets, sizeof(int));
    batch->label = calloc(targets, sizeof(int));
    batch->masked = calloc(targets, sizeof(bool));
    if ((batch->token == NULL) || (batch->where == NULL) || (batch->label == NULL) || (batch->masked == NULL)) {
        bert_batch_destroy(batch);
        return NULL;
    }
    return batch;
}

void bert_batch_destroy(bert_batch_t *batch)
{
    if (batch != NULL) {
        free(batch->token);
        free(batch->where);
        free(batch->label);
        free(batch->masked);
        free(batch);
    }
}

/* Different places in [1, seq - 2], ascending. */
static void choose_places(int n, int seq, uint64_t key, uint64_t *counter, int *place)
{
    bool taken[64] = {false};
    int found = 0;

    while (found < n) {
        int at = 1 + (int)rng_below(key, (*counter)++, (uint32_t)(seq - 2));
        found += !taken[at];
        taken[at] = true;
    }
    for (int at = 1, i = 0; at < seq - 1; at++) {
        if (taken[at]) {
            place[i++] = at;
        }
    }
}

static void hide_word(bert_batch_t *batch, int target, int vocab, uint64_t key, uint64_t *counter)
{
    int *token = &batch->token[batch->where[target]];
    uint32_t kind = rng_below(key, (*counter)++, 10);

    batch->label[target] = *token;
    batch->masked[target] = kind < 8;
    if (kind < 8) {
        *token = TOKEN_MASK;
    } else if (kind == 8) {
        *token = TOKEN_FIRST_WORD + (int)rng_below(key, *counter, (uint32_t)(vocab - TOKEN_FIRST_WORD));
    }
    *counter += 1;
}

static void fill_sequence(bert_batch_t *batch, const bert_stream_t *stream, int vocab, uint64_t key, int index)
{
    uint64_t counter = (uint64_t)index * DRAWS_PER_SEQUENCE;
    size_t words = (size_t)batch->seq - 2;
    size_t start = rng_below(key, counter++, (uint32_t)(stream->count - words + 1));
    int *token = batch->token + (size_t)index * (size_t)batch->seq;
    int *place = batch->where + (size_t)index * (size_t)batch->targets_each;

    token[0] = TOKEN_CLS;
    for (size_t i = 0; i < words; i++) {
        token[1 + i] = stream->token[start + i];
    }
    token[1 + words] = TOKEN_SEP;
    choose_places(batch->targets_each, batch->seq, key, &counter, place);
    for (int i = 0; i < batch->targets_each; i++) {
        place[i] += index * batch->seq;
        hide_word(batch, index * batch->targets_each + i, vocab, key, &counter);
    }
}

void bert_batch_fill(bert_batch_t *batch, const bert_stream_t *stream, int vocab, uint64_t key)
{
    for (int i = 0; i < batch->sequences; i++) {
        fill_sequence(batch, stream, vocab, key, i);
    }
}
