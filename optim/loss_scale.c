/* The dynamic loss scale, after every step. */
#include "loss_scale.h"

#include <math.h>

#include "optim_impl.h"

/* The one factor of a step stays a normal f32 number; beyond, gradients would become Inf or 0. */
static const double largest_scale = 0x1p100, smallest_scale = 0x1p-100;

bool lnt_scaler_is_dynamic(const lnt_optim_t *optim)
{
    return optim->options.loss_scale == 0;
}

static double *counters(const lnt_optim_t *optim)
{
    return (double *)(uintptr_t)lnt_optim_values(optim, "loss_scaler", NULL);
}

lnt_status_t lnt_scaler_check_fixed(double scale)
{
    if (scale >= smallest_scale && scale <= largest_scale) return LNT_OK;
    return lnt_error(LNT_ERR_INVALID_ARG, "a loss scale lies between 2^-100 and 2^100",
                     "loss_scale %g: gradients divided by it are no f32 numbers", scale);
}

lnt_status_t lnt_scaler_start(lnt_optim_t *optim)
{
    const lnt_optim_options_t *options = &optim->options;

    optim->loss_scale = options->loss_scale;
    if (!lnt_scaler_is_dynamic(optim)) return lnt_scaler_check_fixed(optim->loss_scale);
    optim->loss_scale = ldexp(1.0, (int)options->initial_scale_power);
    counters(optim)[LNT_SCALER_HYSTERESIS] = options->hysteresis;
    if (optim->loss_scale >= options->min_loss_scale) return LNT_OK;
    return lnt_error(LNT_ERR_INVALID_ARG, "raise initial_scale_power or lower min_loss_scale",
                     "the loss scale would start at %g, below min_loss_scale=%g", optim->loss_scale,
                     options->min_loss_scale);
}

static lnt_status_t refuse(const char *cure, const char *what, double saved, double here)
{
    return lnt_error(LNT_ERR_STATE_MISMATCH, cure, "loss_scale: %s (saved: %g, here: %g)", what, saved, here);
}

static lnt_status_t check_dynamic(const lnt_optim_t *optim, double scale)
{
    const double least = optim->options.min_loss_scale;

    if (scale >= least) return LNT_OK;
    return refuse("lower min_loss_scale to that of the run that saved the state",
                  "the saved scale is below min_loss_scale", scale, least);
}

lnt_status_t lnt_scaler_check(const lnt_optim_t *optim, double scale, const double *counters)
{
    const bool dynamic = counters[LNT_SCALER_HYSTERESIS] >= 1; /* only a dynamic scale has overflows left */

    if (!(scale >= smallest_scale && scale <= largest_scale))
        return lnt_error(LNT_ERR_CORRUPT, "use another copy of the blob", "saved state: impossible loss scale %g",
                         scale);
    if (dynamic && lnt_scaler_is_dynamic(optim)) return check_dynamic(optim, scale);
    if (dynamic)
        return refuse("pass the option loss_scale=0, as in the run that saved the state",
                      "the saved scale is dynamic, here it is fixed", scale, optim->loss_scale);
    if (lnt_scaler_is_dynamic(optim))
        return refuse("pass the option loss_scale with the saved value", "the saved scale is fixed, here it is dynamic",
                      scale, optim->loss_scale);
    if (optim->loss_scale == 1 || optim->loss_scale == scale) return LNT_OK; /* 1: nobody has asked for another */
    return refuse("pass the saved value as the option loss_scale; change it after the import, with "
                  "lnt_optim_set_scaling",
                  "another fixed scale than the saved one", scale, optim->loss_scale);
}

double lnt_optim_loss_scale(const lnt_optim_t *optim)
{
    return optim != NULL ? optim->loss_scale : 1.0;
}

/* The first tensor whose gradient on this rank is not finite; UINT32_MAX: none. The caller's gradients are still there.
 */
static uint32_t find_nonfinite(const lnt_optim_t *optim)
{
    float piece[256];

    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        for (uint64_t at = 0, n; at < optim->tensors[t].count; at += n) {
            n = optim->tensors[t].count - at < 256 ? optim->tensors[t].count - at : 256;
            if (!lnt_arrays()->finite(lnt_plan_local(optim->plan, t, at, n, piece), n)) return t;
        }
    }
    return UINT32_MAX;
}

static lnt_status_t report_minimum(const lnt_optim_t *optim)
{
    lnt_tensor_params_t params = {.name = "no tensor"};
    uint32_t tensor = find_nonfinite(optim);

    if (tensor != UINT32_MAX) LNT_TRY(lnt_plan_get_tensor(optim->plan, tensor, &params));
    (void)lnt_error(LNT_ERR_DIVERGED,
                    "look for bad input or a learning rate that is too high; lower min_loss_scale only if gradients "
                    "are known to need it",
                    "the loss scale has come down to min_loss_scale=%g and gradients are still not finite after %llu "
                    "skipped steps; on this rank those of %s",
                    optim->options.min_loss_scale, (unsigned long long)optim->skipped, params.name);
    if (tensor != UINT32_MAX) lnt_error_mutable()->tensor = tensor;
    return LNT_ERR_DIVERGED;
}

static lnt_status_t overflowed(lnt_optim_t *optim)
{
    const lnt_optim_options_t *options = &optim->options;
    double *counter = counters(optim);

    counter[LNT_SCALER_CLEAN] = 0;
    if (counter[LNT_SCALER_HYSTERESIS] > 1) {
        counter[LNT_SCALER_HYSTERESIS]--;
        return LNT_SKIPPED_NONFINITE;
    }
    if (optim->loss_scale <= options->min_loss_scale) return report_minimum(optim);
    optim->loss_scale /= 2;
    if (optim->loss_scale < options->min_loss_scale) optim->loss_scale = options->min_loss_scale;
    return LNT_SKIPPED_NONFINITE;
}

static void went_well(lnt_optim_t *optim)
{
    const lnt_optim_options_t *options = &optim->options;
    double *counter = counters(optim);
    const bool full = ++counter[LNT_SCALER_CLEAN] >= options->loss_scale_window;

    if (full || options->consecutive_hysteresis) counter[LNT_SCALER_HYSTERESIS] = options->hysteresis;
    if (!full) return;
    counter[LNT_SCALER_CLEAN] = 0;
    if (optim->loss_scale * 2 <= largest_scale) optim->loss_scale *= 2;
}

/* Skips in a row are no divergence while the scale can still fall, whatever their limit says. */
lnt_status_t lnt_scaler_after(lnt_optim_t *optim, lnt_status_t status)
{
    lnt_plan_stats_t stats = {.struct_size = sizeof(stats)};

    if (!lnt_scaler_is_dynamic(optim) || (status < 0 && status != LNT_ERR_DIVERGED)) return status;
    LNT_TRY(lnt_plan_get_stats(optim->plan, &stats, false));
    if (stats.verdict == LNT_SKIPPED_NONFINITE) return overflowed(optim);
    if (stats.verdict == LNT_OK) went_well(optim);
    return status;
}
