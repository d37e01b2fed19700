/* The step is a transaction: one NaN, Inf or veto, in any bucket, in any phase, on any rank, and nothing has changed
 * anywhere; the next clean step is as if nothing had happened.
 */
#include <math.h>

#include "ranks.h"

enum { FREEZE = 3, STEPS = 7 };

typedef struct plan_of_attack {
    model_t model;
    uint64_t seed;
    bool disturb;
    uint64_t final_hash; /* of the undisturbed run */
    uint64_t final_errors[MAX_RANKS];
    uint32_t n_attacks;
    lnt_status_t statuses[MAX_RANKS];
} attack_t;

static void fill_grad(const attack_t *attack, const rank_t *rank, uint32_t step, float *grad)
{
    for (uint64_t i = 0; i < rank->n_elems; i++)
        grad[i] = (float)normal_at(test_mix_pair(attack->seed, step * 64u + rank->rank), i);
}

/* One poisoned step; every rank must see the same and keep every bit. */
static void attack_once(rank_t *rank, attack_t *attack, float *grad, uint32_t step, uint32_t victim, uint64_t index,
                        float bad)
{
    uint64_t hash = lnt_optim_hash(rank->optim), errors = rank_error_hash(rank);
    float kept;

    fill_grad(attack, rank, step, grad);
    kept = grad[index];
    if (rank->rank == victim) grad[index] = bad;
    attack->statuses[rank->rank] = lnt_optim_step(rank->optim, rank_grads(rank, grad));
    grad[index] = kept;
    ck_assert_int_eq(attack->statuses[rank->rank], LNT_SKIPPED_NONFINITE);
    ck_assert_uint_eq(lnt_optim_hash(rank->optim), hash);
    ck_assert_uint_eq(rank_error_hash(rank), errors);
}

static void veto_once(rank_t *rank, attack_t *attack, float *grad, uint32_t step, uint32_t victim, uint32_t before)
{
    uint64_t hash = lnt_optim_hash(rank->optim), errors = rank_error_hash(rank);
    const void *const *grads = rank_grads(rank, grad);

    fill_grad(attack, rank, step, grad);
    ranks_ok(lnt_optim_begin(rank->optim));
    for (uint32_t t = 0; t < rank->model->n_tensors; t++) {
        if (rank->rank == victim && t == before) ranks_ok(lnt_plan_veto(rank->plan));
        ranks_ok(lnt_optim_tensor_ready(rank->optim, t, grads[t], NULL));
    }
    ck_assert_int_eq(lnt_optim_end(rank->optim), LNT_SKIPPED_VETO);
    ck_assert_uint_eq(lnt_optim_hash(rank->optim), hash);
    ck_assert_uint_eq(rank_error_hash(rank), errors);
}

/* Every bucket and rank in this phase: an element of each bucket, a kind of badness drawn at random (the same on all
 * ranks). */
static void attack_phase(rank_t *rank, attack_t *attack, float *grad, uint32_t step)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    uint64_t bucket_elems = attack->model.bucket_bytes / sizeof(float);

    for (uint64_t begin = 0; begin < rank->n_elems; begin += bucket_elems) {
        for (uint32_t victim = 0; victim < rank->world->n_ranks; victim++) {
            uint64_t end = begin + bucket_elems < rank->n_elems ? begin + bucket_elems : rank->n_elems;
            uint64_t draw = test_mix_pair(attack->seed ^ begin, step * 100u + victim);
            attack_once(rank, attack, grad, step, victim, begin + draw % (end - begin), bad[draw / 7 % 3]);
            if (rank->rank == 0) attack->n_attacks++;
        }
    }
    for (uint32_t t = 0; t < rank->model->n_tensors; t++)
        veto_once(rank, attack, grad, step, t % rank->world->n_ranks, t);
}

static void body(rank_t *rank)
{
    attack_t *attack = rank->arg;
    float *grad;

    rank_open(rank, &attack->model);
    grad = calloc(rank->n_elems, sizeof(*grad));
    for (uint32_t step = 0; step < STEPS; step++) {
        if (attack->disturb && (step == 1 || step == FREEZE || step == FREEZE + 2))
            attack_phase(rank, attack, grad, step);
        fill_grad(attack, rank, step, grad);
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
        expect_equal_ranks(rank);
    }
    ck_assert_int_eq(rank_info(rank).phase, LNT_PHASE_COMPRESSED);
    if (!attack->disturb) {
        if (rank->rank == 0) attack->final_hash = lnt_optim_hash(rank->optim);
        attack->final_errors[rank->rank] = rank_error_hash(rank);
    } else {
        ck_assert_uint_eq(lnt_optim_hash(rank->optim), attack->final_hash);
        ck_assert_uint_eq(rank_error_hash(rank), attack->final_errors[rank->rank]);
        ck_assert_uint_gt(rank_info(rank).skipped, 0);
    }
    free(grad);
    rank_close(rank);
}

