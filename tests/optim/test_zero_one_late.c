/* Coordinates that come alive after the first phase of 0/1 Adam: they learn like in the uncompressed twin, travel in
 * syncs alone, in bytes that are counted, tell nothing in a sync that fails, keep their moments when others are masked,
 * and rounding noise does not drift. Their formulas are in zero_one_oracle.h.
 */
#include <math.h>

#include "ranks.h"

enum { BLOCK = 64, LONG = 300, SHORT = 30, N = LONG + SHORT, FREEZE = 6, UPDATES = 8 };
enum { ROW_BEGIN = 128, ROW_END = 160, NEVER_END = 166 }; /* in the block [128, 192) of the long tensor */
enum { SHORT_ROW = LONG + 4, SHORT_ROW_END = LONG + 9 };  /* of the short one */
enum { WINDOWS = 1u << 1 | 1u << 2 | 1u << 3 | 1u << 5 }; /* what a sync runs: signs, short, lane, late */

static const char options[] = "var_freeze_step=6,var_update_scaler=100,local_step_scaler=10,local_step_clipper=4,"
                              "block=64,max_dead_share=1,lane_updates=8";
static const char twin_options[] = "var_freeze_step=6,var_update_scaler=100,local_step_scaler=10,local_step_clipper=4,"
                                   "block=64,max_dead_share=1,lane_updates=8,compression=off";

static const world_t worlds[] = {
    {.n_ranks = 1, .quiet = true},
    {.n_ranks = 2, .nodes = {0, 1}, .quiet = true},
    {.n_ranks = 4, .nodes = {0, 1, 2, 3}, .quiet = true},
    {.n_ranks = 4, .nodes = {0, 0, 1, 1}, .quiet = true},
};
enum { N_WORLDS = sizeof(worlds) / sizeof(worlds[0]) };

typedef struct drill {
    model_t model;
    lnt_group_t group;
    uint64_t seed, touch; /* the first step with a gradient of the rows */
    float result[N];      /* parameters at the end */
} drill_t;

static drill_t make_drill(const char *text)
{
    drill_t drill = {.model = {.n_tensors = 2,
                               .lengths = {LONG, SHORT},
                               .algorithm = "zero_one_adam",
                               .options = text,
                               .n_groups = 1,
                               .bucket_bytes = 4 * BLOCK * (1 + test_random_below(6)),
                               .segment_bytes = 4 * BLOCK,
                               .max_skips = 100,
                               .start_seed = test_random()},
                     .seed = test_random(),
                     .touch = FREEZE + 10 + test_random_below(10)};

    lnt_group_defaults(&drill.group);
    drill.group.lr = 0.01;
    return drill;
}

static bool in_rows(uint64_t i)
{
    return (i >= ROW_BEGIN && i < ROW_END) || (i >= SHORT_ROW && i < SHORT_ROW_END);
}

static double noise_at(const drill_t *drill, uint32_t rank, uint64_t step, uint64_t i)
{
    return normal_at(test_mix_pair(drill->seed, step * 64 + rank), i);
}

static void fill(const drill_t *drill, uint32_t rank, uint64_t step, float *grad)
{
    for (uint64_t i = 0; i < N; i++) {
        bool still = (in_rows(i) && step < drill->touch) || (i >= ROW_END && i < NEVER_END);
        grad[i] = still ? 0 : (float)noise_at(drill, rank, step, i);
    }
}

static void open_drill(rank_t *rank, drill_t *drill)
{
    if (rank->rank == 0) drill->model.groups = &drill->group; /* the drill belongs to all */
    ranks_barrier();
    rank_open(rank, &drill->model);
}

static bool is_sync_next(const rank_t *rank)
{
    const uint64_t number = rank_info(rank).step + 1;

    return number > FREEZE && number % (uint64_t)lnt_optim_values(rank->optim, "local_interval", NULL)[0] == 0;
}

/* ---- learning ---- */

enum { LEARN = TEST_SANITIZED ? 90 : 700, FIRST_TOUCH = FREEZE + 50 };

/* A quadratic around 1 + the start; the rows have no gradient before FIRST_TOUCH. */
static void learn_body(rank_t *rank)
{
    drill_t *drill = rank->arg;
    float grad[N];

    open_drill(rank, drill);
    for (uint64_t step = 0; step < LEARN; step++) {
        for (uint64_t i = 0; i < N; i++) {
            double goal = normal_at(drill->model.start_seed, i) + 1;
            double g = (double)rank->x[i] - goal + 0.3 * noise_at(drill, rank->rank, step, i);
            grad[i] = in_rows(i) && step < FIRST_TOUCH ? 0 : (float)g;
        }
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
        expect_equal_ranks(rank);
    }
    ck_assert_uint_eq(rank_info(rank).late_touched, 2);
    ck_assert(TEST_SANITIZED || rank_info(rank).late_blocks == 0);
    if (rank->rank == 0) {
        memcpy(drill->result, lnt_plan_master(rank->plan, 0), LONG * sizeof(float));
        memcpy(drill->result + LONG, lnt_plan_master(rank->plan, 1), SHORT * sizeof(float));
    }
    rank_close(rank);
}

