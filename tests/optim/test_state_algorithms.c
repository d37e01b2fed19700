/* Every algorithm of the library and every variant of one that fits other worlds, saved after any step: it goes on bit
 * by bit in the same world, through either way of loading; and moves to another world with everything but errors and
 * what differs between ranks as it was, its residual conserved in every program, and what differs between ranks as the
 * mean.
 */
#include <math.h>

#include "../../optim/state_save.h"
#include "ranks.h"
#include "small_options.h"

enum { STEPS = 14, MORE = 4, PROGRAMS = LNT_PROGRAMS_MAX, LOCAL_MAX = 4 };

typedef struct run {
    model_t model;
    char options[256];
    uint64_t seed;
    uint32_t save_at;
    const world_t *world; /* that saves */
    void *blob[MAX_RANKS];
    uint64_t bytes[MAX_RANKS];
    uint64_t saved, final, final_errors;
    uint64_t sums[MAX_RANKS];
    double *server[PROGRAMS], *worker[PROGRAMS]; /* of the running world; workers summed over nodes */
    double *wanted[PROGRAMS]; /* the sum over nodes in their order, divided, in f64: rounded once it is the same bits */
    uint32_t n_workers[PROGRAMS];
    bool world_call;
    _Atomic uint32_t n_differ; /* elements looked at that were not the same on all old ranks */
} run_t;

static void fill_grad(const run_t *run, const rank_t *rank, uint32_t step, float *grad)
{
    for (uint64_t i = 0; i < rank->n_elems; i++)
        grad[i] = i % 50 == 7 ? 0 : (float)normal_at(test_mix_pair(run->seed, step * 64u + rank->rank), i);
}

static void train(rank_t *rank, const run_t *run, uint32_t from, uint32_t to)
{
    float *grad = calloc(rank->n_elems + 1, sizeof(*grad));

    for (uint32_t step = from; step < to; step++) {
        fill_grad(run, rank, step, grad);
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
        expect_equal_ranks(rank);
    }
    free(grad);
}

static uint64_t error_sum(rank_t *rank, run_t *run)
{
    uint64_t sum = 0;

    run->sums[rank->rank] = rank_error_hash(rank);
    ranks_barrier();
    for (uint32_t r = 0; r < rank->world->n_ranks; r++)
        sum = test_mix_pair(sum, run->sums[r]);
    ranks_barrier();
    return sum;
}

static uint64_t place_of(const model_t *model, uint32_t tensor)
{
    uint64_t place = 0;

    for (uint32_t t = 0; t < tensor; t++)
        place += model->lengths[t];
    return place;
}

static void add_errors(rank_t *rank, run_t *run)
{
    lnt_error_extent_t extent;

    for (size_t i = 0; lnt_plan_error_extent(rank->plan, i, &extent) == LNT_OK; i++) {
        double *to = extent.server ? run->server[extent.program] : run->worker[extent.program];
        float *values = malloc(extent.count * sizeof(*values));
        lnt_plan_read_error(&extent, values);
        for (uint64_t k = 0; k < extent.count; k++)
            to[place_of(rank->model, extent.tensor) + extent.offset + k] += (double)values[k];
        run->n_workers[extent.program] = extent.codec_workers;
        free(values);
    }
}

static void collect(rank_t *rank, run_t *run)
{
    for (int p = 0; p < PROGRAMS && rank->rank == 0; p++) {
        memset(run->server[p], 0, rank->n_elems * sizeof(double));
        memset(run->worker[p], 0, rank->n_elems * sizeof(double));
    }
    for (uint32_t r = 0; r < rank->world->n_ranks; r++) {
        ranks_barrier();
        if (r == rank->rank) add_errors(rank, run);
    }
    ranks_barrier();
}

static void save_body(rank_t *rank)
{
    run_t *run = rank->arg;
    uint64_t errors;

    rank_open(rank, &run->model);
    train(rank, run, 0, run->save_at);
    ranks_ok(lnt_optim_state_size(rank->optim, &run->bytes[rank->rank]));
    run->blob[rank->rank] = malloc(run->bytes[rank->rank]);
    ranks_ok(lnt_optim_state_export(rank->optim, run->blob[rank->rank], run->bytes[rank->rank]));
    if (rank->rank == 0) run->saved = lnt_optim_hash(rank->optim);
    collect(rank, run);
    for (int p = 0; p < PROGRAMS && rank->rank == 0; p++) {
        for (uint64_t i = 0; i < rank->n_elems; i++)
            run->wanted[p][i] = run->server[p][i] + run->worker[p][i] / run->n_workers[p];
    }
    train(rank, run, run->save_at, run->save_at + MORE);
    errors = error_sum(rank, run);
    if (rank->rank == 0) {
        run->final = lnt_optim_hash(rank->optim);
        run->final_errors = errors;
    }
    rank_close(rank);
}

