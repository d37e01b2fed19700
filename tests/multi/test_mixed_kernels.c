/* Ranks of one job with different LINNET_KERNELS: processes over shared memory, each with an implementation of its own,
 * must go through the bits of a job that runs plain C everywhere: parameters, model copies and moments after every
 * step, and the error feedback that each rank owns.
 */
#include <linnet/linnet.h>
#include <linnet/stage.h>

#include "../../kernels/impl.h"
#include "../fork_ranks.h"
#include "../testing.h"

enum { N_RANKS = 4, N_TENSORS = 6, STEPS = 7, DEADLINE_MS = 60000, IMPLS_MAX = 8 };

static const uint64_t lengths[N_TENSORS] = {4099, 3, 700, 65, 20000, 257};
static const uint32_t node_of[N_RANKS] = {0, 0, 1, 2};

typedef struct recipe {
    const char *algorithm, *options;
    lnt_dtype_t dtype;
    bool accumulate;
} recipe_t;

/* The freeze lies in the middle. Every codec, every dtype, norms, decay, accumulated gradients. */
static const recipe_t recipes[] = {
    {"adam", "codec=int8,clip=3", LNT_F32, false},
    {"adamw", "codec=int4,block=128,clip=3", LNT_BF16, true},
    {"adam", "codec=int4_hadamard,block=1024", LNT_F16, false},
    {"adamw", "codec=bf16", LNT_F16, true},
    {"adam", "codec=bf16_sr", LNT_F32, false},
    {"adamw", "codec=f16_sr", LNT_BF16, false},
    {"onebit_adam", "freeze_step=3,block=128,warmup_codec=int8,clip=3", LNT_F32, false},
    {"onebit_adam", "freeze_step=3,warmup_codec=int4,scale_rule=l1", LNT_BF16, true},
    {"onebit_adam", "freeze_step=3,block=576,compression=off", LNT_F32, false},
};
enum { N_RECIPES = sizeof(recipes) / sizeof(recipes[0]) };

/* Common memory of all ranks. */
typedef struct trial {
    recipe_t recipe;
    uint64_t seed;
    char kernels[N_RANKS][32];
    uint64_t state[N_RANKS][STEPS], copies[N_RANKS][STEPS], errors[N_RANKS][STEPS]; /* results */
} trial_t;

static double number_at(uint64_t seed, uint64_t i)
{
    return (double)(test_mix_pair(seed, i) >> 11) * 0x1p-53 - 0.5;
}

/* ---- one rank ---- */

typedef struct side {
    rank_self_t *self;
    trial_t *trial;
    lnt_context_t *context;
    lnt_comm_t *comm;
    lnt_plan_t *plan;
    lnt_optim_t *optim;
    uint64_t n;
    uint8_t *x, *grad;
    const void *grads[N_TENSORS];
} side_t;

static void put(const side_t *side, uint8_t *to, uint64_t i, double value)
{
    const float wide = (float)value;
    uint16_t half;

    if (side->trial->recipe.dtype == LNT_F32) {
        memcpy(to + i * sizeof(wide), &wide, sizeof(wide));
        return;
    }
    lnt_kernel_arrays(lnt_kernel_impl_by_name("ref")).narrow[side->trial->recipe.dtype](&wide, 1, &half);
    memcpy(to + i * sizeof(half), &half, sizeof(half));
}

static int open_world(side_t *side)
{
    lnt_context_params_t context = {.struct_size = sizeof(context)};
    lnt_comm_params_t comm = {.struct_size = sizeof(comm),
                              .bootstrap = &side->self->bootstrap,
                              .timeout_ms = DEADLINE_MS,
                              .transports = "shm"};
    char node[16];

    RANK_CHECK(setenv("LINNET_KERNELS", side->trial->kernels[side->self->rank], 1) == 0);
    snprintf(node, sizeof(node), "node%u", node_of[side->self->rank]);
    comm.node = node;
    RANK_OK(lnt_context_create(&context, &side->context));
    RANK_OK(lnt_comm_create(side->context, &comm, &side->comm));
    return 0;
}