static void run_attack(const world_t *world, const char *warmup_codec)
{
    char options[128];
    attack_t attack = {.model = {.n_tensors = 5,
                                 .lengths = {130, 40, 256, 1, 700},
                                 .algorithm = "onebit_adam",
                                 .options = options,
                                 .bucket_bytes = 1200,
                                 .segment_bytes = 400,
                                 .max_skips = 100000},
                       .seed = test_random()};

    (void)snprintf(options, sizeof(options), "freeze_step=%d,block=128,warmup_block=64,warmup_codec=%s", FREEZE,
                   warmup_codec);
    ranks_run(world, body, &attack);
    attack.disturb = true;
    ranks_run(world, body, &attack);
    ck_assert_uint_gt(attack.n_attacks, 0);
}

START_TEST(flat_worlds_keep_every_bit)
{
    run_attack(&(world_t){.n_ranks = 1}, "f32");
    run_attack(&(world_t){.n_ranks = 2, .nodes = {0, 1}}, "int8");
    run_attack(&(world_t){.n_ranks = 3, .nodes = {0, 1, 2}}, "bf16");
    run_attack(&(world_t){.n_ranks = 2, .nodes = {0, 1}}, "int4_hadamard");
    run_attack(&(world_t){.n_ranks = 2, .nodes = {0, 1}}, "f16_sr");
    run_attack(&(world_t){.n_ranks = 2, .nodes = {0, 1}}, "f32,clip=1");
    run_attack(&(world_t){.n_ranks = 3, .nodes = {0, 1, 2}}, "int8,clip=1,clip_mode=bucket");
}
END_TEST

START_TEST(hierarchies_keep_every_bit)
{
    run_attack(&(world_t){.n_ranks = 4, .nodes = {0, 1, 0, 1}}, "int8");
    run_attack(&(world_t){.n_ranks = 5, .nodes = {0, 0, 0, 1, 1}}, "f32");
    run_attack(&(world_t){.n_ranks = 2, .nodes = {0, 0}}, "int8");
    run_attack(&(world_t){.n_ranks = 4, .nodes = {0, 1, 0, 1}}, "int8,clip=1");
}
END_TEST

/* A step at which the square of the mean overflows must not reach v. */
static void overflow_body(rank_t *rank)
{
    attack_t *attack = rank->arg;
    float *grad;

    rank_open(rank, &attack->model);
    grad = calloc(rank->n_elems, sizeof(*grad));
    fill_grad(attack, rank, 0, grad);
    ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
    attack_once(rank, attack, grad, 1, rank->world->n_ranks - 1, 17, 1e25f);
    free(grad);
    rank_close(rank);
}

START_TEST(a_finite_value_whose_square_overflows_is_skipped)
{
    attack_t attack = {.model = {.n_tensors = 1, .lengths = {130}, .algorithm = "adam", .options = "codec=int8"},
                       .seed = test_random()};

    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}}, overflow_body, &attack);
    attack.model.options = "codec=f32";
    ranks_run(&(world_t){.n_ranks = 3, .nodes = {0, 1, 1}}, overflow_body, &attack);
}
END_TEST

static void diverging_body(rank_t *rank)
{
    attack_t *attack = rank->arg;
    float *grad;

    rank_open(rank, &attack->model);
    grad = calloc(rank->n_elems, sizeof(*grad));
    fill_grad(attack, rank, 0, grad);
    grad[5] = rank->rank == 0 ? NAN : 0;
    for (uint32_t k = 1; k <= 6; k++) {
        lnt_status_t expected = k % 4 == 0 || k > 4 ? LNT_ERR_DIVERGED : LNT_SKIPPED_NONFINITE;
        ck_assert_int_eq(lnt_optim_step(rank->optim, rank_grads(rank, grad)), expected);
    }
    grad[5] = 0;
    ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
    grad[5] = NAN;
    ck_assert_int_eq(lnt_optim_step(rank->optim, rank_grads(rank, grad)), LNT_SKIPPED_NONFINITE);
    ck_assert_uint_eq(rank_info(rank).skipped, 7);
    free(grad);
    rank_close(rank);
}

START_TEST(skips_in_a_row_end_in_a_named_status)
{
    attack_t attack = {.model = {.n_tensors = 1, .lengths = {99}, .algorithm = "adamw", .max_skips = 4},
                       .seed = test_random()};

    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}, .quiet = true}, diverging_body, &attack);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("optim_skip");
    TCase *tcase = tcase_create("transactions");

    tcase_add_test(tcase, flat_worlds_keep_every_bit);
    tcase_add_test(tcase, hierarchies_keep_every_bit);
    tcase_add_test(tcase, a_finite_value_whose_square_overflows_is_skipped);
    tcase_add_test(tcase, skips_in_a_row_end_in_a_named_status);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