/* Largest distance from the goal in the rows. */
static double distance(const drill_t *drill)
{
    double far = 0;

    for (uint64_t i = 0; i < N; i++) {
        double d = fabs(drill->result[i] - (normal_at(drill->model.start_seed, i) + 1));
        if (in_rows(i) && d > far) far = d;
    }
    return far;
}

START_TEST(rows_touched_50_steps_after_the_freeze_learn_like_in_the_twin)
{
    drill_t drill = make_drill(options);
    double coded, twin;

    ranks_run(&worlds[_i], learn_body, &drill);
    coded = distance(&drill);
    drill.model.options = twin_options;
    ranks_run(&worlds[_i], learn_body, &drill);
    twin = distance(&drill);
    printf("rows: distance %g, twin %g, from 1\n", coded, twin);
    if (TEST_SANITIZED) return;
    ck_assert_double_lt(twin, 0.2);
    ck_assert_double_lt(coded, 0.2);
}
END_TEST

/* ---- the lane ---- */

/* What a step sends equals what was announced before it: nothing in local steps. */
static uint64_t counted_step(rank_t *rank, const drill_t *drill, uint64_t step)
{
    lnt_comm_stats_t stats = {.struct_size = sizeof(stats)};
    uint64_t intra = 0, inter = 0;
    float grad[N];

    fill(drill, rank->rank, step, grad);
    if (step < FREEZE || is_sync_next(rank))
        ranks_ok(lnt_plan_wire_bytes(rank->plan, step < FREEZE ? 1 : WINDOWS, &intra, &inter));
    ranks_ok(lnt_comm_get_stats(rank->comm, &stats, true));
    ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
    ranks_ok(lnt_comm_get_stats(rank->comm, &stats, false));
    ck_assert_uint_eq(stats.wire_bytes_intra, intra);
    ck_assert_uint_eq(stats.wire_bytes_inter, inter);
    return intra + inter;
}

enum { LATE_ELEMS = (NEVER_END - ROW_BEGIN) + (SHORT_ROW_END - SHORT_ROW) };

static void lane_body(rank_t *rank)
{
    drill_t *drill = rank->arg;
    uint64_t before = 0, updates = 0;
    bool told = false;

    open_drill(rank, drill);
    for (uint64_t step = 0; updates <= UPDATES; step++) {
        const bool sync = is_sync_next(rank);
        uint64_t bytes = counted_step(rank, drill, step);
        lnt_optim_info_t info = rank_info(rank);
        if (sync && told) {
            updates++;
            ck_assert(updates > UPDATES || rank->world->n_ranks == 1 || rank->rank > 1 || bytes > before);
        } else if (sync) {
            before = bytes;
            told = step >= drill->touch;
        }
        ck_assert_uint_eq(info.late_touched, told ? 2 : 0);
        ck_assert_uint_eq(info.late_blocks, told && updates < UPDATES ? 2 : 0);
        if (step + 1 >= FREEZE)
            ck_assert_uint_eq(info.lane_elems, SHORT + (told && updates < UPDATES ? LATE_ELEMS : 0));
        for (uint64_t i = ROW_BEGIN; i < NEVER_END && updates == 0; i++)
            ck_assert(rank->x[i] == (float)normal_at(drill->model.start_seed, i));
        expect_equal_ranks(rank);
    }
    for (uint64_t i = ROW_BEGIN; i < NEVER_END; i++)
        ck_assert_int_eq(rank->x[i] == (float)normal_at(drill->model.start_seed, i), i >= ROW_END);
    rank_close(rank);
}

START_TEST(late_comers_travel_in_syncs_alone)
{
    drill_t drill = make_drill(_i < N_WORLDS ? options : twin_options);

    ranks_run(&worlds[_i % N_WORLDS], lane_body, &drill);
}
END_TEST

/* ---- decisions are part of the transaction ---- */

/* Runs up to the first sync at which the rows have something to tell, and takes it with these gradients. */
static lnt_status_t first_sync(rank_t *rank, const drill_t *drill, float *grad, bool veto)
{
    lnt_status_t status;
    uint64_t step = 0;

    for (; step < drill->touch || !is_sync_next(rank); step++) {
        fill(drill, rank->rank, step, grad);
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
    }
    fill(drill, rank->rank, step, grad);
    ranks_ok(lnt_optim_begin(rank->optim));
    if (veto) ranks_ok(lnt_optim_veto(rank->optim));
    for (uint32_t t = 0; t < 2; t++)
        ranks_ok(lnt_optim_tensor_ready(rank->optim, t, rank_grads(rank, grad)[t], NULL));
    status = lnt_optim_end(rank->optim);
    return status;
}

