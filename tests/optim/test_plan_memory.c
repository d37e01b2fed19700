/* The memory figures, known before the commit, against what is asked of the allocator: for every algorithm and every
 * way to keep errors, byte by byte.
 *
 * The linker puts the functions below between the library and its allocator (--wrap). A rank notes what its own thread
 * asks for and what it gives back; whatever is aligned is an array, and has its name in the table of figures.
 */
#include <stdatomic.h>

#include "../../src/base/memory.h"
#include "ranks.h"
#include "small_options.h"

/* ---- notes ---- */

typedef struct note {
    const void *memory; /* NULL: given back */
    const char *name;
    uint64_t bytes;
    bool array, optimizer;
} note_t;

typedef struct notes {
    size_t n;
    bool optimizer; /* asked for while the optimizer is made */
    note_t list[8192];
} notes_t;

static _Thread_local notes_t *notes; /* of the rank that runs in this thread */

void *__real_lnt_calloc(size_t n, size_t size, const char *name);
void *__real_lnt_alloc_aligned(size_t bytes, const char *name);
void __real_lnt_free(void *memory);
void *__wrap_lnt_calloc(size_t n, size_t size, const char *name);
void *__wrap_lnt_alloc_aligned(size_t bytes, const char *name);
void __wrap_lnt_free(void *memory);

static void *noted(void *memory, uint64_t bytes, const char *name, bool array)
{
    if (notes == NULL) return memory;
    ck_assert_uint_lt(notes->n, sizeof(notes->list) / sizeof(notes->list[0]));
    notes->list[notes->n++] = (note_t){memory, name, bytes, array, notes->optimizer};
    return memory;
}

void *__wrap_lnt_calloc(size_t n, size_t size, const char *name)
{
    return noted(__real_lnt_calloc(n, size, name), n * size, name, false);
}

void *__wrap_lnt_alloc_aligned(size_t bytes, const char *name)
{
    return noted(__real_lnt_alloc_aligned(bytes, name), bytes, name, true);
}

void __wrap_lnt_free(void *memory)
{
    for (size_t i = 0; notes != NULL && i < notes->n; i++) {
        if (notes->list[i].memory == memory) notes->list[i].memory = NULL;
    }
    __real_lnt_free(memory);
}

/* ---- figures ---- */

enum { ERRORS, SHADOWS, FRAMES, GRAPHS, OTHER, STATE, TABLES, COMM, FIGURES };

/* Of the names of memory. */
static const struct {
    const char *name;
    int figure;
} figure_of[] = {
    {"worker error", ERRORS},
    {"server error", ERRORS},
    {"worker error shadow", SHADOWS},
    {"server error shadow", SHADOWS},
    {"graph workspace", FRAMES},
    {"block to encode", FRAMES},
    {"block to serve", FRAMES},
    {"errors of a block to encode", FRAMES},
    {"errors of a block to serve", FRAMES},
    {"graph", GRAPHS},
    {"segments", GRAPHS},
    {"live mask", GRAPHS},
    {"blocks with dead coordinates", GRAPHS},
    {"touched blocks", GRAPHS},
    {"active blocks", GRAPHS},
    {"commit scratch", OTHER},
    {"gradient accumulator", OTHER},
    {"f32 master", OTHER},
    {"optimizer", TABLES},
    {"optimizer groups", TABLES},
    {"optimizer tensors", TABLES},
    {"votes of an import", TABLES},
    {"lengths of saved errors", TABLES},
    {"tile of a collective", COMM},
};

/* What the optimizer asks for is its state, but for its tables, a collective of its own, and masters, which are the
 * plan's. */
static int figure_of_note(const note_t *note)
{
    int figure = note->optimizer ? STATE : TABLES;

    for (size_t i = 0; i < sizeof(figure_of) / sizeof(figure_of[0]); i++) {
        if (strcmp(figure_of[i].name, note->name) == 0) figure = figure_of[i].figure;
    }
    ck_assert_msg(figure != TABLES || !note->array || note->optimizer, "an array has no figure: %s", note->name);
    if (figure == STATE && !note->array) return TABLES;
    return note->optimizer && (figure == FRAMES || figure == GRAPHS) ? COMM : figure;
}

/* What is held, by figure. */
static void add_up(uint64_t *figures)
{
    memset(figures, 0, FIGURES * sizeof(*figures));
    for (size_t i = 0; i < notes->n; i++) {
        const note_t *note = &notes->list[i];
        if (note->memory != NULL) figures[figure_of_note(note)] += note->bytes;
    }
}

/* What lnt_plan_get_memory does not count, at most (linnet/plan.h). */
static uint64_t uncounted_bytes(const lnt_plan_info_t *info)
{
    const uint64_t programs = (uint64_t)info->n_buckets * info->n_programs;

    return info->n_buckets * 1024 + programs * (4096 + 64 * info->n_tensors) + info->n_tensors * 1024;
}

