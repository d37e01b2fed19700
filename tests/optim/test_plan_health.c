/* Health of the coding against its formulas in f64, from what went in and the errors that are kept: norms, rho, and the
 * warnings, by inputs made for them: sparse values, and residuals that grow because the test makes them.
 */
#include <math.h>

#include "ranks.h"

enum { MAX_LINES = 64, EVERY = 3 };

typedef struct health_run {
    world_t world;
    model_t model;
    const char *codec;
    lnt_scale_rule_t rule;
    uint32_t block, steps;
    uint64_t seed;
    bool sparse;
    uint8_t *live; /* of tensor 0, or NULL */
    double broken; /* errors are multiplied by this after every step */
    /* errors by element, worker of node 0 and server, before and after the step */
    double *worker[2], *server[2];
    uint32_t causes, warnings;
} health_run_t;

static _Atomic uint32_t n_warnings;

static void count_warnings(void *arg, lnt_log_level_t level, const char *line)
{
    (void)arg;
    if (level == LNT_LOG_WARN && (strstr(line, "contract") != NULL || strstr(line, "grows without bound") != NULL))
        n_warnings++;
}

static void consume_nothing(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live)
{
    (void)arg, (void)span, (void)value, (void)live;
}

static void open_plan(rank_t *rank, health_run_t *run)
{
    lnt_program_params_t program = {.struct_size = sizeof(program),
                                    .name = "coded",
                                    .codec = {.struct_size = sizeof(program.codec),
                                              .name = run->codec,
                                              .block = run->block,
                                              .scale_rule = run->rule},
                                    .stage = {.struct_size = sizeof(program.stage), .consume = consume_nothing}};
    uint32_t number;

    ranks_ok(rank_plan(rank, &run->model));
    ranks_ok(lnt_plan_attach(rank->plan));
    ranks_ok(lnt_plan_add_program(rank->plan, &program, &number));
    ranks_ok(lnt_plan_commit(rank->plan));
    if (run->live != NULL) ranks_ok(lnt_plan_set_live(rank->plan, 0, 0, run->live));
}

static void close_plan(rank_t *rank)
{
    lnt_plan_detach(rank->plan);
    ranks_ok(lnt_plan_destroy(rank->plan));
    free(rank->x);
    free(rank->x16);
}

static float grad_at(const health_run_t *run, uint32_t rank, uint32_t step, uint64_t i)
{
    uint64_t place = test_mix_pair(run->seed, step * 64u + rank);

    if (run->sparse && unit_at(place + 1, i) > 0.05) return 0;
    return (float)ldexp(normal_at(place, i), -(int)(i % 3));
}

/* The errors this rank owns into arrays of all elements. */
static void collect(rank_t *rank, double *worker, double *server)
{
    lnt_error_extent_t extent;

    for (size_t k = 0; lnt_plan_error_extent(rank->plan, k, &extent) == LNT_OK; k++) {
        uint64_t base = extent.tensor == 0 ? 0 : rank->model->lengths[0];
        for (uint64_t i = 0; i < extent.count; i++)
            (extent.server ? server : worker)[base + extent.offset + i] = (double)extent.data[i];
    }
}

static void break_errors(rank_t *rank, double factor)
{
    lnt_error_extent_t extent;

    for (size_t k = 0; lnt_plan_error_extent(rank->plan, k, &extent) == LNT_OK; k++) {
        for (uint64_t i = 0; i < extent.count; i++)
            extent.data[i] = (float)((double)extent.data[i] * factor);
    }
}

static void step_once(rank_t *rank, const health_run_t *run, uint32_t step)
{
    const lnt_step_params_t params = {.struct_size = sizeof(params), .programs = 1, .step = step};
    float *grad = calloc(rank->n_elems + 1, sizeof(*grad));

    for (uint64_t i = 0; i < rank->n_elems; i++)
        grad[i] = grad_at(run, rank->rank, step, i);
    ranks_ok(lnt_plan_begin(rank->plan, &params));
    for (uint32_t t = 0; t < rank->model->n_tensors; t++)
        ranks_ok(lnt_plan_tensor_ready(rank->plan, t, rank_grads(rank, grad)[t], NULL));
    ranks_ok(lnt_plan_end(rank->plan));
    free(grad);
}

