/* Calls that launchers refuse, each launcher with a sound run that is spoilt in one place: a status and no launch, so
 * that nothing is written. What lies in device memory no launcher can look at; a batch of one it can.
 */
#include "../kernel/kernel_testing.h"

#include <stddef.h>

#include "../../kernels/cuda_kernels.h"
#include "../../optim/update_cuda.h"
#include "device_arena.h"

enum { N = 100, BLOCK = 64, ROOM = 2048, ROOMS = 16, NEEDS = 6 };

typedef union any_run {
    lnt_cuda_run_t run;
    lnt_cuda_update_run_t rule;
} any_run_t;

typedef struct call {
    const char *name;
    lnt_status_t (*launch)(const lnt_cuda_batch_t *batch);
    lnt_status_t (*update)(const lnt_cuda_update_batch_t *batch, void *stream);
    size_t needs[NEEDS]; /* offsets of the pointers that must not be NULL; 0 ends them */
} call_t;

static const lnt_codec_cfg_t cfg = {.block = BLOCK};
static uint8_t *device, before[ROOM * ROOMS];

static const lnt_cuda_codec_ops_t *sign1(void)
{
    return lnt_cuda_codec_ops(LNT_CODEC_SIGN1);
}

static lnt_status_t encode(const lnt_cuda_batch_t *batch)
{
    return sign1()->encode(&cfg, batch, LNT_F32, false, NULL);
}

static lnt_status_t serve(const lnt_cuda_batch_t *batch)
{
    return sign1()->serve(&cfg, batch, 0.5f, false, NULL);
}

static lnt_status_t decode(const lnt_cuda_batch_t *batch)
{
    return sign1()->decode_sum(&cfg, batch, false, NULL);
}

static lnt_status_t measure(const lnt_cuda_batch_t *batch)
{
    return sign1()->measure(&cfg, batch, LNT_F32, NULL);
}

static lnt_status_t finish(const lnt_cuda_batch_t *batch)
{
    return sign1()->finish(&cfg, batch, NULL);
}

static lnt_status_t encode_scaled(const lnt_cuda_batch_t *batch)
{
    return sign1()->encode_scaled(&cfg, batch, LNT_F32, NULL);
}

static lnt_status_t widen(const lnt_cuda_batch_t *batch)
{
    return lnt_cuda_array_ops()->widen(batch, LNT_F32, 2.0f, false, NULL);
}

static lnt_status_t narrow(const lnt_cuda_batch_t *batch)
{
    return lnt_cuda_array_ops()->narrow(batch, LNT_BF16, NULL);
}

static lnt_status_t check(const lnt_cuda_batch_t *batch)
{
    return lnt_cuda_array_ops()->check(batch, false, NULL);
}

static lnt_status_t square_sums(const lnt_cuda_batch_t *batch)
{
    return lnt_cuda_array_ops()->square_sums(batch, NULL);
}

static lnt_status_t encode_momentum(const lnt_cuda_batch_t *batch)
{
    return lnt_cuda_encode_momentum(&cfg, batch, NULL);
}

#define R(_field) offsetof(lnt_cuda_run_t, _field)
#define U(_field) offsetof(lnt_cuda_update_run_t, _field)

static const call_t calls[] = {
    {"encode", encode, NULL, {R(values), R(scales), R(codes)}},
    {"serve", serve, NULL, {R(inputs), R(scales), R(codes)}},
    {"decode_sum", decode, NULL, {R(inputs), R(out)}},
    {"measure", measure, NULL, {R(values), R(measure)}},
    {"finish", finish, NULL, {R(measure), R(scale)}},
    {"encode_scaled", encode_scaled, NULL, {R(values), R(scales), R(codes), R(scale), R(poisoned)}},
    {"widen", widen, NULL, {R(values), R(out)}},
    {"narrow", narrow, NULL, {R(values), R(out)}},
    {"check", check, NULL, {R(values)}},
    {"square_sums", square_sums, NULL, {R(values), R(sums)}},
    {"encode_momentum", encode_momentum, NULL, {R(values), R(scales), R(codes), R(momentum), R(consts)}},
    {"adam", NULL, lnt_cuda_update_adam, {U(k), U(g), U(m), U(v), U(x)}},
    {"momentum", NULL, lnt_cuda_update_momentum, {U(k), U(m), U(value)}},
    {"frozen", NULL, lnt_cuda_update_frozen, {U(k), U(denominator), U(value), U(m), U(x)}},
};
enum { N_CALLS = sizeof(calls) / sizeof(calls[0]) };

/* ---- a sound run ---- */

static void setup(void)
{
    lnt_coded_run_t *input = (lnt_coded_run_t *)(void *)(before + 7 * ROOM);

    device_ok(cudaMalloc((void **)&device, sizeof(before)));
    memset(before, 0, sizeof(before));
    *input = (lnt_coded_run_t){device + 14 * ROOM, device + 15 * ROOM};
    device_ok(cudaMemcpy(device, before, sizeof(before), cudaMemcpyHostToDevice));
}

static void teardown(void)
{
    device_ok(cudaFree(device));
}

