/* Array kernels and update rules of the device against those of the host, byte for byte: single runs of all sizes and
 * batches, every alignment, every kind of data; momentum and sign1 in one pass against the two in turn. One program for
 * a GPU and for the layer that runs kernels on the host (tests/cuda_on_cpu).
 */
#include "../kernel/kernel_testing.h"

#include "../../kernels/cuda_kernels.h"
#include "../../optim/update.h"
#include "../../optim/update_cuda.h"
#include "device_arena.h"

enum { RUNS = 60, LARGEST = 3000 };
enum {
    G,
    M,
    V,
    X,
    VALUE,
    DENOMINATOR,
    OUT,
    ERROR,
    SHADOW,
    DEAD,
    LIVE,
    CODES,
    SCALES,
    SUMS,
    WORD,
    CLIP,
    CONSTS,
    ARRAYS
};

static const struct {
    size_t bytes, unit; /* of an element; bytes 0: one for all, `unit` long */
} arrays[ARRAYS] = {[G] = {4, 4},
                    [M] = {4, 4},
                    [V] = {4, 4},
                    [X] = {4, 4},
                    [VALUE] = {4, 4},
                    [OUT] = {4, 4},
                    [ERROR] = {4, 4},
                    [SHADOW] = {4, 4},
                    [DEAD] = {1, 1},
                    [DENOMINATOR] = {4, 4},
                    [LIVE] = {1, 1},
                    [CODES] = {1, 1},
                    [SCALES] = {1, 1},
                    [SUMS] = {8, 8},
                    [WORD] = {0, 4},
                    [CLIP] = {0, 4},
                    [CONSTS] = {0, sizeof(lnt_adam_consts_t)}};

static arena_t memory;
static struct {
    uint64_t n;
    bool first, second, third; /* drawn: masks, clips and errors that are there or not */
    size_t at[ARRAYS];
} runs[RUNS];
static uint32_t n_runs, block;
static data_kind_t kind;
static lnt_dtype_t dtype;
static lnt_codec_cfg_t cfg;
static float factor;
static bool add, squares;

static void setup(void)
{
    memory = arena_create((size_t)256 * 16000);
}

static void teardown(void)
{
    arena_destroy(&memory);
}

static void *given(uint32_t r, int array)
{
    return memory.given + runs[r].at[array];
}

static void *want(uint32_t r, int array)
{
    return memory.want + runs[r].at[array];
}

static void *device(uint32_t r, int array)
{
    return arena_device(&memory) + runs[r].at[array];
}

static void fill_run(uint32_t r)
{
    lnt_adam_consts_t k = {
        .b1 = 0.9f, .o1 = 0.1f, .b2 = 0.999f, .o2 = 0.001f, .i1 = 1.3f, .i2 = 2.5f, .lr = 1e-3f, .eps = 1e-8f};
    float clip = 0.37f;
    if (rng_below(2)) k.w = 1e-5f;
    if (rng_below(2)) k.l2 = 0.01f;
    for (int array = G; array <= SHADOW; array++)
        data_fill(array == OUT || rng_below(2) ? DATA_NORMAL : kind, given(r, array), runs[r].n);
    lnt_array_ops_ref.narrow[dtype](given(r, VALUE), runs[r].n, given(r, G));
    for (uint64_t i = 0; i < runs[r].n; i++) {
        ((float *)given(r, V))[i] = fabsf(((float *)given(r, V))[i]);
        ((float *)given(r, DENOMINATOR))[i] = 1e-3f + fabsf((float)rng_normal());
        ((uint8_t *)given(r, DEAD))[i] = rng_below(4) == 0;
        ((uint8_t *)given(r, LIVE))[i] = (uint8_t)(rng_next() | rng_next());
    }
    memset(given(r, WORD), 0, 4);
    memcpy(given(r, CLIP), &clip, sizeof(clip));
    memcpy(given(r, CONSTS), &k, sizeof(k));
}

