/* The two-step form: a block measured in pieces, finished once and coded piece by piece gives the bytes of the oracle;
 * so does coding with a scale from elsewhere. Every implementation; pieces, masks and errors anywhere in memory.
 */
#include "matrix_case.h"

enum { MAX_N = 5000, PIECE_UNIT = 32 };

static uint8_t one_scale[4];

static uint64_t piece_size(uint64_t left)
{
    uint64_t size = PIECE_UNIT * (1 + rng_below(rng_next() % 2 ? 5 : 75));
    return size < left ? size : left;
}

static lnt_encode_in_t piece_of(const lnt_encode_in_t *in, uint64_t first, uint64_t n)
{
    lnt_encode_in_t piece = *in;
    piece.values = (const uint8_t *)in->values + first * lnt_dtype_row(in->dtype)->size;
    piece.n = n;
    piece.index = in->index + first;
    if (in->live) piece.live = in->live + first / 8;
    if (in->error_in) piece.error_in = in->error_in + first;
    return piece;
}

/* The sums themselves, which a scale in f32 would hide, and what else is measured. */
static void check_sums(const test_case_t *t, const lnt_measure_t *m)
{
    oracle_block_t b = {.a = given.a, .n = t->n, .live = t->masked ? given.live : NULL};
    double lanes[128];
    uint64_t count = oracle_lanes(&b, t->cfg.scale_rule, lanes);
    if (want.any_poisoned || !t->row->has_scales) return;
    case_want(t, m->count == count, "count, measured in pieces,");
    if (t->row->has_scale_rule) case_want(t, !memcmp(m->lanes, lanes, sizeof(lanes)), "sums, measured in pieces,");
}

static void check_measure(const test_case_t *t, const lnt_encode_in_t *in)
{
    lnt_measure_t m = {.count = 0};
    bool poisoned = false;
    for (uint64_t at = 0, n; at < in->n; at += n) {
        n = piece_size(in->n - at);
        lnt_encode_in_t piece = piece_of(in, at, n);
        t->ops.measure(&t->cfg, &piece, at, &m);
    }
    check_sums(t, &m);
    float scale = t->ops.finish(&t->cfg, &m, &poisoned);
    case_want(t, poisoned == want.any_poisoned, "poison, measured in pieces,");
    if (t->row->has_scales) case_want(t, !memcmp(&scale, want.scales, 4), "scale, measured in pieces,");
    case_want(t, case_guards_hold(), "memory beside measure");
}

/* Poison and scale of a piece; codes and error of all pieces are looked at in the end. */
static void code_piece(const test_case_t *t, const lnt_encode_in_t *in, uint64_t at, uint64_t n,
                       const lnt_encode_out_t *whole)
{
    float scale;
    memcpy(&scale, want.scales, 4);
    lnt_encode_in_t piece = piece_of(in, at, n);
    lnt_encode_out_t out = {.scales = one_scale,
                            .codes = whole->codes + at * t->row->bits / 8,
                            .error_out = whole->error_out ? whole->error_out + at : NULL,
                            .stream = t->stream};
    t->ops.encode_scaled(&t->cfg, &piece, scale, &out);
    case_want(t, !out.poisoned, "poison of a piece");
    if (t->row->has_scales) case_want(t, !memcmp(one_scale, &scale, 4), "scale of a piece");
}

static void check_code(const test_case_t *t, const lnt_encode_in_t *in, float *error)
{
    float *shadow = case_take(t, &shadow_mem, t->feedback == EF_SHADOW ? 4 * t->n : 0, 4);
    lnt_encode_out_t out = {.codes = case_take(t, &code_mem, case_code_bytes(t), 1)};
    if (t->feedback != EF_NONE) out.error_out = t->feedback == EF_IN_PLACE ? error : shadow;
    for (uint64_t at = 0, n; at < t->n; at += n) {
        n = piece_size(t->n - at);
        code_piece(t, in, at, n, &out);
    }
    case_want(t, !memcmp(out.codes, want.codes, case_code_bytes(t)), "codes, piece by piece,");
    if (out.error_out) check_error(t, out.error_out);
    check_inputs_kept(t, in);
    case_want(t, case_guards_hold(), "memory beside encode_scaled");
}

static void draw_case(test_case_t *t, int round)
{
    t->n = 1 + rng_below(MAX_N);
    t->cfg.block = 8192;
    t->cfg.scale_rule = t->row->has_scale_rule && round % 2 ? LNT_SCALE_L1 : LNT_SCALE_L2;
    t->masked = round / 2 % 2;
    t->feedback = (feedback_t)rng_below(EF_COUNT);
    t->dtype = (lnt_dtype_t)rng_below(LNT_DTYPE_COUNT);
    t->stream = rng_below(2);
    t->seed = rng_next();
    t->index = rng_below(2) ? rng_below(1u << 20) : UINT32_MAX - rng_below(MAX_N);
    make_given(t);
}

