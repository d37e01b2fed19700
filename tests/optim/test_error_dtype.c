/* Errors kept in bf16 or int8: the account of a step but for what rounding dropped, which is bounded; the bytes that
 * are predicted; resumed runs, buckets, segments and ownership change no bit; and the quadratic converges.
 */
#include <math.h>
#include <stdatomic.h>

#include "ranks.h"

enum { LENGTHS = 3, STEPS = TEST_SANITIZED ? 20 : 60, FREEZE = 4 };

/* ---- accounting, with the stages of a program of our own ---- */

typedef struct account {
    model_t model;
    const char *codec;
    uint32_t block;
    uint64_t seed;
    double *worker[MAX_RANKS], *server; /* by node; all tensors one after the other */
    float *out, *grads[MAX_RANKS];
    double *before, dropped;
    uint32_t n_nodes;
    _Atomic uint64_t told; /* bytes of errors, all ranks */
} account_t;

static uint64_t place_of(const model_t *model, uint32_t tensor, uint64_t offset)
{
    for (uint32_t t = 0; t < tensor; t++)
        offset += model->lengths[t];
    return offset;
}

static void take(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live)
{
    rank_t *rank = arg;
    account_t *account = rank->arg;

    (void)live;
    if (rank->rank != 0) return;
    memcpy(account->out + place_of(&account->model, span->tensor, span->offset), value, span->count * sizeof(*value));
}

static void collect_errors(rank_t *rank, account_t *account)
{
    lnt_error_extent_t extent;

    for (size_t i = 0; lnt_plan_error_extent(rank->plan, i, &extent) == LNT_OK; i++) {
        double *to = (extent.server ? account->server : account->worker[extent.codec_worker]) +
                     place_of(&account->model, extent.tensor, extent.offset);
        float *values = malloc(extent.count * sizeof(*values));
        lnt_plan_read_error(&extent, values);
        ck_assert(account->model.error_dtype != LNT_ERROR_F32 ||
                  memcmp(values, extent.data, extent.count * sizeof(*values)) == 0);
        ck_assert((extent.data != NULL) == (account->model.error_dtype == LNT_ERROR_F32));
        for (uint64_t k = 0; k < extent.count; k++)
            to[k] = (double)values[k];
        free(values);
    }
}

/* What keeping e may change, half a step: bf16 has 8 bits, 127 steps of int8 are the largest of 64 neighbours in the
 * tensor. */
static double largest_loss(const account_t *account, const double *errors, uint64_t begin, uint64_t i, uint64_t end)
{
    uint64_t first = begin + (i - begin) / 64 * 64, last = first + 64 < end ? first + 64 : end;
    double largest = 0;

    if (account->model.error_dtype == LNT_ERROR_BF16) return fabs(errors[i]) * 0x1.02p-8;
    for (uint64_t k = first; k < last; k++)
        largest = fmax(largest, fabs(errors[k]));
    return account->model.error_dtype == LNT_ERROR_INT8 ? largest * 1.001 / 254 : 0;
}

static double feedback(const account_t *account, uint64_t i)
{
    double sum = account->server[i];

    for (uint32_t a = 0; a < account->n_nodes; a++)
        sum += account->worker[a][i] / account->n_nodes;
    return sum;
}

/* out + mean(e') + E' = mean(b) + mean(e) + E, up to what keeping every error may lose, and f32 rounding of the way. */
static void audit_tensor(account_t *account, uint32_t n_ranks, uint64_t begin, uint64_t end)
{
    for (uint64_t i = begin; i < end; i++) {
        double mean = 0, after = feedback(account, i), size = 0, bound;
        for (uint32_t r = 0; r < n_ranks; r++)
            mean += (double)account->grads[r][i] / n_ranks;
        bound = largest_loss(account, account->server, begin, i, end);
        for (uint32_t a = 0; a < account->n_nodes; a++) {
            bound += largest_loss(account, account->worker[a], begin, i, end) / account->n_nodes;
            size += fabs(account->worker[a][i]) / account->n_nodes;
        }
        size += fabs(mean) + fabs(account->before[i]) + fabs((double)account->out[i]) + fabs(account->server[i]) + 8;
        ck_assert_double_le(fabs((double)account->out[i] + after - mean - account->before[i]), bound + 1e-6 * size);
        account->dropped += fabs((double)account->out[i] + after - mean - account->before[i]);
        account->before[i] = after;
    }
}

