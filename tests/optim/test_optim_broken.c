/* What happens around a broken or misused run: a peer that leaves between the last frame and `end`, a freeze without a
 * communicator, a step inside a step, an import that one rank cannot do, ranks whose masks or factors differ.
 */
#include <time.h>

#include "../../src/core/plan_impl.h"
#include "ranks.h"

static void nap(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* All frames of the step are here; nobody has called `end`. Bounded by the time-out of the communicator. */
static void wait_for_frames(const rank_t *rank)
{
    while (atomic_load(&rank->plan->job.state) != LNT_JOB_DONE && lnt_comm_async_error(rank->comm, NULL) == LNT_OK)
        nap();
}

static void wait_for_failure(const rank_t *rank)
{
    while (lnt_comm_async_error(rank->comm, NULL) == LNT_OK)
        nap();
}

/* ---- a peer dies when all frames have come ---- */

static void last_frame_body(rank_t *rank)
{
    const model_t *model = rank->arg;
    float *grad;

    rank_open(rank, model);
    grad = calloc(rank->n_elems, sizeof(*grad));
    for (uint64_t i = 0; i < rank->n_elems; i++)
        grad[i] = i % 50 < 3 ? 0 : (float)normal_at(7 + rank->rank, i);
    (void)rank_grads(rank, grad);
    ranks_ok(lnt_optim_begin(rank->optim));
    for (uint32_t t = 0; t < model->n_tensors; t++)
        ranks_ok(lnt_optim_tensor_ready(rank->optim, t, rank->grads[t], NULL));
    wait_for_frames(rank);
    ck_assert_int_eq(lnt_comm_async_error(rank->comm, NULL), LNT_OK);
    if (rank->rank == 1) ranks_ok(lnt_optim_end(rank->optim)); /* one has committed, the other not yet */
    ranks_barrier();
    if (rank->rank == 1) lnt_comm_abort(rank->comm, "the test");
    wait_for_failure(rank);
    if (rank->rank == 0) ranks_ok(lnt_optim_end(rank->optim));
    expect_equal_ranks(rank);
    ck_assert_uint_eq(rank_info(rank).step, 1);
    if (strcmp(model->algorithm, "onebit_adam") == 0) {
        ck_assert_int_eq(rank_info(rank).phase, LNT_PHASE_COMPRESSED);
        ck_assert_double_gt(rank_info(rank).dead_share, 0);
    }
    ck_assert_int_eq(lnt_optim_begin(rank->optim), LNT_ERR_ABORTED);
    free(grad);
    rank_close(rank);
}

START_TEST(who_has_all_frames_commits_and_freezes)
{
    const world_t world = {.n_ranks = 2, .nodes = {0, 1}, .quiet = true};
    model_t model = {.n_tensors = 2, .lengths = {300, 70}, .algorithm = "adamw", .bucket_bytes = 512};

    ranks_run(&world, last_frame_body, &model);
    model.algorithm = "onebit_adam";
    model.options = "freeze_step=1,block=64";
    ranks_run(&world, last_frame_body, &model);
}
END_TEST

/* ---- misuse ---- */

static void inside_body(rank_t *rank)
{
    model_t model = {.n_tensors = 1,
                     .lengths = {20000},
                     .algorithm = "onebit_adam",
                     .options = "freeze_step=1,block=64",
                     .accumulate = true};
    lnt_group_t group;
    uint64_t hash;

    rank_open(rank, &model);
    ranks_ok(lnt_optim_get_group(rank->optim, 0, &group));
    ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, rank->x)));
    ranks_ok(lnt_optim_accumulate(rank->optim, 0, rank->x));
    ranks_ok(lnt_optim_begin(rank->optim));
    ranks_ok(lnt_optim_tensor_ready(rank->optim, 0, NULL, NULL)); /* the exchange reads constants from here on */
    ck_assert_int_eq(lnt_optim_begin(rank->optim), LNT_ERR_INVALID_USAGE);
    ck_assert_int_eq(lnt_optim_set_group(rank->optim, 0, &group), LNT_ERR_INVALID_USAGE);
    ck_assert_int_eq(lnt_optim_accumulate(rank->optim, 0, rank->x), LNT_ERR_INVALID_USAGE);
    ranks_ok(lnt_optim_end(rank->optim));
    hash = lnt_optim_hash(rank->optim);
    ranks_ok(lnt_optim_begin(rank->optim));
    if (rank->rank == 0) ranks_ok(lnt_optim_veto(rank->optim));
    ck_assert_int_eq(lnt_optim_end(rank->optim), LNT_SKIPPED_VETO);
    ck_assert_uint_eq(lnt_optim_hash(rank->optim), hash);
    rank_close(rank);
}