static lnt_plan_health_t health_of(const rank_t *rank, uint32_t bucket)
{
    lnt_plan_health_t health = {.struct_size = sizeof(health)};

    ranks_ok(lnt_plan_get_health(rank->plan, 0, bucket, &health));
    return health;
}

/* ---- one rank per node: rank 0's worker codes everything, from its own gradient ---- */

typedef struct wanted {
    double input, value, error, alike;
    uint64_t n;
} wanted_t;

/* Blocks of one tensor. */
static void want_tensor(const health_run_t *run, uint32_t step, uint64_t begin, uint64_t end, const double *old,
                        const double *new, const uint8_t *live, wanted_t *sum)
{
    for (uint64_t first = begin; first < end; first += run->block) {
        double magnitude = 0, squares = 0;
        uint64_t n = 0;
        for (uint64_t i = first; i < end && i < first + run->block; i++) {
            double input = (double)grad_at(run, 0, step, i), value = input + old[i];
            if (live != NULL && live[i] == 0) continue;
            magnitude += fabs(value);
            squares += value * value;
            sum->input += input * input;
            sum->error += new[i] * new[i];
            n++;
        }
        sum->value += squares;
        sum->n += n;
        if (n != 0) sum->alike += magnitude / (sqrt((double)n) * sqrt(squares)) * squares;
    }
}

static void expect_near(double got, double wanted)
{
    ck_assert_double_eq_tol(got, wanted, 1e-4 * fabs(wanted));
}

static void exact_body(rank_t *rank)
{
    health_run_t *run = rank->arg;
    lnt_plan_stats_t stats = {.struct_size = sizeof(stats)};
    lnt_plan_health_t health;

    open_plan(rank, run);
    health = health_of(rank, LNT_ALL_BUCKETS);
    ck_assert_uint_eq(health.step, 0);
    for (uint32_t step = 0; step < run->steps; step++) {
        wanted_t sum = {.n = 0};
        uint64_t n0 = run->model.lengths[0];
        if (rank->rank == 0) collect(rank, run->worker[0], run->server[0]);
        step_once(rank, run, step);
        if (rank->rank != 0) continue;
        collect(rank, run->worker[1], run->server[1]);
        health = health_of(rank, LNT_ALL_BUCKETS);
        ck_assert_uint_eq(health.step, step / EVERY * EVERY + 1);
        ranks_ok(lnt_plan_get_stats(rank->plan, &stats, true)); /* the count of commits goes on */
        if (step % EVERY != 0) continue;
        want_tensor(run, step, 0, n0, run->worker[0], run->worker[1], run->live, &sum);
        want_tensor(run, step, n0, rank->n_elems, run->worker[0], run->worker[1], NULL, &sum);
        expect_near(health.worker.input_norm, sqrt(sum.input));
        expect_near(health.worker.value_norm, sqrt(sum.value));
        expect_near(health.worker.error_norm, sqrt(sum.error));
        expect_near(health.worker.rho, sum.alike / sum.value);
        expect_near(health.worker.error_ratio, sqrt(sum.error / sum.input));
        expect_near(health.worker.scale, sqrt(sum.value / (double)sum.n));
        ck_assert_uint_eq(health.worker.n_elems, sum.n);
        ck_assert_double_gt(health.server.rho, 0.3);
        ck_assert_double_le(health.server.rho, 1);
        ck_assert_uint_le(health.server.n_elems, sum.n);
        if (run->rule == LNT_SCALE_L2 && strcmp(run->codec, "sign1") == 0) /* ALGORITHMS 2.1 */
            expect_near(sum.error / sum.value, 2 * (1 - health.worker.rho));
    }
    close_plan(rank);
}