static void expect_figures(const rank_t *rank, const lnt_plan_memory_t *memory)
{
    lnt_plan_memory_t after = {.struct_size = sizeof(after)};
    lnt_plan_info_t info = {.struct_size = sizeof(info)};
    uint64_t figures[FIGURES];

    add_up(figures);
    ranks_ok(lnt_plan_get_memory(rank->plan, &after));
    ranks_ok(lnt_plan_get_info(rank->plan, &info));
    ck_assert_uint_eq(memory->errors, figures[ERRORS]);
    ck_assert_uint_eq(memory->shadows, figures[SHADOWS]);
    ck_assert_uint_eq(memory->frames, figures[FRAMES]);
    ck_assert_uint_eq(memory->graphs, figures[GRAPHS]);
    ck_assert_uint_eq(memory->other, figures[OTHER]);
    ck_assert_uint_eq(memory->total,
                      figures[ERRORS] + figures[SHADOWS] + figures[FRAMES] + figures[GRAPHS] + figures[OTHER]);
    ck_assert_mem_eq(memory, &after, sizeof(after));
    ck_assert_uint_le(figures[TABLES], uncounted_bytes(&info));
    ck_assert_uint_eq(rank_info(rank).memory_bytes, figures[STATE]);
}

/* ---- every algorithm ---- */

/* The first plan leaves its collectives behind, ready for the next: they are the communicator's. */
static void noted_body(rank_t *rank)
{
    lnt_plan_memory_t memory = {.struct_size = sizeof(memory)};

    rank_open(rank, rank->arg);
    rank_close(rank);
    notes = calloc(1, sizeof(*notes));
    ranks_ok(rank_plan(rank, rank->arg));
    notes->optimizer = true;
    ranks_ok(rank_optim(rank));
    notes->optimizer = false;
    ranks_ok(lnt_plan_get_memory(rank->plan, &memory));
    ranks_ok(lnt_plan_commit(rank->plan));
    expect_figures(rank, &memory);
    rank_close(rank);
    free(notes);
    notes = NULL;
}

static const world_t worlds[] = {{.n_ranks = 1},
                                 {.n_ranks = 3, .nodes = {0, 1, 2}},
                                 {.n_ranks = 4, .nodes = {0, 1, 0, 1}},
                                 {.n_ranks = 2, .nodes = {0, 0}}};
enum { N_WORLDS = sizeof(worlds) / sizeof(worlds[0]), N_ERRORS = LNT_ERROR_INT8 - LNT_ERROR_F32 + 1, N_EXTRAS = 5 };
enum { ERRORS_HERE = TEST_SANITIZED ? 1 : N_ERRORS }; /* then a drawn one */

/* The large block does not fit the stack of a task. */
static const char *const extras[N_EXTRAS] = {"", "clip=1", "clip=1,clip_mode=bucket", "block=8192", "compat=deepspeed"};

/* Lengths, buckets, types and what is kept beside are drawn. */
static model_t draw_model(const char *algorithm, const char *options, int error_dtype)
{
    return (model_t){.n_tensors = 5,
                     .lengths = {(1 + test_random() % 40) * 64, test_random() % 300, 5000 + test_random() % 9000, 0, 3},
                     .rows = {64},
                     .algorithm = algorithm,
                     .options = options,
                     .accumulate = test_random() % 2 == 0,
                     .dtype = (lnt_dtype_t)(test_random() % 3),
                     .error_dtype = (lnt_error_dtype_t)error_dtype,
                     .bucket_bytes = 2000 + test_random() % 30000,
                     .segment_bytes = 512 + test_random() % 5000};
}

/* Not every algorithm takes every option; with compat it has other options. False: it was not run. */
static bool check_algorithm(const char *algorithm, const char *extra, int error_dtype)
{
    const bool compat = strncmp(extra, "compat", 6) == 0;
    char name[64], option[16], options[160];
    model_t model;

    (void)snprintf(name, sizeof(name), "%s%s", algorithm, compat ? "/deepspeed" : "");
    (void)snprintf(option, sizeof(option), "%.*s", (int)strcspn(extra, "="), extra);
    if (extra[0] != '\0' && !has_option(algorithm, option)) return false;
    small_options(name, options, sizeof(options));
    (void)snprintf(options + strlen(options), sizeof(options) - strlen(options), "%s%s",
                   options[0] != '\0' && extra[0] != '\0' ? "," : "", extra);
    for (int w = 0; w < N_WORLDS; w++) {
        model = draw_model(algorithm, options, error_dtype);
        ranks_run(&worlds[w], noted_body, &model);
    }
    return true;
}

