/* Building a rank and taking it apart again. Everything goes through the public headers, as in a user's trainer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "say.h"
#include "team.h"
#include "trainer.h"

/* Rank r of n plays on node r * nodes / n. */
static bool create_comm(bert_trainer_t *t, const lnt_bootstrap_t *bootstrap)
{
    char node[32];
    lnt_comm_params_t params = {.struct_size = sizeof(params), .bootstrap = bootstrap};

    if (t->options->nodes > 0) {
        snprintf(node, sizeof(node), "played-%u", bootstrap->rank * (uint32_t)t->options->nodes / bootstrap->n_ranks);
        params.node = node;
    }
    params.timeout_ms = (uint32_t)t->options->timeout_s * 1000;
    params.emulate_gbps = t->options->emulate_gbps;
    t->info.struct_size = sizeof(t->info);
    return (lnt_context_create(NULL, &t->context) == LNT_OK) &&
           (lnt_comm_create(t->context, &params, &t->comm) == LNT_OK) &&
           (lnt_comm_get_info(t->comm, &t->info) == LNT_OK);
}

static bool create_model(bert_trainer_t *t)
{
    t->config = *bert_preset(t->options->preset);
    t->config.batch = (t->options->batch > EVAL_CHUNK) ? t->options->batch : EVAL_CHUNK;
    t->model = bert_model_create(&t->config, (uint64_t)t->options->seed);
    t->batch = bert_batch_create(t->options->batch, t->config.seq, t->config.targets);
    t->eval_batch = bert_batch_create(EVAL_CHUNK, t->config.seq, t->config.targets);
    t->minus_log = calloc((size_t)t->config.vocab, sizeof(float));
    if ((t->model == NULL) || (t->batch == NULL) || (t->eval_batch == NULL) || (t->minus_log == NULL)) {
        return bert_fail("no memory for the model");
    }
    bert_unigram(&t->tokens->train, t->config.vocab, t->minus_log);
    return true;
}

static bool register_tensor(bert_trainer_t *t, int first, const bert_tensor_t *tensor)
{
    lnt_tensor_params_t params = {.struct_size = sizeof(params),
                                  .name = tensor->name,
                                  .count = tensor->count,
                                  .rows = tensor->rows,
                                  .cols = tensor->cols,
                                  .grad_dtype = LNT_F32,
                                  .param_dtype = LNT_F32,
                                  .param = bert_model_param(t->model, first),
                                  .memtype = LNT_HOST,
                                  .group = tensor->decay ? BERT_GROUP_DECAY : BERT_GROUP_PLAIN};
    uint32_t number;

    return (lnt_plan_add_tensor(t->plan, &params, &number) == LNT_OK) && (number == (uint32_t)first);
}

static bool register_tensors(bert_trainer_t *t)
{
    bert_tensor_t whole = {.name = "model", .count = bert_model_n_params(t->model), .decay = true};

    if (t->options->one_tensor) {
        return register_tensor(t, 0, &whole);
    }
    for (int i = 0; i < bert_model_n_tensors(t->model); i++) {
        if (!register_tensor(t, i, bert_model_tensor(t->model, i))) {
            return false;
        }
    }
    return true;
}

static bool create_optimizer(bert_trainer_t *t)
{
    lnt_group_t groups[BERT_N_GROUPS] = {{.struct_size = sizeof(lnt_group_t)}, {.struct_size = sizeof(lnt_group_t)}};
    lnt_optim_params_t params = {.struct_size = sizeof(params),
                                 .algorithm = t->optimizer->algorithm,
                                 .options = t->optimizer->options,
                                 .groups = groups,
                                 .n_groups = BERT_N_GROUPS};

    for (int i = 0; i < BERT_N_GROUPS; i++) {
        lnt_group_defaults(&groups[i]);
        groups[i].lr = t->options->lr;
    }
    groups[BERT_GROUP_DECAY].weight_decay = t->options->weight_decay;
    return lnt_optim_create(t->plan, &params, &t->optim) == LNT_OK;
}

static bool create_plan(bert_trainer_t *t)
{
    lnt_plan_params_t params = {.struct_size = sizeof(params), .bucket_bytes = (uint64_t)t->options->bucket_kib * 1024};

    return (lnt_plan_create(t->comm, &params, &t->plan) == LNT_OK) && register_tensors(t) && create_optimizer(t) &&
           (lnt_plan_commit(t->plan) == LNT_OK);
}

