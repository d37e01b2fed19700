/* CAME against an oracle in f64 written from the formulas; shapes that cannot be are refused, and are part of what
 * ranks and saved states must agree on.
 */
#include "exact_trial.h"

enum { STEPS = TEST_SANITIZED ? 12 : 40, ROOM = 512 };

typedef struct variant {
    const char *options;
    double beta3, eps1, eps2, threshold, clip;
} variant_t;

static const variant_t variants[] = {
    {"", 0.9999, 1e-30, 1e-16, 1, 0},
    {"beta3=0.99,clip_threshold=0.3", 0.99, 1e-30, 1e-16, 0.3, 0},
    {"eps1=1e-6,eps2=1e-4", 0.9999, 1e-6, 1e-4, 1, 0},
    {"clip=0.5,block=64", 0.9999, 1e-30, 1e-16, 1, 0.5},
};
enum { VARIANTS = sizeof(variants) / sizeof(variants[0]) };

typedef struct statistics {
    double row[ROOM], col[ROOM];
} statistics_t;

typedef struct oracle {
    exact_trial_t trial;
    const variant_t *variant;
    statistics_t square, distance;
    double x[4096], m[4096], g[4096], whole[ROOM];
} oracle_t;

/* New means of rows and columns, and what an element is multiplied by. */
static void factor(statistics_t *s, uint64_t row_at, uint64_t col_at, uint64_t rows, uint64_t cols, double beta,
                   const double *square, double *by)
{
    double mean = 0;

    for (uint64_t r = 0; r < rows; r++)
        s->row[row_at + r] *= beta;
    for (uint64_t c = 0; c < cols; c++)
        s->col[col_at + c] *= beta;
    for (uint64_t i = 0; i < rows * cols; i++) {
        s->row[row_at + i / cols] += (1 - beta) * square[i] / (double)cols;
        s->col[col_at + i % cols] += (1 - beta) * square[i] / (double)rows;
    }
    for (uint64_t r = 0; r < rows; r++)
        mean += s->row[row_at + r] / (double)rows;
    for (uint64_t i = 0; i < rows * cols; i++)
        by[i] = 1 / sqrt(s->row[row_at + i / cols] / mean * s->col[col_at + i % cols]);
}

typedef struct place {
    uint64_t row, col, whole;
} place_t;

static void oracle_tensor(oracle_t *o, uint32_t t, const place_t *at)
{
    const lnt_group_t *h = exact_group(&o->trial, t);
    const uint64_t first = o->trial.first[t], n = o->trial.model.lengths[t], rows = o->trial.model.rows[t];
    const uint64_t cols = rows != 0 ? n / rows : 0;
    double square[4096] = {0}, by[4096], u[4096], rms;

    for (uint64_t k = 0; k < n; k++)
        square[k] = o->g[first + k] * o->g[first + k] + o->variant->eps1;
    if (rows != 0) factor(&o->square, at->row, at->col, rows, cols, h->beta2, square, by);
    for (uint64_t k = 0; k < n; k++) {
        if (rows == 0) {
            double *v = &o->whole[at->whole + k];
            *v = h->beta2 * *v + (1 - h->beta2) * square[k];
            by[k] = 1 / sqrt(*v);
        }
        u[k] = o->g[first + k] * by[k];
    }
    rms = n != 0 ? exact_norm(u, n) / sqrt((double)n) : 0;
    for (uint64_t k = 0; k < n; k++) {
        u[k] /= fmax(1, rms / o->variant->threshold);
        o->m[first + k] = h->beta1 * o->m[first + k] + (1 - h->beta1) * u[k];
        square[k] = pow(u[k] - o->m[first + k], 2) + o->variant->eps2;
        by[k] = 1;
    }
    if (rows != 0) factor(&o->distance, at->row, at->col, rows, cols, o->variant->beta3, square, by);
    for (uint64_t k = 0; k < n; k++)
        o->x[first + k] -= h->lr * (h->weight_decay * o->x[first + k] + o->m[first + k] * by[k]);
}

static place_t oracle_step(oracle_t *o, uint32_t step)
{
    place_t at = {0, 0, 0};
    double norm;

    for (uint64_t i = 0; i < o->trial.n; i++)
        o->g[i] = exact_mean(&o->trial, step, i);
    norm = exact_norm(o->g, o->trial.n);
    for (uint64_t i = 0; i < o->trial.n && o->variant->clip > 0 && norm > o->variant->clip; i++)
        o->g[i] *= o->variant->clip / norm;
    for (uint32_t t = 0; t < o->trial.model.n_tensors; t++) {
        const uint64_t n = o->trial.model.lengths[t], rows = o->trial.model.rows[t];
        oracle_tensor(o, t, &at);
        at.row += rows;
        at.col += rows != 0 ? n / rows : 0;
        at.whole += rows == 0 ? n : 0;
    }
    return at;
}