static void draw(uint32_t count, uint64_t n)
{
    static const uint32_t blocks[] = {64, 128, 256, 1024, 1536};
    arena_reset(&memory);
    n_runs = count;
    block = blocks[rng_below(5)];
    kind = (data_kind_t)rng_below(DATA_COUNT);
    dtype = (lnt_dtype_t)rng_below(LNT_DTYPE_COUNT);
    factor = rng_below(2) ? 1.0f : 0.3f;
    add = rng_below(2);
    squares = rng_below(2);
    cfg = (lnt_codec_cfg_t){.block = block, .scale_rule = rng_below(2) ? LNT_SCALE_L1 : LNT_SCALE_L2};
    for (uint32_t r = 0; r < count; r++) {
        runs[r].n = count == 1 ? n : rng_below(rng_below(6) ? 300 : LARGEST);
        runs[r].first = rng_below(2), runs[r].second = rng_below(2), runs[r].third = rng_below(2);
        for (int i = 0, start = (int)rng_below(ARRAYS); i < ARRAYS; i++) {
            int array = (start + i) % ARRAYS;
            size_t bytes = arrays[array].bytes ? arrays[array].bytes * runs[r].n : arrays[array].unit;
            runs[r].at[array] = arena_place(&memory, bytes, arrays[array].bytes ? arrays[array].unit : 4);
        }
        fill_run(r);
    }
}

/* ---- launches ---- */

/* Room for `bytes` bytes of descriptors and the prefix of block counts, which is filled. */
static size_t place_tables(size_t bytes, uint64_t *n_blocks_p, size_t *first_block_at_p)
{
    size_t at = arena_place(&memory, n_runs * bytes, 16);
    *first_block_at_p = arena_place(&memory, (n_runs + 1) * sizeof(uint64_t), 16);
    uint64_t *first_block = (uint64_t *)(void *)(memory.given + *first_block_at_p);
    first_block[0] = 0;
    for (uint32_t r = 0; r < n_runs; r++)
        first_block[r + 1] = first_block[r] + (runs[r].n + block - 1) / block;
    *n_blocks_p = first_block[n_runs];
    return at;
}

/* `values`: which array stands for them. */
static lnt_cuda_batch_t send_arrays(int values, int out)
{
    lnt_cuda_batch_t batch = {.cut = {.n_runs = n_runs, .block = block}};
    size_t first_block_at, at = place_tables(sizeof(lnt_cuda_run_t), &batch.cut.n_blocks, &first_block_at);
    lnt_cuda_run_t *table = (lnt_cuda_run_t *)(void *)(memory.given + at);
    for (uint32_t r = 0; r < n_runs; r++)
        table[r] = (lnt_cuda_run_t){.n = runs[r].n,
                                    .values = device(r, values),
                                    .out = device(r, out),
                                    .live = runs[r].first ? device(r, LIVE) : NULL,
                                    .error_in = runs[r].second ? device(r, ERROR) : NULL,
                                    .error_out = runs[r].second ? device(r, runs[r].third ? ERROR : SHADOW) : NULL,
                                    .scales = device(r, SCALES),
                                    .codes = device(r, CODES),
                                    .sums = device(r, SUMS),
                                    .momentum = device(r, M),
                                    .consts = device(r, CONSTS),
                                    .poisoned = device(r, WORD)};
    batch.runs = (const lnt_cuda_run_t *)(const void *)(arena_device(&memory) + at);
    batch.cut.first_block = (const uint64_t *)(const void *)(arena_device(&memory) + first_block_at);
    arena_send(&memory);
    return n_runs == 1 && rng_below(2) ? lnt_cuda_batch_one(&table[0], block) : batch;
}

static lnt_cuda_update_batch_t send_update(void)
{
    lnt_cuda_update_batch_t batch = {.cut = {.n_runs = n_runs, .block = block}};
    size_t first_block_at, at = place_tables(sizeof(lnt_cuda_update_run_t), &batch.cut.n_blocks, &first_block_at);
    lnt_cuda_update_run_t *table = (lnt_cuda_update_run_t *)(void *)(memory.given + at);
    for (uint32_t r = 0; r < n_runs; r++)
        table[r] = (lnt_cuda_update_run_t){.n = runs[r].n,
                                           .k = device(r, CONSTS),
                                           .g = device(r, VALUE),
                                           .clip = runs[r].first ? device(r, CLIP) : NULL,
                                           .denominator = device(r, DENOMINATOR),
                                           .dead = runs[r].second ? device(r, DEAD) : NULL,
                                           .value = device(r, VALUE),
                                           .m = device(r, M),
                                           .v = device(r, V),
                                           .x = device(r, X)};
    batch.runs = (const lnt_cuda_update_run_t *)(const void *)(arena_device(&memory) + at);
    batch.cut.first_block = (const uint64_t *)(const void *)(arena_device(&memory) + first_block_at);
    arena_send(&memory);
    return n_runs == 1 && rng_below(2) ? lnt_cuda_update_batch_one(&table[0], block) : batch;
}

