/* 1-bit Adam against the executable model, byte by byte: parameters, moments, denominators, dead masks, errors of every
 * owner, powers. Stored cases always; fresh ones with a random seed where a python3 with numpy is found (otherwise that
 * part is skipped, aloud).
 */
#include <dirent.h>

#include "ranks.h"

enum { MAX_STEPS = 64 };

typedef struct row {
    const uint8_t *grads;
    uint32_t committed, t, frozen;
    double powers[2];
    const uint8_t *x, *m, *v, *denominator, *worker, *server, *dead;
} row_t;

typedef struct model_case {
    uint8_t *bytes, *at;
    world_t world;
    uint32_t n_nodes;
    model_t model;
    uint32_t lane[MAX_TENSORS];
    lnt_group_t groups[2];
    char options[160];
    double loss_scale;
    uint64_t n;
    uint32_t n_steps;
    float *start;
    row_t rows[MAX_STEPS];
} case_t;

static uint32_t take_u32(case_t *c)
{
    uint32_t value;

    memcpy(&value, c->at, sizeof(value));
    c->at += sizeof(value);
    return value;
}

static double take_f64(case_t *c)
{
    double value;

    memcpy(&value, c->at, sizeof(value));
    c->at += sizeof(value);
    return value;
}

static const uint8_t *take_bytes(case_t *c, uint64_t n)
{
    const uint8_t *bytes = c->at;

    c->at += n;
    return bytes;
}

static void read_head(case_t *c)
{
    static const char *const codecs[] = {"f32", "bf16", "int8"};
    uint32_t freeze, block, codec, warm_block;
    double clip;

    ck_assert_uint_eq(take_u32(c), 0x54494231u);
    c->world.n_ranks = take_u32(c);
    for (uint32_t r = 0; r < c->world.n_ranks; r++) {
        c->world.nodes[r] = take_u32(c);
        if (c->world.nodes[r] >= c->n_nodes) c->n_nodes = c->world.nodes[r] + 1;
    }
    c->world.quiet = true; /* dead coordinates are warned about */
    c->model.n_tensors = take_u32(c);
    for (uint32_t t = 0; t < c->model.n_tensors; t++)
        c->model.lengths[t] = take_u32(c);
    for (uint32_t t = 0; t < c->model.n_tensors; t++) {
        c->model.group_of[t] = take_u32(c);
        c->lane[t] = c->model.group_of[t] != 0 || c->model.lengths[t] < 64;
    }
    c->n_steps = take_u32(c);
    freeze = take_u32(c);
    block = take_u32(c);
    codec = take_u32(c);
    warm_block = take_u32(c);
    c->model.bucket_bytes = 4ull * take_u32(c);
    c->model.segment_bytes = 4ull * take_u32(c);
    lnt_group_defaults(&c->groups[0]);
    c->groups[0].lr = take_f64(c);
    c->groups[0].beta1 = take_f64(c);
    c->groups[0].beta2 = take_f64(c);
    c->groups[0].eps = take_f64(c);
    c->groups[0].weight_decay = take_f64(c);
    clip = take_f64(c);
    c->loss_scale = take_f64(c);
    c->groups[1] = c->groups[0];
    c->groups[1].non_freeze = true;
    (void)snprintf(c->options, sizeof(c->options),
                   "freeze_step=%u,block=%u,warmup_codec=%s,warmup_block=%u,clip=%g,max_dead_share=1", freeze, block,
                   codecs[codec], warm_block, clip);
}

static void read_case(case_t *c)
{
    read_head(c);
    c->model.algorithm = "onebit_adam";
    c->model.options = c->options;
    c->model.groups = c->groups;
    c->model.n_groups = 2;
    c->n = model_elems(&c->model);
    c->start = malloc(c->n * sizeof(float));
    memcpy(c->start, take_bytes(c, c->n * sizeof(float)), c->n * sizeof(float));
    for (uint32_t s = 0; s < c->n_steps; s++) {
        row_t *row = &c->rows[s];
        row->grads = take_bytes(c, c->world.n_ranks * c->n * sizeof(float));
        row->committed = take_u32(c);
        row->t = take_u32(c);
        row->frozen = take_u32(c);
        row->powers[0] = take_f64(c);
        row->powers[1] = take_f64(c);
        row->x = take_bytes(c, c->n * sizeof(float));
        row->m = take_bytes(c, c->n * sizeof(float));
        row->v = take_bytes(c, c->n * sizeof(float));
        row->denominator = take_bytes(c, c->n * sizeof(float));
        row->worker = take_bytes(c, c->n_nodes * c->n * sizeof(float));
        row->server = take_bytes(c, c->n * sizeof(float));
        row->dead = take_bytes(c, c->n);
    }
}

/* Errors this rank owns, of the programs of this phase, against the table of all. */
static void compare_errors(const rank_t *rank, const case_t *c, const row_t *row)
{
    lnt_error_extent_t extent;
    uint64_t base[MAX_TENSORS + 1] = {0};

    for (uint32_t t = 0; t < c->model.n_tensors; t++)
        base[t + 1] = base[t] + c->model.lengths[t];
    for (size_t i = 0; lnt_plan_error_extent(rank->plan, i, &extent) == LNT_OK; i++) {
        const uint8_t *expected =
            extent.server ? row->server : row->worker + extent.codec_worker * c->n * sizeof(float);
        if ((extent.program == 0) == (row->frozen != 0)) continue;
        ck_assert_mem_eq(extent.data, expected + (base[extent.tensor] + extent.offset) * sizeof(float),
                         extent.count * sizeof(float));
    }
}