/* Elements [first, first + count) of a tensor take no part. */
static bool mask_range(bert_trainer_t *t, int tensor, size_t first, size_t count)
{
    size_t size = bert_model_tensor(t->model, tensor)->count;
    uint8_t *mask = malloc(size);
    bool good = mask != NULL;

    if (good) {
        memset(mask, 1, size);
        memset(mask + first, 0, count);
        good = lnt_optim_set_mask(t->optim, (uint32_t)tensor, mask) == LNT_OK;
    }
    free(mask);
    return good;
}

/* What softmax ignores, and rows that no token uses: their true gradient is zero. */
static bool mask_unused(bert_trainer_t *t)
{
    const bert_ids_t *ids = bert_model_ids(t->model);
    size_t hidden = (size_t)t->config.hidden, used = (size_t)t->config.seq * hidden;
    bool good = mask_range(t, ids->positions, used, bert_model_tensor(t->model, ids->positions)->count - used) &&
                mask_range(t, ids->types, hidden, bert_model_tensor(t->model, ids->types)->count - hidden);

    for (int layer = 0; good && (layer < t->config.layers); layer++) {
        good = mask_range(t, ids->layer[layer].qkv.bias, hidden, hidden);
    }
    return good;
}

/* Start values of the tables that have rows no token uses: positions, then types. */
static bool remember_rows(bert_trainer_t *t)
{
    const bert_ids_t *ids = bert_model_ids(t->model);
    const bert_tensor_t *positions = bert_model_tensor(t->model, ids->positions);
    const bert_tensor_t *types = bert_model_tensor(t->model, ids->types);

    t->first_rows = malloc((positions->count + types->count) * sizeof(real_t));
    if (t->first_rows == NULL) {
        return bert_fail("no memory");
    }
    memcpy(t->first_rows, bert_model_param(t->model, ids->positions), positions->count * sizeof(real_t));
    memcpy(t->first_rows + positions->count, bert_model_param(t->model, ids->types), types->count * sizeof(real_t));
    return true;
}

bool bert_trainer_begin(bert_trainer_t *t, const lnt_bootstrap_t *bootstrap)
{
    const bert_options_t *options = t->options;

    t->rank = bootstrap->rank;
    t->n_ranks = bootstrap->n_ranks;
    t->last_step = options->steps;
    if ((options->stop_after > 0) && (options->stop_after < options->steps)) {
        t->last_step = options->stop_after;
    }
    if (!create_model(t)) {
        return false;
    }
    if (t->n_ranks > BERT_RANKS_MAX) {
        return bert_fail("%u ranks: at most %d", t->n_ranks, BERT_RANKS_MAX);
    }
    if (!create_comm(t, bootstrap)) {
        return bert_lnt_fail("connecting");
    }
    if (!create_plan(t) || !bert_trainer_create_grad_codec(t)) {
        return bert_lnt_fail("planning the exchange");
    }
    if (options->mask_unused && !mask_unused(t)) {
        return bert_lnt_fail("masking");
    }
    if (options->check_rows && !remember_rows(t)) {
        return false;
    }
    if ((options->resume != NULL) && !bert_trainer_resume(t, options->resume)) {
        return false;
    }
    return (t->rank != 0) || bert_report_open(&t->report, options, t->optimizer->name, t->step, t->last_step);
}

bool bert_trainer_end(bert_trainer_t *t)
{
    bool good = bert_report_close(&t->report);

    good = (lnt_optim_destroy(t->optim) == LNT_OK) && good;
    good = (lnt_plan_destroy(t->plan) == LNT_OK) && good;
    lnt_residual_destroy(t->grad_residual);
    good = (lnt_comm_destroy(t->comm) == LNT_OK) && good;
    good = (lnt_context_destroy(t->context) == LNT_OK) && good;
    lnt_codec_destroy(t->grad_codec);
    bert_model_destroy(t->model);
    bert_batch_destroy(t->batch);
    bert_batch_destroy(t->eval_batch);
    free(t->minus_log);
    free(t->first_rows);
    return good;
}
