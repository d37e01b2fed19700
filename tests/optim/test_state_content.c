/* Saved states that are sound as bytes, and yet none that a run of these options can be in: what is in their sections
 * is looked at before anything live is touched. Every blob is one that was saved, with one number changed and checksums
 * that fit; the unchanged one loads.
 */
#include <math.h>

#include "../../optim/state_format.h"
#include "../../src/base/hash.h"
#include "ranks.h"

enum { N_TENSORS = 3, STEPS = 12 };

typedef enum kind { FLOAT, DOUBLE, BYTE } kind_t;

typedef struct change {
    const char *algorithm, *options, *section;
    kind_t kind;
    uint64_t at;
    double value;
    lnt_status_t expected;
} change_t;

#define ONEBIT "freeze_step=4,block=64,max_dead_share=1,clip=1"
#define WARM "freeze_step=99,block=64,max_dead_share=1,clip=1"
#define ZERO "var_freeze_step=6,var_update_scaler=2,local_step_scaler=3,local_step_clipper=4,block=64,max_dead_share=1"
#define COMPAT "compat=deepspeed,var_freeze_step=4,local_step_scaler=3,local_step_clipper=4"

static const change_t changes[] = {
    {"adam", "", "masters", FLOAT, 3, NAN, LNT_ERR_CORRUPT},
    {"adam", "", "masters", FLOAT, 3, 2, LNT_OK},
    {"adam", "", "exp_avg", FLOAT, 70, INFINITY, LNT_ERR_CORRUPT},
    {"adam", "", "exp_avg", FLOAT, 70, -2, LNT_OK},
    {"adam", "", "exp_avg_sq", FLOAT, 199, -1e-9, LNT_ERR_CORRUPT},
    {"adam", "amsgrad=on", "max_exp_avg_sq", FLOAT, 0, -1, LNT_ERR_CORRUPT},
    {"lamb", "", "exp_avg_sq", FLOAT, 0, -1, LNT_ERR_CORRUPT},
    {"lans", "", "exp_avg_sq", FLOAT, 0, -1, LNT_ERR_CORRUPT},
    {"came", "", "exp_avg", FLOAT, 0, NAN, LNT_ERR_CORRUPT},
    {"onebit_adam", ONEBIT, "denominator", FLOAT, 64, 0, LNT_ERR_CORRUPT},
    {"onebit_adam", ONEBIT, "denominator", FLOAT, 64, -1, LNT_ERR_CORRUPT},
    {"onebit_adam", ONEBIT, "denominator", FLOAT, 64, 0.5, LNT_OK},
    {"onebit_adam", ONEBIT, "denominator", FLOAT, 3, 0, LNT_OK}, /* in the lane nobody divides by it */
    {"onebit_adam", ONEBIT, "masked", BYTE, 64, 1, LNT_ERR_CORRUPT},
    {"onebit_adam", WARM, "masked", BYTE, 64, 1, LNT_OK},
    {"onebit_adam", WARM, "clip_state", DOUBLE, 0, 1e300, LNT_ERR_CORRUPT},
    {"onebit_adam", WARM, "clip_state", DOUBLE, 0, 0x1p53, LNT_ERR_CORRUPT},
    {"onebit_adam", WARM, "clip_state", DOUBLE, 0, 3.5, LNT_ERR_CORRUPT},
    {"onebit_adam", WARM, "clip_state", DOUBLE, 0, 3, LNT_OK},
    {"onebit_adam", WARM, "clip_state", DOUBLE, 1, 0.5, LNT_OK},
    {"onebit_adam", ONEBIT, "late_updates", DOUBLE, 0, 1.5, LNT_ERR_CORRUPT},
    {"onebit_adam", ONEBIT, "late_touched", DOUBLE, 0, 1e17, LNT_ERR_CORRUPT},
    {"onebit_adam", WARM, "freeze_passed", DOUBLE, 0, 0.5, LNT_ERR_CORRUPT},
    {"onebit_lamb", ONEBIT, "denominator", FLOAT, 64, 0, LNT_ERR_CORRUPT},
    {"zero_one_adam", ZERO, "denominator", FLOAT, 3, 0, LNT_ERR_CORRUPT}, /* short tensors have windows too */
    {"zero_one_adam", ZERO, "var_interval", DOUBLE, 0, 1.5, LNT_ERR_CORRUPT},
    {"zero_one_adam", ZERO, "local_interval", DOUBLE, 0, 1.5, LNT_ERR_CORRUPT},
    {"zero_one_adam", ZERO, "window_gaps", DOUBLE, 0, 0.5, LNT_OK}, /* a mean, from another world */
    {"zero_one_adam", COMPAT, "local_counter", DOUBLE, 0, 1e17, LNT_ERR_CORRUPT},
    {"zero_one_adam", COMPAT, "accumulator", FLOAT, 0, NAN, LNT_ERR_CORRUPT},
    {"adam", "loss_scale=0", "loss_scaler", DOUBLE, 1, 2.5, LNT_ERR_CORRUPT},
    {"adam", "loss_scale=0", "loss_scaler", DOUBLE, 0, 1.5, LNT_ERR_CORRUPT},
};

