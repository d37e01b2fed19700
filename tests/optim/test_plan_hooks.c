/* What a plan tells of the gradients of a step before they leave (lnt_step_hooks_t): when the hooks run, what they
 * read, what waits for them, and that no rank has all frames of a step before every rank's all_ready has returned.
 */
#include <stdatomic.h>
#include <time.h>

#include "../../src/core/plan_impl.h"
#include "ranks.h"

enum { N_TENSORS = 3, LENGTH = 256 };

typedef struct seen {
    rank_t *rank;
    uint32_t n_ready[8]; /* by bucket */
    uint32_t n_all;
    _Atomic uint32_t formed; /* bit b: this rank's gradient of bucket b is on its way */
    uint32_t formed_before_all;
    float first;  /* of the mean, tensor 0 */
    bool slow;    /* all_ready takes its time */
    double clip;  /* what all_ready sets; 0: nothing */
    double given; /* the clip of the step */
} seen_t;

static _Atomic uint32_t n_returned; /* of all ranks */

static void nap(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
}

static void form(void *arg, const lnt_span_t *span, const void *grad, lnt_dtype_t dtype, float *out)
{
    seen_t *seen = arg;

    (void)dtype;
    atomic_fetch_or(&seen->formed, 1u << span->bucket);
    if (grad != NULL) {
        memmove(out, grad, span->count * sizeof(*out));
    } else {
        memset(out, 0, span->count * sizeof(*out));
    }
}

static void take(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live)
{
    seen_t *seen = arg;

    (void)live;
    if (span->tensor == 0 && span->offset == 0) seen->first = value[0];
}

static void bucket_ready(void *arg, uint32_t bucket)
{
    seen_t *seen = arg;
    lnt_span_t span;
    size_t n = 0;

    seen->n_ready[bucket]++;
    for (; lnt_plan_bucket_span(seen->rank->plan, bucket, n, &span) == LNT_OK; n++) {
        float out[LENGTH];
        const float *local = lnt_plan_local(seen->rank->plan, span.tensor, span.offset, span.count, out);
        ck_assert_uint_eq(span.bucket, bucket);
        for (uint64_t i = 0; i < span.count; i++)
            ck_assert(local[i] == seen->rank->x[span.tensor * LENGTH + span.offset + i]);
    }
    ck_assert_uint_gt(n, 0);
}

static lnt_status_t all_ready(void *arg, double *clip_p)
{
    seen_t *seen = arg;

    ck_assert(*clip_p == (seen->given != 0 ? seen->given : 1));
    for (uint32_t b = 0; b < seen->rank->plan->n_buckets; b++)
        ck_assert_uint_eq(seen->n_ready[b], seen->n_all + 1);
    seen->n_all++;
    seen->formed_before_all = atomic_load(&seen->formed);
    if (seen->slow) nap();
    if (seen->clip != 0) *clip_p = seen->clip;
    atomic_fetch_add(&n_returned, 1);
    return LNT_OK;
}

static void open_plan(rank_t *rank, seen_t *seen)
{
    const model_t model = {.n_tensors = N_TENSORS,
                           .lengths = {LENGTH, LENGTH, LENGTH},
                           .bucket_bytes = LENGTH * sizeof(float),
                           .start_seed = 3};
    lnt_program_params_t program = {
        .struct_size = sizeof(program),
        .name = "all",
        .codec = {.struct_size = sizeof(program.codec), .name = "f32", .block = 64},
        .stage = {.struct_size = sizeof(program.stage), .arg = seen, .produce_local = form, .consume = take}};
    uint32_t number;

    *seen = (seen_t){.rank = rank, .clip = 1, .slow = rank->rank == 1};
    ranks_ok(rank_plan(rank, &model));
    ranks_ok(lnt_plan_add_program(rank->plan, &program, &number));
    ranks_ok(lnt_plan_commit(rank->plan));
    ck_assert_uint_eq(rank->plan->n_buckets, N_TENSORS);
}

static void close_plan(rank_t *rank)
{
    ranks_ok(lnt_plan_destroy(rank->plan));
    free(rank->x);
    free(rank->x16);
}

