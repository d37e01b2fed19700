/* What must not matter: transports, ranks as threads or processes, progress threads and their helpers, bucket and
 * segment bytes. For every world of 1 to 8 ranks and several maps of nodes the same 1-bit Adam run (warm-up in int8,
 * freeze, signs) must leave the same bits in parameters, moments and error feedback, step by step.
 *
 * Who owns a piece of the error feedback follows from the buckets, so it is compared as a sum of hashes over all ranks.
 */
#include <linnet/linnet.h>
#include <linnet/stage.h>

#include "../fork_ranks.h"
#include "../testing.h"
#include "../thread_ranks.h"
#include "../transport_probe.h"

enum { N_TENSORS = 9, STEPS = 6, DEADLINE_MS = 60000, N_MAPS = 5, WORLD_MAX = 8 };
enum { N_MAPS_HERE = TEST_SANITIZED ? 2 : N_MAPS }; /* drawn: sanitizers take their time */

static const uint64_t lengths[N_TENSORS] = {130, 3, 0, 700, 64, 1, 1025, 257, 128};
static const char options[] = "freeze_step=3,block=128,warmup_codec=int8,warmup_block=64";

typedef struct variant {
    const char *transport;
    bool processes;
    lnt_switch_t thread;
    uint32_t threads;
    uint64_t bucket_bytes, segment_bytes;
} variant_t;

static const variant_t variants[] = {
    {"loop", false, LNT_ON, 1, 1 << 20, 1 << 20}, /* what the others are compared with */
    {"loop", false, LNT_OFF, 1, 512, 1},          {"loop", false, LNT_ON, 3, 1300, 700},
    {"loop", false, LNT_OFF, 2, 3000, 300},       {"shm", true, LNT_ON, 2, 4096, 256},
    {"shm", true, LNT_OFF, 5, 1 << 20, 1100},     {"ucx", true, LNT_ON, 3, 2000, 600},
};
enum { N_VARIANTS = sizeof(variants) / sizeof(variants[0]) };

/* Common memory of all ranks. */
typedef struct trial {
    variant_t variant;
    uint32_t n_ranks, nodes[WORLD_MAX];
    uint64_t seed;
    uint64_t shared[WORLD_MAX][STEPS]; /* result: parameters and moments */
    uint64_t errors[WORLD_MAX][STEPS]; /* result: errors this rank owns */
} trial_t;

static float number_at(uint64_t seed, uint64_t i)
{
    return (float)((double)(test_mix_pair(seed, i) >> 11) * 0x1p-53 - 0.5);
}

/* ---- one rank --------------------------------------------------------------------------------------------------- */

typedef struct side {
    rank_self_t *self;
    trial_t *trial;
    lnt_context_t *context;
    lnt_comm_t *comm;
    lnt_plan_t *plan;
    lnt_optim_t *optim;
    float *x, *grad;
    const void *grads[N_TENSORS];
} side_t;

static int open_world(side_t *side)
{
    const variant_t *variant = &side->trial->variant;
    lnt_context_params_t context = {
        .struct_size = sizeof(context), .progress_thread = variant->thread, .threads = variant->threads};
    lnt_comm_params_t comm = {.struct_size = sizeof(comm),
                              .bootstrap = &side->self->bootstrap,
                              .timeout_ms = DEADLINE_MS,
                              .transports = variant->transport};
    char node[16];

    snprintf(node, sizeof(node), "node%u", side->trial->nodes[side->self->rank]);
    comm.node = node;
    RANK_OK(lnt_context_create(&context, &side->context));
    RANK_OK(lnt_comm_create(side->context, &comm, &side->comm));
    return 0;
}