static void write_number(uint8_t *to, kind_t kind, uint64_t at, double value)
{
    const float single = (float)value;

    if (kind == FLOAT) memcpy(to + at * sizeof(single), &single, sizeof(single));
    if (kind == DOUBLE) memcpy(to + at * sizeof(value), &value, sizeof(value));
    if (kind == BYTE) to[at] = (uint8_t)value;
}

static void patch(uint8_t *blob, uint64_t bytes, const change_t *change)
{
    bool found = false;

    for (uint64_t at = sizeof(lnt_state_header_t); at < bytes;) {
        lnt_state_section_t section;
        memcpy(&section, blob + at, sizeof(section));
        if (strcmp(section.name, change->section) == 0) {
            ck_assert_uint_gt(section.bytes, change->at);
            write_number(blob + at + sizeof(section), change->kind, change->at, change->value);
            section.crc = lnt_state_section_crc(&section, blob + at + sizeof(section));
            memcpy(blob + at, &section, sizeof(section));
            found = true;
        }
        at += sizeof(section) + section.bytes;
    }
    ck_assert(found);
}

static void train(rank_t *rank, uint64_t seed)
{
    float *grad = calloc(rank->n_elems, sizeof(*grad));

    for (uint32_t step = 0; step < STEPS; step++) {
        for (uint64_t i = 0; i < rank->n_elems; i++)
            grad[i] = (float)normal_at(test_mix_pair(seed, step * 64u + rank->rank), i);
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
    }
    free(grad);
}

static uint8_t *saved(rank_t *rank, uint64_t *bytes_p)
{
    uint8_t *blob;

    ranks_ok(lnt_optim_state_size(rank->optim, bytes_p));
    blob = calloc(1, *bytes_p);
    ranks_ok(lnt_optim_state_export(rank->optim, blob, *bytes_p));
    return blob;
}

static model_t model_of(const char *algorithm, const char *options)
{
    return (model_t){
        .n_tensors = N_TENSORS, .lengths = {10, 100, 90}, .algorithm = algorithm, .options = options, .start_seed = 3};
}

/* ---- one number ---- */

static void change_body(rank_t *rank)
{
    const change_t *change = rank->arg;
    const model_t model = model_of(change->algorithm, change->options);
    uint64_t bytes, hash;
    uint8_t *blob;
    lnt_status_t status;

    rank_open(rank, &model);
    train(rank, 11);
    blob = saved(rank, &bytes);
    ranks_ok(lnt_optim_state_import(rank->optim, blob, bytes));
    hash = lnt_optim_hash(rank->optim);
    patch(blob, bytes, change);
    status = lnt_optim_state_import(rank->optim, blob, bytes);
    ck_assert_msg(status == change->expected, "%s: %s = %g: status %d", change->algorithm, change->section,
                  change->value, (int)status);
    if (status != LNT_OK) ck_assert_uint_eq(lnt_optim_hash(rank->optim), hash);
    if (status != LNT_OK) ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, change->section));
    free(blob);
    rank_close(rank);
}

