/* Every implementation of every codec against the oracle, byte for byte: encode, decode and decode_add over element
 * types, blocks, sizes around everything a vector or a block may end at, all kinds of data, masks, error feedback none,
 * in place and into a shadow, the stream hint, and places in memory. Small sizes take every combination of mask and
 * feedback, larger ones draw one.
 */
#include "matrix_case.h"

static const uint32_t blocks[] = {64, 128, 256, 1024, 2048, 4096, 65600};
enum { N_BLOCKS = sizeof(blocks) / sizeof(blocks[0]), SMALL = 130, LARGE_BLOCK = 65536, LARGE_N = 1000003 };

static void draw_rest(test_case_t *t)
{
    t->masked = rng_below(2);
    t->feedback = (feedback_t)rng_below(EF_COUNT);
    t->stream = rng_below(2);
    t->seed = rng_next();
    t->index = rng_below(2) ? rng_below(1u << 20) : (rng_below(3) << 32) + UINT32_MAX - rng_below(300);
}

static void check_drawn(test_case_t *t)
{
    make_given(t);
    check_given(t);
}

static void check_size(test_case_t t, uint64_t n)
{
    t.n = n;
    draw_rest(&t);
    if (n > SMALL) {
        check_drawn(&t);
        return;
    }
    for (int variant = 0; variant < 2 * EF_COUNT; variant++) {
        t.masked = variant % 2;
        t.feedback = (feedback_t)(variant / 2);
        check_drawn(&t);
    }
}

/* Sizes below a block are the same whatever the block: they come with the smallest one, and by chance with others.
 * Small blocks are coded several at a time: they come with runs of many of them. */
static void check_sizes(test_case_t t)
{
    const uint64_t small[] = {0, 1, 7, 8, 9, 31, 33, 63, 64, 65, 127, 128, 129};
    const uint64_t block = t.cfg.block, large[] = {block - 1, block, block + 1, 3 * block + 1 + rng_below(block - 1)};
    for (size_t s = 0; s < sizeof(small) / sizeof(small[0]); s++)
        if (block == blocks[0] || rng_below(4) == 0) check_size(t, small[s]);
    for (size_t s = 0; s < sizeof(large) / sizeof(large[0]); s++)
        if (block < LARGE_BLOCK || rng_below(8) == 0) check_size(t, large[s]);
    if (block <= 256) check_size(t, 20 * block + 1 + rng_below(block - 1));
}

static const lnt_codec_row_t *row_of(int i)
{
    size_t n_rows;
    return lnt_codec_rows(&n_rows) + i;
}

/* One check for each codec and kind of data. */
START_TEST(every_implementation_gives_the_bytes_of_the_oracle)
{
    test_case_t t = {.row = row_of(_i / DATA_COUNT), .data = (data_kind_t)(_i % DATA_COUNT)};
    rng_fork((uint64_t)_i);
    for (size_t b = 0; b < N_BLOCKS; b++)
        for (int rule = 0; rule <= (t.row->has_scale_rule ? 1 : 0); rule++)
            for (int dtype = 0; dtype < LNT_DTYPE_COUNT; dtype++) {
                t.cfg = (lnt_codec_cfg_t){blocks[b], (lnt_scale_rule_t)rule};
                t.dtype = (lnt_dtype_t)dtype;
                check_sizes(t);
            }
}
END_TEST

/* Element p becomes something that nobody may send: by its input, by its error, or by the sum of the two. */
static void spoil(const test_case_t *t, uint64_t p)
{
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    float value = bad[rng_below(4)], error = given.error[p];
    uint64_t how = t->feedback == EF_NONE ? 0 : rng_below(3);
    if (how == 1) {
        error = value;
        value = 1.0f;
    } else if (how == 2)
        value = error = FLT_MAX;
    value = put_value(t->dtype, p, value);
    given.a[p] = t->feedback == EF_NONE ? value : value + error;
    given.error[p] = error;
}

