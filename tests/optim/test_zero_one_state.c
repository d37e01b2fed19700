/* State of 0/1 Adam: saved between any two steps, also in the middle of a window, and loaded into a plan with other
 * buckets it goes on bit for bit, copies that differ between ranks and late comers in the lane included.
 */
#include "ranks.h"

enum { STEPS = 44, FREEZE = 14, N_TENSORS = 5 };
enum { LATE = 22, LANE_UPDATES = 2 };
enum { MASK_EARLY = 6, MASK_LATE = 33 }; /* between two variance steps; inside a window */

typedef struct trial {
    model_t model;
    uint64_t seed;
    void *blobs[STEPS][MAX_RANKS];
    uint64_t bytes[STEPS][MAX_RANKS];
    uint64_t hashes[STEPS + 1][MAX_RANKS]; /* before the step */
    bool windows_differed, late_in_window, joined;
} trial_t;

static float grad_at(const trial_t *trial, uint32_t rank, uint64_t step, uint64_t i)
{
    if (i % 97 == 3 && step < LATE) return 0;      /* dead at the freeze, alive inside a window */
    if (i >= 400 && i < 500 && step < 9) return 0; /* its tensor is held back at first */
    return (float)(normal_at(test_mix_pair(trial->seed, step * 64 + rank), i) + 0.5 * normal_at(trial->seed, i));
}

/* Everything that a rank holds: what is common, its copies, its window. */
static uint64_t hash_all(const rank_t *rank)
{
    static const char *const views[] = {"exp_avg_local", "accumulator"};
    uint64_t hash = lnt_optim_hash(rank->optim);

    for (uint64_t i = 0; i < rank->n_elems; i++) {
        uint32_t bits;
        memcpy(&bits, &rank->x[i], sizeof(bits));
        hash = test_mix_pair(hash, bits);
    }
    for (uint32_t t = 0; t < N_TENSORS; t++) {
        for (int v = 0; v < 2; v++) {
            const uint32_t *words = lnt_optim_view(rank->optim, views[v], t);
            for (uint64_t i = 0; words != NULL && i < rank->model->lengths[t]; i++)
                hash = test_mix_pair(hash, words[i]);
        }
    }
    return hash;
}

static void take_step(const trial_t *trial, rank_t *rank, uint64_t step, float *grad)
{
    lnt_status_t status;
    const bool gap = step == 31 && rank->rank == 0;

    for (uint64_t i = 0; i < rank->n_elems; i++)
        grad[i] = grad_at(trial, rank->rank, step, i);
    if (gap) grad[7] = NAN;
    status = lnt_optim_step(rank->optim, rank_grads(rank, grad));
    ck_assert_int_eq(status, gap ? LNT_SKIPPED_LOCAL : LNT_OK);
}

/* Was a block in the lane while the window had steps, and did its coordinates join? */
static void watch_late(trial_t *trial, const rank_t *rank)
{
    const double *steps = lnt_optim_values(rank->optim, "window_steps", NULL);
    const lnt_optim_info_t info = rank_info(rank);

    trial->late_in_window |= steps != NULL && steps[0] != 0 && info.late_blocks != 0;
    trial->joined |= info.late_touched != 0 && info.late_blocks == 0;
}

/* The user's masks, set before a step; setting one again changes nothing. */
static void set_masks(rank_t *rank, uint64_t step)
{
    uint8_t mask[260];

    for (uint64_t i = 0; i < sizeof(mask); i++)
        mask[i] = i % 2 == 0;
    if (step == MASK_EARLY) ranks_ok(lnt_optim_set_mask(rank->optim, 2, mask)); /* of a tensor that is held back */
    if (step == MASK_LATE) ranks_ok(lnt_optim_set_mask(rank->optim, 4, mask));
}

static void save_body(rank_t *rank)
{
    trial_t *trial = rank->arg;
    float *grad;

    rank_open(rank, &trial->model);
    grad = calloc(rank->n_elems, sizeof(*grad));
    for (uint64_t step = 0; step < STEPS; step++) {
        uint64_t *bytes = &trial->bytes[step][rank->rank];
        set_masks(rank, step);
        trial->hashes[step][rank->rank] = hash_all(rank);
        ranks_ok(lnt_optim_state_size(rank->optim, bytes));
        trial->blobs[step][rank->rank] = malloc(*bytes);
        ranks_ok(lnt_optim_state_export(rank->optim, trial->blobs[step][rank->rank], *bytes));
        take_step(trial, rank, step, grad);
        ranks_barrier();
        if (rank->rank == 0 && trial->hashes[step][0] != trial->hashes[step][1]) trial->windows_differed = true;
        if (rank->rank == 0) watch_late(trial, rank);
    }
    trial->hashes[STEPS][rank->rank] = hash_all(rank);
    free(grad);
    rank_close(rank);
}

static void resume_body(rank_t *rank)
{
    trial_t *trial = rank->arg;
    float *grad;

    rank_open(rank, &trial->model);
    grad = calloc(rank->n_elems, sizeof(*grad));
    /* Into an optimizer that is somewhere else: whatever it has been told before must not show. */
    for (uint64_t at = STEPS; at-- > 0;) {
        ranks_ok(lnt_optim_state_import(rank->optim, trial->blobs[at][rank->rank], trial->bytes[at][rank->rank]));
        for (uint64_t step = at; step < STEPS && step < at + 4; step++) {
            if (step != at) set_masks(rank, step);
            ck_assert_uint_eq(hash_all(rank), trial->hashes[step][rank->rank]);
            take_step(trial, rank, step, grad);
        }
        set_masks(rank, at + 4);
        ck_assert_uint_eq(hash_all(rank), trial->hashes[at + 4 < STEPS ? at + 4 : STEPS][rank->rank]);
    }
    free(grad);
    rank_close(rank);
}

static void run_trial(const world_t *world, const char *codec)
{
    static const lnt_group_t groups[2] = {
        {.struct_size = sizeof(groups[0]), .lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.1},
        {.struct_size = sizeof(groups[0]), .lr = 0.02, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8}};
    char options[256];
    trial_t *trial = calloc(1, sizeof(*trial));

    trial->seed = test_random();
    trial->model = (model_t){.n_tensors = N_TENSORS,
                             .lengths = {300, 40, 260, 1, 130},
                             .group_of = {0, 1, 1, 0, 0},
                             .groups = groups,
                             .n_groups = 2,
                             .algorithm = "zero_one_adam",
                             .options = options,
                             .bucket_bytes = 1 << 20,
                             .start_seed = test_random()};
    (void)snprintf(options, sizeof(options),
                   "var_freeze_step=%d,var_update_scaler=3,local_step_scaler=6,local_step_clipper=4,block=64,"
                   "warmup_codec=%s,max_dead_share=0.3,lane_updates=%d",
                   FREEZE, codec, LANE_UPDATES);
    ranks_run(world, save_body, trial);
    ck_assert(trial->windows_differed && trial->late_in_window && trial->joined);
    trial->model.bucket_bytes = 1500;
    trial->model.segment_bytes = 300;
    ranks_run(world, resume_body, trial);
    for (int step = 0; step < STEPS; step++)
        for (uint32_t r = 0; r < world->n_ranks; r++)
            free(trial->blobs[step][r]);
    free(trial);
}

START_TEST(resumes_anywhere)
{
    run_trial(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, "int8");
    run_trial(&(world_t){.n_ranks = 4, .nodes = {0, 0, 1, 1}, .quiet = true}, "f32");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("zero_one_state");
    TCase *tcase = tcase_create("state");

    tcase_add_test(tcase, resumes_anywhere);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
