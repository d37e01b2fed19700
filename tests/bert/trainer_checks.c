/* What a rank looks at beside training: held-out loss, equality of the ranks, rows that no token uses. */
#include <linnet/stage.h>
#include <string.h>

#include "team.h"
#include "trainer.h"

static void swap_values(float *a, float *b, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        float kept = a[i];

        a[i] = b[i];
        b[i] = kept;
    }
}

/* Between two syncs of local steps the model differs from rank to rank; what all ranks share, and a checkpoint holds,
 * are the masters. Puts them into the model, or the model's own values back. */
static void swap_masters(bert_trainer_t *t)
{
    lnt_plan_info_t info = {.struct_size = sizeof(info)};
    lnt_tensor_params_t tensor = {.struct_size = sizeof(tensor)};
    uint32_t n_tensors = (lnt_plan_get_info(t->plan, &info) == LNT_OK) ? info.n_tensors : 0;

    for (uint32_t i = 0; i < n_tensors; i++) {
        float *master = lnt_plan_master(t->plan, i);

        if ((lnt_plan_get_tensor(t->plan, i, &tensor) == LNT_OK) && (master != tensor.param)) {
            swap_values(master, tensor.param, tensor.count);
        }
    }
}

bool bert_trainer_evaluate(bert_trainer_t *t, bert_score_t *score)
{
    enum { N = sizeof(bert_score_t) / sizeof(double) };
    bert_score_t mine = {0};
    uint64_t bits[N], all[BERT_RANKS_MAX * N];
    double sums[N] = {0}, value;

    swap_masters(t);
    bert_evaluate(t->model, t->eval_batch, &t->tokens->held_out, t->minus_log, t->config.vocab,
                  t->options->eval_windows / EVAL_CHUNK, (int)t->rank, (int)t->n_ranks, &mine);
    swap_masters(t);
    memcpy(bits, &mine, sizeof(mine));
    if (!bert_team_gather(t->comm, t->n_ranks, bits, N, all)) {
        return false;
    }
    for (size_t i = 0; i < t->n_ranks * N; i++) {
        memcpy(&value, &all[i], sizeof(value));
        sums[i % N] += value;
    }
    memcpy(score, sums, sizeof(*score));
    return true;
}

bool bert_trainer_compare(bert_trainer_t *t)
{
    bert_final_record_t *total = &t->total;
    uint64_t mine[3] = {lnt_optim_hash(t->optim), total->wire_bytes, total->wire_bytes_inter};
    uint64_t all[BERT_RANKS_MAX * 3];

    if (!bert_team_gather(t->comm, t->n_ranks, mine, 3, all)) {
        return false;
    }
    total->params_hash = mine[0];
    total->wire_bytes_all = total->wire_bytes_inter_all = 0;
    for (uint32_t r = 0; r < t->n_ranks; r++) {
        total->params_identical = total->params_identical && (all[3 * r] == all[0]);
        total->wire_bytes_all += all[3 * r + 1];
        total->wire_bytes_inter_all += all[3 * r + 2];
    }
    return true;
}

static bool same_rows(bert_trainer_t *t, int tensor, int used_rows, const real_t *first)
{
    size_t used = (size_t)used_rows * (size_t)t->config.hidden, count = bert_model_tensor(t->model, tensor)->count;

    return memcmp(bert_model_param(t->model, tensor) + used, first + used, (count - used) * sizeof(real_t)) == 0;
}

void bert_trainer_check_rows(bert_trainer_t *t)
{
    const bert_ids_t *ids = bert_model_ids(t->model);
    const real_t *types = t->first_rows + bert_model_tensor(t->model, ids->positions)->count;

    t->total.rows_checked = true;
    t->total.rows_equal =
        same_rows(t, ids->positions, t->config.seq, t->first_rows) && same_rows(t, ids->types, 1, types);
}
