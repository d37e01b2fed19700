/* The two-step form: a block measured in pieces, finished once and coded piece by piece gives the bytes of encode. */
#include "kernel_testing.h"

enum { N = 5000 };

static float input[N], error[N], error_a[N], error_b[N];
static uint8_t live[N / 8 + 1], codes_a[4 * N], codes_b[4 * N], scale_a[4];

static uint64_t piece_size(uint64_t left)
{
    uint64_t size = 8 * (1 + rng_below(rng_next() % 2 ? 20 : 300)); /* masks and sign bits start on bytes */
    return size < left ? size : left;
}

static lnt_encode_in_t piece_of(const lnt_encode_in_t *in, uint64_t first, uint64_t n)
{
    lnt_encode_in_t piece = *in;
    piece.values = (const float *)in->values + first;
    piece.n = n;
    if (in->live) piece.live = in->live + first / 8;
    if (in->error_in) piece.error_in = in->error_in + first;
    return piece;
}

static float measure_in_pieces(const lnt_codec_ops_t *ops, const lnt_codec_cfg_t *cfg, const lnt_encode_in_t *in,
                               bool *poisoned_p)
{
    lnt_measure_t m = {.count = 0};
    for (uint64_t at = 0, n; at < in->n; at += n) {
        n = piece_size(in->n - at);
        lnt_encode_in_t piece = piece_of(in, at, n);
        ops->measure(cfg, &piece, at, &m);
    }
    return ops->finish(cfg, &m, poisoned_p);
}

static void check_pieces(const lnt_codec_row_t *row, const lnt_codec_ops_t *ops, const lnt_codec_cfg_t *cfg,
                         const lnt_encode_in_t *in)
{
    lnt_encode_out_t whole = {.scales = scale_a, .codes = codes_a, .error_out = error_a};
    ops->encode(cfg, in, &whole);
    bool poisoned = false, late = false;
    float scale = measure_in_pieces(ops, cfg, in, &poisoned);
    ck_assert_int_eq(poisoned, whole.poisoned);
    if (row->has_scales) ck_assert_mem_eq(&scale, scale_a, 4);
    memcpy(error_b, error, sizeof(error));
    for (uint64_t at = 0, n; at < in->n; at += n) {
        n = piece_size(in->n - at);
        lnt_encode_in_t piece = piece_of(in, at, n);
        uint8_t repeated[4];
        lnt_encode_out_t out = {.scales = repeated, .codes = codes_b + at * row->bits / 8, .error_out = error_b + at};
        piece.error_in = error_b + at;
        ops->encode_scaled(cfg, &piece, scale, &out);
        if (row->has_scales && !out.poisoned) ck_assert_mem_eq(repeated, &scale, 4);
        late |= out.poisoned;
    }
    if (poisoned) return; /* clean pieces of a poisoned block keep their bits: its scale is +0 */
    ck_assert(!late);
    ck_assert_mem_eq(codes_a, codes_b, (in->n * row->bits + 7) / 8);
    ck_assert_mem_eq(error_a, error_b, in->n * sizeof(float));
}

START_TEST(pieces_give_the_same_bytes)
{
    size_t n_rows;
    const lnt_codec_row_t *row = lnt_codec_rows(&n_rows) + _i / DATA_COUNT;
    const lnt_codec_ops_t all = lnt_kernel_ops(lnt_kernel_impl_by_name("auto"), row->id), *ops = &all;
    for (int round = 0; round < 24; round++) {
        uint64_t n = 1 + rng_below(N);
        lnt_codec_cfg_t cfg = {8192, row->has_scale_rule && round % 2 ? LNT_SCALE_L1 : LNT_SCALE_L2};
        data_fill((data_kind_t)(_i % DATA_COUNT), input, N);
        data_fill(DATA_SPARSE, error, N);
        for (size_t i = 0; i < sizeof(live); i++)
            live[i] = (uint8_t)(rng_next() | rng_next());
        lnt_encode_in_t in = {
            .values = input, .dtype = LNT_F32, .n = n, .live = round / 2 % 2 ? live : NULL, .error_in = error};
        check_pieces(row, ops, &cfg, &in);
    }
}
END_TEST

/* One piece that covers the block: equal to encode even when the block is poisoned by one of its elements. */
START_TEST(a_poisoned_piece_codes_zero)
{
    size_t n_rows;
    const lnt_codec_row_t *row = lnt_codec_rows(&n_rows) + _i;
    const lnt_codec_ops_t all = lnt_kernel_ops(lnt_kernel_impl_by_name("auto"), row->id), *ops = &all;
    lnt_codec_cfg_t cfg = {8192, LNT_SCALE_L2};
    if (!row->has_scales) return;
    data_fill(DATA_NAN, input, N);
    lnt_encode_in_t in = {.values = input, .dtype = LNT_F32, .n = N, .live = NULL, .error_in = NULL};
    lnt_encode_out_t out = {.scales = scale_a, .codes = codes_a};
    ops->encode_scaled(&cfg, &in, 1.0f, &out);
    ck_assert(out.poisoned);
    for (size_t i = 0; i < (N * row->bits + 7) / 8; i++)
        ck_assert_uint_eq(codes_a[i], 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("codec_pieces");
    TCase *all = tcase_create("all");
    tcase_add_loop_test(all, pieces_give_the_same_bytes, 0, LNT_CODEC_COUNT * DATA_COUNT);
    tcase_add_loop_test(all, a_poisoned_piece_codes_zero, 0, LNT_CODEC_COUNT);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}
