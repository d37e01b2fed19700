/* Optimizers of the library pass through by name; the table holds what training this model with them takes: options,
 * learning rate, number of steps. An optimizer without a row trains as Adam does. */
#include "optimizers.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "say.h"

typedef struct preset {
    const char *name, *algorithm; /* of --optim; of the library */
    const char *options;          /* 40% stands for that share of the steps */
    double lr, plain_lr;          /* the second one: factor for gains and biases */
    int steps;
    const char *help;
} preset_t;

static const preset_t other = {.options = "", .lr = 4e-3, .plain_lr = 1, .steps = 700};

/* Intervals that grow once in a run, to 2: two steps between syncs is what this model still learns with. */
#define ZERO_ONE_SCHEDULE "var_update_scaler=32,local_step_scaler=40%,local_step_clipper=2"

/* What tames LAMB here: norms of gains (1) and biases (0 at the start) do not say how far these may move. */
#define LAMB_LIMITS "max_coeff=0.3,min_coeff=0.01"

static const preset_t presets[] = {
    {"adam", "adamw", "", 4e-3, 1, 700, "Adam with decoupled weight decay: the baseline of the gates"},
    {"adam_l2", "adam", "", 4e-3, 1, 700, "Adam with the decay in the gradient"},
    {"onebit_adam", "onebit_adam", "", 4e-3, 1, 700, "1-bit Adam"},
    {"frozen_adam", "onebit_adam", "compression=off", 4e-3, 1, 700,
     "1-bit Adam's twin: variance frozen, exchange in f32"},
    {"lamb", "lamb", LAMB_LIMITS, 0.02, 1, 1000, "LAMB, trust ratio at most 0.3"},
    {"lambc", "lambc", "", 0.015, 0.3, 1000, "LAMB, trust ratio at most 1; gains and biases learn more slowly instead"},
    {"lans", "lans", "", 0.02, 0.1, 1000,
     "LANS, whose ratios have no limit; gains and biases learn more slowly instead"},
    {"came", "came", "beta3=0.999", 1.5e-3, 2.5, 1000, "CAME, its statistics of distances as long as the run"},
    {"onebit_lamb", "onebit_lamb", LAMB_LIMITS, 0.02, 1, 1000, "1-bit LAMB"},
    {"frozen_lamb", "onebit_lamb", LAMB_LIMITS ",compression=off", 0.02, 1, 1000, "1-bit LAMB's twin: exchange in f32"},
    {"zero_one_adam", "zero_one_adam", ZERO_ONE_SCHEDULE, 4e-3, 1, 700, "0/1 Adam"},
    {"frozen_zero_one", "zero_one_adam", ZERO_ONE_SCHEDULE ",compression=off", 4e-3, 1, 700,
     "0/1 Adam's twin: the same schedule, exchange in f32"},
};

enum { N_PRESETS = sizeof(presets) / sizeof(presets[0]) };

/* The option that ends the updates of the variance, under the names it has. */
static const char *const freeze_names[] = {"freeze_step", "var_freeze_step"};

enum { N_FREEZE_NAMES = sizeof(freeze_names) / sizeof(freeze_names[0]) };

static bool library_has(const char *algorithm)
{
    for (const char *const *name = lnt_optim_list(); *name != NULL; name++) {
        if (strcmp(*name, algorithm) == 0) {
            return true;
        }
    }
    return false;
}

static bool has_option(const char *algorithm, const char *name)
{
    lnt_optim_option_t option;

    for (size_t i = 0; lnt_optim_option_get(algorithm, i, &option) == LNT_OK; i++) {
        if (strcmp(option.name, name) == 0) {
            return true;
        }
    }
    return false;
}

static int share_of(double percent, int steps)
{
    int share = (int)(percent * steps / 100);

    return share + (share * 100.0 < percent * steps);
}

/* A number followed by % becomes that share of the steps; everything else stays. Returns what follows the number or
 * character taken. */
