/* decode, decode_add and decode_sum of every implementation against the oracle, over bytes that no encoder may have
 * made: any codes under any legal scale, one to many runs, with and without what was there before, each run and mask at
 * a place of its own between inaccessible pages.
 */
#include "matrix_case.h"

enum { SUM_N = 16400, SUM_BLOCKS = SUM_N / 64 + 2, RUNS_MAX = 17 };

static guarded_t run_codes[RUNS_MAX], run_scales[RUNS_MAX];
static uint8_t codes[RUNS_MAX][4 * SUM_N], scales[RUNS_MAX][4 * SUM_BLOCKS];
static float sums[SUM_N], values[SUM_N];

typedef struct sum_case {
    test_case_t t;
    uint32_t n_runs;
    bool add;
} sum_case_t;

static void setup(void)
{
    case_setup();
    for (int r = 0; r < RUNS_MAX; r++) {
        run_codes[r] = guarded_create(4 * SUM_N);
        run_scales[r] = guarded_create(4 * SUM_BLOCKS);
    }
}

static void teardown(void)
{
    case_teardown();
    for (int r = 0; r < RUNS_MAX; r++) {
        guarded_destroy(&run_codes[r]);
        guarded_destroy(&run_scales[r]);
    }
}

static float any_scale(void)
{
    const float special[] = {0.0f, 1.0f, FLT_MAX, FLT_MIN, 0x1p-149f};
    return rng_below(3) ? fabsf(data_unit()) : special[rng_below(5)];
}

/* The sum of two NaNs may be either of them, so only run 0 has any: elsewhere plain elements lose an exponent bit. */
static void make_run(const test_case_t *t, uint32_t r)
{
    for (uint64_t i = 0; i < case_code_bytes(t); i++)
        codes[r][i] = (uint8_t)rng_next();
    size_t element = t->row->bits / 8;
    for (uint64_t i = element; i <= case_code_bytes(t) && r && !t->row->has_scales; i += element)
        codes[r][i - 1] &= 0xbf;
    for (uint64_t i = 0; i < case_scale_bytes(t); i += 4) {
        float scale = any_scale();
        memcpy(scales[r] + i, &scale, 4);
    }
}

static void decode_by_oracle(const test_case_t *t, uint32_t r, float *out)
{
    for (uint64_t i = 0, k = 0; i < t->n; i += t->cfg.block, k++) {
        oracle_block_t b = {.n = t->n - i < t->cfg.block ? t->n - i : t->cfg.block,
                            .live = t->masked ? given.live + i / 8 : NULL,
                            .codes = codes[r] + i * t->row->bits / 8};
        if (t->row->has_scales) memcpy(&b.scale, scales[r] + 4 * k, 4);
        oracle_decode(&b, t->row, out + i);
    }
}

static void make_sums(const sum_case_t *s)
{
    for (uint32_t r = 0; r < s->n_runs; r++) {
        make_run(&s->t, r);
        decode_by_oracle(&s->t, r, values);
        for (uint64_t i = 0; i < s->t.n; i++)
            sums[i] = r > 0 ? sums[i] + values[i] : s->add ? old_value(i) + values[i] : values[i];
    }
}

static bool runs_intact(const sum_case_t *s)
{
    bool intact = case_guards_hold();
    for (uint32_t r = 0; r < s->n_runs; r++)
        intact = intact && guarded_intact(&run_codes[r]) && guarded_intact(&run_scales[r]);
    return intact;
}

/* One run goes through decode or decode_add too. */
static void check_single(const sum_case_t *s, const lnt_coded_run_t *run, const uint8_t *live)
{
    const test_case_t *t = &s->t;
    float *out = case_take(t, &out_mem, 4 * t->n, 4);
    for (uint64_t i = 0; i < t->n; i++)
        out[i] = old_value(i);
    (s->add ? t->ops.decode_add : t->ops.decode)(&t->cfg, run->scales, run->codes, t->n, live, out);
    case_want(t, !memcmp(out, sums, 4 * t->n), s->add ? "decode_add of any bytes" : "decode of any bytes");
    case_want(t, runs_intact(s), "memory beside the decoding of any bytes");
}

static void check_sum(const sum_case_t *s)
{
    const test_case_t *t = &s->t;
    lnt_coded_run_t runs[RUNS_MAX];
    const uint8_t *live = given_live(t);
    for (uint32_t r = 0; r < s->n_runs; r++) {
        runs[r].codes = case_copy(t, &run_codes[r], codes[r], case_code_bytes(t), 1);
        runs[r].scales = case_copy(t, &run_scales[r], scales[r], case_scale_bytes(t), 1);
        if (!t->row->has_scales) runs[r].scales = NULL;
    }
    if (s->n_runs == 1) check_single(s, runs, live);
    float *out = case_take(t, &out_mem, 4 * t->n, 4);
    for (uint64_t i = 0; i < t->n; i++)
        out[i] = old_value(i);
    t->ops.decode_sum(&t->cfg, runs, s->n_runs, t->n, live, s->add, out);
    case_want(t, !memcmp(out, sums, 4 * t->n), s->add ? "decode_sum with add" : "decode_sum");
    case_want(t, runs_intact(s), "memory beside decode_sum");
}

static void check_impls(sum_case_t *s)
{
    test_case_t *t = &s->t;
    make_sums(s);
    for (const lnt_kernel_impl_t *impl = next_impl(NULL, t->row->id); impl; impl = next_impl(impl, t->row->id)) {
        t->impl = impl->name;
        t->ops = lnt_kernel_ops(impl, t->row->id);
        for (t->run = 0; t->run < 2; t->run++)
            check_sum(s);
    }
}

static void check_runs(test_case_t t)
{
    const uint32_t n_runs[] = {1, 2, 3, RUNS_MAX - 1, RUNS_MAX};
    for (int variant = 0; variant < 5 * 2 * 2; variant++) {
        sum_case_t s = {.t = t, .n_runs = n_runs[variant % 5], .add = variant / 5 % 2};
        s.t.masked = variant / 10;
        for (uint64_t i = 0; i < (t.n + 7) / 8; i++)
            given.live[i] = (uint8_t)(rng_next() | rng_next());
        check_impls(&s);
    }
}

/* One check for each codec and block. */
static const uint32_t blocks[] = {64, 128, 256, 1024, 2048, 4096};
enum { N_BLOCKS = sizeof(blocks) / sizeof(blocks[0]) };

START_TEST(any_bytes_decode_and_add_up_as_the_oracle_says)
{
    size_t n_rows;
    const uint64_t block = blocks[_i % N_BLOCKS];
    const uint64_t sizes[] = {0,  1,  7,   8,   9,   31,        33,    63,
                              64, 65, 127, 128, 129, block - 1, block, block + 1 + rng_below(3 * block)};
    test_case_t t = {.row = lnt_codec_rows(&n_rows) + _i / N_BLOCKS, .cfg.block = (uint32_t)block};
    rng_fork((uint64_t)_i);
    for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
        t.n = sizes[k];
        check_runs(t);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("decode_matrix");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 120);
    tcase_add_unchecked_fixture(all, setup, teardown);
    tcase_add_loop_test(all, any_bytes_decode_and_add_up_as_the_oracle_says, 0, LNT_CODEC_COUNT * N_BLOCKS);
    suite_add_tcase(suite, all);
    say_unusable_impls();
    return run_suite(suite);
}
