/* The heteroscedastic quadratic: 1/2 sum h x^2 with h log-uniform in [1e-3, 1] and noise in proportion to h. Here signs
 * without error feedback fail by orders of magnitude, and with it they end beside the uncompressed twin with the same
 * freeze.
 */
#include <math.h>

#include "../../kernels/error_store.h"
#include "ranks.h"

/* Under sanitizers a few steps run for the sake of memory and threads; they say nothing about convergence. The seed is
 * fixed, unlike everywhere else: limits on a final loss are measured facts of one problem, not bounds that hold for
 * every draw. LNT_TEST_SEED does not change it. */
enum { STEPS = TEST_SANITIZED ? 50 : 3000, DIM = 4096, FREEZE = STEPS / 5, SEED = 20211 };

typedef struct quadratic {
    model_t model;
    uint64_t seed;
    double loss;
} quadratic_t;

static float curvature(const quadratic_t *quadratic, uint64_t i)
{
    return (float)pow(10.0, -3.0 * unit_at(quadratic->seed, i));
}

static double rate_at(uint32_t step)
{
    const uint32_t warm = STEPS / 10;

    return 2e-2 * (step < warm ? (step + 1.0) / warm : (double)(STEPS - step) / (STEPS - warm));
}

static void body(rank_t *rank)
{
    quadratic_t *quadratic = rank->arg;
    lnt_group_t group;
    double loss = 0;
    float *h = calloc(DIM, sizeof(*h)), *grad = calloc(DIM, sizeof(*grad));

    for (uint64_t i = 0; i < DIM; i++)
        h[i] = curvature(quadratic, i);
    rank_open(rank, &quadratic->model);
    ranks_ok(lnt_optim_get_group(rank->optim, 0, &group));
    for (uint32_t step = 0; step < STEPS; step++) {
        uint64_t place = test_mix_pair(quadratic->seed, 8u * step + rank->rank);
        group.lr = rate_at(step);
        ranks_ok(lnt_optim_set_group(rank->optim, 0, &group));
        for (uint64_t i = 0; i < DIM; i++)
            grad[i] = h[i] * (rank->x[i] + (float)(3.46 * (unit_at(place, i) - 0.5)));
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
    }
    expect_equal_ranks(rank);
    for (uint64_t i = 0; i < DIM; i++)
        loss += 0.5 * (double)h[i] * (double)rank->x[i] * (double)rank->x[i];
    if (rank->rank == 0) quadratic->loss = loss;
    free(h);
    free(grad);
    rank_close(rank);
}

static double final_loss(uint64_t seed, const char *more, lnt_error_dtype_t dtype)
{
    const world_t world = {.n_ranks = 4, .nodes = {0, 1, 2, 3}};
    char options[96];
    quadratic_t quadratic = {.model = {.n_tensors = 1,
                                       .lengths = {DIM},
                                       .algorithm = "onebit_adam",
                                       .options = options,
                                       .error_dtype = dtype,
                                       .start_seed = seed},
                             .seed = seed};

    (void)snprintf(options, sizeof(options), "freeze_step=%d,%s", FREEZE, more);
    ranks_run(&world, body, &quadratic);
    printf("%-28s errors %-5s final loss %g\n", more, lnt_error_row(dtype)->name, quadratic.loss);
    return quadratic.loss;
}

START_TEST(error_feedback_is_what_makes_signs_work)
{
    const double twin = final_loss(SEED, "compression=off", LNT_ERROR_F32);
    const double full = final_loss(SEED, "compression=on", LNT_ERROR_F32);
    const double bf16 = final_loss(SEED, "compression=on", LNT_ERROR_BF16);
    const double int8 = final_loss(SEED, "compression=on", LNT_ERROR_INT8);
    const double l1 = final_loss(SEED, "scale_rule=l1", LNT_ERROR_F32);
    const double none = final_loss(SEED, "error_feedback=none", LNT_ERROR_F32);

    if (TEST_SANITIZED) {
        test_say_skipped("convergence on the quadratic", "too slow under sanitizers, the dev build checks it");
        return;
    }
    ck_assert_double_le(full, 1.5 * twin);
    ck_assert_double_le(l1, 1.5 * twin);
    ck_assert_double_le(bf16, 1.5 * twin);
    ck_assert_double_le(int8, 1.5 * twin);
    ck_assert_double_ge(none, 10 * full);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("optim_quadratic");
    TCase *tcase = tcase_create("quadratic");

    tcase_add_test(tcase, error_feedback_is_what_makes_signs_work);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