/* Clean pieces of a poisoned block keep their bits, its scale is +0: nothing to compare. */
static void check_impls(test_case_t *t, bool measured)
{
    for (const lnt_kernel_impl_t *impl = next_impl(NULL, t->row->id); impl; impl = next_impl(impl, t->row->id)) {
        float *error;
        t->impl = impl->name;
        t->ops = lnt_kernel_ops(impl, t->row->id);
        for (t->run = 0; t->run < 2; t->run++) {
            lnt_encode_in_t in = given_input(t, &error);
            if (measured) check_measure(t, &in);
            if (!want.any_poisoned) check_code(t, &in, error);
        }
    }
}

static test_case_t case_of(int i)
{
    size_t n_rows;
    rng_fork((uint64_t)i);
    return (test_case_t){.row = lnt_codec_rows(&n_rows) + i / DATA_COUNT, .data = (data_kind_t)(i % DATA_COUNT)};
}

START_TEST(pieces_give_the_same_bytes)
{
    test_case_t t = case_of(_i);
    for (int round = 0; round < 24; round++) {
        draw_case(&t, round);
        make_want(&t);
        check_impls(&t, true);
    }
}
END_TEST

/* What the oracle codes with this scale instead of its own; false if that is not a case for comparing. */
static bool make_want_scaled(const test_case_t *t, float scale)
{
    oracle_block_t b = {.a = given.a, .n = t->n, .live = t->masked ? given.live : NULL, .scale = scale};
    b.seed = t->seed;
    b.index = t->index;
    b.codes = want.codes;
    make_want(t);
    if (want.any_poisoned) return false;
    memset(want.codes, 0, case_code_bytes(t));
    memcpy(want.scales, &scale, 4);
    oracle_put(&b, t->row);
    oracle_decode(&b, t->row, want.values);
    for (uint64_t i = 0; i < t->n; i++)
        want.error[i] = oracle_live(&b, i) ? given.a[i] - want.values[i] : 0.0f;
    return true;
}

/* Compat grids code with the scale of a larger block: elements may lie far beyond the top code, or all below a half. */
START_TEST(a_scale_from_elsewhere)
{
    test_case_t t = case_of(_i);
    if (!t.row->has_scales) return;
    for (int round = 0; round < 24; round++) {
        draw_case(&t, round);
        if (make_want_scaled(&t, round % 3 ? fabsf(data_unit()) : round % 2 ? 0.0f : 1.0f)) check_impls(&t, false);
    }
}
END_TEST

/* One bad element poisons its piece, wherever it is: no codes, scale +0. */
START_TEST(a_poisoned_piece_codes_zero)
{
    test_case_t t = {.row = case_of(_i * DATA_COUNT).row, .run = 1, .data = DATA_NAN};
    for (int round = 0; round < 100 && t.row->has_scales; round++) {
        draw_case(&t, round);
        for (const lnt_kernel_impl_t *impl = next_impl(NULL, t.row->id); impl; impl = next_impl(impl, t.row->id)) {
            float *error;
            t.impl = impl->name;
            lnt_encode_in_t in = given_input(&t, &error);
            lnt_encode_out_t out = {.scales = one_scale, .codes = case_take(&t, &code_mem, case_code_bytes(&t), 1)};
            lnt_kernel_ops(impl, t.row->id).encode_scaled(&t.cfg, &in, 1.0f, &out);
            case_want(&t, out.poisoned && !memcmp(one_scale, "\0\0\0", 4), "poison of a piece");
            for (size_t i = 0; i < case_code_bytes(&t); i++)
                case_want(&t, out.codes[i] == 0, "codes of a poisoned piece");
            case_want(&t, case_guards_hold(), "memory beside a poisoned piece");
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("codec_pieces");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 120);
    tcase_add_unchecked_fixture(all, case_setup, case_teardown);
    tcase_add_loop_test(all, pieces_give_the_same_bytes, 0, LNT_CODEC_COUNT * DATA_COUNT);
    tcase_add_loop_test(all, a_scale_from_elsewhere, 0, LNT_CODEC_COUNT * DATA_COUNT);
    tcase_add_loop_test(all, a_poisoned_piece_codes_zero, 0, LNT_CODEC_COUNT);
    suite_add_tcase(suite, all);
    say_unusable_impls();
    return run_suite(suite);
}
