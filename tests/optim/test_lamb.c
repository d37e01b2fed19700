/* LAMB and LAMBC against an oracle in f64 written from the formulas, for all their options and several worlds; and the
 * properties that the algorithm has by construction.
 */
#include "../../optim/optim_impl.h"
#include "exact_trial.h"

enum { STEPS = TEST_SANITIZED ? 12 : 40 };

typedef struct variant {
    const char *algorithm, *options;
    double least, most, longest, clip; /* 0: no limit */
    bool uncorrected, debias, decaying_only, summed;
} variant_t;

static const variant_t variants[] = {
    {"lamb", "", 0.01, 10, 0, 0, false, false, false, false},
    {"lambc", "", 0.01, 1, 0, 0, false, false, false, false},
    {"lambc", "max_coeff=0.7,min_coeff=0.2", 0.2, 0.7, 0, 0, false, false, false, false},
    {"lamb", "max_coeff=0,min_coeff=0", 0, 0, 0, 0, false, false, false, false},
    {"lamb", "max_coeff=0.3,min_coeff=0.05", 0.05, 0.3, 0, 0, false, false, false, false},
    {"lamb", "trust_clip=on", 0.01, 1, 0, 0, false, false, false, false},
    {"lamb", "trust_clip=on,max_coeff=0.5", 0.01, 0.5, 0, 0, false, false, false, false},
    {"lamb", "always_adapt=off", 0.01, 10, 0, 0, false, false, true, false},
    {"lamb", "clamp_value=2,min_coeff=0", 0, 10, 2, 0, false, false, false, false},
    {"lamb", "bias_correction=off", 0.01, 10, 0, 0, true, false, false, false},
    {"lamb", "bias_correction=off,debias=on", 0.01, 10, 0, 0, true, true, false, false},
    {"lamb", "grad_averaging=off", 0.01, 10, 0, 0, false, false, false, true},
    {"lamb", "clip=0.5", 0.01, 10, 0, 0.5, false, false, false, false},
    {"lamb", "max_grad_norm=0.5,block=64", 0.01, 10, 0, 0.5, false, false, false, false},
};

typedef struct oracle {
    exact_trial_t trial;
    const variant_t *variant;
    double x[4096], m[4096], v[4096], g[4096], coeff[MAX_TENSORS];
} oracle_t;

static double coefficient(const variant_t *variant, double decay, double x_norm, double u_norm)
{
    double ratio;

    if (variant->decaying_only && decay == 0) return 1;
    if (variant->longest > 0) x_norm = fmin(x_norm, variant->longest);
    if (x_norm == 0 || u_norm == 0) return 1;
    ratio = fmax(x_norm / u_norm, variant->least);
    return variant->most > 0 ? fmin(ratio, variant->most) : ratio;
}

static void oracle_tensor(oracle_t *o, uint32_t t, double step)
{
    const variant_t *variant = o->variant;
    const lnt_group_t *h = exact_group(&o->trial, t);
    const uint64_t first = o->trial.first[t], n = o->trial.model.lengths[t];
    const double c1 = 1 - pow(h->beta1, step), c2 = 1 - pow(h->beta2, step);
    double u[4096], size = variant->debias ? sqrt(c2) / c1 : 1;

    for (uint64_t k = 0; k < n; k++) {
        uint64_t i = first + k;
        double m, v;
        o->m[i] = h->beta1 * o->m[i] + (variant->summed ? 1 : 1 - h->beta1) * o->g[i];
        o->v[i] = h->beta2 * o->v[i] + (1 - h->beta2) * o->g[i] * o->g[i];
        m = variant->uncorrected ? o->m[i] : o->m[i] / c1;
        v = variant->uncorrected ? o->v[i] : o->v[i] / c2;
        u[k] = m / (sqrt(v) + h->eps) + h->weight_decay * o->x[i];
    }
    o->coeff[t] = coefficient(variant, h->weight_decay, exact_norm(o->x + first, n), exact_norm(u, n));
    for (uint64_t k = 0; k < n; k++)
        o->x[first + k] -= h->lr * size * o->coeff[t] * u[k];
}