static void compare_frozen(const rank_t *rank, const case_t *c, const row_t *row)
{
    uint64_t at = 0;

    for (uint32_t t = 0; t < c->model.n_tensors; at += c->model.lengths[t++]) {
        const float *denominator = lnt_optim_view(rank->optim, "denominator", t);
        const uint8_t *dead = lnt_optim_view(rank->optim, "dead", t);
        ck_assert_ptr_nonnull(dead);
        ck_assert_mem_eq(dead, row->dead + at, c->model.lengths[t]);
        for (uint64_t i = 0; i < c->model.lengths[t] && !c->lane[t]; i++) {
            if (!dead[i]) ck_assert_mem_eq(&denominator[i], row->denominator + (at + i) * sizeof(float), sizeof(float));
        }
    }
}

static void body(rank_t *rank)
{
    const case_t *c = rank->arg;
    float *grad = malloc(c->n * sizeof(*grad)), *seen = malloc(c->n * sizeof(*seen));

    ranks_ok(rank_plan(rank, &c->model));
    memcpy(rank->x, c->start, c->n * sizeof(float));
    ranks_ok(rank_optim(rank));
    ranks_ok(lnt_plan_commit(rank->plan));
    ranks_ok(lnt_optim_set_scaling(rank->optim, c->loss_scale, 1));
    for (uint32_t s = 0; s < c->n_steps; s++) {
        const row_t *row = &c->rows[s];
        memcpy(grad, row->grads + rank->rank * c->n * sizeof(float), c->n * sizeof(float));
        ck_assert_int_eq(lnt_optim_step(rank->optim, rank_grads(rank, grad)),
                         row->committed ? LNT_OK : LNT_SKIPPED_NONFINITE);
        ck_assert_uint_eq(rank_info(rank).step, row->t);
        ck_assert_int_eq(rank_info(rank).phase == LNT_PHASE_COMPRESSED, row->frozen != 0);
        ck_assert_mem_eq(rank->x, row->x, c->n * sizeof(float));
        rank_view(rank, "exp_avg", sizeof(float), seen);
        ck_assert_mem_eq(seen, row->m, c->n * sizeof(float));
        rank_view(rank, "exp_avg_sq", sizeof(float), seen);
        ck_assert_mem_eq(seen, row->v, c->n * sizeof(float));
        compare_errors(rank, c, row);
        if (row->frozen) compare_frozen(rank, c, row);
    }
    free(grad);
    free(seen);
    rank_close(rank);
}

static void replay(const char *path)
{
    case_t c = {.n_nodes = 0};
    FILE *file = fopen(path, "rb");
    long size;

    ck_assert_msg(file != NULL, "%s", path);
    (void)fseek(file, 0, SEEK_END);
    size = ftell(file);
    rewind(file);
    c.bytes = c.at = malloc((size_t)size);
    ck_assert_uint_eq(fread(c.bytes, 1, (size_t)size, file), (size_t)size);
    (void)fclose(file);
    read_case(&c);
    ck_assert_uint_eq((uint64_t)(c.at - c.bytes), (uint64_t)size);
    ranks_run(&c.world, body, &c);
    free(c.start);
    free(c.bytes);
}

static uint32_t replay_folder(const char *folder)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    uint32_t n = 0;

    ck_assert_msg(dir != NULL, "%s", folder);
    while ((entry = readdir(dir)) != NULL) {
        char path[600];
        if (strstr(entry->d_name, ".bin") == NULL) continue;
        (void)snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        printf("%s\n", path);
        (void)fflush(stdout);
        replay(path);
        n++;
    }
    (void)closedir(dir);
    return n;
}

START_TEST(stored_cases)
{
    ck_assert_uint_ge(replay_folder(LNT_SOURCE_DIR "/tests/optim/cases"), 2);
}
END_TEST

static const char *python_with_numpy(void)
{
    static const char *const pythons[] = {"python3", "/usr/bin/python3"};
    char command[100];

    for (size_t i = 0; i < sizeof(pythons) / sizeof(pythons[0]); i++) {
        (void)snprintf(command, sizeof(command), "%s -c 'import numpy' 2>/dev/null", pythons[i]);
        if (system(command) == 0) return pythons[i];
    }
    return NULL;
}

START_TEST(fresh_cases)
{
    char command[700], folder[] = "/tmp/linnet-cases-XXXXXX";

    ck_assert_ptr_nonnull(mkdtemp(folder));
    (void)snprintf(command, sizeof(command), "%s -B %s/tests/optim/make_onebit_cases.py %s %llu 10",
                   python_with_numpy(), LNT_SOURCE_DIR, folder, (unsigned long long)test_random_below(1u << 30));
    ck_assert_int_eq(system(command), 0);
    ck_assert_uint_eq(replay_folder(folder), 10);
    (void)snprintf(command, sizeof(command), "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("optim_model");
    TCase *tcase = tcase_create("model");

    tcase_add_test(tcase, stored_cases);
    if (python_with_numpy() != NULL) {
        tcase_add_test(tcase, fresh_cases);
    } else {
        test_say_skipped("fresh cases of 1-bit Adam's model", "python3 with numpy is missing (python3-numpy)");
    }
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
