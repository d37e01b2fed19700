/* linnet-ckpt on files of real runs: what it prints of them, what it refuses, and that the files it writes are loaded
 * by the ranks of the new world and are what loading all old files gives.
 */
#include <math.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "../../optim/state_format.h"
#include "../../src/base/hash.h"
#include "ranks.h"

#define TOOL LNT_BINARY_DIR "/perf/linnet-ckpt"
enum { RANKS = 4, STEPS = 8, TEXT = 1 << 16 };

typedef struct files {
    model_t model;
    uint64_t seed, hash, errors[MAX_RANKS];
    char folder[256];
    void *blob[RANKS];
    uint64_t bytes[RANKS];
    const char *prefix; /* of the files to load; NULL: the blobs of all ranks */
} files_t;

static void write_blob(const files_t *files, uint32_t rank)
{
    char path[512];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/old.%u", files->folder, rank);
    file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(files->blob[rank], 1, files->bytes[rank], file), files->bytes[rank]);
    ck_assert_int_eq(fclose(file), 0);
}

static void save_body(rank_t *rank)
{
    files_t *files = rank->arg;

    rank_open(rank, &files->model);
    rank_train(rank, files->seed, STEPS);
    ranks_ok(lnt_optim_state_size(rank->optim, &files->bytes[rank->rank]));
    files->blob[rank->rank] = malloc(files->bytes[rank->rank]);
    ranks_ok(lnt_optim_state_export(rank->optim, files->blob[rank->rank], files->bytes[rank->rank]));
    write_blob(files, rank->rank);
    if (rank->rank == 0) files->hash = lnt_optim_hash(rank->optim);
    rank_close(rank);
}

