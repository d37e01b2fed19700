/* Which optimizer and which options replay an algorithm of the reference. A hyper-parameter that no row of these tables
 * knows keeps the case from being replayed, by name.
 */
#include "replay_optimizer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// clang-format off
#define SAME(_name) {_name, _name, 0}
#define NO_EFFECT(_name) {_name, NULL, 0}
#define END {NULL, NULL, 0}

/* Betas and eps are the groups'. `foreach` is how torch loops; the flags of the three compressed optimizers are accepted
 * and never read by the reference. */
#define PLAIN NO_EFFECT("betas"), NO_EFFECT("eps"), NO_EFFECT("foreach")
#define COMPRESSED NO_EFFECT("bias_correction"), NO_EFFECT("eps_inside_sqrt"), NO_EFFECT("max_grad_norm"), \
    NO_EFFECT("betas"), NO_EFFECT("eps"), NO_EFFECT("weight_decay"), NO_EFFECT("lr"), NO_EFFECT("amsgrad")

static const replay_option_t adam[] = {PLAIN, SAME("amsgrad"), END};
static const replay_option_t lamb_timm[] = {PLAIN, SAME("max_grad_norm"), SAME("trust_clip"), SAME("always_adapt"),
    SAME("bias_correction"), SAME("grad_averaging"), END};
static const replay_option_t lamb_torch_optimizer[] = {PLAIN, SAME("clamp_value"), SAME("debias"), END};
static const replay_option_t came[] = {
    {"betas", "beta3", 3}, {"eps", "eps1", 1}, {"eps", "eps2", 2}, SAME("clip_threshold"), END};
static const replay_option_t onebit_adam[] = {COMPRESSED, SAME("freeze_step"), END};
static const replay_option_t onebit_lamb[] = {COMPRESSED, SAME("freeze_step"), SAME("max_coeff"), SAME("min_coeff"),
    SAME("coeff_beta"), SAME("factor_max"), SAME("factor_min"), SAME("factor_threshold"), END};
static const replay_option_t zero_one_adam[] = {COMPRESSED, SAME("var_freeze_step"), SAME("var_update_scaler"),
    SAME("local_step_scaler"), SAME("local_step_clipper"), END};
// clang-format on

static const replay_algorithm_t algorithms[] = {
    {"adam", "adam", "", 1e-8, adam},
    {"adamw", "adamw", "", 1e-8, adam},
    {"lamb_timm", "lamb", "max_coeff=0,min_coeff=0,max_grad_norm=1,always_adapt=off", 1e-6, lamb_timm},
    {"lamb_torch_optimizer", "lamb", "bias_correction=off,max_coeff=0,min_coeff=0,clamp_value=10", 1e-6,
     lamb_torch_optimizer},
    {"came", "came", "", 1e-8, came},
    {"onebit_adam", "onebit_adam", "compat=deepspeed", 1e-8, onebit_adam},
    {"onebit_lamb", "onebit_lamb", "compat=deepspeed", 1e-8, onebit_lamb},
    {"zero_one_adam", "zero_one_adam", "compat=deepspeed", 1e-8, zero_one_adam},
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
static bool append_option(replay_model_t *model, const replay_option_t *option, const char *value)
{
    static const struct {
        const char *json, *word;
    } words[] = {{"true", "on"}, {"false", "off"}, {"null", "0"}};
    const char *comma = (model->options[0] == '\0') ? "" : ",";
    double list[8];

    if (option->element != 0) {
        return (case_numbers(model->file, option->key, list, 8) >= option->element) &&
               append(model, "%s%s=%.17g", comma, option->name, list[option->element - 1]);
    }

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); ++i) {
        if (strncmp(value, words[i].json, strlen(words[i].json)) == 0) {
            return append(model, "%s%s=%s", comma, option->name, words[i].word);
        }
    }
    return append(model, "%s%s=%.17g", comma, option->name, strtod(value, NULL));
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
        size_t known = 0;

        for (const replay_option_t *option = algorithm->options; option->key != NULL; ++option) {
            if (strcmp(option->key, key) != 0) {
                continue;
            }
            ++known;
            if ((option->name != NULL) && !append_option(model, option, value)) {
                snprintf(problem, size, "hyper-parameter \"%s\" cannot be read, or there are too many", key);
                return false;
            }
        }
        if (known == 0) {
            snprintf(problem, size, "hyper-parameter \"%s\" of %s is not there", key, algorithm->name);
            *code_p = REPLAY_UNSUPPORTED;
            return false;
        }
    }
    return true;
}
