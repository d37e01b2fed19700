/* How gradients reach the optimizer: tensor by tensor while backward runs, or, for ablations, altered and all at once
 * after it. */
#include <string.h>

#include "counter_rng.h"
#include "team.h"
#include "trainer.h"

/* The units of tensor j's gradient: 1, 0.1, 0.01 in turn. */
static void change_units(int tensor, real_t *grad, size_t count)
{
    static const real_t factors[] = {1, (real_t)0.1, (real_t)0.01};

    for (size_t i = 0; i < count; i++) {
        grad[i] *= factors[tensor % 3];
    }
}

static bool comes_late(const bert_trainer_t *t)
{
    return t->options->one_tensor || (t->grad_codec != NULL);
}

static bool tensor_ready(void *arg, int tensor, real_t *grad, size_t count)
{
    bert_trainer_t *t = arg;

    if (t->options->tensor_scale != NULL) {
        change_units(tensor, grad, count);
    }
    return comes_late(t) || (lnt_optim_tensor_ready(t->optim, (uint32_t)tensor, grad, NULL) == LNT_OK);
}

bool bert_trainer_create_grad_codec(bert_trainer_t *t)
{
    lnt_codec_params_t params = {.struct_size = sizeof(params), .name = t->options->grad_codec};

    return (t->options->grad_codec == NULL) ||
           ((lnt_codec_create(&params, &t->grad_codec) == LNT_OK) &&
            (lnt_residual_create(t->comm, bert_model_n_params(t->model), t->grad_codec, &t->grad_residual) == LNT_OK));
}

/* The known misuse: the mean gradient itself is compressed, and every rank gives what it decoded to the optimizer. */
static bool compress_gradients(bert_trainer_t *t)
{
    lnt_coll_params_t params = {
        .struct_size = sizeof(params), .codec = t->grad_codec, .op = LNT_MEAN, .residual = t->grad_residual};
    real_t *all = bert_model_grads(t->model);

    return (t->grad_codec == NULL) ||
           (lnt_allreduce(t->comm, all, all, bert_model_n_params(t->model), LNT_F32, &params) == LNT_OK);
}

static bool hand_over(bert_trainer_t *t)
{
    int n_tensors = t->options->one_tensor ? 1 : bert_model_n_tensors(t->model);

    for (int i = 0; i < n_tensors; i++) {
        if (lnt_optim_tensor_ready(t->optim, (uint32_t)i, bert_model_grad(t->model, i), NULL) != LNT_OK) {
            return false;
        }
    }
    return true;
}

bool bert_trainer_compute(bert_trainer_t *t)
{
    uint64_t key = rng_key((uint64_t)t->options->seed, RNG_TRAIN, (uint64_t)t->step, t->rank);

    bert_batch_fill(t->batch, &t->tokens->train, t->config.vocab, key);
    bert_model_forward(t->model, t->batch);
    return bert_model_backward(t->model, t->batch, tensor_ready, t) &&
           (!comes_late(t) || (compress_gradients(t) && hand_over(t)));
}
