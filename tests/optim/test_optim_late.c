/* Coordinates that come alive after the freeze: the gradient that tells of them is lost and counted, then they follow
 * Adam with powers of their own (f64, written from the formulas), travel in bytes that are counted, and join the signs.
 * What has no gradient never moves, and rounding noise does not drift.
 */
#include <math.h>

#include "../../src/base/memory.h"
#include "ranks.h"

enum { BLOCK = 64, LONG = 300, SHORT = 30, N = LONG + SHORT, FREEZE = 6, UPDATES = 15, STEPS = 40 };
enum { LATE_BEGIN = 130, LATE_END = 150, NEVER_END = 155 }; /* in the block [128, 192) of the long tensor */

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
    uint64_t seed;
    uint32_t touch;   /* step of the first gradient of the late range */
    uint32_t bad;     /* a step with a NaN; 0: none */
    float *result;    /* parameters at the end */
    uint64_t hash[2]; /* at the end: optimizer, errors (sum over ranks) */
    uint64_t errors[MAX_RANKS];
    uint32_t save_at;
    uint64_t other_bucket;
} drill_t;

static drill_t make_drill(const char *options)
{
    drill_t drill = {.model = {.n_tensors = 2,
                               .lengths = {LONG, SHORT},
                               .algorithm = "onebit_adam",
                               .options = options,
                               .n_groups = 1,
                               .bucket_bytes = 4 * BLOCK * (1 + test_random_below(6)),
                               .segment_bytes = 4 * BLOCK,
                               .max_skips = 100,
                               .start_seed = test_random()},
                     .seed = test_random(),
                     .touch = FREEZE + (uint32_t)test_random_below(5)};

    lnt_group_defaults(&drill.group);
    drill.group.lr = 0.01;
    drill.group.weight_decay = 0.02;
    return drill;
}

static bool is_late(uint64_t i)
{
    return i >= LATE_BEGIN && i < LATE_END;
}

static float grad_at(const drill_t *drill, uint32_t rank, uint32_t step, uint64_t i)
{
    float g = (float)normal_at(test_mix_pair(drill->seed, step * 64u + rank), i);

    if (step == drill->bad && drill->bad != 0 && i == 7 && rank == 0) return NAN;
    if (is_late(i)) return step >= drill->touch ? g : 0;
    return i >= LATE_END && i < NEVER_END ? 0 : g;
}

static lnt_status_t one_step(rank_t *rank, const drill_t *drill, uint32_t step)
{
    float grad[N];

    for (uint64_t i = 0; i < N; i++)
        grad[i] = grad_at(drill, rank->rank, step, i);
    return lnt_optim_step(rank->optim, rank_grads(rank, grad));
}

static void open_drill(rank_t *rank, drill_t *drill)
{
    if (rank->rank == 0) drill->model.groups = &drill->group; /* the drill belongs to all */
    ranks_barrier();
    rank_open(rank, &drill->model);
}

/* ---- the lane ---- */

typedef struct late_oracle {
    double x, m, v, power1, power2;
} late_oracle_t;

static void oracle_update(const drill_t *drill, const rank_t *rank, late_oracle_t *o, uint32_t step, uint64_t i)
{
    const lnt_group_t *k = &drill->group;
    double g = 0;

    for (uint32_t r = 0; r < rank->world->n_ranks; r++)
        g += (double)grad_at(drill, r, step, i) / rank->world->n_ranks;
    o->power1 *= k->beta1;
    o->power2 *= k->beta2;
    o->m = k->beta1 * o->m + (1 - k->beta1) * g;
    o->v = k->beta2 * o->v + (1 - k->beta2) * g * g;
    o->x -= k->lr * (o->m / (1 - o->power1)) / (sqrt(o->v / (1 - o->power2)) + k->eps) + k->lr * k->weight_decay * o->x;
}

static void expect_near(double got, double wanted, double unit)
{
    ck_assert_msg(fabs(got - wanted) <= 1e-5 * (fabs(wanted) + unit), "%.9g is not %.9g", got, wanted);
}