static void *room(int number)
{
    return device + number * ROOM;
}

static any_run_t sound_run(const call_t *call)
{
    any_run_t any = {.run = {.n = N,
                             .values = room(0),
                             .scales = room(1),
                             .codes = room(2),
                             .poisoned = room(3),
                             .out = room(4),
                             .measure = room(5),
                             .scale = room(6),
                             .inputs = room(7),
                             .n_inputs = 1,
                             .sums = room(8),
                             .momentum = room(9),
                             .consts = room(10)}};

    if (call->update)
        any.rule = (lnt_cuda_update_run_t){.n = N,
                                           .k = room(10),
                                           .g = room(0),
                                           .denominator = room(1),
                                           .value = room(2),
                                           .m = room(3),
                                           .v = room(4),
                                           .x = room(5)};
    return any;
}

typedef void (*spoil_t)(lnt_cuda_cut_t *cut, bool *in_memory);

static lnt_status_t start(const call_t *call, const any_run_t *any, uint32_t block, spoil_t spoil)
{
    lnt_cuda_batch_t batch;
    lnt_cuda_update_batch_t update;
    bool in_memory = false;

    if (call->update) {
        update = lnt_cuda_update_batch_one(&any->rule, block);
        if (spoil) spoil(&update.cut, &in_memory);
        if (in_memory) update.runs = room(0);
        return call->update(&update, NULL);
    }
    batch = lnt_cuda_batch_one(&any->run, block);
    if (spoil) spoil(&batch.cut, &in_memory);
    if (in_memory) batch.runs = room(0);
    return call->launch(&batch);
}

static void expect_refused(const call_t *call, const char *why, lnt_status_t status)
{
    static uint8_t after[sizeof(before)];

    if (status != LNT_ERR_INVALID_ARG) ck_abort_msg("%s, %s: status %d", call->name, why, (int)status);
    device_ok(cudaDeviceSynchronize());
    device_ok(cudaMemcpy(after, device, sizeof(after), cudaMemcpyDeviceToHost));
    if (memcmp(before, after, sizeof(after)) != 0) ck_abort_msg("%s, %s: something was written", call->name, why);
}

/* ---- what is spoilt ---- */

START_TEST(arrays_that_are_needed)
{
    const call_t *call = &calls[_i];
    any_run_t any = sound_run(call), without;

    for (int i = 0; i < NEEDS && call->needs[i] != 0; i++) {
        without = any;
        memset((uint8_t *)&without + call->needs[i], 0, sizeof(void *));
        expect_refused(call, "an array is missing", start(call, &without, BLOCK, NULL));
    }
    ck_assert_int_eq(start(call, &any, BLOCK, NULL), LNT_OK);
    device_ok(cudaDeviceSynchronize());
}
END_TEST

START_TEST(blocks_and_counts)
{
    const uint64_t counts[] = {UINT64_MAX, (uint64_t)INT64_MIN, LNT_CUDA_ELEMS_MAX + 1, (uint64_t)-N};
    const call_t *call = &calls[_i];
    any_run_t any = sound_run(call);

    expect_refused(call, "blocks of 0", start(call, &any, 0, NULL));
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        any.run.n = counts[i];
        expect_refused(call, "too many elements", start(call, &any, BLOCK, NULL));
    }
}
END_TEST

static void more_blocks(lnt_cuda_cut_t *cut, bool *in_memory)
{
    (void)in_memory;
    cut->n_blocks++;
}

static void more_runs(lnt_cuda_cut_t *cut, bool *in_memory)
{
    (void)in_memory;
    cut->n_runs++;
}

static void no_runs(lnt_cuda_cut_t *cut, bool *in_memory)
{
    (void)in_memory;
    cut->n_runs = 0;
}

static void no_table(lnt_cuda_cut_t *cut, bool *in_memory)
{
    (void)cut;
    *in_memory = true;
}

START_TEST(numbers_that_do_not_agree)
{
    static const struct {
        const char *why;
        spoil_t spoil;
    } spoils[] = {{"a block too many", more_blocks},
                  {"two runs and no table", more_runs},
                  {"blocks of no runs", no_runs},
                  {"no table of blocks", no_table}};
    const call_t *call = &calls[_i];
    any_run_t any = sound_run(call);

    for (size_t i = 0; i < sizeof(spoils) / sizeof(spoils[0]); i++)
        expect_refused(call, spoils[i].why, start(call, &any, BLOCK, spoils[i].spoil));
}
END_TEST