/* Distances u - m are differences: a row of one element, with beta1 = 0 or so, would have none to compare. */
static void expect_oracle(const rank_t *rank, const oracle_t *o, const place_t *sizes)
{
    double ones[4096];

    for (uint64_t i = 0; i < o->trial.n; i++)
        ones[i] = 1; /* directions are about that long */
    exact_compare(&o->trial, "parameters", rank->x, o->x, o->trial.start_squares);
    exact_compare_view(rank, &o->trial, "exp_avg", o->m, ones);
    exact_compare_values(rank, "exp_avg_sq_row", o->square.row, sizes->row);
    exact_compare_values(rank, "exp_avg_sq_col", o->square.col, sizes->col);
    exact_compare_values(rank, "exp_avg_res_row", o->distance.row, sizes->row);
    exact_compare_values(rank, "exp_avg_res_col", o->distance.col, sizes->col);
    exact_compare_values(rank, "exp_avg_sq", o->whole, sizes->whole);
}

static place_t sizes; /* of the run's statistics */

static void body(rank_t *rank)
{
    oracle_t *o = rank->arg;
    float *grad;

    rank_open(rank, &o->trial.model);
    grad = calloc(rank->n_elems, sizeof(*grad));
    for (uint32_t step = 0; step < STEPS; step++) {
        if (rank->rank == 0) sizes = oracle_step(o, step);
        exact_step(rank, &o->trial, step, grad);
        expect_oracle(rank, o, &sizes);
        ranks_barrier();
    }
    free(grad);
    rank_close(rank);
}

START_TEST(came_follows_the_formulas)
{
    oracle_t *o = calloc(1, sizeof(*o));

    o->variant = &variants[_i / EXACT_WORLDS];
    o->trial = exact_draw(&exact_worlds[_i % EXACT_WORLDS], "came", o->variant->options);
    if (o->variant->clip != 0) o->trial.model.bucket_bytes = 512; /* matrices are cut inside rows */
    exact_settle(&o->trial);
    for (uint64_t i = 0; i < o->trial.n; i++)
        o->x[i] = (double)(float)normal_at(o->trial.model.start_seed, i);
    ranks_run(&o->trial.world, body, o);
    free(o);
}
END_TEST

/* A row and a column without gradients, and the smallest eps: their factors are no f32, and nothing moves there. */
static void silent_body(rank_t *rank)
{
    const exact_trial_t *trial = rank->arg;
    float *grad = calloc(trial->n, sizeof(*grad)), *start = calloc(trial->n, sizeof(*start));

    rank_open(rank, &trial->model);
    memcpy(start, rank->x, trial->n * sizeof(*start));
    for (uint32_t step = 0; step < 20; step++) {
        for (uint64_t i = 0; i < trial->n; i++) {
            bool silent = i / 16 == 3 || i % 16 == 5 || (i / 16 == 7 && step < 10);
            grad[i] = silent ? 0 : (float)exact_grad(trial, rank->rank, step, i);
        }
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
        for (uint64_t i = 0; i < trial->n; i++) {
            ck_assert(isfinite(rank->x[i]));
            if (i / 16 == 3 || i % 16 == 5) ck_assert(rank->x[i] == start[i]);
        }
    }
    free(grad);
    free(start);
    rank_close(rank);
}

START_TEST(factors_of_nothing_but_eps_stay_finite)
{
    static const char *const options[] = {"eps1=1e-300", "eps2=1e-300", "eps1=1e-300,eps2=1e-300"};
    exact_trial_t trial = exact_draw(&exact_worlds[0], "came", options[_i]);

    trial.groups[0].weight_decay = trial.groups[1].weight_decay = 0;
    trial.model.n_tensors = 1;
    trial.model.lengths[0] = trial.n = 12 * 16;
    trial.model.rows[0] = 12;
    trial.first[1] = 12 * 16;
    for (uint64_t i = 0; i < trial.n; i++)
        trial.tensor_of[i] = 0;
    exact_settle(&trial);
    ranks_run(&trial.world, silent_body, &trial);
}
END_TEST

static void shapes_body(rank_t *rank)
{
    static const uint64_t bad[][2] = {{3, 5}, {12, 0}, {0, 12}, {UINT64_MAX / 2, 4}};
    const model_t model = {.n_tensors = 0};
    float x[12] = {0};
    uint32_t number;
    lnt_tensor_params_t params = {.struct_size = sizeof(params), .name = "x", .count = 12, .param = x};

    ranks_ok(rank_plan(rank, &model));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        params.rows = bad[i][0];
        params.cols = bad[i][1];
        ck_assert_int_eq(lnt_plan_add_tensor(rank->plan, &params, &number), LNT_ERR_INVALID_ARG);
    }
    params.rows = rank->rank == 0 ? 3 : 4; /* another shape on the other rank */
    params.cols = 12 / params.rows;
    ranks_ok(lnt_plan_add_tensor(rank->plan, &params, &number));
    rank->model = &(model_t){.algorithm = "came"};
    ranks_ok(rank_optim(rank));
    ck_assert_int_eq(lnt_plan_commit(rank->plan), LNT_ERR_MISMATCH);
    ranks_ok(lnt_optim_destroy(rank->optim));
    ranks_ok(lnt_plan_destroy(rank->plan));
    free(rank->x);
    free(rank->x16);
}

START_TEST(shapes_must_fit_and_agree)
{
    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, shapes_body, NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("came");
    TCase *tcase = tcase_create("came");

    tcase_add_loop_test(tcase, came_follows_the_formulas, 0, VARIANTS * EXACT_WORLDS);
    tcase_add_loop_test(tcase, factors_of_nothing_but_eps_stay_finite, 0, 3);
    tcase_add_test(tcase, shapes_must_fit_and_agree);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