static void account_step(rank_t *rank, account_t *account, uint32_t number)
{
    const lnt_step_params_t step = {.struct_size = sizeof(step), .programs = 1, .step = number};
    float *grad = account->grads[rank->rank];
    uint64_t begin = 0;

    for (uint64_t i = 0; i < rank->n_elems; i++)
        grad[i] = (float)ldexp(normal_at(test_mix_pair(account->seed, number * 64u + rank->rank), i), -(int)(i % 5));
    ranks_ok(lnt_plan_begin(rank->plan, &step));
    for (uint32_t t = 0; t < rank->model->n_tensors; t++)
        ranks_ok(lnt_plan_tensor_ready(rank->plan, t, rank_grads(rank, grad)[t], NULL));
    ranks_ok(lnt_plan_end(rank->plan));
    collect_errors(rank, account);
    ranks_barrier();
    for (uint32_t t = 0; t < rank->model->n_tensors && rank->rank == 0; begin += rank->model->lengths[t++])
        audit_tensor(account, rank->world->n_ranks, begin, begin + rank->model->lengths[t]);
    ranks_barrier();
}

/* Bytes that all ranks together keep: the errors of every node's workers and of the servers, each of every element
 * once. int8: and 4 for 64 elements, in whole blocks of the codec. */
static uint64_t error_bytes(const account_t *account)
{
    static const uint64_t elem_bytes[] = {[LNT_ERROR_F32] = 4, [LNT_ERROR_BF16] = 2, [LNT_ERROR_INT8] = 1};
    const model_t *model = &account->model;
    uint64_t bytes = 0;

    for (uint32_t t = 0; t < model->n_tensors; t++) {
        uint64_t n_blocks = (model->lengths[t] + account->block - 1) / account->block;
        bytes += model->lengths[t] * elem_bytes[model->error_dtype];
        if (model->error_dtype == LNT_ERROR_INT8) bytes += n_blocks * (account->block / 64) * 4;
    }
    return (account->n_nodes + 1) * bytes;
}

/* What the ranks were told before the commit; what is allocated is compared with it in test_plan_memory.c. */
static void expect_memory(account_t *account, const lnt_plan_memory_t *before)
{
    uint64_t told;

    ck_assert_uint_eq(before->shadows, before->errors);
    atomic_fetch_add(&account->told, before->errors);
    ranks_barrier();
    told = account->told;
    ck_assert_uint_eq(told, error_bytes(account));
}

static void account_body(rank_t *rank)
{
    account_t *account = rank->arg;
    lnt_program_params_t program = {
        .struct_size = sizeof(program),
        .name = "coded",
        .codec = {.struct_size = sizeof(program.codec), .name = account->codec, .block = account->block},
        .stage = {.struct_size = sizeof(program.stage), .arg = rank, .consume = take}};
    lnt_plan_memory_t memory = {.struct_size = sizeof(memory)};
    uint32_t number;

    ranks_ok(rank_plan(rank, &account->model));
    ranks_ok(lnt_plan_attach(rank->plan));
    ranks_ok(lnt_plan_add_program(rank->plan, &program, &number));
    ranks_ok(lnt_plan_get_memory(rank->plan, &memory));
    ranks_ok(lnt_plan_commit(rank->plan));
    expect_memory(account, &memory);
    for (uint32_t step = 0; step < STEPS; step++)
        account_step(rank, account, step);
    lnt_plan_detach(rank->plan);
    ranks_ok(lnt_plan_destroy(rank->plan));
    free(rank->x);
    free(rank->x16);
}

