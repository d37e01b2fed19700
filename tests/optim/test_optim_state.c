/* Saved state: resuming in every phase, also with other bucket and segment bytes, equals the uninterrupted run bit for
 * bit; blobs that are damaged or of another run are refused by all ranks and touch nothing.
 */
#include <math.h>

#include "../../optim/state_format.h"
#include "ranks.h"

enum { FREEZE = 4, STEPS = 10 };

typedef struct resume {
    model_t model, other; /* `other` has other bucket and segment bytes */
    uint64_t seed;
    uint32_t save_at;
    uint8_t *blob[MAX_RANKS];
    uint64_t bytes[MAX_RANKS];
    uint64_t final_hash, final_errors;
    uint64_t errors[MAX_RANKS];
} resume_t;

static void fill_grad(const resume_t *resume, const rank_t *rank, uint32_t step, float *grad)
{
    for (uint64_t i = 0; i < rank->n_elems; i++) {
        grad[i] = (float)normal_at(test_mix_pair(resume->seed, step * 64u + rank->rank), i);
        if (i >= 150 && i < 170) grad[i] = 0; /* dead coordinates inside a block that lives */
    }
}

/* Gradients in the type of the model; 16-bit ones in `codes`. */
static const void *const *typed_grads(rank_t *rank, const float *grad, uint16_t *codes)
{
    const lnt_dtype_t dtype = rank->model->dtype;

    if (dtype == LNT_F32) return rank_grads(rank, grad);
    for (uint64_t i = 0; i < rank->n_elems; i++)
        codes[i] = half_of(dtype, grad[i]);
    for (uint32_t t = 0; t < rank->model->n_tensors; codes += rank->model->lengths[t++])
        rank->grads[t] = codes;
    return rank->grads;
}

static void train(rank_t *rank, const resume_t *resume, uint32_t from, uint32_t to)
{
    float *grad = calloc(rank->n_elems + 1, sizeof(*grad));
    uint16_t *codes = calloc(rank->n_elems + 1, sizeof(*codes));

    for (uint32_t step = from; step < to; step++) {
        fill_grad(resume, rank, step, grad);
        if (step == 2) grad[3] = NAN;
        ck_assert_int_eq(lnt_optim_step(rank->optim, typed_grads(rank, grad, codes)),
                         step == 2 ? LNT_SKIPPED_NONFINITE : LNT_OK);
        expect_equal_ranks(rank);
    }
    free(codes);
    free(grad);
}

/* Sum over ranks of a hash per (program, role, worker, tensor, element, value): does not depend on who owns what. */
static uint64_t error_sum(rank_t *rank, resume_t *resume)
{
    lnt_error_extent_t extent;
    uint64_t sum = 0;

    for (size_t i = 0; lnt_plan_error_extent(rank->plan, i, &extent) == LNT_OK; i++) {
        for (uint64_t k = 0; k < extent.count; k++) {
            uint64_t place =
                test_mix_pair((uint64_t)extent.program << 40 | (uint64_t)extent.server << 32 | extent.codec_worker,
                              (uint64_t)extent.tensor << 32 | (extent.offset + k));
            uint32_t bits;
            memcpy(&bits, &extent.data[k], sizeof(bits));
            sum += test_mix_pair(place, bits);
        }
    }
    resume->errors[rank->rank] = sum;
    ranks_barrier();
    sum = 0;
    for (uint32_t r = 0; r < rank->world->n_ranks; r++)
        sum += resume->errors[r];
    ranks_barrier();
    return sum;
}

static void save(rank_t *rank, resume_t *resume)
{
    uint64_t hash = lnt_optim_hash(rank->optim), *bytes = &resume->bytes[rank->rank];

    ranks_ok(lnt_optim_state_size(rank->optim, bytes));
    resume->blob[rank->rank] = malloc(*bytes);
    ck_assert_int_eq(lnt_optim_state_export(rank->optim, resume->blob[rank->rank], *bytes - 1), LNT_ERR_INVALID_ARG);
    ranks_ok(lnt_optim_state_export(rank->optim, resume->blob[rank->rank], *bytes));
    ck_assert_uint_eq(lnt_optim_hash(rank->optim), hash);
}