static void oracle_step(oracle_t *o, uint32_t step)
{
    double norm;

    for (uint64_t i = 0; i < o->trial.n; i++)
        o->g[i] = exact_mean(&o->trial, step, i);
    norm = exact_norm(o->g, o->trial.n);
    for (uint64_t i = 0; i < o->trial.n && o->variant->clip > 0 && norm > o->variant->clip; i++)
        o->g[i] *= o->variant->clip / norm;
    for (uint32_t t = 0; t < o->trial.model.n_tensors; t++)
        oracle_tensor(o, t, step + 1.0);
}

static void body(rank_t *rank)
{
    oracle_t *o = rank->arg;
    float *grad;

    rank_open(rank, &o->trial.model);
    grad = calloc(rank->n_elems, sizeof(*grad));
    for (uint32_t step = 0; step < STEPS; step++) {
        if (rank->rank == 0) oracle_step(o, step);
        exact_step(rank, &o->trial, step, grad);
        exact_compare(&o->trial, "parameters", rank->x, o->x, o->trial.start_squares);
        exact_compare_view(rank, &o->trial, "exp_avg", o->m, o->v);
        exact_compare_view(rank, &o->trial, "exp_avg_sq", o->v, NULL);
        exact_compare_values(rank, "lamb_coeff", o->coeff, o->trial.model.n_tensors);
        ranks_barrier();
    }
    free(grad);
    rank_close(rank);
}

static void run_variant(const world_t *world, const variant_t *variant)
{
    oracle_t *o = calloc(1, sizeof(*o));

    o->trial = exact_draw(world, variant->algorithm, variant->options);
    o->variant = variant;
    exact_settle(&o->trial);
    for (uint64_t i = 0; i < o->trial.n; i++)
        o->x[i] = (double)(float)normal_at(o->trial.model.start_seed, i);
    ranks_run(&o->trial.world, body, o);
    free(o);
}

START_TEST(lamb_follows_the_formulas)
{
    run_variant(&exact_worlds[_i % EXACT_WORLDS], &variants[_i]);
    run_variant(&exact_worlds[test_random_below(EXACT_WORLDS)], &variants[_i]);
}
END_TEST

/* ---- properties ---- */

/* Unclamped and without decay a tensor moves by lr times its own norm; with decay too, since the ratio covers it. */
static void norm_body(rank_t *rank)
{
    const exact_trial_t *trial = rank->arg;
    float *grad = calloc(trial->n, sizeof(*grad)), *before = calloc(trial->n, sizeof(*before));

    rank_open(rank, &trial->model);
    for (uint32_t step = 0; step < 10; step++) {
        memcpy(before, rank->x, trial->n * sizeof(float));
        exact_step(rank, trial, step, grad);
        for (uint32_t t = 0; t < trial->model.n_tensors; t++) {
            double moved = 0, norm = 0;
            for (uint32_t i = trial->first[t]; i < trial->first[t + 1]; i++) {
                moved += pow((double)rank->x[i] - (double)before[i], 2);
                norm += pow((double)before[i], 2);
            }
            ck_assert_double_le(fabs(sqrt(moved) - exact_group(trial, t)->lr * sqrt(norm)), 2e-6 * sqrt(norm));
        }
    }
    free(grad);
    free(before);
    rank_close(rank);
}

START_TEST(a_tensor_moves_by_its_norm_times_lr)
{
    exact_trial_t trial = exact_draw(&exact_worlds[_i], "lamb", "max_coeff=0,min_coeff=0");

    exact_settle(&trial);
    ranks_run(&trial.world, norm_body, &trial);
}
END_TEST

/* Parameters after some steps with gradients times a power of two per tensor. */
typedef struct scaled {
    exact_trial_t trial;
    bool in_other_units;
    float x[4096];
} scaled_t;

