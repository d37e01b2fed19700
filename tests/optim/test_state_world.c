/* States that move to worlds of other ranks and nodes: parameters and moments as they were, the residual of every
 * element conserved to one rounding, online and offline the same; a world of one node adds it once; damaged, missing
 * and foreign blobs are refused and touch nothing.
 */
#include <math.h>

#include "../../optim/state_save.h"
#include "../../optim/state_writer.h"
#include "../../src/base/memory.h"
#include "ranks.h"

enum { SIGN = 1, FREEZE = 3, SAVE_AT = 9, BLOBS = 16 };

/* A save, and what the test itself knows of it: errors by element, all tensors one after the other. */
typedef struct save {
    void *blob[BLOBS];
    uint64_t bytes[BLOBS];
    uint32_t n;
    uint64_t hash;
} save_t;

typedef struct move {
    model_t model;
    uint64_t seed;
    save_t from, to;
    const save_t *source;    /* of a load */
    bool offline;            /* through lnt_state_repartition */
    double *worker, *server; /* sums over nodes, of what the running world holds */
    double *wanted;          /* E + (1/K) sum of e of the world that saved */
    uint32_t n_nodes;
    uint64_t errors[MAX_RANKS];
    float *m_alone, *m_carried;
} move_t;

static uint32_t nodes_of(const world_t *world)
{
    uint32_t n = 0;

    for (uint32_t r = 0; r < world->n_ranks; r++)
        n = world->nodes[r] + 1 > n ? world->nodes[r] + 1 : n;
    return n;
}

static uint64_t place_of(const model_t *model, uint32_t tensor)
{
    uint64_t place = 0;

    for (uint32_t t = 0; t < tensor; t++)
        place += model->lengths[t];
    return place;
}

static void fill_grad(const move_t *move, const rank_t *rank, uint32_t step, float *grad)
{
    for (uint64_t i = 0; i < rank->n_elems; i++) {
        grad[i] = (float)ldexp(normal_at(test_mix_pair(move->seed, step * 64u + rank->rank), i), -(int)(i % 4));
        if (i >= 150 && i < 170) grad[i] = 0; /* dead */
    }
}

static void train(rank_t *rank, const move_t *move, uint32_t from, uint32_t to)
{
    float *grad = calloc(rank->n_elems + 1, sizeof(*grad));

    for (uint32_t step = from; step < to; step++) {
        fill_grad(move, rank, step, grad);
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
        expect_equal_ranks(rank);
    }
    free(grad);
}

/* Errors of the sign program, summed over nodes; ranks one after the other. */
static void collect(rank_t *rank, move_t *move)
{
    if (rank->rank == 0) {
        memset(move->worker, 0, rank->n_elems * sizeof(double));
        memset(move->server, 0, rank->n_elems * sizeof(double));
    }
    for (uint32_t r = 0; r < rank->world->n_ranks; r++) {
        lnt_error_extent_t extent;
        ranks_barrier();
        for (size_t i = 0; r == rank->rank && lnt_plan_error_extent(rank->plan, i, &extent) == LNT_OK; i++) {
            double *to;
            float *values;
            if (extent.tensor == LNT_TENSOR_PAD) continue;
            to = (extent.server ? move->server : move->worker) + place_of(rank->model, extent.tensor);
            values = malloc(extent.count * sizeof(*values));
            lnt_plan_read_error(&extent, values);
            for (uint64_t k = 0; k < extent.count && extent.program == SIGN; k++)
                to[extent.offset + k] += (double)values[k];
            free(values);
        }
    }
    ranks_barrier();
}

static void save_state(rank_t *rank, save_t *save)
{
    ranks_ok(lnt_optim_state_size(rank->optim, &save->bytes[rank->rank]));
    save->blob[rank->rank] = malloc(save->bytes[rank->rank]);
    ranks_ok(lnt_optim_state_export(rank->optim, save->blob[rank->rank], save->bytes[rank->rank]));
    if (rank->rank == 0) {
        save->n = rank->world->n_ranks;
        save->hash = lnt_optim_hash(rank->optim);
    }
    ranks_barrier();
}

