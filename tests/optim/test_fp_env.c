/* Callers whose floating-point environment is not the default: they flush subnormals and round up, or trap. They, and
 * the threads that inherit it, get the bytes of a usual caller: codecs one by one, numbers in options, coded
 * collectives, steps of optimizers, on data of which much is subnormal. Their control registers, flags included, come
 * back as they were.
 *
 * The test's own arithmetic is done in the usual environment: IN_ENV changes it around one call.
 */
#include <fenv.h>

#include "../../kernels/impl.h"
#include "../../src/base/config.h"
#include "../../src/base/hash.h"
#include "ranks.h"

#ifdef __SSE__
#include <immintrin.h>
#endif

enum { N_ELEMS = 3001, N_RANKS = 4, N_STEPS = 6, N_TENSORS = 4 };
enum { ROUND_UP = 0x4000, FLUSH = 0x8040, TRAPS = 0x0900 /* denormal operands, underflow */, USUAL = 0x1f80 };

typedef struct env {
    const char *name;
    int rounding;
    unsigned mxcsr;
} env_t;

static const env_t usual = {"usual", FE_TONEAREST, USUAL};
static const env_t strange[] = {{"flushes and rounds up", FE_UPWARD, USUAL | ROUND_UP | FLUSH},
                                {"flushes operands only", FE_TONEAREST, USUAL | 0x0040},
                                {"rounds up", FE_UPWARD, USUAL | ROUND_UP},
                                {"traps", FE_TONEAREST, USUAL & ~(unsigned)TRAPS}};
enum { N_STRANGE = sizeof(strange) / sizeof(strange[0]) };

static void env_set(const env_t *env)
{
    (void)fesetround(env->rounding);
#ifdef __SSE__
    _mm_setcsr(env->mxcsr);
#endif
}

/* After a call: the registers are the caller's. Then back to the usual. */
static lnt_status_t env_check(const env_t *env, lnt_status_t status)
{
    bool same = fegetround() == env->rounding;
#ifdef __SSE__
    same = same && _mm_getcsr() == env->mxcsr;
#endif
    env_set(&usual);
    ck_assert_msg(same, "%s: the caller's registers have changed", env->name);
    return status;
}

#define IN_ENV(_env, _call) (env_set(_env), env_check(_env, (_call)))

/* Runs of 256: subnormal f32, small normal ones whose squares or quotients are not, subnormal f16, ordinary. */
static float value_at(uint64_t seed, uint64_t i)
{
    static const double scales[] = {0x1p-130, 0x1p-116, 0x1p-70, 0x1p-17, 1};

    return (float)(normal_at(seed, i) * scales[i / 256 % (sizeof(scales) / sizeof(scales[0]))]);
}

/* As elements of a type; to has room for 4 bytes each. */
static void fill(lnt_dtype_t dtype, uint64_t seed, uint64_t n, void *to)
{
    for (uint64_t i = 0; i < n; i++) {
        float value = value_at(seed, i);
        uint16_t half = dtype == LNT_F32 ? 0 : half_of(dtype, value);

        if (dtype == LNT_F32) {
            memcpy((uint8_t *)to + 4 * i, &value, sizeof(value));
        } else {
            memcpy((uint8_t *)to + 2 * i, &half, sizeof(half));
        }
    }
}

/* ---- codecs ---- */

typedef struct coded {
    uint8_t wire[8 * N_ELEMS];
    float error[N_ELEMS], decoded[N_ELEMS], sum[N_ELEMS];
} coded_t;

static void code(const env_t *env, const lnt_codec_t *codec, lnt_dtype_t dtype, uint64_t seed, coded_t *out)
{
    const uint64_t bytes = lnt_codec_encoded_size(codec, N_ELEMS);
    float input[N_ELEMS];

    memset(out, 0, sizeof(*out));
    ck_assert_uint_le(bytes, sizeof(out->wire));
    fill(dtype, seed, N_ELEMS, input);
    fill(LNT_F32, seed + 1, N_ELEMS, out->error);
    fill(LNT_F32, seed + 2, N_ELEMS, out->sum);
    ranks_ok(
        IN_ENV(env, lnt_codec_encode_seeded(codec, input, dtype, N_ELEMS, seed, 7, out->error, out->error, out->wire)));
    ranks_ok(IN_ENV(env, lnt_codec_decode(codec, out->wire, bytes, N_ELEMS, out->decoded)));
    ranks_ok(IN_ENV(env, lnt_codec_decode_add(codec, out->wire, bytes, N_ELEMS, out->sum)));
    ranks_ok(IN_ENV(env, lnt_codec_encode(codec, out->sum, LNT_F32, N_ELEMS, NULL, NULL, out->wire)));
}