static int open_plan(side_t *side)
{
    const recipe_t *recipe = &side->trial->recipe;
    const size_t size = recipe->dtype == LNT_F32 ? 4 : 2;
    lnt_plan_params_t params = {
        .struct_size = sizeof(params), .bucket_bytes = 30000, .segment_bytes = 5000, .accumulate = recipe->accumulate};
    lnt_group_t group;
    lnt_optim_params_t optim = {.struct_size = sizeof(optim),
                                .algorithm = recipe->algorithm,
                                .options = recipe->options,
                                .groups = &group,
                                .n_groups = 1};
    uint8_t *at = side->x;
    uint32_t number;
    char name[16];

    RANK_OK(lnt_plan_create(side->comm, &params, &side->plan));
    for (uint32_t t = 0; t < N_TENSORS; at += lengths[t++] * size) {
        lnt_tensor_params_t tensor = {.struct_size = sizeof(tensor),
                                      .name = name,
                                      .count = lengths[t],
                                      .grad_dtype = recipe->dtype,
                                      .param_dtype = recipe->dtype,
                                      .param = at};

        snprintf(name, sizeof(name), "t%u", t);
        RANK_OK(lnt_plan_add_tensor(side->plan, &tensor, &number));
    }
    lnt_group_defaults(&group);
    group.weight_decay = 0.01;
    RANK_OK(lnt_optim_create(side->plan, &optim, &side->optim));
    RANK_OK(lnt_plan_commit(side->plan));
    RANK_CHECK(strcmp(lnt_kernels_selected()->name, side->trial->kernels[side->self->rank]) == 0);
    return 0;
}

/* Some elements never have a gradient: they are dead after the freeze. */
static void draw_gradient(side_t *side, uint64_t number)
{
    const uint64_t seed = test_mix_pair(test_mix_pair(side->trial->seed, number), side->self->rank);
    const size_t size = side->trial->recipe.dtype == LNT_F32 ? 4 : 2;
    uint64_t at = 0;

    for (uint32_t t = 0; t < N_TENSORS; at += lengths[t++]) {
        side->grads[t] = side->grad + at * size;
        for (uint64_t i = 0; i < lengths[t]; i++)
            put(side, side->grad, at + i, t == 2 && i >= 100 && i < 120 ? 0 : number_at(seed, at + i));
    }
}

static uint64_t hash_bytes(const uint8_t *bytes, uint64_t n)
{
    uint64_t hash = n;

    for (uint64_t i = 0; i < n; i++)
        hash = test_mix_pair(hash, bytes[i]);
    return hash;
}

static uint64_t hash_errors(const side_t *side)
{
    lnt_error_extent_t extent;
    uint64_t hash = 0;

    for (size_t e = 0; lnt_plan_error_extent(side->plan, e, &extent) == LNT_OK; e++)
        hash = test_mix_pair(hash, hash_bytes((const uint8_t *)extent.data, extent.count * sizeof(float)));
    return hash;
}

static int train(side_t *side)
{
    const size_t size = side->trial->recipe.dtype == LNT_F32 ? 4 : 2;
    const uint32_t rank = side->self->rank;

    for (uint32_t step = 0; step < STEPS; step++) {
        for (uint32_t micro = 0; side->trial->recipe.accumulate && micro < 2; micro++) {
            draw_gradient(side, 100 + step * 2u + micro);
            for (uint32_t t = 0; t < N_TENSORS; t++)
                RANK_OK(lnt_optim_accumulate(side->optim, t, side->grads[t]));
        }
        draw_gradient(side, step);
        RANK_OK(lnt_optim_step(side->optim, side->grads));
        side->trial->state[rank][step] = lnt_optim_hash(side->optim);
        side->trial->copies[rank][step] = hash_bytes(side->x, side->n * size);
        side->trial->errors[rank][step] = hash_errors(side);
    }
    return 0;
}