START_TEST(impossible_content_is_refused)
{
    change_t change = changes[_i];

    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, change_body, &change);
}
END_TEST

/* ---- options that do not go with the state ---- */

typedef struct meeting {
    const char *algorithm, *saved, *here;
    lnt_status_t expected;
    const char *named; /* in the message, or NULL */
    double scale;      /* after the import; 0: not looked at */
} meeting_t;

static const meeting_t meetings[] = {
    {"adam", "loss_scale=0", "loss_scale=1", LNT_ERR_STATE_MISMATCH, "loss_scale", 1},
    {"adam", "loss_scale=0", "loss_scale=65536", LNT_ERR_STATE_MISMATCH, "loss_scale", 65536},
    {"adam", "loss_scale=65536", "loss_scale=0", LNT_ERR_STATE_MISMATCH, "loss_scale", 65536},
    {"adam", "loss_scale=0,initial_scale_power=4", "loss_scale=0", LNT_OK, NULL, 16},
    {"adam", "loss_scale=0,initial_scale_power=4", "loss_scale=0,min_loss_scale=32", LNT_ERR_STATE_MISMATCH,
     "min_loss_scale", 65536},
    {"adam", "loss_scale=128", "loss_scale=128", LNT_OK, NULL, 128},
    {"adam", "loss_scale=128", "", LNT_OK, NULL, 128},
    {"adam", "loss_scale=128", "loss_scale=64", LNT_ERR_STATE_MISMATCH, "loss_scale", 64},
    {"adam", "", "loss_scale=64", LNT_ERR_STATE_MISMATCH, "loss_scale", 64},
    {"onebit_adam", "freeze_criterion=variance,freeze_window=20", "freeze_criterion=variance,freeze_window=20", LNT_OK,
     NULL, 0},
    {"onebit_adam", "freeze_criterion=variance,freeze_window=20", "", LNT_ERR_STATE_MISMATCH, "freeze_criterion", 0},
    {"onebit_adam", "", "freeze_criterion=variance,freeze_window=20", LNT_ERR_STATE_MISMATCH, "freeze_criterion", 0},
    {"onebit_adam", "freeze_criterion=variance,freeze_window=20", "freeze_criterion=variance,freeze_window=10",
     LNT_ERR_STATE_MISMATCH, "freeze_window", 0},
};

static void meeting_body(rank_t *rank)
{
    const meeting_t *meeting = rank->arg;
    const model_t before = model_of(meeting->algorithm, meeting->saved);
    const model_t here = model_of(meeting->algorithm, meeting->here);
    uint64_t bytes;
    uint8_t *blob;

    rank_open(rank, &before);
    train(rank, 12);
    blob = saved(rank, &bytes);
    rank_close(rank);
    rank_open(rank, &here);
    ck_assert_int_eq(lnt_optim_state_import(rank->optim, blob, bytes), meeting->expected);
    if (meeting->named != NULL) ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, meeting->named));
    if (meeting->scale != 0) ck_assert_double_eq(lnt_optim_loss_scale(rank->optim), meeting->scale);
    free(blob);
    rank_close(rank);
}

START_TEST(options_and_state_must_agree)
{
    meeting_t meeting = meetings[_i];

    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, meeting_body, &meeting);
}
END_TEST

/* ---- the header ---- */

