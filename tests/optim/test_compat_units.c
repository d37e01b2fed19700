/* compat=deepspeed: what is exchanged as one unit has one scale, however long it is; its pads count as data; units are
 * tensors, groups or the model. Figures come from formulas.
 */
#include <math.h>

#include "compat_steps.h"

static const world_t two = {.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, together = {.n_ranks = 2};

/* ---- pads are data ---- */

static void check_pads(rank_t *rank)
{
    static const model_t model = {
        .n_tensors = 1, .lengths = {1}, .algorithm = "onebit_adam", .options = "compat=deepspeed,freeze_step=2"};
    double formed;

    rank_open(rank, &model);
    take_steps(rank, equal_gradient, 0, 2);
    formed = 0.9 * ((const float *)lnt_optim_view(rank->optim, "exp_avg", 0))[0] + 0.1 * equal_gradient(0, 0, 0);
    take_steps(rank, equal_gradient, 2, 3);
    ck_assert_double_eq_tol(((const float *)lnt_optim_view(rank->optim, "exp_avg", 0))[0], formed / 4, 1e-6);
    rank_close(rank);
}

/* One element and 15 pads: the root of the mean square is a quarter of it. */
START_TEST(pads_take_part_in_the_scale)
{
    ranks_run(&two, check_pads, NULL);
}
END_TEST

/* ---- units ---- */

enum { LONG = 150001 }; /* chunks are longer than LNT_SPAN_MAX */

static void check_long_unit(rank_t *rank)
{
    static const model_t model = {.n_tensors = 2,
                                  .lengths = {LONG, 9},
                                  .algorithm = "onebit_adam",
                                  .options = "compat=deepspeed,freeze_step=2,unit=model"};
    const float *m[2];
    double sum = 0, n = (LONG + 9 + 15) / 16 * 16;
    float scale;

    rank_open(rank, &model);
    take_steps(rank, equal_gradient, 0, 3);
    m[0] = lnt_optim_view(rank->optim, "exp_avg", 0);
    m[1] = lnt_optim_view(rank->optim, "exp_avg", 1);
    for (uint64_t i = 0; i < rank->n_elems; i++)
        sum += pow((0.9 * 0.1 + 0.1) * equal_gradient(0, 0, i), 2);
    scale = (float)sqrt(sum / n);
    for (uint64_t i = 0; i < LONG; i++)
        ck_assert_double_eq_tol(m[0][i], scale, 1e-6 * scale);
    for (uint64_t i = 0; i < 9; i++)
        ck_assert_double_eq_tol(m[1][i], scale, 1e-6 * scale);
    rank_close(rank);
}

/* All ranks send the same positive values, so every chunk decodes to the worker's scale; ranks of one node too. */
START_TEST(a_unit_has_one_scale_however_long_it_is)
{
    ranks_run(&two, check_long_unit, NULL);
    ranks_run(&together, check_long_unit, NULL);
}
END_TEST

static void check_groups(rank_t *rank)
{
    static lnt_group_t groups[2];
    model_t model = {.n_tensors = 4,
                     .lengths = {16, 32, 48, 64},
                     .group_of = {0, 1, 0, 1},
                     .algorithm = "onebit_adam",
                     .options = rank->arg,
                     .groups = groups,
                     .n_groups = 2};
    uint32_t n_buckets = 0;
    lnt_plan_info_t info = {.struct_size = sizeof(info)};

    if (rank->rank == 0) {
        lnt_group_defaults(&groups[0]);
        lnt_group_defaults(&groups[1]);
    }
    ranks_barrier();
    rank_open(rank, &model);
    ranks_ok(lnt_plan_get_info(rank->plan, &info));
    n_buckets = strstr(rank->arg, "tensor") != NULL ? 4 : strstr(rank->arg, "group") != NULL ? 2 : 1;
    ck_assert_uint_eq(info.n_buckets, n_buckets);
    take_steps(rank, plain_gradient, 0, 5);
    expect_equal_ranks(rank);
    rank_close(rank);
}

START_TEST(units_are_tensors_groups_or_the_model)
{
    ranks_run(&two, check_groups, "compat=deepspeed,freeze_step=3,unit=tensor");
    ranks_run(&two, check_groups, "compat=deepspeed,freeze_step=3,unit=group");
    ranks_run(&two, check_groups, "compat=deepspeed,freeze_step=3,unit=model");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("compat_units");
    TCase *tcase = tcase_create("units");

    tcase_add_test(tcase, pads_take_part_in_the_scale);
    tcase_add_test(tcase, a_unit_has_one_scale_however_long_it_is);
    tcase_add_test(tcase, units_are_tensors_groups_or_the_model);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
