/* What a plan offers to algorithms with local steps: masters of its own beside f32 parameters, values published in
 * place of masters, tensors left out of an exchange, programs whose values are no gradients in one step.
 */
#include "../../src/core/plan_impl.h"
#include "ranks.h"

enum { BLOCK = 64, N_TENSORS = 3, LONGEST = 300 };

static const model_t model = {.n_tensors = N_TENSORS, .lengths = {LONGEST, 70, 200}, .bucket_bytes = 1024};

typedef struct seen {
    uint64_t n_elems[N_TENSORS];
    float first[N_TENSORS];
} seen_t;

static void note(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live)
{
    seen_t *seen = arg;

    (void)live;
    seen->n_elems[span->tensor] += span->count;
    if (span->offset == 0) seen->first[span->tensor] = value[0];
}

static void ignore(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live)
{
    (void)arg;
    (void)span;
    (void)value;
    (void)live;
}

static void open_plan(rank_t *rank, const char *codec, seen_t *seen)
{
    uint32_t number;
    const lnt_program_params_t params = {.struct_size = sizeof(params),
                                         .name = "program",
                                         .codec = {.struct_size = sizeof(params.codec), .name = codec, .block = BLOCK},
                                         .stage = {.struct_size = sizeof(params.stage), .arg = seen, .consume = note}};

    ranks_ok(rank_plan(rank, &model));
    ranks_ok(lnt_plan_attach(rank->plan));
    ranks_ok(lnt_plan_own_masters(rank->plan));
    ranks_ok(lnt_plan_add_program(rank->plan, &params, &number));
}

static void close_plan(rank_t *rank)
{
    lnt_plan_detach(rank->plan);
    ranks_ok(lnt_plan_destroy(rank->plan));
    free(rank->x);
    free(rank->x16);
}

static void run_step(rank_t *rank, const lnt_step_params_t *step)
{
    ranks_ok(lnt_plan_begin(rank->plan, step));
    for (uint32_t t = N_TENSORS; t-- > 0;)
        ranks_ok(lnt_plan_tensor_ready(rank->plan, t, rank->grads[t], NULL));
    ranks_ok(lnt_plan_end(rank->plan));
}

/* ---- masters ---- */

static void masters_body(rank_t *rank)
{
    lnt_plan_memory_t before = {.struct_size = sizeof(before)}, after = before;
    const float values[2] = {7, -3};
    seen_t seen = {{0}, {0}};

    open_plan(rank, "f32", &seen);
    ranks_ok(lnt_plan_get_memory(rank->plan, &before));
    ck_assert_ptr_ne(lnt_plan_master(rank->plan, 0), rank->x);
    rank->x[5] = 1.5f; /* written by the user after the optimizer was made */
    ranks_ok(lnt_plan_commit(rank->plan));
    ranks_ok(lnt_plan_get_memory(rank->plan, &after));
    ck_assert_uint_eq(after.total, before.total);
    ck_assert_uint_ge(after.other, rank->n_elems * sizeof(float));
    ck_assert(lnt_plan_master(rank->plan, 0)[5] == 1.5f);
    if (rank->rank == 1) lnt_plan_publish_values(rank->plan, 1, 3, 2, values);
    ck_assert(rank->rank == 0 || (rank->x[LONGEST + 3] == 7 && rank->x[LONGEST + 4] == -3));
    ranks_ok(lnt_plan_check_params(rank->plan)); /* masters alone are compared */
    lnt_plan_publish(rank->plan, 1, 0, 70);
    ck_assert_mem_eq(rank->x + LONGEST, lnt_plan_master(rank->plan, 1), 70 * sizeof(float));
    close_plan(rank);
}

START_TEST(the_library_keeps_masters_of_f32_parameters)
{
    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}}, masters_body, NULL);
}
END_TEST

static void detach_body(rank_t *rank)
{
    seen_t seen = {{0}, {0}};

    open_plan(rank, "f32", &seen);
    lnt_plan_detach(rank->plan);
    ck_assert_ptr_eq(lnt_plan_master(rank->plan, 0), rank->x);
    ranks_ok(lnt_plan_destroy(rank->plan));
    free(rank->x);
    free(rank->x16);
}

START_TEST(detaching_gives_the_masters_back)
{
    ranks_run(&(world_t){.n_ranks = 1}, detach_body, NULL);
}
END_TEST

/* ---- tensors that are left out ---- */

static uint64_t errors_of(const rank_t *rank, uint32_t tensor)
{
    lnt_error_extent_t extent;
    uint64_t hash = 0;

    for (size_t i = 0; lnt_plan_error_extent(rank->plan, i, &extent) == LNT_OK; i++) {
        for (uint64_t k = 0; k < extent.count && extent.tensor == tensor; k++) {
            uint32_t bits;
            memcpy(&bits, &extent.data[k], sizeof(bits));
            hash = test_mix_pair(hash, bits);
        }
    }
    return hash;
}

