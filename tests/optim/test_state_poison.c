/* Saved errors that are not finite are found before anything live is touched, whatever errors are kept in: by loading
 * in the same world and in another one, and by linnet-ckpt verify. The message names rank, section, tensor and element.
 */
#include <math.h>
#include <sys/wait.h>

#include "../../optim/state_save.h"
#include "ranks.h"

#define TOOL LNT_BINARY_DIR "/perf/linnet-ckpt"
enum { RANKS = 3, STEPS = 7, N_KINDS = 3, TEXT = 4096 };

static const world_t home = {.n_ranks = RANKS, .nodes = {0, 1, 2}, .quiet = true};
static const world_t elsewhere = {.n_ranks = 2, .nodes = {0, 1}, .quiet = true};

typedef struct trial {
    model_t model;
    uint64_t seed;
    void *blob[RANKS];
    uint64_t bytes[RANKS];
    uint32_t bad;     /* whose state has the bad error */
    char wanted[160]; /* what the message must hold */
    uint32_t tensor;
} trial_t;

static void save_body(rank_t *rank)
{
    trial_t *trial = rank->arg;

    rank_open(rank, &trial->model);
    rank_train(rank, trial->seed, STEPS);
    ranks_ok(lnt_optim_state_size(rank->optim, &trial->bytes[rank->rank]));
    trial->blob[rank->rank] = malloc(trial->bytes[rank->rank]);
    ranks_ok(lnt_optim_state_export(rank->optim, trial->blob[rank->rank], trial->bytes[rank->rank]));
    rank_close(rank);
}

static uint32_t count_extents(const uint8_t *payload, uint64_t bytes)
{
    lnt_state_extent_t extent;
    const uint8_t *values;
    uint32_t n = 0;

    for (uint64_t pos = 0; pos < bytes; n++)
        ck_assert(lnt_state_next_extent(payload, bytes, &pos, &extent, &values));
    return n;
}

static void put_value(trial_t *trial, const lnt_state_extent_t *extent, uint8_t *values, float value)
{
    const uint64_t at = test_random_below(extent->count);
    char owner[32];

    memcpy(values + at * sizeof(value), &value, sizeof(value));
    trial->tensor = extent->tensor;
    (void)snprintf(owner, sizeof(owner), "worker %u", extent->codec_worker);
    (void)snprintf(trial->wanted, sizeof(trial->wanted),
                   "rank %u: errors, program %u, %s, tensor %u, element %llu: not finite", trial->bad, extent->program,
                   extent->server != 0 ? "server" : owner, extent->tensor, (unsigned long long)(extent->offset + at));
}

static void seal(uint8_t *payload)
{
    lnt_state_section_t section;

    memcpy(&section, payload - sizeof(section), sizeof(section));
    section.crc = lnt_state_section_crc(&section, payload);
    memcpy(payload - sizeof(section), &section, sizeof(section));
}

/* One number anywhere in the saved errors of one rank, under checksums that fit. */
static void poison(trial_t *trial, float value)
{
    uint8_t *bytes = trial->blob[trial->bad];
    lnt_state_blob_t blob;
    const lnt_state_part_t *part;
    uint8_t *payload;
    uint64_t pos = 0;

    ranks_ok(lnt_state_parse(bytes, trial->bytes[trial->bad], &blob));
    part = lnt_state_find(&blob, LNT_STATE_ERRORS);
    payload = bytes + (part->payload - bytes);
    for (uint64_t left = 1 + test_random_below(count_extents(payload, part->bytes)); left > 0; left--) {
        lnt_state_extent_t extent;
        const uint8_t *values;
        ck_assert(lnt_state_next_extent(payload, part->bytes, &pos, &extent, &values));
        if (left == 1) put_value(trial, &extent, payload + (values - payload), value);
    }
    seal(payload);
}