static void header_body(rank_t *rank)
{
    static const double scales[] = {0x1p101, 0x1p100};
    const model_t model = model_of("adam", "loss_scale=0");
    uint64_t bytes;
    uint8_t *blob;

    rank_open(rank, &model);
    train(rank, 13);
    blob = saved(rank, &bytes);
    for (int i = 0; i < 3; i++) {
        lnt_state_header_t header;
        memcpy(&header, blob, sizeof(header));
        if (i < 2) header.loss_scale = scales[i];
        if (i == 2) header.step = UINT64_C(1) << 53;
        header.crc = lnt_crc32c(0, &header, offsetof(lnt_state_header_t, crc));
        memcpy(blob, &header, sizeof(header));
        ck_assert_int_eq(lnt_optim_state_import(rank->optim, blob, bytes), i == 1 ? LNT_OK : LNT_ERR_CORRUPT);
    }
    free(blob);
    rank_close(rank);
}

/* What headers of one save share must be equal: a scale, or micro-steps, of one rank alone would fail the next step. */
static void one_header_body(rank_t *rank)
{
    const model_t model = model_of("adam", "");
    uint64_t bytes;
    uint8_t *blob;

    rank_open(rank, &model);
    train(rank, 14);
    blob = saved(rank, &bytes);
    for (int i = 0; i < 2; i++) {
        lnt_state_header_t header, old;
        memcpy(&old, blob, sizeof(old));
        header = old;
        if (i == 0 && rank->rank == 1) header.loss_scale = 2;
        if (i == 1 && rank->rank == 1) header.micro_steps = 3;
        header.crc = lnt_crc32c(0, &header, offsetof(lnt_state_header_t, crc));
        memcpy(blob, &header, sizeof(header));
        ck_assert_int_eq(lnt_optim_state_import(rank->optim, blob, bytes), LNT_ERR_STATE_MISMATCH);
        ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, "not of one save"));
        memcpy(blob, &old, sizeof(old));
    }
    ranks_ok(lnt_optim_state_import(rank->optim, blob, bytes));
    train(rank, 15);
    free(blob);
    rank_close(rank);
}

START_TEST(headers_of_two_saves_are_refused)
{
    ranks_run(&(world_t){.n_ranks = 3, .nodes = {0, 1, 1}, .quiet = true}, one_header_body, NULL);
}
END_TEST

/* ---- what the message names ---- */

static void expect_named(rank_t *rank, const model_t *before, const model_t *here, const char *named)
{
    uint64_t bytes;
    uint8_t *blob;

    rank_open(rank, before);
    blob = saved(rank, &bytes);
    rank_close(rank);
    rank_open(rank, here);
    ck_assert_int_eq(lnt_optim_state_import(rank->optim, blob, bytes), LNT_ERR_STATE_MISMATCH);
    ck_assert_msg(strstr(lnt_last_error()->cause, named) != NULL, "%s: %s", named, lnt_last_error()->cause);
    free(blob);
    rank_close(rank);
}

static void named_body(rank_t *rank)
{
    lnt_group_t groups[2];
    model_t before = model_of("came", ""), here = before;

    lnt_group_defaults(&groups[0]);
    lnt_group_defaults(&groups[1]);
    before.rows[1] = 10;
    here.rows[1] = 20;
    expect_named(rank, &before, &here, "shapes of tensors");
    here = before;
    here.options = "codec=int8";
    expect_named(rank, &before, &here, "exchange programs");
    here = before;
    here.groups = groups;
    here.n_groups = 2;
    expect_named(rank, &before, &here, "1 groups, the optimizer 2");
}

START_TEST(what_differs_from_the_state_is_named)
{
    ranks_run(&(world_t){.n_ranks = 1, .quiet = true}, named_body, NULL);
}
END_TEST

START_TEST(impossible_scales_and_steps_are_refused)
{
    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, header_body, NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("state_content");
    TCase *tcase = tcase_create("content");

    tcase_add_loop_test(tcase, impossible_content_is_refused, 0, sizeof(changes) / sizeof(changes[0]));
    tcase_add_loop_test(tcase, options_and_state_must_agree, 0, sizeof(meetings) / sizeof(meetings[0]));
    tcase_add_test(tcase, impossible_scales_and_steps_are_refused);
    tcase_add_test(tcase, headers_of_two_saves_are_refused);
    tcase_add_test(tcase, what_differs_from_the_state_is_named);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