static void begin(rank_t *rank, seen_t *seen, bool hold)
{
    const lnt_step_hooks_t hooks = {.arg = seen, .bucket_ready = bucket_ready, .all_ready = all_ready, .hold = hold};
    const lnt_step_params_t step = {
        .struct_size = sizeof(step), .programs = 1, .hooks = &hooks, .clip = hold ? seen->given : 0};

    ranks_ok(lnt_plan_begin(rank->plan, &step));
}

static void ready_all(rank_t *rank)
{
    for (uint32_t t = 0; t < N_TENSORS; t++)
        ranks_ok(lnt_plan_tensor_ready(rank->plan, t, rank->x + t * LENGTH, NULL));
}

/* ---- without hold: all but the last bucket are on their way before `end` ---- */

static void overlap_body(rank_t *rank)
{
    seen_t *seen = calloc(1, sizeof(*seen));
    uint32_t formed;

    open_plan(rank, seen);
    begin(rank, seen, false);
    ready_all(rank);
    while (atomic_load(&seen->formed) != (1u << (N_TENSORS - 1)) - 1) { /* bounded by the test's own limit */
        ranks_ok(lnt_comm_async_error(rank->comm, NULL));
        nap();
    }
    nap();
    formed = atomic_load(&seen->formed);
    ck_assert_uint_eq(formed, (1u << (N_TENSORS - 1)) - 1); /* all but the last */
    ck_assert_uint_eq(seen->n_all, 0);
    ranks_barrier();
    ranks_ok(lnt_plan_end(rank->plan));
    ck_assert_uint_eq(atomic_load(&n_returned), rank->world->n_ranks);
    ck_assert_uint_eq(seen->n_all, 1);
    ck_assert(seen->first == rank->x[0]);
    free(seen);
    close_plan(rank);
}

START_TEST(the_last_bucket_waits_for_all_ready_on_every_rank)
{
    atomic_store(&n_returned, 0);
    ranks_run(&(world_t){.n_ranks = 3, .nodes = {0, 1, 2}}, overlap_body, NULL);
    atomic_store(&n_returned, 0);
    ranks_run(&(world_t){.n_ranks = 4, .nodes = {0, 1, 0, 1}}, overlap_body, NULL);
    atomic_store(&n_returned, 0);
    ranks_run(&(world_t){.n_ranks = 1}, overlap_body, NULL);
}
END_TEST

/* ---- with hold ---- */

static void hold_body(rank_t *rank)
{
    seen_t *seen = calloc(1, sizeof(*seen));
    uint32_t formed;

    open_plan(rank, seen);
    seen->clip = 0.25;
    begin(rank, seen, true);
    ready_all(rank);
    nap();
    formed = atomic_load(&seen->formed);
    ck_assert_uint_eq(formed, 0);
    ranks_barrier();
    ranks_ok(lnt_plan_end(rank->plan));
    ck_assert_uint_eq(seen->formed_before_all, 0);
    ck_assert_uint_eq(atomic_load(&n_returned), rank->world->n_ranks);
    ck_assert(seen->first == 0.25f * rank->x[0]);
    free(seen);
    close_plan(rank);
}

START_TEST(a_held_step_leaves_after_all_ready_with_its_factor)
{
    atomic_store(&n_returned, 0);
    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}}, hold_body, NULL);
    atomic_store(&n_returned, 0);
    ranks_run(&(world_t){.n_ranks = 4, .nodes = {0, 1, 0, 1}, .no_thread = true}, hold_body, NULL);
}
END_TEST

/* The caller's own clip holds where all_ready sets none, and is replaced where it does. */
static void given_body(rank_t *rank)
{
    static const double clips[][2] = {{0, 0.5}, {0.25, 0.5}, {0, 0}};
    seen_t *seen = calloc(1, sizeof(*seen));

    open_plan(rank, seen);
    for (size_t i = 0; i < 3; i++) {
        seen->clip = clips[i][0];
        seen->given = clips[i][1];
        begin(rank, seen, true);
        ready_all(rank);
        ranks_ok(lnt_plan_end(rank->plan));
        ck_assert(seen->first == (float)(i == 2 ? 1 : i == 1 ? 0.25 : 0.5) * rank->x[0]);
    }
    free(seen);
    close_plan(rank);
}

START_TEST(a_held_step_keeps_the_clip_it_was_given)
{
    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}}, given_body, NULL);
    ranks_run(&(world_t){.n_ranks = 1}, given_body, NULL);
}
END_TEST

