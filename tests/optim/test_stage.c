/* What owners of programs rely on (linnet/stage.h): after lnt_plan_detach no function of a stage runs any more, also
 * where a communicator failed in the middle of one; and what a program may not ask for.
 */
#include <stdatomic.h>

#include "../../src/base/error.h"
#include "../../src/core/comm_net.h"
#include "../../src/core/core.h"
#include "ranks.h"

/* ---- a failure while a stage runs ---- */

typedef struct slow_stage {
    lnt_comm_t *comm;
    _Atomic int over;
} slow_stage_t;

static void produce_slowly(void *arg, const lnt_span_t *span, const void *grad, lnt_dtype_t dtype, float *out)
{
    slow_stage_t *slow = arg;

    lnt_error_info_t record;

    (void)grad, (void)dtype;
    memset(out, 0, span->count * sizeof(*out));
    lnt_error_fill(&record, LNT_ERR_CORRUPT, NULL, "the test wants it so");
    lnt_comm_report(slow->comm, &record); /* as the progress side does when a channel says so */
    (void)usleep(50000);                  /* who does not wait for the end of this is gone by then */
    atomic_store(&slow->over, 1);
}

static void consume_nothing(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live)
{
    (void)arg, (void)span, (void)value, (void)live;
}

static void detach_body(rank_t *rank)
{
    static slow_stage_t slow;
    model_t model = {.n_tensors = 1, .lengths = {100}};
    lnt_program_params_t program = {.struct_size = sizeof(program),
                                    .name = "slow",
                                    .codec = {.struct_size = sizeof(program.codec), .name = "f32"},
                                    .stage = {.struct_size = sizeof(program.stage),
                                              .arg = &slow,
                                              .produce_local = produce_slowly,
                                              .consume = consume_nothing}};
    lnt_step_params_t step = {.struct_size = sizeof(step), .programs = 1};
    uint32_t number;

    slow.comm = rank->comm;
    ranks_ok(rank_plan(rank, &model));
    ranks_ok(lnt_plan_attach(rank->plan));
    ranks_ok(lnt_plan_add_program(rank->plan, &program, &number));
    ranks_ok(lnt_plan_commit(rank->plan));
    ranks_ok(lnt_plan_begin(rank->plan, &step));
    ranks_ok(lnt_plan_tensor_ready(rank->plan, 0, rank->x, NULL));
    while (lnt_comm_async_error(rank->comm, NULL) == LNT_OK)
        (void)usleep(1000);
    lnt_plan_detach(rank->plan);
    ck_assert_int_eq(atomic_load(&slow.over), 1);
    ranks_ok(lnt_plan_destroy(rank->plan));
    free(rank->x);
    free(rank->x16);
}

START_TEST(detaching_waits_for_stages_of_a_failed_step)
{
    ranks_run(&(world_t){.n_ranks = 1, .quiet = true}, detach_body, NULL);
}
END_TEST

/* ---- programs ---- */

static void packed_body(rank_t *rank)
{
    static const char *const names[] = {"f32",   "bf16", "f16",  "bf16_sr",      "f16_sr",
                                        "sign1", "int8", "int4", "int4_hadamard"};
    model_t model = {.n_tensors = 2, .lengths = {100, 30}};

    ranks_ok(rank_plan(rank, &model));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        lnt_program_params_t program = {.struct_size = sizeof(program),
                                        .name = names[i],
                                        .codec = {.struct_size = sizeof(program.codec), .name = names[i]},
                                        .packed = true,
                                        .stage = {.struct_size = sizeof(program.stage), .consume = consume_nothing}};
        uint32_t number;

        ck_assert_int_eq(lnt_plan_add_program(rank->plan, &program, &number), i < 5 ? LNT_OK : LNT_ERR_UNSUPPORTED);
    }
    ranks_ok(lnt_plan_destroy(rank->plan));
    free(rank->x);
    free(rank->x16);
}

/* Their blocks would begin at every bucket, so results would depend on the size of buckets. */
START_TEST(packed_programs_take_codecs_without_scales_only)
{
    ranks_run(&(world_t){.n_ranks = 1}, packed_body, NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("stage");
    TCase *tcase = tcase_create("stage");

    tcase_add_test(tcase, detaching_waits_for_stages_of_a_failed_step);
    tcase_add_test(tcase, packed_programs_take_codecs_without_scales_only);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