static void check_codec(const char *name, lnt_dtype_t dtype, const char *kernels)
{
    static coded_t expected, got;
    const lnt_codec_params_t params = {.struct_size = sizeof(params), .name = name, .block = 192};
    const uint64_t seed = test_random();
    lnt_codec_t *codec;

    ranks_ok(lnt_codec_create(&params, &codec));
    code(&usual, codec, dtype, seed, &expected);
    for (uint32_t e = 0; e < N_STRANGE; e++) {
        code(&strange[e], codec, dtype, seed, &got);
        ck_assert_msg(memcmp(&got, &expected, sizeof(got)) == 0, "%s of %s by %s: other bytes for a caller that %s",
                      name, lnt_dtype_name(dtype), kernels, strange[e].name);
    }
    lnt_codec_destroy(codec);
}

START_TEST(codecs_give_the_same_bytes)
{
    size_t n_impls;
    const lnt_kernel_impl_t *impls = lnt_kernel_impls(&n_impls);

    for (size_t k = 0; k < n_impls; k++) {
        if (!impls[k].usable()) continue;
        lnt_kernels_select(&impls[k]);
        for (const char *const *name = lnt_codec_list(); *name != NULL; name++) {
            check_codec(*name, LNT_F32, impls[k].name);
            check_codec(*name, LNT_BF16, impls[k].name);
            check_codec(*name, LNT_F16, impls[k].name);
        }
    }
    lnt_kernels_select(NULL);
}
END_TEST

/* Options are rounded as they are read, by libc, which looks at another register than the vector unit. */
START_TEST(numbers_are_read_the_same)
{
    static const lnt_cfg_row_t rows[] = {{.name = "x", .default_text = "0", .type = LNT_CFG_F64}, {.name = NULL}};
    const double expected[] = {0.1, 0.3, 0.7, 1e-5};
    static const char *const texts[] = {"x=0.1", "x=0.3", "x=0.7", "x=1e-5"};

    for (uint32_t e = 0; e < N_STRANGE; e++) {
        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
            double got = 0;
            ranks_ok(IN_ENV(&strange[e], lnt_config_from_text(rows, "test", texts[i], &got)));
            ck_assert_msg(memcmp(&got, &expected[i], sizeof(got)) == 0, "%s: %a", texts[i], got);
        }
    }
}
END_TEST

/* ---- ranks ---- */

enum { N_CODECS = 5 };

typedef struct trial {
    const env_t *env;
    uint64_t seed;
    model_t model;     /* of steps */
    uint64_t *results; /* [N_RANKS]: hashes */
} trial_t;

/* Both forms of the call; the residual goes from one to the other. */
static uint64_t reduce(rank_t *rank, const char *name, lnt_dtype_t dtype)
{
    const trial_t *trial = rank->arg;
    const lnt_codec_params_t codec_params = {.struct_size = sizeof(codec_params), .name = name, .block = 192};
    lnt_coll_params_t params = {.struct_size = sizeof(params), .segment_bytes = 2000};
    float input[N_ELEMS], output[2 * N_ELEMS] = {0};
    lnt_codec_t *codec;
    lnt_request_t *request;
    lnt_status_t status;

    fill(dtype, test_mix_pair(trial->seed, rank->rank), N_ELEMS, input);
    ranks_ok(lnt_codec_create(&codec_params, &codec));
    params.codec = codec;
    ranks_ok(lnt_residual_create(rank->comm, N_ELEMS, codec, &params.residual));
    ranks_ok(IN_ENV(trial->env, lnt_allreduce(rank->comm, input, output, N_ELEMS, dtype, &params)));
    ranks_ok(lnt_allreduce_init(rank->comm, N_ELEMS, dtype, &params, &request));
    ranks_ok(IN_ENV(trial->env, lnt_request_start(request, input, output + N_ELEMS)));
    while ((status = IN_ENV(trial->env, lnt_request_test(request))) == LNT_IN_PROGRESS)
        (void)sched_yield();
    ranks_ok(status);
    ranks_ok(lnt_request_destroy(request));
    lnt_residual_destroy(params.residual);
    lnt_codec_destroy(codec);
    return lnt_hash64(0, output, sizeof(output));
}