static void check_late(const rank_t *rank, const late_oracle_t *oracles, bool joined)
{
    const float *m = lnt_optim_view(rank->optim, "exp_avg", 0), *v = lnt_optim_view(rank->optim, "exp_avg_sq", 0);
    const float *denominator = lnt_optim_view(rank->optim, "denominator", 0);
    const uint8_t *dead = lnt_optim_view(rank->optim, "dead", 0);

    for (uint64_t i = LATE_BEGIN; i < LATE_END; i++) {
        const late_oracle_t *o = &oracles[i - LATE_BEGIN];
        expect_near(rank->x[i], o->x, 0.01);
        expect_near(m[i], o->m, 0.1);
        expect_near(v[i], o->v, 1e-3);
        ck_assert_uint_eq(dead[i], !joined);
        if (joined) expect_near(denominator[i], sqrt(o->v / (1 - o->power2)) + 1e-8, 0);
    }
    for (uint64_t i = LATE_END; i < NEVER_END; i++) {
        ck_assert(rank->x[i] == (float)normal_at(rank->model->start_seed, i) && m[i] == 0 && v[i] == 0 && dead[i] == 1);
    }
}

/* What a step sends equals what was announced before it. */
static lnt_status_t counted_step(rank_t *rank, const drill_t *drill, uint32_t step, uint64_t *bytes_p)
{
    lnt_comm_stats_t stats = {.struct_size = sizeof(stats)};
    uint64_t intra = 0, inter = 0;
    lnt_status_t status;

    ranks_ok(lnt_plan_wire_bytes(rank->plan, step < FREEZE ? 1 : 6, &intra, &inter));
    ranks_ok(lnt_comm_get_stats(rank->comm, &stats, true));
    status = one_step(rank, drill, step);
    ranks_ok(lnt_comm_get_stats(rank->comm, &stats, false));
    ck_assert_uint_eq(stats.wire_bytes_intra, intra);
    ck_assert_uint_eq(stats.wire_bytes_inter, inter);
    *bytes_p = intra + inter;
    return status;
}

static void check_counters(const rank_t *rank, const drill_t *drill, uint32_t step, bool stay)
{
    const lnt_optim_info_t info = rank_info(rank);
    const bool told = step >= drill->touch, joined = step >= drill->touch + UPDATES;
    const uint64_t late = !told ? 0 : joined ? (stay ? NEVER_END - LATE_END : 0) : NEVER_END - LATE_BEGIN;

    ck_assert_uint_eq(info.late_touched, told);
    ck_assert_uint_eq(info.late_blocks, late != 0);
    ck_assert_uint_eq(info.lane_elems, step + 1 < FREEZE ? 0 : SHORT + late);
}

static void lane_body(rank_t *rank)
{
    drill_t *drill = rank->arg;
    const bool stay = strstr(drill->model.options, "stay") != NULL;
    late_oracle_t oracles[LATE_END - LATE_BEGIN];
    uint64_t bytes, before = 0;

    open_drill(rank, drill);
    for (uint64_t i = LATE_BEGIN; i < LATE_END; i++)
        oracles[i - LATE_BEGIN] = (late_oracle_t){.x = rank->x[i], .power1 = 1, .power2 = 1};
    for (uint32_t step = 0; step < drill->touch + UPDATES + 2; step++) {
        ranks_ok(counted_step(rank, drill, step, &bytes));
        if (step == drill->touch) before = bytes;
        if (step > drill->touch && step <= drill->touch + UPDATES) {
            ck_assert(rank->world->n_ranks == 1 || bytes > before || rank->rank > 1);
            for (uint64_t i = LATE_BEGIN; i < LATE_END; i++)
                oracle_update(drill, rank, &oracles[i - LATE_BEGIN], step, i);
        }
        if (step + 1 == FREEZE) { /* decay of the warm-up is not the lane's */
            for (uint64_t i = LATE_BEGIN; i < LATE_END; i++)
                oracles[i - LATE_BEGIN].x = rank->x[i];
        }
        check_counters(rank, drill, step, stay);
        if (step + 1 >= FREEZE && step <= drill->touch + UPDATES)
            check_late(rank, oracles, step == drill->touch + UPDATES);
        expect_equal_ranks(rank);
    }
    rank_close(rank);
}

