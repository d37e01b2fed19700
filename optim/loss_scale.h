/* Loss scaling for 16-bit gradients (docs/optimizers.md): the scale, when it falls and when it grows.
 *
 * An overflow is a step that the vote skipped for a non-finite value, so all ranks see the same ones. The scale and its
 * two counters are saved with the state; a skipped step changes them and, where it is a sync of zero_one_adam, the
 * window, nothing else.
 */
#ifndef LNT_LOSS_SCALE_H
#define LNT_LOSS_SCALE_H

#include <stddef.h>

#include <linnet/optim.h>

#include "../src/base/config.h"

// clang-format off
/* Names and defaults of DeepSpeed's fp16 section; there scaling is off unless fp16 is enabled, here unless loss_scale is
 * changed. */
#define LNT_SCALING_OPTIONS \
    {"loss_scale", "1", \
     "what the loss was multiplied by, divided out of the gradients; 0: dynamic, ask lnt_optim_loss_scale", \
     offsetof(lnt_optim_options_t, loss_scale), LNT_CFG_F64, NULL, 0, 1e30}, \
    {"initial_scale_power", "16", "a dynamic scale starts at 2 to this power", \
     offsetof(lnt_optim_options_t, initial_scale_power), LNT_CFG_U32, NULL, 0, 100}, \
    {"loss_scale_window", "1000", "a dynamic scale doubles after so many steps in a row without an overflow", \
     offsetof(lnt_optim_options_t, loss_scale_window), LNT_CFG_U32, NULL, 1, 1e9}, \
    {"hysteresis", "2", "a dynamic scale halves at this overflow and at every further one", \
     offsetof(lnt_optim_options_t, hysteresis), LNT_CFG_U32, NULL, 1, 1e9}, \
    {"consecutive_hysteresis", "off", \
     "on: any step without an overflow restores the hysteresis; off: only a doubled scale does", \
     offsetof(lnt_optim_options_t, consecutive_hysteresis), LNT_CFG_BOOL, NULL, 0, 0}, \
    {"min_loss_scale", "1", "a dynamic scale never falls below; an overflow there is LNT_ERR_DIVERGED", \
     offsetof(lnt_optim_options_t, min_loss_scale), LNT_CFG_F64, NULL, 1e-30, 1e30}
// clang-format on

/* Numbers of the state beside the scale itself. */
enum { LNT_SCALER_HYSTERESIS, LNT_SCALER_CLEAN, LNT_SCALER_STATE }; /* overflows left before it halves; clean steps */

/* LNT_ERR_INVALID_ARG where gradients cannot be divided by it. */
lnt_status_t lnt_scaler_check_fixed(double scale);
lnt_status_t lnt_scaler_start(lnt_optim_t *optim); /* at creation, when options and values are there */
bool lnt_scaler_is_dynamic(const lnt_optim_t *optim);

/* May a saved scale with its counters go on here? LNT_ERR_STATE_MISMATCH if the options are for another one. */
lnt_status_t lnt_scaler_check(const lnt_optim_t *optim, double scale, const double *counters);

/* After the vote of a step; returns what `end` returns instead of `status`. */
lnt_status_t lnt_scaler_after(lnt_optim_t *optim, lnt_status_t status);

#endif
