/* Plans by themselves: the state table, vetoes under threads, disagreement between ranks, plans of nothing. Bytes and
 * allocations are in test_plan_costs.c.
 */
#include <stdatomic.h>

#include "ranks.h"

static model_t small_model(void)
{
    return (model_t){.n_tensors = 4,
                     .lengths = {300, 0, 70, 20},
                     .algorithm = "adamw",
                     .options = "block=64",
                     .bucket_bytes = 512,
                     .segment_bytes = 256};
}

/* ---- the table of linnet/plan.h ---- */

enum { OPEN, IDLE, STEP };
enum { ADD, COMMIT, BEGIN, ACCUMULATE, READY, VETO, END, SYNC, N_CALLS };

static lnt_status_t do_call(rank_t *rank, int call)
{
    static _Thread_local float value; /* every rank has its own */
    lnt_step_params_t step = {.struct_size = sizeof(step), .programs = 1};
    lnt_tensor_params_t tensor = {.struct_size = sizeof(tensor), .name = "another", .count = 1, .param = &value};
    uint32_t number;

    switch (call) {
    case ADD:
        return lnt_plan_add_tensor(rank->plan, &tensor, &number);
    case COMMIT:
        return lnt_plan_commit(rank->plan);
    case BEGIN:
        return lnt_plan_begin(rank->plan, &step);
    case ACCUMULATE:
        return lnt_plan_accumulate(rank->plan, 2, rank->x);
    case READY:
        return lnt_plan_tensor_ready(rank->plan, 3, NULL, NULL);
    case VETO:
        return lnt_plan_veto(rank->plan);
    case END:
        return lnt_plan_end(rank->plan);
    default:
        return lnt_plan_sync_params(rank->plan, 0);
    }
}

static void table_body(rank_t *rank)
{
    static const bool legal[N_CALLS][3] = {[ADD] = {true},
                                           [COMMIT] = {true},
                                           [BEGIN] = {false, true},
                                           [ACCUMULATE] = {false, true},
                                           [READY] = {false, false, true},
                                           [VETO] = {false, false, true},
                                           [END] = {false, false, true},
                                           [SYNC] = {true, true, false}};
    model_t model = small_model();

    model.accumulate = true;
    ranks_ok(rank_plan(rank, &model));
    for (int state = OPEN; state <= STEP; state++) {
        for (int call = 0; call < N_CALLS; call++) {
            if (!legal[call][state])
                ck_assert_msg(do_call(rank, call) == LNT_ERR_INVALID_USAGE, "call %d in state %d", call, state);
        }
        if (state == OPEN) {
            ranks_ok(do_call(rank, SYNC));
            ranks_ok(do_call(rank, ADD));
            ck_assert_int_eq(do_call(rank, ADD), LNT_ERR_INVALID_ARG);      /* the name is taken */
            ck_assert_int_eq(do_call(rank, COMMIT), LNT_ERR_INVALID_USAGE); /* no program */
            ranks_ok(rank_optim(rank));
            ck_assert_int_eq(do_call(rank, ADD), LNT_ERR_INVALID_USAGE); /* too late */
            ranks_ok(do_call(rank, COMMIT));
        } else if (state == IDLE) {
            ranks_ok(do_call(rank, SYNC));
            ranks_ok(do_call(rank, ACCUMULATE));
            ranks_ok(do_call(rank, BEGIN));
        }
    }
    ck_assert_int_eq(lnt_plan_destroy(rank->plan), LNT_ERR_INVALID_USAGE);
    ranks_ok(do_call(rank, READY));
    ck_assert_int_eq(do_call(rank, READY), LNT_ERR_INVALID_USAGE); /* twice */
    ranks_ok(do_call(rank, VETO));
    ranks_ok(do_call(rank, VETO)); /* harmless */
    ck_assert_int_eq(lnt_plan_tensor_ready(rank->plan, 99, NULL, NULL), LNT_ERR_OUT_OF_RANGE);
    ck_assert_int_eq(do_call(rank, END), LNT_SKIPPED_VETO);
    ck_assert_int_eq(
        lnt_plan_begin(rank->plan, &(lnt_step_params_t){.struct_size = sizeof(lnt_step_params_t), .programs = 2}),
        LNT_ERR_INVALID_ARG);
    rank_close(rank);
}

