/* Backward pass, by hand, in the order of the tensors' numbers. Every gradient is written once (none accumulates over
 * calls) and announced as soon as it is complete. */
#include <string.h>

#include "gemm.h"
#include "model_parts.h"

typedef struct pass {
    bert_model_t *model;
    const bert_batch_t *batch;
    int tokens;
    bert_ready_fn_t ready;
    void *arg;
    bool going; /* false once `ready` refused */
} pass_t;

static void announce(pass_t *pass, int tensor)
{
    if (pass->going && (pass->ready != NULL)) {
        pass->going = pass->ready(pass->arg, tensor, bert_grad(pass->model, tensor), pass->model->tensor[tensor].count);
    }
}

/* Gradients of bias and weight from dy; d_input[rows][inputs] = dy * W + keep * d_input. */
static void linear_back(pass_t *pass, const bert_linear_ids_t *ids, int rows, int inputs, int outputs, const real_t *x,
                        const real_t *dy, real_t keep, real_t *d_input)
{
    const bert_model_t *model = pass->model;

    model->kernels->column_sums(rows, outputs, dy, bert_grad(model, ids->bias));
    announce(pass, ids->bias);
    gemm_tn(outputs, inputs, rows, dy, x, bert_grad(model, ids->weight));
    announce(pass, ids->weight);
    gemm_nn(rows, inputs, outputs, dy, bert_param(model, ids->weight), keep, d_input);
}

static void norm_back(pass_t *pass, const bert_norm_ids_t *ids, int rows, const bert_norm_memory_t *memory, real_t *dx)
{
    const bert_model_t *model = pass->model;

    model->kernels->norm_back(rows, model->config.hidden, memory->hat, memory->rstd, bert_param(model, ids->gain), dx,
                              bert_grad(model, ids->gain), bert_grad(model, ids->bias));
    announce(pass, ids->bias);
    announce(pass, ids->gain);
}

/* From the loss to the gradient of the encoder's output, in d_stream. The decoder's share of the word table's gradient
 * is left in place for embed_back. */
static void head_back(pass_t *pass)
{
    bert_model_t *model = pass->model;
    int targets = pass->batch->targets, hidden = model->config.hidden, vocab = model->config.vocab;
    size_t wide = (size_t)hidden;

    model->kernels->column_sums(targets, vocab, model->logits, bert_grad(model, model->ids.decoder_bias));
    announce(pass, model->ids.decoder_bias);
    gemm_tn(vocab, hidden, targets, model->logits, model->head_out, bert_grad(model, model->ids.words));
    gemm_nn(targets, hidden, vocab, model->logits, bert_param(model, model->ids.words), 0, model->d_logit_row);

    norm_back(pass, &model->ids.head_norm, targets, &model->head_norm, model->d_logit_row);
    model->kernels->multiply((size_t)targets * wide, model->head_slope, model->d_logit_row);
    linear_back(pass, &model->ids.head, targets, hidden, hidden, model->picked, model->d_logit_row, 0, model->d_picked);

    memset(model->d_stream, 0, (size_t)pass->tokens * wide * sizeof(real_t));
    for (int i = 0; i < targets; i++) {
        model->kernels->add(wide, model->d_picked + (size_t)i * wide,
                            model->d_stream + (size_t)pass->batch->where[i] * wide);
    }
}

/* d_stream: from the gradient of the layer's output to that of its input. */
static void layer_back(pass_t *pass, int index, const real_t *input)
{
    bert_model_t *model = pass->model;
    const bert_config_t *config = &model->config;
    const bert_layer_ids_t *ids = &model->ids.layer[index];
    bert_layer_memory_t *layer = &model->layer[index];
    bert_shape_t shape = {pass->batch->sequences, config->seq, config->heads, config->hidden / config->heads};
    int tokens = pass->tokens, hidden = config->hidden, ff = config->ff;

    norm_back(pass, &ids->norm2, tokens, &layer->norm2, model->d_stream);
    linear_back(pass, &ids->ff2, tokens, ff, hidden, layer->active, model->d_stream, 0, model->wide);
    model->kernels->multiply((size_t)tokens * (size_t)ff, layer->slope, model->wide);
    linear_back(pass, &ids->ff1, tokens, hidden, ff, layer->middle, model->wide, 1, model->d_stream);

    norm_back(pass, &ids->norm1, tokens, &layer->norm1, model->d_stream);
    linear_back(pass, &ids->out, tokens, hidden, hidden, layer->context, model->d_stream, 0, model->narrow);
    model->kernels->attention_back(&shape, layer->qkv, layer->probs, model->narrow, model->d_qkv);
    linear_back(pass, &ids->qkv, tokens, hidden, 3 * hidden, input, model->d_qkv, 1, model->d_stream);
}

static void embed_back(pass_t *pass)
{
    bert_model_t *model = pass->model;
    const bert_kernels_t *kernels = model->kernels;
    const bert_ids_t *ids = &model->ids;
    size_t hidden = (size_t)model->config.hidden;

    norm_back(pass, &ids->embed_norm, pass->tokens, &model->embed_norm, model->d_stream);
    memset(bert_grad(model, ids->types), 0, model->tensor[ids->types].count * sizeof(real_t));
    kernels->column_sums(pass->tokens, (int)hidden, model->d_stream, bert_grad(model, ids->types));
    announce(pass, ids->types);
    memset(bert_grad(model, ids->positions), 0, model->tensor[ids->positions].count * sizeof(real_t));
    for (int t = 0; t < pass->tokens; t++) {
        const real_t *dx = model->d_stream + (size_t)t * hidden;
        kernels->add(hidden, dx, bert_grad(model, ids->positions) + (size_t)(t % model->config.seq) * hidden);
        kernels->add(hidden, dx, bert_grad(model, ids->words) + (size_t)pass->batch->token[t] * hidden);
    }
    announce(pass, ids->positions);
    announce(pass, ids->words);
}

bool bert_model_backward(bert_model_t *model, const bert_batch_t *batch, bert_ready_fn_t ready, void *arg)
{
    pass_t pass = {model, batch, batch->sequences * model->config.seq, ready, arg, true};

    head_back(&pass);
    for (int layer = model->config.layers - 1; layer >= 0; layer--) {
        layer_back(&pass, layer, (layer == 0) ? model->embedded : model->layer[layer - 1].output);
    }
    embed_back(&pass);
    return pass.going;
}
