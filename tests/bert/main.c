/* linnet-bert: a small BERT on real text, trained as a user of the library would: public headers only. */
#include "gemm.h"
#include "say.h"
#include "team.h"
#include "tokens.h"
#include "trainer.h"

typedef struct run {
    bert_options_t options;
    bert_tokens_t tokens;
    bert_optimizer_t optimizer;
} run_t;

static int rank_main(void *arg, const lnt_bootstrap_t *bootstrap)
{
    const run_t *run = arg;
    bert_trainer_t trainer = {.options = &run->options, .tokens = &run->tokens, .optimizer = &run->optimizer};
    bool good = bert_trainer_begin(&trainer, bootstrap) && bert_trainer_run(&trainer);

    if (!good && (trainer.comm != NULL)) {
        lnt_comm_abort(trainer.comm, "linnet-bert gives up on a rank");
    }
    good = bert_trainer_end(&trainer) && good;
    return (good && trainer.total.params_identical) ? 0 : 1;
}

static bool prepare(char **argv, run_t *run)
{
    const bert_config_t *config = bert_preset(run->options.preset);
    int tokens = run->options.batch * config->seq, targets = run->options.batch * config->targets;

    return bert_optimizer_find(&run->options, &run->optimizer) &&
           gemm_prepare(argv, tokens, config->hidden, config->ff, config->vocab, targets) &&
           bert_tokens_open(run->options.text, run->options.cache, config->vocab, &run->tokens);
}

int main(int argc, char **argv)
{
    static run_t run;
    int result;

    if (!bert_options_parse(argc, argv, &run.options)) {
        return 2;
    }
    if (run.options.help) {
        bert_options_print();
        return 0;
    }
    if (run.options.list) {
        bert_optimizers_print();
        return 0;
    }
    if (!prepare(argv, &run)) {
        return 2;
    }
    result = bert_team_run((uint32_t)run.options.ranks, rank_main, &run);
    bert_tokens_close(&run.tokens);
    return result;
}
