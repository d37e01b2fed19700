/* LANS against an oracle in f64 written from the formulas, and what it is invariant to. */
#include "exact_trial.h"

enum { STEPS = 40 };

typedef struct oracle {
    exact_trial_t trial;
    double x[4096], m[4096], v[4096], ratio[2][MAX_TENSORS];
} oracle_t;

static double ratio(double x_norm, double u_norm)
{
    return x_norm > 0 && u_norm > 0 ? x_norm / u_norm : 1;
}

static void oracle_tensor(oracle_t *o, uint32_t t, uint32_t step)
{
    const lnt_group_t *h = exact_group(&o->trial, t);
    const uint64_t first = o->trial.first[t], n = o->trial.model.lengths[t];
    double g[4096], r[4096], c[4096], norm, x_norm = exact_norm(o->x + first, n);

    for (uint64_t k = 0; k < n; k++)
        g[k] = exact_mean(&o->trial, step, first + k);
    norm = exact_norm(g, n);
    for (uint64_t k = 0, i = first; k < n; k++, i++) {
        double root;
        if (norm > 0) g[k] /= norm + h->eps;
        o->m[i] = h->beta1 * o->m[i] + (1 - h->beta1) * g[k];
        o->v[i] = h->beta2 * o->v[i] + (1 - h->beta2) * g[k] * g[k];
        root = sqrt(o->v[i] / (1 - pow(h->beta2, step + 1.0))) + h->eps;
        r[k] = o->m[i] / (1 - pow(h->beta1, step + 1.0)) / root + h->weight_decay * o->x[i];
        c[k] = g[k] / root + h->weight_decay * o->x[i];
    }
    o->ratio[0][t] = ratio(x_norm, exact_norm(r, n));
    o->ratio[1][t] = ratio(x_norm, exact_norm(c, n));
    for (uint64_t k = 0; k < n; k++)
        o->x[first + k] -= h->lr * (h->beta1 * o->ratio[0][t] * r[k] + (1 - h->beta1) * o->ratio[1][t] * c[k]);
}

static void body(rank_t *rank)
{
    oracle_t *o = rank->arg;
    float *grad;

    rank_open(rank, &o->trial.model);
    grad = calloc(rank->n_elems, sizeof(*grad));
    for (uint32_t step = 0; step < STEPS; step++) {
        for (uint32_t t = 0; t < o->trial.model.n_tensors && rank->rank == 0; t++)
            oracle_tensor(o, t, step);
        exact_step(rank, &o->trial, step, grad);
        exact_compare(&o->trial, "parameters", rank->x, o->x, o->trial.start_squares);
        exact_compare_view(rank, &o->trial, "exp_avg", o->m, o->v);
        exact_compare_view(rank, &o->trial, "exp_avg_sq", o->v, NULL);
        exact_compare_values(rank, "lans_coeff", o->ratio[0], o->trial.model.n_tensors);
        exact_compare_values(rank, "lans_coeff_gradient", o->ratio[1], o->trial.model.n_tensors);
        ranks_barrier();
    }
    free(grad);
    rank_close(rank);
}

START_TEST(lans_follows_the_formulas)
{
    oracle_t *o = calloc(1, sizeof(*o));

    o->trial = exact_draw(&exact_worlds[_i], "lans", _i % 2 ? "block=64" : "");
    exact_settle(&o->trial);
    for (uint64_t i = 0; i < o->trial.n; i++)
        o->x[i] = (double)(float)normal_at(o->trial.model.start_seed, i);
    ranks_run(&o->trial.world, body, o);
    free(o);
}
END_TEST

/* Every tensor in units of its own, and other units at every step: the normalised gradient is the same, up to eps. */
typedef struct scaled {
    exact_trial_t trial;
    bool in_other_units;
    float x[4096];
} scaled_t;

static void scaled_body(rank_t *rank)
{
    scaled_t *scaled = rank->arg;
    float *grad = calloc(scaled->trial.n, sizeof(*grad)), *before = calloc(scaled->trial.n, sizeof(*before));

    rank_open(rank, &scaled->trial.model);
    for (uint32_t step = 0; step < 10; step++) {
        memcpy(before, rank->x, scaled->trial.n * sizeof(float));
        for (uint64_t i = 0; i < scaled->trial.n; i++) {
            int units = scaled->in_other_units ? (int)((scaled->trial.tensor_of[i] + step) % 5) * 3 - 6 : 0;
            grad[i] = (float)ldexp(exact_grad(&scaled->trial, rank->rank, step, i), units);
        }
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
        for (uint32_t t = 0; t < scaled->trial.model.n_tensors; t++) { /* at most lr times the norm */
            double moved = 0, norm = 0;
            for (uint32_t i = scaled->trial.first[t]; i < scaled->trial.first[t + 1]; i++) {
                moved += pow((double)rank->x[i] - (double)before[i], 2);
                norm += pow((double)before[i], 2);
            }
            ck_assert_double_le(sqrt(moved), (exact_group(&scaled->trial, t)->lr + 1e-6) * sqrt(norm));
        }
    }
    if (rank->rank == 0) memcpy(scaled->x, rank->x, scaled->trial.n * sizeof(float));
    free(grad);
    free(before);
    rank_close(rank);
}

START_TEST(units_of_gradients_never_matter)
{
    static scaled_t here, there;

    here.trial = exact_draw(&exact_worlds[_i], "lans", "");
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

int main(void)
{
    Suite *suite = suite_create("lans");
    TCase *tcase = tcase_create("lans");

    tcase_add_loop_test(tcase, lans_follows_the_formulas, 0, EXACT_WORLDS);
    tcase_add_loop_test(tcase, units_of_gradients_never_matter, 0, EXACT_WORLDS);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