static void scaled_body(rank_t *rank)
{
    scaled_t *scaled = rank->arg;
    float *grad = calloc(scaled->trial.n, sizeof(*grad));

    rank_open(rank, &scaled->trial.model);
    for (uint32_t step = 0; step < 10; step++) {
        for (uint64_t i = 0; i < scaled->trial.n; i++) {
            int units = scaled->in_other_units ? 4 - 3 * (int)(scaled->trial.tensor_of[i] % 3) : 0;
            grad[i] = (float)ldexp(exact_grad(&scaled->trial, rank->rank, step, i), units);
        }
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
    }
    if (rank->rank == 0) memcpy(scaled->x, rank->x, scaled->trial.n * sizeof(float));
    free(grad);
    rank_close(rank);
}

/* Without eps to speak of, LAMB does not notice what a tensor's gradient is measured in; powers of two leave even the
 * roundings as they are, up to eps. */
START_TEST(units_of_gradients_do_not_matter)
{
    static scaled_t here, there;

    here.trial = exact_draw(&exact_worlds[_i], "lamb", "");
    here.trial.groups[0].eps = here.trial.groups[1].eps = 1e-30;
    there = here;
    there.in_other_units = true;
    exact_settle(&here.trial);
    exact_settle(&there.trial);
    ranks_run(&here.trial.world, scaled_body, &here);
    ranks_run(&there.trial.world, scaled_body, &there);
    ck_assert_mem_eq(here.x, there.x, here.trial.n * sizeof(float));
}
END_TEST

START_TEST(limits_that_exclude_each_other_are_refused)
{
    lnt_optim_options_t options;
    static const char *const bad[] = {"min_coeff=2,max_coeff=1", "min_coeff=2,trust_clip=on", "debias=on",
                                      "codec=sign1"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_int_eq(lnt_config_defaults(lnt_lamb_row.options, &options), LNT_OK);
        ck_assert_int_eq(lnt_config_from_text(lnt_lamb_row.options, "lamb", bad[i], &options), LNT_OK);
        ck_assert_int_eq(lnt_lamb_row.check(&options), LNT_ERR_INVALID_ARG);
    }
}
END_TEST

static void names_body(rank_t *rank)
{
    static const struct {
        const char *options;
        lnt_status_t expected;
    } cases[] = {{"clip=1,max_grad_norm=2", LNT_ERR_INVALID_ARG},
                 {"max_grad_norm=0.5,clip=0", LNT_ERR_INVALID_ARG},
                 {"max_grad_norm = 2 , clip = 1", LNT_ERR_INVALID_ARG},
                 {"clip=1,max_grad_norm=1.0", LNT_OK},
                 {"clip=1,clip=2", LNT_OK},
                 {"max_grad_norm=2", LNT_OK}};
    model_t model = {.n_tensors = 1, .lengths = {100}, .algorithm = "lamb"};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        model.options = cases[i].options;
        ranks_ok(rank_plan(rank, &model));
        ck_assert_int_eq(rank_optim(rank), cases[i].expected);
        if (cases[i].expected != LNT_OK) ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, "max_grad_norm"));
        rank_close(rank);
    }
}

START_TEST(two_names_of_one_option_must_agree)
{
    ranks_run(&(world_t){.n_ranks = 1, .quiet = true}, names_body, NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lamb");
    TCase *tcase = tcase_create("lamb");

    tcase_add_loop_test(tcase, lamb_follows_the_formulas, 0, sizeof(variants) / sizeof(variants[0]));
    tcase_add_loop_test(tcase, a_tensor_moves_by_its_norm_times_lr, 0, EXACT_WORLDS);
    tcase_add_loop_test(tcase, units_of_gradients_do_not_matter, 0, EXACT_WORLDS);
    tcase_add_test(tcase, limits_that_exclude_each_other_are_refused);
    tcase_add_test(tcase, two_names_of_one_option_must_agree);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
