/* Exchange programs made by hand on a plan: masks and what consume sees of them, steps that leave tensors or everything
 * out, values that are not scaled, ranks that disagree about masks or factors.
 */
#include <time.h>

#include "../../src/core/plan_impl.h"
#include "ranks.h"

enum { BLOCK = 64, COUNT = 5 * BLOCK + 10 };

typedef struct seen {
    uint8_t live[COUNT];
    float value[COUNT];
    uint64_t n_calls;
    bool masked; /* some call had a mask */
} seen_t;

static void note(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live)
{
    seen_t *seen = arg;

    seen->n_calls++;
    seen->masked |= live != NULL;
    for (uint64_t i = 0; i < span->count; i++) {
        seen->live[span->offset + i] = live == NULL || (live[i / 8] >> i % 8 & 1) != 0;
        seen->value[span->offset + i] = value[i];
    }
}

static uint32_t add_program(rank_t *rank, const char *codec, const uint8_t *member, bool unscaled, seen_t *seen)
{
    char name[16];
    uint32_t number;
    lnt_program_params_t params = {.struct_size = sizeof(params),
                                   .name = name,
                                   .codec = {.struct_size = sizeof(params.codec), .name = codec, .block = BLOCK},
                                   .member = member,
                                   .unscaled = unscaled,
                                   .stage = {.struct_size = sizeof(params.stage), .arg = seen, .consume = note}};

    (void)snprintf(name, sizeof(name), "p%u", rank->plan->n_programs);
    ranks_ok(lnt_plan_add_program(rank->plan, &params, &number));
    return number;
}

static lnt_step_params_t step_of(uint32_t programs)
{
    return (lnt_step_params_t){.struct_size = sizeof(lnt_step_params_t), .programs = programs};
}

static void close_plan(rank_t *rank)
{
    ranks_ok(lnt_plan_destroy(rank->plan));
    free(rank->x);
    free(rank->x16);
}

/* ---- masks ---- */

static void mask_body(rank_t *rank)
{
    const model_t model = {.n_tensors = 1, .lengths = {COUNT}};
    const lnt_step_params_t step = step_of(1);
    uint8_t live[COUNT];
    seen_t *seen = calloc(1, sizeof(*seen));

    ranks_ok(rank_plan(rank, &model));
    (void)add_program(rank, "sign1", NULL, false, seen);
    ranks_ok(lnt_plan_commit(rank->plan));
    for (uint64_t i = 0; i < COUNT; i++)
        live[i] = i / BLOCK != 2 || unit_at(3, i) < 0.5; /* the first blocks of the span are all live */
    ranks_ok(lnt_plan_set_live(rank->plan, 0, 0, live));
    ranks_ok(lnt_plan_begin(rank->plan, &step));
    ranks_ok(lnt_plan_tensor_ready(rank->plan, 0, rank->x, NULL));
    ranks_ok(lnt_plan_end(rank->plan));
    ck_assert(seen->masked);
    ck_assert_mem_eq(seen->live, live, COUNT);
    for (uint64_t i = 0; i < COUNT; i++)
        ck_assert((seen->value[i] == 0) == (live[i] == 0));
    ranks_ok(lnt_plan_set_live(rank->plan, 0, 0, NULL));
    ranks_ok(lnt_plan_begin(rank->plan, &step));
    seen->masked = false;
    ranks_ok(lnt_plan_end(rank->plan));
    ck_assert(!seen->masked);
    free(seen);
    close_plan(rank);
}

START_TEST(consume_sees_the_mask_of_every_block_of_its_span)
{
    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, mask_body, NULL);
}
END_TEST

/* ---- disagreement ---- */

enum { OTHER_MASK, OTHER_SCALE, OTHER_CLIP, OTHER_MICRO, N_DIFFERENCES };

static void differ_body(rank_t *rank)
{
    const int what = *(const int *)rank->arg;
    const model_t model = {.n_tensors = 1, .lengths = {COUNT}};
    const bool odd = rank->rank == 1;
    lnt_step_params_t step = step_of(1);
    uint8_t live[COUNT];
    seen_t *seen = calloc(1, sizeof(*seen));

    ranks_ok(rank_plan(rank, &model));
    (void)add_program(rank, "sign1", NULL, false, seen);
    ranks_ok(lnt_plan_commit(rank->plan));
    memset(live, 1, sizeof(live));
    live[70 + (odd && what == OTHER_MASK ? 1 : 0)] = 0; /* as many dead blocks, so frames have one size */
    ranks_ok(lnt_plan_set_live(rank->plan, 0, 0, live));
    if (odd && what == OTHER_SCALE) step.loss_scale = 2;
    if (odd && what == OTHER_CLIP) step.clip = 0.5;
    if (odd && what == OTHER_MICRO) step.micro_steps = 2;
    ranks_ok(lnt_plan_begin(rank->plan, &step));
    ck_assert_int_eq(lnt_plan_end(rank->plan), LNT_ERR_MISMATCH);
    ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, "differ"));
    ck_assert_uint_eq(seen->n_calls, 0);
    free(seen);
    close_plan(rank);
}

START_TEST(other_masks_or_factors_are_a_mismatch)
{
    int what = _i;

    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, differ_body, &what);
}
END_TEST

/* ---- programs of a step ---- */