static const struct {
    world_t world;
    uint32_t n_nodes;
    const char *codec;
    uint32_t block;
} accounts[] = {
    {{.n_ranks = 3, .nodes = {0, 1, 2}}, 3, "sign1", 128},
    {{.n_ranks = 4, .nodes = {0, 1, 0, 1}}, 2, "sign1", 64},
    {{.n_ranks = 2, .nodes = {0, 1}}, 2, "int4", 320},
    {{.n_ranks = 2, .nodes = {0, 1}}, 2, "sign1", 8192}, /* larger than the stack of a task */
};

static void run_account(const account_t *shape, const world_t *world)
{
    account_t account = *shape;
    uint64_t n = model_elems(&account.model);

    for (uint32_t r = 0; r < MAX_RANKS; r++) {
        account.worker[r] = calloc(n, sizeof(double));
        account.grads[r] = calloc(n, sizeof(float));
    }
    account.server = calloc(n, sizeof(double));
    account.before = calloc(n, sizeof(double));
    account.out = calloc(n, sizeof(float));
    ranks_run(world, account_body, &account);
    if (account.model.error_dtype != LNT_ERROR_F32) ck_assert_double_gt(account.dropped / STEPS / (double)n, 1e-5);
    for (uint32_t r = 0; r < MAX_RANKS; r++) {
        free(account.worker[r]);
        free(account.grads[r]);
    }
    free(account.server);
    free(account.before);
    free(account.out);
}

START_TEST(what_is_dropped_is_bounded)
{
    for (int dtype = LNT_ERROR_F32; dtype <= LNT_ERROR_INT8; dtype++) {
        account_t account = {.codec = accounts[_i].codec,
                             .block = accounts[_i].block,
                             .n_nodes = accounts[_i].n_nodes,
                             .seed = test_random()};
        account.model = (model_t){.n_tensors = LENGTHS,
                                  .lengths = {1 + test_random() % 300, accounts[_i].block * 2 + test_random() % 999,
                                              64 * (1 + test_random() % 9)},
                                  .bucket_bytes = 1024 + test_random() % 20000,
                                  .segment_bytes = 256 + test_random() % 4000,
                                  .error_dtype = (lnt_error_dtype_t)dtype,
                                  .start_seed = test_random()};
        run_account(&account, &accounts[_i].world);
    }
}
END_TEST

/* ---- what leaves, and what is left out ---- */

static uint64_t tensor_errors(const rank_t *rank, uint32_t tensor, bool write_back)
{
    lnt_error_extent_t extent;
    uint64_t hash = 1;

    for (size_t i = 0; lnt_plan_error_extent(rank->plan, i, &extent) == LNT_OK; i++) {
        float *values = malloc(extent.count * sizeof(*values));
        lnt_plan_read_error(&extent, values);
        for (uint64_t k = 0; k < extent.count && extent.tensor == tensor; k++) {
            uint32_t bits;
            memcpy(&bits, &values[k], sizeof(bits));
            hash = test_mix_pair(hash, bits);
        }
        if (write_back) lnt_plan_write_error(&extent, values);
        free(values);
    }
    return hash;
}

static void step_without(rank_t *rank, const account_t *account, uint32_t number, const uint8_t *left_out)
{
    const lnt_step_params_t step = {.struct_size = sizeof(step), .programs = 1, .step = number, .left_out = left_out};
    float *grad = account->grads[rank->rank];

    for (uint64_t i = 0; i < rank->n_elems; i++)
        grad[i] = (float)ldexp(normal_at(test_mix_pair(account->seed, number * 64u + rank->rank), i), -(int)(i % 5));
    ranks_ok(lnt_plan_begin(rank->plan, &step));
    for (uint32_t t = 0; t < rank->model->n_tensors; t++)
        ranks_ok(lnt_plan_tensor_ready(rank->plan, t, rank_grads(rank, grad)[t], NULL));
    ranks_ok(lnt_plan_end(rank->plan));
}

