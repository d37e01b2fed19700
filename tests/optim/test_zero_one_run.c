/* Whole runs of 0/1 Adam: bytes sent are those of the closed form, the published run of 118000 steps included, and the
 * heteroscedastic quadratic.
 */
#include "zero_one_oracle.h"

typedef struct bytes_run {
    model_t model;
    uint64_t steps;
    uint64_t intra[MAX_RANKS], inter[MAX_RANKS];
} bytes_run_t;

static void bytes_body(rank_t *rank)
{
    bytes_run_t *run = rank->arg;
    lnt_comm_stats_t before = {.struct_size = sizeof(before)}, after = before;
    float *grad;

    rank_open(rank, &run->model);
    grad = calloc(rank->n_elems, sizeof(*grad));
    for (uint64_t i = 0; i < rank->n_elems; i++) /* no code is 0, so nothing is ever dead */
        grad[i] = (float)((0.5 + unit_at(rank->rank + 1, i)) * (i % 3 == 0 ? -1 : 1));
    ranks_ok(lnt_comm_get_stats(rank->comm, &before, false));
    for (uint64_t step = 0; step < run->steps; step++)
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
    ranks_ok(lnt_comm_get_stats(rank->comm, &after, false));
    run->intra[rank->rank] = after.wire_bytes_intra - before.wire_bytes_intra;
    run->inter[rank->rank] = after.wire_bytes_inter - before.wire_bytes_inter;
    free(grad);
    rank_close(rank);
}

/* Full and one-bit exchanges, step by step from the rules. */
static void count_exchanges(const zo_settings_t *s, uint64_t steps, uint64_t *full_p, uint64_t *one_bit_p)
{
    uint64_t interval = 1, counter = 0;

    *full_p = *one_bit_p = 0;
    for (uint64_t t = 1; t <= steps; t++) {
        if (t == s->freeze + 1) interval = 1, counter = 0;
        *full_p += t <= s->freeze && t % interval == 0;
        *one_bit_p += t <= s->freeze ? t % interval != 0 : t % interval == 0;
        if (t <= s->freeze ? t % interval == 0 && ++counter == s->var_scaler
                           : t > s->freeze + 1 && ++counter == s->local_scaler) {
            counter = 0;
            interval = t > s->freeze && 2 * interval > s->local_clipper ? s->local_clipper : 2 * interval;
        }
    }
}

/* The same model and settings as the library gets: exchanges of the oracle have the bytes of one step each. */
static void expect_bytes(const world_t *world, zo_settings_t *s, uint64_t steps, const char *options)
{
    bytes_run_t run = {.model = s->model, .steps = steps};
    uint64_t full, one_bit;
    zo_t o;

    s->world = *world;
    s->compression = true;
    run.model.algorithm = "zero_one_adam";
    run.model.options = options;
    run.model.bucket_bytes = 1 << 20;
    run.model.segment_bytes = s->model.segment_bytes = 1 << 19;
    zo_open(&o, s);
    oracle_bytes(&o.warm);
    oracle_bytes(&o.sign);
    ranks_run(world, bytes_body, &run);
    count_exchanges(s, steps, &full, &one_bit);
    for (uint32_t r = 0; r < world->n_ranks; r++) {
        ck_assert_uint_eq(run.intra[r], full * o.warm.intra[r] + one_bit * o.sign.intra[r]);
        ck_assert_uint_eq(run.inter[r], full * o.warm.inter[r] + one_bit * o.sign.inter[r]);
    }
    printf("%llu steps: %llu full exchanges, %llu of signs, %llu bytes between nodes from rank 0\n",
           (unsigned long long)steps, (unsigned long long)full, (unsigned long long)one_bit,
           (unsigned long long)run.inter[0]);
    zo_close(&o);
}

START_TEST(bytes_are_those_of_the_closed_form)
{
    static const world_t worlds[] = {
        {.n_ranks = 4, .nodes = {0, 1, 2, 3}}, {.n_ranks = 4, .nodes = {0, 0, 1, 1}}, {.n_ranks = 1}};
    zo_settings_t s = {.freeze = 60, .var_scaler = 5, .local_scaler = 100, .local_clipper = 8};

    s.model = (model_t){.n_tensors = 3, .lengths = {1000, 640, 2000}};
    s.warm_codec = ORACLE_INT4;
    s.warm_block = 128;
    for (int w = 0; w < 3; w++) {
        expect_bytes(&worlds[w], &s, 400,
                     "var_freeze_step=60,var_update_scaler=5,local_step_scaler=100,local_step_clipper=8,block=64,"
                     "warmup_codec=int4");
    }
}
END_TEST