static trial_t make_trial(lnt_error_dtype_t errors)
{
    trial_t trial = {.model = {.n_tensors = 2,
                               .lengths = {100 + test_random() % 300, 70 + test_random() % 100},
                               .algorithm = "onebit_adam",
                               .options = "freeze_step=3,block=64",
                               .bucket_bytes = 1024,
                               .error_dtype = errors,
                               .start_seed = test_random()},
                     .seed = test_random(),
                     .bad = (uint32_t)test_random_below(RANKS)};

    ranks_run(&home, save_body, &trial);
    return trial;
}

static void end_trial(trial_t *trial)
{
    for (uint32_t r = 0; r < RANKS; r++)
        free(trial->blob[r]);
}

/* ---- loading ---- */

static lnt_status_t load(rank_t *rank, const trial_t *trial)
{
    if (rank->world->n_ranks == RANKS)
        return lnt_optim_state_import(rank->optim, trial->blob[rank->rank], trial->bytes[rank->rank]);
    return lnt_optim_state_import_world(rank->optim, (const void *const *)trial->blob, trial->bytes, RANKS);
}

static void load_body(rank_t *rank)
{
    const bool all_read_it = rank->world->n_ranks != RANKS;
    trial_t *trial = rank->arg;
    uint64_t hash, errors;

    rank_open(rank, &trial->model);
    rank_train(rank, trial->seed, STEPS);
    hash = lnt_optim_hash(rank->optim);
    errors = rank_error_hash(rank);
    ck_assert_int_eq(load(rank, trial), LNT_ERR_CORRUPT);
    ck_assert_int_eq(lnt_last_error()->peer, trial->bad);
    if (all_read_it || rank->rank == trial->bad) {
        ck_assert_msg(strstr(lnt_last_error()->cause, trial->wanted) != NULL, "%s, not %s", lnt_last_error()->cause,
                      trial->wanted);
        ck_assert_int_eq(lnt_last_error()->tensor, trial->tensor);
    }
    ck_assert_uint_eq(lnt_optim_hash(rank->optim), hash);
    ck_assert_uint_eq(rank_error_hash(rank), errors);
    rank_train(rank, trial->seed, STEPS); /* it goes on as before */
    expect_equal_ranks(rank);
    rank_close(rank);
}

START_TEST(bad_errors_are_not_loaded)
{
    static const lnt_error_dtype_t kept[] = {LNT_ERROR_F32, LNT_ERROR_BF16, LNT_ERROR_INT8};
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    trial_t trial = make_trial(kept[_i % N_KINDS]);

    poison(&trial, bad[test_random_below(3)]);
    ranks_run(_i < N_KINDS ? &home : &elsewhere, load_body, &trial);
    end_trial(&trial);
}
END_TEST

/* ---- sums that overflow in another world ---- */

static void fill_errors(trial_t *trial, uint32_t rank, float value)
{
    uint8_t *bytes = trial->blob[rank], *payload;
    lnt_state_blob_t blob;
    const lnt_state_part_t *part;

    ranks_ok(lnt_state_parse(bytes, trial->bytes[rank], &blob));
    part = lnt_state_find(&blob, LNT_STATE_ERRORS);
    payload = bytes + (part->payload - bytes);
    for (uint64_t pos = 0; pos < part->bytes;) {
        lnt_state_extent_t extent;
        const uint8_t *values;
        ck_assert(lnt_state_next_extent(payload, part->bytes, &pos, &extent, &values));
        for (uint64_t i = 0; i < extent.count; i++)
            memcpy(payload + (values - payload) + i * sizeof(value), &value, sizeof(value));
    }
    seal(payload);
}

static void overflow_body(rank_t *rank)
{
    trial_t *trial = rank->arg;
    uint64_t hash, errors;

    rank_open(rank, &trial->model);
    hash = lnt_optim_hash(rank->optim);
    errors = rank_error_hash(rank);
    ck_assert_int_eq(load(rank, trial), LNT_ERR_CORRUPT);
    ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, "sum over ranks is not finite"));
    ck_assert_uint_eq(lnt_optim_hash(rank->optim), hash);
    ck_assert_uint_eq(rank_error_hash(rank), errors);
    rank_close(rank);
}