static void free_save(save_t *save)
{
    for (uint32_t r = 0; r < save->n; r++)
        free(save->blob[r]);
    save->n = 0;
}

static lnt_status_t load_offline(rank_t *rank, const save_t *source)
{
    lnt_state_save_t save;
    uint64_t bytes;
    uint8_t *blob;
    lnt_status_t status;

    ranks_ok(lnt_state_save_open((const void *const *)source->blob, source->bytes, source->n, &save));
    ranks_ok(lnt_state_repartition(&save, rank->world->n_ranks, rank->world->nodes, rank->rank, NULL, &bytes));
    blob = malloc(bytes);
    ranks_ok(lnt_state_repartition(&save, rank->world->n_ranks, rank->world->nodes, rank->rank, blob, &bytes));
    status = lnt_optim_state_import(rank->optim, blob, bytes);
    free(blob);
    lnt_state_save_close(&save);
    return status;
}

static lnt_status_t load(rank_t *rank, const move_t *move)
{
    const save_t *source = move->source;

    if (move->offline) return load_offline(rank, source);
    return lnt_optim_state_import_world(rank->optim, (const void *const *)source->blob, source->bytes, source->n);
}

/* What the world of the save holds back, from its errors in f64. */
static void note_wanted(rank_t *rank, move_t *move)
{
    collect(rank, move);
    for (uint64_t i = 0; rank->rank == 0 && i < rank->n_elems; i++)
        move->wanted[i] = move->server[i] + move->worker[i] / nodes_of(rank->world);
    ranks_barrier();
}

static void save_body(rank_t *rank)
{
    move_t *move = rank->arg;

    rank_open(rank, &move->model);
    train(rank, move, 0, SAVE_AT);
    save_state(rank, &move->from);
    note_wanted(rank, move);
    rank_close(rank);
}

static void expect_mass(const rank_t *rank, const move_t *move)
{
    const lnt_optim_info_t info = rank_info(rank);
    double saved = 0, loaded = 0, magnitude = 0;

    for (uint64_t i = 0; i < rank->n_elems; i++) {
        saved += move->wanted[i];
        loaded += (double)(float)move->wanted[i];
        magnitude += fabs(move->wanted[i]);
    }
    ck_assert_double_gt(magnitude, 0);
    ck_assert_double_eq_tol(info.residual_saved, saved, 1e-12 * magnitude);
    ck_assert_double_eq_tol(info.residual_loaded, loaded, 1e-12 * magnitude);
    ck_assert_double_eq_tol(info.residual_magnitude, magnitude, 1e-12 * magnitude);
    ck_assert_double_le(fabs(info.residual_loaded - info.residual_saved), 0x1p-24 * magnitude);
}

/* Loads twice: into fresh objects, and over what a few steps have left. */
static void load_body(rank_t *rank)
{
    move_t *move = rank->arg;

    rank_open(rank, &move->model);
    for (int i = 0; i < 2; i++) {
        ranks_ok(load(rank, move));
        ck_assert_uint_eq(lnt_optim_hash(rank->optim), move->source->hash);
        ck_assert_uint_eq(rank_info(rank).step, SAVE_AT);
        collect(rank, move);
        for (uint64_t k = 0; k < rank->n_elems; k++) {
            ck_assert_msg(move->server[k] == (double)(float)move->wanted[k] && move->worker[k] == 0,
                          "element %" PRIu64 ": %a, wanted %a; worker %a", k, move->server[k], move->wanted[k],
                          move->worker[k]);
        }
        if (!move->offline) expect_mass(rank, move);
        ranks_barrier();
        if (i == 0) train(rank, move, SAVE_AT, SAVE_AT + 3);
    }
    save_state(rank, &move->to);
    rank_close(rank);
}

