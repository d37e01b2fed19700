/* A layered quadratic: 16 tensors whose gradients are 1 to 1e-4 of the largest, 1/2 sum h (x - c)^2 in every layer's
 * own units. LAMB does not notice the units. 1-bit LAMB with a scale per block, or with one scale for the whole model
 * and scaling coefficients, ends beside it; with one scale and no coefficients the small layers drown: the ablation
 * that must fail.
 */
#include <math.h>

#include "ranks.h"

/* Under sanitizers a few steps run for the sake of memory and threads; they say nothing about convergence. The seed is
 * fixed, as in test_optim_quadratic.c, and for its reason. */
enum { STEPS = TEST_SANITIZED ? 30 : 2000, LAYERS = 16, WIDTH = 128, DIM = LAYERS * WIDTH, FREEZE = STEPS / 5 };
static const uint64_t SEED = 30411;

typedef struct quadratic {
    model_t model;
    double loss;
} quadratic_t;

static float curvature(uint64_t i)
{
    return (float)pow(10.0, -unit_at(SEED, i));
}

static float centre(uint64_t i)
{
    return (float)normal_at(SEED + 1, i);
}

static float units_of(uint64_t i)
{
    return (float)pow(10.0, -4.0 * (double)(i / WIDTH) / (LAYERS - 1));
}

static double rate_at(uint32_t step)
{
    const uint32_t warm = STEPS / 10;

    return 3e-2 * (step < warm ? (step + 1.0) / warm : (double)(STEPS - step) / (STEPS - warm));
}

static void body(rank_t *rank)
{
    quadratic_t *quadratic = rank->arg;
    lnt_group_t group;
    double loss = 0;
    float h[DIM], c[DIM], units[DIM], grad[DIM];

    for (uint64_t i = 0; i < DIM; i++) {
        h[i] = curvature(i);
        c[i] = centre(i);
        units[i] = units_of(i);
    }
    rank_open(rank, &quadratic->model);
    ranks_ok(lnt_optim_get_group(rank->optim, 0, &group));
    group.eps = 1e-12;
    for (uint32_t step = 0; step < STEPS; step++) {
        uint64_t place = test_mix_pair(SEED, 8u * step + rank->rank);
        group.lr = rate_at(step);
        ranks_ok(lnt_optim_set_group(rank->optim, 0, &group));
        for (uint64_t i = 0; i < DIM; i++)
            grad[i] = units[i] * h[i] * (rank->x[i] - c[i] + (float)(3.46 * (unit_at(place, i) - 0.5)));
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
    }
    expect_equal_ranks(rank);
    for (uint64_t i = 0; i < DIM; i++)
        loss += 0.5 * (double)h[i] * pow((double)(rank->x[i] - c[i]), 2);
    if (rank->rank == 0) quadratic->loss = loss;
    rank_close(rank);
}

static double final_loss(const char *algorithm, const char *more)
{
    const world_t world = {.n_ranks = 4, .nodes = {0, 1, 2, 3}, .no_thread = true};
    char options[128];
    quadratic_t quadratic = {
        .model = {.n_tensors = LAYERS, .algorithm = algorithm, .options = options, .start_seed = SEED + 2}};

    for (uint32_t t = 0; t < LAYERS; t++)
        quadratic.model.lengths[t] = WIDTH;
    if (strcmp(algorithm, "lamb") == 0) {
        options[0] = '\0';
    } else {
        (void)snprintf(options, sizeof(options), "freeze_step=%d%s", FREEZE, more);
    }
    ranks_run(&world, body, &quadratic);
    printf("%-12s %-44s final loss %g\n", algorithm, more, quadratic.loss);
    return quadratic.loss;
}

START_TEST(scaling_coefficients_are_what_makes_one_scale_work)
{
    const double lamb = final_loss("lamb", ""), blocks = final_loss("onebit_lamb", "");
    const double bare = final_loss("onebit_lamb", ",momentum_scaling=off");
    const double one = final_loss("onebit_lamb", ",compat=deepspeed");
    const double failing = final_loss("onebit_lamb", ",compat=deepspeed,momentum_scaling=off");

    if (TEST_SANITIZED) {
        test_say_skipped("convergence on the layered quadratic", "too slow under sanitizers, the dev build checks it");
        return;
    }
    ck_assert_double_le(blocks, 1.5 * lamb);
    ck_assert_double_le(bare, 1.5 * lamb); /* a scale per block needs no coefficients */
    ck_assert_double_le(one, 2 * lamb);
    ck_assert_double_ge(failing, 100 * one);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lamb_quadratic");
    TCase *tcase = tcase_create("quadratic");

    tcase_add_test(tcase, scaling_coefficients_are_what_makes_one_scale_work);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