static void reduce_body(rank_t *rank)
{
    static const char *const names[N_CODECS] = {"sign1", "int8", "int4_hadamard", "f16", "bf16"};
    const trial_t *trial = rank->arg;
    uint64_t hash = 0;

    env_set(&usual);
    for (int c = 0; c < N_CODECS; c++) {
        hash = lnt_hash64_u64(hash, reduce(rank, names[c], LNT_F32));
        hash = lnt_hash64_u64(hash, reduce(rank, names[c], LNT_F16));
    }
    trial->results[rank->rank] = hash;
}

/* Contexts are made in the environment, so their threads and those of ranks inherit it. */
static void run_trial(const trial_t *trial, bool no_thread, rank_fn_t body)
{
    const world_t world = {.n_ranks = N_RANKS, .nodes = {0, 0, 1, 2}, .quiet = true, .no_thread = no_thread};

    env_set(trial->env);
    ranks_run(&world, body, (void *)(uintptr_t)trial);
    env_set(&usual);
}

static void check_trial(const model_t *model, rank_fn_t body, const char *what)
{
    uint64_t expected[N_RANKS] = {0}, got[N_RANKS];
    trial_t trial = {.env = &usual, .seed = test_random(), .results = expected};

    if (model != NULL) trial.model = *model;
    run_trial(&trial, false, body);
    trial.results = got;
    for (uint32_t e = 0; e < N_STRANGE; e++) {
        trial.env = &strange[e];
        for (int no_thread = 0; no_thread <= 1; no_thread++) {
            memset(got, 0, sizeof(got));
            run_trial(&trial, no_thread != 0, body);
            ck_assert_msg(memcmp(got, expected, sizeof(got)) == 0, "%s: other bytes for a caller that %s, %s", what,
                          strange[e].name, no_thread != 0 ? "without a progress thread" : "with one");
        }
    }
}

START_TEST(collectives_give_the_same_bytes)
{
    setenv("LINNET_THREADS", "3", 1);
    setenv("LINNET_THREAD_MIN_BYTES", "4", 1);
    check_trial(NULL, reduce_body, "all-reduce");
}
END_TEST

/* ---- steps ---- */

static void one_step(rank_t *rank, uint64_t number, uint8_t *grad)
{
    const trial_t *trial = rank->arg;
    const size_t size = trial->model.dtype == LNT_F32 ? 4 : 2;

    fill(trial->model.dtype, test_mix_pair(trial->seed + number, rank->rank), rank->n_elems, grad);
    for (uint32_t t = 0; t < N_TENSORS; grad += trial->model.lengths[t++] * size)
        rank->grads[t] = grad;
    for (uint32_t t = 0; t < N_TENSORS && trial->model.accumulate; t++) {
        ranks_ok(IN_ENV(trial->env, lnt_optim_accumulate(rank->optim, t, rank->grads[t])));
        ranks_ok(IN_ENV(trial->env, lnt_optim_accumulate(rank->optim, t, rank->grads[t])));
    }
    ranks_ok(IN_ENV(trial->env, lnt_optim_step(rank->optim, rank->grads)));
}

static void reload(rank_t *rank)
{
    const trial_t *trial = rank->arg;
    uint64_t bytes;
    uint8_t *blob;

    ranks_ok(lnt_optim_state_size(rank->optim, &bytes));
    blob = malloc(bytes);
    ranks_ok(IN_ENV(trial->env, lnt_optim_state_export(rank->optim, blob, bytes)));
    ranks_ok(IN_ENV(trial->env, lnt_optim_state_import(rank->optim, blob, bytes)));
    free(blob);
}

static void steps_body(rank_t *rank)
{
    const trial_t *trial = rank->arg;
    uint64_t hash;
    uint8_t *grad;

    env_set(&usual);
    ranks_ok(rank_plan(rank, &trial->model));
    ranks_ok(IN_ENV(trial->env, rank_optim(rank)));
    ranks_ok(IN_ENV(trial->env, lnt_plan_commit(rank->plan)));
    grad = calloc(rank->n_elems, sizeof(float));
    for (uint64_t k = 0; k < N_STEPS; k++) {
        one_step(rank, k, grad);
        if (k == N_STEPS - 2) reload(rank);
    }
    ranks_ok(IN_ENV(trial->env, lnt_plan_sync_params(rank->plan, 0)));
    hash = lnt_hash64_u64(lnt_optim_hash(rank->optim), rank_error_hash(rank));
    hash = lnt_hash64(hash, rank->x16, rank->n_elems * sizeof(*rank->x16));
    trial->results[rank->rank] = hash;
    expect_equal_ranks(rank);
    free(grad);
    rank_close(rank);
}

