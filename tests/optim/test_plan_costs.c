/* What a plan costs: bytes on the wire as predicted, no allocation in steps, every allocation failing in turn, on one
 * rank and on one of two. What is allocated, in numbers, is in test_plan_memory.c.
 */
#include "../../src/base/memory.h"
#include "ranks.h"

static void bytes_body(rank_t *rank)
{
    model_t model = {.n_tensors = 4,
                     .lengths = {3000, 0, 70, 20},
                     .algorithm = "onebit_adam",
                     .options = "freeze_step=3,block=128,max_dead_share=1",
                     .bucket_bytes = 4096,
                     .segment_bytes = 1024};
    float *grad = calloc(4096, sizeof(*grad));

    rank_open(rank, &model);
    for (uint32_t step = 0; step < 6; step++) {
        const uint32_t programs = step < 3 ? 1 : 6;
        lnt_comm_stats_t stats = {.struct_size = sizeof(stats)};
        uint64_t intra, inter;
        ranks_ok(lnt_plan_wire_bytes(rank->plan, programs, &intra, &inter));
        ranks_barrier();
        ranks_ok(lnt_comm_get_stats(rank->comm, &stats, true));
        for (uint64_t i = 0; i < rank->n_elems; i++)
            grad[i] = i % 1000 < 30 ? 0 : (float)normal_at(step, i);
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
        ranks_barrier(); /* all sends are over */
        ranks_ok(lnt_comm_get_stats(rank->comm, &stats, true));
        ck_assert_uint_eq(stats.wire_bytes_intra, intra);
        ck_assert_uint_eq(stats.wire_bytes_inter, inter);
    }
    free(grad);
    rank_close(rank);
}

START_TEST(bytes_on_the_wire_are_as_predicted)
{
    ranks_run(&(world_t){.n_ranks = 3, .nodes = {0, 1, 2}, .quiet = true}, bytes_body, NULL);
    ranks_run(&(world_t){.n_ranks = 5, .nodes = {0, 0, 1, 1, 0}, .quiet = true}, bytes_body, NULL);
}
END_TEST

static void no_alloc_body(rank_t *rank)
{
    model_t model = {.n_tensors = 3,
                     .lengths = {900, 30, 64},
                     .algorithm = "onebit_adam",
                     .options = "freeze_step=10,block=128,clip=1,warmup_codec=int8,warmup_block=64,max_dead_share=1",
                     .bucket_bytes = 1024,
                     .max_skips = 100};
    float *grad = calloc(1024, sizeof(*grad));
    uint64_t before;

    rank_open(rank, &model);
    ranks_barrier();
    before = lnt_memory_total();
    for (uint32_t step = 0; step < 20; step++) {
        for (uint64_t i = 0; i < rank->n_elems; i++)
            grad[i] = i < 20 ? 0 : (float)normal_at(step * 8u + rank->rank, i);
        if (step == 4 || step == 14) grad[100] = 1.0f / 0.0f;
        ck_assert_int_eq(lnt_optim_step(rank->optim, rank_grads(rank, grad)),
                         step == 4 || step == 14 ? LNT_SKIPPED_NONFINITE : LNT_OK);
    }
    ranks_barrier();
    ck_assert_uint_eq(lnt_memory_total(), before);
    ck_assert_int_eq(rank_info(rank).phase, LNT_PHASE_COMPRESSED);
    ranks_barrier();
    free(grad);
    rank_close(rank);
}

START_TEST(steps_allocate_nothing)
{
    ranks_run(&(world_t){.n_ranks = 3, .nodes = {0, 1, 1}, .quiet = true}, no_alloc_body, NULL);
}
END_TEST

/* Everything from plan to import, with the k-th allocation failing: an error and no leak. True when no allocation
 * failed. */
static bool life_with_failure(rank_t *rank, uint64_t k, lnt_status_t *status_p)
{
    const model_t model = {.n_tensors = 3,
                           .lengths = {900, 30, 64},
                           .algorithm = "onebit_adam",
                           .accumulate = true,
                           .options = "freeze_step=2,block=128,clip=1,warmup_codec=int8,warmup_block=64",
                           .bucket_bytes = 1024};
    lnt_status_t status;
    uint64_t bytes = 0;
    uint8_t *blob = NULL;
    bool fired;

    rank->plan = NULL;
    rank->optim = NULL;
    lnt_memory_fail_after(k);
    status = rank_plan(rank, &model);
    if (status == LNT_OK) status = rank_optim(rank);
    if (status == LNT_OK) status = lnt_plan_commit(rank->plan);
    for (uint32_t step = 0; step < 3 && status == LNT_OK; step++)
        status = lnt_optim_step(rank->optim, rank_grads(rank, rank->x));
    if (status == LNT_OK) status = lnt_optim_state_size(rank->optim, &bytes);
    blob = malloc(bytes + 1);
    if (status == LNT_OK) status = lnt_optim_state_export(rank->optim, blob, bytes);
    if (status == LNT_OK) {
        uint64_t hash = lnt_optim_hash(rank->optim);
        status = lnt_optim_state_import(rank->optim, blob, bytes);
        ck_assert_uint_eq(lnt_optim_hash(rank->optim), hash);
    }
    fired = lnt_memory_fault_fired();
    lnt_memory_fail_after(0);
    free(blob);
    ranks_ok(lnt_optim_destroy(rank->optim));
    ranks_ok(lnt_plan_destroy(rank->plan));
    free(rank->x);
    free(rank->x16);
    *status_p = status;
    return !fired;
}

static void failing_body(rank_t *rank)
{
    lnt_status_t status;
    uint64_t k = 1, live;

    ck_assert(life_with_failure(rank, 0, &status)); /* fills the cache of one-shot requests */
    live = lnt_memory_live();
    for (;; k++) {
        bool last = life_with_failure(rank, k, &status);
        ck_assert_int_eq(status, last ? LNT_OK : LNT_ERR_NO_MEMORY);
        ck_assert_uint_eq(lnt_memory_live(), live);
        if (last) break;
    }
    ck_assert_uint_gt(k, 50);
}

START_TEST(every_allocation_may_fail)
{
    ranks_run(&(world_t){.n_ranks = 1, .quiet = true}, failing_body, NULL);
}
END_TEST

/* The same among two ranks, whose set-up talks: both end with an error, or both without. */
typedef struct pair {
    uint64_t k;
    lnt_status_t status[2];
} pair_t;

static void failing_pair_body(rank_t *rank)
{
    pair_t *pair = rank->arg;

    ranks_barrier();
    (void)life_with_failure(rank, pair->k, &pair->status[rank->rank]);
}

START_TEST(an_allocation_may_fail_on_one_of_two)
{
    for (int i = 0; i < 12; i++) {
        pair_t pair = {.k = 1 + test_random_below(250)};
        uint64_t live = lnt_memory_live();
        ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .timeout_ms = 400, .quiet = true}, failing_pair_body,
                  &pair);
        ck_assert_msg((pair.status[0] < 0) == (pair.status[1] < 0), "allocation %llu: %d and %d",
                      (unsigned long long)pair.k, (int)pair.status[0], (int)pair.status[1]);
        ck_assert_uint_eq(lnt_memory_live(), live);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan_costs");
    TCase *tcase = tcase_create("costs");

    tcase_add_test(tcase, bytes_on_the_wire_are_as_predicted);
    tcase_add_test(tcase, steps_allocate_nothing);
    tcase_add_test(tcase, every_allocation_may_fail);
    tcase_add_test(tcase, an_allocation_may_fail_on_one_of_two);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
