/* Values and local arrays of an algorithm's state, on a row made for the test: 1-bit Adam that counts. Common ones are
 * hashed, saved, compared and loaded; local ones are saved and loaded per rank; what begins at the freeze is empty
 * before it.
 */
#include <math.h>

#include "../../optim/freeze.h"
#include "../../optim/state_format.h"
#include "ranks.h"

enum { RING = 5, FREEZE = 3 };
enum { PER_TENSOR = LNT_FREEZE_VALUES, PER_GROUP, RING_OF, FROM_FREEZE, LOCAL };

static uint64_t ring_length(const lnt_optim_t *optim)
{
    (void)optim;
    return RING;
}

static const lnt_state_values_t test_values[] = {
    LNT_FREEZE_VALUE_ROWS,
    [PER_TENSOR] = {.name = "tensor_numbers", .count = lnt_values_per_tensor, .initial = 1},
    [PER_GROUP] = {.name = "group_numbers", .count = lnt_values_per_group, .initial = 0.5, .low = 0, .high = 100},
    [RING_OF] = {.name = "ring", .count = ring_length},
    [FROM_FREEZE] = {.name = "late_numbers", .count = lnt_values_one, .initial = 7, .from_freeze = true},
    [LOCAL] = {.name = "own_numbers", .count = lnt_values_one, .local = true},
    {.name = NULL},
};

static lnt_state_array_t test_arrays[LNT_ARRAYS_MAX + 1];
static uint32_t own_array; /* index of the local array */
static lnt_optim_row_t row;

typedef struct job {
    model_t model;
    uint64_t seed;
    uint32_t save_at;
    uint8_t *blob[MAX_RANKS];
    uint64_t bytes[MAX_RANKS];
} job_t;

/* After a commit: something different in every kind of state. */
static lnt_status_t count(lnt_optim_t *optim)
{
    lnt_comm_info_t comm = {.struct_size = sizeof(comm)};
    lnt_status_t status = lnt_onebit_adam_row.committed(optim);

    ranks_ok(lnt_comm_get_info(lnt_plan_comm(optim->plan), &comm));
    for (uint32_t t = 0; t < optim->n_tensors; t++)
        optim->values[PER_TENSOR][t] += t + 0.25;
    for (uint32_t g = 0; g < optim->n_groups; g++)
        optim->values[PER_GROUP][g] += g + 1;
    optim->values[RING_OF][optim->step % RING] = (double)optim->step;
    if (optim->frozen) optim->values[FROM_FREEZE][0] += 1;
    optim->values[LOCAL][0] += comm.rank + 1;
    lnt_optim_f32(optim, own_array)[0] += (float)(comm.rank + 1);
    return status;
}

static void make_row(void)
{
    row = lnt_onebit_adam_row;
    while (row.arrays[own_array].name != NULL) {
        test_arrays[own_array] = row.arrays[own_array];
        own_array++;
    }
    test_arrays[own_array] = (lnt_state_array_t){.name = "own", .elem_bytes = sizeof(float), .local = true};
    row.arrays = test_arrays;
    row.values = test_values;
    row.committed = count;
}

static const char row_options[] = "freeze_step=3,block=64,max_dead_share=1";

static void open_counting(rank_t *rank, const job_t *job)
{
    const lnt_optim_params_t params = {.struct_size = sizeof(params),
                                       .options = row_options,
                                       .groups = job->model.groups,
                                       .n_groups = job->model.n_groups};

    ranks_ok(rank_plan(rank, &job->model));
    ranks_ok(lnt_optim_create_row(rank->plan, &row, &params, &rank->optim));
    ranks_ok(lnt_plan_commit(rank->plan));
}

static void train(rank_t *rank, const job_t *job, uint32_t from, uint32_t to)
{
    float *grad = calloc(rank->n_elems, sizeof(*grad));

    for (uint32_t step = from; step < to; step++) {
        for (uint64_t i = 0; i < rank->n_elems; i++)
            grad[i] = (float)normal_at(test_mix_pair(job->seed, step * 64u + rank->rank), i);
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
        expect_equal_ranks(rank); /* local state differs by now */
    }
    free(grad);
}

static void save(rank_t *rank, job_t *job)
{
    ranks_ok(lnt_optim_state_size(rank->optim, &job->bytes[rank->rank]));
    free(job->blob[rank->rank]);
    job->blob[rank->rank] = malloc(job->bytes[rank->rank]);
    ranks_ok(lnt_optim_state_export(rank->optim, job->blob[rank->rank], job->bytes[rank->rank]));
}

static double one(const rank_t *rank, const char *name, uint64_t index, uint64_t expected_count)
{
    uint64_t n = 0;
    const double *values = lnt_optim_values(rank->optim, name, &n);

    ck_assert_ptr_nonnull(values);
    ck_assert_uint_eq(n, expected_count);
    return values[index];
}

static void expect_numbers(const rank_t *rank, uint32_t steps)
{
    const float *own = lnt_optim_view(rank->optim, "own", 0);

    for (uint32_t t = 0; t < 3; t++)
        ck_assert_double_eq(one(rank, "tensor_numbers", t, 3), 1 + steps * (t + 0.25));
    for (uint32_t g = 0; g < 2; g++)
        ck_assert_double_eq(one(rank, "group_numbers", g, 2), 0.5 + steps * (g + 1));
    ck_assert_double_eq(one(rank, "ring", steps % RING, RING), steps);
    ck_assert_double_eq(one(rank, "own_numbers", 0, 1), steps * (rank->rank + 1));
    ck_assert_double_eq((double)own[0], steps * (rank->rank + 1));
    ck_assert_ptr_null(lnt_optim_values(rank->optim, "numbers", NULL));
    if (steps < FREEZE) {
        ck_assert_ptr_null(lnt_optim_values(rank->optim, "late_numbers", NULL));
    } else {
        ck_assert_double_eq(one(rank, "late_numbers", 0, 1), 8 + steps - FREEZE);
    }
}

