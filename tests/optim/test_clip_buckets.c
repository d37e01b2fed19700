/* Clipping by bucket: every rank limits its own gradient of every bucket before the exchange, by a norm of its own;
 * and what is refused.
 */
#include "clip_trial.h"

/* Squares of one bucket of a rank: elements [begin, end), in f64. */
static double square(const trial_t *trial, uint32_t rank, uint32_t step, uint64_t begin, uint64_t end)
{
    double sum = 0;

    for (uint64_t i = begin; i < end; i++)
        sum += (double)grad_at(trial, rank, step, i) * (double)grad_at(trial, rank, step, i);
    return sum;
}

/* beta1 = beta2 = 0 and eps far above: x moves by lr * g / (|g| + eps), from which the mean g can be read. One tensor
 * per bucket. */
static void check_buckets(const trial_t *trial, const world_t *world, double clip, const float *start)
{
    const double eps = 1e3;
    uint64_t at = 0;

    for (uint32_t t = 0; t < trial->model.n_tensors; at += trial->model.lengths[t++]) {
        double factor[MAX_RANKS];
        for (uint32_t r = 0; r < world->n_ranks; r++) {
            double norm = sqrt(square(trial, r, 0, at, at + trial->model.lengths[t])),
                   limit = clip / sqrt(trial->model.n_tensors);
            factor[r] = norm > limit ? limit / norm : 1;
        }
        for (uint64_t i = at; i < at + trial->model.lengths[t]; i++) {
            double g = 0, move;
            for (uint32_t r = 0; r < world->n_ranks; r++)
                g += factor[r] * (double)grad_at(trial, r, 0, i) / world->n_ranks;
            move = g / (fabs(g) + eps);
            ck_assert_double_le(fabs((double)start[i] - (double)trial->x[i] - move), 1e-6);
        }
    }
}

static void run_buckets(const world_t *world, double clip, double loud, double scale)
{
    char options[96] = "";
    lnt_group_t group;
    float start[1024];
    trial_t trial = make_trial(options);

    lnt_group_defaults(&group);
    group.lr = 1;
    group.beta1 = group.beta2 = 0;
    group.eps = 1e3;
    (void)snprintf(options, sizeof(options), "clip=%g,clip_mode=bucket,block=64", clip);
    trial.model = (model_t){.n_tensors = 4,
                            .lengths = {256, 256, 256, 256},
                            .algorithm = "adamw",
                            .options = options,
                            .groups = &group,
                            .n_groups = 1,
                            .bucket_bytes = 1024,
                            .start_seed = 11};
    trial.loud = loud;
    trial.scale = scale;
    trial.n_steps = 1;
    trial.x = calloc(1024, sizeof(float));
    for (uint64_t i = 0; i < 1024; i++)
        start[i] = (float)normal_at(11, i);
    ranks_run(world, body, &trial);
    ck_assert_double_eq(trial.factors[0], 1);
    ck_assert_double_le(trial.norms[0], clip * (1 + 1e-6)); /* of the mean of what was clipped */
    ck_assert_double_gt(trial.norms[0], 0);
    check_buckets(&trial, world, clip, start);
    free(trial.x);
}

/* The mean reported is at most clip for any input, also where one rank is loud: no bucket of its passes the limit. */
START_TEST(every_bucket_of_every_rank_is_limited_by_its_own_norm)
{
    run_buckets(&worlds[_i], 20, 1, 0);
    run_buckets(&worlds[_i], 60, 1 + 30 * test_random_unit(), 1024);
    run_buckets(&worlds[_i], 1e-3, 1, 4);
}
END_TEST

/* Where all buckets have one norm the limit of the whole is the limit of each: one rank clips exactly as globally. */
static void equal_norms_body(rank_t *rank)
{
    const trial_t *trial = rank->arg;
    float grad[1024];

    rank_open(rank, &trial->model);
    for (int i = 0; i < 1024; i++)
        grad[i] = (float)normal_at(trial->seed, (uint64_t)i % 256);
    for (uint32_t step = 0; step < 3; step++)
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
    memcpy(trial->x, rank->x, sizeof(grad));
    rank_close(rank);
}

START_TEST(buckets_of_equal_norm_are_clipped_as_one)
{
    trial_t trial = make_trial(NULL);
    float x[2][1024];

    trial.model.n_tensors = 4;
    for (int mode = 0; mode < 2; mode++) {
        for (int t = 0; t < 4; t++)
            trial.model.lengths[t] = 256;
        trial.model.algorithm = "adamw";
        trial.model.options = mode ? "clip=4,clip_mode=bucket,block=64" : "clip=4,block=64";
        trial.model.bucket_bytes = 1024;
        trial.x = x[mode];
        ranks_run(&(world_t){.n_ranks = 1}, equal_norms_body, &trial);
    }
    for (int i = 0; i < 1024; i++)
        ck_assert_double_le(fabs((double)x[0][i] - (double)x[1][i]), 1e-6);
}
END_TEST

static void refuse_body(rank_t *rank)
{
    const trial_t *trial = rank->arg;
    uint64_t bytes, hash;
    void *blob;
    model_t other = trial->model;

    rank_open(rank, &trial->model);
    ranks_ok(lnt_optim_state_size(rank->optim, &bytes));
    blob = malloc(bytes);
    ranks_ok(lnt_optim_state_export(rank->optim, blob, bytes));
    rank_close(rank);
    rank_open(rank, &other);
    ranks_ok(lnt_optim_state_import(rank->optim, blob, bytes));
    rank_close(rank);
    other.bucket_bytes *= 2;
    rank_open(rank, &other);
    hash = lnt_optim_hash(rank->optim);
    ck_assert_int_eq(lnt_optim_state_import(rank->optim, blob, bytes), LNT_ERR_STATE_MISMATCH);
    ck_assert_uint_eq(lnt_optim_hash(rank->optim), hash);
    rank_close(rank);
    free(blob);
}

START_TEST(with_buckets_their_size_is_part_of_the_numerics)
{
    trial_t trial = make_trial("clip=10,clip_mode=bucket,freeze_step=5");

    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, refuse_body, &trial);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("clip_buckets");
    TCase *tcase = tcase_create("clip_buckets");

    tcase_add_loop_test(tcase, every_bucket_of_every_rank_is_limited_by_its_own_norm, 0, N_WORLDS);
    tcase_add_test(tcase, buckets_of_equal_norm_are_clipped_as_one);
    tcase_add_test(tcase, with_buckets_their_size_is_part_of_the_numerics);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
