/* Packed programs whose parts change from step to step, without an optimizer: what arrives, whatever the cuts and the
 * buckets; bytes and memory; what is refused; memory that runs out; ranks that disagree. And the blocks in which an
 * element that takes no part had a gradient.
 */
#include <math.h>

#include "../../src/base/memory.h"
#include "../../src/core/plan_impl.h"
#include "ranks.h"

enum { BLOCK = 64, FIRST = 300, SECOND = 200, N = FIRST + SECOND, MANY = 40 };
enum { SIGN, LANE };

static const world_t worlds[] = {
    {.n_ranks = 1, .quiet = true},
    {.n_ranks = 2, .nodes = {0, 1}, .quiet = true},
    {.n_ranks = 4, .nodes = {0, 0, 1, 1}, .quiet = true},
    {.n_ranks = 5, .nodes = {0, 1, 0, 2, 1}, .quiet = true},
};
enum { N_WORLDS = sizeof(worlds) / sizeof(worlds[0]) };

typedef struct seen {
    float value[N];
    uint8_t times[N];
} seen_t;

typedef struct job {
    uint64_t seed, bucket_bytes;
    seen_t *seen[MAX_RANKS];
} job_t;

static uint64_t at(uint32_t tensor, uint64_t offset)
{
    return (tensor == 0 ? 0 : FIRST) + offset;
}

static void note(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live)
{
    seen_t *seen = arg;

    (void)live;
    for (uint64_t i = 0; i < span->count; i++) {
        seen->value[at(span->tensor, span->offset + i)] = value[i];
        seen->times[at(span->tensor, span->offset + i)]++;
    }
}

static void ignore(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live)
{
    (void)arg;
    (void)span;
    (void)value;
    (void)live;
}

static void open_plan(rank_t *rank, const model_t *model, seen_t *seen)
{
    uint32_t number;
    lnt_program_params_t sign = {.struct_size = sizeof(sign),
                                 .name = "sign",
                                 .codec = {.struct_size = sizeof(sign.codec), .name = "sign1", .block = BLOCK},
                                 .stage = {.struct_size = sizeof(sign.stage), .consume = ignore}};
    lnt_program_params_t lane = {.struct_size = sizeof(lane),
                                 .name = "lane",
                                 .codec = {.struct_size = sizeof(lane.codec), .name = "f32", .block = BLOCK},
                                 .member = (const uint8_t[]){0, 0},
                                 .packed = true,
                                 .changeable = true,
                                 .stage = {.struct_size = sizeof(lane.stage), .arg = seen, .consume = note}};

    ranks_ok(rank_plan(rank, model));
    ranks_ok(lnt_plan_add_program(rank->plan, &sign, &number));
    ranks_ok(lnt_plan_add_program(rank->plan, &lane, &number));
    ranks_ok(lnt_plan_commit(rank->plan));
}

static void close_plan(rank_t *rank)
{
    ranks_ok(lnt_plan_destroy(rank->plan));
    free(rank->x);
    free(rank->x16);
}

static model_t make_model(const job_t *job)
{
    return (model_t){
        .n_tensors = 2, .lengths = {FIRST, SECOND}, .bucket_bytes = job->bucket_bytes, .segment_bytes = 4 * BLOCK};
}

static float grad_of(const job_t *job, uint32_t rank, uint32_t step, uint64_t i)
{
    return (float)normal_at(test_mix_pair(job->seed, step * 64u + rank), i);
}

static lnt_status_t run_step(rank_t *rank, const float *grad)
{
    const lnt_step_params_t step = {.struct_size = sizeof(step), .programs = 1u << SIGN | 1u << LANE};
    lnt_status_t ready, end;

    ranks_ok(lnt_plan_begin(rank->plan, &step));
    ready = lnt_plan_tensor_ready(rank->plan, 0, grad, NULL);
    if (ready == LNT_OK) ready = lnt_plan_tensor_ready(rank->plan, 1, grad + FIRST, NULL);
    end = lnt_plan_end(rank->plan);
    return ready != LNT_OK ? ready : end; /* the other rank may find a mismatch first */
}

/* Random runs, the same on all ranks. */
static size_t draw_parts(uint64_t seed, lnt_tensor_part_t *parts)
{
    size_t n = 0;

    for (uint32_t t = 0; t < 2; t++) {
        uint64_t count = t == 0 ? FIRST : SECOND;
        for (uint64_t offset = test_mix_pair(seed, t) % 40; offset < count && n < MANY;) {
            uint64_t length = 1 + test_mix_pair(seed, 100 + n) % 50;
            parts[n++] = (lnt_tensor_part_t){t, offset, length < count - offset ? length : count - offset};
            offset += length + test_mix_pair(seed, 200 + n) % 30;
        }
    }
    return n;
}