/* The last tensor is never compressed. */
static int open_plan(side_t *side)
{
    const variant_t *variant = &side->trial->variant;
    lnt_plan_params_t params = {
        .struct_size = sizeof(params), .bucket_bytes = variant->bucket_bytes, .segment_bytes = variant->segment_bytes};
    lnt_group_t groups[2];
    lnt_optim_params_t optim = {
        .struct_size = sizeof(optim), .algorithm = "onebit_adam", .options = options, .groups = groups, .n_groups = 2};
    float *at = side->x;
    uint32_t number;
    char name[16];

    RANK_OK(lnt_plan_create(side->comm, &params, &side->plan));
    for (uint32_t t = 0; t < N_TENSORS; at += lengths[t++]) {
        lnt_tensor_params_t tensor = {
            .struct_size = sizeof(tensor), .name = name, .count = lengths[t], .param = at, .group = t + 1 == N_TENSORS};

        snprintf(name, sizeof(name), "t%u", t);
        RANK_OK(lnt_plan_add_tensor(side->plan, &tensor, &number));
    }
    lnt_group_defaults(&groups[0]);
    lnt_group_defaults(&groups[1]);
    groups[1].non_freeze = true;
    RANK_OK(lnt_optim_create(side->plan, &optim, &side->optim));
    RANK_OK(lnt_plan_commit(side->plan));
    return 0;
}

/* Some elements never have a gradient: they are dead after the freeze. */
static void draw_gradient(side_t *side, uint32_t step)
{
    const uint64_t seed = test_mix_pair(test_mix_pair(side->trial->seed, step), side->self->rank);
    uint64_t at = 0;

    for (uint32_t t = 0; t < N_TENSORS; at += lengths[t++]) {
        side->grads[t] = side->grad + at;
        for (uint64_t i = 0; i < lengths[t]; i++)
            side->grad[at + i] = (t == 3 && i >= 100 && i < 120) ? 0 : number_at(seed, at + i);
    }
}

static uint64_t sum_errors(const side_t *side)
{
    lnt_error_extent_t extent;
    uint64_t sum = 0;

    for (size_t e = 0; lnt_plan_error_extent(side->plan, e, &extent) == LNT_OK; e++) {
        uint64_t place = test_mix_pair(test_mix_pair(extent.program, extent.server),
                                       test_mix_pair(extent.codec_worker, extent.tensor));

        for (uint64_t i = 0; i < extent.count; i++) {
            uint32_t bits;

            memcpy(&bits, &extent.data[i], sizeof(bits));
            sum += test_mix_pair(test_mix_pair(place, extent.offset + i), bits);
        }
    }
    return sum;
}

static int body(rank_self_t *self)
{
    side_t side = {.self = self, .trial = self->arg};
    lnt_optim_info_t info = {.struct_size = sizeof(info)};
    const uint32_t rank = self->rank;
    uint64_t n = 0;

    for (uint32_t t = 0; t < N_TENSORS; t++)
        n += lengths[t];
    side.x = calloc(n, sizeof(*side.x));
    side.grad = calloc(n, sizeof(*side.grad));
    for (uint64_t i = 0; i < n; i++)
        side.x[i] = number_at(side.trial->seed, i);
    RANK_PASS(open_world(&side));
    RANK_PASS(open_plan(&side));
    for (uint32_t step = 0; step < STEPS; step++) {
        draw_gradient(&side, step);
        RANK_OK(lnt_optim_step(side.optim, side.grads));
        side.trial->shared[rank][step] = lnt_optim_hash(side.optim);
        side.trial->errors[rank][step] = sum_errors(&side);
    }
    RANK_OK(lnt_optim_get_info(side.optim, &info));
    RANK_CHECK(info.phase == LNT_PHASE_COMPRESSED && info.dead_share > 0 && info.lane_elems >= lengths[N_TENSORS - 1]);
    RANK_OK(lnt_optim_destroy(side.optim));
    RANK_OK(lnt_plan_destroy(side.plan));
    RANK_OK(lnt_barrier(side.comm));
    RANK_OK(lnt_comm_destroy(side.comm));
    RANK_OK(lnt_context_destroy(side.context));
    free(side.x);
    free(side.grad);
    return 0;
}

/* ---- worlds ----------------------------------------------------------------------------------------------------- */