static void skip_body(rank_t *rank)
{
    drill_t *drill = rank->arg;
    float grad[N];
    const float *sums;

    open_drill(rank, drill);
    ck_assert_int_eq(first_sync(rank, drill, grad, true), LNT_SKIPPED_VETO);
    ck_assert_uint_eq(rank_info(rank).late_touched, 0);
    sums = lnt_optim_view(rank->optim, "accumulator", 0);
    for (uint64_t i = 0; i < LONG; i++)
        ck_assert(sums[i] == 0);
    fill(drill, rank->rank, drill->touch, grad);
    ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad))); /* again a sync */
    ck_assert_uint_eq(rank_info(rank).late_touched, 2);
    rank_close(rank);
}

START_TEST(a_sync_that_fails_tells_nothing)
{
    drill_t drill = make_drill(options);

    ranks_run(&worlds[_i], skip_body, &drill);
}
END_TEST

/* ---- masks ---- */

static void mask_body(rank_t *rank)
{
    drill_t *drill = rank->arg;
    float grad[N], m[LONG], v[LONG];
    uint8_t mask[LONG];
    const float *x;

    open_drill(rank, drill);
    x = lnt_plan_master(rank->plan, 0);
    ranks_ok(first_sync(rank, drill, grad, false));
    for (uint64_t step = drill->touch; rank_info(rank).step < drill->touch + 9; step++) {
        fill(drill, rank->rank, step, grad);
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
    }
    memcpy(m, lnt_optim_view(rank->optim, "exp_avg", 0), sizeof(m));
    memcpy(v, lnt_optim_view(rank->optim, "exp_avg_sq", 0), sizeof(v));
    memset(mask, 1, sizeof(mask));
    mask[ROW_BEGIN + 1] = 0;
    ranks_ok(lnt_optim_set_mask(rank->optim, 0, mask));
    ck_assert(m[ROW_BEGIN] != 0 && v[ROW_BEGIN] != 0);
    m[ROW_BEGIN + 1] = v[ROW_BEGIN + 1] = 0;
    ck_assert_mem_eq(m, lnt_optim_view(rank->optim, "exp_avg", 0), sizeof(m));
    ck_assert_mem_eq(v, lnt_optim_view(rank->optim, "exp_avg_sq", 0), sizeof(v));
    ck_assert_uint_eq(rank_info(rank).lane_elems, SHORT + LATE_ELEMS - 1);
    memcpy(m, x, sizeof(m));
    for (uint64_t step = 100; step < 112; step++) {
        fill(drill, rank->rank, step, grad);
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
        expect_equal_ranks(rank);
    }
    ck_assert(x[ROW_BEGIN + 1] == m[ROW_BEGIN + 1] && x[ROW_BEGIN] != m[ROW_BEGIN]);
    rank_close(rank);
}

START_TEST(a_mask_takes_one_coordinate_out_of_the_lane)
{
    drill_t drill = make_drill(options);

    ranks_run(&worlds[_i], mask_body, &drill);
}
END_TEST

/* ---- what does not drift ---- */

enum { NOISE_STEPS = TEST_SANITIZED ? 40 : 300 };

/* Like the bias of attention keys: 1e-11 of rounding noise in a block whose other gradients are 1e-4. */
static void noise_body(rank_t *rank)
{
    drill_t *drill = rank->arg;
    float grad[N];

    open_drill(rank, drill);
    for (uint64_t step = 0; step < NOISE_STEPS; step++) {
        for (uint64_t i = 0; i < N; i++)
            grad[i] = (float)(noise_at(drill, rank->rank, step, i) * (in_rows(i) ? 1e-11 : 1e-4));
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
    }
    for (uint64_t i = ROW_BEGIN; i < ROW_END; i++) /* lr * steps * 1e-11 / (1e-11 + eps), and f32 */
        ck_assert_double_lt(fabs(rank->x[i] - normal_at(drill->model.start_seed, i)), 4e-3);
    ck_assert_uint_eq(rank_info(rank).late_blocks, 2);
    rank_close(rank);
}

START_TEST(rounding_noise_does_not_drift)
{
    drill_t drill = make_drill(options);

    ranks_run(&worlds[_i], noise_body, &drill);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("zero_one_late");
    TCase *tcase = tcase_create("late");

    tcase_add_loop_test(tcase, rows_touched_50_steps_after_the_freeze_learn_like_in_the_twin, 0, N_WORLDS);
    tcase_add_loop_test(tcase, late_comers_travel_in_syncs_alone, 0, 2 * N_WORLDS);
    tcase_add_loop_test(tcase, a_sync_that_fails_tells_nothing, 0, N_WORLDS);
    tcase_add_loop_test(tcase, a_mask_takes_one_coordinate_out_of_the_lane, 0, N_WORLDS);
    tcase_add_loop_test(tcase, rounding_noise_does_not_drift, 0, N_WORLDS);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