/* Factors that differ are found, as those of begin are. */
static void differ_body(rank_t *rank)
{
    seen_t *seen = calloc(1, sizeof(*seen));

    open_plan(rank, seen);
    seen->clip = rank->rank == 0 ? 0.25 : 0.5;
    begin(rank, seen, true);
    ready_all(rank);
    ck_assert_int_eq(lnt_plan_end(rank->plan), LNT_ERR_MISMATCH);
    free(seen);
    close_plan(rank);
}

START_TEST(late_factors_that_differ_are_a_mismatch)
{
    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, differ_body, NULL);
}
END_TEST

static void veto_body(rank_t *rank)
{
    seen_t *seen = calloc(1, sizeof(*seen));
    const uint32_t left_out = rank->rank; /* not even made ready */

    open_plan(rank, seen);
    for (int hold = 0; hold <= 1; hold++) {
        begin(rank, seen, hold != 0);
        for (uint32_t t = 0; t < N_TENSORS; t++) {
            if (t == 1 && rank->rank == 1) ranks_ok(lnt_plan_veto(rank->plan));
            if (t != left_out || t == 1) ranks_ok(lnt_plan_tensor_ready(rank->plan, t, rank->x + t * LENGTH, NULL));
        }
        for (uint32_t i = 0; i < LENGTH && left_out == 0; i++)
            rank->x[i] = 0; /* what a tensor counts as that was not made ready */
        ck_assert_int_eq(lnt_plan_end(rank->plan), LNT_SKIPPED_VETO);
        ck_assert_uint_eq(seen->n_all, (uint32_t)hold + 1);
    }
    ck_assert(seen->first == 0);
    free(seen);
    close_plan(rank);
}

START_TEST(vetoes_and_missing_gradients_go_with_hooks)
{
    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}}, veto_body, NULL);
}
END_TEST

/* ---- local gradients ---- */

static void local_body(rank_t *rank)
{
    static const lnt_dtype_t dtypes[] = {LNT_F32, LNT_BF16, LNT_F16};
    const lnt_dtype_t dtype = dtypes[*(const int *)rank->arg];
    const model_t model = {
        .n_tensors = 1, .lengths = {100}, .algorithm = "adamw", .accumulate = true, .dtype = dtype, .start_seed = 7};
    const void *grad;
    float out[100];

    rank_open(rank, &model);
    grad = dtype == LNT_F32 ? (const void *)rank->x : rank->x16;
    for (int what = 0; what < 4; what++) { /* bit 0: accumulated, bit 1: a gradient in the step */
        const float *local;
        if ((what & 1) != 0) ranks_ok(lnt_optim_accumulate(rank->optim, 0, grad));
        ranks_ok(lnt_optim_begin(rank->optim));
        ranks_ok(lnt_optim_tensor_ready(rank->optim, 0, (what & 2) != 0 ? grad : NULL, NULL));
        local = lnt_plan_local(rank->plan, 0, 10, 90, out);
        for (int i = 0; i < 90; i++) {
            float value = dtype == LNT_F32 ? rank->x[10 + i] : float_of_half(dtype, rank->x16[10 + i]);
            ck_assert(local[i] == ((what & 1) != 0 ? value : 0) + ((what & 2) != 0 ? value : 0));
        }
        ck_assert(what != 2 || dtype != LNT_F32 || local == rank->x + 10); /* not copied */
        ranks_ok(lnt_optim_end(rank->optim));
    }
    rank_close(rank);
}

START_TEST(local_gradients_are_what_enters_the_exchange)
{
    int dtype = _i;

    ranks_run(&(world_t){.n_ranks = 1, .quiet = true}, local_body, &dtype);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan_hooks");
    TCase *tcase = tcase_create("hooks");

    tcase_add_test(tcase, the_last_bucket_waits_for_all_ready_on_every_rank);
    tcase_add_test(tcase, a_held_step_leaves_after_all_ready_with_its_factor);
    tcase_add_test(tcase, a_held_step_keeps_the_clip_it_was_given);
    tcase_add_test(tcase, late_factors_that_differ_are_a_mismatch);
    tcase_add_test(tcase, vetoes_and_missing_gradients_go_with_hooks);
    tcase_add_loop_test(tcase, local_gradients_are_what_enters_the_exchange, 0, 3);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
