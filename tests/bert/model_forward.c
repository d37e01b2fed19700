/* Forward pass: embeddings, post-LN encoder, head at the masked positions only. */
#include <string.h>

#include "gemm.h"
#include "model_parts.h"

static int n_tokens(const bert_model_t *model, const bert_batch_t *batch)
{
    return batch->sequences * model->config.seq;
}

/* y = x * W^T + b */
static void linear(const bert_model_t *model, const bert_linear_ids_t *ids, int rows, int inputs, int outputs,
                   const real_t *x, real_t *y)
{
    gemm_nt(rows, outputs, inputs, x, bert_param(model, ids->weight), y);
    model->kernels->add_bias(rows, outputs, bert_param(model, ids->bias), y);
}

static void norm(const bert_model_t *model, const bert_norm_ids_t *ids, int rows, const real_t *x,
                 const real_t *residual, real_t *y, const bert_norm_memory_t *memory)
{
    model->kernels->norm(rows, model->config.hidden, x, residual, bert_param(model, ids->gain),
                         bert_param(model, ids->bias), y, memory->hat, memory->rstd);
}

/* Word + position + type 0. */
static void embed(bert_model_t *model, const bert_batch_t *batch)
{
    const bert_kernels_t *kernels = model->kernels;
    size_t hidden = (size_t)model->config.hidden;
    const real_t *words = bert_param(model, model->ids.words);
    const real_t *positions = bert_param(model, model->ids.positions);

    for (int t = 0; t < n_tokens(model, batch); t++) {
        real_t *x = model->narrow + (size_t)t * hidden;

        memcpy(x, words + (size_t)batch->token[t] * hidden, hidden * sizeof(real_t));
        kernels->add(hidden, positions + (size_t)(t % model->config.seq) * hidden, x);
        kernels->add(hidden, bert_param(model, model->ids.types), x);
    }
    norm(model, &model->ids.embed_norm, n_tokens(model, batch), model->narrow, NULL, model->embedded,
         &model->embed_norm);
}

static void layer_forward(bert_model_t *model, const bert_batch_t *batch, int index, const real_t *input)
{
    const bert_config_t *config = &model->config;
    const bert_layer_ids_t *ids = &model->ids.layer[index];
    bert_layer_memory_t *layer = &model->layer[index];
    bert_shape_t shape = {batch->sequences, config->seq, config->heads, config->hidden / config->heads};
    int tokens = n_tokens(model, batch), hidden = config->hidden;

    linear(model, &ids->qkv, tokens, hidden, 3 * hidden, input, layer->qkv);
    model->kernels->attention(&shape, layer->qkv, layer->probs, layer->context);
    linear(model, &ids->out, tokens, hidden, hidden, layer->context, model->narrow);
    norm(model, &ids->norm1, tokens, model->narrow, input, layer->middle, &layer->norm1);

    linear(model, &ids->ff1, tokens, hidden, config->ff, layer->middle, model->wide);
    model->kernels->gelu((size_t)tokens * (size_t)config->ff, model->wide, layer->active, layer->slope);
    linear(model, &ids->ff2, tokens, config->ff, hidden, layer->active, model->narrow);
    norm(model, &ids->norm2, tokens, model->narrow, layer->middle, layer->output, &layer->norm2);
}

static void head_forward(bert_model_t *model, const bert_batch_t *batch, const real_t *input)
{
    int targets = batch->targets, hidden = model->config.hidden;
    size_t row_bytes = (size_t)hidden * sizeof(real_t);

    for (int i = 0; i < targets; i++) {
        memcpy(model->picked + (size_t)i * (size_t)hidden, input + (size_t)batch->where[i] * (size_t)hidden, row_bytes);
    }
    linear(model, &model->ids.head, targets, hidden, hidden, model->picked, model->d_picked);
    model->kernels->gelu((size_t)targets * (size_t)hidden, model->d_picked, model->head_active, model->head_slope);
    norm(model, &model->ids.head_norm, targets, model->head_active, NULL, model->head_out, &model->head_norm);
    gemm_nt(targets, model->config.vocab, hidden, model->head_out, bert_param(model, model->ids.words), model->logits);
    model->kernels->add_bias(targets, model->config.vocab, bert_param(model, model->ids.decoder_bias), model->logits);
    model->kernels->cross_entropy(targets, model->config.vocab, batch->label, model->logits, model->loss, model->hit);
}

void bert_model_forward(bert_model_t *model, const bert_batch_t *batch)
{
    const real_t *stream = model->embedded;

    embed(model, batch);
    for (int layer = 0; layer < model->config.layers; layer++) {
        layer_forward(model, batch, layer, stream);
        stream = model->layer[layer].output;
    }
    head_forward(model, batch, stream);
}