static move_t draw_move(void)
{
    move_t move = {.model = {.n_tensors = 3,
                             .lengths = {300 + test_random() % 700, 64 + test_random() % 200, 1 + test_random() % 60},
                             .algorithm = "onebit_adam",
                             .options = "freeze_step=3,block=64,max_dead_share=1",
                             .bucket_bytes = 1024 + test_random() % 2000,
                             .segment_bytes = 1024 + test_random() % 500,
                             .start_seed = test_random()},
                   .seed = test_random()};
    uint64_t n = model_elems(&move.model);

    move.worker = calloc(n, sizeof(double));
    move.server = calloc(n, sizeof(double));
    move.wanted = calloc(n, sizeof(double));
    move.m_alone = calloc(n, sizeof(float));
    move.m_carried = calloc(n, sizeof(float));
    return move;
}

static void end_move(move_t *move)
{
    free_save(&move->from);
    free_save(&move->to);
    free(move->worker);
    free(move->server);
    free(move->wanted);
    free(move->m_alone);
    free(move->m_carried);
}

static const struct {
    world_t from, to;
} moves[] = {
    {{.n_ranks = 4, .nodes = {0, 1, 2, 3}}, {.n_ranks = 2, .nodes = {0, 1}}},
    {{.n_ranks = 2, .nodes = {0, 1}}, {.n_ranks = 4, .nodes = {0, 1, 2, 3}}},
    {{.n_ranks = 4, .nodes = {0, 0, 1, 1}}, {.n_ranks = 4, .nodes = {0, 1, 2, 3}}},
    {{.n_ranks = 4, .nodes = {0, 1, 2, 3}}, {.n_ranks = 4, .nodes = {0, 1, 1, 0}}},
    {{.n_ranks = 4, .nodes = {0, 1, 2, 3}}, {.n_ranks = 1, .nodes = {0}}},
    {{.n_ranks = 3, .nodes = {0, 1, 2}}, {.n_ranks = 3, .nodes = {0, 0, 0}}},
    {{.n_ranks = 5, .nodes = {0, 1, 0, 2, 1}}, {.n_ranks = 3, .nodes = {0, 1, 1}}},
};

/* There and back: the second move finds server errors alone and is exact. */
START_TEST(residuals_move_to_other_worlds)
{
    move_t move = draw_move();

    ranks_run(&moves[_i].from, save_body, &move);
    move.source = &move.from;
    ranks_run(&moves[_i].to, load_body, &move);
    free_save(&move.to);
    move.offline = true;
    move.model.bucket_bytes = 1024 + test_random() % 2000;
    ranks_run(&moves[_i].to, load_body, &move);
    free_save(&move.from);
    move.from = move.to;
    move.to = (save_t){.n = 0};
    for (uint64_t i = 0; i < model_elems(&move.model); i++)
        move.wanted[i] = (double)(float)move.wanted[i];
    ranks_run(&moves[_i].from, load_body, &move);
    free_save(&move.to);
    move.offline = false;
    ranks_run(&moves[_i].from, load_body, &move);
    end_move(&move);
}
END_TEST

/* ---- the same world ---- */

static void resume_body(rank_t *rank)
{
    move_t *move = rank->arg;

    rank_open(rank, &move->model);
    train(rank, move, 0, 5);
    ranks_ok(load(rank, move));
    train(rank, move, SAVE_AT, SAVE_AT + 6);
    move->errors[rank->rank] = lnt_optim_hash(rank->optim);
    rank_close(rank);
}

static void whole_body(rank_t *rank)
{
    move_t *move = rank->arg;

    rank_open(rank, &move->model);
    train(rank, move, 0, SAVE_AT + 6);
    if (rank->rank == 0) move->from.hash = lnt_optim_hash(rank->optim);
    rank_close(rank);
}

START_TEST(the_same_world_goes_on_bit_by_bit)
{
    const world_t world = {.n_ranks = 4, .nodes = {0, 1, 1, 0}};
    move_t move = draw_move();

    ranks_run(&world, save_body, &move);
    ranks_run(&world, whole_body, &move);
    move.source = &move.from;
    move.model.bucket_bytes = 1024 + test_random() % 2000;
    ranks_run(&world, resume_body, &move);
    ck_assert_uint_eq(move.errors[0], move.from.hash);
    end_move(&move);
}
END_TEST

/* ---- one node ---- */

