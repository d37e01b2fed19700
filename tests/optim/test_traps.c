/* Known traps of published implementations, each shown to be absent from every algorithm (ALGORITHMS: traps of the
 * references):
 *
 *   a mean over ranks that is a sum inside a node      counters that count tensors, not steps
 *   sign noise that moves coordinates without gradient   pads that enter a scale
 *   one rank alone that skips its momentum             decay that leaks into the momentum
 *   replicas that drift by rounding
 *
 * Peaks of integer codes, clipped by a whole step elsewhere, are kernel.test_codec_identities'. Norms of one rank alone
 * that clip, and overflows that one rank alone sees, are test_clip's and test_optim_skip's.
 */
#include <math.h>

#include "ranks.h"
#include "small_options.h"

enum { LENGTH = 1024, ALIVE = 256, STEPS = 150 };

typedef struct trial {
    model_t model;
    uint64_t seed;
    uint32_t n_steps;
    bool alike;     /* all ranks have the same gradients */
    uint64_t alive; /* elements from here on never have a gradient; 0: all have */
    uint64_t hash;
    float *x, *m; /* of rank 0 at the end, if not NULL */
} trial_t;

static float grad_at(const trial_t *trial, uint32_t rank, uint32_t step, uint64_t i)
{
    if (trial->alive != 0 && i >= trial->alive) return 0;
    return (float)normal_at(test_mix_pair(trial->seed, step * 64u + (trial->alike ? 0 : rank)), i);
}

static void body(rank_t *rank)
{
    trial_t *trial = rank->arg;
    float *grad;

    rank_open(rank, &trial->model);
    grad = calloc(rank->n_elems, sizeof(*grad));
    for (uint32_t step = 0; step < trial->n_steps; step++) {
        for (uint64_t i = 0; i < rank->n_elems; i++)
            grad[i] = grad_at(trial, rank->rank, step, i);
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
        expect_equal_ranks(rank); /* replicas: bit by bit after every step */
    }
    if (rank->rank == 0) {
        uint64_t at = 0;
        trial->hash = lnt_optim_hash(rank->optim);
        for (uint32_t t = 0; t < trial->model.n_tensors; at += trial->model.lengths[t++]) {
            const uint64_t bytes = trial->model.lengths[t] * sizeof(float);
            if (trial->x != NULL) memcpy(trial->x + at, lnt_plan_master(rank->plan, t), bytes);
            if (trial->m != NULL) memcpy(trial->m + at, lnt_optim_view(rank->optim, "exp_avg", t), bytes);
        }
    }
    free(grad);
    rank_close(rank);
}

static trial_t make_trial(const char *algorithm, char *options, size_t size, const lnt_group_t *group)
{
    small_options(algorithm, options, size);
    if (has_option(algorithm, "max_dead_share"))
        (void)snprintf(options + strlen(options), size - strlen(options), ",max_dead_share=1");
    return (trial_t){.model = {.n_tensors = 1,
                               .lengths = {LENGTH},
                               .algorithm = algorithm,
                               .options = options,
                               .groups = group,
                               .n_groups = 1,
                               .bucket_bytes = 2048,
                               .start_seed = 41},
                     .seed = test_random(),
                     .n_steps = 20};
}

/* ---- the mean ---- */

/* Where the momentum after one step is not a multiple of the mean gradient. */
static bool has_another_momentum(const char *algorithm)
{
    return strcmp(algorithm, "lans") == 0 || strcmp(algorithm, "came") == 0;
}

static void check_mean(const char *algorithm, const world_t *world)
{
    static const uint64_t lengths[] = {1, 63, 64, 200, 129};
    char options[256];
    float m[LENGTH];
    lnt_group_t group;
    trial_t trial;

    lnt_group_defaults(&group);
    group.beta1 = 0.5;
    trial = make_trial(algorithm, options, sizeof(options), &group);
    trial.model.n_tensors = 5;
    memcpy(trial.model.lengths, lengths, sizeof(lengths));
    trial.m = m;
    trial.n_steps = 1;
    ranks_run(world, body, &trial);
    for (uint64_t i = 0; i < model_elems(&trial.model); i++) {
        double mean = 0;
        for (uint32_t r = 0; r < world->n_ranks; r++)
            mean += (double)grad_at(&trial, r, 0, i) / world->n_ranks;
        ck_assert_msg(fabs((double)m[i] - 0.5 * mean) <= 1e-5, "%s: element %d", algorithm, (int)i);
    }
}

