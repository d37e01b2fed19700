/* Gradients and model copies in bf16 and f16 through every algorithm and variant, in all its phases: the master, the
 * moments and the errors are those of an f32 run that starts from the same rounded values and gets the same rounded
 * gradients, and the model copy is the master, rounded. A dynamic loss scale with an overflow goes with it.
 */
#include <math.h>

#include "../../optim/optim_impl.h"
#include "ranks.h"
#include "small_options.h"

enum { STEPS = 14, N_TENSORS = 4 };

typedef struct trial {
    model_t model;
    lnt_dtype_t values; /* the type that all values have, also those of the f32 twin */
    uint64_t seed;
    bool scaled;
    uint64_t hash, errors[MAX_RANKS];
    lnt_phase_t first, last;
} trial_t;

/* Times the loss scale before it is rounded, as backward would do it; element 5 overflows f16 at step 6. */
static float grad_at(const trial_t *trial, const rank_t *rank, uint32_t step, uint64_t i)
{
    double g = normal_at(test_mix_pair(trial->seed, step * 64u + rank->rank), i);

    if (trial->scaled && step == 6 && i == 5 && rank->rank == 1) return INFINITY;
    return float_as(trial->values, (float)(g * lnt_optim_loss_scale(rank->optim)));
}

static void fill(const trial_t *trial, rank_t *rank, uint32_t step, float *grad, uint16_t *codes)
{
    uint64_t at = 0;

    for (uint64_t i = 0; i < rank->n_elems; i++) {
        grad[i] = grad_at(trial, rank, step, i);
        if (trial->model.dtype != LNT_F32) codes[i] = half_of(trial->model.dtype, grad[i]);
    }
    for (uint32_t t = 0; t < N_TENSORS; at += rank->model->lengths[t++])
        rank->grads[t] = trial->model.dtype == LNT_F32 ? (const void *)(grad + at) : codes + at;
}

/* Between syncs copies are not their masters. */
static bool in_window(const rank_t *rank)
{
    const double *sum = lnt_optim_values(rank->optim, "sum_lr", NULL);

    return sum != NULL && sum[0] != 0;
}

static void check_copies(const rank_t *rank, const trial_t *trial)
{
    uint64_t at = 0;

    if (in_window(rank)) return;
    for (uint32_t t = 0; t < N_TENSORS && trial->model.dtype != LNT_F32; t++) {
        for (uint64_t i = 0; i < trial->model.lengths[t]; i++, at++)
            ck_assert_uint_eq(rank->x16[at], half_of(trial->model.dtype, lnt_plan_master(rank->plan, t)[i]));
    }
}

static void body(rank_t *rank)
{
    trial_t *trial = rank->arg;
    float *grad;
    uint16_t *codes;

    ranks_ok(rank_plan(rank, &trial->model));
    for (uint64_t i = 0; i < rank->n_elems; i++)
        rank->x[i] = float_as(trial->values, rank->x[i]);
    ranks_ok(rank_optim(rank));
    ranks_ok(lnt_plan_commit(rank->plan));
    grad = calloc(rank->n_elems, sizeof(*grad));
    codes = calloc(rank->n_elems, sizeof(*codes));
    if (rank->rank == 0) trial->first = rank_info(rank).phase;
    for (uint32_t step = 0; step < STEPS; step++) {
        fill(trial, rank, step, grad, codes);
        ck_assert_int_eq(lnt_optim_step(rank->optim, rank->grads),
                         trial->scaled && step == 6 ? LNT_SKIPPED_NONFINITE : LNT_OK);
        expect_equal_ranks(rank);
        check_copies(rank, trial);
    }
    if (rank->rank == 0) trial->hash = lnt_optim_hash(rank->optim);
    if (rank->rank == 0) trial->last = rank_info(rank).phase;
    trial->errors[rank->rank] = rank_error_hash(rank);
    free(grad);
    free(codes);
    rank_close(rank);
}

static void check_row(const char *algorithm, const world_t *world, lnt_dtype_t dtype)
{
    char options[256];
    trial_t trial = {.model = {.n_tensors = N_TENSORS,
                               .lengths = {130, 7, 300, 64},
                               .algorithm = algorithm,
                               .options = options,
                               .bucket_bytes = 1200,
                               .dtype = dtype,
                               .start_seed = 31},
                     .values = dtype,
                     .seed = test_random(),
                     .scaled = has_option(algorithm, "loss_scale")},
            twin;

    small_options(algorithm, options, sizeof(options));
    if (trial.scaled) {
        (void)snprintf(options + strlen(options), sizeof(options) - strlen(options),
                       "%sloss_scale=0,initial_scale_power=6,hysteresis=1,loss_scale_window=4",
                       options[0] != '\0' ? "," : "");
    }
    twin = trial;
    twin.model.dtype = LNT_F32;
    ranks_run(world, body, &trial);
    ranks_run(world, body, &twin);
    ck_assert_msg(trial.hash == twin.hash, "%s in %s", algorithm, lnt_dtype_name(dtype));
    ck_assert_mem_eq(trial.errors, twin.errors, sizeof(trial.errors));
    ck_assert_msg(trial.first != trial.last || !has_option(algorithm, "freeze_step"), "%s stays in its first phase",
                  algorithm);
}

static void check_all(lnt_dtype_t dtype)
{
    static const world_t worlds[] = {{.n_ranks = 2, .nodes = {0, 1}, .quiet = true},
                                     {.n_ranks = 4, .nodes = {0, 1, 0, 1}, .quiet = true}};

    for (size_t n = 0; lnt_optim_list()[n] != NULL; n++) {
        const lnt_optim_variant_t *variant = lnt_optim_row_by_name(lnt_optim_list()[n])->variants;
        for (int w = 0; w < 2; w++)
            check_row(lnt_optim_list()[n], &worlds[w], dtype);
        for (; variant != NULL && variant->row != NULL; variant++)
            check_row(variant->row->name, &worlds[0], dtype);
    }
}

START_TEST(bf16_through_every_algorithm)
{
    check_all(LNT_BF16);
}
END_TEST

START_TEST(f16_through_every_algorithm)
{
    check_all(LNT_F16);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("precision");
    TCase *tcase = tcase_create("precision");

    tcase_add_test(tcase, bf16_through_every_algorithm);
    tcase_add_test(tcase, f16_through_every_algorithm);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
