/* One rank of a training run: the library's objects, the model, and what the files of the trainer share. */
#ifndef BERT_TRAINER_H
#define BERT_TRAINER_H

#include <linnet/linnet.h>

#include "evaluate.h"
#include "optimizers.h"
#include "options.h"
#include "report.h"
#include "tokens.h"

/* Groups of tensors: gains and biases; matrices and tables, which decay. */
enum { BERT_GROUP_PLAIN, BERT_GROUP_DECAY, BERT_N_GROUPS };

typedef struct bert_trainer {
    const bert_options_t *options;
    const bert_tokens_t *tokens;
    bert_config_t config;
    const bert_optimizer_t *optimizer;
    uint32_t rank, n_ranks;

    lnt_context_t *context;
    lnt_comm_t *comm;
    lnt_plan_t *plan;
    lnt_optim_t *optim;
    lnt_comm_info_t info;

    bert_model_t *model;
    bert_batch_t *batch, *eval_batch;
    float *minus_log;        /* unigram losses */
    real_t *first_rows;      /* start values of the position and type tables; NULL: not checked */
    lnt_codec_t *grad_codec; /* of --grad-codec; NULL: gradients go to the optimizer as they are */
    lnt_residual_t *grad_residual;

    int step, last_step;      /* done so far; to do */
    lnt_comm_stats_t counted; /* what has been reported, or was no training */
    bert_final_record_t total;
    bert_report_t report; /* used by rank 0 */
} bert_trainer_t;

/* trainer_setup.c; false after a message. `end` takes whatever `begin` left. */
bool bert_trainer_begin(bert_trainer_t *trainer, const lnt_bootstrap_t *bootstrap);
bool bert_trainer_end(bert_trainer_t *trainer);

/* trainer_state.c: one blob per rank and a small text file, DIR/rank-N.state and DIR/trainer.txt. */
bool bert_trainer_save(bert_trainer_t *trainer, const char *dir);
bool bert_trainer_resume(bert_trainer_t *trainer, const char *dir);

/* trainer_checks.c; the first two are collective. */
/* Every rank evaluates its share of the windows; sums are added in rank order. */
bool bert_trainer_evaluate(bert_trainer_t *trainer, bert_score_t *score);
/* Gathers hashes and byte counts into total; clears params_identical if a rank differs. */
bool bert_trainer_compare(bert_trainer_t *trainer);
void bert_trainer_check_rows(bert_trainer_t *trainer);

/* trainer_gradients.c */
/* Forward and backward of one batch; gradients go to the optimizer. */
bool bert_trainer_compute(bert_trainer_t *trainer);
bool bert_trainer_create_grad_codec(bert_trainer_t *trainer);

/* trainer.c */
bool bert_trainer_run(bert_trainer_t *trainer);

#endif
