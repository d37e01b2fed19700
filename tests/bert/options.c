/* The options as one table: parsing and --help read it. */
#include "options.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "evaluate.h"
#include "say.h"
#include "team.h"

typedef enum kind { KIND_INT, KIND_NUMBER, KIND_TEXT, KIND_FLAG } kind_t;

typedef struct row {
    const char *name, *default_text, *help;
    size_t offset;
    kind_t kind;
    double least; /* of a number */
} row_t;

#define ROW(_name, _default, _field, _kind, _least, _help)                                                             \
    {                                                                                                                  \
        _name, _default, _help, offsetof(bert_options_t, _field), _kind, _least                                        \
    }

static const row_t rows[] = {
    ROW("preset", "small", preset, KIND_TEXT, 0, "model; small: 239 680 parameters, 2 layers of 64, 16 tokens"),
    ROW("ranks", "4", ranks, KIND_INT, 1, "ranks to start on this machine (unused under mpirun, torchrun)"),
    ROW("nodes", "0", nodes, KIND_INT, 0,
        "nodes the ranks play, in equal parts; 0: as many as there are hosts. One node compresses nothing"),
    ROW("optim", "adam", optim, KIND_TEXT, 0, "optimizer; --list shows them"),
    ROW("warmup-codec", NULL, warmup_codec, KIND_TEXT, 0, "codec of the exchanges before the freeze, e.g. int8"),
    ROW("opt-options", NULL, opt_options, KIND_TEXT, 0,
        "further options of the optimizer, \"key=value,key=value\"; 25% stands for that share of the steps"),
    ROW("steps", "0", steps, KIND_INT, 0, "length of the learning-rate schedule; 0: the optimizer's, see --list"),
    ROW("seed", "0", seed, KIND_INT, 0, "start values, data order and masks"),
    ROW("batch", "64", batch, KIND_INT, 1, "sequences per rank"),
    ROW("freeze-step", "0", freeze_step, KIND_INT, 0,
        "last step before the variance is frozen; 0: a share of the steps"),
    ROW("freeze-percent", "25", freeze_percent, KIND_NUMBER, 0, "that share of the steps, rounded up"),
    ROW("lr", "0", lr, KIND_NUMBER, 0, "peak learning rate; 0: the optimizer's, see --list"),
    ROW("plain-lr", "0", plain_lr, KIND_NUMBER, 0, "that of gains and biases, as a factor; 0: the optimizer's"),
    ROW("weight-decay", "0.01", weight_decay, KIND_NUMBER, 0, "of matrices and tables"),
    ROW("json", NULL, json, KIND_TEXT, 0, "file for one JSON line per step and one at the end"),
    ROW("save", NULL, save, KIND_TEXT, 0, "directory for the state after the last step"),
    ROW("resume", NULL, resume, KIND_TEXT, 0, "directory to continue from"),
    ROW("stop-after", "0", stop_after, KIND_INT, 0, "end after this many steps of the schedule; 0: all"),
    ROW("eval-every", "50", eval_every, KIND_INT, 0, "steps between held-out evaluations; 0: only at the end"),
    ROW("eval-windows", "4096", eval_windows, KIND_INT, EVAL_CHUNK, "held-out windows, a multiple of 64"),
    ROW("emulate-gbps", "0", emulate_gbps, KIND_NUMBER, 0, "limit of each played node's egress, Gbit/s; 0: none"),
    ROW("text", NULL, text, KIND_TEXT, 0, "a UTF-8 text to learn instead of the dictionary"),
    ROW("cache", "cache", cache, KIND_TEXT, 0, "directory for the prepared text"),
    ROW("tensor-scale", NULL, tensor_scale, KIND_TEXT, 0, "other-units: gradients of tensors times 1, 0.1, 0.01"),
    ROW("grad-codec", NULL, grad_codec, KIND_TEXT, 0,
        "for an ablation: gradients pass through a compressed all-reduce with feedback before the optimizer sees them"),
    ROW("one-tensor", NULL, one_tensor, KIND_FLAG, 0,
        "for an ablation: the model is registered as one flat tensor; blocks cross the borders of its parts"),
    ROW("mask-unused", NULL, mask_unused, KIND_FLAG, 0,
        "mask what has no true gradient: table rows that no token uses, key biases (optimizers with a freeze)"),
    ROW("bucket-kib", "0", bucket_kib, KIND_INT, 0, "bucket size; 0: the library's"),
    ROW("timeout", "120", timeout_s, KIND_INT, 1, "seconds without any progress after which a run fails"),
    ROW("check-rows", NULL, check_rows, KIND_FLAG, 0, "report whether unused table rows kept their bits"),
    ROW("check-params", NULL, check_params, KIND_FLAG, 0, "compare the state of all ranks after every step"),
    ROW("quiet", NULL, quiet, KIND_FLAG, 0, "print nothing but errors"),
    ROW("list", NULL, list, KIND_FLAG, 0, "list optimizers and their options"),
    ROW("help", NULL, help, KIND_FLAG, 0, "this text"),
};

enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

static const struct {
    const char *name;
    bert_config_t config;
} presets[] = {
    {"small",
     {.vocab = 2048,
      .positions = 32,
      .types = 2,
      .hidden = 64,
      .layers = 2,
      .heads = 2,
      .ff = 256,
      .seq = 16,
      .targets = 2,
      .batch = 64}},
};

const bert_config_t *bert_preset(const char *name)
{
    for (size_t i = 0; i < sizeof(presets) / sizeof(presets[0]); i++) {
        if (strcmp(presets[i].name, name) == 0) {
            return &presets[i].config;
        }
    }
    return NULL;
}

static bool set_number(const row_t *row, const char *text, bert_options_t *options)
{
    char *end;
    double value;

    errno = 0;
    value = strtod(text, &end);
    if ((end == text) || (*end != '\0') || (errno != 0) || !isfinite(value) || (value < row->least)) {
        return bert_fail("--%s %s: a number from %g on is needed", row->name, text, row->least);
    }
    if (row->kind == KIND_NUMBER) {
        memcpy((char *)options + row->offset, &value, sizeof(value));
        return true;
    }
    if ((value != floor(value)) || (value > INT_MAX)) {
        return bert_fail("--%s %s: a whole number is needed", row->name, text);
    }
    memcpy((char *)options + row->offset, &(int){(int)value}, sizeof(int));
    return true;
}

static bool set_value(const row_t *row, const char *text, bert_options_t *options)
{
    if (row->kind == KIND_FLAG) {
        *((bool *)(void *)((char *)options + row->offset)) = true;
        return true;
    }
    if (row->kind == KIND_TEXT) {
        memcpy((char *)options + row->offset, &text, sizeof(text));
        return true;
    }
    return set_number(row, text, options);
}

/* The row of "--name" or "--name=value"; *value_p is what follows '=', or NULL. */
static const row_t *find_row(const char *argument, const char **value_p)
{
    size_t length = strcspn(argument, "=");

    *value_p = (argument[length] == '=') ? argument + length + 1 : NULL;
    for (size_t i = 0; (strncmp(argument, "--", 2) == 0) && (i < N_ROWS); i++) {
        if ((strlen(rows[i].name) == length - 2) && (strncmp(rows[i].name, argument + 2, length - 2) == 0)) {
            return &rows[i];
        }
    }
    return NULL;
}

static bool set_defaults(bert_options_t *options)
{
    *options = (bert_options_t){0};
    for (size_t i = 0; i < N_ROWS; i++) {
        if ((rows[i].default_text != NULL) && !set_value(&rows[i], rows[i].default_text, options)) {
            return false;
        }
    }
    return true;
}

static bool check_together(const bert_options_t *options)
{
    if (bert_preset(options->preset) == NULL) {
        return bert_fail("--preset %s: there is only '%s'", options->preset, presets[0].name);
    }
    if (options->ranks > BERT_RANKS_MAX) {
        return bert_fail("--ranks %d: at most %d", options->ranks, BERT_RANKS_MAX);
    }
    if (options->nodes > options->ranks) {
        return bert_fail("--nodes %d: more nodes than ranks (%d)", options->nodes, options->ranks);
    }
    if ((options->tensor_scale != NULL) && (strcmp(options->tensor_scale, "other-units") != 0)) {
        return bert_fail("--tensor-scale %s: there is only other-units", options->tensor_scale);
    }
    if (options->eval_windows % EVAL_CHUNK != 0) {
        return bert_fail("--eval-windows %d: no multiple of %d", options->eval_windows, EVAL_CHUNK);
    }
    return true;
}

bool bert_options_parse(int argc, char **argv, bert_options_t *options)
{
    if (!set_defaults(options)) {
        return false;
    }
    for (int i = 1; i < argc; i++) {
        const char *value;
        const row_t *row = find_row(argv[i], &value);

        if (row == NULL) {
            return bert_fail("unknown option %s; --help lists them", argv[i]);
        }
        if ((row->kind != KIND_FLAG) && (value == NULL) && ((value = argv[++i]) == NULL)) {
            return bert_fail("--%s needs a value", row->name);
        }
        if (!set_value(row, value, options)) {
            return false;
        }
    }
    return check_together(options);
}

void bert_options_print(void)
{
    printf("linnet-bert: trains a small BERT on real text with gradients exchanged by linnet.\n\n");
    for (size_t i = 0; i < N_ROWS; i++) {
        printf("  --%-14s %-6s %s\n", rows[i].name, (rows[i].default_text == NULL) ? "" : rows[i].default_text,
               rows[i].help);
    }
    printf("\nRanks are forked here, or come from mpirun, or from RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.\n");
}
