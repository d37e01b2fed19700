/* A gradient that is not finite in the local phase of 0/1 Adam, in the default row and in compat=deepspeed: a local
 * step is left out on that rank alone, parameters and state stay finite, and a dynamic loss scale falls once, on all
 * ranks in the same step.
 */
#include <math.h>

#include "ranks.h"

enum { LENGTH = 300, STEPS = 40, FIRST_BAD = 8, END_BAD = 20 };

typedef struct trial {
    model_t model;
    uint64_t seed;
    uint32_t bad_step, bad_rank;
    bool dynamic, compat;
    lnt_status_t status[MAX_RANKS][STEPS];
    double scale[MAX_RANKS][STEPS];
    bool saw_local;
} trial_t;

static bool is_bad(const trial_t *trial, const rank_t *rank, uint32_t step)
{
    return step == trial->bad_step && rank->rank == trial->bad_rank;
}

static void take_step(trial_t *trial, rank_t *rank, uint32_t step)
{
    float grad[LENGTH], before[LENGTH];

    for (uint64_t i = 0; i < LENGTH; i++) {
        double g = normal_at(test_mix_pair(trial->seed, step * 64u + rank->rank), i);
        grad[i] = (float)(g * lnt_optim_loss_scale(rank->optim));
    }
    if (is_bad(trial, rank, step)) grad[LENGTH / 3] = step % 2 == 0 ? INFINITY : NAN;
    memcpy(before, rank->x, sizeof(before));
    trial->status[rank->rank][step] = lnt_optim_step(rank->optim, rank_grads(rank, grad));
    trial->scale[rank->rank][step] = lnt_optim_loss_scale(rank->optim);
    if (trial->status[rank->rank][step] != LNT_SKIPPED_LOCAL) return;
    if (trial->compat) ck_assert_mem_eq(before, rank->x, sizeof(before)); /* the default row syncs without a step */
}

static void check_finite(const rank_t *rank, const char *view)
{
    float values[LENGTH];

    rank_view(rank, view, sizeof(float), values);
    for (uint64_t i = 0; i < LENGTH; i++)
        ck_assert_msg(isfinite(values[i]) && isfinite(rank->x[i]), "%s[%u]", view, (unsigned)i);
}

static void body(rank_t *rank)
{
    trial_t *trial = rank->arg;

    rank_open(rank, &trial->model);
    for (uint32_t step = 0; step < STEPS; step++) {
        take_step(trial, rank, step);
        expect_equal_ranks(rank);
    }
    check_finite(rank, "exp_avg");
    check_finite(rank, "exp_avg_sq");
    check_finite(rank, "accumulator");
    ck_assert(lnt_optim_values(rank->optim, "skipped_local", NULL)[0] ==
              (trial->status[rank->rank][trial->bad_step] == LNT_SKIPPED_LOCAL));
    rank_close(rank);
}

/* The only trace of the bad gradient: LNT_SKIPPED_LOCAL where it was, and one skip of all ranks if the scale is dynamic
 * or the step exchanged something. */
static void check_statuses(trial_t *trial, uint32_t n_ranks)
{
    const bool left_out = trial->status[trial->bad_rank][trial->bad_step] == LNT_SKIPPED_LOCAL;
    uint32_t skips = 0;

    for (uint32_t step = 0; step < STEPS; step++) {
        const bool skip = trial->status[0][step] == LNT_SKIPPED_NONFINITE;
        skips += skip;
        for (uint32_t r = 0; r < n_ranks; r++) {
            bool local = left_out && step == trial->bad_step && r == trial->bad_rank;
            ck_assert_int_eq(trial->status[r][step], skip ? LNT_SKIPPED_NONFINITE : local ? LNT_SKIPPED_LOCAL : LNT_OK);
            ck_assert(trial->scale[r][step] == (trial->dynamic ? skips != 0 ? 32 : 64 : 1));
        }
    }
    ck_assert_uint_eq(skips, trial->dynamic || !left_out ? 1 : 0);
    trial->saw_local |= left_out;
}

static void check_row(const world_t *world, bool compat, bool dynamic)
{
    char options[256];
    trial_t trial = {.model = {.n_tensors = 1,
                               .lengths = {LENGTH},
                               .algorithm = "zero_one_adam",
                               .options = options,
                               .start_seed = 5},
                     .seed = test_random(),
                     .dynamic = dynamic,
                     .compat = compat};

    (void)snprintf(options, sizeof(options),
                   "var_freeze_step=4,local_step_scaler=3,local_step_clipper=4%s,"
                   "loss_scale=%d,initial_scale_power=6,hysteresis=1",
                   compat ? ",compat=deepspeed" : ",block=64,max_dead_share=0.5", dynamic ? 0 : 1);
    for (trial.bad_step = FIRST_BAD; trial.bad_step < END_BAD; trial.bad_step++) {
        trial.bad_rank = (uint32_t)test_random_below(world->n_ranks);
        ranks_run(world, body, &trial);
        check_statuses(&trial, world->n_ranks);
    }
    ck_assert(trial.saw_local);
}

START_TEST(a_bad_local_gradient_stays_on_its_rank)
{
    static const world_t worlds[] = {{.n_ranks = 1, .quiet = true},
                                     {.n_ranks = 2, .nodes = {0, 1}, .quiet = true},
                                     {.n_ranks = 4, .nodes = {0, 1, 0, 1}, .quiet = true}};

    for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++) {
        for (int dynamic = 0; dynamic < 2; dynamic++)
            check_row(&worlds[w], _i != 0, dynamic != 0);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("local_gaps");
    TCase *tcase = tcase_create("gaps");

    tcase_add_loop_test(tcase, a_bad_local_gradient_stays_on_its_rank, 0, 2);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