START_TEST(every_algorithm_takes_what_was_predicted)
{
    const int error_dtype = LNT_ERROR_F32 + (TEST_SANITIZED ? (int)test_random_below(N_ERRORS) : _i % N_ERRORS);
    uint32_t n_run = 0;

    for (const char *const *name = lnt_optim_list(); *name != NULL; name++)
        n_run += check_algorithm(*name, extras[_i / ERRORS_HERE], error_dtype);
    ck_assert_uint_ge(n_run, 3);
}
END_TEST

/* ---- in numbers ---- */

static model_t small_model(void)
{
    return (model_t){.n_tensors = 4,
                     .lengths = {300, 0, 70, 20},
                     .algorithm = "adamw",
                     .options = "block=64,codec=int8",
                     .accumulate = true,
                     .dtype = LNT_F16,
                     .bucket_bytes = 512,
                     .segment_bytes = 256};
}

static void memory_body(rank_t *rank)
{
    model_t model = small_model();
    lnt_plan_memory_t before = {.struct_size = sizeof(before)}, after = before;
    lnt_plan_info_t info = {.struct_size = sizeof(info)};

    ranks_ok(rank_plan(rank, &model));
    ranks_ok(rank_optim(rank));
    ranks_ok(lnt_plan_get_memory(rank->plan, &before));
    ranks_ok(lnt_plan_commit(rank->plan));
    ranks_ok(lnt_plan_get_memory(rank->plan, &after));
    ck_assert_mem_eq(&before, &after, sizeof(after));
    ck_assert_uint_eq(after.total, after.errors + after.shadows + after.frames + after.graphs + after.other);
    ck_assert_uint_eq(after.errors, after.shadows);
    ck_assert_uint_eq(after.other, 2 * 390 * 4 + LNT_SPAN_MAX * 4);
    ranks_ok(lnt_plan_get_info(rank->plan, &info));
    ck_assert_uint_eq(info.n_elems, 390);
    ck_assert_uint_ge(info.n_buckets, 3);
    rank_close(rank);
}

START_TEST(memory_is_known_before_the_commit)
{
    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}}, memory_body, NULL);
}
END_TEST

/* ---- what all threads together hold ---- */

enum { ROUNDED = 2 * 4096 }; /* per rank: two arrays that begin on pages */
static _Atomic uint64_t counted, tables;

static void ignore(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live)
{
    (void)arg;
    (void)span;
    (void)value;
    (void)live;
}

static void allocated_body(rank_t *rank)
{
    const model_t *model = rank->arg;
    const lnt_program_params_t program = {
        .struct_size = sizeof(program),
        .name = "all",
        .codec = {.struct_size = sizeof(program.codec), .name = "sign1", .block = 128},
        .stage = {.struct_size = sizeof(program.stage), .consume = ignore}};
    lnt_plan_memory_t memory = {.struct_size = sizeof(memory)};
    lnt_plan_info_t info = {.struct_size = sizeof(info)};
    uint64_t before, after;
    uint32_t number;

    ranks_barrier();
    before = lnt_memory_live_bytes();
    ranks_barrier();
    ranks_ok(rank_plan(rank, model));
    ranks_ok(lnt_plan_add_program(rank->plan, &program, &number));
    ranks_ok(lnt_plan_get_memory(rank->plan, &memory));
    ranks_ok(lnt_plan_commit(rank->plan));
    ranks_ok(lnt_plan_get_info(rank->plan, &info));
    atomic_fetch_add(&counted, memory.total);
    atomic_fetch_add(&tables, uncounted_bytes(&info));
    ranks_barrier();
    after = lnt_memory_live_bytes();
    ck_assert_uint_ge(after - before, atomic_load(&counted));
    ck_assert_uint_le(after - before, atomic_load(&counted) + atomic_load(&tables) + rank->world->n_ranks * ROUNDED);
    ranks_barrier();
    ranks_ok(lnt_plan_destroy(rank->plan));
    free(rank->x);
    free(rank->x16);
}

START_TEST(memory_is_what_the_allocator_gave)
{
    static const world_t shapes[] = {
        {.n_ranks = 1}, {.n_ranks = 3, .nodes = {0, 1, 2}}, {.n_ranks = 4, .nodes = {0, 1, 0, 1}}};
    model_t model = {.n_tensors = 4,
                     .lengths = {11000, 70, 9001, 3},
                     .accumulate = true,
                     .dtype = _i % 2 == 0 ? LNT_F32 : LNT_BF16,
                     .error_dtype = (lnt_error_dtype_t)(1 + _i % 3),
                     .bucket_bytes = 24000};

    atomic_store(&counted, 0);
    atomic_store(&tables, 0);
    ranks_run(&shapes[_i / 3], allocated_body, &model);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan_memory");
    TCase *tcase = tcase_create("plan_memory");

    tcase_add_loop_test(tcase, every_algorithm_takes_what_was_predicted, 0, N_EXTRAS * ERRORS_HERE);
    tcase_add_test(tcase, memory_is_known_before_the_commit);
    tcase_add_loop_test(tcase, memory_is_what_the_allocator_gave, 0, 9);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