static lnt_status_t load_all(rank_t *rank, const run_t *run)
{
    return lnt_optim_state_import_world(rank->optim, (const void *const *)run->blob, run->bytes, run->world->n_ranks);
}

static void resume_body(rank_t *rank)
{
    run_t *run = rank->arg;

    rank_open(rank, &run->model);
    train(rank, run, 0, (run->save_at + 5) % STEPS); /* must leave no trace */
    ranks_ok(run->world_call ? load_all(rank, run)
                             : lnt_optim_state_import(rank->optim, run->blob[rank->rank], run->bytes[rank->rank]));
    ck_assert_uint_eq(lnt_optim_hash(rank->optim), run->saved);
    train(rank, run, run->save_at, run->save_at + MORE);
    ck_assert_uint_eq(lnt_optim_hash(rank->optim), run->final);
    ck_assert_uint_eq(error_sum(rank, run), run->final_errors);
    rank_close(rank);
}

/* ---- what differs between ranks ---- */

static float local_element(const run_t *run, uint32_t rank, const char *section, uint64_t i)
{
    lnt_state_blob_t blob;
    float value;

    ranks_ok(lnt_state_parse(run->blob[rank], run->bytes[rank], &blob));
    memcpy(&value, lnt_state_find(&blob, section)->payload + i * sizeof(value), sizeof(value));
    return value;
}

static void expect_means(const rank_t *rank, run_t *run)
{
    static const char *const names[] = {"exp_avg_local", "accumulator"}; /* of zero_one_adam */

    for (int k = 0; k < 2; k++) {
        const float *view = lnt_optim_view(rank->optim, names[k], 0);
        for (uint64_t i = 0; view != NULL && i < run->model.lengths[0]; i += 13) {
            double sum = 0;
            for (uint32_t r = 0; r < run->world->n_ranks; r++) {
                sum += (double)local_element(run, r, names[k], i);
                if (rank->rank == 0)
                    run->n_differ += local_element(run, r, names[k], i) != local_element(run, 0, names[k], i);
            }
            ck_assert(view[i] == (float)(sum / run->world->n_ranks));
        }
    }
}

static void move_body(rank_t *rank)
{
    run_t *run = rank->arg;

    rank_open(rank, &run->model);
    train(rank, run, 0, 3);
    ranks_ok(load_all(rank, run));
    ck_assert_uint_eq(lnt_optim_hash(rank->optim), run->saved);
    collect(rank, run);
    for (int p = 0; p < PROGRAMS; p++) {
        for (uint64_t i = 0; i < rank->n_elems; i++) {
            ck_assert_msg(run->server[p][i] == (double)(float)run->wanted[p][i] && run->worker[p][i] == 0,
                          "%s, program %d, element %" PRIu64 ": %a, wanted %a", run->model.algorithm, p, i,
                          run->server[p][i], run->wanted[p][i]);
        }
    }
    expect_means(rank, run);
    ranks_barrier();
    train(rank, run, run->save_at, run->save_at + MORE);
    rank_close(rank);
}

/* A row of the library: its algorithm, and the option that chooses it, NULL for the algorithm's first. */
typedef struct subject {
    const char *algorithm, *option, *word;
} subject_t;

