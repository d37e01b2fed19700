/* The list of tensors, in the order in which backward completes them. */
#include <stdio.h>

#include "model_parts.h"

static const real_t START_SPREAD = (real_t)0.08;

enum { NO_LAYER = -1 };

/* Where a tensor belongs: "layer1.ff" or, outside the layers, "head". */
typedef struct place {
    int layer;
    const char *block;
} place_t;

static int add_tensor(bert_model_t *model, place_t place, const char *part, size_t count, real_t start, real_t spread)
{
    bert_tensor_t *tensor = &model->tensor[model->n_tensors];

    if (place.layer == NO_LAYER) {
        snprintf(tensor->name, sizeof(tensor->name), "%s.%s", place.block, part);
    } else {
        snprintf(tensor->name, sizeof(tensor->name), "layer%d.%s.%s", place.layer, place.block, part);
    }
    tensor->offset = model->n_params;
    tensor->count = count;
    tensor->start = start;
    tensor->spread = spread;
    tensor->decay = spread > 0;
    model->n_params += count;
    return model->n_tensors++;
}

static int add_matrix(bert_model_t *model, place_t place, const char *part, int rows, int cols)
{
    int number = add_tensor(model, place, part, (size_t)rows * (size_t)cols, 0, START_SPREAD);

    model->tensor[number].rows = (size_t)rows;
    model->tensor[number].cols = (size_t)cols;
    return number;
}

static bert_norm_ids_t add_norm(bert_model_t *model, place_t place)
{
    size_t hidden = (size_t)model->config.hidden;
    bert_norm_ids_t ids;

    ids.bias = add_tensor(model, place, "norm.bias", hidden, 0, 0);
    ids.gain = add_tensor(model, place, "norm.gain", hidden, 1, 0);
    return ids;
}

static bert_linear_ids_t add_linear(bert_model_t *model, place_t place, int outputs, int inputs)
{
    bert_linear_ids_t ids;

    ids.bias = add_tensor(model, place, "bias", (size_t)outputs, 0, 0);
    ids.weight = add_matrix(model, place, "weight", outputs, inputs);
    return ids;
}

static int add_table(bert_model_t *model, place_t place, const char *part, int rows)
{
    return add_matrix(model, place, part, rows, model->config.hidden);
}

static void add_layer(bert_model_t *model, int layer)
{
    const bert_config_t *config = &model->config;
    bert_layer_ids_t *ids = &model->ids.layer[layer];
    int hidden = config->hidden;

    ids->norm2 = add_norm(model, (place_t){layer, "ff_out"});
    ids->ff2 = add_linear(model, (place_t){layer, "ff_out"}, hidden, config->ff);
    ids->ff1 = add_linear(model, (place_t){layer, "ff_in"}, config->ff, hidden);
    ids->norm1 = add_norm(model, (place_t){layer, "attention_out"});
    ids->out = add_linear(model, (place_t){layer, "attention_out"}, hidden, hidden);
    ids->qkv = add_linear(model, (place_t){layer, "qkv"}, 3 * hidden, hidden);
}

void bert_model_number_tensors(bert_model_t *model)
{
    const bert_config_t *config = &model->config;
    const place_t decoder = {NO_LAYER, "decoder"}, head = {NO_LAYER, "head"};
    const place_t embedding = {NO_LAYER, "embedding"};

    model->ids.decoder_bias = add_tensor(model, decoder, "bias", (size_t)config->vocab, 0, 0);
    model->ids.head_norm = add_norm(model, head);
    model->ids.head = add_linear(model, head, config->hidden, config->hidden);
    for (int layer = config->layers - 1; layer >= 0; layer--) {
        add_layer(model, layer);
    }
    model->ids.embed_norm = add_norm(model, embedding);
    model->ids.types = add_table(model, embedding, "types", config->types);
    model->ids.positions = add_table(model, embedding, "positions", config->positions);
    model->ids.words = add_table(model, embedding, "words", config->vocab);
}
