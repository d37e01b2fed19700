/* What must be equal on all ranks when an optimizer is created, as texts: the algorithm, every option, the groups that
 * stay in the f32 lane. lnt_plan_commit compares them and names the first that differs. Learning rates and the other
 * values of groups are compared in every step (hyper_hash in optim_step.c): they may still be set before the first.
 */
#include <stdio.h>

#include "optim_impl.h"

static uint32_t count_options(const lnt_optim_row_t *row)
{
    uint32_t n = 0;

    while (row->options[n].name != NULL)
        n++;
    return n;
}

static void describe_option(const lnt_optim_t *optim, const lnt_cfg_row_t *option, char *text, size_t bytes)
{
    char value[64];

    lnt_config_get(option, &optim->options, value, sizeof(value));
    (void)snprintf(text, bytes, "option %s=%s", option->name, value);
}

/* The algorithm, its options, the number of groups, each group. */
static void describe(void *arg, uint64_t item, char *text, size_t bytes)
{
    const lnt_optim_t *optim = arg;
    const uint32_t n_options = count_options(optim->row);

    if (item == 0) {
        (void)snprintf(text, bytes, "algorithm %s", optim->row->name);
    } else if (item <= n_options) {
        describe_option(optim, &optim->row->options[item - 1], text, bytes);
    } else if (item == n_options + 1) {
        (void)snprintf(text, bytes, "%u groups", optim->n_groups);
    } else {
        const uint32_t group = (uint32_t)(item - n_options - 2);
        (void)snprintf(text, bytes, "group %u non_freeze=%s", group,
                       optim->groups[group].values.non_freeze ? "on" : "off");
    }
}

lnt_status_t lnt_optim_set_settings(lnt_optim_t *optim)
{
    const lnt_plan_settings_t settings = {.struct_size = sizeof(settings),
                                          .arg = optim,
                                          .n_items = 2 + (uint64_t)count_options(optim->row) + optim->n_groups,
                                          .describe = describe};

    return lnt_plan_set_settings(optim->plan, &settings);
}