static void draw_run(run_t *run, const subject_t *subject)
{
    const char *algorithm = subject->algorithm;
    static const char *const codec_options[] = {"codec", "warmup_codec"};

    small_options(algorithm, run->options, sizeof(run->options));
    if (has_option(algorithm, "local_step_scaler")) /* windows of several steps soon */
        (void)snprintf(run->options + strlen(run->options), sizeof(run->options) - strlen(run->options),
                       ",local_step_scaler=2");
    for (int i = 0; i < 2; i++) {
        if (!has_option(algorithm, codec_options[i])) continue;
        (void)snprintf(run->options + strlen(run->options), sizeof(run->options) - strlen(run->options), "%s%s=int8",
                       run->options[0] != '\0' ? "," : "", codec_options[i]);
    }
    if (subject->option != NULL)
        (void)snprintf(run->options + strlen(run->options), sizeof(run->options) - strlen(run->options), ",%s=%s",
                       subject->option, subject->word);
    run->model = (model_t){.n_tensors = 3,
                           .lengths = {300 + test_random() % 300, 64 + test_random() % 100, 1 + test_random() % 60},
                           .algorithm = algorithm,
                           .options = run->options,
                           .bucket_bytes = 1024 + test_random() % 2000,
                           .segment_bytes = 1024 + test_random() % 500,
                           .start_seed = test_random()};
    run->seed = test_random();
    for (int p = 0; p < PROGRAMS; p++) {
        run->server[p] = calloc(model_elems(&run->model), sizeof(double));
        run->worker[p] = calloc(model_elems(&run->model), sizeof(double));
        run->wanted[p] = calloc(model_elems(&run->model), sizeof(double));
    }
}

static void end_run(run_t *run)
{
    for (int p = 0; p < PROGRAMS; p++) {
        free(run->server[p]);
        free(run->worker[p]);
        free(run->wanted[p]);
    }
}

/* Returns how much differed between ranks. */
static uint32_t save_and_load(const world_t *from, const world_t *to, const subject_t *subject, uint32_t save_at)
{
    run_t run = {.world = from, .save_at = save_at};

    draw_run(&run, subject);
    for (int p = 0; p < PROGRAMS; p++)
        run.n_workers[p] = 1;
    ranks_run(from, save_body, &run);
    for (int call = 0; call < 2; call++) {
        run.world_call = call != 0;
        ranks_run(from, resume_body, &run);
    }
    run.model.bucket_bytes = 1024 + test_random() % 2000;
    ranks_run(to, move_body, &run);
    for (uint32_t r = 0; r < from->n_ranks; r++)
        free(run.blob[r]);
    end_run(&run);
    return run.n_differ;
}

enum { SUBJECTS_MAX = 64 };

static void add_subject(subject_t *list, int *n, subject_t subject)
{
    if (*n < SUBJECTS_MAX) list[*n] = subject;
    ++*n;
}

/* Returns how many there are, also where the list has no room for them. */
static int list_subjects(subject_t *list)
{
    int n = 0;

    for (size_t i = 0; lnt_optim_list()[i] != NULL; i++) {
        const char *algorithm = lnt_optim_list()[i];
        const lnt_optim_variant_t *v = lnt_optim_row_by_name(algorithm)->variants;
        add_subject(list, &n, (subject_t){.algorithm = algorithm});
        for (; v != NULL && v->row != NULL; v++) {
            if (!v->row->one_world) add_subject(list, &n, (subject_t){algorithm, v->option, v->word});
        }
    }
    return n;
}

START_TEST(every_algorithm_resumes_and_moves)
{
    static const world_t worlds[] = {{.n_ranks = 4, .nodes = {0, 0, 1, 1}, .quiet = true},
                                     {.n_ranks = 3, .nodes = {0, 1, 2}, .quiet = true}};
    subject_t subjects[SUBJECTS_MAX];
    const int n = list_subjects(subjects);
    const subject_t *subject = &subjects[_i];
    const uint32_t first = (uint32_t)(test_random() % (SMALL_FREEZE + 1)); /* before the freeze or at it */
    const uint32_t later = SMALL_FREEZE + 1 + (uint32_t)(test_random() % (STEPS - SMALL_FREEZE - 1));

    ck_assert_int_le(n, SUBJECTS_MAX);
    (void)save_and_load(&worlds[0], &worlds[1], subject, first);
    if (!has_option(subject->algorithm, "local_step_scaler")) {
        (void)save_and_load(&worlds[1], &worlds[0], subject, later);
        return;
    }
    /* One of two steps that follow each other is inside a window. */
    ck_assert_uint_gt(save_and_load(&worlds[1], &worlds[0], subject, STEPS - 3) +
                          save_and_load(&worlds[1], &worlds[0], subject, STEPS - 2),
                      0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("state_algorithms");
    TCase *tcase = tcase_create("state_algorithms");
    subject_t subjects[SUBJECTS_MAX];

    tcase_add_loop_test(tcase, every_algorithm_resumes_and_moves, 0, list_subjects(subjects));
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