static void leave_body(rank_t *rank)
{
    account_t *account = rank->arg;
    lnt_program_params_t program = {.struct_size = sizeof(program),
                                    .name = "coded",
                                    .codec = {.struct_size = sizeof(program.codec), .name = "sign1", .block = 128},
                                    .stage = {.struct_size = sizeof(program.stage), .arg = rank, .consume = take}};
    const uint8_t left_out[LENGTHS] = {0, 1, 0};
    uint8_t *live = malloc(account->model.lengths[1]);
    uint64_t before, other;
    uint32_t number;

    ranks_ok(rank_plan(rank, &account->model));
    ranks_ok(lnt_plan_attach(rank->plan));
    ranks_ok(lnt_plan_add_program(rank->plan, &program, &number));
    ranks_ok(lnt_plan_commit(rank->plan));
    step_without(rank, account, 0, NULL);
    before = tensor_errors(rank, 1, false);
    other = tensor_errors(rank, 0, false);
    step_without(rank, account, 1, left_out);
    ck_assert_uint_eq(tensor_errors(rank, 1, false), before);
    ck_assert(tensor_errors(rank, 0, false) != other || other == 1);
    for (uint64_t i = 0; i < account->model.lengths[1]; i++) /* the largest of many a block */
        live[i] = test_mix_pair(account->seed, i) % 3 != 0;
    ranks_ok(lnt_plan_set_live(rank->plan, 0, 1, live));
    before = tensor_errors(rank, 1, true);
    ck_assert_uint_eq(tensor_errors(rank, 1, false), before);
    free(live);
    lnt_plan_detach(rank->plan);
    ranks_ok(lnt_plan_destroy(rank->plan));
    free(rank->x);
    free(rank->x16);
}

START_TEST(errors_of_what_leaves_or_is_left_out)
{
    const world_t world = {.n_ranks = 2, .nodes = {0, 1}};
    account_t account = {.seed = test_random()};
    uint64_t n;

    account.model = (model_t){.n_tensors = LENGTHS,
                              .lengths = {200 + test_random() % 300, 1000 + test_random() % 1000, 100},
                              .bucket_bytes = 1024 + test_random() % 3000,
                              .error_dtype = (lnt_error_dtype_t)_i,
                              .start_seed = test_random()};
    n = model_elems(&account.model);
    account.out = calloc(n, sizeof(float));
    for (uint32_t r = 0; r < world.n_ranks; r++)
        account.grads[r] = calloc(n, sizeof(float));
    ranks_run(&world, leave_body, &account);
    for (uint32_t r = 0; r < world.n_ranks; r++)
        free(account.grads[r]);
    free(account.out);
}
END_TEST

/* ---- runs of an optimizer ---- */

typedef struct run {
    model_t model;
    uint64_t seed, hash[3];
    uint8_t *blob[MAX_RANKS];
    uint64_t bytes[MAX_RANKS];
    uint32_t number;
} run_t;

static void train(rank_t *rank, const run_t *run, uint32_t from, uint32_t to)
{
    float *grad = calloc(rank->n_elems + 1, sizeof(*grad));

    for (uint32_t step = from; step < to; step++) {
        for (uint64_t i = 0; i < rank->n_elems; i++) {
            grad[i] = (float)normal_at(test_mix_pair(run->seed, step * 64u + rank->rank), i);
            if (i >= 150 && i < 170) grad[i] = 0;
        }
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
    }
    expect_equal_ranks(rank);
    free(grad);
}

static void whole_run(rank_t *rank)
{
    run_t *run = rank->arg;

    rank_open(rank, &run->model);
    train(rank, run, 0, STEPS);
    if (rank->rank == 0) run->hash[run->number] = lnt_optim_hash(rank->optim);
    rank_close(rank);
}

static void saved_run(rank_t *rank)
{
    run_t *run = rank->arg;

    rank_open(rank, &run->model);
    train(rank, run, 0, STEPS / 2);
    ranks_ok(lnt_optim_state_size(rank->optim, &run->bytes[rank->rank]));
    run->blob[rank->rank] = malloc(run->bytes[rank->rank]);
    ranks_ok(lnt_optim_state_export(rank->optim, run->blob[rank->rank], run->bytes[rank->rank]));
    rank_close(rank);
}