/* weight_decay moves what has no gradient in the warm-up; here nothing may. */
START_TEST(late_comers_follow_adam_and_join)
{
    static const char *const options[] = {
        "freeze_step=6,block=64,max_dead_share=1,lane_updates=15",
        "freeze_step=6,block=64,max_dead_share=1,lane_updates=15,compression=off",
        "freeze_step=6,block=64,max_dead_share=1,lane_updates=15,late_idle=stay",
    };
    drill_t drill = make_drill(options[_i / N_WORLDS]);

    drill.group.weight_decay = 0;
    ranks_run(&worlds[_i % N_WORLDS], lane_body, &drill);
}
END_TEST

/* ---- decisions are part of the transaction ---- */

static void skip_body(rank_t *rank)
{
    drill_t *drill = rank->arg;
    float start[N];

    open_drill(rank, drill);
    for (uint32_t step = 0; step < drill->bad; step++)
        ranks_ok(one_step(rank, drill, step));
    memcpy(start, rank->x, sizeof(start));
    ck_assert_int_eq(one_step(rank, drill, drill->bad), LNT_SKIPPED_NONFINITE);
    ck_assert_uint_eq(rank_info(rank).late_touched, 0);
    ck_assert_uint_eq(rank_info(rank).lane_elems, SHORT);
    ck_assert_mem_eq(start, rank->x, sizeof(start));
    ranks_ok(one_step(rank, drill, drill->bad + 1));
    ck_assert_uint_eq(rank_info(rank).late_touched, 1);
    ck_assert_mem_eq(start + LATE_BEGIN, rank->x + LATE_BEGIN, (LATE_END - LATE_BEGIN) * sizeof(float));
    rank_close(rank);
}

START_TEST(a_skipped_step_tells_nothing)
{
    drill_t drill = make_drill("freeze_step=6,block=64,max_dead_share=1");

    drill.bad = drill.touch;
    ranks_run(&worlds[_i], skip_body, &drill);
}
END_TEST

static void add_errors(rank_t *rank, drill_t *drill)
{
    uint64_t sum = 0;
    lnt_error_extent_t extent;

    for (size_t i = 0; lnt_plan_error_extent(rank->plan, i, &extent) == LNT_OK; i++) {
        for (uint64_t k = 0; k < extent.count; k++) {
            uint32_t bits;
            memcpy(&bits, &extent.data[k], sizeof(bits));
            sum += test_mix_pair((uint64_t)extent.program << 40 | (uint64_t)extent.server << 32 | extent.codec_worker,
                                 test_mix_pair((uint64_t)extent.tensor << 32 | (extent.offset + k), bits));
        }
    }
    drill->errors[rank->rank] = sum;
}

/* Trains on; saves and loads into another plan at save_at. */
static void resume_body(rank_t *rank)
{
    drill_t *drill = rank->arg;
    model_t other;
    uint64_t bytes;
    uint8_t *blob;

    open_drill(rank, drill);
    for (uint32_t step = 0; step < STEPS; step++) {
        if (step == drill->save_at) {
            ranks_ok(lnt_optim_state_size(rank->optim, &bytes));
            blob = malloc(bytes);
            ranks_ok(lnt_optim_state_export(rank->optim, blob, bytes));
            rank_close(rank);
            other = drill->model;
            other.bucket_bytes = drill->other_bucket;
            other.start_seed++;
            rank_open(rank, &other);
            ranks_ok(lnt_optim_state_import(rank->optim, blob, bytes));
            free(blob);
        }
        ranks_ok(one_step(rank, drill, step));
        expect_equal_ranks(rank);
    }
    add_errors(rank, drill);
    if (rank->rank == 0) drill->hash[0] = lnt_optim_hash(rank->optim);
    rank_close(rank);
}