START_TEST(every_call_in_every_state)
{
    ranks_run(&(world_t){.n_ranks = 1, .quiet = true}, table_body, NULL);
    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, table_body, NULL);
}
END_TEST

/* ---- veto against threads that make tensors ready ---- */

typedef struct race {
    rank_t *rank;
    _Atomic uint32_t next;
    lnt_status_t veto;
} race_t;

static void *ready_thread(void *arg)
{
    race_t *race = arg;
    uint32_t t;

    while ((t = atomic_fetch_add(&race->next, 1)) < race->rank->model->n_tensors) {
        ranks_ok(lnt_plan_tensor_ready(race->rank->plan, t, NULL, NULL));
    }
    return NULL;
}

static lnt_status_t vetoes[MAX_RANKS];

static void race_body(rank_t *rank)
{
    model_t model = {.n_tensors = 8,
                     .lengths = {64, 64, 64, 64, 64, 64, 64, 64},
                     .algorithm = "adam",
                     .bucket_bytes = 256,
                     .options = "block=64",
                     .max_skips = 100000};
    rank_open(rank, &model);
    for (int k = 0; k < 100; k++) {
        race_t race = {.rank = rank};
        pthread_t threads[2];
        bool any = false;
        ranks_ok(lnt_optim_begin(rank->optim));
        for (int i = 0; i < 2; i++)
            ck_assert_int_eq(pthread_create(&threads[i], NULL, ready_thread, &race), 0);
        vetoes[rank->rank] = rank->rank == (uint32_t)k % 2 ? lnt_plan_veto(rank->plan) : LNT_ERR_INVALID_USAGE;
        for (int i = 0; i < 2; i++)
            (void)pthread_join(threads[i], NULL);
        ck_assert_int_eq(lnt_plan_veto(rank->plan), LNT_ERR_INVALID_USAGE);
        ranks_barrier();
        for (uint32_t r = 0; r < rank->world->n_ranks; r++)
            any |= vetoes[r] == LNT_OK;
        ck_assert_int_eq(lnt_optim_end(rank->optim), any ? LNT_SKIPPED_VETO : LNT_OK);
        expect_equal_ranks(rank);
    }
    rank_close(rank);
}

START_TEST(an_accepted_veto_always_reaches_everybody)
{
    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, race_body, NULL);
}
END_TEST

/* ---- disagreement ---- */

typedef struct disagreement {
    model_t models[2]; /* of most ranks, of rank `odd` */
    uint32_t odd;
    const char *name;  /* must appear in the message */
    bool by_gradients; /* found in a step */
} disagreement_t;

static void disagree_body(rank_t *rank)
{
    disagreement_t *d = rank->arg;
    const model_t *model = &d->models[rank->rank == d->odd];

    ranks_ok(rank_plan(rank, model));
    ranks_ok(rank_optim(rank));
    ck_assert_int_eq(lnt_plan_commit(rank->plan), LNT_ERR_MISMATCH);
    ck_assert_msg(strstr(lnt_last_error()->cause, d->name) != NULL, "\"%s\" lacks %s", lnt_last_error()->cause,
                  d->name);
    ck_assert_int_gt(strlen(lnt_last_error()->cure), 0);
    if (rank->rank != d->odd && rank->world->n_ranks > 2) ck_assert_int_eq(lnt_last_error()->peer, d->odd);
    ranks_ok(lnt_comm_async_error(rank->comm, NULL)); /* nothing is broken: the plan is open again */
    ck_assert_int_eq(lnt_plan_commit(rank->plan), LNT_ERR_MISMATCH);
    rank_close(rank);
}

