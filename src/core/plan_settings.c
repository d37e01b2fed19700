/* Settings of the owner of a plan's programs: what changes results and stands in no tensor or program, such as options.
 * Compared when the plan is committed, so that ranks that differ are told which setting it is, before the first step
 * fails over a hash. No part of the layout: saved state does not depend on them.
 */
#include <stdio.h>

#include "plan_impl.h"

lnt_status_t lnt_plan_set_settings(lnt_plan_t *plan, const lnt_plan_settings_t *settings)
{
    LNT_TRY(lnt_plan_enter(plan, LNT_PLAN_ADD_PROGRAM));
    LNT_CHECK_ARG(settings != NULL);
    LNT_CHECK_STRUCT(settings);
    LNT_CHECK_ARG(settings->n_items == 0 || settings->describe != NULL);
    plan->settings = *settings;
    return LNT_OK;
}

static void describe(const lnt_plan_t *plan, uint64_t item, char *text, size_t size)
{
    const lnt_plan_settings_t *settings = &plan->settings;

    if (item < settings->n_items) {
        settings->describe(settings->arg, item, text, size);
    } else {
        (void)snprintf(text, size, "nothing more");
    }
}

static uint64_t hash(const lnt_plan_t *plan, uint64_t n)
{
    uint64_t value = lnt_hash64_text(0, "settings");
    char text[LNT_PLAN_NOTE_BYTES];

    for (uint64_t i = 0; i < n && i < plan->settings.n_items; i++) {
        describe(plan, i, text, sizeof(text));
        value = lnt_hash64_text(value, text);
    }
    return n > plan->settings.n_items ? lnt_hash64_text(value, "end") : value;
}

lnt_status_t lnt_plan_compare_settings(lnt_plan_t *plan)
{
    const lnt_plan_list_t list = {"optimizer setting",
                                  "create the optimizer with the same algorithm, options and groups on every rank",
                                  plan->settings.n_items, hash, describe};

    return lnt_plan_compare(plan, &list);
}
