/* What the model's files share: its tables and its arrays. */
#ifndef BERT_MODEL_PARTS_H
#define BERT_MODEL_PARTS_H

#include "model.h"

typedef struct bert_norm_memory {
    real_t *hat, *rstd;
} bert_norm_memory_t;

/* What one layer keeps for its backward pass. */
typedef struct bert_layer_memory {
    real_t *qkv, *probs, *context;
    bert_norm_memory_t norm1;
    real_t *middle;         /* after the first norm */
    real_t *active, *slope; /* of the feed-forward part */
    bert_norm_memory_t norm2;
    real_t *output;
} bert_layer_memory_t;

struct bert_model {
    bert_config_t config;
    const bert_kernels_t *kernels;
    int n_tensors;
    bert_tensor_t tensor[BERT_TENSORS_MAX];
    bert_ids_t ids;
    size_t n_params;
    real_t *arena; /* one allocation; everything below points into it */
    real_t *param, *grad;

    real_t *embedded;
    bert_norm_memory_t embed_norm;
    bert_layer_memory_t layer[BERT_LAYERS_MAX];
    real_t *picked, *head_active, *head_slope, *head_out, *logits, *loss;
    bert_norm_memory_t head_norm;
    int *hit;

    real_t *wide;                   /* scratch, [tokens][ff] */
    real_t *narrow, *d_stream;      /* scratch, [tokens][hidden] */
    real_t *d_qkv;                  /* scratch, [tokens][3 * hidden] */
    real_t *d_picked, *d_logit_row; /* scratch, [targets][hidden] */
};

static inline real_t *bert_param(const bert_model_t *model, int tensor)
{
    return model->param + model->tensor[tensor].offset;
}

static inline real_t *bert_grad(const bert_model_t *model, int tensor)
{
    return model->grad + model->tensor[tensor].offset;
}

/* Numbers the tensors in backward order. */
void bert_model_number_tensors(bert_model_t *model);

#endif
