/* Command line of linnet-bert. */
#ifndef BERT_OPTIONS_H
#define BERT_OPTIONS_H

#include <stdbool.h>

#include "model.h"

typedef struct bert_options {
    const char *preset;
    int ranks, nodes;
    const char *optim, *warmup_codec, *opt_options;
    int steps, seed, batch, freeze_step;
    double freeze_percent, lr, plain_lr, weight_decay;
    const char *json, *save, *resume;
    int stop_after, eval_every, eval_windows;
    double emulate_gbps;
    const char *text, *cache;
    const char *tensor_scale, *grad_codec;
    bool one_tensor, mask_unused;
    int bucket_kib, timeout_s;
    bool check_rows, check_params, quiet, help, list;
} bert_options_t;

/* False after a message. Strings point into argv. */
bool bert_options_parse(int argc, char **argv, bert_options_t *options);
void bert_options_print(void);

/* The model of a preset; batch decides its memory. NULL: no such preset. */
const bert_config_t *bert_preset(const char *name);

#endif
