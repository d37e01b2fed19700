/* Damaged, missing and foreign blobs of a world are refused, or survived where they are sound, and touch nothing; nor
 * does an import without memory.
 */
#include "../../optim/state_writer.h"
#include "../../src/base/memory.h"
#include "state_moves.h"

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
    Suite *suite = suite_create("state_refused");
    TCase *tcase = tcase_create("state_refused");

    tcase_add_loop_test(tcase, bad_saves_are_refused_and_touch_nothing, 0, 2);
    tcase_add_test(tcase, errors_that_nobody_has_are_noticed);
    tcase_add_test(tcase, sound_nonsense_is_survived);
    tcase_add_test(tcase, states_of_one_world_stay_there);
    tcase_add_test(tcase, without_memory_nothing_is_touched);
    tcase_add_test(tcase, no_flipped_byte_passes);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
