/* Health of the coding: measured in the commit pass of every so many steps of a program, kept per bucket, warned of
 * once per cause and program. Changes no result. */
#include "plan_health.h"

#include <math.h>

#include "plan_impl.h"

enum { GROWTH_MEASUREMENTS = 3, EXPANDING_MEASUREMENTS = 2 };
#define LARGE_RATIO 10.0 /* errors of a coder that contracts stay below it: see docs/optimizers.md */

static double ratio_of(const lnt_health_sums_t *sums)
{
    return sums->input > 0 ? sqrt(sums->error / sums->input) : 0;
}

static double rho_of(const lnt_health_sums_t *sums)
{
    return sums->value > 0 ? sums->alike / sums->value : 0;
}

static void warn_of_growth(lnt_plan_t *plan, uint32_t bucket, lnt_plan_program_t *program, lnt_plan_watch_t *watch)
{
    const double ratio = fmax(ratio_of(&watch->health.worker), ratio_of(&watch->health.server));

    watch->growing = ratio > LARGE_RATIO && ratio > watch->ratio ? watch->growing + 1 : 0;
    watch->ratio = ratio;
    if (watch->growing < GROWTH_MEASUREMENTS) return;
    watch->causes |= LNT_HEALTH_GROWS;
    if ((program->warned & LNT_HEALTH_GROWS) != 0) return;
    program->warned |= LNT_HEALTH_GROWS;
    lnt_log(plan->comm->context->logger, LNT_LOG_WARN, LNT_SUB_CODEC,
            "error feedback of program \"%s\" grows without bound: in bucket %u it is %.3g times what is sent, and was "
            "less in %d measurements before; use a smaller block, scale_rule=l1 or more bits",
            program->name, bucket, ratio, GROWTH_MEASUREMENTS - 1);
}

/* The scaled sign with the L2 scale contracts for rho above 1/2 only. */
static void warn_of_expansion(lnt_plan_t *plan, uint32_t bucket, lnt_plan_program_t *program, lnt_plan_watch_t *watch)
{
    const lnt_health_sums_t *worker = &watch->health.worker;
    const bool l2 = program->codec.row->has_scale_rule && program->codec.cfg.scale_rule == LNT_SCALE_L2;

    watch->expanding = l2 && worker->value > 0 && rho_of(worker) <= 0.5 ? watch->expanding + 1 : 0;
    if (watch->expanding < EXPANDING_MEASUREMENTS) return;
    watch->causes |= LNT_HEALTH_EXPANDS;
    if ((program->warned & LNT_HEALTH_EXPANDS) != 0) return;
    program->warned |= LNT_HEALTH_EXPANDS;
    lnt_log(plan->comm->context->logger, LNT_LOG_WARN, LNT_SUB_CODEC,
            "compression cannot contract: rho of bucket %u in program \"%s\" is %.3g, the L2 scale of signs needs more "
            "than 0.5; values are sparse or of very different size: use scale_rule=l1, smaller blocks, or a mask",
            bucket, program->name, rho_of(worker));
}

bool lnt_plan_health_due(const lnt_plan_t *plan, uint32_t program)
{
    const uint32_t every = plan->comm->context->config.health_every;

    return every != 0 && plan->programs[program].runs % every == 0;
}

void lnt_plan_watch(lnt_plan_t *plan, uint32_t bucket, uint32_t program, const lnt_exchange_t *exchange)
{
    lnt_plan_watch_t *watch = &plan->watches[(size_t)bucket * plan->n_programs + program];

    if (!lnt_exchange_measure_health(exchange, &watch->health)) return;
    watch->step = plan->commits + 1;
    warn_of_growth(plan, bucket, &plan->programs[program], watch);
    warn_of_expansion(plan, bucket, &plan->programs[program], watch);
}

/* ---- asking ---- */

static void add_sums(lnt_health_sums_t *to, const lnt_health_sums_t *more)
{
    to->input += more->input;
    to->value += more->value;
    to->error += more->error;
    to->alike += more->alike;
    to->n += more->n;
}

static lnt_health_t describe(const lnt_health_sums_t *sums)
{
    return (lnt_health_t){.rho = rho_of(sums),
                          .input_norm = sqrt(sums->input),
                          .value_norm = sqrt(sums->value),
                          .error_norm = sqrt(sums->error),
                          .error_ratio = ratio_of(sums),
                          .scale = sums->n != 0 ? sqrt(sums->value / (double)sums->n) : 0,
                          .n_elems = sums->n};
}

lnt_status_t lnt_plan_get_health(const lnt_plan_t *plan, uint32_t program, uint32_t bucket, lnt_plan_health_t *health_p)
{
    lnt_exchange_health_t sum = {.worker = {.n = 0}};
    lnt_plan_health_t health = {.struct_size = sizeof(health)};

    LNT_CHECK_ARG(plan != NULL && health_p != NULL && program < plan->n_programs);
    LNT_CHECK_STRUCT(health_p);
    LNT_CHECK_ARG(bucket < plan->n_buckets || bucket == LNT_ALL_BUCKETS);
    for (uint32_t b = 0; b < plan->n_buckets; b++) {
        const lnt_plan_watch_t *watch = &plan->watches[(size_t)b * plan->n_programs + program];
        if ((bucket != LNT_ALL_BUCKETS && b != bucket) || watch->step == 0) continue;
        add_sums(&sum.worker, &watch->health.worker);
        add_sums(&sum.server, &watch->health.server);
        health.step = watch->step > health.step ? watch->step : health.step;
        health.causes |= watch->causes;
    }
    health.worker = describe(&sum.worker);
    health.server = describe(&sum.server);
    *health_p = health;
    return LNT_OK;
}