START_TEST(norms_and_rho_are_those_of_the_formulas)
{
    static const struct {
        const char *codec;
        lnt_scale_rule_t rule;
        uint32_t block;
    } kinds[] = {{"sign1", LNT_SCALE_L2, 64},
                 {"sign1", LNT_SCALE_L1, 128},
                 {"int4", LNT_SCALE_L2, 192},
                 {"sign1", LNT_SCALE_L2, 8192}};
    health_run_t run = {.world = {.n_ranks = 3, .nodes = {0, 1, 2}},
                        .model = {.n_tensors = 2,
                                  .lengths = {kinds[_i].block + test_random() % 9000, 1 + test_random() % 500},
                                  .bucket_bytes = 4 * (1024 + test_random() % 9000),
                                  .segment_bytes = 1024 + test_random() % 5000,
                                  .start_seed = test_random()},
                        .codec = kinds[_i].codec,
                        .rule = kinds[_i].rule,
                        .block = kinds[_i].block,
                        .steps = 2 * EVERY + 1,
                        .seed = test_random()};
    uint64_t n = model_elems(&run.model);

    for (int i = 0; i < 2; i++) {
        run.worker[i] = calloc(n, sizeof(double));
        run.server[i] = calloc(n, sizeof(double));
    }
    if (_i % 2 == 0) {
        run.live = calloc(n, 1);
        for (uint64_t i = 0; i < n; i++)
            run.live[i] = test_random() % 4 != 0;
    }
    ranks_run(&run.world, exact_body, &run);
    for (int i = 0; i < 2; i++) {
        free(run.worker[i]);
        free(run.server[i]);
    }
    free(run.live);
}
END_TEST

/* ---- warnings ---- */

static void warned_body(rank_t *rank)
{
    health_run_t *run = rank->arg;
    const lnt_plan_health_t *health;
    lnt_plan_health_t all;

    open_plan(rank, run);
    for (uint32_t step = 0; step < run->steps; step++) {
        step_once(rank, run, step);
        if (run->broken != 0) break_errors(rank, run->broken);
    }
    all = health_of(rank, LNT_ALL_BUCKETS);
    health = &all;
    if (rank->rank == 0) run->causes = health->causes;
    if (run->sparse && rank->rank == 0) {
        ck_assert_double_gt(health->worker.rho, 0);
        ck_assert_double_lt(health->worker.rho, 0.6);
    }
    ranks_barrier();
    if (rank->rank == 0) run->warnings = n_warnings;
    close_plan(rank);
}

static health_run_t warned_run(const health_run_t *kind)
{
    health_run_t run = *kind;

    run.world = (world_t){.n_ranks = 2, .nodes = {0, 1}, .log = count_warnings};
    run.model = (model_t){.n_tensors = 2, .lengths = {3000, 2000}, .bucket_bytes = 4096, .start_seed = test_random()};
    run.codec = "sign1";
    run.block = 64;
    run.seed = test_random();
    n_warnings = 0;
    ranks_run(&run.world, warned_body, &run);
    return run;
}

START_TEST(sparse_values_cannot_contract)
{
    health_run_t run = warned_run(&(health_run_t){.sparse = true, .steps = 1});

    ck_assert_uint_eq(run.causes, 0); /* one measurement is not enough */
    run = warned_run(&(health_run_t){.sparse = true, .steps = EVERY + 1, .broken = 1e-30});
    ck_assert_uint_eq(run.causes, LNT_HEALTH_EXPANDS);
    ck_assert_uint_eq(run.warnings, 2); /* once per rank, not per bucket */
    run = warned_run(&(health_run_t){.sparse = true, .steps = 5 * EVERY, .rule = LNT_SCALE_L1});
    ck_assert_uint_eq(run.causes & LNT_HEALTH_EXPANDS, 0); /* it contracts, slowly */
    run = warned_run(&(health_run_t){.steps = 5 * EVERY});
    ck_assert_uint_eq(run.causes, 0);
    ck_assert_uint_eq(run.warnings, 0);
}
END_TEST

START_TEST(errors_that_grow_are_noticed)
{
    health_run_t run = warned_run(&(health_run_t){.steps = 6 * EVERY, .broken = 3});

    ck_assert_uint_eq(run.causes & LNT_HEALTH_GROWS, LNT_HEALTH_GROWS);
    ck_assert_uint_ge(run.warnings, 2);
    ck_assert_uint_le(run.warnings, 4);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan_health");
    TCase *tcase = tcase_create("plan_health");

    (void)setenv("LINNET_HEALTH_EVERY", "3", 1);
    tcase_add_loop_test(tcase, norms_and_rho_are_those_of_the_formulas, 0, 4);
    tcase_add_test(tcase, sparse_values_cannot_contract);
    tcase_add_test(tcase, errors_that_grow_are_noticed);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