/* Node of a rank. All maps of one rank are the same one, and some of two. */
static uint32_t node_of(uint32_t map, uint32_t n_ranks, uint32_t rank)
{
    switch (map) {
    case 0:
        return 0; /* one node */
    case 1:
        return rank; /* all separate */
    case 2:
        return rank >= n_ranks / 2; /* halves */
    case 3:
        return rank % 2; /* interleaved */
    default:
        return (rank == 0) ? 0 : 1 + (rank + 1 == n_ranks); /* uneven: 1, n - 2, 1 */
    }
}

static void run(trial_t *trial, const variant_t *variant)
{
    trial->variant = *variant;
    if (variant->processes) {
        ck_assert_uint_eq(fork_ranks(trial->n_ranks, body, trial, DEADLINE_MS, NULL), 0);
    } else {
        ck_assert_uint_eq(thread_ranks(trial->n_ranks, body, trial, DEADLINE_MS), 0);
    }
}

static void sum_over_ranks(const trial_t *trial, uint64_t *sums)
{
    for (uint32_t step = 0; step < STEPS; step++) {
        sums[step] = 0;
        for (uint32_t r = 0; r < trial->n_ranks; r++) {
            ck_assert_msg(trial->shared[r][step] == trial->shared[0][step], "%s, %u ranks: rank %u differs in step %u",
                          trial->variant.transport, trial->n_ranks, r, step);
            sums[step] += trial->errors[r][step];
        }
    }
}

static void compare(trial_t *trial, uint32_t map, bool with_ucx)
{
    uint64_t shared[STEPS], errors[STEPS], sums[STEPS];
    const uint32_t n_variants = with_ucx ? N_VARIANTS : N_VARIANTS - 1; /* UCX is the last */

    run(trial, &variants[0]);
    memcpy(shared, trial->shared[0], sizeof(shared));
    sum_over_ranks(trial, errors);
    for (uint32_t v = 1; v < n_variants; v++) {
        if (strcmp(variants[v].transport, "shm") == 0 && (v + map + trial->n_ranks) % 2 == 0) continue; /* in turns */
        run(trial, &variants[v]);
        sum_over_ranks(trial, sums);
        for (uint32_t step = 0; step < STEPS; step++) {
            ck_assert_msg(trial->shared[0][step] == shared[step], "%u ranks, map %u, variant %u (%s): step %u",
                          trial->n_ranks, map, v, variants[v].transport, step);
            ck_assert_msg(sums[step] == errors[step], "%u ranks, map %u, variant %u (%s): errors after step %u",
                          trial->n_ranks, map, v, variants[v].transport, step);
        }
    }
}

/* One map of every size also over UCX, another one per size: its start takes most of the time. */
START_TEST(the_same_run_gives_the_same_bits)
{
    const uint32_t n_ranks = (uint32_t)_i;
    const uint32_t n_maps = (n_ranks == 1) ? 1 : (n_ranks == 2) ? 2 : N_MAPS_HERE;
    const uint32_t first_map = (n_ranks > 2) ? (uint32_t)test_random_below(N_MAPS) : 0;
    const bool has_ucx = transport_is_usable("ucx", "the same run over ucx");
    trial_t *trial = mmap(NULL, sizeof(*trial), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    ck_assert(trial != MAP_FAILED);
    trial->n_ranks = n_ranks;
    for (uint32_t map = 0; map < n_maps; map++) {
        for (uint32_t r = 0; r < n_ranks; r++)
            trial->nodes[r] = node_of((first_map + map) % N_MAPS, n_ranks, r);
        trial->seed = test_random();
        compare(trial, map, has_ucx && map == (n_ranks + 1) % n_maps);
    }
    munmap(trial, sizeof(*trial));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("invariance");
    TCase *tcase = tcase_create("invariance");

    setenv("LINNET_THREAD_MIN_BYTES", "4", 1); /* so that helpers take these small tensors */
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, the_same_run_gives_the_same_bits, 1, WORLD_MAX + 1);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