static void expect_values(const rank_t *rank, const job_t *job, const seen_t *seen, uint32_t step,
                          const lnt_tensor_part_t *parts, size_t n)
{
    uint8_t wanted[N] = {0};

    for (size_t k = 0; k < n; k++)
        memset(wanted + at(parts[k].tensor, parts[k].offset), 1, parts[k].count);
    for (uint64_t i = 0; i < N; i++) {
        double mean = 0;
        for (uint32_t r = 0; r < rank->world->n_ranks; r++)
            mean += (double)grad_of(job, r, step, i) / rank->world->n_ranks;
        ck_assert_uint_eq(seen->times[i], wanted[i]);
        if (wanted[i]) ck_assert_double_lt(fabs((double)seen->value[i] - mean), 1e-5);
    }
}

/* Each plan's memory is what a plan with the same parts would take, however it came there. */
static void expect_memory(const rank_t *rank)
{
    lnt_plan_memory_t memory = {.struct_size = sizeof(memory)};
    uint64_t frames = 0;

    ranks_ok(lnt_plan_get_memory(rank->plan, &memory));
    for (uint32_t b = 0; b < rank->plan->n_buckets; b++) {
        for (uint32_t p = 0; p < 2; p++) {
            lnt_exchange_t *exchange = rank->plan->buckets[b].exchange[p];
            if (exchange != NULL) frames += lnt_exchange_graph(exchange)->space.bytes;
        }
    }
    ck_assert_uint_eq(memory.frames, frames);
    ck_assert_uint_eq(memory.total, memory.errors + memory.shadows + memory.frames + memory.graphs + memory.other);
}

static void parts_body(rank_t *rank)
{
    const job_t *job = rank->arg;
    const model_t model = make_model(job);
    lnt_tensor_part_t parts[MANY];
    lnt_comm_stats_t stats = {.struct_size = sizeof(stats)};
    seen_t *seen = calloc(1, sizeof(*seen));
    float grad[N];
    uint64_t intra, inter;

    open_plan(rank, &model, seen);
    for (uint32_t step = 0; step < 12; step++) {
        size_t n = step % 4 == 0 ? 0 : draw_parts(job->seed + step, parts);
        ranks_ok(lnt_plan_set_parts(rank->plan, LANE, parts, n));
        ranks_ok(lnt_plan_wire_bytes(rank->plan, 3, &intra, &inter));
        for (uint64_t i = 0; i < N; i++)
            grad[i] = grad_of(job, rank->rank, step, i);
        memset(seen, 0, sizeof(*seen));
        ranks_ok(lnt_comm_get_stats(rank->comm, &stats, true));
        ranks_ok(run_step(rank, grad));
        ranks_ok(lnt_comm_get_stats(rank->comm, &stats, false));
        ck_assert_uint_eq(stats.wire_bytes_intra, intra);
        ck_assert_uint_eq(stats.wire_bytes_inter, inter);
        expect_values(rank, job, seen, step, parts, n);
        expect_memory(rank);
    }
    free(seen);
    close_plan(rank);
}

START_TEST(parts_carry_what_they_name)
{
    job_t job = {.seed = test_random(), .bucket_bytes = 4 * (1 + test_random_below(N))};

    ranks_run(&worlds[_i], parts_body, &job);
}
END_TEST

static void refuse_body(rank_t *rank)
{
    const job_t *job = rank->arg;
    const model_t model = make_model(job);
    const lnt_tensor_part_t good[] = {{0, 10, 20}, {1, 0, SECOND}};
    const lnt_tensor_part_t bad[][2] = {
        {{1, 0, 5}, {0, 0, 5}}, {{0, 0, 5}, {0, 4, 5}},   {{0, 0, 0}, {1, 0, 1}},         {{0, 0, 1}, {1, 199, 2}},
        {{0, 0, 1}, {2, 0, 1}}, {{0, 0, 1}, {0, 301, 1}}, {{0, 0, 1}, {1, 1, UINT64_MAX}}};
    const lnt_step_params_t step = {.struct_size = sizeof(step), .programs = 1u << LANE};
    seen_t seen = {.times = {0}};
    uint64_t live;
    lnt_status_t status = LNT_ERR_NO_MEMORY;

    open_plan(rank, &model, &seen);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_int_eq(lnt_plan_set_parts(rank->plan, LANE, bad[i], 2), LNT_ERR_INVALID_ARG);
    ck_assert_int_eq(lnt_plan_set_parts(rank->plan, SIGN, good, 2), LNT_ERR_INVALID_ARG);
    ranks_ok(lnt_plan_begin(rank->plan, &step));
    ck_assert_int_eq(lnt_plan_set_parts(rank->plan, LANE, good, 2), LNT_ERR_INVALID_USAGE);
    ranks_ok(lnt_plan_end(rank->plan));
    live = lnt_memory_live();
    for (uint64_t k = 1; status == LNT_ERR_NO_MEMORY; k++) { /* the k-th allocation fails: nothing changes */
        lnt_memory_fail_after(k);
        status = lnt_plan_set_parts(rank->plan, LANE, good, 2);
        lnt_memory_fail_after(0);
        if (status == LNT_ERR_NO_MEMORY) {
            ck_assert_uint_eq(lnt_memory_live(), live);
            ck_assert_ptr_null(rank->plan->buckets[0].exchange[LANE]);
        }
    }
    ranks_ok(status);
    expect_memory(rank);
    close_plan(rank);
}