/* Runs a command; its output, both streams, into text. Returns the exit code. */
__attribute__((format(printf, 2, 3))) static int run(char *text, const char *format, ...)
{
    char command[2048];
    va_list args;
    FILE *pipe;
    size_t n;
    int status;

    va_start(args, format);
    (void)vsnprintf(command, sizeof(command), format, args);
    va_end(args);
    pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    n = fread(text, 1, TEXT - 1, pipe);
    text[n] = '\0';
    status = pclose(pipe);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static double number_of(const char *text, const char *key)
{
    char quoted[64];
    const char *at;

    (void)snprintf(quoted, sizeof(quoted), "\"%s\": ", key);
    at = strstr(text, quoted);
    ck_assert_msg(at != NULL, "no %s in %s", key, text);
    return strtod(at + strlen(quoted), NULL);
}

static files_t make_files(void)
{
    const world_t world = {.n_ranks = RANKS, .nodes = {0, 1, 1, 2}};
    files_t files = {.model = {.n_tensors = 2,
                               .lengths = {200 + test_random() % 300, 70 + test_random() % 100},
                               .algorithm = "onebit_adam",
                               .options = "freeze_step=3,block=64",
                               .bucket_bytes = 1024,
                               .start_seed = test_random()},
                     .seed = test_random()};

    (void)snprintf(files.folder, sizeof(files.folder), "%s/ckpt_test_XXXXXX", LNT_BINARY_DIR);
    ck_assert_ptr_nonnull(mkdtemp(files.folder));
    ranks_run(&world, save_body, &files);
    return files;
}

static void end_files(files_t *files)
{
    char text[TEXT];

    for (uint32_t r = 0; r < RANKS; r++)
        free(files->blob[r]);
    ck_assert_int_eq(run(text, "rm -r '%s'", files->folder), 0);
}

static bool tool_is_missing(void)
{
    if (access(TOOL, X_OK) == 0) return false;
    test_say_skipped("linnet-ckpt", "the tools are not built (LINNET_BUILD_PERF)");
    return true;
}

static void load_body(rank_t *rank)
{
    files_t *files = rank->arg;
    char path[512];
    static _Thread_local uint8_t bytes[1 << 20];

    rank_open(rank, &files->model);
    if (files->prefix == NULL) {
        ranks_ok(lnt_optim_state_import_world(rank->optim, (const void *const *)files->blob, files->bytes, RANKS));
        files->errors[rank->rank] = rank_error_hash(rank);
    } else {
        FILE *file;
        (void)snprintf(path, sizeof(path), "%s/%s%u", files->folder, files->prefix, rank->rank);
        file = fopen(path, "rb");
        ck_assert_ptr_nonnull(file);
        ranks_ok(lnt_optim_state_import(rank->optim, bytes, fread(bytes, 1, sizeof(bytes), file)));
        (void)fclose(file);
        ck_assert_uint_eq(rank_error_hash(rank), files->errors[rank->rank]);
    }
    ck_assert_uint_eq(lnt_optim_hash(rank->optim), files->hash);
    rank_close(rank);
}

static const struct {
    world_t world;
    const char *nodes;
} worlds[] = {
    {{.n_ranks = 2, .nodes = {0, 1}}, ""},
    {{.n_ranks = 6, .nodes = {0, 0, 1, 1, 2, 2}}, "--nodes 3"},
    {{.n_ranks = 3, .nodes = {0, 1, 0}}, "--nodes a,b,a"},
    {{.n_ranks = 2, .nodes = {0, 0}}, "--nodes 1"},
};

START_TEST(written_files_are_what_loading_all_gives)
{
    const world_t *world = &worlds[_i].world;
    char text[TEXT];
    files_t files;

    if (tool_is_missing()) return;
    files = make_files();
    ck_assert_int_eq(run(text, "%s repartition %s/old.? -n %u %s -o '%s/new{}' --json 2>&1", TOOL, files.folder,
                         world->n_ranks, worlds[_i].nodes, files.folder),
                     0);
    ck_assert_double_gt(number_of(text, "residual_magnitude"), 0);
    ck_assert_double_le(number_of(text, "relative_difference"), 0x1p-24);
    ck_assert_double_eq_tol(number_of(text, "residual_after"), number_of(text, "residual_before"),
                            0x1p-24 * number_of(text, "residual_magnitude"));
    ranks_run(world, load_body, &files);
    files.prefix = "new";
    ranks_run(world, load_body, &files);
    ck_assert_int_eq(run(text, "%s verify '%s'/new? 2>&1", TOOL, files.folder), 0);
    end_files(&files);
}
END_TEST

START_TEST(the_same_world_is_copied)
{
    char text[TEXT];
    files_t files;

    if (tool_is_missing()) return;
    files = make_files();
    ck_assert_int_eq(
        run(text, "%s repartition '%s'/old.? --nodes x,y,y,z --out '%s/copy' 2>&1", TOOL, files.folder, files.folder),
        0);
    ck_assert_ptr_nonnull(strstr(text, "files copied"));
    for (uint32_t r = 0; r < RANKS; r++)
        ck_assert_int_eq(run(text, "cmp '%s/old.%u' '%s/copy.%u' 2>&1", files.folder, r, files.folder, r), 0);
    end_files(&files);
}
END_TEST

START_TEST(info_says_what_is_there)
{
    char text[TEXT];
    files_t files;

    if (tool_is_missing()) return;
    files = make_files();
    ck_assert_int_eq(run(text, "%s info --json '%s/old.2' 2>&1", TOOL, files.folder), 0);
    ck_assert_double_eq(number_of(text, "rank"), 2);
    ck_assert_double_eq(number_of(text, "world"), RANKS);
    ck_assert_double_eq(number_of(text, "n_nodes"), 3);
    ck_assert_double_eq(number_of(text, "step"), STEPS);
    ck_assert_double_eq(number_of(text, "bytes"), (double)files.bytes[2]);
    ck_assert_ptr_nonnull(strstr(text, "\"name\": \"t1\""));
    ck_assert_double_eq(number_of(text, "count"), (double)files.model.lengths[0]);
    ck_assert_int_eq(run(text, "%s info '%s'/old.? 2>&1", TOOL, files.folder), 0);
    ck_assert_ptr_nonnull(strstr(text, "rank 3 of 4 on 3 nodes"));
    ck_assert_ptr_nonnull(strstr(text, "errors of program 1, worker"));
    end_files(&files);
}
END_TEST

/* Whole again after a change. */
static void seal_header(files_t *files, uint32_t rank, const lnt_state_header_t *changed)
{
    lnt_state_header_t header = *changed;

    header.crc = lnt_crc32c(0, &header, offsetof(lnt_state_header_t, crc));
    memcpy(files->blob[rank], &header, sizeof(header));
    write_blob(files, rank);
}

/* The first piece of a server in the file of a rank is said to be of worker 1; false if this rank has none. */
static bool confuse_server(files_t *files, uint32_t rank)
{
    lnt_state_blob_t blob;
    lnt_state_section_t section;
    const lnt_state_part_t *part;
    uint8_t *payload;

    ranks_ok(lnt_state_parse(files->blob[rank], files->bytes[rank], &blob));
    part = lnt_state_find(&blob, LNT_STATE_ERRORS);
    payload = (uint8_t *)files->blob[rank] + (part->payload - (const uint8_t *)files->blob[rank]);
    for (uint64_t pos = 0, at = 0; pos < part->bytes; at = pos) {
        lnt_state_extent_t extent;
        const uint8_t *values;
        ck_assert(lnt_state_next_extent(payload, part->bytes, &pos, &extent, &values));
        if (extent.server == 0) continue;
        extent.codec_worker = 1;
        memcpy(payload + at, &extent, sizeof(extent));
        memcpy(&section, payload - sizeof(section), sizeof(section));
        section.crc = lnt_state_section_crc(&section, payload);
        memcpy(payload - sizeof(section), &section, sizeof(section));
        write_blob(files, rank);
        return true;
    }
    return false;
}

START_TEST(json_has_null_for_what_is_not_finite_and_no_raw_text)
{
    char text[TEXT];
    lnt_state_header_t header;
    files_t files;

    if (tool_is_missing()) return;
    files = make_files();
    memcpy(&header, files.blob[1], sizeof(header));
    header.grad_norm = INFINITY;
    header.dropped_norm = NAN;
    (void)snprintf(header.algorithm, sizeof(header.algorithm), "a\"b\\c\nd");
    seal_header(&files, 1, &header);
    ck_assert_int_eq(run(text, "%s info --json '%s/old.1' 2>&1", TOOL, files.folder), 0);
    ck_assert_ptr_nonnull(strstr(text, "\"grad_norm\": null, "));
    ck_assert_ptr_nonnull(strstr(text, "\"dropped_norm\": null, "));
    ck_assert_ptr_nonnull(strstr(text, "\"algorithm\": \"a\\\"b\\\\c\\u000ad\", "));
    end_files(&files);
}
END_TEST

static void expect_bad(const files_t *files, const char *which, int code, const char *says)
{
    char text[TEXT];
    int got = run(text, "cd '%s' && %s %s 2>&1", files->folder, TOOL, which);

    ck_assert_msg(got == code && strstr(text, says) != NULL, "%s: exit code %d, %s", which, got, text);
}

START_TEST(what_is_bad_is_refused_and_writes_nothing)
{
    char text[TEXT];
    files_t files;

    if (tool_is_missing()) return;
    files = make_files();
    expect_bad(&files, "verify old.0 old.1 old.2", 1, "4 ranks");
    expect_bad(&files, "verify old.0 old.1 old.2 old.2", 1, "twice");
    expect_bad(&files, "verify old.0 old.1 old.2 old.9", 1, "old.9");
    expect_bad(&files, "info .", 1, "no file");
    expect_bad(&files, "verify", 2, "give a command and files");
    expect_bad(&files, "verfy old.0", 2, "did you mean verify?");
    expect_bad(&files, "repartition old.?", 2, "--out");
    expect_bad(&files, "repartition old.? -o x", 2, "--ranks");
    expect_bad(&files, "repartition old.? -o x -n 3 --nodes 0,1", 2, "label");
    expect_bad(&files, "repartition old.? -o missing/x -n 3", 1, "missing/x");
    ((uint8_t *)files.blob[1])[test_random() % files.bytes[1]] ^= 8;
    write_blob(&files, 1);
    expect_bad(&files, "verify old.?", 1, "old.1");
    expect_bad(&files, "info old.1", 1, "corrupt");
    expect_bad(&files, "repartition old.? -o x -n 3", 1, "corrupt");
    ck_assert_int_eq(run(text, "ls '%s'", files.folder), 0);
    ck_assert_str_eq(text, "old.0\nold.1\nold.2\nold.3\n");
    end_files(&files);
}
END_TEST

START_TEST(a_server_is_no_worker)
{
    uint32_t rank = 0;
    files_t files;

    if (tool_is_missing()) return;
    files = make_files();
    while (!confuse_server(&files, rank))
        ck_assert_uint_lt(++rank, RANKS);
    expect_bad(&files, "verify old.?", 1, "impossible list of errors");
    expect_bad(&files, "info old.?", 1, "the list of errors is impossible");
    end_files(&files);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ckpt");
    TCase *tcase = tcase_create("ckpt");

    tcase_add_loop_test(tcase, written_files_are_what_loading_all_gives, 0, (int)(sizeof(worlds) / sizeof(worlds[0])));
    tcase_add_test(tcase, the_same_world_is_copied);
    tcase_add_test(tcase, info_says_what_is_there);
    tcase_add_test(tcase, what_is_bad_is_refused_and_writes_nothing);
    tcase_add_test(tcase, json_has_null_for_what_is_not_finite_and_no_raw_text);
    tcase_add_test(tcase, a_server_is_no_worker);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