/* Past the freeze, back to a state before or after it, and the same way again. */
static void resume_body(rank_t *rank)
{
    job_t *job = rank->arg;
    uint64_t hash;

    open_counting(rank, job);
    train(rank, job, 0, job->save_at);
    expect_numbers(rank, job->save_at);
    save(rank, job);
    train(rank, job, job->save_at, FREEZE + 4);
    expect_numbers(rank, FREEZE + 4);
    hash = lnt_optim_hash(rank->optim);
    ranks_ok(lnt_optim_state_import(rank->optim, job->blob[rank->rank], job->bytes[rank->rank]));
    expect_numbers(rank, job->save_at);
    train(rank, job, job->save_at, FREEZE + 4);
    expect_numbers(rank, FREEZE + 4);
    ck_assert_uint_eq(lnt_optim_hash(rank->optim), hash);
    free(job->blob[rank->rank]);
    rank_close(rank);
}

static const lnt_group_t groups[2] = {
    {.struct_size = sizeof(lnt_group_t), .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
    {.struct_size = sizeof(lnt_group_t), .lr = 2e-3, .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-8}};

static job_t draw_job(void)
{
    return (job_t){
        .model = {.n_tensors = 3, .lengths = {100, 3, 70}, .group_of = {0, 1, 1}, .groups = groups, .n_groups = 2},
        .seed = test_random()};
}

START_TEST(values_resume)
{
    for (uint32_t save_at = 0; save_at <= FREEZE + 1; save_at++) {
        job_t job = draw_job();
        job.save_at = save_at;
        ranks_run(&(world_t){.n_ranks = 3, .nodes = {0, 1, 1}, .quiet = true}, resume_body, &job);
    }
}
END_TEST

/* Another number in a section of the blob, with checksums that fit. */
static void patch(uint8_t *blob, uint64_t bytes, const char *name, double value)
{
    for (uint64_t at = sizeof(lnt_state_header_t); at < bytes;) {
        lnt_state_section_t section;
        memcpy(&section, blob + at, sizeof(section));
        if (strcmp(section.name, name) == 0) {
            memcpy(blob + at + sizeof(section), &value, sizeof(value));
            section.crc = lnt_state_section_crc(&section, blob + at + sizeof(section));
            memcpy(blob + at, &section, sizeof(section));
        }
        at += sizeof(section) + section.bytes;
    }
}

static void import_patched(rank_t *rank, job_t *job, bool here, const char *name, double value, lnt_status_t expected)
{
    uint64_t hash = lnt_optim_hash(rank->optim);

    save(rank, job);
    if (here) patch(job->blob[rank->rank], job->bytes[rank->rank], name, value);
    ck_assert_int_eq(lnt_optim_state_import(rank->optim, job->blob[rank->rank], job->bytes[rank->rank]), expected);
    if (expected != LNT_OK) ck_assert_uint_eq(lnt_optim_hash(rank->optim), hash);
    ranks_barrier();
}

static void refuse_body(rank_t *rank)
{
    job_t *job = rank->arg;
    bool last = rank->rank == rank->world->n_ranks - 1;
    uint64_t hash;

    open_counting(rank, job);
    train(rank, job, 0, FREEZE + 1);
    hash = lnt_optim_hash(rank->optim);
    import_patched(rank, job, last, "tensor_numbers", NAN, LNT_ERR_CORRUPT);
    import_patched(rank, job, last, "group_numbers", 101, LNT_ERR_CORRUPT);
    import_patched(rank, job, last, "group_numbers", -1, LNT_ERR_CORRUPT);
    import_patched(rank, job, last, "tensor_numbers", 12, LNT_ERR_STATE_MISMATCH); /* on one rank alone */
    import_patched(rank, job, last, "own_numbers", 12, LNT_OK);
    ck_assert_double_eq(one(rank, "own_numbers", 0, 1), last ? 12 : (FREEZE + 1) * (rank->rank + 1));
    ck_assert_uint_eq(lnt_optim_hash(rank->optim), hash); /* what is local is not in it */
    import_patched(rank, job, true, "ring", 12, LNT_OK);
    ck_assert_uint_ne(lnt_optim_hash(rank->optim), hash);
    free(job->blob[rank->rank]);
    rank_close(rank);
}

START_TEST(impossible_and_unequal_values_are_refused)
{
    job_t job = draw_job();

    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, refuse_body, &job);
}
END_TEST

static void memory_body(rank_t *rank)
{
    job_t *job = rank->arg;
    uint64_t with;

    open_counting(rank, job);
    with = rank_info(rank).memory_bytes;
    rank_close(rank);
    job->model.algorithm = "onebit_adam";
    job->model.options = row_options;
    rank_open(rank, &job->model);
    /* 3 tensors, 2 groups, a ring, two numbers; an array of tensors on 64-byte borders */
    ck_assert_uint_eq(with - rank_info(rank).memory_bytes,
                      (3 + 2 + RING + 1 + 1) * sizeof(double) + (112 + 16 + 80) * 4);
    rank_close(rank);
}

START_TEST(values_count_as_memory)
{
    job_t job = draw_job();

    ranks_run(&(world_t){.n_ranks = 1, .quiet = true}, memory_body, &job);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("optim_values");
    TCase *tcase = tcase_create("values");

    make_row();
    tcase_add_test(tcase, values_resume);
    tcase_add_test(tcase, impossible_and_unequal_values_are_refused);
    tcase_add_test(tcase, values_count_as_memory);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