START_TEST(the_first_difference_is_named_on_every_rank)
{
    const world_t world = {.n_ranks = 4, .nodes = {0, 1, 1, 2}, .quiet = true};
    disagreement_t base = {.models = {small_model(), small_model()}}, d;

    for (uint32_t odd = 0; odd < 4; odd++) {
        base.odd = odd;
        d = base;
        d.models[1].lengths[2] = 71;
        d.name = "tensor 2";
        ranks_run(&world, disagree_body, &d);
        d = base;
        d.models[1].n_tensors = 3;
        d.name = "tensor 3";
        ranks_run(&world, disagree_body, &d);
        d = base;
        d.models[1].options = "block=64,codec=int8";
        d.name = "int8";
        ranks_run(&world, disagree_body, &d);
        d = base;
        d.models[1].bucket_bytes = 1024;
        d.name = "bucket of 256";
        ranks_run(&world, disagree_body, &d);
        d = base;
        d.models[1].start_seed = 77;
        d.name = "\"t0\"";
        ranks_run(&world, disagree_body, &d);
    }
}
END_TEST

/* Weights that are loaded after their registration count. */
static void load_weight(rank_t *rank, uint64_t i)
{
    const float value = (float)normal_at(50 + rank->rank, i);

    rank->x[i] = value;
    rank->x16[i] = half_of(rank->model->dtype, value);
}

static void sync_body(rank_t *rank)
{
    model_t model = small_model();
    float expected, loaded;

    model.start_seed = rank->rank + 1;
    model.dtype = *(const lnt_dtype_t *)rank->arg;
    ranks_ok(rank_plan(rank, &model));
    ranks_ok(rank_optim(rank));
    ck_assert_int_eq(lnt_plan_check_params(rank->plan), LNT_ERR_MISMATCH);
    ck_assert_int_eq(lnt_plan_commit(rank->plan), LNT_ERR_MISMATCH);
    load_weight(rank, 1);
    ranks_ok(lnt_plan_sync_params(rank->plan, rank->world->n_ranks - 1));
    ranks_ok(lnt_plan_commit(rank->plan));
    expected = (float)normal_at(rank->world->n_ranks, 0);
    loaded = (float)normal_at(50 + rank->world->n_ranks - 1, 1);
    ck_assert(lnt_plan_master(rank->plan, 0)[1] == float_as(model.dtype, loaded));
    if (model.dtype == LNT_F32) ck_assert(rank->x[0] == expected);
    if (model.dtype != LNT_F32) ck_assert_uint_eq(rank->x16[0], half_of(model.dtype, expected));
    if (rank->rank == 0) lnt_plan_master(rank->plan, 2)[5] += 1.0f;
    ck_assert_int_eq(lnt_plan_check_params(rank->plan), LNT_ERR_MISMATCH);
    ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, "\"t2\""));
    ranks_ok(lnt_plan_sync_params(rank->plan, 0));
    ranks_ok(lnt_plan_check_params(rank->plan));
    rank_close(rank);
}

START_TEST(parameters_are_synchronised_and_checked)
{
    const world_t world = {.n_ranks = 3, .nodes = {0, 1, 1}, .quiet = true};
    lnt_dtype_t dtype = (lnt_dtype_t)_i;

    ranks_run(&world, sync_body, &dtype);
}
END_TEST

/* LINNET_CHECK_EVERY: a replica that has left the others is found, and the step does not begin. */
static void check_every_body(rank_t *rank)
{
    model_t model = small_model();

    rank_open(rank, &model);
    for (int step = 0; step < 5; step++)
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, rank->x)));
    if (rank->rank == 1) rank->x[310] += 1.0f;
    ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, rank->x)));
    ck_assert_int_eq(lnt_optim_step(rank->optim, rank_grads(rank, rank->x)), LNT_ERR_MISMATCH);
    ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, "\"t2\""));
    ck_assert_uint_eq(rank_info(rank).step, 6);
    ranks_ok(lnt_plan_sync_params(rank->plan, 0));
    ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, rank->x)));
    rank_close(rank);
}