START_TEST(late_comers_resume_bit_by_bit)
{
    drill_t drill = make_drill("freeze_step=6,block=64,max_dead_share=1,lane_updates=15");
    const uint32_t places[] = {drill.touch, drill.touch + 1, drill.touch + 3, drill.touch + 1 + UPDATES, STEPS - 1};
    uint64_t hash, errors = 0;

    drill.save_at = UINT32_MAX;
    ranks_run(&worlds[_i], resume_body, &drill);
    hash = drill.hash[0];
    for (uint32_t r = 0; r < worlds[_i].n_ranks; r++)
        errors += drill.errors[r];
    for (size_t k = 0; k < sizeof(places) / sizeof(places[0]); k++) {
        drill.save_at = places[k];
        drill.other_bucket = 4 * BLOCK * (1 + test_random_below(6));
        ranks_run(&worlds[_i], resume_body, &drill);
        ck_assert_uint_eq(drill.hash[0], hash);
        for (uint32_t r = 0; r < worlds[_i].n_ranks; r++)
            drill.errors[0] += r != 0 ? drill.errors[r] : 0;
        ck_assert_uint_eq(drill.errors[0], errors);
    }
}
END_TEST

/* ---- learning ---- */

enum { LEARN = TEST_SANITIZED ? 80 : 500, ROW = 32, FIRST_TOUCH = FREEZE + 50 };

/* A quadratic around 1 + the start; the row [128, 160) has no gradient before FIRST_TOUCH. */
static void learn_body(rank_t *rank)
{
    drill_t *drill = rank->arg;
    float grad[N];

    open_drill(rank, drill);
    for (uint32_t step = 0; step < LEARN; step++) {
        for (uint64_t i = 0; i < N; i++) {
            float goal = (float)normal_at(drill->model.start_seed, i) + 1;
            float noise = 0.3f * (float)normal_at(test_mix_pair(drill->seed, step * 64u + rank->rank), i);
            bool row = i >= 2 * BLOCK && i < 2 * BLOCK + ROW;
            grad[i] = row && step < FIRST_TOUCH ? 0 : rank->x[i] - goal + noise;
        }
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
        expect_equal_ranks(rank);
    }
    ck_assert_uint_eq(rank_info(rank).late_touched, 1);
    if (rank->rank == 0) memcpy(drill->result, rank->x, sizeof(grad));
    rank_close(rank);
}

/* Largest distance from the goal in the row. */
static double distance(const drill_t *drill, const float *x)
{
    double far = 0;

    for (uint64_t i = 2 * BLOCK; i < 2 * BLOCK + ROW; i++) {
        double d = fabs(x[i] - (normal_at(drill->model.start_seed, i) + 1));
        far = d > far ? d : far;
    }
    return far;
}

START_TEST(a_row_touched_50_steps_after_the_freeze_learns_like_its_twin)
{
    drill_t drill = make_drill("freeze_step=6,block=64,max_dead_share=1,lane_updates=100");
    float coded[N], twin[N];

    drill.group.weight_decay = 0;
    drill.result = coded;
    ranks_run(&worlds[_i], learn_body, &drill);
    drill.model.options = "freeze_step=6,block=64,max_dead_share=1,lane_updates=100,compression=off";
    drill.result = twin;
    ranks_run(&worlds[_i], learn_body, &drill);
    printf("row: distance %g, twin %g, from 1\n", distance(&drill, coded), distance(&drill, twin));
    if (TEST_SANITIZED) return;
    ck_assert_double_lt(distance(&drill, twin), 0.2);
    ck_assert_double_lt(distance(&drill, coded), 0.2);
}
END_TEST

/* ---- what stands still, and what does not drift ---- */

enum { STILL = TEST_SANITIZED ? 40 : 150 };

static void still_body(rank_t *rank)
{
    drill_t *drill = rank->arg;

    open_drill(rank, drill);
    for (uint32_t step = 0; step < STILL; step++)
        ranks_ok(one_step(rank, drill, step));
    expect_only_still(rank->x, N, drill->model.start_seed, LATE_BEGIN, NEVER_END);
    ck_assert_uint_eq(rank_info(rank).late_touched, 0);
    rank_close(rank);
}

START_TEST(rows_without_gradients_do_not_move_in_150_steps)
{
    drill_t drill = make_drill("freeze_step=6,block=64,max_dead_share=1");

    drill.group.weight_decay = 0;
    drill.touch = UINT32_MAX;
    ranks_run(&worlds[_i], still_body, &drill);
}
END_TEST

enum { NOISE_STEPS = TEST_SANITIZED ? 40 : 300 };

