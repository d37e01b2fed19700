/* A BERT with post-LN encoder and masked-word head (Devlin et al. 2019): parameters, forward and backward by hand.
 *
 * Tensors are numbered in the order in which backward completes their gradients, the word table (tied to the decoder)
 * last; parameters and gradients lie in two flat arrays in that order. Matrices are [outputs][inputs]. */
#ifndef BERT_MODEL_H
#define BERT_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "batch.h"
#include "kernels.h"

typedef struct bert_config {
    int vocab, positions, types, hidden, layers, heads, ff;
    int seq, targets; /* tokens and masked positions per sequence */
    int batch;        /* sequences of one forward pass, at most */
} bert_config_t;

enum { BERT_LAYERS_MAX = 8, BERT_TENSORS_MAX = 10 + 12 * BERT_LAYERS_MAX, BERT_NAME_MAX = 40 };

typedef struct bert_tensor {
    char name[BERT_NAME_MAX];
    size_t offset, count;
    size_t rows, cols; /* 0 for gains and biases */
    real_t start;      /* initial value where spread is 0 */
    real_t spread;     /* standard deviation of the initial values */
    bool decay;        /* matrices and tables decay, gains and biases do not */
} bert_tensor_t;

typedef struct bert_norm_ids {
    int bias, gain;
} bert_norm_ids_t;

typedef struct bert_linear_ids {
    int bias, weight;
} bert_linear_ids_t;

typedef struct bert_layer_ids {
    bert_norm_ids_t norm2;
    bert_linear_ids_t ff2, ff1;
    bert_norm_ids_t norm1;
    bert_linear_ids_t out, qkv;
} bert_layer_ids_t;

typedef struct bert_ids {
    int decoder_bias;
    bert_norm_ids_t head_norm;
    bert_linear_ids_t head;
    bert_layer_ids_t layer[BERT_LAYERS_MAX];
    bert_norm_ids_t embed_norm;
    int types, positions, words;
} bert_ids_t;

typedef struct bert_model bert_model_t;

/* Called by backward as soon as the gradient of a tensor is complete; false ends the pass. */
typedef bool (*bert_ready_fn_t)(void *arg, int tensor, real_t *grad, size_t count);

/* NULL: no memory, or a configuration that does not fit. Parameters depend on the configuration and seed alone. */
bert_model_t *bert_model_create(const bert_config_t *config, uint64_t seed);
void bert_model_destroy(bert_model_t *model);

int bert_model_n_tensors(const bert_model_t *model);
const bert_tensor_t *bert_model_tensor(const bert_model_t *model, int tensor);
real_t *bert_model_param(bert_model_t *model, int tensor);
const bert_ids_t *bert_model_ids(const bert_model_t *model);
size_t bert_model_n_params(const bert_model_t *model);

/* Loss and hit of each of the batch's targets, in batch order; valid until the next forward. */
void bert_model_forward(bert_model_t *model, const bert_batch_t *batch);
const real_t *bert_model_losses(const bert_model_t *model);
const int *bert_model_hits(const bert_model_t *model);

/* Gradient of the mean loss of the last forward. `ready` may be NULL. */
bool bert_model_backward(bert_model_t *model, const bert_batch_t *batch, bert_ready_fn_t ready, void *arg);
const real_t *bert_model_grad(const bert_model_t *model, int tensor);
real_t *bert_model_grads(bert_model_t *model); /* of all tensors, one after the other */

#endif