/* ThreadSanitizer sees a second begin that writes what the exchange reads. */
START_TEST(a_step_inside_a_step_changes_nothing)
{
    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, inside_body, NULL);
}
END_TEST

static void no_blob_body(rank_t *rank)
{
    model_t model = {.n_tensors = 1, .lengths = {200}, .algorithm = "adam"};
    uint64_t bytes;
    uint8_t *blob;

    rank_open(rank, &model);
    ranks_ok(lnt_optim_state_size(rank->optim, &bytes));
    blob = malloc(bytes);
    ranks_ok(lnt_optim_state_export(rank->optim, blob, bytes));
    ck_assert_int_eq(lnt_optim_state_import(rank->optim, rank->rank == 1 ? NULL : blob, bytes), LNT_ERR_INVALID_ARG);
    if (rank->rank == 0) ck_assert_int_eq(lnt_last_error()->peer, 1);
    ranks_ok(lnt_comm_async_error(rank->comm, NULL));
    ranks_ok(lnt_optim_state_import(rank->optim, blob, bytes));
    free(blob);
    rank_close(rank);
}

/* The time-out is far away: the test would not end if the others waited for it. */
START_TEST(a_rank_without_a_blob_makes_all_refuse)
{
    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .timeout_ms = 600000, .quiet = true}, no_blob_body, NULL);
}
END_TEST

/* ---- structs of another header ---- */

typedef struct large_group {
    lnt_group_t known;
    uint64_t newer;
} large_group_t;

static void struct_body(rank_t *rank)
{
    model_t model = {.n_tensors = 1, .lengths = {200}};
    large_group_t groups[2] = {{{.struct_size = 0}, 0}};
    lnt_optim_params_t params = {.struct_size = sizeof(params), .algorithm = "adam", .n_groups = 2};
    lnt_group_t group;

    for (int g = 0; g < 2; g++) {
        lnt_group_defaults(&groups[g].known);
        groups[g].known.struct_size = sizeof(groups[g]);
    }
    groups[1].known.lr = 0.25;
    params.groups = &groups[0].known;
    ranks_ok(rank_plan(rank, &model));
    groups[1].newer = 1;
    ck_assert_int_eq(lnt_optim_create(rank->plan, &params, &rank->optim), LNT_ERR_VERSION);
    groups[1].newer = 0;
    groups[0].known.struct_size = sizeof(lnt_group_t) - 8;
    ck_assert_int_eq(lnt_optim_create(rank->plan, &params, &rank->optim), LNT_ERR_VERSION);
    groups[0].known.struct_size = SIZE_MAX / 2;
    ck_assert_int_eq(lnt_optim_create(rank->plan, &params, &rank->optim), LNT_ERR_VERSION);
    groups[0].known.struct_size = sizeof(groups[0]);
    ranks_ok(lnt_optim_create(rank->plan, &params, &rank->optim));
    ranks_ok(lnt_optim_get_group(rank->optim, 1, &group));
    ck_assert(group.lr == 0.25);
    ck_assert_uint_eq(group.struct_size, sizeof(group));
    rank_close(rank);
}

START_TEST(larger_structs_are_taken_if_what_is_new_is_zero)
{
    ranks_run(&(world_t){.n_ranks = 1, .quiet = true}, struct_body, NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("optim_broken");
    TCase *tcase = tcase_create("broken");

    tcase_add_test(tcase, who_has_all_frames_commits_and_freezes);
    tcase_add_test(tcase, a_step_inside_a_step_changes_nothing);
    tcase_add_test(tcase, a_rank_without_a_blob_makes_all_refuse);
    tcase_add_test(tcase, larger_structs_are_taken_if_what_is_new_is_zero);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