/* NaN bits are open. */
static void excuse_nan(uint32_t r, int array, lnt_dtype_t type)
{
    size_t size = lnt_dtype_size(type);
    for (uint64_t i = 0; i < runs[r].n; i++) {
        uint8_t *mine = (uint8_t *)want(r, array) + i * size, *theirs = memory.got + runs[r].at[array] + i * size;
        float x, y;
        lnt_array_ops_ref.widen[type](mine, 1, &x);
        lnt_array_ops_ref.widen[type](theirs, 1, &y);
        if (isnan(x) && isnan(y)) memcpy(mine, theirs, size);
    }
}

static void receive(const char *what, lnt_status_t status)
{
    ck_assert_msg(status == LNT_OK, "%s: status %d", what, (int)status);
    device_ok(cudaDeviceSynchronize());
    arena_receive(&memory);
}

static void compare(const char *what, int array, lnt_dtype_t type)
{
    static const int floats[] = {M, V, X, VALUE};
    for (uint32_t r = 0; r < n_runs; r++) {
        if (array >= 0) excuse_nan(r, array, type);
        for (int i = 0; i < 4; i++)
            if (floats[i] != array) excuse_nan(r, floats[i], LNT_F32);
    }
    int64_t at = arena_difference(&memory);
    if (at < 0) return;
    for (uint32_t r = 0; r < n_runs; r++)
        for (int a = 0; a < ARRAYS; a++)
            if ((size_t)at >= runs[r].at[a] &&
                (size_t)at < runs[r].at[a] + (arrays[a].bytes ? arrays[a].bytes : 4) * runs[r].n)
                ck_abort_msg("%s: array %d of run %u of %u, byte %" PRId64 ": n %" PRIu64
                             " block %u data \"%s\" type %s",
                             what, a, r, n_runs, at - (int64_t)runs[r].at[a], runs[r].n, block, data_rows[kind].name,
                             lnt_dtype_name(dtype));
    ck_abort_msg("%s: written beside the arrays, byte %" PRId64, what, at);
}

/* ---- checks ---- */

static void check_widen(void)
{
    lnt_cuda_batch_t batch = send_arrays(G, OUT);
    static float wide[LARGEST];
    for (uint32_t r = 0; r < n_runs; r++) {
        bool fine = lnt_array_ops_ref.widen_scaled[dtype](want(r, G), runs[r].n, factor, wide);
        if (add)
            lnt_array_ops_ref.add(want(r, OUT), wide, runs[r].n);
        else
            memcpy(want(r, OUT), wide, runs[r].n * sizeof(*wide));
        *(uint32_t *)want(r, WORD) = !fine;
    }
    receive("widen", lnt_cuda_array_ops()->widen(&batch, dtype, factor, add, NULL));
    compare("widen", OUT, LNT_F32);
}

static void check_narrow(void)
{
    lnt_cuda_batch_t batch = send_arrays(VALUE, OUT);
    for (uint32_t r = 0; r < n_runs; r++) {
        lnt_array_ops_ref.narrow[dtype](want(r, VALUE), runs[r].n, want(r, OUT));
        *(uint32_t *)want(r, WORD) = !lnt_array_ops_ref.fits[dtype](want(r, VALUE), runs[r].n);
    }
    receive("narrow", lnt_cuda_array_ops()->narrow(&batch, dtype, NULL));
    compare("narrow", OUT, dtype);
}

static void check_check(void)
{
    lnt_cuda_batch_t batch = send_arrays(VALUE, OUT);
    for (uint32_t r = 0; r < n_runs; r++) {
        bool fine = squares ? lnt_array_ops_ref.squares_fit(want(r, VALUE), runs[r].second ? want(r, ERROR) : NULL,
                                                            runs[r].first ? want(r, LIVE) : NULL, runs[r].n)
                            : lnt_array_ops_ref.finite(want(r, VALUE), runs[r].n);
        *(uint32_t *)want(r, WORD) = !fine;
    }
    receive("check", lnt_cuda_array_ops()->check(&batch, squares, NULL));
    compare("check", -1, LNT_F32);
}

