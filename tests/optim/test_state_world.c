/* States that move to worlds of other ranks and nodes: parameters and moments as they were, the residual of every
 * element conserved to one rounding, online and offline the same; a world of one node adds it once.
 */
#include <math.h>

#include "state_moves.h"

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

int main(void)
{
    Suite *suite = suite_create("state_world");
    TCase *tcase = tcase_create("state_world");

    tcase_add_loop_test(tcase, residuals_move_to_other_worlds, 0, (int)(sizeof(moves) / sizeof(moves[0])));
    tcase_add_test(tcase, the_same_world_goes_on_bit_by_bit);
    tcase_add_loop_test(tcase, one_node_adds_the_residual_once, 0, 2);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