/* Whatever the ranks per node, the shape and the length of a tensor. */
START_TEST(means_are_over_all_ranks)
{
    static const world_t worlds[] = {{.n_ranks = 4, .nodes = {0, 0, 0, 1}},
                                     {.n_ranks = 4, .nodes = {0, 1, 0, 1}},
                                     {.n_ranks = 3, .nodes = {0, 0, 0}},
                                     {.n_ranks = 3, .nodes = {0, 1, 2}}};

    for (size_t n = 0; lnt_optim_list()[n] != NULL; n++) {
        if (has_another_momentum(lnt_optim_list()[n])) continue;
        for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++)
            check_mean(lnt_optim_list()[n], &worlds[w]);
    }
}
END_TEST

/* ---- coordinates without gradient ---- */

static bool some_differ(const float *a, const float *b, uint64_t n)
{
    return memcmp(a, b, n * sizeof(*a)) != 0;
}

/* 768 of 1024 never have a gradient: after 150 steps, most of them under signs, they are where they were and have no
 * momentum; the others have moved. */
START_TEST(coordinates_without_gradient_do_not_move)
{
    for (size_t n = 0; lnt_optim_list()[n] != NULL; n++) {
        const char *algorithm = lnt_optim_list()[n];
        char options[256];
        float x[LENGTH], m[LENGTH], start[LENGTH];
        uint64_t moved = 0;
        lnt_group_t group;
        trial_t trial;

        lnt_group_defaults(&group);
        group.lr = 0.01;
        trial = make_trial(algorithm, options, sizeof(options), &group);
        trial.x = x;
        trial.m = m;
        trial.n_steps = STEPS;
        trial.alive = ALIVE;
        for (uint64_t i = 0; i < LENGTH; i++)
            start[i] = (float)normal_at(41, i);
        ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, body, &trial);
        ck_assert_msg(!some_differ(x + ALIVE, start + ALIVE, LENGTH - ALIVE), "%s moves them", algorithm);
        for (uint64_t i = ALIVE; i < LENGTH; i++)
            ck_assert_msg(m[i] == 0, "%s: momentum of element %d", algorithm, (int)i);
        for (uint64_t i = 0; i < ALIVE; i++)
            moved += x[i] != start[i]; /* one may have come back to where it was */
        ck_assert_msg(moved > ALIVE - 10, "%s moves %d of %d that have one", algorithm, (int)moved, ALIVE);
    }
}
END_TEST

/* ---- pads ---- */

/* A constant is its own scale, exactly, however long the last block, chunk and byte are. */
static void pads_body(rank_t *rank)
{
    const uint32_t blocks[] = {64, 1024};

    for (int k = 0; k < 2; k++) {
        lnt_codec_t *codec;
        const lnt_codec_params_t params = {.struct_size = sizeof(params), .name = "sign1", .block = blocks[k]};
        ranks_ok(lnt_codec_create(&params, &codec));
        for (uint64_t n = 1; n < 140; n += 1 + n / 20) {
            const lnt_coll_params_t coll = {.struct_size = sizeof(coll), .codec = codec};
            float values[140];
            for (uint64_t i = 0; i < n; i++)
                values[i] = 0.375f;
            ranks_ok(lnt_allreduce(rank->comm, values, values, n, LNT_F32, &coll));
            for (uint64_t i = 0; i < n; i++)
                ck_assert(values[i] == 0.375f);
        }
        lnt_codec_destroy(codec);
    }
}

START_TEST(pads_enter_no_scale)
{
    ranks_run(&(world_t){.n_ranks = 4, .nodes = {0, 1, 2, 3}}, pads_body, NULL);
    ranks_run(&(world_t){.n_ranks = 4, .nodes = {0, 1, 0, 1}}, pads_body, NULL);
}
END_TEST

/* ---- one rank ---- */

/* Two ranks of one node with the same gradients form exactly the mean that one rank has: so both must do the same, in
 * every phase. */
