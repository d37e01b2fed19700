/* Update rules over arrays: every implementation against the formulas of docs/optimizers.md, evaluated here in f64 and
 * rounded to f32 after every operation, byte for byte, at all sizes around a vector, any alignment, in guarded memory.
 */
#include "../../optim/update.h"
#include "../kernel/array_testing.h"

enum { G, M, V, X, DEAD, N_ARGUMENTS };

typedef struct round {
    lnt_update_ops_t ops;
    uint64_t n;
    array_kind_t kind;
    lnt_adam_consts_t k;
    argument_t args[N_ARGUMENTS];
    float *expected[N_ARGUMENTS];
} round_t;

/* One f32 operation each. */
static float add(float a, float b)
{
    return (float)((double)a + (double)b);
}

static float sub(float a, float b)
{
    return (float)((double)a - (double)b);
}

static float mul(float a, float b)
{
    return (float)((double)a * (double)b);
}

static float over(float a, float b)
{
    return (float)((double)a / (double)b);
}

static float root(float a)
{
    return (float)sqrt((double)a);
}

static float share(double low, double high)
{
    return (float)(low + (high - low) * (double)rng_below(1000) / 1000);
}

/* Constants of some step of some run; now and then of one that has diverged. */
static void draw_consts(round_t *round)
{
    lnt_adam_consts_t *k = &round->k;
    k->b1 = share(0, 0.999);
    k->o1 = 1 - k->b1;
    k->b2 = share(0.9, 0.9999);
    k->o2 = 1 - k->b2;
    k->i1 = share(1, 10);
    k->i2 = share(1, 1000);
    k->lr = rng_below(8) ? share(0, 0.1) : array_value(ARRAY_EDGES);
    k->eps = rng_below(8) ? 1e-8f : array_value(ARRAY_FINITE_EDGES);
    k->w = rng_below(2) ? 0 : share(0, 0.01);
    k->l2 = rng_below(2) ? 0 : share(0, 0.1);
}

static float *fill(round_t *round, int which)
{
    return argument_fill(&round->args[which], round->n, (guarded_place_t)rng_below(GUARDED_PLACES), round->kind);
}

static float old(const round_t *round, int which, uint64_t i)
{
    return argument_old(&round->args[which])[i];
}

static float moved(const lnt_adam_consts_t *k, float x, float m, float denominator)
{
    float step = mul(k->lr, over(mul(m, k->i1), denominator));
    return sub(sub(x, step), mul(k->w, x));
}

static void expect_adam(const round_t *round, const float *clip)
{
    const lnt_adam_consts_t *k = &round->k;
    for (uint64_t i = 0; i < round->n; i++) {
        float g = clip ? mul(old(round, G, i), *clip) : old(round, G, i), x = old(round, X, i), m, v;
        if (k->l2 != 0) g = add(g, mul(k->l2, x));
        m = add(mul(k->b1, old(round, M, i)), mul(k->o1, g));
        v = add(mul(k->b2, old(round, V, i)), mul(k->o2, mul(g, g)));
        round->expected[M][i] = m;
        round->expected[V][i] = v;
        round->expected[X][i] = moved(k, x, m, add(root(mul(v, k->i2)), k->eps));
    }
}

static void check_adam(round_t *round)
{
    const float *g = fill(round, G), clip = share(0, 1);
    float *m = fill(round, M), *v = fill(round, V), *x = fill(round, X);
    const float *factor = rng_below(2) ? &clip : NULL;
    expect_adam(round, factor);
    round->ops.adam(&round->k, g, factor, round->n, m, v, x);
    CK_SAME_VALUES("adam, m", m, round->expected[M], round->n)
    CK_SAME_VALUES("adam, v", v, round->expected[V], round->n)
    CK_SAME_VALUES("adam, x", x, round->expected[X], round->n)
    ck_assert(argument_unchanged(&round->args[G]) && argument_tidy(&round->args[M]));
    ck_assert(argument_tidy(&round->args[V]) && argument_tidy(&round->args[X]));
}

static void check_momentum(round_t *round)
{
    float *value = fill(round, G);
    const float *m = fill(round, M);
    for (uint64_t i = 0; i < round->n; i++)
        round->expected[G][i] = add(mul(round->k.b1, old(round, M, i)), mul(round->k.o1, old(round, G, i)));
    round->ops.momentum(&round->k, m, round->n, value);
    CK_SAME_VALUES("momentum", value, round->expected[G], round->n)
    ck_assert(argument_unchanged(&round->args[M]) && argument_tidy(&round->args[G]));
}