static void view_m(rank_t *rank, float *m)
{
    float *mine = calloc(rank->n_elems + 1, sizeof(*mine));

    rank_view(rank, "exp_avg", sizeof(float), mine);
    if (rank->rank == 0) memcpy(m, mine, rank->n_elems * sizeof(*mine));
    free(mine);
    ranks_barrier();
}

/* A step that is skipped keeps the carry; so does a save. */
static void skip_and_reload(rank_t *rank, move_t *move)
{
    float *grad = calloc(rank->n_elems + 1, sizeof(*grad));

    if (rank->rank == 0) grad[1] = NAN;
    ck_assert_int_eq(lnt_optim_step(rank->optim, rank_grads(rank, grad)), LNT_SKIPPED_NONFINITE);
    free(grad);
    save_state(rank, &move->to);
    rank_close(rank);
    rank_open(rank, &move->model);
    ranks_ok(lnt_optim_state_import(rank->optim, move->to.blob[rank->rank], move->to.bytes[rank->rank]));
    ck_assert_uint_eq(lnt_plan_get_carry(rank->plan), 1u << SIGN);
}

/* Over what a plan of one node has: what this rank carries, and the shadow of it. */
static void expect_carry_memory(rank_t *rank, const lnt_plan_memory_t *empty)
{
    lnt_plan_memory_t memory = {.struct_size = sizeof(memory)};
    lnt_error_extent_t extent;
    uint64_t bytes = 0;

    for (size_t i = 0; lnt_plan_error_extent(rank->plan, i, &extent) == LNT_OK; i++)
        bytes += extent.count * sizeof(float);
    ranks_ok(lnt_plan_get_memory(rank->plan, &memory));
    ck_assert_uint_eq(memory.errors, empty->errors + bytes);
    ck_assert_uint_eq(memory.shadows, empty->shadows + bytes);
    ck_assert_uint_eq(memory.total, empty->total + 2 * bytes);
}

static void one_node_body(rank_t *rank)
{
    move_t *move = rank->arg;
    lnt_plan_memory_t empty = {.struct_size = sizeof(empty)};

    rank_open(rank, &move->model);
    ranks_ok(lnt_plan_get_memory(rank->plan, &empty));
    ck_assert_uint_eq(empty.errors, 0);
    ranks_ok(load(rank, move));
    ck_assert_uint_eq(lnt_plan_get_carry(rank->plan), 1u << SIGN);
    expect_carry_memory(rank, &empty);
    ranks_ok(lnt_plan_set_carry(rank->plan, 0));
    expect_carry_memory(rank, &empty);
    train(rank, move, SAVE_AT, SAVE_AT + 1);
    view_m(rank, move->m_alone);
    ranks_ok(load(rank, move));
    skip_and_reload(rank, move);
    train(rank, move, SAVE_AT, SAVE_AT + 1);
    view_m(rank, move->m_carried);
    ck_assert_uint_eq(lnt_plan_get_carry(rank->plan), 0);
    train(rank, move, SAVE_AT + 1, SAVE_AT + 2); /* gone */
    ck_assert_uint_eq(lnt_plan_get_carry(rank->plan), 0);
    expect_carry_memory(rank, &empty);
    rank_close(rank);
}

START_TEST(one_node_adds_the_residual_once)
{
    static const world_t worlds[] = {{.n_ranks = 1, .nodes = {0}}, {.n_ranks = 3, .nodes = {0, 0, 0}}};
    move_t move = draw_move();
    uint64_t changed = 0;

    ranks_run(&moves[0].from, save_body, &move);
    move.source = &move.from;
    ranks_run(&worlds[_i], one_node_body, &move);
    for (uint64_t i = 0; i < model_elems(&move.model); i++) {
        ck_assert(move.m_carried[i] == move.m_alone[i] + (float)move.wanted[i]);
        changed += move.m_carried[i] != move.m_alone[i];
    }
    ck_assert_uint_gt(changed, 64);
    end_move(&move);
}
END_TEST

/* ---- refusals ---- */