START_TEST(wrong_parts_and_lack_of_memory_change_nothing)
{
    job_t job = {.seed = test_random(), .bucket_bytes = 4 * (1 + test_random_below(N))};

    ranks_run(&worlds[0], refuse_body, &job);
}
END_TEST

static void differ_body(rank_t *rank)
{
    const job_t *job = rank->arg;
    const model_t model = make_model(job);
    const lnt_tensor_part_t part = {0, 10 + rank->rank, 20}; /* as many: frames have one size */
    seen_t seen = {.times = {0}};

    open_plan(rank, &model, &seen);
    ranks_ok(lnt_plan_set_parts(rank->plan, LANE, &part, 1));
    ck_assert_int_eq(run_step(rank, rank->x), LNT_ERR_MISMATCH);
    ranks_barrier();
    close_plan(rank);
}

START_TEST(parts_that_differ_between_ranks_are_a_mismatch)
{
    job_t job = {.seed = test_random(), .bucket_bytes = 4 * N};

    ranks_run(&worlds[1], differ_body, &job);
}
END_TEST

/* ---- activity ---- */

typedef struct found {
    uint64_t first[2 * N / BLOCK];
    size_t n;
} found_t;

static void find(void *arg, uint32_t tensor, uint64_t offset)
{
    found_t *found = arg;

    found->first[found->n++] = at(tensor, offset);
}

/* Dead elements in every second block; one rank alone has a gradient at some of them, or two whose sum is zero. */
static void active_body(rank_t *rank)
{
    const job_t *job = rank->arg;
    const model_t model = make_model(job);
    const uint32_t who = (uint32_t)(job->seed % rank->world->n_ranks);
    uint8_t live[FIRST];
    float grad[N];
    found_t found = {.n = 0};
    seen_t seen = {.times = {0}};

    open_plan(rank, &model, &seen);
    for (uint64_t i = 0; i < FIRST; i++)
        live[i] = i / BLOCK % 2 == 1 || i % BLOCK != 5;
    ranks_ok(lnt_plan_set_live(rank->plan, SIGN, 0, live));
    for (uint64_t i = 0; i < N; i++)
        grad[i] = i < FIRST && !live[i] ? 0 : grad_of(job, rank->rank, 0, i);
    if (rank->rank == who) grad[2 * BLOCK + 5] = 1e-20f;
    ranks_ok(run_step(rank, grad));
    ranks_ok(lnt_plan_active(rank->plan, SIGN, find, &found));
    ck_assert_uint_eq(found.n, 1);
    ck_assert_uint_eq(found.first[0], 2 * BLOCK);
    grad[2 * BLOCK + 5] = 0;
    ranks_ok(run_step(rank, grad));
    found.n = 0;
    ranks_ok(lnt_plan_active(rank->plan, SIGN, find, &found));
    ck_assert_uint_eq(found.n, 0);
    close_plan(rank);
}

START_TEST(all_ranks_learn_which_blocks_are_active)
{
    job_t job = {.seed = test_random(), .bucket_bytes = 4 * (1 + test_random_below(N))};

    ranks_run(&worlds[_i], active_body, &job);
}
END_TEST

static Suite *parts_suite(void)
{
    Suite *suite = suite_create("plan_parts");
    TCase *tcase = tcase_create("parts");

    tcase_add_loop_test(tcase, parts_carry_what_they_name, 0, N_WORLDS);
    tcase_add_test(tcase, wrong_parts_and_lack_of_memory_change_nothing);
    tcase_add_test(tcase, parts_that_differ_between_ranks_are_a_mismatch);
    tcase_add_loop_test(tcase, all_ranks_learn_which_blocks_are_active, 0, N_WORLDS);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return test_main(parts_suite());
}