static void check_square_sums(void)
{
    lnt_cuda_batch_t batch = send_arrays(VALUE, OUT);
    receive("square_sums", lnt_cuda_array_ops()->square_sums(&batch, NULL));
    for (uint32_t r = 0; r < n_runs; r++)
        for (uint64_t at = 0, b = 0; at < runs[r].n; at += block, b++) {
            double *sum = (double *)want(r, SUMS) + b, *got = (double *)(void *)(memory.got + runs[r].at[SUMS]) + b;
            *sum = lnt_array_ops_ref.square_sum((float *)want(r, VALUE) + at,
                                                runs[r].n - at < block ? runs[r].n - at : block);
            if (isnan(*sum) && isnan(*got)) *sum = *got;
        }
    compare("square_sums", -1, LNT_F32);
}

static void check_rules(void)
{
    static lnt_status_t (*const rules[])(const lnt_cuda_update_batch_t *, void *) = {
        lnt_cuda_update_adam, lnt_cuda_update_momentum, lnt_cuda_update_frozen};
    int rule = (int)rng_below(3);
    lnt_cuda_update_batch_t batch = send_update();
    for (uint32_t r = 0; r < n_runs; r++) {
        const lnt_adam_consts_t *k = want(r, CONSTS);
        if (rule == 0)
            lnt_update_ops_ref.adam(k, want(r, VALUE), runs[r].first ? want(r, CLIP) : NULL, runs[r].n, want(r, M),
                                    want(r, V), want(r, X));
        else if (rule == 1)
            lnt_update_ops_ref.momentum(k, want(r, M), runs[r].n, want(r, VALUE));
        else
            lnt_update_ops_ref.frozen(k, want(r, VALUE), want(r, DENOMINATOR), runs[r].second ? want(r, DEAD) : NULL,
                                      false, runs[r].n, want(r, M), want(r, X));
    }
    receive("update", rules[rule](&batch, NULL));
    compare(rule == 0 ? "adam" : rule == 1 ? "momentum" : "frozen", -1, LNT_F32);
}

/* Sound data: what poison leaves open is test_cuda_kernels's subject. */
static void check_encode_momentum(void)
{
    lnt_codec_ops_t sign1 = lnt_kernel_ops(lnt_kernel_impl_by_name("ref"), LNT_CODEC_SIGN1);
    static float value[LARGEST];
    for (uint32_t r = 0; r < n_runs; r++)
        for (int array = G; array <= SHADOW; array++)
            data_fill(DATA_NORMAL, given(r, array), runs[r].n);
    lnt_cuda_batch_t batch = send_arrays(VALUE, OUT);
    for (uint32_t r = 0; r < n_runs; r++) {
        lnt_encode_in_t in = {.values = value, .n = runs[r].n};
        lnt_encode_out_t out = {.scales = want(r, SCALES), .codes = want(r, CODES)};
        if (runs[r].first) in.live = want(r, LIVE);
        if (runs[r].second) in.error_in = want(r, ERROR);
        if (runs[r].second) out.error_out = want(r, runs[r].third ? ERROR : SHADOW);
        memcpy(value, want(r, VALUE), runs[r].n * sizeof(*value));
        lnt_update_ops_ref.momentum(want(r, CONSTS), want(r, M), runs[r].n, value);
        sign1.encode(&cfg, &in, &out);
    }
    receive("encode_momentum", lnt_cuda_encode_momentum(&cfg, &batch, NULL));
    compare("encode_momentum", -1, LNT_F32);
}

static void (*const checks[])(void) = {check_widen,       check_narrow, check_check,
                                       check_square_sums, check_rules,  check_encode_momentum};
enum { N_CHECKS = sizeof(checks) / sizeof(checks[0]) };

START_TEST(runs_of_all_sizes)
{
    static const uint64_t sizes[] = {0, 1, 3, 4, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025, 2999};
    rng_fork((uint64_t)_i);
    for (int round = 0; round < 8; round++)
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
            if (device_case_left_out()) continue;
            draw(1, sizes[s]);
            checks[_i]();
        }
}
END_TEST

START_TEST(many_runs_in_one_launch)
{
    rng_fork((uint64_t)_i);
    for (int round = 0; round < 6; round++) {
        draw(1 + (uint32_t)rng_below(RUNS), LARGEST);
        checks[_i]();
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("cuda updates");
    TCase *t = tcase_create("arrays and rules");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, runs_of_all_sizes, 0, N_CHECKS);
    tcase_add_loop_test(t, many_runs_in_one_launch, 0, N_CHECKS);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return device_absent() ? 77 : run_suite(suite());
}