START_TEST(one_rank_does_what_two_alike_do)
{
    for (size_t n = 0; lnt_optim_list()[n] != NULL; n++) {
        char options[256];
        lnt_group_t group;
        trial_t trial;
        uint64_t alone;

        lnt_group_defaults(&group);
        group.weight_decay = 0.01;
        trial = make_trial(lnt_optim_list()[n], options, sizeof(options), &group);
        trial.alike = true;
        ranks_run(&(world_t){.n_ranks = 1, .quiet = true}, body, &trial);
        alone = trial.hash;
        ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 0}, .quiet = true}, body, &trial);
        ck_assert_msg(trial.hash == alone, "%s", lnt_optim_list()[n]);
    }
}
END_TEST

/* ---- decay ---- */

/* Gradients here do not depend on the parameters, so neither does the momentum, with any decoupled decay. adam's decay
 * is part of the gradient by its definition. */
START_TEST(decoupled_decay_stays_out_of_the_momentum)
{
    for (size_t n = 0; lnt_optim_list()[n] != NULL; n++) {
        char options[256];
        float m[2][LENGTH], x[2][LENGTH];
        lnt_group_t group;
        trial_t trial;

        lnt_group_defaults(&group);
        trial = make_trial(lnt_optim_list()[n], options, sizeof(options), &group);
        for (int k = 0; k < 2; k++) {
            group.weight_decay = k * 0.1;
            trial.m = m[k];
            trial.x = x[k];
            ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, body, &trial);
        }
        ck_assert_msg(some_differ(x[0], x[1], LENGTH), "%s has no decay", lnt_optim_list()[n]);
        ck_assert_msg(some_differ(m[0], m[1], LENGTH) == (strcmp(lnt_optim_list()[n], "adam") == 0), "%s",
                      lnt_optim_list()[n]);
    }
}
END_TEST

/* ---- counters ---- */

typedef struct counted {
    model_t model;
    lnt_phase_t phase[24];
    double scale[24];
    uint64_t step[24];
} counted_t;

static void count_body(rank_t *rank)
{
    counted_t *counted = rank->arg;
    float grad[640];

    rank_open(rank, &counted->model);
    for (uint32_t step = 0; step < 24; step++) {
        for (uint64_t i = 0; i < 640; i++)
            grad[i] = (float)normal_at(step * 2u + rank->rank, i);
        if (step % 5 == 3 && rank->rank == 1) grad[17] = NAN;
        ck_assert_int_ge(lnt_optim_step(rank->optim, rank_grads(rank, grad)), 0);
        if (rank->rank != 0) continue;
        counted->phase[step] = rank_info(rank).phase;
        counted->scale[step] = lnt_optim_loss_scale(rank->optim);
        counted->step[step] = rank_info(rank).step;
    }
    ranks_barrier();
    rank_close(rank);
}

/* 640 elements in one tensor and in ten: phases, steps and the loss scale take the same course. */
START_TEST(counters_count_steps_and_not_tensors)
{
    for (size_t n = 0; lnt_optim_list()[n] != NULL; n++) {
        char options[256];
        counted_t one = {.model = {.n_tensors = 1, .lengths = {640}, .options = options}}, ten = one;

        small_options(lnt_optim_list()[n], options, sizeof(options));
        (void)snprintf(options + strlen(options), sizeof(options) - strlen(options), "%s",
                       options[0] != '\0' ? ",loss_scale=0,loss_scale_window=3,hysteresis=1"
                                          : "loss_scale=0,loss_scale_window=3,hysteresis=1");
        one.model.algorithm = ten.model.algorithm = lnt_optim_list()[n];
        ten.model.n_tensors = 10;
        for (int t = 0; t < 10; t++)
            ten.model.lengths[t] = 64;
        ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, count_body, &one);
        ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, count_body, &ten);
        ck_assert_mem_eq(one.phase, ten.phase, sizeof(one.phase));
        ck_assert_mem_eq(one.step, ten.step, sizeof(one.step));
        ck_assert_mem_eq(one.scale, ten.scale, sizeof(one.scale));
        ck_assert_uint_eq(one.step[23], 19); /* 5 of 24 were skipped */
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("traps");
    TCase *tcase = tcase_create("traps");

    tcase_add_test(tcase, means_are_over_all_ranks);
    tcase_add_test(tcase, coordinates_without_gradient_do_not_move);
    tcase_add_test(tcase, pads_enter_no_scale);
    tcase_add_test(tcase, one_rank_does_what_two_alike_do);
    tcase_add_test(tcase, decoupled_decay_stays_out_of_the_momentum);
    tcase_add_test(tcase, counters_count_steps_and_not_tensors);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