static void expect_refused(rank_t *rank, const save_t *save, lnt_status_t wanted)
{
    const uint64_t hash = lnt_optim_hash(rank->optim), errors = rank_error_hash(rank);
    const uint32_t carry = lnt_plan_get_carry(rank->plan);

    ck_assert_int_eq(lnt_optim_state_import_world(rank->optim, (const void *const *)save->blob, save->bytes, save->n),
                     wanted);
    ck_assert_uint_eq(lnt_optim_hash(rank->optim), hash);
    ck_assert_uint_eq(rank_error_hash(rank), errors);
    ck_assert_uint_eq(lnt_plan_get_carry(rank->plan), carry);
    ranks_barrier();
}

static void flip(save_t *save, uint32_t rank, uint64_t at)
{
    ((uint8_t *)save->blob[rank])[at] ^= 0x10;
}

static void refuse_body(rank_t *rank)
{
    move_t *move = rank->arg;
    save_t bad = move->from;
    uint64_t at = move->seed % bad.bytes[1];

    rank_open(rank, &move->model);
    train(rank, move, 0, FREEZE + 2);
    bad.n--;
    expect_refused(rank, &bad, LNT_ERR_STATE_MISMATCH); /* one is missing */
    bad.n++;
    bad.blob[0] = bad.blob[1];
    bad.bytes[0] = bad.bytes[1];
    expect_refused(rank, &bad, LNT_ERR_STATE_MISMATCH); /* one is there twice */
    bad = move->from;
    bad.blob[2] = NULL;
    expect_refused(rank, &bad, LNT_ERR_INVALID_ARG);
    bad.blob[2] = move->to.blob[2];
    bad.bytes[2] = move->to.bytes[2];
    expect_refused(rank, &bad, LNT_ERR_STATE_MISMATCH); /* of another step */
    bad = move->from;
    if (rank->rank == 1) bad.n = 0; /* one rank has nothing */
    expect_refused(rank, &bad, LNT_ERR_INVALID_ARG);
    ranks_barrier();
    if (rank->rank == 0) flip(&move->from, 1, at);
    ranks_barrier();
    expect_refused(rank, &move->from, LNT_ERR_CORRUPT);
    if (rank->rank == 0) flip(&move->from, 1, at);
    ranks_barrier();
    expect_refused(rank, rank->rank == 0 ? &move->from : &move->to, LNT_ERR_STATE_MISMATCH); /* not the same for all */
    ranks_ok(lnt_optim_state_import_world(rank->optim, (const void *const *)move->from.blob, move->from.bytes,
                                          move->from.n));
    rank_close(rank);
}

static void save_twice_body(rank_t *rank)
{
    move_t *move = rank->arg;

    rank_open(rank, &move->model);
    train(rank, move, 0, SAVE_AT);
    save_state(rank, &move->from);
    train(rank, move, SAVE_AT, SAVE_AT + 1);
    save_state(rank, &move->to);
    rank_close(rank);
}

START_TEST(bad_saves_are_refused_and_touch_nothing)
{
    const world_t from = {.n_ranks = 3, .nodes = {0, 1, 1}};
    const world_t to[] = {{.n_ranks = 2, .nodes = {0, 1}, .quiet = true},
                          {.n_ranks = 2, .nodes = {0, 0}, .quiet = true}};
    move_t move = draw_move();

    ranks_run(&from, save_twice_body, &move);
    ranks_run(&to[_i], refuse_body, &move);
    end_move(&move);
}
END_TEST

START_TEST(no_flipped_byte_passes)
{
    const world_t world = {.n_ranks = 2, .nodes = {0, 1}};
    move_t move = draw_move();
    lnt_state_save_t save;

    move.model.lengths[0] = 130;
    ranks_run(&world, save_body, &move);
    ranks_ok(lnt_state_save_open((const void *const *)move.from.blob, move.from.bytes, 2, &save));
    lnt_state_save_close(&save);
    for (uint32_t r = 0; r < 2; r++) {
        for (uint64_t at = 0; at < move.from.bytes[r]; at++) {
            flip(&move.from, r, at);
            ck_assert_int_lt(lnt_state_save_open((const void *const *)move.from.blob, move.from.bytes, 2, &save), 0);
            flip(&move.from, r, at);
        }
        for (uint64_t bytes = 0; bytes < move.from.bytes[r]; bytes += 1 + test_random() % 16) {
            const uint64_t cut[] = {r == 0 ? bytes : move.from.bytes[0], r == 1 ? bytes : move.from.bytes[1]};
            ck_assert_int_lt(lnt_state_save_open((const void *const *)move.from.blob, cut, 2, &save), 0);
        }
    }
    end_move(&move);
}
END_TEST

