/* compat=deepspeed of 0/1 Adam divides by the sum of a window's learning rates, as the published implementation does.
 * Where that is 0 the step is committed and later ones are skipped: a warning says which group and step it was.
 */
#include <math.h>

#include "ranks.h"

enum { RANKS = 2, SWITCHED = 6 };

static _Atomic int n_warnings;

static void count_warnings(void *arg, lnt_log_level_t level, const char *line)
{
    (void)arg;
    if (level == LNT_LOG_WARN && strstr(line, "group 1: the sync of step 7 has divided by") != NULL) n_warnings++;
}

static lnt_status_t one_step(rank_t *rank, uint32_t step)
{
    float grad[128];

    for (uint64_t i = 0; i < rank->n_elems; i++)
        grad[i] = (float)(normal_at(17, i) + 0.5 * normal_at(100 + rank->rank + 10 * step, i));
    return lnt_optim_step(rank->optim, rank_grads(rank, grad));
}

/* One group of two stands still from step 7 on: its momenta are lost there, those of the other are not. */
static void standing_body(rank_t *rank)
{
    lnt_group_t groups[2];
    const model_t model = {.n_tensors = 2,
                           .lengths = {64, 64},
                           .group_of = {0, 1},
                           .algorithm = "zero_one_adam",
                           .options = "compat=deepspeed,var_freeze_step=3",
                           .groups = groups,
                           .n_groups = 2};

    lnt_group_defaults(&groups[0]);
    lnt_group_defaults(&groups[1]);
    rank_open(rank, &model);
    for (uint32_t step = 0; step < SWITCHED; step++)
        ranks_ok(one_step(rank, step));
    groups[1].lr = 0;
    ranks_ok(lnt_optim_set_group(rank->optim, 1, &groups[1]));
    ranks_ok(one_step(rank, SWITCHED));
    ck_assert(isfinite(*(const float *)lnt_optim_view(rank->optim, "exp_avg", 0)));
    ck_assert(!isfinite(*(const float *)lnt_optim_view(rank->optim, "exp_avg", 1)));
    ck_assert_int_eq(one_step(rank, SWITCHED + 1), LNT_SKIPPED_NONFINITE);
    rank_close(rank);
}

START_TEST(a_window_without_learning_rates_is_told_of)
{
    const world_t world = {.n_ranks = RANKS, .nodes = {0, 1}, .log = count_warnings};

    n_warnings = 0;
    ranks_run(&world, standing_body, NULL);
    ck_assert_int_eq(n_warnings, RANKS);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("compat_rates");
    TCase *tcase = tcase_create("rates");

    tcase_add_test(tcase, a_window_without_learning_rates_is_told_of);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