static const char *expand_next(const char *text, int steps, char *out, size_t room)
{
    char *end = NULL;
    double number = isdigit((unsigned char)*text) ? strtod(text, &end) : 0;

    if ((end != NULL) && (*end == '%')) {
        snprintf(out, room, "%d", share_of(number, steps));
        return end + 1;
    }
    snprintf(out, room, "%.*s", (end != NULL) ? (int)(end - text) : 1, text);
    return (end != NULL) ? end : text + 1;
}

/* Appends "key" and the value behind a comma. */
static bool append(bert_optimizer_t *optimizer, const char *key, const char *value, int steps)
{
    char *out = optimizer->options;
    size_t used = strlen(out);

    used += (size_t)snprintf(out + used, OPTIM_OPTIONS_MAX - used, "%s%s", (used > 0) ? "," : "", key);
    while ((*value != '\0') && (used < OPTIM_OPTIONS_MAX)) {
        value = expand_next(value, steps, out + used, OPTIM_OPTIONS_MAX - used);
        used += strlen(out + used);
        if (used == OPTIM_OPTIONS_MAX - 1) {
            return bert_fail("optimizer options are too long");
        }
    }
    return true;
}

static bool append_freeze(const bert_options_t *options, bert_optimizer_t *optimizer)
{
    char key[32], freeze[24];
    int step = (options->freeze_step > 0) ? options->freeze_step : share_of(options->freeze_percent, options->steps);

    snprintf(freeze, sizeof(freeze), "%d", step);
    for (size_t i = 0; i < N_FREEZE_NAMES; i++) {
        snprintf(key, sizeof(key), "%s=", freeze_names[i]);
        if (has_option(optimizer->algorithm, freeze_names[i]) && !append(optimizer, key, freeze, options->steps)) {
            return false;
        }
    }
    return true;
}

static bool append_all(const bert_options_t *options, const char *preset, bert_optimizer_t *optimizer)
{
    int steps = options->steps;

    return ((preset[0] == '\0') || append(optimizer, "", preset, steps)) && append_freeze(options, optimizer) &&
           ((options->warmup_codec == NULL) || append(optimizer, "warmup_codec=", options->warmup_codec, steps)) &&
           ((options->opt_options == NULL) || append(optimizer, "", options->opt_options, steps));
}

static const preset_t *find_preset(const char *name)
{
    for (size_t i = 0; i < N_PRESETS; i++) {
        if (strcmp(presets[i].name, name) == 0) {
            return &presets[i];
        }
    }
    return &other;
}

bool bert_optimizer_find(bert_options_t *options, bert_optimizer_t *optimizer)
{
    const preset_t *preset = find_preset(options->optim);

    *optimizer = (bert_optimizer_t){.name = options->optim, .algorithm = options->optim};
    if (preset->algorithm != NULL) {
        optimizer->algorithm = preset->algorithm;
    }
    if (!library_has(optimizer->algorithm)) {
        return bert_fail("--optim %s: no such optimizer; --list shows them", options->optim);
    }
    options->lr = (options->lr > 0) ? options->lr : preset->lr;
    options->plain_lr = (options->plain_lr > 0) ? options->plain_lr : preset->plain_lr;
    options->steps = (options->steps > 0) ? options->steps : preset->steps;
    return append_all(options, preset->options, optimizer);
}

static void print_preset(const preset_t *preset)
{
    printf("%-16s lr %g, of gains and biases %g, %d steps: %s\n%16s %s %s\n", preset->name, preset->lr,
           preset->lr * preset->plain_lr, preset->steps, preset->help, "", preset->algorithm, preset->options);
}

void bert_optimizers_print(void)
{
    lnt_optim_option_t option;

    for (size_t i = 0; i < N_PRESETS; i++) {
        print_preset(&presets[i]);
    }
    printf("\nThe library's, by their own names:\n");
    for (const char *const *name = lnt_optim_list(); *name != NULL; name++) {
        printf("%s\n", *name);
        for (size_t i = 0; lnt_optim_option_get(*name, i, &option) == LNT_OK; i++) {
            printf("    %-22s %-8s %s\n", option.name, (option.default_text == NULL) ? "" : option.default_text,
                   option.help);
        }
    }
}
