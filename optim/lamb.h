/* What LAMB shares with 1-bit LAMB: the pass that takes norms of the update to come, and the update.
 *
 * optim->work[t] is the coefficient of tensor t in the running step; LNT_LAMB_COEFF, a row of values, keeps it once the
 * step has been committed.
 */
#ifndef LNT_LAMB_H
#define LNT_LAMB_H

#include "lamb_math.h"
#include "optim_impl.h"

/* Option rows that LAMB and 1-bit LAMB have in common; the rest is in their tables. */
// clang-format off
#define LNT_OPTION_MIN_COEFF \
    {"min_coeff", "0.01", "smallest trust ratio", offsetof(lnt_optim_options_t, min_coeff), LNT_CFG_F64, NULL, 0, 1e30}
#define LNT_OPTION_MAX_COEFF(_default) \
    {"max_coeff", _default, "largest trust ratio; 0: no limit", offsetof(lnt_optim_options_t, max_coeff), \
     LNT_CFG_F64, NULL, 0, 1e30}
/* Of 1-bit LAMB. */
#define LNT_OPTION_COEFF_BETA \
    {"coeff_beta", "0.9", "weight of the past in the average of trust ratios that is frozen", \
     offsetof(lnt_optim_options_t, coeff_beta), LNT_CFG_F64, NULL, 0, 1}
#define LNT_OPTION_FACTOR_MAX \
    {"factor_max", "4", "largest factor on the frozen ratio", offsetof(lnt_optim_options_t, factor_max), LNT_CFG_F64, \
     NULL, 1e-30, 1e30}
#define LNT_OPTION_FACTOR_MIN \
    {"factor_min", "0.5", "smallest factor on the frozen ratio", offsetof(lnt_optim_options_t, factor_min), \
     LNT_CFG_F64, NULL, 1e-30, 1e30}
#define LNT_OPTION_FACTOR_THRESHOLD \
    {"factor_threshold", "0.1", "largest relative change of the factor in a step", \
     offsetof(lnt_optim_options_t, factor_threshold), LNT_CFG_F64, NULL, 0, 1e30}
#define LNT_OPTION_MOMENTUM_SCALING \
    {"momentum_scaling", "on", "for experiments: off: no scaling coefficients", \
     offsetof(lnt_optim_options_t, momentum_scaling), LNT_CFG_BOOL, NULL, 0, 0}
#define LNT_OPTION_BIAS_CORRECTION \
    {"bias_correction", "on", "off: moments as they are, which start near 0", \
     offsetof(lnt_optim_options_t, bias_correction), LNT_CFG_BOOL, NULL, 0, 0}
// clang-format on

lnt_lamb_limits_t lnt_lamb_limits(const lnt_optim_options_t *options);
/* Refuses limits that exclude each other. */
lnt_status_t lnt_lamb_check_limits(const lnt_optim_options_t *options);

/* Hook `begin`: constants as the options say. */
void lnt_lamb_begin(lnt_optim_t *optim);

lnt_lamb_consts_t lnt_lamb_consts(const lnt_optim_t *optim, const lnt_optim_tensor_t *tensor, double coeff);

/* Inside a survey of a program that carries gradients: sums of squares of x and of the direction to come. */
typedef struct lnt_lamb_norms {
    double x, u;
} lnt_lamb_norms_t;
lnt_status_t lnt_lamb_measure(lnt_optim_t *optim, uint32_t program, uint32_t tensor, lnt_lamb_norms_t *norms_p);

/* Root mean square of a tensor's momentum; 0 where it has no elements. */
double lnt_lamb_momentum_rms(const lnt_optim_t *optim, const lnt_optim_tensor_t *tensor);

/* Consume of such a program. */
void lnt_lamb_consume(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live);

#endif