static void resumed_run(rank_t *rank)
{
    run_t *run = rank->arg;

    rank_open(rank, &run->model);
    train(rank, run, 0, 7); /* must leave no trace */
    ranks_ok(lnt_optim_state_import(rank->optim, run->blob[rank->rank], run->bytes[rank->rank]));
    train(rank, run, STEPS / 2, STEPS);
    if (rank->rank == 0) run->hash[run->number] = lnt_optim_hash(rank->optim);
    rank_close(rank);
}

static run_t draw_run(lnt_error_dtype_t dtype)
{
    return (run_t){.model = {.n_tensors = 2,
                             .lengths = {1000 + test_random() % 500, 300 + test_random() % 300},
                             .algorithm = "onebit_adam",
                             .options = "freeze_step=4,block=128,max_dead_share=1,warmup_codec=int8",
                             .error_dtype = dtype,
                             .start_seed = test_random()},
                   .seed = test_random()};
}

static void draw_sizes(model_t *model)
{
    model->bucket_bytes = 1024 + test_random() % 4000;
    model->segment_bytes = 1024 + test_random() % 1000;
}

START_TEST(buckets_and_resuming_change_no_bit)
{
    const world_t world = {.n_ranks = 4, .nodes = {0, 1, 1, 0}};
    run_t run = draw_run((lnt_error_dtype_t)_i);

    ranks_run(&world, whole_run, &run);
    run.number = 1;
    draw_sizes(&run.model);
    ranks_run(&world, whole_run, &run);
    ck_assert_uint_eq(run.hash[1], run.hash[0]);
    ranks_run(&world, saved_run, &run);
    run.number = 2;
    draw_sizes(&run.model);
    ranks_run(&world, resumed_run, &run);
    ck_assert_uint_eq(run.hash[2], run.hash[0]);
    for (uint32_t r = 0; r < world.n_ranks; r++)
        free(run.blob[r]);
}
END_TEST

static void refuse_body(rank_t *rank)
{
    model_t model = *(model_t *)rank->arg;

    model.error_dtype = rank->rank == 0 ? LNT_ERROR_F32 : LNT_ERROR_INT8;
    ranks_ok(rank_plan(rank, &model));
    ranks_ok(rank_optim(rank));
    ck_assert_int_eq(lnt_plan_commit(rank->plan), LNT_ERR_MISMATCH);
    rank_close(rank);
    model.error_dtype = (lnt_error_dtype_t)9;
    ck_assert_int_eq(rank_plan(rank, &model), LNT_ERR_INVALID_ARG);
    free(rank->x);
    free(rank->x16);
}

START_TEST(ranks_that_differ_are_refused)
{
    run_t run = draw_run(LNT_ERROR_F32);

    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, refuse_body, &run.model);
}
END_TEST

/* State holds f32: it goes from one way to the other. */
START_TEST(state_moves_between_ways)
{
    const world_t world = {.n_ranks = 2, .nodes = {0, 1}};
    run_t run = draw_run(LNT_ERROR_INT8);

    ranks_run(&world, saved_run, &run);
    run.model.error_dtype = LNT_ERROR_F32;
    ranks_run(&world, resumed_run, &run);
    run.number = 1;
    run.model.error_dtype = LNT_ERROR_BF16;
    ranks_run(&world, resumed_run, &run);
    ck_assert_uint_ne(run.hash[0], run.hash[1]);
    free(run.blob[0]);
    free(run.blob[1]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("error_dtype");
    TCase *tcase = tcase_create("error_dtype");

    tcase_add_loop_test(tcase, what_is_dropped_is_bounded, 0, (int)(sizeof(accounts) / sizeof(accounts[0])));
    tcase_add_loop_test(tcase, errors_of_what_leaves_or_is_left_out, LNT_ERROR_F32, LNT_ERROR_INT8 + 1);
    tcase_add_loop_test(tcase, buckets_and_resuming_change_no_bit, LNT_ERROR_F32, LNT_ERROR_INT8 + 1);
    tcase_add_test(tcase, ranks_that_differ_are_refused);
    tcase_add_test(tcase, state_moves_between_ways);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
