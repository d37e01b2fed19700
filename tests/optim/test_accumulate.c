/* Gradients that were accumulated are like gradients that are passed: in every algorithm, in every phase, in steps that
 * exchange nothing and in those that drop what they are given. Nothing of them is left for a later step.
 */
#include "ranks.h"

enum { STEPS = 12 };

typedef struct trial {
    const char *algorithm, *options;
} trial_t;

static const trial_t trials[] = {
    {"adam", "codec=int8,clip=1"},
    {"lamb", ""},
    {"lans", ""},
    {"came", ""},
    {"onebit_adam", "freeze_step=4,clip=1"},
    {"onebit_lamb", "freeze_step=4"},
    {"zero_one_adam", "var_freeze_step=4,var_update_scaler=2,local_step_scaler=2,local_step_clipper=4"},
    {"onebit_adam", "compat=deepspeed,freeze_step=4"},
    {"onebit_lamb", "compat=deepspeed,freeze_step=4"},
    {"zero_one_adam",
     "compat=deepspeed,var_freeze_step=4,var_update_scaler=2,local_step_scaler=2,local_step_clipper=4"},
};

/* The second tensor gets no gradient in every third step. */
static void take_step(rank_t *rank, uint32_t step, bool accumulated)
{
    float grad[172];
    const void *none[3] = {NULL, NULL, NULL};

    for (uint64_t i = 0; i < rank->n_elems; i++)
        grad[i] = (float)(normal_at(17, i) + 0.5 * normal_at(100 + rank->rank + 10 * step, i));
    (void)rank_grads(rank, grad);
    if (step % 3 == 0) rank->grads[1] = NULL;
    for (uint32_t t = 0; t < 3 && accumulated; t++) {
        if (rank->grads[t] != NULL) ranks_ok(lnt_optim_accumulate(rank->optim, t, rank->grads[t]));
    }
    ranks_ok(lnt_optim_step(rank->optim, accumulated ? none : rank->grads));
}

static void trial_body(rank_t *rank)
{
    const trial_t *trial = rank->arg;
    const model_t model = {.n_tensors = 3,
                           .lengths = {65, 100, 7},
                           .algorithm = trial->algorithm,
                           .options = trial->options,
                           .accumulate = true};
    rank_t other = *rank;

    rank_open(rank, &model);
    rank_open(&other, &model);
    for (uint32_t step = 0; step < STEPS; step++) {
        take_step(rank, step, false);
        take_step(&other, step, true);
        ck_assert_msg(lnt_optim_hash(rank->optim) == lnt_optim_hash(other.optim), "%s %s, step %u", trial->algorithm,
                      trial->options, step);
        ck_assert_mem_eq(rank->x, other.x, rank->n_elems * sizeof(*rank->x));
    }
    rank_close(&other);
    rank_close(rank);
}

START_TEST(accumulated_gradients_are_like_passed_ones)
{
    trial_t trial = trials[_i];

    ranks_run(&(world_t){.n_ranks = 2, .nodes = {0, 1}}, trial_body, &trial);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("accumulate");
    TCase *tcase = tcase_create("accumulate");

    tcase_add_loop_test(tcase, accumulated_gradients_are_like_passed_ones, 0, sizeof(trials) / sizeof(trials[0]));
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
