/* Life of the model: one arena for parameters, gradients, kept activations and scratch. The size is found by running
 * the same carving function twice, first without memory. */
#include "model.h"

#include <stdlib.h>

#include "counter_rng.h"
#include "model_parts.h"

typedef struct carver {
    real_t *base; /* NULL: only count */
    size_t used;
} carver_t;

static real_t *carve(carver_t *carver, size_t count)
{
    real_t *piece = (carver->base == NULL) ? NULL : carver->base + carver->used;

    carver->used += (count + 15) & ~(size_t)15; /* pieces begin at cache lines */
    return piece;
}

static bert_norm_memory_t carve_norm(carver_t *carver, size_t rows, size_t width)
{
    bert_norm_memory_t norm;

    norm.hat = carve(carver, rows * width);
    norm.rstd = carve(carver, rows);
    return norm;
}

static void carve_layer(carver_t *carver, const bert_config_t *config, bert_layer_memory_t *layer)
{
    size_t tokens = (size_t)config->batch * (size_t)config->seq, hidden = (size_t)config->hidden;

    layer->qkv = carve(carver, tokens * 3 * hidden);
    layer->probs = carve(carver, tokens * (size_t)config->heads * (size_t)config->seq);
    layer->context = carve(carver, tokens * hidden);
    layer->norm1 = carve_norm(carver, tokens, hidden);
    layer->middle = carve(carver, tokens * hidden);
    layer->active = carve(carver, tokens * (size_t)config->ff);
    layer->slope = carve(carver, tokens * (size_t)config->ff);
    layer->norm2 = carve_norm(carver, tokens, hidden);
    layer->output = carve(carver, tokens * hidden);
}

static void carve_head(carver_t *carver, bert_model_t *model)
{
    const bert_config_t *config = &model->config;
    size_t targets = (size_t)config->batch * (size_t)config->targets, hidden = (size_t)config->hidden;

    model->picked = carve(carver, targets * hidden);
    model->head_active = carve(carver, targets * hidden);
    model->head_slope = carve(carver, targets * hidden);
    model->head_out = carve(carver, targets * hidden);
    model->head_norm = carve_norm(carver, targets, hidden);
    model->logits = carve(carver, targets * (size_t)config->vocab);
    model->loss = carve(carver, targets);
    model->d_picked = carve(carver, targets * hidden);
    model->d_logit_row = carve(carver, targets * hidden);
}

static size_t carve_all(bert_model_t *model, real_t *base)
{
    const bert_config_t *config = &model->config;
    size_t tokens = (size_t)config->batch * (size_t)config->seq, hidden = (size_t)config->hidden;
    carver_t carver = {.base = base};

    model->param = carve(&carver, model->n_params);
    model->grad = carve(&carver, model->n_params);
    model->embedded = carve(&carver, tokens * hidden);
    model->embed_norm = carve_norm(&carver, tokens, hidden);
    for (int layer = 0; layer < config->layers; layer++) {
        carve_layer(&carver, config, &model->layer[layer]);
    }
    carve_head(&carver, model);
    model->wide = carve(&carver, tokens * (size_t)config->ff);
    model->narrow = carve(&carver, tokens * hidden);
    model->d_stream = carve(&carver, tokens * hidden);
    model->d_qkv = carve(&carver, tokens * 3 * hidden);
    return carver.used;
}

static void start_values(bert_model_t *model, uint64_t seed)
{
    for (int t = 0; t < model->n_tensors; t++) {
        const bert_tensor_t *tensor = &model->tensor[t];
        uint64_t key = rng_key(seed, RNG_WEIGHTS, (uint64_t)t, 0);
        real_t *x = bert_param(model, t);

        for (size_t i = 0; i < tensor->count; i++) {
            x[i] = (tensor->spread > 0) ? tensor->spread * (real_t)rng_normal(key, i) : tensor->start;
        }
    }
}

static bool config_fits(const bert_config_t *config)
{
    return (config->layers >= 1) && (config->layers <= BERT_LAYERS_MAX) && (config->hidden % config->heads == 0) &&
           (config->seq >= 3) && (config->seq <= config->positions) && (config->seq <= BERT_SEQ_MAX) &&
           (config->targets >= 1) && (config->targets <= config->seq - 2) && (config->batch >= 1);
}

bert_model_t *bert_model_create(const bert_config_t *config, uint64_t seed)
{
    bert_model_t *model = config_fits(config) ? calloc(1, sizeof(*model)) : NULL;

    if (model == NULL) {
        return NULL;
    }
    model->config = *config;
    model->kernels = bert_kernels_get();
    bert_model_number_tensors(model);
    model->arena = aligned_alloc(64, carve_all(model, NULL) * sizeof(real_t));
    model->hit = calloc((size_t)config->batch * (size_t)config->targets, sizeof(*model->hit));
    if ((model->arena == NULL) || (model->hit == NULL)) {
        bert_model_destroy(model);
        return NULL;
    }
    carve_all(model, model->arena);
    start_values(model, seed);
    return model;
}

void bert_model_destroy(bert_model_t *model)
{
    if (model != NULL) {
        free(model->arena);
        free(model->hit);
        free(model);
    }
}

int bert_model_n_tensors(const bert_model_t *model)
{
    return model->n_tensors;
}

const bert_tensor_t *bert_model_tensor(const bert_model_t *model, int tensor)
{
    return &model->tensor[tensor];
}

real_t *bert_model_param(bert_model_t *model, int tensor)
{
    return bert_param(model, tensor);
}

const bert_ids_t *bert_model_ids(const bert_model_t *model)
{
    return &model->ids;
}

size_t bert_model_n_params(const bert_model_t *model)
{
    return model->n_params;
}

const real_t *bert_model_losses(const bert_model_t *model)
{
    return model->loss;
}

const int *bert_model_hits(const bert_model_t *model)
{
    return model->hit;
}

const real_t *bert_model_grad(const bert_model_t *model, int tensor)
{
    return bert_grad(model, tensor);
}

real_t *bert_model_grads(bert_model_t *model)
{
    return model->grad;
}
