/* Optimizers of the library pass through by name; the table holds what needs more than a name. */
#include "optimizers.h"

#include <stdio.h>
#include <string.h>

#include "say.h"

static const struct {
    const char *name, *algorithm, *options, *help;
} presets[] = {
    {"adam", "adamw", "", "Adam with decoupled weight decay: the baseline of the gates"},
    {"frozen_adam", "onebit_adam", "compression=off", "1-bit Adam's frozen variance, exchange in f32: its twin"},
};

enum { N_PRESETS = sizeof(presets) / sizeof(presets[0]) };

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

static bool append(bert_optimizer_t *optimizer, const char *key, const char *value)
{
    size_t used = strlen(optimizer->options);
    size_t left = OPTIM_OPTIONS_MAX - used;
    int length = snprintf(optimizer->options + used, left, "%s%s%s", (used > 0) ? "," : "", key, value);

    return ((length >= 0) && ((size_t)length < left)) || bert_fail("optimizer options are too long");
}

/* The freeze comes after a quarter of the steps unless a step is given. */
static bool append_all(const bert_options_t *options, const char *preset, bert_optimizer_t *optimizer)
{
    int step = (options->freeze_step > 0) ? options->freeze_step : (options->steps + 3) / 4;
    char freeze[24];

    snprintf(freeze, sizeof(freeze), "%d", step);
    return ((preset[0] == '\0') || append(optimizer, "", preset)) &&
           (!has_option(optimizer->algorithm, "freeze_step") || append(optimizer, "freeze_step=", freeze)) &&
           ((options->warmup_codec == NULL) || append(optimizer, "warmup_codec=", options->warmup_codec)) &&
           ((options->opt_options == NULL) || append(optimizer, "", options->opt_options));
}

bool bert_optimizer_find(const bert_options_t *options, bert_optimizer_t *optimizer)
{
    const char *preset = "";

    *optimizer = (bert_optimizer_t){.name = options->optim, .algorithm = options->optim};
    for (size_t i = 0; i < N_PRESETS; i++) {
        if (strcmp(presets[i].name, options->optim) == 0) {
            optimizer->algorithm = presets[i].algorithm;
            preset = presets[i].options;
        }
    }
    if (!library_has(optimizer->algorithm)) {
        return bert_fail("--optim %s: no such optimizer; --list shows them", options->optim);
    }
    return append_all(options, preset, optimizer);
}

void bert_optimizers_print(void)
{
    lnt_optim_option_t option;

    for (size_t i = 0; i < N_PRESETS; i++) {
        printf("%s (%s%s%s): %s\n", presets[i].name, presets[i].algorithm, (presets[i].options[0] == '\0') ? "" : " ",
               presets[i].options, presets[i].help);
    }
    for (const char *const *name = lnt_optim_list(); *name != NULL; name++) {
        printf("%s\n", *name);
        for (size_t i = 0; lnt_optim_option_get(*name, i, &option) == LNT_OK; i++) {
            printf("    %-22s %-8s %s\n", option.name, (option.default_text == NULL) ? "" : option.default_text,
                   option.help);
        }
    }
}