START_TEST(replicas_are_compared_on_request)
{
    ck_assert_int_eq(setenv("LINNET_CHECK_EVERY", "3", 1), 0);
    ranks_run(&(world_t){.n_ranks = 3, .nodes = {0, 0, 1}, .quiet = true}, check_every_body, NULL);
    ck_assert_int_eq(unsetenv("LINNET_CHECK_EVERY"), 0);
}
END_TEST

/* Other hyper-parameters on one rank: the step ends in a named error on both sides, and everything can be torn down. */
static void hyper_body(rank_t *rank)
{
    model_t model = small_model();
    lnt_group_t group;
    lnt_status_t status;
    uint64_t bytes;
    void *blob;

    rank_open(rank, &model);
    ranks_ok(lnt_optim_get_group(rank->optim, 0, &group));
    if (rank->rank == 1) group.lr *= 2;
    ranks_ok(lnt_optim_set_group(rank->optim, 0, &group));
    status = lnt_optim_step(rank->optim, rank_grads(rank, rank->x));
    ck_assert_int_eq(status, LNT_ERR_MISMATCH);
    ck_assert_int_eq(lnt_plan_veto(rank->plan), LNT_ERR_MISMATCH); /* failed: every call says so */
    ck_assert_uint_eq(rank_info(rank).step, 0);
    ranks_ok(lnt_optim_state_size(rank->optim, &bytes)); /* what there is can still be saved */
    blob = malloc(bytes);
    ranks_ok(lnt_optim_state_export(rank->optim, blob, bytes));
    free(blob);
    rank_close(rank);
}

START_TEST(other_hyper_parameters_are_a_mismatch)
{
    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, hyper_body, NULL);
}
END_TEST

/* ---- nothing to send ---- */

static void empty_body(rank_t *rank)
{
    model_t model = {.n_tensors = 3, .algorithm = "onebit_adam", .options = "freeze_step=2"};
    const void *grads[3] = {NULL, NULL, NULL};
    static _Thread_local float one;

    rank_open(rank, &model);
    for (int step = 0; step < 4; step++)
        ranks_ok(lnt_optim_step(rank->optim, grads));
    ck_assert_uint_eq(rank_info(rank).step, 4);
    rank_close(rank);
    model = (model_t){.n_tensors = 1, .lengths = {1}, .algorithm = "onebit_adam", .options = "freeze_step=2"};
    rank_open(rank, &model);
    grads[0] = &one;
    one = 1.0f;
    for (int step = 0; step < 4; step++)
        ranks_ok(lnt_optim_step(rank->optim, grads));
    ck_assert_uint_eq(rank_info(rank).lane_elems, 1);
    rank_close(rank);
    model.n_tensors = 0;
    rank_open(rank, &model);
    for (int step = 0; step < 4; step++)
        ranks_ok(lnt_optim_step(rank->optim, grads));
    rank_close(rank);
}

START_TEST(plans_of_nothing_and_of_one_element)
{
    ranks_run(&(world_t){.n_ranks = 1}, empty_body, NULL);
    ranks_run(&(world_t){.n_ranks = 3, .nodes = {0, 1, 0}}, empty_body, NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan");
    TCase *tcase = tcase_create("plan");

    tcase_add_test(tcase, every_call_in_every_state);
    tcase_add_test(tcase, an_accepted_veto_always_reaches_everybody);
    tcase_add_test(tcase, the_first_difference_is_named_on_every_rank);
    tcase_add_loop_test(tcase, parameters_are_synchronised_and_checked, 0, LNT_DTYPE_COUNT);
    tcase_add_test(tcase, replicas_are_compared_on_request);
    tcase_add_test(tcase, other_hyper_parameters_are_a_mismatch);
    tcase_add_test(tcase, plans_of_nothing_and_of_one_element);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
