/* Which optimizer and which options replay an algorithm of the reference. A hyper-parameter that no row of these tables
 * knows keeps the case from being replayed, by name.
 */
#include "replay_optimizer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Betas and eps are the groups'. `foreach` is how torch loops; the flags of the three compressed optimizers are
 * accepted and never read by the reference (ALGORITHMS: no bias correction, eps outside the root). */
#define PLAIN                                                                                                          \
    {"betas", NULL}, {"eps", NULL},                                                                                    \
    {                                                                                                                  \
        "foreach", NULL                                                                                                \
    }
#define NEVER_READ                                                                                                     \
    {"bias_correction", NULL}, {"eps_inside_sqrt", NULL}, {"max_grad_norm", NULL}, {"betas", NULL}, {"eps", NULL},     \
        {"weight_decay", NULL},                                                                                        \
    {                                                                                                                  \
        "lr", NULL                                                                                                     \
    }

static const replay_option_t adam[] = {PLAIN, {"amsgrad", "amsgrad"}, {NULL, NULL}};
static const replay_option_t onebit_adam[] = {{"freeze_step", "freeze_step"}, NEVER_READ, {NULL, NULL}};

static const replay_option_t onebit_lamb[] = {{"freeze_step", "freeze_step"},
                                              {"max_coeff", "max_coeff"},
                                              {"min_coeff", "min_coeff"},
                                              {"coeff_beta", "coeff_beta"},
                                              {"factor_max", "factor_max"},
                                              {"factor_min", "factor_min"},
                                              {"factor_threshold", "factor_threshold"},
                                              NEVER_READ,
                                              {NULL, NULL}};
static const replay_option_t zero_one_adam[] = {{"var_freeze_step", "var_freeze_step"},
                                                {"var_update_scaler", "var_update_scaler"},
                                                {"local_step_scaler", "local_step_scaler"},
                                                {"local_step_clipper", "local_step_clipper"},
                                                NEVER_READ,
                                                {NULL, NULL}};
static const replay_option_t lamb_timm[] = {PLAIN,
                                            {"max_grad_norm", "max_grad_norm"},
                                            {"trust_clip", "trust_clip"},
                                            {"always_adapt", "always_adapt"},
                                            {"bias_correction", "bias_correction"},
                                            {"grad_averaging", "grad_averaging"},
                                            {NULL, NULL}};
static const replay_option_t lamb_torch_optimizer[] = {
    PLAIN, {"clamp_value", "clamp_value"}, {"debias", "debias"}, {NULL, NULL}};
static const replay_option_t came[] = {PLAIN, {"clip_threshold", "clip_threshold"}, {NULL, NULL}};

static const replay_algorithm_t algorithms[] = {
    {"adam", "adam", "", adam, false},
    {"adamw", "adamw", "", adam, false},
    {"onebit_adam", "onebit_adam", "compat=deepspeed", onebit_adam, true},
    {"onebit_lamb", "onebit_lamb", "compat=deepspeed", onebit_lamb, true},
    {"zero_one_adam", "zero_one_adam", "compat=deepspeed", zero_one_adam, true},
    {"lamb_timm", "lamb", "max_coeff=0,min_coeff=0", lamb_timm, false},
    {"lamb_torch_optimizer", "lamb", "bias_correction=off,max_coeff=0,min_coeff=0", lamb_torch_optimizer, false},
    {"came", "came", "", came, false},
};

const replay_algorithm_t *replay_algorithm_named(const char *name)
{
    for (size_t i = 0; i < sizeof(algorithms) / sizeof(algorithms[0]); ++i) {
        if (strcmp(algorithms[i].name, name) == 0) {
            return &algorithms[i];
        }
    }
    return NULL;
}

__attribute__((format(printf, 2, 3))) static bool append(replay_model_t *model, const char *format, ...)
{
    size_t used = strlen(model->options), room = sizeof(model->options) - used;
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(model->options + used, room, format, args);
    va_end(args);
    return (n >= 0) && ((size_t)n < room);
}

/* The value as it stands, without the comma; words of JSON become the library's. */
static bool append_option(replay_model_t *model, const char *name, const char *value)
{
    static const struct {
        const char *json, *word;
    } words[] = {{"true", "on"}, {"false", "off"}, {"null", "0"}};
    const char *comma = (model->options[0] == '\0') ? "" : ",";

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); ++i) {
        if (strncmp(value, words[i].json, strlen(words[i].json)) == 0) {
            return append(model, "%s%s=%s", comma, name, words[i].word);
        }
    }
    return append(model, "%s%s=%.17g", comma, name, strtod(value, NULL));
}

/* Where decay enters the gradient, g + decay * x nearly cancels now and then. */
static double tolerance_of(const replay_model_t *model)
{
    for (uint32_t g = 0; g < model->n_groups; ++g) {
        if ((strcmp(model->algorithm->name, "adam") == 0) && (model->groups[g].values.weight_decay != 0)) {
            return 2e-4;
        }
    }
    return 5e-5;
}

bool replay_model_options(replay_model_t *model, char *problem, size_t size, int *code_p)
{
    const replay_algorithm_t *algorithm = model->algorithm;
    const char *value;
    char key[64];

    model->tolerance = tolerance_of(model);
    snprintf(model->options, sizeof(model->options), "%s", algorithm->fixed);
    for (size_t i = 0; (value = case_hyper(model->file, i, key, sizeof(key))) != NULL; ++i) {
        const replay_option_t *option = algorithm->options;

        while ((option->key != NULL) && (strcmp(option->key, key) != 0)) {
            ++option;
        }
        if (option->key == NULL) {
            snprintf(problem, size, "hyper-parameter \"%s\" of %s is not there", key, algorithm->name);
            *code_p = REPLAY_UNSUPPORTED;
            return false;
        }
        if ((option->name != NULL) && !append_option(model, option->name, value)) {
            snprintf(problem, size, "too many hyper-parameters");
            return false;
        }
    }
    return true;
}
