/* Saves of a small model and their moves to other worlds: what tests of lnt_optim_state_import_world share. A move
 * knows the errors of the world that saved, element by element.
 */
#ifndef TESTS_OPTIM_STATE_MOVES_H
#define TESTS_OPTIM_STATE_MOVES_H

#include "../../optim/state_save.h"
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

static inline uint32_t nodes_of(const world_t *world)
{
    uint32_t n = 0;

    for (uint32_t r = 0; r < world->n_ranks; r++)
        n = world->nodes[r] + 1 > n ? world->nodes[r] + 1 : n;
    return n;
}

static inline uint64_t place_of(const model_t *model, uint32_t tensor)
{
    uint64_t place = 0;

    for (uint32_t t = 0; t < tensor; t++)
        place += model->lengths[t];
    return place;
}

static inline void fill_grad(const move_t *move, const rank_t *rank, uint32_t step, float *grad)
{
    for (uint64_t i = 0; i < rank->n_elems; i++) {
        grad[i] = (float)ldexp(normal_at(test_mix_pair(move->seed, step * 64u + rank->rank), i), -(int)(i % 4));
        if (i >= 150 && i < 170) grad[i] = 0; /* dead */
    }
}

static inline void train(rank_t *rank, const move_t *move, uint32_t from, uint32_t to)
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
static inline void collect(rank_t *rank, move_t *move)
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

static inline void save_state(rank_t *rank, save_t *save)
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

static inline void free_save(save_t *save)
{
    for (uint32_t r = 0; r < save->n; r++)
        free(save->blob[r]);
    save->n = 0;
}

static inline lnt_status_t load_offline(rank_t *rank, const save_t *source)
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

static inline lnt_status_t load(rank_t *rank, const move_t *move)
{
    const save_t *source = move->source;

    if (move->offline) return load_offline(rank, source);
    return lnt_optim_state_import_world(rank->optim, (const void *const *)source->blob, source->bytes, source->n);
}

/* What the world of the save holds back, from its errors in f64. */
static inline void note_wanted(rank_t *rank, move_t *move)
{
    collect(rank, move);
    for (uint64_t i = 0; rank->rank == 0 && i < rank->n_elems; i++)
        move->wanted[i] = move->server[i] + move->worker[i] / nodes_of(rank->world);
    ranks_barrier();
}

static inline void save_body(rank_t *rank)
{
    move_t *move = rank->arg;

    rank_open(rank, &move->model);
    train(rank, move, 0, SAVE_AT);
    save_state(rank, &move->from);
    note_wanted(rank, move);
    rank_close(rank);
}

static inline move_t draw_move(void)
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

static inline void end_move(move_t *move)
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

#endif