START_TEST(steps_give_the_same_bytes)
{
    static const model_t models[] = {
        {.algorithm = "adam", .options = "codec=f16,clip=0.1", .dtype = LNT_F16, .accumulate = true},
        {.algorithm = "adamw", .options = "codec=int8,block=64", .dtype = LNT_F32},
        {.algorithm = "onebit_adam", .options = "freeze_step=3,block=64,max_dead_share=1", .dtype = LNT_F32},
        {.algorithm = "onebit_adam",
         .options = "freeze_step=3,warmup_codec=int4,scale_rule=l1,max_dead_share=1",
         .dtype = LNT_BF16,
         .accumulate = true},
        {.algorithm = "onebit_adam", .options = "freeze_step=3,block=64,max_dead_share=1,clip=0.1", .dtype = LNT_F32},
        {.algorithm = "adamw", .options = "clip=0.1,clip_mode=bucket", .dtype = LNT_F16}};
    lnt_group_t group;
    model_t model = models[_i];

    lnt_group_defaults(&group);
    group.eps = 1e-30; /* small variances count */
    group.weight_decay = 0.01;
    model.n_tensors = N_TENSORS;
    memcpy(model.lengths, (const uint64_t[N_TENSORS]){1500, 7, 300, 900}, N_TENSORS * sizeof(uint64_t));
    model.groups = &group;
    model.n_groups = 1;
    model.bucket_bytes = 3000;
    model.segment_bytes = 1000;
    model.start_seed = test_random();
    check_trial(&model, steps_body, model.algorithm);
}
END_TEST

/* ---- a plan without an optimizer ---- */

static void keep(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live)
{
    (void)live;
    memcpy((float *)arg + span->offset, value, span->count * sizeof(*value));
}

static void plan_body(rank_t *rank)
{
    const trial_t *trial = rank->arg;
    const lnt_step_params_t step = {
        .struct_size = sizeof(step), .programs = 1, .clip = 0.3, .loss_scale = 3, .micro_steps = 7};
    float grad[N_ELEMS], mean[N_ELEMS] = {0};
    double dropped = 0;
    uint32_t program;
    lnt_program_params_t params = {.struct_size = sizeof(params), .name = "mean"};

    env_set(&usual);
    params.codec = (lnt_codec_params_t){.struct_size = sizeof(params.codec), .name = "int8", .block = 64};
    params.stage = (lnt_stage_t){.struct_size = sizeof(params.stage), .arg = mean, .consume = keep};
    ranks_ok(rank_plan(rank, &trial->model));
    ranks_ok(lnt_plan_add_program(rank->plan, &params, &program));
    ranks_ok(lnt_plan_commit(rank->plan));
    fill(LNT_F32, test_mix_pair(trial->seed, rank->rank), N_ELEMS, grad);
    for (int k = 0; k < 2; k++) {
        ranks_ok(IN_ENV(trial->env, lnt_plan_begin(rank->plan, &step)));
        ranks_ok(lnt_plan_tensor_ready(rank->plan, 0, grad, NULL));
        ranks_ok(IN_ENV(trial->env, lnt_plan_end(rank->plan)));
    }
    ranks_ok(IN_ENV(trial->env, lnt_plan_drop_errors(rank->plan, program, &dropped)));
    trial->results[rank->rank] = lnt_hash64(lnt_hash64(0, mean, sizeof(mean)), &dropped, sizeof(dropped));
    rank_close(rank);
}

START_TEST(plans_give_the_same_bytes)
{
    const model_t model = {.n_tensors = 1, .lengths = {N_ELEMS}, .bucket_bytes = 3000, .segment_bytes = 1000};

    check_trial(&model, plan_body, "plan");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fp_env");
    TCase *tcase = tcase_create("callers");

#ifndef __SSE__
    test_say_skipped("fp_env", "flushing of subnormals is set by hand on x86 only: rounding alone is tested");
#endif
    tcase_add_test(tcase, codecs_give_the_same_bytes);
    tcase_add_test(tcase, numbers_are_read_the_same);
    tcase_add_test(tcase, collectives_give_the_same_bytes);
    tcase_add_loop_test(tcase, steps_give_the_same_bytes, 0, 6);
    tcase_add_test(tcase, plans_give_the_same_bytes);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
