/* Ranks that create their optimizers differently are told at the commit of the plan which setting it is, by both sides
 * alike; what may still change between creation and step is told at the step.
 */
#include "ranks.h"

typedef struct pair {
    const char *algorithms[2], *options[2];
    bool non_freeze[2];
    uint32_t n_groups[2];
    const char *texts[2]; /* of the two ranks, in the message */
} pair_t;

#define ONEBIT                                                                                                         \
    {                                                                                                                  \
        "onebit_adam", "onebit_adam"                                                                                   \
    }
#define ONE_GROUP .n_groups = {1, 1}

static const pair_t pairs[] = {
    {{"adam", "adamw"}, {"", ""}, ONE_GROUP, .texts = {"algorithm adam ", "algorithm adamw "}},
    {{"adam", "onebit_adam"}, {"", ""}, ONE_GROUP, .texts = {"algorithm adam ", "algorithm onebit_adam "}},
    {ONEBIT,
     {"compat=deepspeed", ""},
     ONE_GROUP,
     .texts = {"algorithm onebit_adam/deepspeed ", "algorithm onebit_adam "}},
    {ONEBIT,
     {"freeze_step=3", "freeze_step=4"},
     ONE_GROUP,
     .texts = {"option freeze_step=3 ", "option freeze_step=4 "}},
    {ONEBIT, {"warmup_codec=int8", ""}, ONE_GROUP, .texts = {"option warmup_codec=int8 ", "option warmup_codec=f32 "}},
    {ONEBIT, {"clip=1", "clip=0.1"}, ONE_GROUP, .texts = {"option clip=1 ", "option clip=0.1 "}},
    {ONEBIT,
     {"clip=1,clip_mode=bucket", "clip=1"},
     ONE_GROUP,
     .texts = {"option clip_mode=bucket ", "option clip_mode=global "}},
    {ONEBIT, {"compression=off", ""}, ONE_GROUP, .texts = {"option compression=off ", "option compression=on "}},
    {ONEBIT, {"loss_scale=0", "loss_scale=65536"}, ONE_GROUP, .texts = {"loss_scale=0 ", "loss_scale=65536 "}},
    {{"lamb", "lamb"}, {"max_coeff=0.3", ""}, ONE_GROUP, .texts = {"option max_coeff=0.3 ", "option max_coeff=10 "}},
    {{"zero_one_adam", "zero_one_adam"},
     {"local_step_clipper=8", ""},
     ONE_GROUP,
     .texts = {"local_step_clipper=8 ", "local_step_clipper=16 "}},
    {ONEBIT, {"", ""}, {true, false}, ONE_GROUP, .texts = {"group 0 non_freeze=on ", "group 0 non_freeze=off "}},
    {ONEBIT, {"", ""}, .n_groups = {1, 2}, .texts = {"1 groups ", "2 groups "}},
};

/* Ranks 0 and 1 are alike, rank 2 is the other one. */
static void pair_body(rank_t *rank)
{
    const pair_t *pair = rank->arg;
    const uint32_t side = rank->rank == 2;
    lnt_group_t groups[2];
    model_t model = {.n_tensors = 2,
                     .lengths = {100, 7},
                     .algorithm = pair->algorithms[side],
                     .options = pair->options[side],
                     .groups = groups,
                     .n_groups = pair->n_groups[side]};
    const lnt_error_info_t *error = lnt_last_error();

    lnt_group_defaults(&groups[0]);
    lnt_group_defaults(&groups[1]);
    groups[0].non_freeze = pair->non_freeze[side];
    ranks_ok(rank_plan(rank, &model));
    ranks_ok(rank_optim(rank));
    ck_assert_int_eq(lnt_plan_commit(rank->plan), LNT_ERR_MISMATCH);
    ck_assert_msg(strstr(error->cause, pair->texts[0]) != NULL && strstr(error->cause, pair->texts[1]) != NULL,
                  "not \"%s\" and \"%s\": %s", pair->texts[0], pair->texts[1], error->cause);
    ck_assert_int_eq(error->rank, rank->rank);
    ck_assert_int_eq(error->peer, side ? 0 : 2);
    rank_close(rank);
}

START_TEST(settings_that_differ_are_named)
{
    pair_t pair = pairs[_i];

    ranks_run(&(world_t){.n_ranks = 3, .nodes = {0, 0, 1}, .quiet = true}, pair_body, &pair);
}
END_TEST

/* A plan that was refused is open: the optimizer that is like the others' is accepted. */
static void mended_body(rank_t *rank)
{
    model_t model = {.n_tensors = 1, .lengths = {100}, .algorithm = "onebit_adam", .options = "freeze_step=2"};

    ranks_ok(rank_plan(rank, &model));
    model.options = rank->rank == 0 ? "freeze_step=3" : "freeze_step=2";
    ranks_ok(rank_optim(rank));
    ck_assert_int_eq(lnt_plan_commit(rank->plan), LNT_ERR_MISMATCH);
    ranks_ok(lnt_optim_destroy(rank->optim));
    model.options = "freeze_step=2";
    ranks_ok(rank_optim(rank));
    ranks_ok(lnt_plan_commit(rank->plan));
    for (int step = 0; step < 4; step++)
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, rank->x)));
    expect_equal_ranks(rank);
    rank_close(rank);
}

START_TEST(a_mended_optimizer_is_accepted)
{
    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, mended_body, NULL);
}
END_TEST

/* Values of groups may be set until the step: one that differs then is what the cure speaks of. */
static void values_body(rank_t *rank)
{
    const model_t model = {.n_tensors = 1, .lengths = {100}, .algorithm = "adam"};
    lnt_group_t group;

    rank_open(rank, &model);
    lnt_group_defaults(&group);
    group.lr = rank->rank == 0 ? 1e-3 : 2e-3;
    ranks_ok(lnt_optim_set_group(rank->optim, 0, &group));
    ck_assert_int_eq(lnt_optim_step(rank->optim, rank_grads(rank, rank->x)), LNT_ERR_MISMATCH);
    ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, "hyper-parameters differ"));
    ck_assert_ptr_nonnull(strstr(lnt_last_error()->cure, "set groups, loss scale, micro-steps and masks alike"));
    rank_close(rank);
}

START_TEST(values_of_groups_are_told_at_the_step)
{
    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, values_body, NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("settings");
    TCase *tcase = tcase_create("settings");

    tcase_add_loop_test(tcase, settings_that_differ_are_named, 0, sizeof(pairs) / sizeof(pairs[0]));
    tcase_add_test(tcase, a_mended_optimizer_is_accepted);
    tcase_add_test(tcase, values_of_groups_are_told_at_the_step);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