/* The errors of a blob but those of a role: sound bytes that lack something. */
static void put_errors_without(lnt_state_writer_t *writer, const lnt_state_part_t *part, uint32_t server)
{
    lnt_state_open(writer);
    for (uint64_t pos = 0, bytes; pos < part->bytes; pos += bytes) {
        lnt_state_extent_t extent;
        memcpy(&extent, part->payload + pos, sizeof(extent));
        bytes = sizeof(extent) + lnt_state_padded(extent.count * sizeof(float));
        if (extent.server != server) lnt_state_put(writer, part->payload + pos, bytes);
    }
    lnt_state_close(writer, part->name);
}

static uint64_t rewrite_without(const save_t *save, uint32_t rank, uint32_t server, uint8_t *out)
{
    lnt_state_writer_t writer = {.out = out};
    lnt_state_blob_t blob;

    ranks_ok(lnt_state_parse(save->blob[rank], save->bytes[rank], &blob));
    lnt_state_put(&writer, &blob.header, sizeof(blob.header));
    for (uint32_t i = 0; i < blob.header.n_sections; i++) {
        const lnt_state_part_t *part = &blob.parts[i];
        if (strcmp(part->name, LNT_STATE_ERRORS) == 0) {
            put_errors_without(&writer, part, server);
        } else {
            lnt_state_put_section(&writer, part->name, part->payload, part->bytes);
        }
    }
    lnt_state_put_header(&writer, blob.header);
    return writer.pos;
}

START_TEST(errors_that_nobody_has_are_noticed)
{
    const world_t world = {.n_ranks = 2, .nodes = {0, 1}};
    move_t move = draw_move();
    lnt_state_save_t save;
    save_t less;

    ranks_run(&world, save_body, &move);
    for (uint32_t role = 0; role < 3; role++) { /* workers, servers, nothing */
        less = move.from;
        less.blob[1] = malloc(less.bytes[1]);
        less.bytes[1] = rewrite_without(&move.from, 1, role, less.blob[1]);
        lnt_status_t wanted = role == 2 ? LNT_OK : LNT_ERR_CORRUPT;
        ck_assert_int_eq(lnt_state_save_open((const void *const *)less.blob, less.bytes, 2, &save), wanted);
        if (role == 2) lnt_state_save_close(&save);
        free(less.blob[1]);
    }
    end_move(&move);
}
END_TEST

/* Bytes that nobody wrote, under checksums that fit: any verdict, but no access outside. */
static void scramble(const save_t *save, uint32_t rank, uint8_t *out)
{
    lnt_state_writer_t writer = {.out = out};
    lnt_state_blob_t blob;

    ranks_ok(lnt_state_parse(save->blob[rank], save->bytes[rank], &blob));
    lnt_state_put(&writer, &blob.header, sizeof(blob.header));
    for (uint32_t i = 0; i < blob.header.n_sections; i++) {
        const lnt_state_part_t *part = &blob.parts[i];
        lnt_state_open(&writer);
        lnt_state_put(&writer, part->payload, part->bytes);
        for (int k = 0; k < 2 && part->bytes != 0 && test_random() % 8 == 0; k++) /* near its beginning more often */
            out[writer.pos - part->bytes + test_random() % (test_random() % part->bytes + 1)] = (uint8_t)test_random();
        lnt_state_close(&writer, part->name);
    }
    if (test_random() % 4 == 0) blob.header.n_tensors = (uint32_t)test_random() % 8;
    lnt_state_put_header(&writer, blob.header);
}