/* None, some or all are dead, or no mask is given. */
static const uint8_t *fill_dead(round_t *round)
{
    const uint64_t share_of_dead = rng_below(4);
    uint8_t *dead = argument_place(&round->args[DEAD], round->n, 1, (guarded_place_t)rng_below(GUARDED_PLACES));
    for (uint64_t i = 0; i < round->n; i++)
        dead[i] = rng_below(3) < share_of_dead;
    argument_note(&round->args[DEAD]);
    return rng_below(5) ? dead : NULL;
}

static void check_frozen(round_t *round)
{
    const uint8_t *dead = fill_dead(round);
    const bool stream = rng_below(2);
    const float *value = fill(round, G), *denominator = fill(round, V);
    float *m = fill(round, M), *x = fill(round, X);
    for (uint64_t i = 0; i < round->n; i++) {
        bool stays = dead && dead[i];
        round->expected[M][i] = stays ? old(round, M, i) : value[i];
        round->expected[X][i] = stays ? old(round, X, i) : moved(&round->k, old(round, X, i), value[i], denominator[i]);
    }
    round->ops.frozen(&round->k, value, denominator, dead, stream, round->n, m, x);
    CK_SAME_VALUES("frozen, m", m, round->expected[M], round->n)
    CK_SAME_VALUES("frozen, x", x, round->expected[X], round->n)
    ck_assert(argument_unchanged(&round->args[G]) && argument_unchanged(&round->args[V]));
    ck_assert(argument_unchanged(&round->args[DEAD]));
    ck_assert(argument_tidy(&round->args[M]) && argument_tidy(&round->args[X]));
}

static void walk_kinds(round_t *round, void (*check)(round_t *round))
{
    for (int kind = 0; kind < ARRAY_KINDS; kind++) {
        for (int again = 0; again < 4; again++) {
            round->kind = kind;
            draw_consts(round);
            check(round);
        }
    }
}

static void walk(void (*check)(round_t *round))
{
    size_t n_impls;
    const lnt_kernel_impl_t *impls = lnt_kernel_impls(&n_impls);
    round_t round;
    for (int a = 0; a < N_ARGUMENTS; a++) {
        round.args[a] = argument_create();
        round.expected[a] = calloc(ARRAY_MAX, sizeof(float));
    }
    for (size_t r = 0; r < n_impls; r++) {
        if (!impls[r].usable()) continue;
        round.ops = lnt_update_ops_of(&impls[r]);
        for (size_t s = 0; s < N_ARRAY_SIZES; s++) {
            round.n = array_sizes[s];
            walk_kinds(&round, check);
        }
    }
    for (int a = 0; a < N_ARGUMENTS; a++) {
        argument_destroy(&round.args[a]);
        free(round.expected[a]);
    }
}

static void (*const checks[])(round_t *round) = {check_adam, check_momentum, check_frozen};
enum { N_CHECKS = sizeof(checks) / sizeof(checks[0]) };

START_TEST(rules_follow_the_formulas)
{
    rng_fork((uint64_t)_i);
    walk(checks[_i]);
}
END_TEST

/* The table goes by name: a misspelled row would silently leave the reference in its place. A row without kernels on
 * this kind of machine has no rules either. */
START_TEST(every_row_of_kernels_brings_rules)
{
    size_t n_impls;
    const lnt_kernel_impl_t *impls = lnt_kernel_impls(&n_impls);
    for (size_t r = 0; r < n_impls; r++) {
        const lnt_update_ops_t *ops = lnt_update_ops_named(impls[r].name);
        ck_assert_msg((ops != NULL) == (impls[r].arrays != NULL), "update rules of %s", impls[r].name);
    }
    ck_assert_ptr_null(lnt_update_ops_named("auto"));
}
END_TEST

START_TEST(the_selected_implementation_is_used)
{
    size_t n_impls;
    const lnt_kernel_impl_t *impls = lnt_kernel_impls(&n_impls);
    for (size_t r = 0; r < n_impls; r++) {
        lnt_update_ops_t ops = lnt_update_ops_of(&impls[r]);
        lnt_kernels_select(&impls[r]);
        ck_assert(!memcmp(lnt_updates(), &ops, sizeof(ops)));
        ck_assert(ops.adam && ops.momentum && ops.frozen);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("update_rules");
    TCase *tcase = tcase_create("rules");

    say_unusable_impls();
    tcase_add_loop_test(tcase, rules_follow_the_formulas, 0, N_CHECKS);
    tcase_add_test(tcase, every_row_of_kernels_brings_rules);
    tcase_add_test(tcase, the_selected_implementation_is_used);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
