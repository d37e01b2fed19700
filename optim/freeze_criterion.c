/* When the variance has settled: | |v_hat(t)| / |v_hat(t - D)| - 1 | <= freeze_threshold in two tests running, with the
 * bias-corrected v, whose sum over all elements does not grow with t by itself. The last D sums are part of the state.
 */
#include <math.h>

#include "../src/base/log.h"
#include "freeze.h"

enum { LANES = 16, TESTS = 2 };

uint64_t lnt_freeze_window(const lnt_optim_t *optim)
{
    double longest = 1;

    if (optim->options.freeze_criterion != LNT_FREEZE_ON_VARIANCE) return 0;
    for (uint32_t g = 0; g < optim->n_groups; g++) {
        double own = round(1 / (1 - optim->groups[g].values.beta2));
        if (own > longest) longest = own;
    }
    if (optim->options.freeze_window != 0 && longest > (double)optim->options.freeze_window)
        return optim->options.freeze_window;
    return longest < 1e6 ? (uint64_t)longest : 1000000;
}

/* Lanes, added in their order: the same sum on every machine. */
static double sum(const float *v, uint64_t n)
{
    double lanes[LANES] = {0}, total = 0;

    for (uint64_t i = 0; i < n; i++)
        lanes[i % LANES] += (double)v[i];
    for (int l = 0; l < LANES; l++)
        total += lanes[l];
    return total;
}

static double variance_norm(const lnt_optim_t *optim)
{
    double total = 0;

    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        const lnt_optim_tensor_t *tensor = &optim->tensors[t];
        total += sum(lnt_optim_f32(optim, LNT_ADAM_V) + tensor->base, tensor->count) /
                 (1 - optim->groups[tensor->group].power2);
    }
    return total;
}

static bool may_freeze_at(const lnt_optim_t *optim, uint64_t step)
{
    return optim->values[LNT_FREEZE_PASSED][0] >= TESTS && step >= optim->options.lr_warmup_steps;
}

bool lnt_freeze_settled(lnt_optim_t *optim)
{
    double *history = optim->values[LNT_FREEZE_HISTORY], *passed = optim->values[LNT_FREEZE_PASSED];
    uint64_t window = optim->n_values[LNT_FREEZE_HISTORY], slot = optim->step % window;
    double now, before = history[slot];

    if (may_freeze_at(optim, optim->step - 1)) return true; /* refused before: it stays due */
    now = variance_norm(optim);
    if (!isfinite(now)) now = 0; /* the freeze refuses it by name; it settles nothing */
    history[slot] = now;
    if (optim->step <= window) return false;
    *passed = before > 0 && fabs(now / before - 1) <= optim->options.freeze_threshold ? *passed + 1 : 0;
    return may_freeze_at(optim, optim->step);
}

void lnt_freeze_warn(const lnt_optim_t *optim)
{
    static const char *const follows[] = {
        [LNT_FREEZE_ON_STEP] = "v is frozen too small", [LNT_FREEZE_ON_VARIANCE] = "the freeze waits for it"};
    const lnt_optim_options_t *options = &optim->options;

    if (options->freeze_step >= options->lr_warmup_steps) return;
    lnt_log(lnt_freeze_logger(), LNT_LOG_WARN, LNT_SUB_OPT,
            "freeze_step=%llu lies before the end of the learning-rate warm-up, lr_warmup_steps=%llu: %s",
            (unsigned long long)options->freeze_step, (unsigned long long)options->lr_warmup_steps,
            follows[options->freeze_criterion]);
}