static void left_out_body(rank_t *rank)
{
    const model_t model = {.n_tensors = 3, .lengths = {100, 50, 100}, .accumulate = true};
    const uint8_t first[3] = {1, 0, 0}, second[3] = {0, 1, 0};
    const lnt_step_params_t step = step_of(1), all = step_of(3), nothing = step_of(0);
    seen_t *seen = calloc(2, sizeof(*seen));

    ranks_ok(rank_plan(rank, &model));
    (void)add_program(rank, "f32", first, false, &seen[0]);
    (void)add_program(rank, "f32", second, false, &seen[1]);
    ranks_ok(lnt_plan_commit(rank->plan));
    ck_assert_uint_eq(rank->plan->n_buckets, 1);
    ranks_ok(lnt_plan_begin(rank->plan, &step));
    ranks_ok(lnt_plan_tensor_ready(rank->plan, 0, rank->x, NULL)); /* the others do not travel and hold up nothing */
    while (atomic_load(&rank->plan->job.state) != LNT_JOB_DONE) {
        ranks_ok(lnt_comm_async_error(rank->comm, NULL));
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    ranks_ok(lnt_plan_end(rank->plan));
    ck_assert_uint_eq(seen[0].n_calls, 1);
    ck_assert_uint_eq(seen[1].n_calls, 0);
    ranks_ok(lnt_plan_accumulate(rank->plan, 1, rank->x));
    ranks_ok(lnt_plan_begin(rank->plan, &nothing));
    ck_assert_int_eq(lnt_plan_veto(rank->plan), LNT_ERR_INVALID_USAGE); /* no frame could carry it */
    ranks_ok(lnt_plan_tensor_ready(rank->plan, 0, rank->x, NULL));
    ranks_ok(lnt_plan_end(rank->plan));
    ck_assert_uint_eq(seen[0].n_calls + seen[1].n_calls, 1);
    ranks_ok(lnt_plan_begin(rank->plan, &all));
    ranks_ok(lnt_plan_end(rank->plan));
    ck_assert_uint_eq(seen[1].n_calls, 1);
    ck_assert_mem_eq(seen[1].value, rank->x, 50 * sizeof(float)); /* it waited for a step that sends it */
    free(seen);
    close_plan(rank);
}

START_TEST(what_does_not_travel_holds_up_nothing)
{
    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .timeout_ms = 5000, .quiet = true}, left_out_body, NULL);
}
END_TEST

static void unscaled_body(rank_t *rank)
{
    const model_t model = {.n_tensors = 2, .lengths = {100, 100}};
    const uint8_t first[2] = {1, 0}, second[2] = {0, 1};
    lnt_step_params_t step = step_of(3);
    seen_t *seen = calloc(2, sizeof(*seen));

    ranks_ok(rank_plan(rank, &model));
    (void)add_program(rank, "f32", first, false, &seen[0]);
    (void)add_program(rank, "f32", second, true, &seen[1]);
    ranks_ok(lnt_plan_commit(rank->plan));
    step.loss_scale = 2;
    step.micro_steps = 2;
    step.clip = 0.5;
    ranks_ok(lnt_plan_begin(rank->plan, &step));
    for (uint32_t t = 0; t < 2; t++)
        ranks_ok(lnt_plan_tensor_ready(rank->plan, t, rank->x, NULL));
    ranks_ok(lnt_plan_end(rank->plan));
    for (int i = 0; i < 100; i++) {
        ck_assert(seen[0].value[i] == rank->x[i] / 8);
        ck_assert(seen[1].value[i] == rank->x[i]);
    }
    free(seen);
    close_plan(rank);
}

START_TEST(unscaled_programs_know_no_loss_scale)
{
    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, unscaled_body, NULL);
    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 0}, .quiet = true}, unscaled_body, NULL);
}
END_TEST

/* ---- hashes ---- */

typedef struct hashed {
    const char *codec;
    uint64_t length;
    lnt_plan_info_t info; /* of rank 0 */
} hashed_t;

static void hash_body(rank_t *rank)
{
    hashed_t *hashed = rank->arg;
    const model_t model = {.n_tensors = 1, .lengths = {hashed->length}};
    lnt_plan_info_t info = {.struct_size = sizeof(info)};
    seen_t *seen = calloc(1, sizeof(*seen));

    ranks_ok(rank_plan(rank, &model));
    (void)add_program(rank, hashed->codec, NULL, false, seen);
    ranks_ok(lnt_plan_commit(rank->plan));
    ranks_ok(lnt_plan_get_info(rank->plan, &info));
    if (rank->rank == 0) hashed->info = info;
    free(seen);
    close_plan(rank);
}

static lnt_plan_info_t info_of(const char *codec, uint64_t length, uint32_t n_ranks)
{
    hashed_t hashed = {.codec = codec, .length = length};

    ranks_run(&(world_t){.n_ranks = n_ranks, .nodes = {0, 1, 2}}, hash_body, &hashed);
    return hashed.info;
}

/* Saved state compares model, programs and world one by one. */
START_TEST(model_layout_and_plan_have_hashes_of_their_own)
{
    const lnt_plan_info_t base = info_of("f32", 200, 2), codec = info_of("sign1", 200, 2),
                          model = info_of("f32", 201, 2), world = info_of("f32", 200, 3);

    ck_assert_uint_eq(codec.model_hash, base.model_hash);
    ck_assert_uint_ne(codec.layout_hash, base.layout_hash);
    ck_assert_uint_ne(model.model_hash, base.model_hash);
    ck_assert_uint_ne(model.layout_hash, base.layout_hash);
    ck_assert_uint_eq(world.layout_hash, base.layout_hash);
    ck_assert_uint_ne(world.plan_hash, base.plan_hash);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan_programs");
    TCase *tcase = tcase_create("programs");

    tcase_add_test(tcase, consume_sees_the_mask_of_every_block_of_its_span);
    tcase_add_loop_test(tcase, other_masks_or_factors_are_a_mismatch, 0, N_DIFFERENCES);
    tcase_add_test(tcase, what_does_not_travel_holds_up_nothing);
    tcase_add_test(tcase, unscaled_programs_know_no_loss_scale);
    tcase_add_test(tcase, model_layout_and_plan_have_hashes_of_their_own);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