START_TEST(sums_that_overflow_are_not_loaded)
{
    trial_t trial = make_trial(LNT_ERROR_F32);

    for (uint32_t r = 0; r < RANKS; r++)
        fill_errors(&trial, r, 3e38f); /* worker and server together are above the largest number */
    ranks_run(&elsewhere, overflow_body, &trial);
    end_trial(&trial);
}
END_TEST

START_TEST(sums_that_overflow_are_not_written)
{
    trial_t trial = make_trial(LNT_ERROR_F32);
    lnt_state_save_t save;
    uint64_t bytes;
    void *blob;

    for (uint32_t r = 0; r < RANKS; r++)
        fill_errors(&trial, r, 3e38f);
    ranks_ok(lnt_state_save_open((const void *const *)trial.blob, trial.bytes, RANKS, &save));
    for (uint32_t r = 0; r < elsewhere.n_ranks; r++) {
        ranks_ok(lnt_state_repartition(&save, elsewhere.n_ranks, elsewhere.nodes, r, NULL, &bytes));
        blob = malloc(bytes);
        ck_assert_int_eq(lnt_state_repartition(&save, elsewhere.n_ranks, elsewhere.nodes, r, blob, &bytes),
                         LNT_ERR_CORRUPT);
        ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, "sum over ranks is not finite"));
        free(blob);
    }
    lnt_state_save_close(&save);
    end_trial(&trial);
}
END_TEST

/* ---- the tool ---- */

static void write_files(const trial_t *trial, const char *folder)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        char path[512];
        FILE *file;
        (void)snprintf(path, sizeof(path), "%s/rank%u.state", folder, r);
        file = fopen(path, "wb");
        ck_assert_ptr_nonnull(file);
        ck_assert_uint_eq(fwrite(trial->blob[r], 1, trial->bytes[r], file), trial->bytes[r]);
        ck_assert_int_eq(fclose(file), 0);
    }
}

static int verify(const char *folder, char *text)
{
    char command[1024];
    FILE *pipe;
    size_t n;
    int status;

    (void)snprintf(command, sizeof(command), "%s verify '%s'/rank?.state 2>&1", TOOL, folder);
    pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    n = fread(text, 1, TEXT - 1, pipe);
    text[n] = '\0';
    status = pclose(pipe);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

START_TEST(the_tool_names_the_file_and_the_element)
{
    char folder[] = LNT_BINARY_DIR "/poison_test_XXXXXX", text[TEXT], name[32];
    trial_t trial;

    if (access(TOOL, X_OK) != 0) {
        test_say_skipped("linnet-ckpt", "the tools are not built (LINNET_BUILD_PERF)");
        return;
    }
    trial = make_trial(LNT_ERROR_F32);
    ck_assert_ptr_nonnull(mkdtemp(folder));
    write_files(&trial, folder);
    ck_assert_int_eq(verify(folder, text), 0);
    poison(&trial, NAN);
    write_files(&trial, folder);
    ck_assert_int_eq(verify(folder, text), 1);
    (void)snprintf(name, sizeof(name), "rank%u.state", trial.bad);
    ck_assert_msg(strstr(text, trial.wanted) != NULL && strstr(text, name) != NULL, "%s", text);
    for (uint32_t r = 0; r < RANKS; r++) {
        char path[512];
        (void)snprintf(path, sizeof(path), "%s/rank%u.state", folder, r);
        ck_assert_int_eq(unlink(path), 0);
    }
    ck_assert_int_eq(rmdir(folder), 0);
    end_trial(&trial);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("state_poison");
    TCase *tcase = tcase_create("poison");

    tcase_add_loop_test(tcase, bad_errors_are_not_loaded, 0, 2 * N_KINDS);
    tcase_add_test(tcase, sums_that_overflow_are_not_loaded);
    tcase_add_test(tcase, sums_that_overflow_are_not_written);
    tcase_add_test(tcase, the_tool_names_the_file_and_the_element);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