START_TEST(one_bad_element_is_seen_wherever_it_is)
{
    enum { N = 257 };
    test_case_t t = {.row = row_of(_i / LNT_DTYPE_COUNT), .n = N, .data = DATA_NORMAL};
    t.dtype = (lnt_dtype_t)(_i % LNT_DTYPE_COUNT);
    rng_fork((uint64_t)_i);
    for (uint64_t p = 0; p < N; p++) {
        t.cfg.block = blocks[rng_below(4)];
        draw_rest(&t);
        make_given(&t);
        spoil(&t, p);
        check_given(&t);
    }
}
END_TEST

/* Grids of compat=deepspeed have blocks that are multiples of 8 only. */
START_TEST(blocks_of_compat_grids)
{
    static const lnt_codec_id_t ids[] = {LNT_CODEC_SIGN1, LNT_CODEC_INT8, LNT_CODEC_INT4};
    test_case_t t = {.row = row_of((int)ids[_i / DATA_COUNT]), .data = (data_kind_t)(_i % DATA_COUNT)};
    rng_fork((uint64_t)_i);
    for (int round = 0; round < 20; round++) {
        t.cfg.block = 8 * (1 + (uint32_t)rng_below(130));
        t.dtype = (lnt_dtype_t)rng_below(LNT_DTYPE_COUNT);
        t.n = rng_below(12 * (uint64_t)t.cfg.block);
        draw_rest(&t);
        if (round % 2) t.masked = false, t.feedback = EF_NONE, t.dtype = LNT_F32;
        check_drawn(&t);
    }
}
END_TEST

/* Runs that are long enough to be coded while they are read, of blocks of any size, some of them poisoned. */
START_TEST(long_runs_of_blocks)
{
    static const uint32_t sizes[] = {64, 128, 256, 384, 512, 640, 1024, 2048};
    test_case_t t = {.row = row_of(_i / EF_COUNT), .data = DATA_NORMAL, .feedback = (feedback_t)(_i % EF_COUNT)};
    rng_fork((uint64_t)_i);
    for (int round = 0; round < 16; round++) {
        const feedback_t feedback = t.feedback;
        t.cfg.block = sizes[round % 8];
        t.dtype = (lnt_dtype_t)rng_below(LNT_DTYPE_COUNT);
        t.n = 8 * 1024 + rng_below(5 * 1024);
        if (rng_below(2)) t.n = t.n / 1024 * 1024;
        draw_rest(&t);
        t.masked = t.masked && round % 4 == 0;
        t.feedback = t.row->has_feedback ? feedback : EF_NONE;
        make_given(&t);
        for (uint64_t bad = rng_below(4); bad > 0; bad--)
            spoil(&t, rng_below(t.n));
        check_given(&t);
        t.feedback = feedback;
    }
}
END_TEST

/* Large enough for everything that begins late: stores around the caches, many blocks, odd ends. */
START_TEST(a_million_elements)
{
    test_case_t t = {.row = row_of(_i / EF_COUNT), .n = LARGE_N, .stream = true};
    rng_fork((uint64_t)_i);
    draw_rest(&t);
    t.feedback = (feedback_t)(_i % EF_COUNT);
    t.stream = t.feedback != EF_NONE;
    t.data = rng_below(2) ? DATA_NORMAL : DATA_ANY_FINITE;
    t.dtype = (lnt_dtype_t)rng_below(LNT_DTYPE_COUNT);
    t.cfg.block = rng_below(2) ? t.row->default_block : blocks[N_BLOCKS - 1];
    check_drawn(&t);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("codec_matrix");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 120);
    tcase_add_unchecked_fixture(all, case_setup, case_teardown);
    tcase_add_loop_test(all, every_implementation_gives_the_bytes_of_the_oracle, 0, LNT_CODEC_COUNT * DATA_COUNT);
    tcase_add_loop_test(all, one_bad_element_is_seen_wherever_it_is, 0, LNT_CODEC_COUNT * LNT_DTYPE_COUNT);
    tcase_add_loop_test(all, blocks_of_compat_grids, 0, 3 * DATA_COUNT);
    tcase_add_loop_test(all, long_runs_of_blocks, 0, LNT_CODEC_COUNT * EF_COUNT);
    tcase_add_loop_test(all, a_million_elements, 0, LNT_CODEC_COUNT * EF_COUNT);
    suite_add_tcase(suite, all);
    say_unusable_impls();
    return run_suite(suite);
}