static void left_out_body(rank_t *rank)
{
    const uint8_t left_out[N_TENSORS] = {0, 1, 0};
    lnt_step_params_t step = {.struct_size = sizeof(step), .programs = 1};
    float grad[LONGEST + 270];
    seen_t seen = {{0}, {0}};
    uint64_t errors[N_TENSORS];

    for (uint64_t i = 0; i < LONGEST + 270; i++)
        grad[i] = (float)normal_at(rank->rank + 11, i);
    open_plan(rank, "sign1", &seen);
    ranks_ok(lnt_plan_commit(rank->plan));
    (void)rank_grads(rank, grad);
    run_step(rank, &step);
    for (uint32_t t = 0; t < N_TENSORS; t++)
        errors[t] = errors_of(rank, t);
    step.left_out = left_out;
    step.step = 1;
    run_step(rank, &step);
    for (uint32_t t = 0; t < N_TENSORS; t++) {
        ck_assert_uint_eq(seen.n_elems[t], (left_out[t] ? 1 : 2) * model.lengths[t]);
        ck_assert(errors[t] == 0 || (errors_of(rank, t) == errors[t]) == (left_out[t] != 0));
    }
    close_plan(rank);
}

START_TEST(a_tensor_that_is_left_out_keeps_its_errors)
{
    ranks_run(&(world_t){.n_ranks = 3, .nodes = {0, 1, 2}}, left_out_body, NULL);
    ranks_run(&(world_t){.n_ranks = 4, .nodes = {0, 0, 1, 1}}, left_out_body, NULL);
}
END_TEST

/* A unit has one scale: nothing can be left out of it. */
static void unit_body(rank_t *rank)
{
    const uint8_t left_out[N_TENSORS] = {0, 1, 0};
    lnt_step_params_t step = {.struct_size = sizeof(step), .programs = 1, .left_out = left_out};
    const lnt_program_params_t params = {.struct_size = sizeof(params),
                                         .name = "units",
                                         .codec = {.struct_size = sizeof(params.codec), .name = "sign1"},
                                         .unit = LNT_UNIT_MODEL,
                                         .stage = {.struct_size = sizeof(params.stage), .consume = ignore}};
    uint32_t number;

    ranks_ok(rank_plan(rank, &model));
    ranks_ok(lnt_plan_add_program(rank->plan, &params, &number));
    ranks_ok(lnt_plan_commit(rank->plan));
    ck_assert_int_eq(lnt_plan_begin(rank->plan, &step), LNT_ERR_INVALID_ARG);
    step.left_out = NULL;
    ranks_ok(lnt_plan_begin(rank->plan, &step));
    ranks_ok(lnt_plan_end(rank->plan));
    close_plan(rank);
}

START_TEST(nothing_is_left_out_of_a_unit)
{
    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, unit_body, NULL);
}
END_TEST

/* ---- scaling ---- */

static void unscaled_body(rank_t *rank)
{
    lnt_step_params_t step = {.struct_size = sizeof(step), .programs = 1, .loss_scale = 8, .micro_steps = 2};
    float grad[LONGEST + 270];
    seen_t seen = {{0}, {0}};

    for (uint64_t i = 0; i < LONGEST + 270; i++)
        grad[i] = 32;
    open_plan(rank, "f32", &seen);
    ranks_ok(lnt_plan_commit(rank->plan));
    (void)rank_grads(rank, grad);
    run_step(rank, &step);
    ck_assert(seen.first[0] == 2 && lnt_plan_local_factor(rank->plan) == 0.0625f);
    step.unscaled = 1;
    run_step(rank, &step);
    ck_assert(seen.first[0] == 32);
    close_plan(rank);
}

START_TEST(a_program_may_carry_other_things_than_gradients_in_one_step)
{
    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}}, unscaled_body, NULL);
}
END_TEST

static Suite *plan_local_suite(void)
{
    Suite *suite = suite_create("plan_local");
    TCase *tests = tcase_create("plan");

    tcase_add_test(tests, the_library_keeps_masters_of_f32_parameters);
    tcase_add_test(tests, detaching_gives_the_masters_back);
    tcase_add_test(tests, a_tensor_that_is_left_out_keeps_its_errors);
    tcase_add_test(tests, nothing_is_left_out_of_a_unit);
    tcase_add_test(tests, a_program_may_carry_other_things_than_gradients_in_one_step);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    return test_main(plan_local_suite());
}