/* 25.9 times fewer bytes than gradients of 16 bits: 153 full exchanges of 16 bits and 70468 of one in 118000 steps. */
START_TEST(the_published_run_by_counters)
{
    const world_t world = {.n_ranks = 2, .nodes = {0, 1}, .no_thread = true};
    zo_settings_t s = {.freeze = 12500, .var_scaler = 16, .local_scaler = 32678, .local_clipper = 16};
    uint64_t full, one_bit;

    count_exchanges(&s, 118000, &full, &one_bit);
    ck_assert(full == 153 && one_bit == 70468);
    if (TEST_SANITIZED) {
        test_say_skipped("118000 steps", "too slow under sanitizers, the dev build takes them");
        return;
    }
    s.model = (model_t){.n_tensors = 1, .lengths = {64}};
    s.warm_codec = ORACLE_F32;
    s.warm_block = 64;
    expect_bytes(&world, &s, 118000, "var_freeze_step=12500,block=64");
}
END_TEST

/* ---- the quadratic of test_optim_quadratic.c, with a schedule scaled to the run ---- */

enum { STEPS = TEST_SANITIZED ? 50 : 3000, DIM = 4096, SEED = 20211 };

typedef struct quadratic {
    model_t model;
    double loss;
} quadratic_t;

static double rate_at(uint32_t step)
{
    const uint32_t warm = STEPS / 10;

    return 2e-2 * (step < warm ? (step + 1.0) / warm : (double)(STEPS - step) / (STEPS - warm));
}

static void quadratic_body(rank_t *rank)
{
    quadratic_t *quadratic = rank->arg;
    lnt_group_t group;
    const float *x;
    double loss = 0;
    float *h = calloc(DIM, sizeof(*h)), *grad = calloc(DIM, sizeof(*grad));

    for (uint64_t i = 0; i < DIM; i++)
        h[i] = (float)pow(10.0, -3.0 * unit_at(SEED, i));
    rank_open(rank, &quadratic->model);
    ranks_ok(lnt_optim_get_group(rank->optim, 0, &group));
    for (uint32_t step = 0; step < STEPS; step++) {
        uint64_t place = test_mix_pair(SEED, 8u * step + rank->rank);
        group.lr = rate_at(step);
        ranks_ok(lnt_optim_set_group(rank->optim, 0, &group));
        for (uint64_t i = 0; i < DIM; i++)
            grad[i] = h[i] * (rank->x[i] + (float)(3.46 * (unit_at(place, i) - 0.5)));
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
    }
    x = lnt_plan_master(rank->plan, 0);
    for (uint64_t i = 0; i < DIM; i++)
        loss += 0.5 * (double)h[i] * (double)x[i] * (double)x[i];
    if (rank->rank == 0) quadratic->loss = loss;
    free(h);
    free(grad);
    rank_close(rank);
}

static double final_loss(const char *algorithm, const char *options)
{
    quadratic_t quadratic = {
        .model = {.n_tensors = 1, .lengths = {DIM}, .algorithm = algorithm, .options = options, .start_seed = SEED}};

    ranks_run(&(world_t){.n_ranks = 4, .nodes = {0, 1, 2, 3}}, quadratic_body, &quadratic);
    printf("%s,%s: final loss %g\n", algorithm, options, quadratic.loss);
    return quadratic.loss;
}

#define SCHEDULE "var_freeze_step=600,var_update_scaler=100,local_step_scaler=1000,local_step_clipper=4"

START_TEST(signs_with_local_steps_solve_the_quadratic)
{
    const double adam = final_loss("onebit_adam", "freeze_step=600,compression=off");
    const double twin = final_loss("zero_one_adam", SCHEDULE ",compression=off");
    const double signs = final_loss("zero_one_adam", SCHEDULE);
    const double none = final_loss("zero_one_adam", SCHEDULE ",error_feedback=none");

    if (TEST_SANITIZED) {
        test_say_skipped("convergence on the quadratic", "too slow under sanitizers, the dev build checks it");
        return;
    }
    ck_assert_double_le(twin, 1.5 * adam);
    ck_assert_double_le(signs, 3 * adam);
    ck_assert_double_ge(none, 10 * signs);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("zero_one_run");
    TCase *tcase = tcase_create("run");

    tcase_add_test(tcase, bytes_are_those_of_the_closed_form);
    tcase_add_test(tcase, the_published_run_by_counters);
    tcase_add_test(tcase, signs_with_local_steps_solve_the_quadratic);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
