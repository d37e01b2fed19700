/* LANS against an oracle in f64 written from the formulas, and what it is invariant to. */
#include "exact_runs.h"

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

static void follow(void *oracle, uint32_t step)
{
    oracle_t *o = oracle;

    for (uint32_t t = 0; t < o->trial.model.n_tensors; t++)
        oracle_tensor(o, t, step);
}

static void compare(const rank_t *rank, const void *oracle)
{
    const oracle_t *o = oracle;

    exact_compare(&o->trial, "parameters", rank->x, o->x, o->trial.start_squares);
    exact_compare_view(rank, &o->trial, "exp_avg", o->m, o->v);
    exact_compare_view(rank, &o->trial, "exp_avg_sq", o->v, NULL);
    exact_compare_values(rank, "lans_coeff", o->ratio[0], o->trial.model.n_tensors);
    exact_compare_values(rank, "lans_coeff_gradient", o->ratio[1], o->trial.model.n_tensors);
}

START_TEST(lans_follows_the_formulas)
{
    oracle_t *o = calloc(1, sizeof(*o));
    exact_run_t run = {&o->trial, STEPS, o, follow, compare};

    o->trial = exact_draw(&exact_worlds[_i], "lans", _i % 2 ? "block=64" : "");
    exact_run(&run, o->x);
    free(o);
}
END_TEST

/* Every tensor in units of its own, and other units at every step: the normalised gradient is the same. */
static int by_tensor_and_step(uint32_t tensor, uint32_t step)
{
    return (int)((tensor + step) % 5) * 3 - 6;
}

START_TEST(units_of_gradients_never_matter)
{
    units_do_not_matter(&exact_worlds[_i], "lans", by_tensor_and_step);
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
