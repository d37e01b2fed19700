/* Memory is missing on one rank where what an optimizer's program carries is built anew: the step that is committed
 * stands, and the begin of the next one fails all ranks at once, naming the rank and the cause. The others may wait for
 * its frames already. State can be saved, and is that of the last committed step.
 */
#include "../../src/base/memory.h"
#include "ranks.h"

enum { LONG = 300, SHORT = 30, N = LONG + SHORT, TOUCH = 9, STARVED = 1 };
enum { LATE_BEGIN = 130, LATE_END = 150 };

typedef struct drill {
    model_t model;
    uint64_t seed;
    bool masks;
} drill_t;

/* The late range has no gradient before TOUCH. */
static const void *const *gradients(rank_t *rank, const drill_t *drill, uint32_t step, float *grad)
{
    for (uint64_t i = 0; i < N; i++) {
        bool still = i >= LATE_BEGIN && i < LATE_END && step < TOUCH;
        grad[i] = still ? 0 : (float)normal_at(test_mix_pair(drill->seed, step * 64u + rank->rank), i);
    }
    return rank_grads(rank, grad);
}

static void expect_told(rank_t *rank, lnt_status_t status, uint64_t hash)
{
    uint64_t bytes;
    uint8_t *blob;

    ck_assert_int_eq(status, LNT_ERR_ABORTED);
    while (lnt_comm_async_error(rank->comm, NULL) == LNT_OK)
        sched_yield();
    ck_assert_int_eq(lnt_optim_begin(rank->optim), LNT_ERR_ABORTED);
    ck_assert_int_eq(lnt_last_error()->peer, STARVED);
    ck_assert_msg(strstr(lnt_last_error()->cause, "rank 1 aborted the communicator: ") != NULL, "%s",
                  lnt_last_error()->cause);
    ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, "parts of the lane"));
    ck_assert_uint_eq(rank_info(rank).step, TOUCH + 1);
    ck_assert_uint_eq(lnt_optim_hash(rank->optim), hash);
    ranks_ok(lnt_optim_state_size(rank->optim, &bytes));
    blob = malloc(bytes);
    ranks_ok(lnt_optim_state_export(rank->optim, blob, bytes));
    free(blob);
}

/* The step in which the late range tells: the others build their lanes first, then this rank, which cannot. */
static void tell(rank_t *rank, const drill_t *drill, float *grad)
{
    const void *const *grads = gradients(rank, drill, TOUCH, grad);

    ranks_ok(lnt_optim_begin(rank->optim));
    for (uint32_t t = 0; t < rank->model->n_tensors; t++)
        ranks_ok(lnt_optim_tensor_ready(rank->optim, t, grads[t], NULL));
    if (rank->rank != STARVED) ranks_ok(lnt_optim_end(rank->optim));
    ranks_barrier();
    if (rank->rank != STARVED) return;
    lnt_memory_fail_after(1);
    ranks_ok(lnt_optim_end(rank->optim));
    ck_assert(lnt_memory_fault_fired());
}

/* Where a sync leaves in `end` alone: a mask takes one late comer out of the lane, the others do it first. */
static void mask_one(rank_t *rank, const drill_t *drill, float *grad)
{
    uint8_t mask[LONG];

    memset(mask, 1, sizeof(mask));
    mask[LATE_BEGIN + 3] = 0;
    ranks_ok(lnt_optim_step(rank->optim, gradients(rank, drill, TOUCH, grad)));
    if (rank->rank != STARVED) ranks_ok(lnt_optim_set_mask(rank->optim, 0, mask));
    ranks_barrier();
    if (rank->rank != STARVED) return;
    lnt_memory_fail_after(1);
    ck_assert_int_eq(lnt_optim_set_mask(rank->optim, 0, mask), LNT_ERR_NO_MEMORY);
    ck_assert_int_eq(lnt_comm_async_error(rank->comm, NULL), LNT_OK); /* nobody waits yet */
}

static void starved_body(rank_t *rank)
{
    drill_t *drill = rank->arg;
    lnt_status_t status;
    float grad[N];
    uint64_t hash;

    rank_open(rank, &drill->model);
    for (uint32_t step = 0; step < TOUCH; step++)
        ranks_ok(lnt_optim_step(rank->optim, gradients(rank, drill, step, grad)));
    (drill->masks ? mask_one : tell)(rank, drill, grad);
    hash = lnt_optim_hash(rank->optim);
    if (rank->rank == STARVED) {
        lnt_memory_fail_after(1);
        status = lnt_optim_begin(rank->optim);
        ck_assert(lnt_memory_fault_fired());
        lnt_memory_fail_after(0);
    } else {
        status = lnt_optim_step(rank->optim, gradients(rank, drill, TOUCH + 1, grad)); /* waits for the other */
    }
    expect_told(rank, status, hash);
    ranks_barrier();
    rank_close(rank);
}

static const struct {
    const char *algorithm, *options;
    bool masks;
} cases[] = {
    {"onebit_adam", "freeze_step=6,block=64,max_dead_share=1", false},
    {"onebit_lamb", "freeze_step=6,block=64,max_dead_share=1", false},
    {"onebit_adam", "freeze_step=6,block=64,max_dead_share=1", true},
    {"zero_one_adam", "var_freeze_step=6,block=64,max_dead_share=1", true},
};
enum { N_CASES = sizeof(cases) / sizeof(cases[0]) };

START_TEST(a_rank_without_memory_fails_all_at_once)
{
    const world_t worlds[] = {{.n_ranks = 2, .nodes = {0, 1}, .quiet = true},
                              {.n_ranks = 3, .nodes = {0, 0, 1}, .quiet = true}};
    drill_t drill = {.model = {.n_tensors = 2,
                               .lengths = {LONG, SHORT},
                               .algorithm = cases[_i % N_CASES].algorithm,
                               .options = cases[_i % N_CASES].options,
                               .bucket_bytes = 1024,
                               .start_seed = test_random()},
                     .seed = test_random(),
                     .masks = cases[_i % N_CASES].masks};

    ranks_run(&worlds[_i / N_CASES], starved_body, &drill);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lane_memory");
    TCase *tcase = tcase_create("memory");

    tcase_add_loop_test(tcase, a_rank_without_memory_fails_all_at_once, 0, 2 * N_CASES);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