static void uninterrupted(rank_t *rank)
{
    resume_t *resume = rank->arg;
    uint64_t errors;

    rank_open(rank, &resume->model);
    train(rank, resume, 0, resume->save_at);
    save(rank, resume);
    train(rank, resume, resume->save_at, STEPS);
    errors = error_sum(rank, resume);
    if (rank->rank == 0) {
        resume->final_hash = lnt_optim_hash(rank->optim);
        resume->final_errors = errors;
    }
    rank_close(rank);
}

static void resumed(rank_t *rank)
{
    resume_t *resume = rank->arg;

    rank_open(rank, &resume->other);
    train(rank, resume, 0, (resume->save_at + 3) % STEPS); /* whatever was there before must leave no trace */
    ranks_ok(lnt_optim_state_import(rank->optim, resume->blob[rank->rank], resume->bytes[rank->rank]));
    ck_assert_uint_eq(rank_info(rank).step, resume->save_at - (resume->save_at > 2));
    train(rank, resume, resume->save_at, STEPS);
    ck_assert_uint_eq(lnt_optim_hash(rank->optim), resume->final_hash);
    ck_assert_uint_eq(error_sum(rank, resume), resume->final_errors);
    free(resume->blob[rank->rank]);
    rank_close(rank);
}

static resume_t draw_resume(const char *algorithm, char *options, size_t size)
{
    static const char *const codecs[] = {"f32", "bf16", "int8", "int4", "int4_hadamard", "f16", "bf16_sr", "f16_sr"};
    resume_t resume = {.seed = test_random()};
    const char *codec = codecs[test_random_below(sizeof(codecs) / sizeof(codecs[0]))];

    if (strncmp(algorithm, "onebit_", 7) == 0) {
        (void)snprintf(options, size, "freeze_step=%d,block=128,warmup_block=64,warmup_codec=%s,compression=%s%s",
                       FREEZE, codec, test_random_below(4) == 0 ? "off" : "on",
                       test_random_below(2) == 0 ? ",clip=2" : "");
    } else {
        (void)snprintf(options, size, "codec=%s,block=64", codec);
    }
    resume.model = (model_t){.n_tensors = 6,
                             .lengths = {100, 3, 0, 64 + test_random_below(900), 128, 1 + test_random_below(70)},
                             .rows = {20, 0, 0, 0, 16, 0},
                             .algorithm = algorithm,
                             .options = options,
                             .bucket_bytes = 512 + 4 * test_random_below(500),
                             .segment_bytes = 4 + 4 * test_random_below(300),
                             .start_seed = test_random(),
                             .dtype = (lnt_dtype_t)test_random_below(LNT_DTYPE_COUNT)};
    resume.other = resume.model;
    resume.other.bucket_bytes = 512 + 4 * test_random_below(1000);
    resume.other.segment_bytes = 4 + 4 * test_random_below(300);
    resume.other.start_seed++;
    return resume;
}

static void resume_everywhere(const world_t *world, const char *algorithm)
{
    char options[128];

    for (uint32_t save_at = 0; save_at <= STEPS; save_at += 1 + (uint32_t)test_random_below(3)) {
        resume_t resume = draw_resume(algorithm, options, sizeof(options));
        resume.save_at = save_at;
        ranks_run(world, uninterrupted, &resume);
        ranks_run(world, resumed, &resume);
    }
}

START_TEST(resuming_equals_the_uninterrupted_run)
{
    resume_everywhere(&(world_t){.n_ranks = 1, .quiet = true}, "onebit_adam");
    resume_everywhere(&(world_t){.n_ranks = 3, .nodes = {0, 1, 2}, .quiet = true}, "onebit_adam");
    resume_everywhere(&(world_t){.n_ranks = 4, .nodes = {0, 0, 1, 1}, .quiet = true}, "onebit_adam");
    resume_everywhere(&(world_t){.n_ranks = 5, .nodes = {0, 1, 1, 0, 0}, .quiet = true}, "onebit_adam");
    resume_everywhere(&(world_t){.n_ranks = 3, .nodes = {0, 1, 1}, .quiet = true}, "onebit_lamb");
    resume_everywhere(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, "lans");
    resume_everywhere(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, "came");
    resume_everywhere(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, "lamb");
    resume_everywhere(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, "adamw");
}
END_TEST

/* ---- refusals ---- */