START_TEST(types_and_blocks_of_codecs)
{
    const lnt_codec_cfg_t other = {.block = 2 * BLOCK}, none = {.block = 0};
    any_run_t any = sound_run(&calls[0]);
    lnt_cuda_batch_t batch = lnt_cuda_batch_one(&any.run, BLOCK), empty = lnt_cuda_batch_one(&any.run, 0);
    const lnt_dtype_t wrong[] = {LNT_DTYPE_COUNT, (lnt_dtype_t)-1};

    ck_assert_ptr_null(lnt_cuda_codec_ops((lnt_codec_id_t)1000));
    expect_refused(&calls[0], "another block", sign1()->encode(&other, &batch, LNT_F32, false, NULL));
    expect_refused(&calls[1], "another block", sign1()->serve(&other, &batch, 1.0f, false, NULL));
    expect_refused(&calls[2], "another block", sign1()->decode_sum(&other, &batch, false, NULL));
    expect_refused(&calls[10], "another block", lnt_cuda_encode_momentum(&other, &batch, NULL));
    expect_refused(&calls[0], "blocks of 0", sign1()->encode(&none, &empty, LNT_F32, false, NULL));
    for (int i = 0; i < 2; i++) {
        expect_refused(&calls[0], "no type", sign1()->encode(&cfg, &batch, wrong[i], false, NULL));
        expect_refused(&calls[3], "no type", sign1()->measure(&cfg, &batch, wrong[i], NULL));
        expect_refused(&calls[5], "no type", sign1()->encode_scaled(&cfg, &batch, wrong[i], NULL));
        expect_refused(&calls[6], "no type", lnt_cuda_array_ops()->widen(&batch, wrong[i], 1, false, NULL));
        expect_refused(&calls[7], "no type", lnt_cuda_array_ops()->narrow(&batch, wrong[i], NULL));
    }
}
END_TEST

/* ---- what is legal all the same ---- */

START_TEST(nothing_to_do)
{
    const call_t *call = &calls[_i];
    any_run_t any = {.run = {.n = 0}};

    if (call->launch == finish || call->launch == measure)
        any = sound_run(call); /* a piece of no elements has a block */
    any.run.n = 0;
    ck_assert_int_eq(start(call, &any, BLOCK, NULL), LNT_OK);
    device_ok(cudaDeviceSynchronize());
}
END_TEST

START_TEST(codecs_without_scales_need_none)
{
    any_run_t any = sound_run(&calls[0]);
    lnt_cuda_batch_t batch;

    any.run.scales = NULL;
    any.run.scale = NULL;
    any.run.poisoned = NULL;
    any.run.n_inputs = 0;
    batch = lnt_cuda_batch_one(&any.run, BLOCK);
    ck_assert_int_eq(lnt_cuda_codec_ops(LNT_CODEC_F32)->encode(&cfg, &batch, LNT_F32, false, NULL), LNT_OK);
    ck_assert_int_eq(lnt_cuda_codec_ops(LNT_CODEC_F32)->encode_scaled(&cfg, &batch, LNT_F32, NULL), LNT_OK);
    ck_assert_int_eq(lnt_cuda_codec_ops(LNT_CODEC_F32)->decode_sum(&cfg, &batch, false, NULL), LNT_OK);
    device_ok(cudaDeviceSynchronize());
}
END_TEST

/* ---- the table of blocks ---- */

START_TEST(tables_of_blocks)
{
    lnt_cuda_run_t runs[3] = {{.n = 65}, {.n = 0}, {.n = 64}};
    uint64_t first_block[4], n_blocks = 7;

    ck_assert_int_eq(lnt_cuda_batch_blocks(runs, 3, 0, first_block, &n_blocks), LNT_ERR_INVALID_ARG);
    ck_assert_int_eq(lnt_cuda_batch_blocks(NULL, 3, BLOCK, first_block, &n_blocks), LNT_ERR_INVALID_ARG);
    ck_assert_int_eq(lnt_cuda_batch_blocks(runs, 3, BLOCK, NULL, &n_blocks), LNT_ERR_INVALID_ARG);
    runs[1].n = UINT64_MAX;
    ck_assert_int_eq(lnt_cuda_batch_blocks(runs, 3, BLOCK, first_block, &n_blocks), LNT_ERR_INVALID_ARG);
    runs[1].n = LNT_CUDA_ELEMS_MAX; /* by itself it would do */
    ck_assert_int_eq(lnt_cuda_batch_blocks(runs, 3, BLOCK, first_block, &n_blocks), LNT_ERR_INVALID_ARG);
    ck_assert_uint_eq(n_blocks, 7);
    runs[1].n = 0;
    ck_assert_int_eq(lnt_cuda_batch_blocks(runs, 3, BLOCK, first_block, &n_blocks), LNT_OK);
    ck_assert_mem_eq(first_block, ((const uint64_t[]){0, 2, 2, 3}), sizeof(first_block));
    ck_assert_uint_eq(n_blocks, 3);
    ck_assert_int_eq(lnt_cuda_batch_blocks(NULL, 0, BLOCK, first_block, &n_blocks), LNT_OK);
    ck_assert_uint_eq(n_blocks, 0);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("cuda calls");
    TCase *t = tcase_create("refused");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, arrays_that_are_needed, 0, N_CALLS);
    tcase_add_loop_test(t, blocks_and_counts, 0, N_CALLS);
    tcase_add_loop_test(t, numbers_that_do_not_agree, 0, N_CALLS);
    tcase_add_test(t, types_and_blocks_of_codecs);
    tcase_add_loop_test(t, nothing_to_do, 0, N_CALLS);
    tcase_add_test(t, codecs_without_scales_need_none);
    tcase_add_test(t, tables_of_blocks);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return device_absent() ? 77 : run_suite(suite());
}