START_TEST(sound_nonsense_is_survived)
{
    const world_t world = {.n_ranks = 2, .nodes = {0, 1}};
    const uint32_t nodes[] = {0, 1, 0};
    move_t move = draw_move();
    lnt_state_save_t save;
    uint32_t n_open = 0;

    ranks_run(&world, save_body, &move);
    for (int i = 0; i < 3000; i++) {
        save_t bad = move.from;
        uint64_t bytes;
        bad.blob[1] = malloc(bad.bytes[1]);
        scramble(&move.from, 1, bad.blob[1]);
        if (lnt_state_save_open((const void *const *)bad.blob, bad.bytes, 2, &save) == LNT_OK) {
            ranks_ok(lnt_state_repartition(&save, 3, nodes, 1, NULL, &bytes));
            lnt_state_save_close(&save);
            n_open++;
        }
        free(bad.blob[1]);
    }
    ck_assert_uint_gt(n_open, 0);
    ck_assert_uint_lt(n_open, 3000);
    end_move(&move);
}
END_TEST

/* What reproduces the published implementation keeps its pads and masters by rank. */
START_TEST(states_of_one_world_stay_there)
{
    const world_t world = {.n_ranks = 2, .nodes = {0, 1}};
    const uint32_t nodes[] = {0, 1, 2};
    move_t move = draw_move();
    lnt_state_save_t save;
    uint64_t bytes;

    move.model.options = "compat=deepspeed,freeze_step=3";
    ranks_run(&world, save_body, &move);
    ranks_ok(lnt_state_save_open((const void *const *)move.from.blob, move.from.bytes, 2, &save));
    ck_assert_int_eq(lnt_state_repartition(&save, 3, nodes, 0, NULL, &bytes), LNT_ERR_UNSUPPORTED);
    lnt_state_save_close(&save);
    end_move(&move);
}
END_TEST

/* The k-th allocation fails, for every k. One rank: among several, who waits inside a collective would wait. */
static void starved_body(rank_t *rank)
{
    move_t *move = rank->arg;
    lnt_status_t status = LNT_ERR_NO_MEMORY;
    uint64_t k = 0, live;

    rank_open(rank, &move->model);
    train(rank, move, 0, FREEZE + 1);
    ranks_ok(load(rank, move)); /* what is allocated once is there */
    train(rank, move, SAVE_AT, SAVE_AT + 2);
    live = lnt_memory_live();
    while (status != LNT_OK) {
        const uint64_t hash = lnt_optim_hash(rank->optim);
        lnt_memory_fail_after(++k);
        status = load(rank, move);
        if (!lnt_memory_fault_fired()) ranks_ok(status);
        lnt_memory_fail_after(0);
        if (status == LNT_OK) break;
        ck_assert_int_eq(status, LNT_ERR_NO_MEMORY);
        ck_assert_uint_eq(lnt_optim_hash(rank->optim), hash);
        ck_assert_uint_eq(lnt_plan_get_carry(rank->plan), 0);
        ck_assert_uint_eq(lnt_memory_live(), live);
    }
    ck_assert_uint_gt(k, 8);
    ck_assert_uint_eq(lnt_optim_hash(rank->optim), move->source->hash);
    rank_close(rank);
}

START_TEST(without_memory_nothing_is_touched)
{
    const world_t alone = {.n_ranks = 1, .nodes = {0}, .quiet = true};
    move_t move = draw_move();

    ranks_run(&moves[0].from, save_body, &move);
    move.source = &move.from;
    ranks_run(&alone, starved_body, &move);
    end_move(&move);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("state_world");
    TCase *tcase = tcase_create("state_world");

    tcase_add_loop_test(tcase, residuals_move_to_other_worlds, 0, (int)(sizeof(moves) / sizeof(moves[0])));
    tcase_add_test(tcase, the_same_world_goes_on_bit_by_bit);
    tcase_add_loop_test(tcase, one_node_adds_the_residual_once, 0, 2);
    tcase_add_loop_test(tcase, bad_saves_are_refused_and_touch_nothing, 0, 2);
    tcase_add_test(tcase, errors_that_nobody_has_are_noticed);
    tcase_add_test(tcase, sound_nonsense_is_survived);
    tcase_add_test(tcase, states_of_one_world_stay_there);
    tcase_add_test(tcase, without_memory_nothing_is_touched);
    tcase_add_test(tcase, no_flipped_byte_passes);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