static void expect_refused(rank_t *rank, const void *blob, uint64_t bytes, lnt_status_t mine)
{
    uint64_t hash = lnt_optim_hash(rank->optim), errors = rank_error_hash(rank);
    lnt_status_t status = lnt_optim_state_import(rank->optim, blob, bytes);

    ck_assert_int_lt(status, 0);
    ck_assert_int_gt(status, -40);
    if (mine != LNT_OK) ck_assert_int_eq(status, mine);
    ck_assert_uint_eq(lnt_optim_hash(rank->optim), hash);
    ck_assert_uint_eq(rank_error_hash(rank), errors);
}

static void flip_every_byte(rank_t *rank)
{
    resume_t *resume = rank->arg;
    uint8_t *blob;

    rank_open(rank, &resume->model);
    train(rank, resume, 0, FREEZE + 2);
    save(rank, resume);
    blob = resume->blob[rank->rank];
    for (uint64_t i = 0; i < resume->bytes[rank->rank]; i++) {
        blob[i] = (uint8_t)(blob[i] ^ 1u << test_random_below(8));
        expect_refused(rank, blob, resume->bytes[rank->rank], LNT_OK);
        ranks_ok(lnt_optim_state_export(rank->optim, blob, resume->bytes[rank->rank]));
    }
    for (uint64_t n = 0; n < resume->bytes[rank->rank]; n += 1 + n / 7)
        expect_refused(rank, blob, n, LNT_ERR_CORRUPT);
    ranks_ok(lnt_optim_state_import(rank->optim, blob, resume->bytes[rank->rank]));
    free(blob);
    rank_close(rank);
}

START_TEST(no_changed_byte_passes)
{
    resume_t resume = {.model = {.n_tensors = 2,
                                 .lengths = {3, 64},
                                 .algorithm = "onebit_adam",
                                 .options = "freeze_step=4,block=64,max_dead_share=1"},
                       .seed = test_random()};

    ranks_run(&(world_t){.n_ranks = 1, .quiet = true}, flip_every_byte, &resume);
}
END_TEST

/* ---- sections have names ---- */

/* The same sections from the last to the first. */
static void reverse_sections(const uint8_t *blob, uint64_t bytes, uint8_t *out)
{
    uint64_t to = bytes;

    memcpy(out, blob, sizeof(lnt_state_header_t));
    for (uint64_t at = sizeof(lnt_state_header_t); at < bytes;) {
        lnt_state_section_t section;
        memcpy(&section, blob + at, sizeof(section));
        to -= sizeof(section) + section.bytes;
        memcpy(out + to, blob + at, sizeof(section) + section.bytes);
        at += sizeof(section) + section.bytes;
    }
    ck_assert_uint_eq(to, sizeof(lnt_state_header_t));
}

/* The first section gets another name and a checksum that fits. */
static void rename_first(uint8_t *blob, const char *name)
{
    uint8_t *at = blob + sizeof(lnt_state_header_t);
    lnt_state_section_t section;

    memcpy(&section, at, sizeof(section));
    memset(section.name, 0, sizeof(section.name));
    memcpy(section.name, name, strlen(name));
    section.crc = lnt_state_section_crc(&section, at + sizeof(section));
    memcpy(at, &section, sizeof(section));
}

static void names_body(rank_t *rank)
{
    static const char *const names[] = {"nodez", "groups", "dead"};
    resume_t *resume = rank->arg;
    uint8_t *blob, *other;
    uint64_t bytes, hash;

    rank_open(rank, &resume->model);
    train(rank, resume, 0, FREEZE + 2);
    save(rank, resume);
    hash = lnt_optim_hash(rank->optim);
    blob = resume->blob[rank->rank];
    bytes = resume->bytes[rank->rank];
    other = malloc(bytes);
    reverse_sections(blob, bytes, other);
    train(rank, resume, FREEZE + 2, FREEZE + 4);
    ranks_ok(lnt_optim_state_import(rank->optim, other, bytes));
    ck_assert_uint_eq(lnt_optim_hash(rank->optim), hash);
    for (int i = 0; i < 3; i++) { /* a name nobody knows, one that is there already */
        memcpy(other, blob, bytes);
        rename_first(other, names[i]);
        expect_refused(rank, other, bytes, LNT_ERR_CORRUPT);
    }
    free(other);
    free(blob);
    rank_close(rank);
}