static int body(rank_self_t *self)
{
    side_t side = {.self = self, .trial = self->arg};

    for (uint32_t t = 0; t < N_TENSORS; t++)
        side.n += lengths[t];
    side.x = calloc(side.n, sizeof(float));
    side.grad = calloc(side.n, sizeof(float));
    for (uint64_t i = 0; i < side.n; i++)
        put(&side, side.x, i, number_at(side.trial->seed, i));
    RANK_PASS(open_world(&side));
    RANK_PASS(open_plan(&side));
    RANK_PASS(train(&side));
    RANK_OK(lnt_optim_destroy(side.optim));
    RANK_OK(lnt_plan_destroy(side.plan));
    RANK_OK(lnt_barrier(side.comm));
    RANK_OK(lnt_comm_destroy(side.comm));
    RANK_OK(lnt_context_destroy(side.context));
    free(side.x);
    free(side.grad);
    return 0;
}

/* ---- jobs ---- */

static trial_t *new_trial(const recipe_t *recipe, uint64_t seed)
{
    trial_t *trial = mmap(NULL, sizeof(*trial), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    ck_assert_ptr_ne(trial, MAP_FAILED);
    trial->recipe = *recipe;
    trial->seed = seed;
    for (uint32_t r = 0; r < N_RANKS; r++)
        snprintf(trial->kernels[r], sizeof(trial->kernels[r]), "ref");
    return trial;
}

/* Rank r takes usable implementation (first + r) of them all. Returns how many there are. */
static uint32_t mix_kernels(trial_t *trial, uint32_t first)
{
    const lnt_kernel_impl_t *usable[IMPLS_MAX];
    uint32_t n = 0;
    size_t n_impls;
    const lnt_kernel_impl_t *impls = lnt_kernel_impls(&n_impls);

    for (size_t i = 0; i < n_impls; i++) {
        if (impls[i].usable()) usable[n++] = &impls[i];
    }
    for (uint32_t r = 0; r < N_RANKS; r++)
        snprintf(trial->kernels[r], sizeof(trial->kernels[r]), "%s", usable[(first + r) % n]->name);
    return n;
}

static void expect_equal(const trial_t *trial, const trial_t *plain)
{
    for (uint32_t r = 0; r < N_RANKS; r++) {
        for (uint32_t step = 0; step < STEPS; step++) {
            ck_assert_msg(trial->state[r][step] == plain->state[0][step],
                          "rank %u (%s), step %u: moments or parameters", r, trial->kernels[r], step);
            ck_assert_msg(trial->copies[r][step] == plain->copies[0][step], "rank %u (%s), step %u: model copy", r,
                          trial->kernels[r], step);
            ck_assert_msg(trial->errors[r][step] == plain->errors[r][step], "rank %u (%s), step %u: errors", r,
                          trial->kernels[r], step);
        }
    }
}

START_TEST(mixed_kernels_give_the_bits_of_plain_c)
{
    const uint64_t seed = test_random();
    trial_t *plain = new_trial(&recipes[_i], seed), *mixed = new_trial(&recipes[_i], seed);
    uint32_t first = 0, n;

    ck_assert_uint_eq(fork_ranks(N_RANKS, body, plain, DEADLINE_MS, NULL), 0);
    expect_equal(plain, plain);
    do {
        n = mix_kernels(mixed, first);
        ck_assert_uint_eq(fork_ranks(N_RANKS, body, mixed, DEADLINE_MS, NULL), 0);
        expect_equal(mixed, plain);
    } while (++first < n);
    munmap(mixed, sizeof(*mixed));
    munmap(plain, sizeof(*plain));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mixed_kernels");
    TCase *tcase = tcase_create("jobs");
    size_t n_impls;
    const lnt_kernel_impl_t *impls = lnt_kernel_impls(&n_impls);

    for (size_t i = 0; i < n_impls; i++) {
        if (!impls[i].usable()) test_say_skipped(impls[i].name, "this machine cannot run these kernels");
    }
    tcase_add_loop_test(tcase, mixed_kernels_give_the_bits_of_plain_c, 0, N_RECIPES);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