/* Like the bias of attention keys: 1e-11 of rounding noise in a block whose other gradients are 1e-4. */
static void noise_body(rank_t *rank)
{
    drill_t *drill = rank->arg;
    float grad[N];
    double others = 0;

    open_drill(rank, drill);
    for (uint32_t step = 0; step < NOISE_STEPS; step++) {
        for (uint64_t i = 0; i < N; i++) {
            float g = (float)normal_at(test_mix_pair(drill->seed, step * 64u + rank->rank), i);
            grad[i] = g * (is_late(i) ? 1e-11f : 1e-4f);
        }
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
    }
    for (uint64_t i = 0; i < N; i++) {
        double moved = fabs(rank->x[i] - normal_at(drill->model.start_seed, i));
        if (is_late(i))
            ck_assert_double_lt(moved, 2e-3); /* lr * steps * 1e-11 / (1e-11 + eps), and f32 */
        else
            others += moved / (N - (LATE_END - LATE_BEGIN));
    }
    ck_assert(TEST_SANITIZED || others > 0.02); /* random walks of what has gradients */
    ck_assert_uint_eq(rank_info(rank).late_blocks, 1);
    ck_assert_uint_eq(rank_info(rank).lane_elems, SHORT + LATE_END - LATE_BEGIN);
    rank_close(rank);
}

START_TEST(rounding_noise_does_not_drift)
{
    drill_t drill = make_drill("freeze_step=6,block=64,max_dead_share=1,lane_updates=15");

    drill.group.weight_decay = 0;
    ranks_run(&worlds[_i], noise_body, &drill);
}
END_TEST

/* ---- memory ---- */

/* Memory is missing where the lane is built: `end` has committed and says so, `begin` begins nothing, and may be called
 * again. */
static void starve(rank_t *rank, const drill_t *drill)
{
    lnt_memory_fail_after(1);
    ranks_ok(one_step(rank, drill, drill->touch));
    ck_assert(lnt_memory_fault_fired());
    lnt_memory_fail_after(1);
    ck_assert_int_eq(lnt_optim_begin(rank->optim), LNT_ERR_NO_MEMORY);
    lnt_memory_fail_after(0);
    ck_assert_uint_eq(rank_info(rank).step, drill->touch + 1);
    ck_assert_int_eq(lnt_optim_end(rank->optim), LNT_ERR_INVALID_USAGE);
}

static void starved_body(rank_t *rank)
{
    drill_t *drill = rank->arg;
    float wanted[N];

    for (int starved = 0; starved < 2; starved++) {
        open_drill(rank, drill);
        for (uint32_t step = 0; step < STEPS; step++) {
            if (starved && step == drill->touch) {
                starve(rank, drill);
            } else {
                ranks_ok(one_step(rank, drill, step));
            }
        }
        if (starved) ck_assert_mem_eq(rank->x, wanted, sizeof(wanted));
        memcpy(wanted, rank->x, sizeof(wanted));
        rank_close(rank);
    }
}

START_TEST(a_lane_without_memory_is_built_later)
{
    drill_t drill = make_drill("freeze_step=6,block=64,max_dead_share=1,lane_updates=15");

    ranks_run(&worlds[0], starved_body, &drill);
}
END_TEST

static Suite *late_suite(void)
{
    Suite *suite = suite_create("optim_late");
    TCase *tcase = tcase_create("late");

    tcase_add_loop_test(tcase, late_comers_follow_adam_and_join, 0, 3 * N_WORLDS);
    tcase_add_loop_test(tcase, a_skipped_step_tells_nothing, 0, N_WORLDS);
    tcase_add_test(tcase, a_lane_without_memory_is_built_later);
    tcase_add_loop_test(tcase, late_comers_resume_bit_by_bit, 0, N_WORLDS);
    tcase_add_loop_test(tcase, a_row_touched_50_steps_after_the_freeze_learns_like_its_twin, 0, N_WORLDS);
    tcase_add_loop_test(tcase, rows_without_gradients_do_not_move_in_150_steps, 0, N_WORLDS);
    tcase_add_loop_test(tcase, rounding_noise_does_not_drift, 0, N_WORLDS);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return test_main(late_suite());
}