START_TEST(sections_are_found_by_their_names)
{
    char options[128];
    resume_t resume = draw_resume("onebit_adam", options, sizeof(options));

    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, names_body, &resume);
}
END_TEST

/* One rank's blob is bad: all refuse. */
static void one_bad_blob(rank_t *rank)
{
    resume_t *resume = rank->arg;
    uint32_t victim = rank->world->n_ranks - 1;
    uint8_t *blob;
    uint64_t bytes;

    rank_open(rank, &resume->model);
    train(rank, resume, 0, FREEZE + 2);
    save(rank, resume);
    train(rank, resume, FREEZE + 2, FREEZE + 3);
    ranks_barrier();
    blob = resume->blob[rank->rank];
    bytes = resume->bytes[rank->rank];
    if (rank->rank == victim) blob[bytes / 2] ^= 4;
    expect_refused(rank, blob, bytes, LNT_ERR_CORRUPT);
    if (rank->rank == victim) blob[bytes / 2] ^= 4;
    ranks_barrier();
    expect_refused(rank, resume->blob[(rank->rank + 1) % rank->world->n_ranks],
                   resume->bytes[(rank->rank + 1) % rank->world->n_ranks],
                   LNT_ERR_STATE_MISMATCH); /* the blob of another rank */
    ranks_barrier();
    ranks_ok(lnt_optim_state_import(rank->optim, blob, bytes));
    train(rank, resume, FREEZE + 2, FREEZE + 3);
    if (rank->rank == victim)
        ranks_ok(lnt_optim_state_export(rank->optim, blob, bytes)); /* of another step than the others */
    expect_refused(rank, blob, bytes, LNT_ERR_STATE_MISMATCH);
    free(blob);
    rank_close(rank);
}

START_TEST(one_bad_blob_is_refused_by_all)
{
    char options[128];
    resume_t resume = draw_resume("onebit_adam", options, sizeof(options));

    ranks_run(&(world_t){.n_ranks = 3, .nodes = {0, 1, 1}, .quiet = true}, one_bad_blob, &resume);
}
END_TEST

static void save_body(rank_t *rank)
{
    resume_t *resume = rank->arg;

    rank_open(rank, &resume->model);
    train(rank, resume, 0, resume->save_at);
    save(rank, resume);
    rank_close(rank);
}

static void refuse_body(rank_t *rank)
{
    resume_t *resume = rank->arg;
    uint32_t from = rank->rank % 2; /* two blobs were saved */

    rank_open(rank, &resume->other);
    expect_refused(rank, resume->blob[from], resume->bytes[from], LNT_ERR_STATE_MISMATCH);
    ck_assert_int_gt(strlen(lnt_last_error()->cure), 0);
    rank_close(rank);
}

START_TEST(blobs_of_another_run_are_refused)
{
    const world_t two = {.n_ranks = 2, .nodes = {0, 1}, .quiet = true},
                  close = {.n_ranks = 2, .nodes = {0, 0}, .quiet = true},
                  three = {.n_ranks = 3, .nodes = {0, 1, 1}, .quiet = true};
    resume_t resume = {.model = {.n_tensors = 2,
                                 .lengths = {100, 70},
                                 .algorithm = "onebit_adam",
                                 .options = "freeze_step=4,max_dead_share=1"},
                       .seed = test_random(),
                       .save_at = 3};

    ranks_run(&two, save_body, &resume);
    resume.other = resume.model;
    ranks_run(&close, refuse_body, &resume);
    ranks_run(&three, refuse_body, &resume);
    resume.other.lengths[1] = 71;
    ranks_run(&two, refuse_body, &resume);
    resume.other = resume.model;
    resume.other.options = "freeze_step=4,block=64";
    ranks_run(&two, refuse_body, &resume);
    resume.other = resume.model;
    resume.other.algorithm = "adamw";
    resume.other.options = "";
    ranks_run(&two, refuse_body, &resume);
    free(resume.blob[0]);
    free(resume.blob[1]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("optim_state");
    TCase *tcase = tcase_create("state");

    tcase_add_test(tcase, resuming_equals_the_uninterrupted_run);
    tcase_add_test(tcase, no_changed_byte_passes);
    tcase_add_test(tcase, sections_are_found_by_their_names);
    tcase_add_test(tcase, one_bad_blob_is_refused_by_all);
    tcase_add_test(tcase, blobs_of_another_run_are_refused);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
